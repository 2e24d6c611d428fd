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
Edits change single lines; all other text, which people may have written, stays unchanged. A file that was begun in the
form of `holdfast.core.memory.progress_steps` keeps that form.
"""

from collections.abc import Mapping
from datetime import datetime

from holdfast.core.memory import progress_steps as steps
from holdfast.core.memory.markdown import TITLE, Heading, flat, headings, line_break, read_stamp, stamp
from holdfast.core.memory.progress_entries import Current, Entry, entry
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

_DONE = ("success", "ok", "undone")
"""Outcomes of completed steps, in lower case."""


_OF_THREAD = {
    "goal": "Goal",
    "status": "Status",
    "next_action": "Next Action",
    "context": "Context",
    "last_step": "Last Step",
}
"""The fields of the current status that a thread sets, by name."""


def parse_entries(text: str) -> tuple[Entry, ...]:
    """Parse the entries under Recent Activity, in the order of the file (normally newest first)."""
    return tuple(_entry(mark, text[mark.end : until]) for mark, until in activity_of(text, headings(text)))


def parse_current(text: str) -> Current:
    """Parse the current status."""
    if steps.is_about_goal(text):
        fields = {name: value for name, value in steps.fields_of_context(text).items() if name != "notes"}
        return Current(
            goal=steps.paragraph_of(text, steps.GOAL),
            blockers=steps.paragraph_of(text, steps.BLOCKER),
            next_action=steps.paragraph_of(text, steps.NEXT),
            context=steps.fields_of_context(text).get("notes", ""),
            **fields,
        )
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
    if text is not None and steps.is_about_goal(text):
        if active:
            text = steps.with_context(text, {"active": flat(active, TITLE)})
        return text if blockers is None else steps.with_paragraph(text, steps.BLOCKER, flat(blockers, TITLE) or "None")
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
        **updates: `goal`, `status`, `next_action`, `context`, `last_step` or `blocker`; an empty one stays unchanged.
            With a `last_step`, the goal is set only if there is none, and a blocked run is a blocker unless there is
            another one.
    """
    before, thread = parse_current(text or ""), flat(thread, TITLE)
    updates = {name: flat(value) for name, value in updates.items() if value.strip()}
    if blocker := updates.pop("blocker", "") or _blocker_of_run(before.blockers, thread, updates.get("last_step", "")):
        none = blocker.casefold().rstrip(".") == "none"
        text = set_current(text, at, blockers="" if none else blocker)
    new = bool(before.thread) and before.thread != thread
    if text is not None and steps.is_about_goal(text):
        return _set_in_steps(text, at, before, thread=thread, new=new, **updates)
    fields: dict[str, str | None] = {}
    if new:
        text = add_entry(text, _past(before, at))
        fields = dict.fromkeys(_OF_THREAD.values())
    elif before.goal and updates.get("last_step"):  # the run's own note: the LLM may have refined the goal
        updates.pop("goal", None)
    fields["Thread"] = thread
    fields |= {_OF_THREAD[name]: value for name, value in updates.items()}
    return _with_status(text, at, fields)


def _set_in_steps(text: str, at: datetime, before: Current, *, thread: str, new: bool, **updates: str) -> str:
    """Update a thread's fields in a file about one goal, which outlives its threads."""
    if new and (before.status or before.context or before.last_step):
        text = add_entry(text, _past(before.model_copy(update={"goal": "", "next_action": ""}), at))
    if goal := updates.get("goal", ""):
        text = text if before.goal and updates.get("last_step") else steps.with_paragraph(text, steps.GOAL, goal)
    if following := updates.get("next_action", ""):
        text = steps.with_paragraph(text, steps.NEXT, following)
    fields: dict[str, str | None] = dict.fromkeys(("status", "notes", "last_step")) if new else {}
    named = {"status": "status", "notes": "context", "last_step": "last_step"}
    given = {name: updates[key] for name, key in named.items() if updates.get(key)}
    return steps.with_context(text, {"thread": thread, **fields, **given})


def _past(before: Current, at: datetime) -> Entry:
    """Return the entry about the thread that worked here before."""
    what = "; ".join(part for part in (before.status, before.context) if part)
    title = f"{before.thread}: {before.goal}" if before.goal else before.thread
    return entry(title, at, what=what, outcome=before.last_step, next_step=before.next_action)


def _blocker_of_run(current: str, thread: str, last_step: str) -> str:
    """Return the blocker that a run's own note sets, or the word `None` to remove it; empty for no change."""
    own = current.startswith(f"{thread}: blocked")
    is_blocked = last_step.partition(", ")[2].startswith("blocked")
    if is_blocked and (own or current.casefold() in ("", "none")):
        return f"{thread}: {last_step.partition(', ')[2]}"
    return "None" if own and last_step and not is_blocked else ""


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
    if text is not None and steps.is_about_goal(text):
        return _add_step(text, new)
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


def _add_step(text: str, new: Entry) -> str:
    done = new.outcome.casefold() in _DONE or new.outcome.endswith(", completed")
    step = ": ".join(part for part in (new.title, new.what) if part)
    if new.outcome and not done:
        step = f"{step} ({new.outcome})"
    text = steps.with_step(text, f"{step} ({new.at})" if new.at else step, done=done)
    return steps.with_paragraph(text, steps.NEXT, new.next) if new.next else text


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
