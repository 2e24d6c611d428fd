"""Runs as Temporal sees them: descriptions, queries with a time limit, and errors put into words.

A query needs a worker. Where none answers, this module finds out why: no worker, or one that cannot go on.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.enums.v1 import EventType
from temporalio.api.errordetails.v1 import NamespaceNotFoundFailure
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

from holdfast.base.text import one_line
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
from holdfast.run.contracts import LOOP_WORKFLOW, QUERIES, WORKFLOW, View
from holdfast.runtime.encryption.codec import DecryptionFailed
from holdfast.runtime.reading import executions
from holdfast.seals.seals import is_unsealed
from holdfast.temporal.encrypted import decrypt_in_place

TIMED_OUT = frozenset({RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED})
"""What a call that ran into its time limit ends with: the first from this side, the second from the server's."""

ENDED = {
    WorkflowExecutionStatus.COMPLETED: "completed",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "cancelled",
    WorkflowExecutionStatus.TERMINATED: "failed",
    WorkflowExecutionStatus.TIMED_OUT: "failed",
}
"""Our word for each way in which Temporal closes a run."""

PAUSED = "paused"
"""Our word for a run that somebody has paused in Temporal, whatever it was at."""

REFUSALS = 4
"""How many refusals of a query count as passing: a second's worth."""
PAUSE_SECONDS = 0.25
"""Between two of them."""

_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")


class NeverRan(HoldfastError):
    """The run was closed before any worker had it: there is nothing to query."""


@dataclass(frozen=True)
class Retrying:
    """An activity that failed and will be tried again."""

    activity: str
    attempt: int
    """The attempt that is running or comes next."""
    reason: str
    next_try: datetime | None
    """None while an attempt is running."""

    def view(self) -> dict[str, Any]:
        """The activity as `show --json` presents it."""
        return {**asdict(self), "next_try": self.next_try.isoformat() if self.next_try else None}


class Runs:
    """Reads runs through one client.

    Args:
        client: Connected.
        answer_within: Seconds that a worker may take to answer a query.
    """

    def __init__(self, client: Client, *, answer_within: float) -> None:
        self.client = client
        self.answer_within = answer_within

    @property
    def address(self) -> str:
        """Where the server answers."""
        return self.client.service_client.config.target_host

    async def describe(self, thread: str, *, loops: bool = False) -> WorkflowExecutionDescription:
        """What Temporal knows of a run; needs no worker.

        Args:
            thread: The thread id.
            loops: It may be a loop's id, too.

        Raises:
            ThreadNotFound: There is no agent run of that id.
            ServerUnreachable: The server does not answer.
        """
        try:
            found = await executions.describe(self.client, thread, within=timedelta(seconds=10))
        except RPCError as error:
            raise self.in_words(error, thread) from error
        if found.workflow_type == LOOP_WORKFLOW:
            if loops:
                return found
            raise ThreadNotFound(
                f"{thread!r} is a loop, and its iterations are threads: `python starter.py show {thread}` names them."
            )
        if found.workflow_type != WORKFLOW:
            raise ThreadNotFound(f"{thread!r} is a workflow of type {found.workflow_type}, and not an agent run")
        for activity in found.raw_description.pending_activities:
            await self._open(activity)
        return found

    async def _open(self, message: Message) -> None:
        """Decrypt what tells why something failed; without the key it stays as it is, and the rest can be read."""
        with contextlib.suppress(DecryptionFailed):
            await decrypt_in_place(message, self.client.data_converter.payload_codec)

    async def until_closed(self, found: WorkflowExecutionDescription) -> WorkflowExecutionDescription:
        """The description of a thread whose run has ended, once Temporal has closed that run, too.

        Before, the run's last events are being written down. Does not wait longer than for a worker's answer.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + self.answer_within
        now = found
        while now.run_id == found.run_id and now.status not in ENDED and clock.time() < deadline:
            await asyncio.sleep(PAUSE_SECONDS / 5)
            now = await self.describe(found.id)
        return now

    async def query(self, thread: str, name: str, *args: Any, within: float | None = None) -> Any:
        """Ask a run, through whichever worker has it; again for about a second, where the worker refuses.

        Args:
            thread: The thread id.
            name: The query.
            args: Its arguments.
            within: Seconds to wait for the answer.

        Raises:
            ThreadNotFound: There is no agent run of that id.
            NoWorker: None answered in time.
            RunPaused: Somebody has paused the run in Temporal.
            RunStuck: A worker has the run, and its code does not replay.
            QueryRefused: The worker went on refusing.
            NeverRan: The run was closed before any worker had it.
            AnswerForged: Something answered that is not one of our workers.
        """
        limit = timedelta(seconds=within or self.answer_within)
        for _ in range(REFUSALS):
            with contextlib.suppress(QueryRefused):
                return await self._query(thread, name, args, limit)
            await asyncio.sleep(PAUSE_SECONDS)
        return await self._query(thread, name, args, limit)

    async def _query(self, thread: str, name: str, args: Sequence[Any], limit: timedelta) -> Any:
        run = self.client.get_workflow_handle(thread)
        try:
            # The client tries again when the server gives up a moment before it: `rpc_timeout` bounds one attempt.
            async with asyncio.timeout(limit.total_seconds()):
                answer = await run.query(name, args=args, result_type=QUERIES[name], rpc_timeout=limit)
                return sealed_answer(answer, thread, name)
        except TimeoutError as error:
            raise await self._why_silent(thread, limit) from error
        except ValueError as error:  # the SDK has no word for the status of a run that does not answer for it
            if "WorkflowExecutionStatus" in str(error) and executions.is_paused(await self.describe(thread)):
                raise RunPaused(
                    f"thread {thread!r} is paused in Temporal, and neither answers nor goes on. What it has "
                    f"recorded can be read; `temporal workflow unpause -w {thread}` lets it go on."
                ) from error
            raise
        except WorkflowQueryFailedError as error:
            await self._check_stuck(await self.describe(thread))
            raise QueryRefused(f"the worker that has thread {thread!r} cannot answer: {error.message}") from error
        except RPCError as error:
            if "before WorkflowTaskStarted" in error.message:
                raise NeverRan(f"thread {thread!r} was closed before any worker had it") from error
            if error.status in TIMED_OUT or error.status is RPCStatusCode.FAILED_PRECONDITION:
                raise await self._why_silent(thread, limit) from error
            raise self.in_words(error, thread) from error

    async def _why_silent(self, thread: str, limit: timedelta) -> HoldfastError:
        """Why nobody answered a query: the run is stuck, or no worker is there."""
        try:
            found = await self.describe(thread)
            await self._check_stuck(found)
        except HoldfastError as error:
            return error
        return NoWorker(
            f"Temporal answers at {self.address}, but no worker answered for thread {thread!r} on task queue "
            f"{found.task_queue!r} within {limit.total_seconds():g} s. "
            "Start one with `python worker.py --dev`; "
            + (
                "a closed thread needs one to be read."
                if found.status in ENDED
                else "the run is safe and goes on then."
            )
        )

    def in_words(self, error: RPCError, thread: str = "") -> HoldfastError:
        """An error of the server as one of ours."""
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
                "`python starter.py list` shows those there are."
            )
        if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
            return ServerUnreachable(f"Temporal at {self.address} does not let us in: {words}. Check TEMPORAL_API_KEY.")
        if error.status in TIMED_OUT or error.status is RPCStatusCode.UNAVAILABLE:
            return ServerUnreachable(f"Temporal at {self.address} does not answer: {words}. Is it running?")
        return HoldfastError(f"Temporal at {self.address} refused ({error.status.name}): {words}")

    async def _check_stuck(self, found: WorkflowExecutionDescription) -> None:
        attempt = found.raw_description.pending_workflow_task.attempt
        if attempt <= 1:
            return
        if reason := await self._last_task_failure(found):
            raise RunStuck(
                f"thread {found.id!r} is stuck: a worker has it, but its code cannot go on "
                f"(attempt {attempt}: {reason}). "
                "Run workers of the release that the run began with, or mend the code; the run goes on then."
            )

    async def _last_task_failure(self, found: WorkflowExecutionDescription) -> str:
        """Why the last workflow task failed; empty where its worker died in it, which is an attempt, too.

        History keeps the first failure of a row, which is what matters.
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
                await self._open(event)
                return one_line(event.workflow_task_failed_event_attributes.failure.message, 300) or "no reason given"
        return ""


def sealed_answer(answer: Any, thread: str, asked: str) -> Any:
    """An answer of a run, which one of our workers has sealed; without fleet keys, any answer.

    Raises:
        AnswerForged: It is not sealed.
    """
    if is_unsealed(answer):
        raise AnswerForged(
            f"thread {thread!r}: {answer}. Something else than our workers answered {asked!r}: "
            "find out who polls the task queue, and believe nothing that it says"
        )
    return answer


def refused_answer(error: WorkflowUpdateFailedError, client: Client, thread: str, asked: str) -> Any:
    """What a run answers where it refuses an update before it is in history; None where the update failed otherwise.

    Raises:
        AnswerForged: It is not sealed.
    """
    failure = error.cause.failure if isinstance(error.cause, ApplicationError) else None
    details = failure.application_failure_info.details.payloads if failure else []
    if len(details) != 1:
        return None
    place = WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    converter = client.data_converter.with_context(place).payload_converter
    (answer,) = converter.from_payloads(details, [View])
    return sealed_answer(answer, thread, asked)


def status_of(run: WorkflowExecution) -> str:
    """The run's status as far as Temporal knows it; `paused` where somebody has paused it there."""
    if executions.is_paused(run):
        return PAUSED
    ended = ENDED.get(run.status) if run.status else None
    return ended or run.typed_search_attributes.get(_STATUS) or "running"


def retrying(found: WorkflowExecutionDescription) -> list[Retrying]:
    """The run's activities that failed and are tried again, as Temporal knows them."""
    return [
        Retrying(
            activity=activity.activity_type.name,
            attempt=activity.attempt,
            reason=one_line(activity.last_failure.message, 300),
            next_try=(
                activity.next_attempt_schedule_time.ToDatetime(UTC)
                if activity.HasField("next_attempt_schedule_time")
                else None
            ),
        )
        for activity in found.raw_description.pending_activities
        if activity.attempt > 1
    ]
