"""Updates the memory files for the tools: which files change together when a task is completed or blocked."""

from collections.abc import Sequence

from holdfast.core.memory import notes, progress, tasks
from holdfast.core.memory.errors import TaskNotFound
from holdfast.core.memory.markdown import flat
from holdfast.core.memory.progress_entries import entry
from holdfast.core.memory.task_sections import move_changed
from holdfast.core.tools.decorator import ToolContext
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory.files import ERRORS, LARGEST, LEARNINGS, STRATEGIES, TASKS, Edit, MemoryFiles

HEADINGS = {ERRORS: "Errors", LEARNINGS: "Learnings", STRATEGIES: "Strategies"}
"""The heading of a new file."""
MOST_BLOCKERS = 10
"""The most blocked tasks that the status names."""


def complete(context: ToolContext, title: str, *, what: str, files: Sequence[str], next_step: str) -> None:
    """Mark a task as completed, add its progress entry, and update the status.

    Raises:
        MemoryRefused: There is no such open task, or a file cannot be changed.
    """
    again = context.attempt > 1
    after: tuple[tasks.Task, ...] = ()

    def tick(text: str | None) -> str:
        nonlocal after
        ticked = tasks.complete(require_tasks(text), title, context.at, again=again)
        # Only for a repeated attempt does an unchanged file mean success.
        if ticked == text and not again:
            raise TaskNotFound(
                f"TASKS.md shows {flat(title)!r} as completed already; read_tasks shows the open tasks, "
                "commit_work commits your changes"
            )
        after = tasks.parse_tasks(ticked)
        return move_changed(text or "", ticked, "done")

    def add_progress(text: str | None) -> str:
        new = entry(
            title,
            context.at,
            what=what,
            files=files or changed_files(context),
            outcome="Success",
            next_step=next_step,
        )
        return with_status(progress.add_entry(text, new), context, after, completed=title)

    MemoryFiles(context.workspace).change_all({TASKS: tick, context.progress.name: add_progress})


def start(context: ToolContext, title: str) -> None:
    """Mark a task as started, move it to the section In progress if there is one, and update the status.

    Raises:
        MemoryRefused: There is no such open task, or a file cannot be changed.
    """

    def mark(text: str | None) -> str:
        before = require_tasks(text)
        return move_changed(before, tasks.start(before, title, context.at, again=context.attempt > 1), "in progress")

    def update_status(text: str | None) -> str:
        return progress.set_current(text, context.at, active=title)

    MemoryFiles(context.workspace).change_all({TASKS: mark, context.progress.name: update_status})


def block(context: ToolContext, title: str, reason: str) -> None:
    """Mark a task as blocked, note the error, and update the status.

    Raises:
        MemoryRefused: There is no such open task, or a file cannot be changed.
    """
    after: tuple[tasks.Task, ...] = ()

    def mark(text: str | None) -> str:
        nonlocal after
        marked = tasks.block(require_tasks(text), title, reason, again=context.attempt > 1)
        after = tasks.parse_tasks(marked)
        return marked

    def update_status(text: str | None) -> str:
        return with_status(text, context, after)

    note = note_edit(context, ERRORS, f"Blocked: {title}", reason)
    MemoryFiles(context.workspace).change_all({TASKS: mark, ERRORS: note, context.progress.name: update_status})


def note_edit(context: ToolContext, name: str, title: str, text: str) -> Edit:
    """The edit that adds a note from this call to a file."""
    new = notes.note(title, text, context.at, thread=context.thread, call=context.key)
    return lambda before: notes.add_note(before, new, heading=HEADINGS[name])


def require_tasks(text: str | None) -> str:
    """Require that TASKS.md exists, and return its text.

    Raises:
        TaskNotFound: There is no TASKS.md.
    """
    if text is None:
        raise TaskNotFound("there is no TASKS.md yet; add_task creates it with the first task")
    return text


def changed_files(context: ToolContext) -> list[str]:
    """The files changed since the last commit, without the memory files."""
    return [
        path for path in Repository(context.workspace).state().dirty if path not in (*LARGEST, context.progress.name)
    ]


def with_status(
    text: str | None, context: ToolContext, after: Sequence[tasks.Task], *, completed: str | None = None
) -> str:
    """progress.txt with the next task and the blocked tasks; blockers that a person wrote there are kept."""
    upcoming = tasks.next_task(after)
    blockers = progress.parse_current(text or "").blockers
    parts = [part for part in blockers.split("; ") if part.strip() and part.casefold() != "none"]
    prefixes = tuple(f"{_short(task.title)}: " for task in after)
    keep = any(not part.startswith(prefixes) for part in parts)
    blocked = [task for task in after if task.status == "blocked"][:MOST_BLOCKERS]
    return progress.set_current(
        text,
        context.at,
        active=upcoming.title if upcoming else "",
        last_completed=completed,
        blockers=None if keep else "; ".join(f"{_short(task.title)}: {_short(task.reason)}" for task in blocked),
    )


def _short(text: str) -> str:
    return flat(text, 80).replace(";", ",")
