"""TASKS.md: the list items that begin with `[ ]` or `[x]`, except in code, comments and quotes.

1. A task is identified by its title: the item's first line without the box and without the marks at its end, such as
   `(started: 2026-11-21 10:00)`, `(completed: …)` and `(blocked: why)`.
2. Among several tasks with the same title, the first open one in the file is selected.
3. An edit changes the task's own line or adds one line; an edit that would have any other effect is rejected.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

from holdfast.core.memory.errors import PlaceNotFound, TaskNotAdded, TaskNotFound
from holdfast.core.memory.markdown import TITLE, flat, line_break, stamp
from holdfast.core.memory.task_outline import (
    BOM,
    InsertionPoint,
    Mark,
    Outline,
    Status,
    Task,
    TaskItem,
    lines_of,
    outline,
    plain,
)
from holdfast.core.memory.task_sections import section_kind, section_of

__all__ = ["Task", "add", "block", "complete", "next_task", "parse_tasks", "reopen", "start"]

NAMED = 10
"""Maximum number of tasks that an error lists."""
REASON = 300
"""Maximum length of a written reason."""
_MARKER = re.compile(r"(.*?)([-+*]|\d{1,9}[.)])([ \t]+)")


def parse_tasks(text: str) -> tuple[Task, ...]:
    """Parse the tasks of TASKS.md, in the order of the file.

    Raises:
        TasksInvalid: The text is nested so deeply that the parser would miss some tasks.
    """
    return tuple(item.task for item in outline(text).items)


def next_task(tasks: Iterable[Task]) -> Task | None:
    """Return the first task to work on: one that is open and has no open or blocked subtasks.

    Tasks under In progress come before all others.
    """
    waiting: set[int | None] = set()
    ready: list[Task] = []
    for task in reversed(list(tasks)):
        if task.status == "open" and task.line not in waiting:
            ready.append(task)
        if task.status != "done" or task.line in waiting:
            waiting.add(task.parent)
    ready.reverse()
    started = (task for task in ready if section_kind(task.heading) == "in progress")
    return next(started, ready[0] if ready else None)


def complete(text: str, title: str, at: datetime, *, again: bool = False) -> str:
    """Mark a task as completed at a time; a completed task stays unchanged.

    Args:
        text: The content of TASKS.md.
        title: The task's title.
        at: The time of completion.
        again: Whether an earlier attempt may have made the edit. A task completed at the same minute then counts as
            this one, and no further task of the same title is completed.

    Raises:
        TaskNotFound: No task has this title.
    """
    matches = _matches(text, title)
    if again and any(each.mark("completed") == stamp(at) for each in matches):
        return text
    task = _first(matches, "open", "blocked")
    if task is None:
        return text
    return _marked(text, task, box="x", drop=("blocked", "completed"), mark=Mark.of("completed", stamp(at)))


def block(text: str, title: str, reason: str, *, again: bool = False) -> str:
    """Mark an open task as blocked, or change the reason of a blocked one.

    Args:
        text: The content of TASKS.md.
        title: The task's title.
        reason: The reason that it is blocked.
        again: Whether an earlier attempt may have made the edit. A task blocked for the same reason then counts as
            this one.

    Raises:
        TaskNotFound: No open or blocked task has this title.
    """
    reason = flat(reason, REASON).replace("(", "[").replace(")", "]") or "no reason given"
    matches = _matches(text, title)
    if again and any(each.task.reason == reason for each in matches):
        return text
    task = _first(matches, "open", "blocked")
    if task is None:
        raise TaskNotFound(f"TASKS.md shows {flat(title, TITLE)!r} as completed; call add_task for remaining work")
    return _marked(text, task, box=" ", drop=("blocked",), mark=Mark.of("blocked", reason))


def start(text: str, title: str, at: datetime, *, again: bool = False) -> str:
    """Mark an open task as started at a time; a started task stays unchanged.

    Args:
        text: The content of TASKS.md.
        title: The task's title.
        at: The time of the start.
        again: Whether an earlier attempt may have made the edit. A task started at the same minute then counts as this
            one, and no further task of the same title is started.

    Raises:
        TaskNotFound: No open task has this title.
    """
    matches = _matches(text, title)
    if again and any(each.mark("started") == stamp(at) for each in matches):
        return text
    task = _first(matches, "open")
    if task is None:
        raise _not_found(outline(text).items, title)
    return text if task.mark("started") else _marked(text, task, box=" ", mark=Mark.of("started", stamp(at)))


def reopen(text: str, title: str) -> str:
    """Reopen a completed or blocked task; an open task stays unchanged.

    Raises:
        TaskNotFound: No task has this title.
    """
    task = _first(_matches(text, title), "blocked", "done")
    return text if task is None else _marked(text, task, box=" ", drop=("blocked", "completed"))


def add(text: str, title: str, *, under: str | None = None) -> str:
    """Add an open task, unless an open task of this title exists there.

    Args:
        text: The content of TASKS.md; may be empty.
        title: The title of the new task.
        under: The text of a heading or the title of a task to add it under; None for the default place: under To do
            if there is such a section, else after the last top-level task that is not done.

    Raises:
        PlaceNotFound: No heading or task matches `under`.
        TaskNotAdded: The title is empty, or there is no position at which the line would be a task.
    """
    title = _new_title(title)
    at = outline(text)
    todo = section_of(at, "to do")
    place = at.insertion_point(todo.title if todo and under is None else under)
    if place is None:
        known = [*dict.fromkeys(heading.title for heading in at.headings), *_titles(at.items, "open", "blocked")]
        raise PlaceNotFound(f"TASKS.md has no heading or task {flat(under or '', TITLE)!r}; it has: {_named(known)}")
    if any(each.task.status == "open" and _same(each.task.title, title) for each in place.siblings):
        return text
    for changed in _candidates(at, place, title):
        if _adds_only(at, changed, place, title):
            return changed
    raise TaskNotAdded(f"TASKS.md has no place where {title!r} would be a task of its own; add it with edit_file")


def _new_title(title: str) -> str:
    """Sanitise the title of a new task: one line, without a box before it or marks after it."""
    line = re.sub(r"^(?:[-*+] )?\[[ xX]\](?: |$)", "", flat(title, TITLE))
    items = outline(f"- [ ] {line}").items
    if not items:
        raise TaskNotAdded("a task needs a title")
    return items[0].task.title


def _candidates(at: Outline, place: InsertionPoint, title: str) -> Iterator[str]:
    """Yield candidate texts with one more line, the most likely one first."""
    last, parent = place.siblings[-1] if place.siblings else None, place.parent
    if last is not None and (marker := _MARKER.fullmatch(last.prefix.removeprefix(BOM))):
        before, bullet, space = marker.groups()
        indent = before if not before.strip() else " " * len(before.expandtabs(4))
        if bullet[:-1]:
            bullet = f"{min(int(bullet[:-1]) + 1, 999_999_999)}{bullet[-1]}"
        yield _inserted(at, last.end, f"{indent}{bullet}{space}[ ] {title}")
    if last is not None and parent is None:
        yield _inserted(at, last.end, f"- [ ] {title}", spaced=True)
    if last is None and parent is not None:
        yield _inserted(at, parent.end, f"{' ' * len(parent.prefix.removeprefix(BOM).expandtabs(4))}- [ ] {title}")
    if last is None and place.heading is not None:
        yield _inserted(at, place.heading.end, f"- [ ] {title}", spaced=True)
    if parent is None and place.heading is None:
        yield _inserted(at, len(at.lines), f"- [ ] {title}", spaced=True)


def _inserted(at: Outline, after: int, line: str, *, spaced: bool = False) -> str:
    """Insert a line after the first `after` lines, with a blank line before it if `spaced`."""
    end = line_break("".join(at.lines))
    before, rest = at.lines[:after] or [f"# Tasks{end}"], at.lines[after:]
    if not before[-1].endswith(("\n", "\r")):
        before[-1] += end
    above = [end] if spaced and before[-1].strip() else []
    # Without a blank line, the following text could become part of the new item.
    apart = not rest or not rest[0].strip() or rest[0].startswith("#") or after in at.starts
    below = [] if apart else [end]
    return "".join([*before, *above, line + end, *below, *rest])


def _adds_only(at: Outline, changed: str, place: InsertionPoint, title: str) -> bool:
    """Whether the edit adds one open task of this title at that position and leaves all other tasks unchanged."""
    before = [each.task.shape() for each in at.items]
    after = [each.task for each in outline(changed).items]
    shapes = [task.shape() for task in after]
    parent = place.parent.task.line if place.parent else None
    for number, task in enumerate(after):
        fits = task.parent == parent and (place.heading is None or task.heading == place.heading.title)
        if fits and task.title == title and task.status == "open":
            return before == shapes[:number] + shapes[number + 1 :]
    return False


def _marked(text: str, item: TaskItem, *, box: str, drop: tuple[str, ...] = (), mark: Mark | None = None) -> str:
    """Change the box and marks of one task; the rest of its line stays unchanged."""
    lines = lines_of(text)
    marks = [each.written for each in item.marks if each.kind not in drop] + ([mark.written] if mark else [])
    lines[item.task.line - 1] = f"{item.prefix}[{box}]{item.middle}{''.join(marks)}{item.tail}"
    return "".join(lines)


def _matches(text: str, title: str) -> list[TaskItem]:
    items = outline(text).items
    matches = [each for each in items if _same(each.task.title, title)]
    if not matches:
        raise _not_found(items, title)
    return matches


def _first(matches: list[TaskItem], *statuses: Status) -> TaskItem | None:
    return next((each for status in statuses for each in matches if each.task.status == status), None)


def _same(one: str, other: str) -> bool:
    return plain(one) == plain(other)


def _not_found(items: Iterable[TaskItem], title: str) -> TaskNotFound:
    return TaskNotFound(
        f"TASKS.md has no open task {flat(title, TITLE)!r}; its open tasks are: {_named(_titles(items, 'open'))}"
    )


def _titles(items: Iterable[TaskItem], *statuses: str) -> list[str]:
    return [each.task.title for each in items if each.task.status in statuses]


def _named(titles: list[str]) -> str:
    if not titles:
        return "none"
    more = f" and {len(titles) - NAMED:,} more" if len(titles) > NAMED else ""
    return ", ".join(repr(flat(title, 80)) for title in titles[:NAMED]) + more
