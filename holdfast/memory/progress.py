"""progress.txt: where things stand, and what was done lately, the newest first.

    # Progress Log
    ## Current Status (Updated: 2026-11-21 10:30)
    - Active Task: …
    - Last Completed: …
    - Blockers: …
    ## Recent Activity
    ### 2026-11-21 10:30 - Title
    - What: …
    - Files: …
    - Outcome: …
    - Next: …

Lines are looked at, no more: what people wrote elsewhere stays as it is, and so does what they wrote in between.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from holdfast.base.models import Frozen
from holdfast.memory.markdown import TITLE, Heading, flat, headings, line_break, stamp

NEW = "# Progress Log\n\n## Current Status\n\n## Recent Activity\n"
"""The file before anything happened."""
MOST_FILES = 20
"""Files that an entry names."""

_STATUS, _ACTIVITY = "current status", "recent activity"
_FIELD = re.compile(r"^[-*+] ([^:\r\n]{1,40}):[ \t]*([^\r\n]*)", re.MULTILINE)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d)?)\s*[-–—:]?\s*(.*)")
_UPDATED = re.compile(r"\(Updated:\s*([^()]*)\)", re.IGNORECASE)


class Entry(Frozen):
    """What was done at one time."""

    title: str
    at: str = ""
    """`2026-11-21 10:30`, in UTC; empty where no date begins the heading."""
    what: str = ""
    files: str = ""
    """As they stand there: names with commas between."""
    outcome: str = ""
    next: str = ""


class Current(Frozen):
    """Where things stand; what the file does not say is empty."""

    updated: str = ""
    active: str = ""
    last_completed: str = ""
    blockers: str = ""


def entry(
    title: str, at: datetime, *, what: str, files: Sequence[str] = (), outcome: str = "", next_step: str = ""
) -> Entry:
    """An entry that is fit to be written: each of its texts on one line, and not too long."""
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


def parse_entries(text: str) -> tuple[Entry, ...]:
    """The entries under Recent Activity, in the order of the file: the newest first, if people kept to it."""
    return tuple(_entry(mark, text[mark.end : until]) for mark, until in _activity(text, headings(text)))


def parse_current(text: str) -> Current:
    """Where things stand, as the file says."""
    marks = headings(text)
    status = _section(text, marks, _STATUS)
    if status is None:
        return Current()
    (heading,) = (mark for mark in marks if mark.end == status[0])
    updated = _UPDATED.search(heading.title)
    fields = _fields(text[slice(*status)])
    return Current(
        updated=updated[1].strip() if updated else "",
        active=fields.get("active task", ""),
        last_completed=fields.get("last completed", ""),
        blockers=fields.get("blockers", ""),
    )


def set_current(
    text: str | None,
    at: datetime,
    *,
    active: str | None = None,
    last_completed: str | None = None,
    blockers: str | None = None,
) -> str:
    """The file with where things stand; what is None stays, and an empty text becomes `None`, as people write it.

    Args:
        text: progress.txt; None where there is no such file.
        at: When that is so.
        active: The task that is next.
        last_completed: The one that was done last.
        blockers: What is in the way.
    """
    text, marks = _with_sections(text)
    begin, end = _section(text, marks, _STATUS) or (0, 0)
    (heading,) = (mark for mark in marks if mark.end == begin)
    ending, body = line_break(text), text[begin:end]
    for name, value in (("Active Task", active), ("Last Completed", last_completed), ("Blockers", blockers)):
        if value is not None:
            body = _with_field(body, name, flat(value, TITLE) or "None", ending)
    title = _ended(_updated(text[heading.start : begin], stamp(at)), ending if body else "")
    return text[: heading.start] + title + body + text[end:]


def add_entry(text: str | None, new: Entry) -> str:
    """The file with one more entry, above the others. One of the same time, title and words is not added again.

    Args:
        text: progress.txt; None where there is no such file.
        new: Made by `entry`.
    """
    text, marks = _with_sections(text)
    title = f"{new.at} - {new.title}".strip()
    listed = _activity(text, marks)
    if any(mark.title == title and _same(new, _entry(mark, text[mark.end : until])) for mark, until in listed):
        return text
    first = listed[0][0].start if listed else (_section(text, marks, _ACTIVITY) or (0, len(text)))[1]
    lines = [f"### {title}"]
    fields = (("What", new.what), ("Files", new.files), ("Outcome", new.outcome), ("Next", new.next))
    lines += [f"- {name}: {value}" for name, value in fields if value]
    ending = line_break(text)
    block = ending.join(lines) + ending + (ending if text[first:] else "")
    return _ended(text[:first], ending) + block + text[first:]


def _same(one: Entry, other: Entry) -> bool:
    """The files are left out: what had changed by then may differ from one attempt to the next."""
    return (one.at, one.title, one.what, one.next) == (other.at, other.title, other.what, other.next)


def _with_sections(text: str | None) -> tuple[str, list[Heading]]:
    """The file with both sections, and its headings: what is missing is added, the activity at the end."""
    if text is None or not text.strip():
        return NEW, headings(NEW)
    ending, marks = line_break(text), headings(text)
    if _section(text, marks, _ACTIVITY) is None:
        text = _ended(text, ending) + f"{ending}## Recent Activity{ending}"
        marks = headings(text)
    if _section(text, marks, _STATUS) is None:
        after = marks[0].end if marks[0].level == 1 and not text[: marks[0].start].strip() else 0
        text = _ended(text[:after], ending) + f"## Current Status{ending}{ending}" + text[after:]
        marks = headings(text)
    return text, marks


def _activity(text: str, marks: list[Heading]) -> list[tuple[Heading, int]]:
    """The headings of the entries, and where the text of each ends."""
    begin, end = _section(text, marks, _ACTIVITY) or (0, 0)
    inside = [mark for mark in marks if begin <= mark.start < end and mark.level == 3]
    return list(zip(inside, [mark.start for mark in inside[1:]] + [end], strict=False))


def _section(text: str, marks: list[Heading], title: str) -> tuple[int, int] | None:
    """Where the section's text begins and ends; None without that heading."""
    for number, mark in enumerate(marks):
        if mark.level <= 2 and mark.title.casefold().startswith(title):
            return mark.end, next((each.start for each in marks[number + 1 :] if each.level <= 2), len(text))
    return None


def _entry(heading: Heading, body: str) -> Entry:
    dated, fields = _DATED.fullmatch(heading.title), _fields(body)
    return Entry(
        title=dated[2] if dated else heading.title,
        at=dated[1].replace("T", " ") if dated else "",
        what=fields.get("what", ""),
        files=fields.get("files", ""),
        outcome=fields.get("outcome", ""),
        next=fields.get("next", ""),
    )


def _fields(body: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(body):
        fields.setdefault(match[1].strip().casefold(), match[2].strip())
    return fields


def _with_field(body: str, name: str, value: str, ending: str) -> str:
    """The status with one field's line changed, or added after the last that it has."""
    last = 0
    for match in _FIELD.finditer(body):
        if match[1].strip().casefold() == name.casefold():
            return body[: match.start(2)] + value + body[match.end(2) :]
        last = match.end()
    if last:
        return f"{body[:last]}{ending}- {name}: {value}{body[last:]}"
    return f"- {name}: {value}{ending}{body}"


def _updated(heading: str, at: str) -> str:
    """The heading's line, with when the status was set."""
    if _UPDATED.search(heading):
        return _UPDATED.sub(f"(Updated: {at})", heading, count=1)
    title = heading.rstrip()
    return f"{title} (Updated: {at}){heading[len(title) :]}"


def _ended(text: str, ending: str) -> str:
    """The text, its last line ended."""
    return text if not text or text.endswith("\n") else text + ending
