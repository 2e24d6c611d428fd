"""What progress.txt says: entries about work that was done, and the current status."""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.base.models import Frozen
from holdfast.core.memory.markdown import TITLE, flat, stamp

MOST_FILES = 20
"""Maximum number of files that an entry lists."""


class Entry(Frozen):
    """One entry under Recent Activity."""

    title: str
    at: str = ""
    """`2026-11-21 10:30`, in UTC; empty if the heading has no date."""
    what: str = ""
    files: str = ""
    """File names separated by commas, as written."""
    outcome: str = ""
    next: str = ""


class Current(Frozen):
    """The current status; missing fields are empty."""

    updated: str = ""
    active: str = ""
    last_completed: str = ""
    blockers: str = ""
    thread: str = ""
    """The thread that worked here last."""
    goal: str = ""
    status: str = ""
    next_action: str = ""
    context: str = ""
    last_step: str = ""
    """The number and the status of the thread's last step: `12, completed`."""


def entry(
    title: str, at: datetime, *, what: str, files: Sequence[str] = (), outcome: str = "", next_step: str = ""
) -> Entry:
    """Make an entry whose texts are each on one line and clipped."""
    named = ", ".join(flat(name, TITLE) for name in files[:MOST_FILES])
    more = f" and {len(files) - MOST_FILES:,} more" if len(files) > MOST_FILES else ""
    return Entry(
        title=flat(title, TITLE),
        at=stamp(at),
        what=flat(what),
        files=named + more,
        outcome=flat(outcome),
        next=flat(next_step),
    )


def call_entry(line: str, at: datetime, *, thread: str) -> Entry:
    """Make the entry about a call from its line: `pay (call 7), ok: {"amount": 3} → paid`."""
    head, _, rest = line.partition(": ")
    call, _, outcome = head.rpartition(", ")
    return entry(f"{thread}: {call or outcome}", at, what=rest, outcome=outcome if call else "")


def step_entry(step: str, at: datetime, *, thread: str) -> Entry:
    """Make the entry about a step that the LLM says is completed."""
    return entry(f"{thread}: {step}", at, what="", outcome="Success")
