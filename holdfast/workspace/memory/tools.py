"""The agent's tools for its memory files. Each change is one commit, together with the work it belongs to.

1. A call that was interrupted and runs again changes nothing twice: its commit carries the call's key.
2. A call never overwrites a concurrent change by a person: it fails, and reports the current state of the file.
"""

from collections.abc import Callable

from holdfast.core.memory import features, progress, tasks
from holdfast.core.memory.errors import FeatureNotFound
from holdfast.core.memory.markdown import TITLE, flat
from holdfast.core.memory.progress_entries import entry
from holdfast.core.tools.decorator import Tool, ToolContext, tool
from holdfast.core.tools.not_done import REPEATABLE
from holdfast.workspace.approved_instructions import Approvals, strategies
from holdfast.workspace.file_previews import preview_commit
from holdfast.workspace.git.commits import Commit
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory import task_updates
from holdfast.workspace.memory.files import ERRORS, FEATURES, LEARNINGS, PROGRESS, STRATEGIES, TASKS, MemoryFiles

SECONDS = 300.0
"""Time limit of a tool: other runs may be committing, and a first commit may be large."""
LISTED = 200
"""The most tasks that `read_tasks` returns."""

COMMITS = ".git"
"""The place of commit messages: only commands read them, and commands may read any file."""

_BOXES = {"open": "[ ]", "done": "[x]", "blocked": "[ ]"}


def memory_tools() -> list[Tool]:
    """The tools for memory files: `Catalog(agents=[…], tools=[*workspace_tools(), *memory_tools()])`."""
    reading_and_tasks = [read_tasks, add_task, start_task, complete_task, block_task]
    return [*reading_and_tasks, note_progress, note_error, note_learning, pass_feature, commit_work, learn_strategy]


@tool(effect="read", files=(TASKS,))
def read_tasks(context: ToolContext) -> str:
    """List the tasks of TASKS.md with their status, and say which one is next.

    Args:
        context: Filled in by Holdfast.
    """
    listed = tasks.parse_tasks(task_updates.require_tasks(MemoryFiles(context.workspace).read(TASKS)))
    upcoming = tasks.next_task(listed)
    depth: dict[int | None, int] = {None: -1}
    lines = [f"Next: {upcoming.title}" if upcoming else "No task is open that can be worked on."]
    heading = ""
    for task in listed[:LISTED]:
        depth[task.line] = depth[task.parent] + 1
        if task.heading != heading:
            heading = task.heading
            lines.append(f"## {heading}")
        blocked = f" (blocked: {task.reason})" if task.status == "blocked" else ""
        lines.append(f"{'  ' * depth[task.line]}- {_BOXES[task.status]} {task.title}{blocked}")
    if len(listed) > LISTED:
        lines.append(f"[{len(listed) - LISTED:,} more tasks; read TASKS.md to see them]")
    return "\n".join(lines)


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(TASKS,))
def add_task(title: str, under: str | None = None, *, context: ToolContext) -> str:
    """Add an open task to TASKS.md, and commit. A task that is open there already is not added again.

    Args:
        context: Filled in by Holdfast.
        title: A few words, on one line.
        under: A heading of TASKS.md, or the title of the task it belongs to; if left out, it goes under To do, or after
            the open tasks.
    """

    def change() -> None:
        MemoryFiles(context.workspace).change(TASKS, lambda text: tasks.add(text or "", title, under=under))

    return _committed(context, f"Add task: {_short(title)}", change, done=f"Added {_short(title)!r}")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(TASKS, PROGRESS))
def start_task(title: str, *, context: ToolContext) -> str:
    """Mark a task as started in TASKS.md, and commit. It moves to the section In progress, if there is one.

    Args:
        context: Filled in by Holdfast.
        title: The task, as TASKS.md has it. Of several with that title, the first that is open.
    """

    def change() -> None:
        task_updates.start(context, title)

    return _committed(context, f"Start: {_short(title)}", change, done=f"Started {_short(title)!r}")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(TASKS, PROGRESS))
def complete_task(
    title: str, what: str, files: tuple[str, ...] = (), *, next_step: str = "", context: ToolContext
) -> str:
    """Mark a task as completed in TASKS.md, record it in progress.txt, and commit that with all work that was done.

    It moves to the section Done, if there is one and its subtasks are done, too.

    Args:
        context: Filled in by Holdfast.
        title: The task, as TASKS.md has it. Of several with that title, the first that is open.
        what: What was done, in a sentence or two.
        files: The files that matter; if left out, all that changed since the last commit.
        next_step: What the next agent should do.
    """

    def change() -> None:
        task_updates.complete(context, title, what=what, files=files, next_step=next_step)

    return _committed(context, f"Complete: {_short(title)}", change, body=what, done=f"Completed {_short(title)!r}")


@tool(
    effect="idempotent",
    trust="agent",
    origin=True,
    timeout=SECONDS,
    not_done_on=REPEATABLE,
    files=(TASKS, ERRORS, PROGRESS),
)
def block_task(title: str, reason: str, *, context: ToolContext) -> str:
    """Mark a task as blocked in TASKS.md, note why in ERRORS.md, and commit.

    Args:
        context: Filled in by Holdfast.
        title: The task, as TASKS.md has it.
        reason: Why it is blocked, in a sentence that a person will read.
    """

    def change() -> None:
        task_updates.block(context, title, reason)

    return _committed(context, f"Block: {_short(title)}", change, body=reason, done=f"Blocked {_short(title)!r}")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(PROGRESS,))
def note_progress(title: str, what: str, next_step: str = "", *, context: ToolContext) -> str:
    """Record unfinished work in progress.txt, and commit that with the work.

    Args:
        context: Filled in by Holdfast.
        title: What was worked on.
        what: What was done.
        next_step: What the next agent should do.
    """

    def add_progress(text: str | None) -> str:
        files = task_updates.changed_files(context)
        new = entry(title, context.at, what=what, files=files, outcome="In progress", next_step=next_step)
        return progress.add_entry(text, new)

    def change() -> None:
        MemoryFiles(context.workspace).change(context.progress.name, add_progress)

    return _committed(context, f"Progress: {_short(title)}", change, body=what, done="Noted progress")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(ERRORS,))
def note_error(title: str, what_happened: str, tried: str = "", *, context: ToolContext) -> str:
    """Note in ERRORS.md what went wrong, so that it does not happen again, and commit.

    Args:
        context: Filled in by Holdfast.
        title: The error in a few words.
        what_happened: What happened, and why, if known.
        tried: What was tried, and with which result.
    """
    text = f"{what_happened}\n\nTried: {tried}" if tried.strip() else what_happened
    return _noted(context, ERRORS, title, text, subject="Error")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(LEARNINGS,))
def note_learning(title: str, text: str, *, context: ToolContext) -> str:
    """Note in LEARNINGS.md what is worth knowing about this work, and commit.

    Args:
        context: Filled in by Holdfast.
        title: A few words.
        text: What was learnt.
    """
    return _noted(context, LEARNINGS, title, text, subject="Learn")


@tool(
    effect="idempotent",
    trust="agent",
    trusted_only=True,
    origin=True,
    timeout=SECONDS,
    not_done_on=REPEATABLE,
    files=(STRATEGIES,),
)
def learn_strategy(title: str, text: str, *, context: ToolContext) -> str:
    """Add a proven way of working to the strategies that every later run is given, and commit.

    Args:
        context: Filled in by Holdfast.
        title: When it applies, in a few words.
        text: What to do then, and why.
    """
    approvals = Approvals()
    edit = task_updates.note_edit(context, STRATEGIES, title, text)

    def learn(before: str | None) -> str:
        after = edit(before)
        # The approval of this call covers only its own note: the text before it must be approved already.
        if not (before or "").strip() or approvals.have(strategies(before or "", what=STRATEGIES), context.workspace):
            by = f"{context.origin.agent or 'agent'}, {context.thread}"
            approvals.add([strategies(after, what=STRATEGIES)], by=by, at=context.at)
        return after

    def change() -> None:
        MemoryFiles(context.workspace).change(STRATEGIES, learn)

    return _committed(context, f"Strategy: {_short(title)}", change, done=f"Added {_short(title)!r} to {STRATEGIES}")


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(FEATURES,))
def pass_feature(name: str, *, context: ToolContext) -> str:
    """Mark a feature as passing in features.json, and commit. Only after testing it from end to end.

    Args:
        context: Filled in by Holdfast.
        name: Its id, name, title or description, as features.json has it.
    """

    def mark(text: str | None) -> str:
        if text is None:
            raise FeatureNotFound("there is no features.json; write it with the list of features first")
        return features.mark_feature(text, name)

    def change() -> None:
        MemoryFiles(context.workspace).change(FEATURES, mark)

    return _committed(context, f"Pass: {_short(name)}", change, done=f"{_short(name)!r} passes")


@tool(
    effect="idempotent",
    trust="agent",
    origin=True,
    timeout=SECONDS,
    not_done_on=REPEATABLE,
    files=(COMMITS,),
    preview=preview_commit,
)
def commit_work(message: str, *, context: ToolContext) -> str:
    """Commit all changes in the workspace, between tasks.

    Args:
        context: Filled in by Holdfast.
        message: What was done; the first line becomes the commit's subject.
    """
    subject, _, body = message.strip().partition("\n")
    return _committed(context, subject, lambda: None, body=body, done="All work is")


def _noted(context: ToolContext, name: str, title: str, text: str, *, subject: str) -> str:
    edit = task_updates.note_edit(context, name, title, text)

    def change() -> None:
        MemoryFiles(context.workspace).change(name, edit)

    return _committed(context, f"{subject}: {_short(title)}", change, done=f"Added {_short(title)!r} to {name}")


def _committed(context: ToolContext, subject: str, change: Callable[[], None], *, done: str, body: str = "") -> str:
    """Make the change and its commit once; return the result for the LLM."""
    repository = Repository(context.workspace, author=context.origin.agent)
    trailers = {"Holdfast-Thread": context.thread}
    commit = repository.commit_once(context.key, subject, body=body, trailers=trailers, change=change)
    notes = _notes(commit)
    if commit.key != context.key:
        return f"Nothing to commit: the last commit has everything already.{notes}"
    return f"{done} in commit {commit.hash[:7]} ({commit.count:,} file{'' if commit.count == 1 else 's'}).{notes}"


def _notes(commit: Commit) -> str:
    """Return sentences about the files left out of the commit, and about ignored parts of the repository."""
    notes = ""
    if commit.left_out:
        notes += f" Repositories inside the workspace were left out: {', '.join(commit.left_out)[:300]}."
    if commit.filtered:
        notes += (
            " These files were left out, because git filters do not run here; a person has to commit them: "
            f"{', '.join(commit.filtered)[:300]}."
        )
    if commit.not_run:
        notes += f" Holdfast ignores these parts of the repository: {', '.join(commit.not_run)[:300]}."
    return notes


def _short(title: str) -> str:
    return flat(title, TITLE)
