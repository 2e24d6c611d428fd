"""Start, steer and read loops. A loop's iterations are threads (`holdfast.runtime.client.threads`)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowExecutionDescription, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast.errors import (
    AgentNotFound,
    FleetKeyMissing,
    Refused,
    ServerUnreachable,
    ThreadExists,
    ThreadNotFound,
    WorkspaceNotFound,
)
from holdfast.loop.state import LoopInput, LoopState, Steering
from holdfast.run.contracts import AGENT_NOT_FOUND, LOOP_WORKFLOW, WORKSPACE_NOT_FOUND
from holdfast.run.task_summary import memo, summary
from holdfast.runtime.client.connect import seals_of
from holdfast.runtime.client.decisions import UpdateResult, send_update
from holdfast.runtime.client.start_options import check_own_id, issued, new_thread_id
from holdfast.runtime.client.threads import JSON, Started, Threads
from holdfast.runtime.programs import CLI
from holdfast.runtime.reading.runs import ENDED, NeverRan
from holdfast.runtime.reading.states import why_closed

POLL_SECONDS = 0.5


async def find_loop(threads: Threads, name: str) -> WorkflowExecutionDescription | None:
    """Return Temporal's description of a loop; None if no loop has that name.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    try:
        found = await threads.runs.describe(name, loops=True)
    except ThreadNotFound:
        return None
    return found if found.workflow_type == LOOP_WORKFLOW else None


async def start_loop(threads: Threads, loop: LoopInput, *, name: str | None = None) -> Started:
    """Start a loop. It is recorded when this returns; the next free worker runs it.

    Args:
        threads: The namespace's threads.
        loop: The loop's input.
        name: The loop's id, which no loop or thread has had before; None for a new one.

    Raises:
        ThreadIdInvalid: The id cannot be used.
        ThreadExists: Temporal has a loop or thread of that id, open or closed.
        FleetKeyMissing: Without a fleet key, no loop can be started.
        ServerUnreachable: The server does not answer.
    """
    chosen = check_own_id(name) if name is not None else new_thread_id("loop")
    if not seals_of(threads.runs.client):
        raise FleetKeyMissing("starting a loop needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it")
    try:
        run = await threads.runs.client.start_workflow(
            LOOP_WORKFLOW,
            issued(loop),
            id=chosen,
            task_queue=threads.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            # Its iterations are threads named after it, and must not be confused with those of another loop.
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            memo=memo(loop.task or f"work off {loop.workspace}"),
            static_summary=summary(loop.task or f"work off {loop.workspace}"),
            static_details=_details(loop, chosen),
            rpc_timeout=timedelta(seconds=10),
        )
    except WorkflowAlreadyStartedError:
        raise ThreadExists(f"there is or was a loop or thread {chosen!r}; choose another id with --id") from None
    except RPCError as error:
        raise threads.runs.translate_error(error, chosen) from error
    return Started(thread=chosen, run_id=run.first_execution_run_id or "")


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


async def steer(threads: Threads, name: str, what: Steering, *, by: str, reason: str = "") -> UpdateResult:
    """Pause a loop, resume it, or have it retry; if no worker answers, send the same as a signal.

    Raises:
        Refused: The name belongs to an agent run.
        ThreadNotFound: There is no such loop.
        ServerUnreachable: The server does not answer.
    """
    if (await threads.runs.describe(name, loops=True)).workflow_type != LOOP_WORKFLOW:
        raise Refused(f"{name!r} is an agent run, and this is for loops")
    return await send_update(threads, name, what, {"by": by, "reason": reason}, signal=what)


async def loop_state(threads: Threads, found: WorkflowExecutionDescription) -> JSON:
    """Return a loop's state, as `holdfast.loop.state.LoopState.view` presents it.

    If Temporal closed the loop from outside, its status and result are those of Temporal.

    Raises:
        NoWorker: No worker answers.
    """
    try:
        view: JSON = await threads.runs.query(found.id, "state")
    except NeverRan:
        view = LoopState(thread=found.id).view()
    ended = ENDED.get(found.status) if found.status else None
    if ended and view["status"] != ended:
        view |= {"status": ended, "result": await why_closed(threads.reader, found)}
    return view


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
