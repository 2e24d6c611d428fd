"""The messages of the tasks extension (`io.modelcontextprotocol/tasks`), which the SDK has the hooks for, but not
itself: a server answers a call with the id of a task, which the client then reads, answers and cancels.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Final, Literal, NoReturn

import mcp_types as types
from mcp.client.extension import ClientExtension, ResultClaim
from pydantic import Field

from holdfast.core.tools.foreign_waits import ForeignTask

EXTENSION: Final = "io.modelcontextprotocol/tasks"
SHORTEST_INTERVAL, DEFAULT_INTERVAL, LONGEST_INTERVAL = 1.0, 5.0, 3_600.0
"""Seconds between two polls: the least and the most that a server may ask for, and those for one that asks for none."""
TASK_ID_CHARS: Final = 500
"""Maximum length of the id of a task, which the log keeps."""
STATUS_CHARS: Final = 500
"""How much of a server's text about the state of a task is kept."""

Status = Literal["working", "input_required", "completed", "cancelled", "failed"]


class Task(types.Result):
    """A task, without what its state adds."""

    task_id: str = Field(min_length=1, max_length=TASK_ID_CHARS)
    status: Status
    status_message: str | None = None
    poll_interval_ms: float | None = None

    def as_task(self, server: str) -> ForeignTask:
        """Return the task as the run follows it.

        Args:
            server: The server's name in the catalog.
        """
        asked = self.poll_interval_ms
        seconds = DEFAULT_INTERVAL if asked is None or not isfinite(asked) else asked / 1_000
        interval = min(max(seconds, SHORTEST_INTERVAL), LONGEST_INTERVAL)
        message = (self.status_message or "")[:STATUS_CHARS]
        return ForeignTask(server=server, id=self.task_id, interval=interval, message=message)


class CreatedTask(Task):
    """The result of a call that continues as a task."""

    result_type: Literal["task"]


class TaskState(Task):
    """The state of a task."""

    input_requests: types.InputRequests | None = None
    """With the status `input_required`."""
    result: dict[str, Any] | None = None
    """With the status `completed`: the result of the call."""
    error: dict[str, Any] | None = None
    """With the status `failed`: an error of JSON-RPC."""


class TaskParams(types.RequestParams):
    """The parameters of a request about a task."""

    task_id: str


class TaskAnswers(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any]


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    """Read the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class UpdateTask(types.Request[TaskAnswers, Literal["tasks/update"]]):
    """Answer the questions of a task."""

    method: Literal["tasks/update"] = "tasks/update"
    params: TaskAnswers
    name_param = "taskId"


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    """Ask the server to cancel a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams
    name_param = "taskId"


async def _unresolved(result: CreatedTask, context: Any) -> NoReturn:
    raise AssertionError("the run follows tasks, not the SDK")


class Tasks(ClientExtension):
    """Says to servers that this client follows tasks."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the shape of a call's result that is a task."""
        return (ResultClaim(result_type="task", model=CreatedTask, resolve=_unresolved),)
