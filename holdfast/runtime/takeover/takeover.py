"""Take over from a worker that was killed: end its claims on runs now, rather than when Temporal's time-outs do.

1. Temporal learns of a death by silence: 5 s for an activity, 3 s for a workflow's sticky queue. A process of the same
   machine can prove it at once (`liveness`), and nothing is done without that proof. For a workflow task that is
   under way (10 s) Temporal takes no word but that of the worker that has it.
2. While nobody dies, nobody asks Temporal anything: workers look at each other's processes (`registry`).
3. One process sweeps at a time, so that a claim is not ended twice: the second time it would be that of the attempt
   which came next.
4. Nothing depends on it. A sweep that fails, or comes too late, leaves the claim to its time-out; and an attempt that
   were ended by mistake would be one more that was taken for dead, which the ledger of effects is there for.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import structlog
from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.enums.v1 import PendingActivityState, PendingWorkflowTaskState
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    ResetStickyTaskQueueRequest,
    RespondActivityTaskFailedByIdRequest,
)
from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast.run.contracts import LOOP_WORKFLOW, WORKFLOW
from holdfast.runtime.takeover.liveness import is_gone, this_process
from holdfast.runtime.takeover.registry import WorkerRegistry
from holdfast.runtime.takeover.sticky_queues import RPC_TIMEOUT, give_task_back, last_task
from holdfast.runtime.takeover.worker_identity import WorkerIdentity

WORKER_DIED = "WorkerDied"
"""The type of the failure with which a dead worker's activity is given back."""

LOOK_SECONDS = 0.2
"""How often a worker looks whether its siblings live: a folder is listed, and one file of /proc read for each."""

AGAIN_SECONDS = 1.0
"""After this long a second look at Temporal, for what was on its way when the worker died, or not listed yet."""

PAUSE_SECONDS = 10.0
"""After a look that failed."""

RUNS = 1_000
"""Open runs that a sweep looks at, at the most: those at work first, then those that wait."""

AT_ONCE = 10
"""Runs that a sweep asks about side by side."""

HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""Of a pending activity about which Temporal does not say."""

MARGIN = timedelta(seconds=0.5)
"""A claim that times out this soon is left to do so: what is ended must not be the claim of the attempt after it."""

_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")

log = structlog.get_logger("takeover")


@asynccontextmanager
async def taking_over(client: Client, *, home: Path, task_queue: str, wanted: bool = True) -> AsyncIterator[str | None]:
    """Take over from the workers of this machine that are killed, for the length of the block.

    Args:
        client: Connected.
        home: The state folder; workers that share it see each other.
        task_queue: Whose runs are looked at.
        wanted: `Settings.takeover`.

    Yields:
        The identity for the worker to have; None for Temporal's own, where nobody could prove its end.
    """
    me = this_process() if wanted else None
    if me is None:
        yield None
        return
    try:
        registry = WorkerRegistry(home, client.service_client.config.target_host, client.namespace, task_queue)
        registry.enter(me)
    except OSError as error:
        log.warning("no_takeover", reason=str(error))
        yield str(me)
        return
    watching = asyncio.create_task(_watch(client, registry, me, task_queue))
    try:
        yield str(me)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        with suppress(OSError):
            registry.leave([me])


async def _watch(client: Client, registry: WorkerRegistry, me: WorkerIdentity, task_queue: str) -> None:
    loop = asyncio.get_running_loop()

    def look() -> list[WorkerIdentity]:
        return [each for each in registry.workers() if is_gone(each, seen_from=me)]

    # A thread of its own: the folder may be on a slow disk, and those of the pool may all be busy with tools.
    thread = ThreadPoolExecutor(1, thread_name_prefix="takeover")
    try:
        while True:
            try:
                if dead := await loop.run_in_executor(thread, look):
                    await _take_over(client, registry, me, dead, task_queue)
            except Exception as error:  # whatever it is, the time-outs are still there
                log.warning("takeover_failed", reason=str(error))
                await asyncio.sleep(PAUSE_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        thread.shutdown(wait=False)  # a worker that ends does not wait for that disk


async def _take_over(
    client: Client, registry: WorkerRegistry, me: WorkerIdentity, dead: list[WorkerIdentity], task_queue: str
) -> None:
    """Sweep twice, and forget the dead."""
    names = {str(each): each for each in dead}

    def gone(identity: str) -> bool:
        return identity in names and is_gone(names[identity], seen_from=me)

    with registry.alone() as alone:
        if not alone:
            return
        for seconds in (0.0, AGAIN_SECONDS):
            await asyncio.sleep(seconds)
            try:
                ended = await sweep(client, task_queue, gone=gone, me=me)
            except RPCError as error:  # Temporal's time-outs do it, then
                log.warning("sweep_failed", workers=list(names), reason=error.message)
            else:
                if any(ended.values()):
                    log.info("taken_over", workers=list(names), **ended)
        registry.leave(dead)


def _quoted(name: str) -> str:
    """A string of a visibility query."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def sweep(client: Client, task_queue: str, *, gone: Callable[[str], bool], me: WorkerIdentity) -> dict[str, int]:
    """End what dead workers hold of the open runs of a task queue.

    Args:
        client: Connected.
        task_queue: The runs'.
        gone: Whether the worker of an identity has provably ended.
        me: Who ends it.

    Returns:
        How many `activities` were given back, and how many `workflows` are free for any worker.

    Raises:
        RPCError: Temporal is away, or does not let us look.
    """
    kinds = f"'{WORKFLOW}', '{LOOP_WORKFLOW}'"
    query = f"TaskQueue = {_quoted(task_queue)} AND WorkflowType IN ({kinds}) AND ExecutionStatus = 'Running'"
    runs = [run async for run in client.list_workflows(query, limit=RUNS, rpc_timeout=RPC_TIMEOUT)]
    runs.sort(key=lambda run: run.typed_search_attributes.get(_STATUS) not in (None, "running"))
    gate = asyncio.Semaphore(AT_ONCE)

    async def free(run: WorkflowExecution) -> tuple[int, int]:
        async with gate:
            try:
                return await _free(client, task_queue, run, gone, me)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                    log.warning("run_not_swept", thread=run.id, reason=error.message)
                return 0, 0

    async with asyncio.TaskGroup() as group:  # which waits, when it is cancelled, for what must not be left half done
        freed = [group.create_task(free(run)) for run in runs]
    counts = [each.result() for each in freed]
    return {"activities": sum(each[0] for each in counts), "workflows": sum(each[1] for each in counts)}


async def _free(
    client: Client, task_queue: str, run: WorkflowExecution, gone: Callable[[str], bool], me: WorkerIdentity
) -> tuple[int, int]:
    """End what dead workers hold of one run: how many activities, and whether its workflow."""
    execution = Execution(workflow_id=run.id, run_id=run.run_id)
    last = await last_task(client, execution)
    described = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution), timeout=RPC_TIMEOUT
    )
    waits = described.pending_workflow_task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    freed, stuck = gone(last.worker), waits and last.sticky_queue
    if freed and not stuck:  # first: an activity that is given back and ends at once has its workflow task go anywhere
        await client.workflow_service.reset_sticky_task_queue(
            ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution), timeout=RPC_TIMEOUT
        )
    ended = 0
    for activity in described.pending_activities:
        if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED and gone(
            activity.last_worker_identity
        ):
            ended += await _give_back(client, execution, activity, me)
    if freed and stuck:  # last: it may take a while, and activities must be those that were seen
        freed = await give_task_back(client, last.sticky_queue, task_queue=task_queue, failure=WORKER_DIED, me=str(me))
    return ended, int(freed)


async def _give_back(client: Client, execution: Execution, activity: PendingActivityInfo, me: WorkerIdentity) -> bool:
    """Fail a dead worker's attempt, to be made again at once; whether that was done."""
    options = activity.activity_options
    limit = options.heartbeat_timeout.ToTimedelta() or options.start_to_close_timeout.ToTimedelta() or HEARTBEAT_TIMEOUT
    heard = max(activity.last_started_time.ToMicroseconds(), activity.last_heartbeat_time.ToMicroseconds())
    if heard / 1_000_000 + (limit - MARGIN).total_seconds() < time.time():
        return False
    info = ApplicationFailureInfo(type=WORKER_DIED)
    info.next_retry_delay.FromTimedelta(timedelta(milliseconds=1))  # zero counts as none
    message = (
        f"the worker of attempt {activity.attempt} has been killed: {activity.last_worker_identity} is gone, "
        f"found by {me}; the call is made again at once"
    )
    await client.workflow_service.respond_activity_task_failed_by_id(
        RespondActivityTaskFailedByIdRequest(
            namespace=client.namespace,
            workflow_id=execution.workflow_id,
            run_id=execution.run_id,
            activity_id=activity.activity_id,
            failure=Failure(message=message, source="holdfast", application_failure_info=info),
            identity=str(me),
        ),
        retry=False,  # the answer may be lost, and then the attempt is another one
        timeout=MARGIN,
    )
    return True
