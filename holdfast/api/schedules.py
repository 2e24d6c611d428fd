"""The schedules of a namespace, as a program holds them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from holdfast.api.dialogue import named
from holdfast.api.thread import Thread
from holdfast.api.views import ThreadStatus
from holdfast.client import schedules
from holdfast.client.schedule_definitions import Definition, Overlap
from holdfast.client.schedule_states import list_schedules, schedule_state
from holdfast.client.threads import Threads
from holdfast.core.base.models import Frozen
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content


class ScheduledRun(Frozen):
    """A run that a schedule has started, or failed to start."""

    thread: str
    due_at: datetime
    started_at: datetime
    status: ThreadStatus | Literal["starting", "not_started", "removed"]
    """That of the thread; `starting` before a worker has taken it up, `not_started` where `why` says so, `removed`
    where Temporal has it no more."""
    why: str
    """Why the run failed, or was not started; else empty."""


class ScheduleState(Frozen):
    """What a schedule runs, when and for whom."""

    schedule: str
    """Its name, with which the ids of its threads begin."""
    task: str
    by: str
    """Who made it: who gives the task of each run."""
    agent: str | None
    """The agent's name; None for the catalog's first."""
    workspace: str | None
    """A folder on the worker; None for one of each thread's own."""
    reason: str
    budget: str = ""
    """What each run may use: `usd=2,tokens=100000`; empty for what its agent says."""
    cron: str | None
    """The cron expression; None with `every`, or for times that somebody has set in Temporal."""
    every: float | None
    """Seconds from one run to the next; None with `cron`."""
    tz: str
    until: datetime | None
    overlap: Overlap
    catchup: float | None
    """How many seconds late a run may start that was due while Temporal was down."""
    paused: bool
    note: str
    """By whom and why it was paused or resumed last."""
    problem: str
    """Why it starts no run, though it is not paused: somebody has changed it in Temporal. Empty for no problem."""
    next: tuple[datetime, ...]
    """The next five times; empty while it is paused, and after its end."""
    started: int
    """How many runs it has started."""
    skipped: int
    """How many it has left out, because the last one was open."""
    missed: int
    """How many it has left out, because Temporal was down for longer than `catchup`."""
    runs: tuple[ScheduledRun, ...]
    """The last ten runs, the newest first; of a list, none."""


class Schedules:
    """Starts runs by schedule. `Client.schedules` has it. No method needs a worker.

    Every method raises `ServerUnreachable` if Temporal does not answer, and all but `add` and `list` raise
    `ScheduleNotFound` if there is no schedule of that name.
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
        replace: bool = False,
    ) -> ScheduleState:
        """Add a schedule. The same schedule again changes nothing.

        Args:
            name: Its name, with which the ids of its threads begin: `NAME-2026-11-22T07:00:00Z`.
            task: What the agent is to do: text, or content blocks.
            cron: When: minute, hour, day of the month, month, day of the week, such as `0 7 * * 1-5`.
            every: When: the time from one run to the next, or its seconds, counted from 1970-01-01 in UTC. Either this
                or `cron`.
            tz: The IANA name of the time zone of `cron`.
            agent: The agent's name; None for the catalog's first.
            workspace: A folder on the worker's machine; None for one of each thread's own.
            overlap: If the last run is still open: `skip` the new one, `queue` one, `cancel` the old one, or `allow`
                both.
            catchup: How late a run may start that was due while Temporal was down, or its seconds; None for the time
                from one run to the next: only the last missed run.
            until: No run starts after this, which has a time zone; None for no end.
            by: Who gives the task of each run; None for the client's `by`.
            by_proven: This program has authenticated the person that it names in `by`, as in `Client.start`.
            reason: Why there is the schedule.
            budget: What each run may use, as far as the agent's own budget allows it; None for that one.
            replace: Replace another schedule of that name, which stays paused if it is.

        Raises:
            ScheduleInvalid: The name, the times or the options cannot be used.
            ScheduleExists: There is another schedule of that name.
            TaskInvalid: The task is empty, too long, or neither text nor content blocks.
            FleetKeyMissing: Without a fleet key, no schedule can be made.
        """
        given = Definition(
            task=task,
            cron=cron,
            every=_seconds(every),
            tz=tz,
            until=until,
            overlap=overlap,
            catchup=_seconds(catchup),
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
            reason=reason,
            budget=budget,
        )
        await schedules.add_schedule(self._threads, name, given, replace=replace)
        return await self.state(name)

    async def list(self) -> list[ScheduleState]:
        """List schedules by name, without their runs. Temporal's list lags a little."""
        return [ScheduleState.model_validate(each) for each in await list_schedules(self._threads)]

    async def state(self, name: str) -> ScheduleState:
        """Return what a schedule runs, when and for whom, and what became of its last runs."""
        return ScheduleState.model_validate(await schedule_state(self._threads, name))

    async def pause(self, name: str, *, by: str | None = None, reason: str = "") -> None:
        """Pause a schedule: open runs continue, and no other starts. Again: change the reason."""
        by = named(self._by if by is None else by)
        await schedules.pause_schedule(self._threads, name, by=by, reason=reason)

    async def resume(self, name: str, *, by: str | None = None, reason: str = "") -> None:
        """Resume a paused schedule. What was due meanwhile does not start."""
        by = named(self._by if by is None else by)
        await schedules.resume_schedule(self._threads, name, by=by, reason=reason)

    async def trigger(self, name: str) -> Thread | None:
        """Start a run now, also beside an open one, and while the schedule is paused; return its thread.

        There is such a thread as soon as a worker has taken the run up, for which this waits up to five seconds. None
        if Temporal has not begun within that time; it will.
        """
        thread = await schedules.trigger_schedule(self._threads, name)
        if not thread:
            return None
        return self._thread(thread)

    async def delete(self, name: str) -> None:
        """Delete a schedule. Its threads stay, and open runs continue."""
        await schedules.delete_schedule(self._threads, name)


def _seconds(given: timedelta | float | None) -> float | None:
    return given.total_seconds() if isinstance(given, timedelta) else given
