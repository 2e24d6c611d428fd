"""ERRORS.md, LEARNINGS.md and strategies: entries with a date, a title, their source, and a text.

    ## 2026-11-21 10:30 - The migration locks the table
    - Thread: nightly-7
    - Call: 3f2a…

    > Quoted text was written by an agent. People may use any format.

Text by an agent is quoted line by line, so that it cannot begin another entry.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from holdfast.core.base.models import Frozen
from holdfast.core.memory.markdown import TITLE, flat, headings, line_break, read_stamp, stamp

TEXT = 4_000
"""Maximum length of a written text; a longer one is clipped."""
MOST_LINES = 100
"""Maximum number of lines of a written text; further lines are joined to the last one."""

_SOURCE = re.compile(r"[-*+] (Thread|Call|Iteration): *(\S.*)")


class Note(Frozen):
    """One entry."""

    title: str
    text: str
    at: str = ""
    """`2026-11-21 10:30`, in UTC; empty if the heading has no date."""
    thread: str = ""
    """The thread that it comes from; empty if a person wrote it."""
    call: str = ""
    """The effect key of the call that wrote it."""
    iteration: str = ""


def note(title: str, text: str, at: datetime, *, thread: str, call: str, iteration: str = "") -> Note:
    """Make a note whose texts are sanitised and clipped, so that none can begin another entry.

    Args:
        title: A few words.
        text: May have several lines.
        at: The time at which it was learned.
        thread: The thread that it comes from.
        call: The effect key of the call.
        iteration: The iteration of the loop, if there is one.
    """
    clipped = text if len(text) <= TEXT else text[: TEXT - 1] + "…"
    lines = clipped.strip().splitlines()
    lines = [*lines[: MOST_LINES - 1], " ".join(lines[MOST_LINES - 1 :])] if len(lines) > MOST_LINES else lines
    return Note(
        title=flat(title, TITLE),
        text="\n".join(flat(line, TEXT) for line in lines),
        at=stamp(at),
        thread=flat(thread, TITLE),
        call=flat(call, TITLE),
        iteration=flat(iteration, TITLE),
    )


def parse_notes(text: str) -> tuple[Note, ...]:
    """Parse all entries, in the order of the file: one for each heading below the first level."""
    marks = [mark for mark in headings(text) if mark.level >= 2]
    ends = [mark.start for mark in marks[1:]] + [len(text)]
    return tuple(_note(mark.title, text[mark.end : end]) for mark, end in zip(marks, ends, strict=False))


def add_note(text: str | None, new: Note, *, heading: str) -> str:
    """Append an entry to the file, unless it has one with the same call and title.

    Args:
        text: The file; None if there is none.
        new: The entry, made by `note`.
        heading: The first line of a new file, such as `Errors`.
    """
    text = text if text and text.strip() else f"# {heading}\n"
    title = f"{new.at} - {new.title}".strip()
    if any((each.at, each.title, each.call) == (new.at, new.title, new.call) for each in parse_notes(text)):
        return text
    source: Mapping[str, str] = {"Thread": new.thread, "Call": new.call, "Iteration": new.iteration}
    lines = ["", f"## {title}", *(f"- {name}: {value}" for name, value in source.items() if value), ""]
    lines += [f"> {line}".rstrip() for line in new.text.split("\n")]
    ending = line_break(text)
    return text + ("" if text.endswith("\n") else ending) + ending.join(lines) + ending


def _note(title: str, body: str) -> Note:
    at, name = read_stamp(title)
    lines, source = body.strip().splitlines(), dict[str, str]()
    while lines and (match := _SOURCE.fullmatch(lines[0].rstrip())):
        source.setdefault(match[1].lower(), match[2])
        del lines[0]
    while lines and not lines[0].strip():
        del lines[0]
    if all(line.startswith(">") for line in lines):
        lines = [line[1:].removeprefix(" ") for line in lines]
    return Note(
        title=name,
        text="\n".join(lines),
        at=at,
        **source,
    )
