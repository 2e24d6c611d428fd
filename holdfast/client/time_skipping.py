"""Skip time for one run, on a server that allows it: `worker.py --dev --skip-time` or `holdfast.testing`.

While the run is idle, the server sets the run's clock to its next timer. No other clock changes: from then on, those of
other runs, the database and people are behind the run's.
"""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import FastForwardConfig, TimeSkippingConfig, WorkflowExecution
from temporalio.api.workflow.v1 import WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading.runs import ENDED, Runs
from holdfast.config.programs import WORKER
from holdfast.config.stack_file import Stack
from holdfast.errors import HoldfastError, Refused

LONGEST = timedelta(days=3_660)
"""The maximum time that one call skips."""
MAX_TIMERS = 1_000
"""Maximum number of timers and retries that one call skips to, so that an endpoint that is down does not get an endless
stream of requests."""
POLL_SECONDS = 0.02
RPC_LIMIT = timedelta(seconds=10)


async def skip_time(runs: Runs, thread: str, duration: timedelta, *, within: float) -> datetime | None:
    """Let time pass for one run, and return the run's new time; None if the run has ended.

    Args:
        runs: The namespace's runs.
        thread: The id of a thread or a loop.
        duration: The time to skip; at most `LONGEST`.
        within: Seconds that this may take; then skipping stops.

    Raises:
        Refused: The run has ended, the server does not allow this, or work in progress does not end in time.
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    if not timedelta() < duration <= LONGEST:
        raise Refused(
            f"{duration} cannot be skipped: skip more than nothing, and at most {LONGEST.days:,} days at once"
        )
    found = await runs.describe(thread, loops=True)
    if found.status in ENDED:
        raise Refused(f"{thread!r} is {ENDED[found.status]}, and time passes only for an open run")
    end = _time_of(found) + duration
    forward = FastForwardConfig(id=uuid4().hex)
    forward.duration.FromTimedelta(duration)
    enabled = TimeSkippingConfig(
        enabled=True, fast_forward_config=forward, disable_propagation=True, max_session_skip_count=MAX_TIMERS
    )
    await _configure(runs, thread, enabled)
    try:
        async with asyncio.timeout(within):
            while (found := await runs.describe(thread, loops=True)).status not in ENDED:
                if _is_over(found, end):
                    return _time_of(found)
                await asyncio.sleep(POLL_SECONDS)
            return None
    except BaseException as error:
        # Work in progress may end an hour later, when a skip would be a surprise.
        with suppress(HoldfastError):
            await _configure(runs, thread, TimeSkippingConfig(enabled=False))
        if isinstance(error, TimeoutError):
            raise Refused(f"{_skipped_until(found)}: {_blocking_work(found)}") from None
        raise


def check_stack(runs: Runs, stack: Stack | None) -> None:
    """Check that a client is connected to an embedded stack that was started for skipping time.

    A production server may allow it by mistake, and requests would expire there.

    Args:
        runs: The runs of the connected namespace.
        stack: The recorded stack, if there is one.

    Raises:
        Refused: It is not connected to one.
    """
    if not (stack and stack.skip_time and stack.temporal_pid and stack.temporal_address == runs.address):
        raise Refused(f"Temporal at {runs.address} is not a server for skipping time. {_advice()}")


def _is_over(found: WorkflowExecutionDescription, end: datetime) -> bool:
    """Whether a run has skipped all time until `end`.

    Raises:
        Refused: It skips no more, and has not skipped all of it.
    """
    skipping = found.raw_description.workflow_extended_info.time_skipping_info
    if skipping.fast_forward_info.has_completed:
        return True
    if skipping.effective_config.enabled:
        return False
    if _time_of(found) >= end:  # the run has continued as new since then
        return True
    raise Refused(f"{_skipped_until(found)}: {MAX_TIMERS:,} timers and retries were due. Skip again for more.")


def _time_of(found: WorkflowExecutionDescription) -> datetime:
    """Return a run's current time."""
    extended = found.raw_description.workflow_extended_info
    if extended.HasField("time_skipping_info"):
        return extended.time_skipping_info.current_time.ToDatetime(UTC)
    return datetime.now(UTC)


def _skipped_until(found: WorkflowExecutionDescription) -> str:
    return f"{found.id!r}: time was skipped only until {_time_of(found):%Y-%m-%d %H:%M:%S} UTC"


def _blocking_work(found: WorkflowExecutionDescription) -> str:
    """Describe the work that prevents skipping time, with advice."""
    raw = found.raw_description
    if children := [child.workflow_id for child in raw.pending_children]:
        return f"{', '.join(children)} is under way. Skip time for that one."
    if names := sorted({activity.activity_type.name for activity in raw.pending_activities}):
        return f"{', '.join(names)} is under way. Skip again after that."
    return f"a worker has to process what is due: start one with `{WORKER.command('--dev', '--skip-time')}`."


def _advice() -> str:
    return f"To try what happens later, use a stack without real work: `{WORKER.command('--dev', '--skip-time')}`."


async def _configure(runs: Runs, thread: str, config: TimeSkippingConfig) -> None:
    """Configure how the server skips time for a run.

    Raises:
        Refused: The server does not allow that.
        ThreadNotFound: There is no such open thread.
        ServerUnreachable: The server does not answer.
    """
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=runs.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=thread),
        workflow_execution_options=WorkflowExecutionOptions(time_skipping_config=config),
        update_mask=FieldMask(paths=["time_skipping_config"]),
        identity=runs.client.identity,
    )
    try:
        await runs.client.workflow_service.update_workflow_execution_options(request, retry=True, timeout=RPC_LIMIT)
    except RPCError as error:
        if error.status is RPCStatusCode.UNIMPLEMENTED:
            raise Refused(f"Temporal at {runs.address} does not allow skipping time. {_advice()}") from None
        raise runs.translate_error(error, thread) from error
