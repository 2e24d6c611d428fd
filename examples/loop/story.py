"""What happened, told three times: by git, by the logs of the runs, and by the files. The report compares them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from examples.loop.repository import AUTHOR
from examples.stage.git import run_git
from holdfast.authority.statements import parsed
from holdfast.log.events import AgentEvent, ToolCallFinished, ToolCallRequested, ToolCallStarted

COMPLETED = "Complete: "
"""How the subject of a commit begins that completes a task."""
BY_HAND = "Commit changes made by hand: "
"""How that of one begins that has what people changed."""


@dataclass(frozen=True)
class Commit:
    """A commit of the loop or of its agents."""

    hash: str
    subject: str
    key: str
    """The action that it is of."""
    thread: str
    """The iteration's; empty for what the loop commits before one."""
    settled: bool
    """The loop has made it, at the end of an iteration."""
    paths: tuple[str, ...]
    """What it changed."""

    @property
    def task(self) -> str:
        """The task that it completes; empty if it completes none."""
        return self.subject.removeprefix(COMPLETED) if self.subject.startswith(COMPLETED) else ""


@dataclass(frozen=True)
class CommitCall:
    """A tool call that ended well and, by what its result says, with a commit."""

    thread: str
    tool: str
    title: str
    """The task that it is about; empty if it names none."""
    key: str
    commit: str
    """The hash that the result names."""


def commits(repository: Path, since: str) -> list[Commit]:
    """The commits after `since`, oldest first."""
    trailers = "".join(f"%x1f%(trailers:key=Holdfast-{name},valueonly)" for name in ("Key", "Thread", "Iteration"))
    form = f"--format=%x1e%H%x1f%s{trailers}%x1f"
    log = run_git(repository, "log", "--reverse", "--name-only", form, f"{since}..HEAD", author=AUTHOR)
    return [_commit(entry) for entry in log.split("\x1e")[1:]]


def _commit(entry: str) -> Commit:
    hash_, subject, key, thread, iteration, paths = (field.strip() for field in entry.split("\x1f"))
    return Commit(hash_, subject, key, thread, settled=bool(iteration), paths=tuple(paths.splitlines()))


def commit_calls(thread: str, events: Iterable[AgentEvent]) -> Iterator[CommitCall]:
    """The calls of a run that ended with a commit, in their order."""
    calls, keys = {}, {}
    for event in events:
        match event:
            case ToolCallRequested():
                calls[event.number] = event.call
            case ToolCallStarted():
                keys[event.number] = event.key
            case ToolCallFinished(status="ok") if " in commit " in event.content:
                call, commit = calls[event.number], event.content.rpartition(" in commit ")[2].split()[0]
                arguments = parsed(call.arguments)
                title = str(arguments.get("title", "")) if isinstance(arguments, dict) else ""
                yield CommitCall(thread, call.name, title, keys[event.number], commit)
