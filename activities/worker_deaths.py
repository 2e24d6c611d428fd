"""Counts the workers that died during a tool call, so that a call which kills its worker is not attempted for ever.

A process that runs out of memory or crashes reports nothing. Its attempt is ended by a time-out, or by a worker that
takes over (`WORKER_DIED`).

1. Temporal keeps the last failure only. So before the tool runs again, an attempt leaves the count in its heartbeat,
   sealed, and waits until Temporal has it. A first attempt costs nothing.
2. A local activity leaves nothing in Temporal: its workflow task is attempted again. The first local call of a run in
   this process looks at that attempt; where it is a later one, the call is made as an ordinary activity.
3. An attempt that fails in any other way (the database is down, another attempt holds the effect) is no death
   (`attempt_failures`).
"""

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, DescribeWorkflowExecutionResponse
from temporalio.exceptions import ApplicationError

from holdfast.activities.attempt_failures import with_failure
from holdfast.activities.handed_on import handed_on, to_hand_on
from holdfast.activities.safe_logs import SafeLogger
from holdfast.run.contracts import EarlierAttempts, ToolRequest
from holdfast.runtime.takeover.takeover import WORKER_DIED
from holdfast.tools.failures import AttemptFailure

log = SafeLogger(__name__)

DESCRIBE_TIMEOUT = timedelta(seconds=10)
KNOWN_RUNS = 10_000
"""The most runs of which a process remembers that their local calls are safe."""

_POLL_SECONDS = 0.02
_NOTED_WITHIN = 3.0
"""Seconds within which Temporal has to have a heartbeat; after that, the attempt fails and another one follows."""


class Deaths:
    """How often workers died during the calls that this worker is asked to run."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    async def before(self, request: ToolRequest) -> EarlierAttempts | None:
        """Return how the attempts before this one failed; None for no failure.

        Where workers have died, that is left for the next attempt first.

        Raises:
            ApplicationError: The call has to be made as an ordinary activity, or Temporal does not take the heartbeat.
                Both are retried.
        """
        info = activity.info()
        if info.is_local:
            await self._check_local()
            return None
        if info.attempt == 1:
            return None
        before = handed_on(EarlierAttempts, request)
        mine = _pending(await _described())
        if mine is not None and (death := _death(mine.last_failure)):
            before = with_failure(before, death, request)
            before = before.model_copy(update={"deaths": before.deaths + 1})
            log.warning("worker_died_during_call", tool=request.call.name, key=request.key, deaths=before.deaths)
        if before and 0 < before.deaths < request.max_worker_deaths:
            await _leave(before)
        return before

    async def _check_local(self) -> None:
        run = activity.info().workflow_run_id or ""
        if run in self._known:
            return
        described = await _described()
        if described.pending_workflow_task.attempt > 1:
            raise ApplicationError(
                "an earlier attempt of this workflow task did not end; the call is made as an ordinary activity",
                type=WORKER_DIED,
            )
        if len(self._known) >= KNOWN_RUNS:
            self._known.clear()
        self._known.add(run)


def given_up(tool: str, deaths: int) -> str:
    """Say that a call is not attempted again."""
    times = "time" if deaths == 1 else "times"
    return (
        f"{tool} was not run again: {deaths:,} {times} the worker that ran it died or hung (out of memory, a crash of "
        "native code, a kill)"
    )


def _death(failure: Failure) -> AttemptFailure | None:
    """How an attempt failed whose worker died or hung; None for any other failure.

    Not in the words of the failure, which anybody who reaches Temporal can have written.
    """
    if failure.HasField("timeout_failure_info"):
        if failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE:
            return AttemptFailure(kind="timeout", message="the attempt took longer than Temporal lets it")
        return AttemptFailure(kind="no_response", message="the worker died or hung")
    if failure.HasField("application_failure_info") and failure.application_failure_info.type == WORKER_DIED:
        return AttemptFailure(kind="no_response", message="the worker died")
    return None


def _pending(described: DescribeWorkflowExecutionResponse) -> PendingActivityInfo | None:
    own = activity.info().activity_id
    return next((each for each in described.pending_activities if each.activity_id == own), None)


async def _described() -> DescribeWorkflowExecutionResponse:
    info, client = activity.info(), activity.client()
    execution = WorkflowExecution(workflow_id=info.workflow_id or "", run_id=info.workflow_run_id or "")
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    return await client.workflow_service.describe_workflow_execution(request, timeout=DESCRIBE_TIMEOUT)


async def _leave(deaths: EarlierAttempts) -> None:
    """Leave the count for the next attempt, and wait until Temporal has it: the tool may end this process at once."""
    activity.heartbeat(*to_hand_on(deaths))
    deadline = asyncio.get_running_loop().time() + _NOTED_WITHIN
    while asyncio.get_running_loop().time() < deadline:
        mine = _pending(await _described())
        if mine is None or mine.last_heartbeat_time.ToMicroseconds() > mine.last_started_time.ToMicroseconds():
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise ApplicationError("Temporal has not taken the heartbeat that counts dead workers", type="HeartbeatNotTaken")
