"""The lines of `doctor`'s report."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "open", "weak"]
"""Present · required and missing · not visible or not required here · below the hardening profile."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Status
    detail: str
    fix: str = ""
