"""Loops from outside: start one, steer it, read it. Its iterations are threads (`holdfast.runtime.client.threads`)."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast.errors import FleetKeyMissing, Refused, ServerUnreachable, ThreadExists, ThreadNotFound
from holdfast.loop.state import LoopInput, LoopState, Steering
from holdfast.run.contracts import LOOP_WORKFLOW
from holdfast.runtime.client.connect import seals_of
from holdfast.runtime.client.decisions import Decided, update
from holdfast.runtime.client.start_options import check_own_id, issued, new_thread_id, summary
from holdfast.runtime.client.threads import JSON, Started, Threads
from holdfast.runtime.reading.runs import ENDED, NeverRan
from holdfast.runtime.reading.states import why_closed

POLL_SECONDS = 0.5


async def find_loop(threads: Threads, name: str) -> WorkflowExecutionDescription | None:
    """What Temporal knows of a loop; None where the name is no loop's.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    try:
        found = await threads.runs.describe(name, loops=True)
    except ThreadNotFound:
        return None
    return found if found.workflow_type == LOOP_WORKFLOW else None


async def start_loop(threads: Threads, loop: LoopInput, *, name: str | None = None) -> Started:
    """Start a loop. It is recorded when this returns; a worker takes it when there is one.

    Args:
        threads: Where it is to run.
        loop: What it is to do.
        name: Its id, which no loop or thread has had; None for a fresh one.

    Raises:
        ThreadIdInvalid: The id cannot be used.
        ThreadExists: Temporal has a loop or thread of that id, open or closed.
        ServerUnreachable: The server does not answer.
    """
    chosen = check_own_id(name) if name is not None else new_thread_id("loop")
    if not seals_of(threads.runs.client):
        raise FleetKeyMissing("a loop is started by those who have the fleet key alone: set HOLDFAST_FLEET_KEYS")
    try:
        run = await threads.runs.client.start_workflow(
            LOOP_WORKFLOW,
            issued(loop),
            id=chosen,
            task_queue=threads.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            # Its iterations are threads named after it: those of another loop must not be taken for them.
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            static_summary=summary(loop.task or f"work off {loop.workspace}"),
            static_details=_details(loop, chosen),
            rpc_timeout=timedelta(seconds=10),
        )
    except WorkflowAlreadyStartedError:
        raise ThreadExists(f"there is or was a loop or thread {chosen!r}; choose another id with --id") from None
    except RPCError as error:
        raise threads.runs.in_words(error, chosen) from error
    return Started(thread=chosen, run_id=run.first_execution_run_id or "")


async def steer(threads: Threads, name: str, what: Steering, *, by: str, reason: str = "") -> Decided:
    """Pause a loop, let it go on, or let it try again; where no worker answers, the same is left as a signal.

    Raises:
        Refused: It is an agent run, which cannot be paused.
        ThreadNotFound: There is no such loop.
        ServerUnreachable: The server does not answer.
    """
    if (await threads.runs.describe(name, loops=True)).workflow_type != LOOP_WORKFLOW:
        raise Refused(f"{name!r} is an agent run, and only loops can be paused; `cancel` stops a run for good")
    return await update(threads, name, what, {"by": by, "reason": reason}, signal=what)


async def loop_state(threads: Threads, found: WorkflowExecutionDescription) -> JSON:
    """Where a loop stands, as `holdfast.loop.state.LoopState.view` has it; what Temporal knows better is put in.

    Raises:
        NoWorker: Nobody answers.
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
    """Where a loop stands, again whenever that has changed, until it has ended or is blocked or paused."""
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
    lines = [f"Workspace: `{loop.workspace}`  ", f"Follow it: `python starter.py show {name}`", "", quoted]
    return "\n".join(lines)
