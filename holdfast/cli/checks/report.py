"""`doctor`'s report on the command line: its lines, and the exit code."""

from collections.abc import Sequence

from rich.text import Text

from holdfast.cli.exits import FAILED, OK, UNREACHABLE
from holdfast.cli.text import visible
from holdfast.doctor.check import Check


def exit_code(checks: Sequence[Check], *, hardened: bool = False) -> int:
    """Return 4 if the server is missing, 1 if anything else is, else 0; with `hardened`, `weak` counts as missing."""
    faults = ("missing", "weak") if hardened else ("missing",)
    missing = {check.name for check in checks if check.status in faults}
    if missing & {"temporal", "namespace"}:
        return UNREACHABLE
    return FAILED if missing else OK


def report(checks: Sequence[Check]) -> Text:
    """Return the report for people."""
    styles = {"ok": "green", "missing": "bold red", "open": "yellow", "weak": "yellow"}
    screen = Text()
    for check in checks:
        shown = "–" if check.status == "open" else check.status
        screen.append(f"{shown:<8}", styles[check.status]).append(f"{check.name:<19}", "bold")
        screen.append(visible(check.detail) + "\n")
        if check.fix and check.status != "ok":
            screen.append(f"{'':<27}→ {check.fix}\n", "dim")
    screen.rstrip()
    return screen
