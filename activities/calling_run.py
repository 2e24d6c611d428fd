"""The run that an activity works for, and how to ask it."""

from datetime import timedelta
from typing import Any, Self

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from holdfast.run.contracts import NOT_SEALED, QUERIES
from holdfast.seals.seals import is_unsealed

ANSWER_WITHIN = timedelta(seconds=10)
"""An answer takes 5 ms. Without a limit, a worker that shuts down would wait for ever for its own answer."""


class CallingRun:
    """The run whose activity this is.

    Args:
        thread: Its thread's id, which is the workflow's.
        handle: Of this very Temporal run.
    """

    def __init__(self, thread: str, handle: WorkflowHandle[Any, Any]) -> None:
        self.thread = thread
        self.handle = handle

    @classmethod
    def of(cls) -> Self:
        """The run of the activity that is running here."""
        thread = calling_thread()
        return cls(thread, activity.client().get_workflow_handle(thread, run_id=activity.info().workflow_run_id))

    async def ask(self, query: str, *args: Any) -> Any:
        """Ask the run; the answer leaves no trace in history.

        Raises:
            RPCError: No worker answered in time; the activity is to be tried again.
            ApplicationError: NOT_SEALED: the answer is not from one of our workers. To be tried again, too.
        """
        answer = await self.handle.query(query, args=args, result_type=QUERIES[query], rpc_timeout=ANSWER_WITHIN)
        if is_unsealed(answer):
            raise ApplicationError(f"thread {self.thread}, query {query}: {answer}", type=NOT_SEALED)
        return answer


def calling_thread() -> str:
    """The thread of the run whose activity is running here."""
    thread = activity.info().workflow_id
    assert thread is not None, "every activity is a workflow's"
    return thread
