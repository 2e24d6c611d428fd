"""Add, pause, resume, trigger and delete schedules (`holdfast.client.schedule_states` reads them).

No worker is needed. The launcher's input is sealed here, once, for all runs of the schedule.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    ScheduleActionExecution,
    ScheduleActionExecutionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError

from holdfast.client.schedule_definitions import (
    REASON_CHARS,
    Definition,
    begin_of,
    check_schedule_name,
    checked,
    definition_of,
    schedule_of,
)
from holdfast.client.schedule_states import LIMIT, find_schedule, translate_schedule_error
from holdfast.client.threads import Threads
from holdfast.config.programs import CLI
from holdfast.core.base.text import one_line
from holdfast.core.mac.seals import launched
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import FleetKeyMissing, ScheduleExists, ScheduleInvalid, ThreadNotFound

TRIGGER_SECONDS = 5.0
"""Seconds to wait until a triggered run has started."""

SAME_ID = timedelta(seconds=1)
"""Ids contain the time in whole seconds, so Temporal drops a second run within the same second."""


async def add_schedule(threads: Threads, name: str, given: Definition, *, replace: bool = False) -> bool:
    """Add a schedule; return False if the same one already exists.

    Args:
        threads: The namespace's threads.
        name: Its name, with which the ids of its threads begin.
        given: The schedule's definition.
        replace: Whether to replace another schedule of that name; a paused one stays paused.

    Raises:
        ScheduleInvalid: The name, the times or the options cannot be used.
        ScheduleExists: There is another schedule of that name.
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
        FleetKeyMissing: Without a fleet key, no schedule can be made.
        ServerUnreachable: The server does not answer.
    """
    check_schedule_name(name)
    given = checked(given)
    client = threads.runs.client
    if not seals_in(client.data_converter):
        raise FleetKeyMissing(
            f"making the schedule {name!r} needs the fleet key, which proves who gives the task of each run: set "
            "HOLDFAST_FLEET_KEYS as the workers have it, or use the gateway"
        )
    wanted = schedule_of(name, given, task_queue=threads.task_queue)
    try:
        await client.create_schedule(name, wanted, rpc_timeout=LIMIT)
        return True
    except RPCError as error:
        raise translate_schedule_error(threads, error, name) from error
    except ScheduleAlreadyRunningError:
        pass
    found = await find_schedule(threads, name, taken=True)
    begin = await begin_of(client, found)
    if begin.sealed and not begin.malformed and definition_of(begin, found) == given:
        return False
    if not replace:
        raise ScheduleExists(
            f"there is another schedule {name!r}, of {begin.by or 'nobody by name'}, with another task, times or "
            f"options: `{CLI.command('schedule', 'show', name)}`. Choose another name, or replace it with --replace"
        )

    def replaced(current: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(dataclasses.replace(wanted, state=current.description.schedule.state))

    await _change(threads, name, lambda handle: handle.update(replaced, rpc_timeout=LIMIT))
    return True


async def pause_schedule(threads: Threads, name: str, *, by: str, reason: str = "") -> None:
    """Pause a schedule: open runs continue, and no new ones start. Pausing again changes the reason.

    Raises:
        ScheduleInvalid: The reason is too long, or a schedule cannot have this name.
        ScheduleNotFound: There is no such schedule.
        ServerUnreachable: The server does not answer.
    """
    note = _note("paused", by, reason)
    await _change(threads, name, lambda handle: handle.pause(note=note, rpc_timeout=LIMIT))


async def resume_schedule(threads: Threads, name: str, *, by: str, reason: str = "") -> None:
    """Resume a paused schedule. Runs that were due meanwhile do not start. Errors are as in `pause_schedule`."""
    note = _note("resumed", by, reason)
    await _change(threads, name, lambda handle: handle.unpause(note=note, rpc_timeout=LIMIT))


async def delete_schedule(threads: Threads, name: str) -> None:
    """Delete a schedule. Its threads are kept, and open runs continue. Errors are as in `pause_schedule`."""
    await _change(threads, name, lambda handle: handle.delete(rpc_timeout=LIMIT))


async def trigger_schedule(threads: Threads, name: str) -> str:
    """Start a run of a schedule now, even if one is open or the schedule is paused; return its thread id.

    The thread exists once a worker has picked up the run, for which this waits up to five seconds. The id is empty if
    Temporal has not started the run within that time; it will do so later.

    Raises:
        ScheduleNotFound: There is no such schedule.
        ServerUnreachable: The server does not answer.
    """
    before = (await find_schedule(threads, name)).info.recent_actions
    if any(each.started_at > datetime.now(UTC) - SAME_ID for each in before):
        await asyncio.sleep(SAME_ID.total_seconds())
    overlap = ScheduleOverlapPolicy.ALLOW_ALL
    await _change(threads, name, lambda handle: handle.trigger(overlap=overlap, rpc_timeout=LIMIT))
    clock = asyncio.get_running_loop()
    deadline, thread = clock.time() + TRIGGER_SECONDS, ""
    while clock.time() < deadline:
        thread = thread or await _started_since(threads, name, [each.action for each in before])
        if thread and await _exists(threads, thread):
            break
        await asyncio.sleep(0.1)
    return thread


async def _started_since(threads: Threads, name: str, before: Sequence[ScheduleActionExecution]) -> str:
    """Return the thread id of a run that is not in `before`; empty if there is none."""
    for each in (await find_schedule(threads, name)).info.recent_actions:
        if each.action not in before and isinstance(each.action, ScheduleActionExecutionStartWorkflow):
            found = launched(each.action.workflow_id)
            return found[1] if found else ""
    return ""


async def _exists(threads: Threads, thread: str) -> bool:
    try:
        await threads.runs.describe(thread)
    except ThreadNotFound:
        return False
    return True


async def _change(threads: Threads, name: str, change: Callable[[ScheduleHandle], Awaitable[None]]) -> None:
    await find_schedule(threads, name)  # never change another program's schedule
    try:
        await change(threads.runs.client.get_schedule_handle(name))
    except RPCError as error:
        raise translate_schedule_error(threads, error, name) from error


def _note(what: str, by: str, reason: str) -> str:
    if len(reason) > REASON_CHARS:
        raise ScheduleInvalid(f"--reason: it has at most {REASON_CHARS:,} characters")
    return f"{what} by {by or 'nobody by name'}" + (f": {one_line(reason, REASON_CHARS)}" if reason.strip() else "")
