"""The sections of TASKS.md by status (To do, In progress, Done), and the move of a task from one to another.

1. A file without such sections keeps its order: none is created.
2. A task at the top level moves with everything below it; nothing else moves. To Done, only when all of it is done.
3. A move takes lines out and puts them in. Where Markdown would read the rest of the file otherwise, nothing moves.
"""

import re
from collections.abc import Mapping
from typing import Literal

from holdfast.core.memory.markdown import line_break
from holdfast.core.memory.task_outline import Found, Outline, Section, outline

SectionKind = Literal["to do", "in progress", "done"]

NAMES: Mapping[SectionKind, frozenset[str]] = {
    "to do": frozenset({"to do", "todo", "open", "backlog"}),
    "in progress": frozenset({"in progress", "doing", "started"}),
    "done": frozenset({"done", "completed", "finished"}),
}
"""What people call the sections, in lower case and without punctuation."""


def section_kind(heading: str) -> SectionKind | None:
    """Return which section a heading opens; None for any other heading."""
    name = " ".join(re.sub(r"[\W_]+", " ", heading).split()).casefold()
    return next((kind for kind, names in NAMES.items() if name in names), None)


def section_of(at: Outline, kind: SectionKind) -> Section | None:
    """Return the first section of that kind; None if the file has none."""
    return next((heading for heading in at.headings if section_kind(heading.title) == kind), None)


def move_changed(before: str, after: str, to: SectionKind) -> str:
    """Move the task whose line an edit has changed to its section.

    Args:
        before: The text before the edit.
        after: The text after it: the same, or with one task's line changed.
        to: The section; unless the file has one, nothing moves.
    """
    if before == after:
        return after
    at, old = outline(after), outline(before).lines
    changed = next((n for n, line in enumerate(at.lines, start=1) if old[n - 1 : n] != [line]), 0)
    task = next((each for each in at.found if each.task.line == changed), None)
    section = section_of(at, to)
    if task is None or section is None or task.task.parent is not None or section_kind(task.task.heading) == to:
        return after
    inside = [each for each in at.found if task.start <= each.start < task.end]
    if to == "done" and any(each.task.status != "done" for each in inside):
        return after
    moved = _moved(at, task, section)
    return moved if _moves_only(at, outline(moved), inside, section) else after


def _moved(at: Outline, task: Found, section: Section) -> str:
    """Put the task's lines after the last task of the section."""
    end = next((each.start for each in at.headings if each.start > section.start), len(at.lines))
    own = [each.end for each in at.found if section.end <= each.start < end and each.task.parent is None]
    place = own[-1] if own else section.end
    if not own and place < end and not at.lines[place].strip():
        place += 1  # the blank line below the heading
    ending, block = line_break("".join(at.lines)), at.lines[task.start : task.end]
    above, below = at.lines[:place], at.lines[place:]
    if place <= task.start:
        below = below[: task.start - place] + below[task.end - place :]
    else:
        above = above[: task.start] + above[task.end :]
    if not block[-1].endswith(("\n", "\r")):
        block = [*block[:-1], block[-1] + ending]
    elif above and not above[-1].endswith(("\n", "\r")):
        above = [*above[:-1], above[-1] + ending]
        block = [*block[:-1], block[-1].rstrip("\r\n")]
    return "".join([*above, *block, *below])


def _moves_only(before: Outline, after: Outline, block: list[Found], section: Section) -> bool:
    """Whether the tasks of the block are in the section now, and all others are what they were."""
    titles = [(each.task.title, each.task.status, each.task.reason) for each in block]
    rest = [each.task.shape() for each in before.found if each not in block]
    headings = [(each.title, each.level) for each in before.headings]
    if headings != [(each.title, each.level) for each in after.headings]:
        return False
    for number in range(len(after.found)):
        here = after.found[number : number + len(block)]
        others = after.found[:number] + after.found[number + len(block) :]
        if (
            [(each.task.title, each.task.status, each.task.reason) for each in here] == titles
            and here[0].task.parent is None
            and here[0].task.heading == section.title
            and [each.task.shape() for each in others] == rest
        ):
            return True
    return False
