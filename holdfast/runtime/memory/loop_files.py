"""What a loop does to its workspace: see what the files say, and record what became of an iteration.

Both may run twice, and a worker may be killed in the midst of either: what was committed is found again by its key.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from holdfast.base.text import one_line
from holdfast.loop.state import IterationOutcome, Settled, SettleRequest, Survey, SurveyRequest
from holdfast.memory.errors import MemoryRefused
from holdfast.memory.features import parse_features
from holdfast.memory.notes import Note, add_note, note
from holdfast.memory.task_outline import Status
from holdfast.memory.tasks import Task, next_task, parse_tasks
from holdfast.runtime.memory.files import ERRORS, FEATURES, TASKS, MemoryFiles
from holdfast.runtime.memory.locks import RepositoryBusy
from holdfast.runtime.memory.repository import Repository

LISTED = 20
"""Commits, blocked tasks and failing features that are told of."""
TOLD = 400
"""Characters of each."""
LONGEST = 1_000
"""Characters of a title: it is part of messages and states that Temporal bounds."""

_ENDS = {
    "completed": "its run ended without saying so",
    "failed": "its run failed",
    "cancelled": "its run was cancelled",
    "out_of_time": "the loop's time was up",
}


class LoopFiles:
    """An `activities.loop_iteration.Workbench` on files."""

    def survey(self, request: SurveyRequest) -> Survey:
        """See what the files say, and commit what people have changed.

        Raises:
            RepositoryBusy: Others are at work in the repository; to be tried again.
        """
        workspace = Path(request.workspace)
        try:
            head = Repository(workspace, author="Loop").take_in(request.key).hash
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
        if following and len(title) > LONGEST:
            problem = f"TASKS.md, line {following.line}: a title of {len(title):,} characters; {LONGEST:,} is the most"
            return Survey(problem=f"{problem}; put what is more below it")
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
            blocked=tuple(one_line(f"{task.title}: {task.reason}", TOLD) for task in blocked[:LISTED]),
            failing=tuple(one_line(name, TOLD) for name in failing[:LISTED]),
        )

    def settle(self, request: SettleRequest, words: str, at: datetime) -> Settled:
        """Find out what became of the task, and commit what is left.

        Raises:
            RepositoryBusy: Others are at work in the repository; to be tried again.
        """
        workspace = Path(request.workspace)
        if not workspace.is_dir():  # to make it anew would pass for a workspace where nothing is done yet
            return Settled(outcome="failed", explanation=f"its workspace {workspace} is gone")
        repository, files = Repository(workspace, author="Loop"), MemoryFiles(workspace)
        try:
            outcome, explanation = _became(request, files, words)

            def trace() -> None:
                if outcome == "failed":
                    error = _error(request, explanation, at)
                    files.change(ERRORS, lambda text: add_note(text, error, heading="Errors"))

            repository.commit_once(
                request.key,
                _subject(request, outcome),
                trailers={"Holdfast-Thread": request.thread, "Holdfast-Iteration": str(request.number)},
                change=trace,
            )
            commits = _commits_since(repository, request.head)
        except RepositoryBusy:
            raise
        except (MemoryRefused, OSError) as error:
            return Settled(outcome="failed", explanation=str(error))
        return Settled(outcome=outcome, explanation=explanation, commits=commits)


def _commits_since(repository: Repository, head: str) -> tuple[str, ...]:
    newer = takewhile(lambda commit: commit.hash != head, repository.commits(LISTED))
    return tuple(one_line(f"{commit.hash[:7]} {commit.subject}", TOLD) for commit in newer)[::-1]


def _error(request: SettleRequest, explanation: str, at: datetime) -> Note:
    title = f"Iteration {request.number} failed: {request.task or 'write the plan'}"
    return note(title, explanation, at, thread=request.thread, call=request.key, iteration=str(request.number))


def _count(tasks: Sequence[Task], title: str, status: Status) -> int:
    return sum(task.title == title and task.status == status for task in tasks)


def _became(request: SettleRequest, files: MemoryFiles, words: str) -> tuple[IterationOutcome, str]:
    """What became of the task, and why. Where TASKS.md cannot be read that is why, and what was left is still kept."""
    try:
        outcome = _outcome(request, parse_tasks(files.read(TASKS) or ""))
    except MemoryRefused as error:
        return "failed", str(error)
    return outcome, _explanation(request, outcome, words)


def _outcome(request: SettleRequest, tasks: Sequence[Task]) -> IterationOutcome:
    """What became of the task: the files say, whoever has written it there."""
    if not request.task:
        return "completed" if tasks else "failed"
    if _count(tasks, request.task, "done") > request.finished:
        return "completed"
    if _count(tasks, request.task, "open") >= request.twins:
        return "failed"
    return "blocked" if _count(tasks, request.task, "blocked") else "changed"


def _explanation(request: SettleRequest, outcome: IterationOutcome, words: str) -> str:
    if outcome == "changed":
        return "the task was changed or removed meanwhile"
    if outcome != "failed":
        return ""
    why = _ENDS[request.end] + (f" ({one_line(request.explanation, 300)})" if request.explanation else "")
    return f"{why}; its last words: {one_line(words, 500)}" if words else why


def _subject(request: SettleRequest, outcome: IterationOutcome) -> str:
    what = request.task or "write the plan"
    if outcome == "failed":
        return one_line(f"Note that iteration {request.number} failed: {what}", 72)
    return one_line(f"Keep what iteration {request.number} left: {what}", 72)
