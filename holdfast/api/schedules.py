"""The public `Schedules` of a namespace, and the models of a schedule's state."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from holdfast.api.dialogue import checked_name
from holdfast.api.thread import Thread
from holdfast.api.views import ThreadStatus
from holdfast.client import schedules
from holdfast.client.schedule_definitions import Definition, Overlap
from holdfast.client.schedule_states import list_schedules, schedule_state
from holdfast.client.threads import Threads
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.nodes import selected_nodes
from holdfast.core.tools.typed_context import context_values


class ScheduledRun(Frozen):
    """A run that a schedule started, or failed to start."""

    thread: str
    due_at: datetime
    started_at: datetime
    status: ThreadStatus | Literal["starting", "not_started", "removed"]
    """The thread's status; `starting` before a worker has picked it up, `not_started` if it could not start (see
    `why`), `removed` if Temporal has deleted it."""
    why: str
    """The reason why the run failed or was not started; else empty."""


class ScheduleState(Frozen):
    """The definition of a schedule, and its runs."""

    schedule: str
    """The name, which is the prefix of the ids of its threads."""
    task: str
    by: str
    """The person who made it, and who gives the task of each run."""
    agent: str | None
    """The agent's name; None for the catalog's first."""
    workspace: str | None
    """A folder on the worker; None for each thread's own folder."""
    reason: str
    budget: str = ""
    """The budget of each run: `usd=2,tokens=100000`; empty for the agent's own."""
    context: dict[str, Any] | None = None
    """The typed context of each run, as JSON; None for no context."""
    nodes: tuple[str, ...] = ()
    """The nodes that may execute the runs; empty for those of the agent."""
    unattended: bool = False
    """The runs fail instead of waiting for a person."""
    cron: str | None
    """The cron expression; None with `every`, or for times that somebody set in Temporal."""
    every: float | None
    """Seconds from one run to the next; None with `cron`."""
    tz: str
    until: datetime | None
    overlap: Overlap
    catchup: float | None
    """The maximum delay, in seconds, of a run that was due while Temporal was down."""
    paused: bool
    note: str
    """The last pause or resumption: by whom, and why."""
    problem: str
    """The reason why it starts no runs although it is not paused: somebody changed it in Temporal. Else empty."""
    next: tuple[datetime, ...]
    """The next five start times; empty while it is paused, and after its end."""
    started: int
    """The number of runs started."""
    skipped: int
    """The number of runs skipped because the previous one was still open."""
    missed: int
    """The number of runs skipped because Temporal was down for longer than `catchup`."""
    runs: tuple[ScheduledRun, ...]
    """The last ten runs, newest first; empty in a list of schedules."""


class Schedules:
    """Starts runs by schedule: `Client.schedules`. No method needs a worker.

    Every method raises `ServerUnreachable` if Temporal does not respond, and all but `add` and `list` raise
    `ScheduleNotFound` if no schedule has that name.
    """

    def __init__(self, threads: Threads, thread: Callable[[str], Thread], *, by: str = "") -> None:
        self._threads = threads
        self._thread = thread
        self._by = by

    async def add(
        self,
        name: str,
        task: Content,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        tz: str = "UTC",
        agent: str | None = None,
        workspace: str | Path | None = None,
        overlap: Overlap = "skip",
        catchup: timedelta | float | None = None,
        until: datetime | None = None,
        by: str | None = None,
        by_proven: bool = False,
        reason: str = "",
        budget: Budget | None = None,
        context: BaseModel | Mapping[str, object] | None = None,
        nodes: Sequence[str] = (),
        unattended: bool = False,
        replace: bool = False,
    ) -> ScheduleState:
        """Add a schedule. Adding the same schedule again changes nothing.

        Args:
            name: Its name, which is the prefix of the ids of its threads: `NAME-2026-11-22T07:00:00Z`.
            task: The task for the agent: text, or content blocks.
            cron: The start times: minute, hour, day of the month, month, day of the week, such as `0 7 * * 1-5`.
            every: The time from one run to the next, as a duration or in seconds, counted from 1970-01-01 in UTC. Pass
                either this or `cron`.
            tz: The IANA name of the time zone of `cron`.
            agent: The agent's name; None for the catalog's first.
            workspace: A folder on the worker's machine; None for each thread's own folder.
            overlap: If the last run is still open: `skip` the new one, `queue` one, `cancel` the old one, or `allow`
                both.
            catchup: The maximum delay of a run that was due while Temporal was down, as a duration or in seconds; None
                for the time from one run to the next: only the last missed run.
            until: The time, with a time zone, after which no run starts; None for no end.
            by: The person who gives the task of each run; None for the client's `by`.
            by_proven: Whether this program has authenticated the person in `by`, as in `Client.start`.
            reason: The purpose of the schedule.
            budget: The budget of each run, within the agent's own budget; None for the agent's budget.
            context: The typed context of each run, as in `Client.start`; None for no context.
            nodes: The nodes that may execute the runs, as in `Client.start`; empty for those of the agent.
            unattended: Whether each run fails instead of waiting for a person, as with `Client.start`. With
                `overlap="skip"`, a run that waits would hold up all later ones.
            replace: Replace another schedule with this name; a paused one stays paused.

        Raises:
            ScheduleInvalid: The name, the times or the options cannot be used.
            ScheduleExists: Another schedule has this name.
            TaskInvalid: The task is empty, too long, or neither text nor content blocks.
            FleetKeyMissing: Without a fleet key, no schedule can be made.
        """
        definition = Definition(
            task=task,
            cron=cron,
            every=_seconds(every),
            tz=tz,
            until=until,
            overlap=overlap,
            catchup=_seconds(catchup),
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            by=checked_name(self._by if by is None else by),
            by_proven=by_proven or by is None,
            reason=reason,
            budget=budget,
            context=context_values(context),
            nodes=selected_nodes(nodes),
            when_blocked="fail" if unattended else None,
        )
        await schedules.add_schedule(self._threads, name, definition, replace=replace)
        return await self.state(name)

    async def list(self) -> list[ScheduleState]:
        """List schedules by name, without their runs. Temporal's list lags a little."""
        return [ScheduleState.model_validate(each) for each in await list_schedules(self._threads)]

    async def state(self, name: str) -> ScheduleState:
        """Return the definition of a schedule, and its last runs."""
        return ScheduleState.model_validate(await schedule_state(self._threads, name))

    async def pause(self, name: str, *, by: str | None = None, reason: str = "") -> None:
        """Pause a schedule: open runs continue, and none starts. On a paused schedule, change the reason."""
        by = checked_name(self._by if by is None else by)
        await schedules.pause_schedule(self._threads, name, by=by, reason=reason)

    async def resume(self, name: str, *, by: str | None = None, reason: str = "") -> None:
        """Resume a paused schedule. Runs that were due during the pause do not start."""
        by = checked_name(self._by if by is None else by)
        await schedules.resume_schedule(self._threads, name, by=by, reason=reason)

    async def trigger(self, name: str) -> Thread | None:
        """Start a run now, even if another is open or the schedule is paused, and return its thread.

        The thread exists once a worker has picked up the run; this waits for up to five seconds. None if Temporal has
        not started the run by then; it still will.
        """
        thread = await schedules.trigger_schedule(self._threads, name)
        if not thread:
            return None
        return self._thread(thread)

    async def delete(self, name: str) -> None:
        """Delete a schedule. Its threads stay, and open runs continue."""
        await schedules.delete_schedule(self._threads, name)


def _seconds(duration: timedelta | float | None) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
