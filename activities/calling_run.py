"""The run that called this activity, and how to query it."""

from datetime import timedelta
from typing import Any, Self

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from holdfast.run.contracts import NOT_SEALED, QUERIES
from holdfast.seals.seals import is_unsealed

QUERY_TIMEOUT = timedelta(seconds=10)
"""An answer takes 5 ms. Without a limit, a worker that shuts down would wait for ever for its own answer."""


class CallingRun:
    """The run that called this activity.

    Args:
        thread: The id of its thread, which is the workflow id.
        handle: A handle of this one Temporal run.
    """

    def __init__(self, thread: str, handle: WorkflowHandle[Any, Any]) -> None:
        self.thread = thread
        self.handle = handle

    @classmethod
    def of(cls) -> Self:
        """The run that called the activity running here."""
        thread = calling_thread()
        return cls(thread, activity.client().get_workflow_handle(thread, run_id=activity.info().workflow_run_id))

    async def query(self, query: str, *args: Any) -> Any:
        """Query the run; queries leave no trace in history.

        Raises:
            RPCError: No worker answered in time. Retryable.
            ApplicationError: NOT_SEALED: the answer is not from a worker of this fleet. Retryable.
        """
        answer = await self.handle.query(query, args=args, result_type=QUERIES[query], rpc_timeout=QUERY_TIMEOUT)
        if is_unsealed(answer):
            raise ApplicationError(f"thread {self.thread}, query {query}: {answer}", type=NOT_SEALED)
        return answer


def calling_thread() -> str:
    """The thread of the run that called the activity running here."""
    thread = activity.info().workflow_id
    assert thread is not None, "every activity is called by a workflow"
    return thread
