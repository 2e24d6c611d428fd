"""What a schedule's launcher is given, when it refuses, and the run that it starts. Pure.

1. The schedule's maker seals the input for all launchers of the schedule (`holdfast.core.mac.seals`). A launcher
   without that seal starts nothing: who only reaches Temporal can make no run that counts as somebody else's.
2. The seal covers what is run and for whom, and not when: who reaches Temporal can trigger the schedule. `until` is
   sealed, and bounds that.
3. The run's thread id derives from the time that it was due: it is started once, and a thread of that id is refused.
"""

from datetime import datetime
from typing import NamedTuple

from holdfast.core.base.models import Sealed
from holdfast.core.base.text import code, quoted
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.mac.seals import launched
from holdfast.core.mac.starts import START_WITHIN, Start
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.state.features import SCHEDULED


class ScheduledInput(Start):
    """The input of `ScheduledRunWorkflow`, and the part of a schedule that its maker has sealed.

    The workflow id is that of a launcher: it has the schedule's name and the time.
    """

    task: Content = ""
    by: str = ""
    """Who made the schedule: who gives the task of each run."""
    by_proven: bool = True
    """As in `RunInput`."""
    agent: str | None = None
    """The agent's name; None for the catalog's first."""
    workspace: str | None = None
    """A folder on the worker; None for one of each thread's own."""
    reason: str = ""
    """Why there is the schedule."""
    budget: Budget | None = None
    """What each run may use, as in `RunInput`."""
    until: datetime | None = None
    """After this, no run is started; None for no end."""


class ScheduledResult(Sealed):
    """The result of `ScheduledRunWorkflow`: the run has completed."""

    thread: str


class Launch(NamedTuple):
    """The run that a launcher starts."""

    thread: str
    run: RunInput


def launch(begin: ScheduledInput, *, workflow_id: str, started_at: datetime, at: datetime) -> Launch | str:
    """Return the run to start, or why none may be started.

    Args:
        begin: The launcher's input.
        workflow_id: Its workflow id.
        started_at: When Temporal started it.
        at: The time.
    """
    if begin.malformed:
        return f"the input cannot be read: {begin.malformed}"
    if not begin.sealed:
        return (
            f"the schedule's input carries no valid seal: {begin.seal_fault or 'it was made without the fleet key'}; "
            "find out who can reach Temporal, and add the schedule again with the fleet key of this worker"
        )
    if (found := launched(workflow_id)) is None:
        return f"the workflow id {workflow_id!r} does not say which schedule was due when: only schedules start this"
    if begin.until and started_at > begin.until + START_WITHIN:
        return f"the schedule ended at {begin.until.isoformat()}; add it again to start more runs"
    name, thread = found
    run = RunInput(
        start=thread,
        issued_at=at,
        task=begin.task,
        by=begin.by,
        by_proven=begin.by_proven,
        agent=begin.agent,
        workspace=begin.workspace,
        schedule=name,
        budget=begin.budget,
        features=SCHEDULED,
    )
    return Launch(thread, run)


def run_details(launch: Launch) -> str:
    """Return what the Web UI shows of a scheduled run, in Markdown."""
    run = launch.run
    return "\n".join(
        [
            f"Schedule: `{code(run.schedule)}`, of `{code(run.by or 'nobody by name')}`  ",
            f"Agent: {f'`{code(run.agent)}`' if run.agent else 'the first of the catalog'}  ",
            "What it waits for: *Current Details*, on this page",
            "",
            quoted(text_of(run.task), 4_000),
        ]
    )
