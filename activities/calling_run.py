"""The run that called this activity, and how to query it."""

import asyncio
from datetime import timedelta
from typing import Any, Self

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.exceptions import ApplicationError

from holdfast.run.commands import Request
from holdfast.run.contracts import NOT_SEALED, QUERIES
from holdfast.run.handover import Answers, Caller
from holdfast.runtime.worker.handover import HandOver
from holdfast.seals.seals import is_unsealed

NOTHING: Answers = {}

QUERY_TIMEOUT = timedelta(seconds=10)
"""An answer takes 5 ms. Without a limit, a worker that shuts down would wait for ever for its own answer."""


class CallingRun:
    """The run that called this activity.

    Args:
        thread: The id of its thread, which is the workflow id.
        handle: A handle of this one Temporal run.
        handed: What the run has handed over.
    """

    def __init__(self, thread: str, handle: WorkflowHandle[Any, Any], handed: Answers = NOTHING) -> None:
        self.thread = thread
        self.handle = handle
        self._handed = handed

    @classmethod
    def of(cls, request: Request | None = None, *, handover: HandOver | None = None) -> Self:
        """The run that called the activity running here.

        Args:
            request: The activity's request, for what the run has handed over with it; None to query the run anyway.
            handover: Keeps what the worker's runs hand over; None to query the run anyway.
        """
        thread, info = calling_thread(), activity.info()
        run_id = info.workflow_run_id
        caller = Caller(info.workflow_namespace or "", thread, run_id or "")
        handed = handover.take(request, caller=caller) if handover and request else NOTHING
        return cls(thread, activity.client().get_workflow_handle(thread, run_id=run_id), handed)

    async def query(self, query: str, *args: Any) -> Any:
        """Return what the run has handed over, or query it; queries leave no trace in history.

        Raises:
            RPCError: No worker answered in time. Retryable.
            ApplicationError: NOT_SEALED: the answer is not from a worker of this fleet. Retryable.
        """
        if handed := self._handed.get(query):
            await asyncio.sleep(0)  # a query would give other activities their turn, too, between two pages
            return handed(*args)
        answer = await self.handle.query(query, args=args, result_type=QUERIES[query], rpc_timeout=QUERY_TIMEOUT)
        if is_unsealed(answer):
            raise ApplicationError(f"thread {self.thread}, query {query}: {answer}", type=NOT_SEALED)
        return answer


def converter_of(thread: str) -> DataConverter:
    """The converter of what is in the histories of a thread, which checks seals as the thread's own."""
    client = activity.client()
    return client.data_converter.with_context(
        WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    )


def calling_thread() -> str:
    """The thread of the run that called the activity running here."""
    thread = activity.info().workflow_id
    assert thread is not None, "every activity is called by a workflow"
    return thread
