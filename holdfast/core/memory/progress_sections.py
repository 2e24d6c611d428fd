"""The sections of progress.txt, and the fields in them: lines such as `- Goal: …`.

An edit changes only the lines that it names.
"""

import re

from holdfast.core.memory.markdown import Heading, headings, line_break

NEW = "# Progress Log\n\n## Current Status\n\n## Recent Activity\n"
"""The content of a new file."""
STATUS, ACTIVITY = "current status", "recent activity"
"""The beginning of the headings, in lower case."""
UPDATED = re.compile(r"\(Updated:\s*([^()]*)\)", re.IGNORECASE)
"""The time in the heading of the status."""

_FIELD = re.compile(r"^[-*+] ([^:\r\n]{1,40}):[ \t]*([^\r\n]*)", re.MULTILINE)


def with_sections(text: str | None) -> tuple[str, list[Heading]]:
    """Return the file with both sections, adding missing ones (the activity at the end), and its headings."""
    if text is None or not text.strip():
        return NEW, headings(NEW)
    ending, marks = line_break(text), headings(text)
    if section_of(text, marks, ACTIVITY) is None:
        text = with_line_break(text, ending) + f"{ending}## Recent Activity{ending}"
        marks = headings(text)
    if section_of(text, marks, STATUS) is None:
        after = marks[0].end if marks[0].level == 1 and not text[: marks[0].start].strip() else 0
        text = with_line_break(text[:after], ending) + f"## Current Status{ending}{ending}" + text[after:]
        marks = headings(text)
    return text, marks


def activity_of(text: str, marks: list[Heading]) -> list[tuple[Heading, int]]:
    """Return the headings of the entries, with the end of each entry's text."""
    begin, end = section_of(text, marks, ACTIVITY) or (0, 0)
    inside = [mark for mark in marks if begin <= mark.start < end and mark.level == 3]
    return list(zip(inside, [mark.start for mark in inside[1:]] + [end], strict=False))


def section_of(text: str, marks: list[Heading], title: str) -> tuple[int, int] | None:
    """Return the start and end of a section's text; None if its heading is missing."""
    for number, mark in enumerate(marks):
        if mark.level <= 2 and mark.title.casefold().startswith(title):
            return mark.end, next((each.start for each in marks[number + 1 :] if each.level <= 2), len(text))
    return None


def fields_of(body: str) -> dict[str, str]:
    """Return the fields by name, in lower case; the first one wins if there are duplicates."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(body):
        fields.setdefault(match[1].strip().casefold(), match[2].strip())
    return fields


def with_field(body: str, name: str, value: str, ending: str) -> str:
    """Change one field's line in the status, or add it after the last field."""
    last = 0
    for match in _FIELD.finditer(body):
        if match[1].strip().casefold() == name.casefold():
            return body[: match.start(2)] + value + body[match.end(2) :]
        last = match.end()
    if last:
        return f"{body[:last]}{ending}- {name}: {value}{body[last:]}"
    return f"- {name}: {value}{ending}{body}"


def without_field(body: str, name: str) -> str:
    """Remove one field's line from the status."""
    for match in _FIELD.finditer(body):
        if match[1].strip().casefold() == name.casefold():
            after = re.compile(r"\r?\n?").match(body, match.end())
            return body[: match.start()] + body[after.end() if after else match.end() :]
    return body


def with_time(heading: str, at: str) -> str:
    """Set the time of the update in the heading's line."""
    if UPDATED.search(heading):
        return UPDATED.sub(f"(Updated: {at})", heading, count=1)
    title = heading.rstrip()
    return f"{title} (Updated: {at}){heading[len(title) :]}"


def with_line_break(text: str, ending: str) -> str:
    """Add a line break to the last line of a text, if it lacks one."""
    return text if not text or text.endswith("\n") else text + ending
