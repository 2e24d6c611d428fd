"""What `doctor` found: lines of its report."""

from dataclasses import dataclass
from typing import Literal

Standing = Literal["ok", "missing", "open", "weak"]
"""There · needed and not there · cannot be told from here, or not needed here · below the hardening profile."""


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    status: Standing
    detail: str
    fix: str = ""
