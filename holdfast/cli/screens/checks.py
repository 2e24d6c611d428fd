"""The lines of `doctor`'s report."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "open", "weak"]
"""There · needed and missing · not visible from here, or not needed here · below the hardening profile."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    detail: str
    fix: str = ""
