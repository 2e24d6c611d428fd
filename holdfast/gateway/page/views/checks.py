"""What `doctor` finds, for display: the faults first, each with what to do next."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.core.base.text import count
from holdfast.doctor.check import Check, Status
from holdfast.gateway.page.views.text import When, line, when

WORDS: dict[Status, tuple[str, str]] = {
    "missing": ("fault", "blocked"),
    "weak": ("warning", "paused"),
    "open": ("note", ""),
    "ok": ("ok", "completed"),
}
"""The result of a check → its word and its class, the most urgent first."""


class Findings(NamedTuple):
    """What some checks have found, and when they began."""

    at: datetime
    checks: Sequence[Check]


class CheckRow(NamedTuple):
    """A check."""

    name: str
    word: str
    css: str
    detail: str
    next: str
    """What to do next; empty for nothing."""


class Group(NamedTuple):
    """Checks that were made at one time."""

    title: str
    at: When | None
    """When; None for never."""
    summary: str
    rows: tuple[CheckRow, ...]
    """Those that are not ok."""
    fine: tuple[CheckRow, ...]


class ChecksView(NamedTuple):
    """All checks."""

    groups: tuple[Group, ...]
    under_way: bool


def checks_view(
    installation: Findings | None, endpoints: Findings | None, now: datetime, *, under_way: bool
) -> ChecksView:
    """Return findings for display.

    Args:
        installation: Those about the installation; None for none yet.
        endpoints: Those about LLM endpoints; None for none yet.
        now: The time.
        under_way: The next ones are being made.
    """
    pairs = (("Installation", installation), ("LLM endpoints", endpoints))
    return ChecksView(tuple(_group(title, findings, now) for title, findings in pairs), under_way)


def _group(title: str, findings: Findings | None, now: datetime) -> Group:
    order = list(WORDS)
    checks = sorted(findings.checks if findings else (), key=lambda check: order.index(check.status))
    rows = tuple(_row(check) for check in checks)
    numbers = {word: sum(row.word == word for row in rows) for word, _ in WORDS.values()}
    counts = [count(number, word) for word, number in numbers.items() if number and word != "ok"]
    summary = ", ".join([*counts, f"{numbers['ok']} ok"]) if rows else "There is nothing to check"
    at = when(findings.at.isoformat(), now) if findings else None
    return Group(title, at, summary, *(tuple(row for row in rows if (row.word == "ok") is ok) for ok in (False, True)))


def _row(check: Check) -> CheckRow:
    word, css = WORDS[check.status]
    fix = check.fix if check.status != "ok" else ""
    return CheckRow(line(check.name), word, css, line(check.detail, 1_000), line(fix, 600))
