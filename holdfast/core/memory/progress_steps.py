"""The form of progress.txt that is about one goal, on which any number of threads may work.

    # Progress: Book Flight to NYC
    ## Current Goal
    Book morning flight to NYC for tomorrow
    ## Completed Steps
    1. [x] Parsed user intent
    ## Current Blocker
    8am flight sold out
    ## Next Action
    Present 9am alternative
    ## Context
    - User prefers aisle seats

A file has this form if a person, or an agent, began it so. Steps are only added. Goal, blocker and next action are the
first paragraph of their section; of the context, an edit changes the lines of `FIELDS` alone. All other text stays.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from holdfast.core.memory.markdown import Heading, headings, line_break
from holdfast.core.memory.progress_sections import ACTIVITY, STATUS, section_of, with_line_break, without_field

GOAL, STEPS, BLOCKER, NEXT, CONTEXT = "Current Goal", "Completed Steps", "Current Blocker", "Next Action", "Context"
SECTIONS = (GOAL, STEPS, BLOCKER, NEXT, CONTEXT)
"""The sections, in the order in which missing ones are added."""

FIELDS = {"thread": "Thread", "status": "Status", "last_step": "Last Step", "active": "Active Task", "notes": "Notes"}
"""The lines of the context that threads set (`- Status: …`), by name."""

SHOWN_STEPS = 20
"""The newest steps that a prompt shows if it has no room for all."""

_STEP = re.compile(r"^[ \t]*(?:(\d{1,9})[.)]|[-*+])[ \t]+\[[ xX]\][ \t]*([^\r\n]*)", re.MULTILINE)
_FIELD = re.compile(r"^[-*+] ([^:\r\n]{1,40}):[ \t]*([^\r\n]*)", re.MULTILINE)
_BLOCK = ("#", "```", "~~~", "<!--", "- ", "* ", "+ ", "|", ">")
"""Beginnings of text that is no plain paragraph, which an edit leaves alone."""


def is_about_goal(text: str) -> bool:
    """Return whether a file has this form: a title `Progress`, or the section of the steps, and no activity log."""
    marks = headings(text)
    if any(section_of(text, marks, title) for title in (STATUS, ACTIVITY)):
        return False
    titles = [mark.title.casefold() for mark in marks if mark.level == 1]
    titled = bool(titles) and titles[0].startswith("progress") and not titles[0].startswith("progress log")
    return titled or section_of(text, marks, STEPS.casefold()) is not None


def paragraph_of(text: str, title: str) -> str:
    """Return the first paragraph of a section on one line; empty if there is none, or if it is the word `None`."""
    section = section_of(text, headings(text), title.casefold())
    body = text[slice(*section)] if section else ""
    begin, end = _paragraph(body)
    line = " ".join(body[begin:end].split())
    return "" if line.casefold().rstrip(".") in ("none", "nothing") else line


def fields_of_context(text: str) -> dict[str, str]:
    """Return the lines of the context that threads set, by name."""
    section = section_of(text, headings(text), CONTEXT.casefold())
    found = {match[1].strip(): match[2].strip() for match in _FIELD.finditer(text[slice(*section)] if section else "")}
    return {name: found[title] for name, title in FIELDS.items() if title in found}


def with_paragraph(text: str, title: str, value: str) -> str:
    """Put a line in place of the first paragraph of a section, or before its text if that is no plain paragraph."""
    line = f"\\{value}" if value.startswith(_BLOCK) else value  # it begins no heading, list or code block

    def edit(body: str, ending: str) -> str:
        begin, end = _paragraph(body)
        return body[:begin] + line + body[end:] if begin < end else _with_first_line(body, line, ending)

    return _edited(text, title, edit)


def with_step(text: str, step: str, *, done: bool) -> str:
    """Add a step below the others, unless the section has it."""

    def edit(body: str, ending: str) -> str:
        found = list(_STEP.finditer(body))
        if any(match[2].strip() == step for match in found):
            return body
        number = max((int(match[1]) for match in found if match[1]), default=len(found)) + 1
        line = f"{number}. [{'x' if done else ' '}] {step}"
        if not found:
            return _with_first_line(body, line, ending)
        return f"{body[: found[-1].end()]}{ending}{line}{body[found[-1].end() :]}"

    return _edited(text, STEPS, edit)


def with_context(text: str, values: Mapping[str, str | None]) -> str:
    """Set lines of the context, by the names in `FIELDS`; new ones follow the other text. None removes a line."""

    def edit(body: str, ending: str) -> str:
        for name, value in values.items():
            title, line = FIELDS[name], f"- {FIELDS[name]}: {value}"
            if value is None:
                body = without_field(body, title)
            elif own := next((match for match in _FIELD.finditer(body) if match[1].strip() == title), None):
                body = body[: own.start()] + line + body[own.end() :]
            else:
                kept = body.rstrip()
                body = f"{kept}{ending}{line}{body[len(kept) :]}" if kept else _with_first_line(body, line, ending)
        return body

    return _edited(text, CONTEXT, edit)


def shortened(text: str) -> str:
    """Return a file with its newest steps alone, for a prompt without room for all."""
    section = section_of(text, headings(text), STEPS.casefold())
    if section is None:
        return text
    begin, end = section
    found = list(_STEP.finditer(text[begin:end]))
    if len(found) <= SHOWN_STEPS:
        return text
    first, kept = found[0].start(), found[-SHOWN_STEPS].start()
    return f"{text[: begin + first]}[{len(found) - SHOWN_STEPS:,} earlier steps]\n{text[begin + kept :]}"


def _edited(text: str, title: str, edit: Callable[[str, str], str]) -> str:
    """Edit the text of a section, which is added in order if it is missing. `edit` also gets the line break."""
    marks, ending = headings(text), line_break(text)
    if section_of(text, marks, title.casefold()) is None:
        at = next(_later_sections(text, marks, title), len(text))
        before = with_line_break(text[:at], ending)
        gap = "" if not before.strip() or before.endswith(ending * 2) else ending
        text = f"{before}{gap}## {title}{ending}{ending if text[at:] else ''}{text[at:]}"
    begin, end = section_of(text, headings(text), title.casefold()) or (len(text), len(text))
    head, more = with_line_break(text[:begin], ending), text[end:]
    body = edit(text[begin:end], ending)
    if more and body != text[begin:end]:
        body = with_line_break(body, ending) + ("" if body.endswith(ending * 2) else ending)
    return head + body + more if body != text[begin:end] else text


def _with_first_line(body: str, line: str, ending: str) -> str:
    """Put a line before the text of a section."""
    rest = body.lstrip("\r\n")
    return f"{ending}{line}{ending}{ending if rest else ''}{rest}"


def _later_sections(text: str, marks: list[Heading], title: str) -> Iterator[int]:
    """Yield where the sections begin that follow a section in the usual order."""
    for later in SECTIONS[SECTIONS.index(title) + 1 :]:
        found = section_of(text, marks, later.casefold())
        yield from (mark.start for mark in marks if found and mark.end == found[0])


def _paragraph(body: str) -> tuple[int, int]:
    """Return the start and end of the first paragraph, without its line break; an empty span if there is none."""
    begin = len(body) - len(body.lstrip())
    if body[begin:].startswith(_BLOCK):
        return 0, 0
    blank = re.compile(r"\r?\n[ \t]*(?:\r?\n|\Z)").search(body, begin)
    end = blank.start() if blank else len(body.rstrip())
    return begin, max(begin, end)
