"""The launcher of a schedule: its input, its reasons to reject it, and the run that it starts. Pure.

1. The maker of a schedule seals the input for all of its launchers (`holdfast.core.mac.seals`). Without that seal, a
   launcher starts nothing, so nobody can start a run in another person's name with access to Temporal alone.
2. The seal covers the task and the person, but not the time: anybody with access to Temporal can trigger the schedule.
   `until`, which is sealed too, limits that.
3. The run's thread id derives from the time at which it was due: each run starts once, and a second start under the
   same id is rejected.
"""

from datetime import datetime
from typing import Any, NamedTuple

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.base.models import Sealed
from holdfast.core.base.text import code, quoted
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.mac.seals import launched
from holdfast.core.mac.starts import START_WITHIN, Start
from holdfast.core.nodes import Nodes
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.state.features import SCHEDULED, level_of_start


class ScheduledInput(Start):
    """The input of `ScheduledRunWorkflow`: the part of a schedule that its maker sealed.

    The launcher's workflow id has the schedule's name and the time.
    """

    task: Content = ""
    by: str = ""
    """The person who made the schedule, and so gives each run its task."""
    by_proven: bool = True
    """As in `RunInput`."""
    agent: str | None = None
    """The agent's name; None for the catalog's first."""
    workspace: str | None = None
    """A folder on the worker; None for a separate one for each thread."""
    reason: str = ""
    """The purpose of the schedule."""
    budget: Budget | None = None
    """The limits of each run, as in `RunInput`."""
    context: dict[str, Any] | None = None
    """The typed context of each run, as in `RunInput`."""
    nodes: Nodes = ()
    """The nodes that may execute the runs; empty for those of the agent."""
    when_blocked: WhenBlocked | None = None
    """As in `RunInput`."""
    until: datetime | None = None
    """The time after which no run is started; None for no end."""


class ScheduledResult(Sealed):
    """The result of `ScheduledRunWorkflow`: the run has completed."""

    thread: str


class Launch(NamedTuple):
    """The run that a launcher starts."""

    thread: str
    run: RunInput


def launch(begin: ScheduledInput, *, workflow_id: str, started_at: datetime, at: datetime) -> Launch | str:
    """Return the run to start, or the reason that none may be started.

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
    if (names := launched(workflow_id)) is None:
        return f"the workflow id {workflow_id!r} does not say which schedule was due when: only schedules start this"
    if begin.until and started_at > begin.until + START_WITHIN:
        return f"the schedule ended at {begin.until.isoformat()}; add it again to start more runs"
    name, thread = names
    scope = (begin.nodes,) if begin.nodes else ()
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
        context=begin.context,
        when_blocked=begin.when_blocked,
        scope=scope,
        features=level_of_start(others=SCHEDULED, context=begin.context, when_blocked=begin.when_blocked, scope=scope),
    )
    return Launch(thread, run)


def run_details(launch: Launch) -> str:
    """Describe a scheduled run in Markdown, for the Web UI."""
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
