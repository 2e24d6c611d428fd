"""Finds out whether a thread was moved to another cluster after the last event of the calling run.

The end of a run that was moved is in the permanent record. Anyone with access to Temporal can reset such a run to an
earlier event, and would have two live copies of the thread. So a run that may have been reset first checks the record
and, if that no longer has the end, the sealed result of the run that was reset.
"""

import asyncio
from typing import Final

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import WorkflowHistoryEventFilterType
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.activities.calling_run import DESCRIBE_TIMEOUT, Chains, converter_of
from holdfast.activities.record.thread_past import begins_and_ends, read_thread
from holdfast.client.reading.executions import own_client
from holdfast.core.run.contracts.error_types import RECORD_CONFLICT
from holdfast.core.run.contracts.runs import RunResult
from holdfast.core.run.contracts.snapshot import RunSnapshot, snapshot_of
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.encrypted import decrypt_in_place
from holdfast.core.temporal.history import decode
from holdfast.core.transcript.transcript import Transcript

_MOVED: Final = "moved"
"""The outcome of a run whose thread left this cluster. A later beginning shows that the thread came back."""


class MovedThreads:
    """Finds threads that were moved to another cluster.

    Args:
        store: The permanent record.
        chains: Maps a Temporal run to its chain.
    """

    def __init__(self, store: ThreadStore, chains: Chains) -> None:
        self._store = store
        self._chains = chains

    async def since(self, thread: str, position: int) -> RunSnapshot | None:
        """Return the state of the calling run's thread, if it was moved after `position` events and is not back.

        Raises:
            RecordUnreadable: An event cannot be decoded, or was altered.
            ApplicationError: RECORD_CONFLICT: it was moved, and the record lacks its end.
        """
        run_id = activity.info().workflow_run_id or ""
        if await self._chains.first_run_id(thread, run_id) == run_id:
            return None  # the id of a run that was reset differs from its chain's first run id
        ends = await begins_and_ends(self._store, thread, position)
        if _MOVED not in ends:
            if not await self._moved_by_temporal(thread, run_id):
                return None
            ends = await begins_and_ends(self._store, thread)  # it may have been reset to its very end
        if _MOVED not in ends:
            message = (
                f"thread {thread} was moved to another place, and continues there. This run was reset to an event "
                "before that, and the record does not have its end any more: restore the record, to read the thread"
            )
            raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)
        if ends[-1] != _MOVED:
            return None  # it is back
        return await asyncio.to_thread(snapshot_of, await read_thread(self._store, thread), Transcript())

    async def refuse_branch(self, thread: str) -> None:
        """Refuse to replace the record of a thread that was moved: a reset must not lead to another log of it here.

        Raises:
            ApplicationError: RECORD_CONFLICT.
        """
        if (await begins_and_ends(self._store, thread) or [""])[-1] == _MOVED:
            message = f"thread {thread} was moved to another place, and continues there: its log here stays as it is"
            raise ApplicationError(message, type=RECORD_CONFLICT, non_retryable=True)

    async def _moved_by_temporal(self, thread: str, run_id: str) -> bool:
        """Whether a run was reset, and the run that it was reset from ended as moved, by Temporal's histories."""
        before = await _reset_from(thread, run_id)
        while before:
            try:
                closed = await _one_event(thread, before, WorkflowHistoryEventFilterType.CLOSE_EVENT)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return False
            if closed and closed.HasField("workflow_execution_completed_event_attributes"):
                return (await _result_of(thread, closed)).moved
            # A run that was closed in another way has no successor, nor has an unknown run.
            before = closed.workflow_execution_continued_as_new_event_attributes.new_execution_run_id if closed else ""
        return False


async def _result_of(thread: str, completed: HistoryEvent) -> RunResult:
    """Return the result of a run, from its last event: search attributes may be late, and are not sealed.

    Raises:
        HistoryUnreadable: The result is not from our processes. The run waits while Temporal retries.
    """
    converter = converter_of(thread)
    await decrypt_in_place(completed, converter.payload_codec)
    payloads = completed.workflow_execution_completed_event_attributes.result.payloads
    return decode(completed.event_id, payloads, RunResult, converter.payload_converter)


async def _reset_from(thread: str, run_id: str) -> str:
    """Return the id of the run that a run was reset from; empty for a run that was not reset."""
    client, page = own_client(), b""
    if await _original_run_id(thread, run_id) == run_id:
        return ""
    while True:
        answer = await client.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=client.namespace,
                execution=WorkflowExecution(workflow_id=thread, run_id=run_id),
                maximum_page_size=50,
                next_page_token=page,
            ),
            timeout=DESCRIBE_TIMEOUT,
        )
        for event in answer.history.events:
            failed = event.workflow_task_failed_event_attributes
            if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
                return failed.base_run_id
        page = answer.next_page_token
        if not page:
            return ""


async def _original_run_id(thread: str, run_id: str) -> str:
    """Return the id under which a run began, which a reset keeps."""
    first = await _one_event(thread, run_id, WorkflowHistoryEventFilterType.ALL_EVENT)
    return first.workflow_execution_started_event_attributes.original_execution_run_id if first else run_id


async def _one_event(thread: str, run_id: str, which: WorkflowHistoryEventFilterType) -> HistoryEvent | None:
    handle = own_client().get_workflow_handle(thread, run_id=run_id)
    async for event in handle.fetch_history_events(page_size=1, event_filter_type=which, rpc_timeout=DESCRIBE_TIMEOUT):
        return event
    return None
