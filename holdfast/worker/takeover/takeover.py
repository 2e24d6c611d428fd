"""Detects a lost worker of this machine, and takes over from it: ends its claims on runs at once, before Temporal does.

1. Temporal detects a death by a time-out: 5 s for an activity (`HEARTBEAT_TIMEOUT` in
   `holdfast.core.run.contracts.table`), 3 s for a workflow's sticky queue. A process of the same machine can prove it
   at once (`liveness`), and nothing is done without that proof. A running workflow task keeps its time-out (10 s),
   because only its own worker can report it to Temporal.
2. While no worker dies, no requests are sent to Temporal: workers check each other's processes (`registry`).
3. Only one process sweeps at a time, so that no claim is ended twice: the second end would hit the next attempt.
4. Nothing depends on takeover. If a sweep fails or is late, the claim times out; and if an attempt were ended by
   mistake, the effect ledger would handle it like any other attempt presumed dead.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

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

from holdfast.config.logs import EventLogger
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, SCHEDULED_WORKFLOW, WORKFLOW
from holdfast.core.run.contracts.table import HEARTBEAT_TIMEOUT
from holdfast.telemetry.metrics.instruments import instruments_of, meter_of
from holdfast.telemetry.metrics.names import TAKEOVERS
from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.registry import Offer, WorkerRegistry
from holdfast.worker.takeover.sticky_queues import RPC_TIMEOUT, last_task, release_task
from holdfast.worker.takeover.worker_identity import WorkerIdentity

WORKER_DIED = "WorkerDied"
"""The type of the failure reported for a dead worker's activity."""

CHECK_SECONDS = 0.2
"""How often a worker checks its siblings: it lists a folder, and reads one file of /proc for each."""

SECOND_SWEEP_SECONDS = 1.0
"""The delay before a second sweep, for tasks that were in flight when the worker died, or not listed yet."""

RETRY_SECONDS = 10.0
"""The pause after a failed check."""

MAX_RUNS = 1_000
"""The most open runs that a sweep examines: running ones first, then waiting ones."""

CONCURRENCY = 10
"""Runs that a sweep examines concurrently."""

MARGIN = timedelta(seconds=0.5)
"""A claim that times out this soon is left alone, lest the claim of the next attempt be ended."""

_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")

log = EventLogger("takeover")


@asynccontextmanager
async def taking_over(
    client: Client, *, home: Path, task_queue: str, enabled: bool = True, offer: Offer | None = None
) -> AsyncIterator[str | None]:
    """Take over from killed workers of this machine during the block.

    Args:
        client: A connected client.
        home: The state folder; workers that share it see each other.
        task_queue: The task queue whose runs are examined.
        enabled: `Settings.takeover`.
        offer: The worker's offer, for `doctor`.

    Yields:
        The identity for the worker; None to use Temporal's default, if the end of this process could not be proved.
    """
    me = this_process() if enabled else None
    if me is None:
        yield None
        return
    try:
        registry = WorkerRegistry(home, client.service_client.config.target_host, client.namespace, task_queue)
        registry.add(me, offer)
    except OSError as error:
        log.warning("takeover_unavailable", reason=str(error))
        yield str(me)
        return
    watching = asyncio.create_task(_watch(client, registry, me, task_queue, offer))
    try:
        yield str(me)
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        with suppress(OSError):
            registry.remove([me])


async def _watch(
    client: Client, registry: WorkerRegistry, me: WorkerIdentity, task_queue: str, offer: Offer | None
) -> None:
    loop = asyncio.get_running_loop()
    known = {me}

    def find_dead() -> list[WorkerIdentity]:
        workers = registry.workers()
        dead = [each for each in workers if is_gone(each, seen_from=me)]
        for new in {*workers} - known - {*dead}:
            if _compare(registry, new, offer, task_queue):
                known.add(new)
        return dead

    # A separate thread: the folder may be on a slow disk, and tools may occupy all threads of the pool.
    thread = ThreadPoolExecutor(1, thread_name_prefix="takeover")
    try:
        while True:
            try:
                if dead := await loop.run_in_executor(thread, find_dead):
                    await _take_over(client, registry, me, dead, task_queue)
            except Exception as error:  # any error: Temporal's time-outs still apply
                log.warning("takeover_failed", reason=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(CHECK_SECONDS)
    finally:
        thread.shutdown(wait=False)  # a worker's shutdown does not wait for a slow disk


def _compare(registry: WorkerRegistry, other: WorkerIdentity, offer: Offer | None, task_queue: str) -> bool:
    """Warn if another worker of the queue, now or when it starts, has other agents; return whether it has an offer."""
    other_offer = registry.offer(other)
    if offer and other_offer and other_offer.differs(offer):
        advice = (
            "either may take a run: give each catalog a queue of its own (HOLDFAST_TASK_QUEUE), or stop the old one"
        )
        log.warning("other_agents_on_queue", task_queue=task_queue, worker=f"{other} {other_offer}", advice=advice)
    return other_offer is not None


async def _take_over(
    client: Client, registry: WorkerRegistry, me: WorkerIdentity, dead: list[WorkerIdentity], task_queue: str
) -> None:
    """Sweep twice, then remove the dead workers from the registry."""
    names = {str(each): each for each in dead}

    def gone(identity: str) -> bool:
        return identity in names and is_gone(names[identity], seen_from=me)

    with registry.try_lock() as locked:
        if not locked:
            return
        for seconds in (0.0, SECOND_SWEEP_SECONDS):
            await asyncio.sleep(seconds)
            try:
                ended = await sweep(client, task_queue, gone=gone, me=me)
            except RPCError as error:  # Temporal's time-outs still apply
                log.warning("sweep_failed", workers=list(names), reason=error.message)
            else:
                if any(ended.values()):
                    log.info("taken_over", workers=list(names), **ended)
        if meter := meter_of(client):
            instruments_of(meter).add(TAKEOVERS, len(dead))
        registry.remove(dead)


def _quoted(name: str) -> str:
    """Quote a string for a visibility query."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def sweep(client: Client, task_queue: str, *, gone: Callable[[str], bool], me: WorkerIdentity) -> dict[str, int]:
    """End the claims of dead workers on the open runs of a task queue.

    Args:
        client: A connected client.
        task_queue: The task queue of the runs.
        gone: Returns whether the worker with an identity has provably ended.
        me: The identity of the caller.

    Returns:
        How many `activities` were failed to be retried, and how many `workflows` any worker can take.

    Raises:
        RPCError: Temporal is unavailable, or denies access.
    """
    kinds = f"'{WORKFLOW}', '{LOOP_WORKFLOW}', '{SCHEDULED_WORKFLOW}'"
    query = f"TaskQueue = {_quoted(task_queue)} AND WorkflowType IN ({kinds}) AND ExecutionStatus = 'Running'"
    runs = [run async for run in client.list_workflows(query, limit=MAX_RUNS, rpc_timeout=RPC_TIMEOUT)]
    runs.sort(key=lambda run: run.typed_search_attributes.get(_STATUS) not in (None, "running"))
    limit = asyncio.Semaphore(CONCURRENCY)

    async def free(run: WorkflowExecution) -> tuple[int, int]:
        async with limit:
            try:
                return await _free(client, task_queue, run, gone, me)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # the run has ended in the meantime
                    log.warning("run_not_swept", thread=run.id, reason=error.message)
                return 0, 0

    async with asyncio.TaskGroup() as group:  # on cancellation, it waits for releases in progress
        freed = [group.create_task(free(run)) for run in runs]
    counts = [each.result() for each in freed]
    return {"activities": sum(each[0] for each in counts), "workflows": sum(each[1] for each in counts)}


async def _free(
    client: Client, task_queue: str, run: WorkflowExecution, gone: Callable[[str], bool], me: WorkerIdentity
) -> tuple[int, int]:
    """End the claims of dead workers on one run; return how many activities, and whether its workflow."""
    execution = Execution(workflow_id=run.id, run_id=run.run_id)
    last = await last_task(client, execution)
    described = await client.workflow_service.describe_workflow_execution(
        DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution), timeout=RPC_TIMEOUT
    )
    waits = described.pending_workflow_task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
    freed, stuck = gone(last.worker), waits and last.sticky_queue
    if freed and not stuck:  # first, so that any worker can take the workflow task that follows a failed activity
        await client.workflow_service.reset_sticky_task_queue(
            ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution), timeout=RPC_TIMEOUT
        )
    ended = 0
    for activity in described.pending_activities:
        if activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED and gone(
            activity.last_worker_identity
        ):
            ended += await _fail_attempt(client, execution, activity, me)
    if freed and stuck:  # last: it may take a while, in which the activities described above could change
        freed = await release_task(client, last.sticky_queue, task_queue=task_queue, failure=WORKER_DIED, me=str(me))
    return ended, int(freed)


async def _fail_attempt(
    client: Client, execution: Execution, activity: PendingActivityInfo, me: WorkerIdentity
) -> bool:
    """Fail a dead worker's attempt so that Temporal retries it at once; return whether it was failed."""
    options = activity.activity_options
    limit = options.heartbeat_timeout.ToTimedelta() or options.start_to_close_timeout.ToTimedelta() or HEARTBEAT_TIMEOUT
    last_sign = max(activity.last_started_time.ToMicroseconds(), activity.last_heartbeat_time.ToMicroseconds())
    if last_sign / 1_000_000 + (limit - MARGIN).total_seconds() < time.time():
        return False
    info = ApplicationFailureInfo(type=WORKER_DIED)
    info.next_retry_delay.FromTimedelta(timedelta(milliseconds=1))  # zero would mean no delay set
    message = (
        f"the worker of attempt {activity.attempt} has been killed: {activity.last_worker_identity} is gone, "
        f"found by {me}; the call is retried at once"
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
        retry=False,  # if the response was lost, a retry would hit the next attempt
        timeout=MARGIN,
    )
    return True
