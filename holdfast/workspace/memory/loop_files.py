"""The file operations of a loop: read the state of its workspace, and record the outcome of an iteration.

Both may run twice, and a worker may be killed in the middle: an earlier attempt's commit is found by its key.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from holdfast.core.base.text import one_line
from holdfast.core.log.loop_events import IterationOutcome
from holdfast.core.loop.state import Settled, SettleRequest, Survey, SurveyRequest
from holdfast.core.memory.errors import MemoryRefused
from holdfast.core.memory.features import parse_features
from holdfast.core.memory.notes import Note, add_note, note
from holdfast.core.memory.task_outline import Status
from holdfast.core.memory.tasks import Task, next_task, parse_tasks
from holdfast.workspace.git.locks import RepositoryBusy
from holdfast.workspace.git.repository import Repository
from holdfast.workspace.memory.files import ERRORS, FEATURES, TASKS, MemoryFiles
from holdfast.workspace.tainted_files import TaintedFiles

LISTED = 20
"""The most commits, blocked tasks and failing features that are listed."""
LISTED_CHARS = 400
"""The most characters of each."""
TITLE_CHARS = 1_000
"""The most characters of a task's title: it becomes part of messages and states that Temporal limits."""

_ENDINGS = {
    "completed": "its run ended without saying so",
    "failed": "its run failed",
    "cancelled": "its run was cancelled",
    "out_of_time": "the loop's time was up",
}


class LoopFiles:
    """The files and the repository of loops. All methods block, and are idempotent by the request's key."""

    def survey(self, request: SurveyRequest) -> Survey:
        """Read the state of the files, and commit people's changes. Problems are reported in `Survey.problem`.

        Raises:
            RepositoryBusy: Another process uses the repository. Retryable.
        """
        workspace = Path(request.workspace)
        try:
            head = Repository(workspace, author="Loop").commit_manual_changes(request.key).hash
            files = MemoryFiles(workspace)
            tasks = parse_tasks(files.read(TASKS) or "")
            features = files.read(FEATURES)
            failing = [each.name for each in parse_features(features) if not each.passes] if features else []
        except RepositoryBusy:
            raise
        except (MemoryRefused, OSError) as error:
            return Survey(problem=str(error))
        following = next_task(tasks)
        title = following.title if following else ""
        if following and len(title) > TITLE_CHARS:
            problem = f"TASKS.md, line {following.line}: the title has {len(title):,} characters, over {TITLE_CHARS:,}"
            return Survey(problem=f"{problem}; shorten it, and put the details below it")
        blocked = [task for task in tasks if task.status == "blocked"]
        return Survey(
            head=head,
            planned=bool(tasks),
            plannable=features is not None,
            open=sum(task.status == "open" for task in tasks),
            done=sum(task.status == "done" for task in tasks),
            next=title,
            twins=_count(tasks, title, "open"),
            finished=_count(tasks, title, "done"),
            blocked=tuple(one_line(f"{task.title}: {task.reason}", LISTED_CHARS) for task in blocked[:LISTED]),
            failing=tuple(one_line(name, LISTED_CHARS) for name in failing[:LISTED]),
            trust="web" if TaintedFiles().have(workspace, (TASKS, ERRORS)) else "tool",
        )

    def mark_errors(self, request: SettleRequest) -> None:
        """Mark ERRORS.md as tainted: `settle` may quote there an agent that has read the web."""
        TaintedFiles().mark(Path(request.workspace), (ERRORS,))

    def settle(self, request: SettleRequest, last_message: str, at: datetime) -> Settled:
        """Determine the outcome of the task, and commit the remaining changes.

        Args:
            request: The iteration.
            last_message: The agent's last message, quoted if the task failed.
            at: The time of the record.

        Raises:
            RepositoryBusy: Another process uses the repository. Retryable.
        """
        workspace = Path(request.workspace)
        if not workspace.is_dir():  # a new folder would look like a workspace in which nothing is done yet
            return Settled(outcome="failed", explanation=f"its workspace {workspace} is gone")
        repository, files = Repository(workspace, author="Loop"), MemoryFiles(workspace)
        try:
            outcome, explanation = _explained_outcome(request, files, last_message)

            def note_failure() -> None:
                if outcome == "failed":
                    error = _error(request, explanation, at)
                    files.change(ERRORS, lambda text: add_note(text, error, heading="Errors"))

            repository.commit_once(
                request.key,
                _subject(request, outcome),
                trailers={"Holdfast-Thread": request.thread, "Holdfast-Iteration": str(request.number)},
                change=note_failure,
            )
            commits = _commits_since(repository, request.head)
        except RepositoryBusy:
            raise
        except (MemoryRefused, OSError) as error:
            return Settled(outcome="failed", explanation=str(error))
        return Settled(outcome=outcome, explanation=explanation, commits=commits)


def _commits_since(repository: Repository, head: str) -> tuple[str, ...]:
    newer = takewhile(lambda commit: commit.hash != head, repository.commits(LISTED))
    return tuple(one_line(f"{commit.hash[:7]} {commit.subject}", LISTED_CHARS) for commit in newer)[::-1]


def _error(request: SettleRequest, explanation: str, at: datetime) -> Note:
    title = f"Iteration {request.number} failed: {request.task or 'write the plan'}"
    return note(title, explanation, at, thread=request.thread, call=request.key, iteration=str(request.number))


def _count(tasks: Sequence[Task], title: str, status: Status) -> int:
    return sum(task.title == title and task.status == status for task in tasks)


def _explained_outcome(request: SettleRequest, files: MemoryFiles, last_message: str) -> tuple[IterationOutcome, str]:
    """Return the outcome of the task and its reason: failed if TASKS.md cannot be read; changes are still committed."""
    try:
        outcome = _outcome(request, parse_tasks(files.read(TASKS) or ""))
    except MemoryRefused as error:
        return "failed", str(error)
    return outcome, _explanation(request, outcome, last_message)


def _outcome(request: SettleRequest, tasks: Sequence[Task]) -> IterationOutcome:
    """Return the outcome of the task as TASKS.md shows it, no matter who wrote it there."""
    if not request.task:
        return "completed" if tasks else "failed"
    if _count(tasks, request.task, "done") > request.finished:
        return "completed"
    if _count(tasks, request.task, "open") >= request.twins:
        return "failed"
    return "blocked" if _count(tasks, request.task, "blocked") else "changed"


def _explanation(request: SettleRequest, outcome: IterationOutcome, last_message: str) -> str:
    if outcome == "changed":
        return "the task was changed or removed meanwhile"
    if outcome != "failed":
        return ""
    reason = _ENDINGS[request.end] + (f" ({one_line(request.explanation, 300)})" if request.explanation else "")
    return f"{reason}; its last message: {one_line(last_message, 500)}" if last_message else reason


def _subject(request: SettleRequest, outcome: IterationOutcome) -> str:
    task = request.task or "write the plan"
    if outcome == "failed":
        return one_line(f"Note that iteration {request.number} failed: {task}", 72)
    return one_line(f"Commit work left by iteration {request.number}: {task}", 72)
