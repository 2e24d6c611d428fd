"""A check, as all who show `doctor`'s findings have it: the command line and the page."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "missing", "open", "weak"]
"""Present · required and missing · not visible or not required here · below the hardening profile."""


@dataclass(frozen=True)
class Check:
    """What one check has found."""

    name: str
    status: Status
    detail: str
    """What is so, on this machine: it may name paths and addresses, and never a secret."""
    fix: str = ""
    """What to do next; empty for nothing."""
