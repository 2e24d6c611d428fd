"""progress.txt: the current status and recent activity, newest first.

    # Progress Log
    ## Current Status (Updated: 2026-11-21 10:30)
    - Thread: nightly-7
    - Goal: …
    - Status: …
    - Next Action: …
    - Context: …
    - Last Step: 12, completed
    - Active Task: …
    - Last Completed: …
    - Blockers: …
    ## Recent Activity
    ### 2026-11-21 10:30 - Title
    - What: …
    - Files: …
    - Outcome: …
    - Next: …

The fields from Thread to Last Step belong to one thread: when another one begins to work here, they become an entry.
Edits change single lines; all other text, which people may have written, stays unchanged.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from holdfast.core.base.models import Frozen
from holdfast.core.memory.markdown import TITLE, Heading, flat, headings, line_break, read_stamp, stamp
from holdfast.core.memory.progress_sections import (
    ACTIVITY,
    STATUS,
    UPDATED,
    activity_of,
    fields_of,
    section_of,
    with_field,
    with_line_break,
    with_sections,
    with_time,
    without_field,
)

MOST_FILES = 20
"""Maximum number of files that an entry lists."""

_OF_THREAD = {
    "goal": "Goal",
    "status": "Status",
    "next_action": "Next Action",
    "context": "Context",
    "last_step": "Last Step",
}
"""The fields of the current status that a thread sets, by name."""


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
    """Make the entry about a call from its line: `pay (call 7): {"amount": 3}, ok: paid`."""
    call, _, rest = line.partition(": ")
    return entry(f"{thread}: {call}", at, what=rest)


def parse_entries(text: str) -> tuple[Entry, ...]:
    """Parse the entries under Recent Activity, in the order of the file (normally newest first)."""
    return tuple(_entry(mark, text[mark.end : until]) for mark, until in activity_of(text, headings(text)))


def parse_current(text: str) -> Current:
    """Parse the current status."""
    marks = headings(text)
    status = section_of(text, marks, STATUS)
    if status is None:
        return Current()
    (heading,) = (mark for mark in marks if mark.end == status[0])
    updated = UPDATED.search(heading.title)
    fields = fields_of(text[slice(*status)])
    return Current(
        updated=updated[1].strip() if updated else "",
        active=fields.get("active task", ""),
        last_completed=fields.get("last completed", ""),
        blockers=fields.get("blockers", ""),
        thread=fields.get("thread", ""),
        **{name: fields.get(title.casefold(), "") for name, title in _OF_THREAD.items()},
    )


def set_current(
    text: str | None,
    at: datetime,
    *,
    active: str | None = None,
    last_completed: str | None = None,
    blockers: str | None = None,
) -> str:
    """Update the current status. A field that is None stays unchanged; an empty one becomes the word `None`.

    Args:
        text: The content of progress.txt; None if there is no such file.
        at: The time of the update.
        active: The next task.
        last_completed: The task completed last.
        blockers: The obstacles to progress.
    """
    fields = {"Active Task": active, "Last Completed": last_completed, "Blockers": blockers}
    return _with_status(
        text, at, {name: flat(value, TITLE) or "None" for name, value in fields.items() if value is not None}
    )


def set_thread(text: str | None, at: datetime, *, thread: str, **updates: str) -> str:
    """Update a thread's fields in the current status. Those of another thread move into an entry.

    Args:
        text: The content of progress.txt; None if there is no such file.
        at: The time of the update.
        thread: The thread.
        **updates: `goal`, `status`, `next_action`, `context` or `last_step`; an empty one stays unchanged. With a
            `last_step`, the goal is set only if there is none.
    """
    before, thread = parse_current(text or ""), flat(thread, TITLE)
    fields: dict[str, str | None] = {}
    if before.thread and before.thread != thread:
        what = "; ".join(part for part in (before.status, before.context) if part)
        title = f"{before.thread}: {before.goal}" if before.goal else before.thread
        past = entry(title, at, what=what, outcome=before.last_step, next_step=before.next_action)
        text = add_entry(text, past)
        fields = dict.fromkeys(_OF_THREAD.values())
    elif before.goal and updates.get("last_step"):  # the run's own note: the LLM may have refined the goal
        updates.pop("goal", None)
    fields["Thread"] = thread
    fields |= {_OF_THREAD[name]: flat(value) for name, value in updates.items() if value.strip()}
    return _with_status(text, at, fields)


def _with_status(text: str | None, at: datetime, fields: Mapping[str, str | None]) -> str:
    """Set fields of the current status; one that is None is removed."""
    text, marks = with_sections(text)
    begin, end = section_of(text, marks, STATUS) or (0, 0)
    (heading,) = (mark for mark in marks if mark.end == begin)
    ending, body = line_break(text), text[begin:end]
    for name, value in fields.items():
        body = without_field(body, name) if value is None else with_field(body, name, value, ending)
    title = with_line_break(with_time(text[heading.start : begin], stamp(at)), ending if body else "")
    return text[: heading.start] + title + body + text[end:]


def add_entry(text: str | None, new: Entry) -> str:
    """Add an entry above the others, unless the file has one with the same time, title and text.

    Args:
        text: The content of progress.txt; None if there is no such file.
        new: The entry, made by `entry`.
    """
    text, marks = with_sections(text)
    title = f"{new.at} - {new.title}".strip()
    if any(_same(new, each) for each in parse_entries(text)):
        return text
    listed = activity_of(text, marks)
    first = listed[0][0].start if listed else (section_of(text, marks, ACTIVITY) or (0, len(text)))[1]
    lines = [f"### {title}"]
    fields = (("What", new.what), ("Files", new.files), ("Outcome", new.outcome), ("Next", new.next))
    lines += [f"- {name}: {value}" for name, value in fields if value]
    ending = line_break(text)
    block = ending.join(lines) + ending + (ending if text[first:] else "")
    return with_line_break(text[:first], ending) + block + text[first:]


def _same(one: Entry, other: Entry) -> bool:
    """Whether two entries are equal except for the files, which may differ from one attempt to the next."""
    return (one.at, one.title, one.what, one.next) == (other.at, other.title, other.what, other.next)


def _entry(heading: Heading, body: str) -> Entry:
    (at, title), fields = read_stamp(heading.title), fields_of(body)
    return Entry(
        title=title,
        at=at,
        what=fields.get("what", ""),
        files=fields.get("files", ""),
        outcome=fields.get("outcome", ""),
        next=fields.get("next", ""),
    )
