"""Describe and query Temporal runs, with time limits, and translate the server's errors.

A query needs a worker. If none answers, this module determines the cause: no worker is running, or the run is stuck.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import SearchAttributeKey
from temporalio.converter import WorkflowSerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading import executions
from holdfast.config.programs import CLI, WORKER
from holdfast.core.base.text import one_line
from holdfast.core.mac.seals import SealKeyUnknown, is_unsealed
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, QUERIES, WORKFLOW, View
from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.errors import (
    AnswerForged,
    HoldfastError,
    NoWorker,
    QueryRefused,
    RunPaused,
    RunStuck,
    ServerUnreachable,
    ThreadNotFound,
)

_BROKEN = ("h2 protocol error", "transport error")
"""How the SDK's gRPC library describes a connection that broke during a call; the status may be `UNKNOWN`."""
TIMED_OUT = frozenset({RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED})
"""The statuses of a call that exceeds its time limit: the first status comes from the client, the second from the
server."""

ENDED = {
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Holdfast's status for each way in which Temporal closes a run."""

MOVED = "moved"
"""Holdfast's status for a run that was moved to another cluster: Temporal has completed it."""

PAUSED = "paused_in_temporal"
"""Holdfast's status for a run that is paused in Temporal (`temporal workflow pause`), at any step. A run that a person
has paused is `paused`, and still handles signals and queries."""

UNAUTHENTICATED = "unauthenticated"
"""Holdfast's status for a run that Holdfast's own processes did not make, regardless of Temporal's status: a seal is
missing, wrong or of an unknown key, or the run ended without recording that."""

QUERY_RETRIES = 4
"""Number of retries of a query that a worker rejects: for about a second."""
RETRY_SECONDS = 0.25
"""Seconds between two attempts."""

_KEY_MISSING = ("Failed decoding arguments", "Expected workflow input")
"""How the SDK words a failure of a worker that lacks a key to read what a run or an activity was given."""

_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")


class NeverRan(HoldfastError):
    """The run was closed before any worker processed it: there is nothing to query."""


@dataclass(frozen=True)
class Retrying:
    """An activity that failed and will be retried."""

    activity: str
    attempt: int
    """The attempt that is running or comes next."""
    reason: str
    next_try: datetime | None
    """None while an attempt is running, or is due."""
    activity_id: str = ""
    paused: bool = False
    """Whether the activity is paused in Temporal: no further attempt starts until somebody unpauses it."""
    awaits_worker: bool = False
    """Whether the attempt is due, and no worker has taken it."""

    def view(self) -> dict[str, Any]:
        """Return the activity as `show --json` presents it."""
        return {**asdict(self), "next_try": self.next_try.isoformat() if self.next_try else None}


class Runs:
    """Reads runs through one client.

    Args:
        client: A connected client.
        answer_within: Seconds that a worker may take to answer a query.
    """

    def __init__(self, client: Client, *, answer_within: float) -> None:
        self.client = client
        self.answer_within = answer_within

    @property
    def address(self) -> str:
        """The server's address."""
        return self.client.service_client.config.target_host

    async def describe(self, thread: str, *, loops: bool = False) -> WorkflowExecutionDescription:
        """Return Temporal's description of a thread's latest run, without a worker.

        Args:
            thread: The thread id.
            loops: Also accept a loop's id.

        Raises:
            ThreadNotFound: There is no agent run of that id.
            ServerUnreachable: The server does not answer.
        """
        return await self.readable(await self.newest(thread), loops=loops)

    async def newest(self, thread: str) -> WorkflowExecutionDescription:
        """Return Temporal's description of the newest run of an id, of any workflow type.

        Raises:
            ThreadNotFound: Temporal has no run of that id.
            ServerUnreachable: The server does not answer.
        """
        try:
            return await executions.describe(self.client, thread, within=timedelta(seconds=10))
        except RPCError as error:
            raise self.translate_error(error, thread) from error

    async def readable(
        self, found: WorkflowExecutionDescription, *, loops: bool = False
    ) -> WorkflowExecutionDescription:
        """Return the description of an agent run, or with `loops` of a loop, with its failures decrypted.

        Raises:
            ThreadNotFound: It is another workflow.
        """
        if found.workflow_type == LOOP_WORKFLOW:
            if loops:
                return found
            raise ThreadNotFound(
                f"{found.id!r} is a loop, and its iterations are threads: `{CLI.command('show', found.id)}` names them."
            )
        if found.workflow_type != WORKFLOW:
            raise ThreadNotFound(f"{found.id!r} is a workflow of type {found.workflow_type}, not an agent run")
        for activity in found.raw_description.pending_activities:
            if activity.HasField("last_failure"):
                await self._decrypt(activity)
        return found

    async def _decrypt(self, message: Message) -> None:
        """Decrypt a failure's reason; without the key it stays encrypted, and the rest remains readable."""
        with contextlib.suppress(DecryptionFailed):
            await decrypt_in_place(message, self.client.data_converter.payload_codec)

    async def until_closed(self, found: WorkflowExecutionDescription) -> WorkflowExecutionDescription:
        """Wait until Temporal has closed a run that has ended, and return its description.

        Until then, the run writes its last events. Waits at most `answer_within` seconds.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self.answer_within
        now = found
        while now.run_id == found.run_id and now.status not in ENDED and clock.time() < deadline:
            await asyncio.sleep(RETRY_SECONDS / 5)
            now = await self.describe(found.id)
        return now

    async def query(
        self, thread: str, name: str, *args: Any, within: float | None = None, run_id: str | None = None
    ) -> Any:
        """Query a run; retry for about a second if its worker rejects the query.

        Args:
            thread: The thread id.
            name: The query's name.
            args: Its arguments.
            within: Seconds to wait for the answer; None for `answer_within`.
            run_id: Temporal's id of the run; None for the newest one.

        Raises:
            ThreadNotFound: There is no agent run of that id.
            NoWorker: No worker answered in time, or the one that did lacks a key to read the run.
            RunPaused: The run is paused in Temporal.
            RunStuck: A worker has the run, but its code does not replay.
            QueryRefused: The worker kept rejecting the query.
            NeverRan: The run was closed before any worker processed it.
            AnswerForged: The answer is not sealed with a fleet key known here, so it does not come from a worker of
            this fleet.
        """
        limit = timedelta(seconds=within or self.answer_within)
        for _ in range(QUERY_RETRIES):
            with contextlib.suppress(QueryRefused):
                return await self._query(thread, run_id, name, args, limit)
            await asyncio.sleep(RETRY_SECONDS)
        try:
            return await self._query(thread, run_id, name, args, limit)
        except QueryRefused as refused:
            if not str(refused.__cause__).startswith(_KEY_MISSING):
                raise
            raise NoWorker(
                f"no worker answered for thread {thread!r} that can read the run: the one that has it lacks a key. "
                "Give each worker the keys of HOLDFAST_ENCRYPTION_KEYS and HOLDFAST_FLEET_KEYS with which the run was "
                "written, and restart it; the run is safe and will then continue."
            ) from refused

    async def _query(self, thread: str, run_id: str | None, name: str, args: Sequence[Any], limit: timedelta) -> Any:
        run = self.client.get_workflow_handle(thread, run_id=run_id)
        try:
            # `rpc_timeout` bounds one attempt, and the client retries if the server times out just before it.
            async with asyncio.timeout(limit.total_seconds()):
                answer = await run.query(name, args=args, result_type=QUERIES[name], rpc_timeout=limit)
                return check_sealed(answer, thread, name)
        except TimeoutError as error:
            raise await self._explain_silence(thread, limit) from error
        except SealKeyUnknown as error:
            raise answer_forged(thread, name, str(error)) from error
        except ValueError as error:  # the SDK cannot decode the status of a paused run, which rejects the query
            if "WorkflowExecutionStatus" in str(error) and executions.is_paused(await self.describe(thread)):
                raise RunPaused(
                    f"thread {thread!r} is paused in Temporal: it neither answers nor continues. Its recorded events "
                    f"can be read; `temporal workflow unpause -w {thread}` resumes it."
                ) from error
            raise
        except WorkflowQueryFailedError as error:
            await self._check_stuck(await self.describe(thread))
            raise QueryRefused(f"the worker that has thread {thread!r} cannot answer: {error.message}") from error
        except RPCError as error:
            if "before WorkflowTaskStarted" in error.message:
                raise NeverRan(f"thread {thread!r} was closed before any worker processed it") from error
            if error.status is RPCStatusCode.FAILED_PRECONDITION or _is_unanswered(error):
                raise await self._explain_silence(thread, limit) from error
            raise self.translate_error(error, thread) from error

    async def _explain_silence(self, thread: str, limit: timedelta) -> HoldfastError:
        """Return why no worker answered a query: the run is stuck, or no worker is running."""
        try:
            found = await self.describe(thread)
            await self._check_stuck(found)
        except HoldfastError as error:
            return error
        return NoWorker(
            f"Temporal answers at {self.address}, but no worker answered for thread {thread!r} on task queue "
            f"{found.task_queue!r} within {limit.total_seconds():g} s. "
            f"Start one with `{WORKER.command('--dev')}`; "
            + (
                "reading a closed thread needs one."
                if found.status in ENDED
                else "the run is safe and will then continue."
            )
        )

    def translate_error(self, error: RPCError, thread: str = "") -> HoldfastError:
        """Return the HoldfastError for a server error."""
        words = one_line(error.message, 300)
        if error.status is RPCStatusCode.NOT_FOUND:
            details = error.grpc_status.details
            if details and details[0].Is(NamespaceNotFoundFailure.DESCRIPTOR):
                return ServerUnreachable(
                    f"Temporal at {self.address} has no namespace {self.client.namespace!r}. "
                    "Set TEMPORAL_NAMESPACE to one that it has."
                )
            return ThreadNotFound(
                f"there is no thread {thread!r} (namespace {self.client.namespace!r} at {self.address}). "
                f"`{CLI.command('list')}` lists the threads."
            )
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
            return ServerUnreachable(f"Temporal at {self.address} denied access: {words}. Check TEMPORAL_API_KEY.")
        if error.status is RPCStatusCode.UNAVAILABLE or _is_unanswered(error):
            return ServerUnreachable(f"Temporal at {self.address} does not answer: {words}. Is it running?")
        return HoldfastError(f"Temporal at {self.address} refused ({error.status.name}): {words}")

    async def _check_stuck(self, found: WorkflowExecutionDescription) -> None:
        attempt = found.raw_description.pending_workflow_task.attempt
        if attempt <= 1:
            return
        if reason := await self._last_task_failure(found):
            raise RunStuck(
                f"thread {found.id!r} is stuck: a worker has it, but its code fails to continue it "
                f"(attempt {attempt}: {reason}). "
                "Run workers of the release that started the run, or fix the code; the run will then continue."
            )

    async def _last_task_failure(self, found: WorkflowExecutionDescription) -> str:
        """Return why the last workflow task failed; empty if its worker died, which also counts as an attempt.

        Of consecutive failures, history keeps only the first, which is the relevant one.
        """
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self.client.namespace,
            execution=ExecutionId(workflow_id=found.id, run_id=found.run_id),
            maximum_page_size=20,
        )
        service = self.client.workflow_service
        page = await service.get_workflow_execution_history_reverse(request, timeout=timedelta(seconds=5))
        for event in page.history.events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                return ""
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                await self._decrypt(event)
                return _reason_of(event.workflow_task_failed_event_attributes.failure) or "no reason given"
        return ""


def _is_unanswered(error: RPCError) -> bool:
    """Whether a call had no answer: its time was over, or its connection broke, which may be noticed first."""
    return error.status in TIMED_OUT or error.message.startswith(_BROKEN)


def check_sealed(answer: Any, thread: str, asked: str) -> Any:
    """Return a run's answer if a worker with the fleet key has sealed it; without fleet keys, any answer.

    Raises:
        AnswerForged: The answer is not sealed.
    """
    if is_unsealed(answer):
        raise answer_forged(thread, asked, str(answer))
    return answer


def answer_forged(thread: str, asked: str, why: str) -> AnswerForged:
    """Return the error for an answer that does not come from a worker of this fleet."""
    return AnswerForged(
        f"thread {thread!r}: {why}. The answer to {asked!r} does not come from a worker of this fleet: "
        "find out what polls the task queue, and trust none of its answers"
    )


def rejection_answer(error: WorkflowUpdateFailedError, client: Client, thread: str, asked: str) -> Any:
    """Return the answer of a run that rejected an update before recording it; None if the update failed otherwise.

    Raises:
        AnswerForged: The answer is not sealed.
    """
    failure = error.cause.failure if isinstance(error.cause, ApplicationError) else None
    details = failure.application_failure_info.details.payloads if failure else []
    if len(details) != 1:
        return None
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    converter = client.data_converter.with_context(place).payload_converter
    (answer,) = converter.from_payloads(details, [View])
    return check_sealed(answer, thread, asked)


def status_of(run: WorkflowExecution) -> str:
    """Return the run's status from Temporal's description; `PAUSED` if it is paused in Temporal."""
    if executions.is_paused(run):
        return PAUSED
    ended, own = ENDED.get(run.status) if run.status else None, run.typed_search_attributes.get(_STATUS)
    return MOVED if (ended, own) == ("completed", MOVED) else ended or own or "running"


def _reason_of(failure: Failure) -> str:
    """Return the reason of a failure in one line: of one for a missing key its cause, which names the key."""
    named = failure.message.startswith(_KEY_MISSING) and failure.HasField("cause")
    return one_line((failure.cause if named else failure).message, 300)


def retrying(found: WorkflowExecutionDescription) -> list[Retrying]:
    """Return the run's activities that failed and are being retried, or that are paused in Temporal."""
    return [
        Retrying(
            activity=activity.activity_type.name,
            attempt=activity.attempt,
            reason=_reason_of(activity.last_failure),
            next_try=(
                activity.next_attempt_schedule_time.ToDatetime(UTC)
                if activity.HasField("next_attempt_schedule_time")
                else None
            ),
            activity_id=activity.activity_id,
            paused=activity.paused,
            awaits_worker=(
                activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
                and not activity.HasField("next_attempt_schedule_time")
            ),
        )
        for activity in found.raw_description.pending_activities
        if activity.attempt > 1 or activity.paused
    ]
