"""Start, steer and read loops. A loop's iterations are threads (`holdfast.client.threads`)."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from temporalio.client import WorkflowExecutionDescription, WorkflowFailureError
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from holdfast.client.reading.loops import loop_lines
from holdfast.client.reading.reader import Note
from holdfast.client.reading.record import call_store
from holdfast.client.reading.runs import ENDED, NeverRan
from holdfast.client.reading.states import why_closed
from holdfast.client.sending import UpdateResult, send_update
from holdfast.client.start_options import check_own_id, issued, new_thread_id
from holdfast.client.threads import JSON, Started, Threads
from holdfast.config.programs import CLI
from holdfast.core.log.upcasters import decode_loop_event
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.state import LoopInput, LoopState, Steering
from holdfast.core.run.contracts.error_types import AGENT_NOT_FOUND, WORKSPACE_NOT_FOUND
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW
from holdfast.core.run.state.features import LOOP_BUDGETS, LOOP_LOG, level_of_start
from holdfast.errors import (
    AgentNotFound,
    FleetKeyMissing,
    NoWorker,
    PositionInvalid,
    RecordUnavailable,
    RecordUnreadable,
    Refused,
    ServerUnreachable,
    ThreadExists,
    ThreadNotFound,
    WorkspaceNotFound,
)

POLL_SECONDS = 0.5


async def find_loop(threads: Threads, name: str) -> WorkflowExecutionDescription | None:
    """Return Temporal's description of a loop; None if no loop has that name.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    found = await find_run(threads, name)
    return found if found and found.workflow_type == LOOP_WORKFLOW else None


async def find_run(threads: Threads, name: str) -> WorkflowExecutionDescription | None:
    """Return Temporal's description of a thread's or a loop's own latest run; None if Temporal has none.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    try:
        return await threads.reader.find(name, loops=True)
    except ThreadNotFound:
        return None


async def is_archived_loop(threads: Threads, name: str) -> bool:
    """Return whether the permanent record has a loop of that name; False if there is no record or it does not
    answer.
    """
    record = threads.reader.record
    if record is None:
        return False
    try:
        first = await call_store(record.store.read(name, 0))
        return bool(first) and json.loads(first[0])["type"] == "loop_started"
    except (RecordUnavailable, RecordUnreadable, ValueError, LookupError, TypeError):
        return False


async def start_loop(threads: Threads, loop: LoopInput, *, name: str | None = None) -> Started:
    """Start a loop. It is recorded when this returns; the next free worker runs it.

    Args:
        threads: The namespace's threads.
        loop: The loop's input.
        name: The loop's id, which must be unused by loops and threads; None for a new one.

    Raises:
        ThreadIdInvalid: The id cannot be used.
        ThreadExists: Temporal, or the permanent record, has a loop or thread of that id, open or closed.
        FleetKeyMissing: Without a fleet key, no loop can be started.
        ServerUnreachable: The server does not answer.
    """
    chosen = check_own_id(name) if name is not None else new_thread_id("loop")
    if not threads.sealed:
        raise FleetKeyMissing("starting a loop needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it")
    with contextlib.suppress(RecordUnavailable):  # then the first write fails, and the loop is blocked
        if name is not None and threads.reader.record and await threads.reader.record.length(chosen):
            raise _already_exists(chosen)
    others = LOOP_BUDGETS if loop.limits.tokens else loop.features
    level = level_of_start(others=others, context=loop.context, when_blocked=loop.when_blocked, scope=loop.nodes)
    loop = loop.model_copy(update={"features": level})
    title = loop.task or f"work off {loop.workspace}"
    try:  # its iterations are threads named after it, and must not be confused with those of another loop: once
        run_id = await threads.begin(chosen, issued(loop), title=title, details=_details(loop, chosen), once=True)
    except WorkflowAlreadyStartedError:
        raise _already_exists(chosen) from None
    return Started(thread=chosen, run_id=run_id)


def _already_exists(name: str) -> ThreadExists:
    return ThreadExists(f"there is or was a loop or thread {name!r}; choose another id with --id")


async def wait_until_surveyed(threads: Threads, name: str, *, within: float = 5.0) -> bool:
    """Wait until a worker has read the workspace of a new loop; return False if none did within `within` seconds.

    Raises:
        AgentNotFound: The worker's catalog has no such agent.
        WorkspaceNotFound: The workspace is not a folder on the worker.
    """
    clock = asyncio.get_running_loop()
    deadline = clock.time() + within
    while (left := deadline - clock.time()) > 0:
        try:
            state = await threads.runs.query(name, "state", within=left)
        except (ServerUnreachable, NeverRan):
            state = {"agent": None}
        if state["agent"]:
            return True
        if (await threads.runs.describe(name, loops=True)).status in ENDED:
            await _raise_not_found(threads, name)
            return True
        await asyncio.sleep(0.03)
    return False


async def _raise_not_found(threads: Threads, name: str) -> None:
    """Raise if a loop has failed because its agent or its workspace does not exist."""
    try:
        await threads.runs.client.get_workflow_handle(name).result()
    except WorkflowFailureError as error:
        cause: BaseException | None = error
        while cause:
            if isinstance(cause, ApplicationError) and (kind := _NOT_FOUND.get(cause.type or "")):
                raise kind(f"loop {name!r} could not start: {cause.message}") from None
            cause = cause.__cause__


_NOT_FOUND = {AGENT_NOT_FOUND: AgentNotFound, WORKSPACE_NOT_FOUND: WorkspaceNotFound}


async def steer(
    threads: Threads, name: str, what: Steering, *, by: str, reason: str = "", until: datetime | None = None
) -> UpdateResult:
    """Pause a loop, resume it, or have it retry; if no worker answers, send the same as a signal.

    Args:
        threads: The namespace's threads.
        name: The loop's id.
        what: The action: pause, resume or retry.
        by: The person who does it.
        reason: The reason; it is in the log.
        until: When a pause ends automatically, with a time zone; None for never.

    Returns:
        `accepted` or `sent`; if rejected, the same outcomes as for a run (`holdfast.core.run.inputs.pause`), or
        `nothing_to_do` if the loop's feature level has no log.

    Raises:
        Refused: The name belongs to an agent run, or the loop's feature level does not support `until`.
        ThreadNotFound: There is no such loop.
        ServerUnreachable: The server does not answer.
    """
    if (await threads.runs.describe(name, loops=True)).workflow_type != LOOP_WORKFLOW:
        raise Refused(f"{name!r} is an agent run, and this is for loops")
    payload = {"by": by, "reason": reason}
    if until:
        state = await threads.runs.query(name, "state")
        if state.get("features", 0) < LOOP_LOG:
            raise Refused(
                f"loop {name!r} cannot resume by itself yet: no worker of this release has read its files. Pause it "
                "without --until, or try again after its next iteration."
            )
        payload["until"] = until.isoformat()
    return await send_update(threads, name, what, payload, signal=what)


async def loop_state(threads: Threads, found: WorkflowExecutionDescription, *, note: Note | None = None) -> JSON:
    """Return a loop's state, as `holdfast.core.loop.state.LoopState.view` presents it.

    If the loop was closed in Temporal from outside, its status and result are Temporal's.

    Args:
        threads: The namespace's threads.
        found: Temporal's description of the loop.
        note: Called with a message when no worker answers and the state is derived from the recorded events; None to
            raise instead.

    Raises:
        NoWorker: No worker answers, and `note` is None or there are no recorded events.
    """
    try:
        view: JSON = await threads.runs.query(found.id, "state")
    except NeverRan:
        view = LoopState(thread=found.id).view()
    except NoWorker as silence:
        if note is None:
            raise
        view = await loop_state_at(threads, found.id, found=found, note=note)
        if not view["events"]:
            raise silence from None
    ended = ENDED.get(found.status) if found.status else None
    if ended and view["status"] != ended:
        view |= {"status": ended, "result": await why_closed(threads.reader, found)}
    return view


async def loop_state_at(
    threads: Threads,
    name: str,
    position: int | None = None,
    *,
    found: WorkflowExecutionDescription | None,
    note: Note | None = None,
) -> JSON:
    """Return a loop's state right after the event at `position`, or the last one: a fold over its events.

    Raises:
        PositionInvalid: There is no such event.
        EventsMissing: Some of the events can no longer be read.
    """
    state = LoopState(thread=name)
    async for line in loop_lines(threads.reader, name, 0, found=found, note=note):
        state = evolve(state, decode_loop_event(line))
        if state.events - 1 == position:
            break
    if position is not None and state.events - 1 != position:
        raise PositionInvalid(f"loop {name!r} has no event {position}: it has {state.events} events")
    return state.view()


async def follow_loop(threads: Threads, name: str) -> AsyncIterator[JSON]:
    """Yield a loop's state whenever it changes, until the loop has ended or is blocked or paused."""
    last: Any = None
    while True:
        try:
            state = await loop_state(threads, await threads.runs.describe(name, loops=True))
        except ServerUnreachable:
            if last is None:
                raise
        else:
            if state["updated_at"] != last:
                last = state["updated_at"]
                yield state
            if state["status"] != "running":
                return
        await asyncio.sleep(POLL_SECONDS)


def _details(loop: LoopInput, name: str) -> str:
    quoted = "\n".join(f"> {line}" for line in loop.task[:4_000].splitlines())
    lines = [f"Workspace: `{loop.workspace}`  ", f"Follow it: `{CLI.command('show', name)}`", "", quoted]
    return "\n".join(lines)
