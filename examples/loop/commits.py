"""The commits of a loop, from git and from the logs of its runs, for the report to compare."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast import AgentEvent, ToolCallFinished, ToolCallRequested, ToolCallStarted
from holdfast.core.base.canonical import parsed
from holdfast.examples.loop.repository import AUTHOR
from holdfast.examples.shared.git import run_git

COMPLETED = "Complete: "
"""The beginning of the subject of a commit that completes a task."""
BY_HAND = "Commit changes made by hand: "
"""The beginning of the subject of a commit with people's changes (`holdfast.workspace.git.repository`)."""


@dataclass(frozen=True)
class Commit:
    """A commit of the loop or of its agents."""

    hash: str
    subject: str
    key: str
    """The effect key of the action that made it."""
    thread: str
    """The thread of the iteration; empty for the loop's commits before one."""
    settled: bool
    """True if the loop made it at the end of an iteration."""
    paths: tuple[str, ...]
    """The files changed."""

    @property
    def task(self) -> str:
        """The title of the completed task; empty if there is none."""
        return self.subject.removeprefix(COMPLETED) if self.subject.startswith(COMPLETED) else ""


@dataclass(frozen=True)
class CommitCall:
    """A successful tool call whose result names a commit."""

    thread: str
    tool: str
    title: str
    """The title of its task; empty if it has none."""
    key: str
    commit: str
    """The hash that the result names."""


def commits(repository: Path, since: str) -> list[Commit]:
    """Return the commits after `since`, oldest first."""
    trailers = "".join(f"%x1f%(trailers:key=Holdfast-{name},valueonly)" for name in ("Key", "Thread", "Iteration"))
    form = f"--format=%x1e%H%x1f%s{trailers}%x1f"
    log = run_git(repository, "log", "--reverse", "--name-only", form, f"{since}..HEAD", author=AUTHOR)
    return [_commit(entry) for entry in log.split("\x1e")[1:]]


def _commit(entry: str) -> Commit:
    hash_, subject, key, thread, iteration, paths = (field.strip() for field in entry.split("\x1f"))
    return Commit(hash_, subject, key, thread, settled=bool(iteration), paths=tuple(paths.splitlines()))


def commit_calls(thread: str, events: Iterable[AgentEvent]) -> Iterator[CommitCall]:
    """Yield the calls of a run that ended with a commit, in order."""
    calls, keys = {}, {}
    for event in events:
        match event:
            case ToolCallRequested():
                calls[event.number] = event.call
            case ToolCallStarted():
                keys[event.number] = event.key
            case ToolCallFinished(status="ok") if " in commit " in event.text:
                call, commit = calls[event.number], event.text.rpartition(" in commit ")[2].split()[0]
                arguments = parsed(call.arguments)
                title = str(arguments.get("title", "")) if isinstance(arguments, dict) else ""
                yield CommitCall(thread, call.name, title, keys[event.number], commit)
