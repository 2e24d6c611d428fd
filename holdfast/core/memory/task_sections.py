"""The sections of TASKS.md by status (To do, In progress, Done), and moving a task from one to another.

1. A file without such sections keeps its order: none is created.
2. A top-level task moves with everything below it, and to Done only once all of it is done. Nothing else moves.
3. A move cuts lines and inserts them elsewhere. If that would change how Markdown reads the other lines, nothing moves.
"""

import re
from collections.abc import Mapping
from typing import Literal

from holdfast.core.memory.markdown import line_break
from holdfast.core.memory.task_outline import Outline, Section, TaskItem, outline

SectionKind = Literal["to do", "in progress", "done"]

NAMES: Mapping[SectionKind, frozenset[str]] = {
    "to do": frozenset({"to do", "todo", "open", "backlog"}),
    "in progress": frozenset({"in progress", "doing", "started"}),
    "done": frozenset({"done", "completed", "finished"}),
}
"""Names that people give to the sections, in lower case and without punctuation."""


def section_kind(heading: str) -> SectionKind | None:
    """Return the kind of section that a heading opens; None for any other heading."""
    name = " ".join(re.sub(r"[\W_]+", " ", heading).split()).casefold()
    return next((kind for kind, names in NAMES.items() if name in names), None)


def section_of(at: Outline, kind: SectionKind) -> Section | None:
    """Return the first section of a kind; None if the file has none."""
    return next((heading for heading in at.headings if section_kind(heading.title) == kind), None)


def move_changed(before: str, after: str, to: SectionKind) -> str:
    """Move the task whose line an edit changed to its section.

    Args:
        before: The text before the edit.
        after: The text after it: the same, or with one task's line changed.
        to: The kind of section; nothing moves if the file has none.
    """
    if before == after:
        return after
    at, old = outline(after), outline(before).lines
    changed = next((n for n, line in enumerate(at.lines, start=1) if old[n - 1 : n] != [line]), 0)
    task = next((each for each in at.items if each.task.line == changed), None)
    section = section_of(at, to)
    if task is None or section is None or task.task.parent is not None or section_kind(task.task.heading) == to:
        return after
    inside = [each for each in at.items if task.start <= each.start < task.end]
    if to == "done" and any(each.task.status != "done" for each in inside):
        return after
    moved = _moved(at, task, section)
    return moved if _moves_only(at, outline(moved), inside, section) else after


def _moved(at: Outline, task: TaskItem, section: Section) -> str:
    """Put the task's lines after the last task of the section."""
    end = next((each.start for each in at.headings if each.start > section.start), len(at.lines))
    own = [each.end for each in at.items if section.end <= each.start < end and each.task.parent is None]
    position = own[-1] if own else section.end
    if not own and position < end and not at.lines[position].strip():
        position += 1  # the blank line below the heading
    ending, block = line_break("".join(at.lines)), at.lines[task.start : task.end]
    above, below = at.lines[:position], at.lines[position:]
    if position <= task.start:
        below = below[: task.start - position] + below[task.end - position :]
    else:
        above = above[: task.start] + above[task.end :]
    if not block[-1].endswith(("\n", "\r")):
        block = [*block[:-1], block[-1] + ending]
    elif above and not above[-1].endswith(("\n", "\r")):
        above = [*above[:-1], above[-1] + ending]
        block = [*block[:-1], block[-1].rstrip("\r\n")]
    return "".join([*above, *block, *below])


def _moves_only(before: Outline, after: Outline, block: list[TaskItem], section: Section) -> bool:
    """Whether the tasks of the block are now in the section, and all others are unchanged."""
    titles = [(each.task.title, each.task.status, each.task.reason) for each in block]
    rest = [each.task.shape() for each in before.items if each not in block]
    headings = [(each.title, each.level) for each in before.headings]
    if headings != [(each.title, each.level) for each in after.headings]:
        return False
    for number in range(len(after.items)):
        here = after.items[number : number + len(block)]
        others = after.items[:number] + after.items[number + len(block) :]
        if (
            [(each.task.title, each.task.status, each.task.reason) for each in here] == titles
            and here[0].task.parent is None
            and here[0].task.heading == section.title
            and [each.task.shape() for each in others] == rest
        ):
            return True
    return False
