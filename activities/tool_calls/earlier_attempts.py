"""The earlier attempts at a tool call: how they failed, and how many workers crashed during the call.

1. A failed attempt leaves its error, sealed, in its last heartbeat, and the outcome of the call names it. An attempt
   that waits, such as for a lost one (EFFECT_SETTLING), has not failed.
2. A process that runs out of memory or crashes reports nothing. Its attempt is ended by a time-out, or by a worker that
   takes over (`WORKER_DIED`). These are counted, so that a call that crashes its worker is not retried for ever.
3. Temporal keeps only the last failure. So before the tool runs again, an attempt leaves the count in its heartbeat,
   and waits until Temporal has it. First attempts do not wait.
4. A local activity leaves nothing in Temporal; its workflow task is retried. So the first local call of a run in this
   process reads the attempt of that task; if it is not the first one, the call is made as an ordinary activity.
"""

import asyncio
from dataclasses import dataclass

from temporalio import activity
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import describe_run
from holdfast.activities.heartbeats import earlier_details, sealed_details
from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.tool_calls import EarlierAttempts, InDoubt, ToolRequest
from holdfast.core.tools.failures import MESSAGE_CHARS, AttemptFailure, FailedAttempts, kind_of
from holdfast.core.tools.results import error_text
from holdfast.core.tools.secrets import Secrets
from holdfast.worker.takeover.takeover import WORKER_DIED

log = SafeLogger(__name__)

KNOWN_RUNS = 10_000
"""The most runs whose local calls a process remembers as safe."""

_POLL_SECONDS = 0.02
_HEARTBEAT_SECONDS = 3.0
"""Seconds to wait until Temporal has a heartbeat; then the attempt fails, and is retried."""


@dataclass
class AttemptNotes:
    """The state that this attempt leaves for the next one."""

    request: ToolRequest
    state: EarlierAttempts | None
    """At first, the state that the attempts before this one left; None for none."""

    @property
    def in_doubt(self) -> InDoubt | None:
        """How the call ended, as long as it is unknown whether its effect happened."""
        return self.state.in_doubt if self.state else None

    @in_doubt.setter
    def in_doubt(self, end: InDoubt) -> None:
        self.state = _state_for(self.state, self.request).model_copy(update={"in_doubt": end})

    def count_raised(self) -> int:
        """Count one more call of an idempotent tool that raised; return how many there are."""
        state = _state_for(self.state, self.request)
        self.state = state.model_copy(update={"raised": state.raised + 1})
        return self.state.raised

    def record_failure(self, error: Exception, *, seconds: float, secrets: Secrets) -> None:
        """Leave the failure of this attempt for the next one.

        Args:
            error: Why it failed.
            seconds: How long it took.
            secrets: Redacted from the error.
        """
        if activity.info().is_local:
            return
        if not isinstance(error, Waits):
            # Redacted before it is cut: half a secret would not be found.
            message = secrets.redact(error_text(error))[:MESSAGE_CHARS]
            failure = AttemptFailure(kind=kind_of(error), message=message, seconds=round(seconds, 3))
            self.state = with_failure(self.state, failure, self.request)
        if self.state:
            activity.heartbeat(*sealed_details(self.state))


def with_failure(before: EarlierAttempts | None, failure: AttemptFailure, request: ToolRequest) -> EarlierAttempts:
    """Return the state for the next attempt after one more failed attempt."""
    state = _state_for(before, request)
    return state.model_copy(update={"failures": FailedAttempts.of(state.failures, failure)})


def _state_for(before: EarlierAttempts | None, request: ToolRequest) -> EarlierAttempts:
    return before or EarlierAttempts(answers=request.order)


class WorkerCrashes:
    """Counts the worker crashes during the calls that this worker runs."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    async def before(self, request: ToolRequest) -> EarlierAttempts | None:
        """Return how the attempts before this one, a local or a repeated one, failed; None for no failure.

        If workers have crashed, this first leaves their number for the next attempt.

        Raises:
            ApplicationError: The call has to be made as an ordinary activity, or Temporal did not take the
                heartbeat. Both are retried.
        """
        info = activity.info()
        if info.is_local:
            await self._check_local()
            return None
        before = earlier_details(EarlierAttempts, request)
        own = _pending(await _describe_own_run())
        if own is not None and (crash := _crash_of(own.last_failure)):
            before = with_failure(before, crash, request)
            before = before.model_copy(update={"deaths": before.deaths + 1})
            log.warning("worker_died_during_call", tool=request.call.name, key=request.key, deaths=before.deaths)
        if before and 0 < before.deaths < request.max_worker_deaths:
            await _leave_count(before)
        return before

    async def _check_local(self) -> None:
        run = activity.info().workflow_run_id or ""
        if run in self._known:
            return
        description = await _describe_own_run()
        if description.pending_workflow_task.attempt > 1:
            raise ApplicationError(
                "an earlier attempt of this workflow task did not end; the call is made as an ordinary activity",
                type=WORKER_DIED,
            )
        if len(self._known) >= KNOWN_RUNS:
            self._known.clear()
        self._known.add(run)


def abandoned_message(tool: str, deaths: int) -> str:
    """Return the message about a call that is not attempted again."""
    times = "time" if deaths == 1 else "times"
    return (
        f"{tool} was not run again: {deaths:,} {times} the worker that ran it died or hung (out of memory, a crash of "
        "native code, a kill)"
    )


def _crash_of(failure: Failure) -> AttemptFailure | None:
    """Return the failure of an attempt whose worker crashed or hung; None for any other failure.

    Its message does not quote Temporal's failure, which anybody with access to Temporal may have written.
    """
    if failure.HasField("timeout_failure_info"):
        if failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE:
            return AttemptFailure(kind="timeout", message="the attempt took longer than Temporal lets it")
        return AttemptFailure(kind="no_response", message="the worker died or hung")
    if failure.HasField("application_failure_info") and failure.application_failure_info.type == WORKER_DIED:
        return AttemptFailure(kind="no_response", message="the worker died")
    return None


def _pending(description: DescribeWorkflowExecutionResponse) -> PendingActivityInfo | None:
    own = activity.info().activity_id
    return next((each for each in description.pending_activities if each.activity_id == own), None)


async def _describe_own_run() -> DescribeWorkflowExecutionResponse:
    info = activity.info()
    return (await describe_run(info.workflow_id or "", info.workflow_run_id or "")).raw_description


async def _leave_count(state: EarlierAttempts) -> None:
    """Leave the count for the next attempt, and wait until Temporal has it: the tool may crash this process at once."""
    activity.heartbeat(*sealed_details(state))
    deadline = asyncio.get_running_loop().time() + _HEARTBEAT_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        own = _pending(await _describe_own_run())
        if own is None or own.last_heartbeat_time.ToMicroseconds() > own.last_started_time.ToMicroseconds():
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise ApplicationError("Temporal has not taken the heartbeat that counts dead workers", type="HeartbeatNotTaken")
