"""`update_progress`: the tool that keeps progress.txt, for the LLM and for the run itself
(`holdfast.core.run.rules.closing_work`).

1. Fields are set, and an entry is added once, so a second attempt changes nothing.
2. If the workspace is in a git repository, a note is one commit: of the file alone, unless the agent commits all work.
   An ordinary run may work in a person's repository, so it never creates one, and a commit that is not possible now
   only leaves the file for the next one.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.memory import progress
from holdfast.core.memory.markdown import TITLE, flat
from holdfast.core.memory.progress_entries import Entry, call_entry, step_entry
from holdfast.core.run.state.progress import NOTED_CALLS
from holdfast.core.tools.decorator import ToolContext, tool
from holdfast.core.tools.not_done import REPEATABLE
from holdfast.workspace.git.git import GitFailed
from holdfast.workspace.git.locks import RepositoryBusy
from holdfast.workspace.git.repository import Repository, RepositoryRefused
from holdfast.workspace.memory.files import PROGRESS, MemoryFiles

SECONDS = 300.0
"""Time limit: other runs may be committing."""
MOST_STEPS = 20
"""The most completed steps that one note adds."""


@tool(effect="idempotent", trust="agent", origin=True, timeout=SECONDS, not_done_on=REPEATABLE, files=(PROGRESS,))
def update_progress(
    status: str = "",
    next_action: str = "",
    goal: str = "",
    context: str = "",
    last_step: str = "",
    calls: tuple[str, ...] = (),
    completed: tuple[str, ...] = (),
    blocker: str = "",
    *,
    call: ToolContext,
) -> str:
    """Say in the progress file where the work stands, for those who continue it. What you leave out stays as it is.

    Args:
        call: Filled in by Holdfast.
        status: What is done, and what is not.
        next_action: What to do next.
        goal: What the work is for, if that has changed.
        context: What one has to know to continue: files, decisions, what did not work.
        last_step: Leave it out: the run fills it in when it begins and when it ends.
        calls: Leave it out: the run fills it in.
        completed: The steps that are completed since the last update, each in one sentence.
        blocker: What keeps the work from continuing; `none` when nothing does any more.
    """
    fields = {"status": status, "next_action": next_action, "goal": goal, "context": context, "last_step": last_step}
    entries = [step_entry(step, call.at, thread=call.thread) for step in completed[:MOST_STEPS]]
    entries += [call_entry(line, call.at, thread=call.thread) for line in calls[:NOTED_CALLS]]

    def edit(text: str | None) -> str:
        text = progress.set_thread(text, call.at, thread=call.thread, blocker=blocker, **fields)
        for each in entries:
            text = progress.add_entry(text, each)
        return text

    def change() -> None:
        MemoryFiles(call.workspace).change(call.progress.name, edit)

    begins = last_step.endswith(", in progress") and not calls
    subject = ", ".join(each.title.partition(": ")[2] for each in entries) or status or next_action or last_step
    return f"Updated {call.progress.name}{_Note(call, subject, entries, begins).commit(change)}"


@dataclass(frozen=True)
class _Note:
    """A note as a commit."""

    call: ToolContext
    subject: str
    entries: list[Entry]
    begins: bool
    """Whether the run's own note says that it begins."""

    def commit(self, change: Callable[[], None]) -> str:
        """Make the change, and commit it if the agent does so; return what to add to the result."""
        if self.call.progress.commits == "none":
            change()
            return ""
        try:
            return self._commit(change)
        except (GitFailed, RepositoryBusy, RepositoryRefused) as error:
            change()  # not made before, or changes nothing more
            return f"; it is not committed: {error}"

    def _commit(self, change: Callable[[], None]) -> str:
        call = self.call
        repository = Repository(call.workspace, author=call.origin.agent)
        if repository.root() is None:
            change()
            return ""
        trailers, work = {"Holdfast-Thread": call.thread}, call.progress.commits == "work"
        if work and self.begins:
            repository.commit_manual_changes(f"{call.key}/before", trailers=trailers)
        commit = repository.commit_once(
            call.key,
            f"Progress: {flat(self.subject, TITLE)}",
            body="\n".join(f"{each.title}: {each.what} {each.outcome}".rstrip(": ") for each in self.entries),
            trailers=trailers,
            change=change,
            only="" if work else call.progress.name,
        )
        return f" in commit {commit.hash[:7]}" if commit.key == call.key else ""
