"""A run as a task of MCP's tasks extension (`io.modelcontextprotocol/tasks`, specification 2026-07-28).

A task is a projection: the run in Temporal is what exists. What the specification says decides its status:

1. `completed` is a run that has ended with a result, and also one that has failed: as `isError`, with the reason.
2. `failed` is a call that could not be carried out at all: its context does not fit the worker's agent, no worker has
   such an agent, or the run was not made by our own processes.
3. `input_required` is a run that waits for a decision that this caller may send. If other people have to act, the task
   is `working`, and its message says what the run waits for.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, RequestParams, TextContent
from pydantic import Field

from holdfast.api.views import ThreadState
from holdfast.api.waiting import Waited
from holdfast.client.reading.runs import UNAUTHENTICATED
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import one_line
from holdfast.core.run.contracts.error_types import AGENT_NOT_FOUND, CONTEXT_INVALID, WORKSPACE_NOT_FOUND

TASKS = "io.modelcontextprotocol/tasks"
"""The extension's identifier."""

POLL_MS, SLOW_POLL_MS = 2_000, 10_000
"""How often a client should ask: while the agent works, and while the run waits for people or sleeps."""

MESSAGE_CHARS = 500
"""Maximum length of a task's message."""

RESPONSES = 100
"""The most responses of one `tasks/update`."""

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]

_NOT_CARRIED_OUT = {
    CONTEXT_INVALID: INVALID_PARAMS,
    AGENT_NOT_FOUND: INTERNAL_ERROR,
    WORKSPACE_NOT_FOUND: INTERNAL_ERROR,
    UNAUTHENTICATED: INTERNAL_ERROR,
}
"""The causes of failures of the call itself, each with its JSON-RPC error code."""


class TaskParams(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(max_length=1_000)


class UpdateParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(max_length=RESPONSES)
    """The responses, by the keys of their requests."""


class Task(Frozen):
    """A task as clients see it."""

    id: str
    status: Status
    message: str = ""
    """The current activity or wait, or why it ended; empty for nothing to say."""
    created_at: datetime
    updated_at: datetime
    requests: dict[str, dict[str, Any]] = {}
    """The requests to this client, by key; only if input is required."""
    result: dict[str, Any] | None = None
    """The result of the call, if it was carried out."""
    error: dict[str, Any] | None = None
    """The JSON-RPC error of a call that was not carried out."""

    def wire(self, result_type: Literal["task", "complete"]) -> dict[str, Any]:
        """Return the task as a result of JSON-RPC.

        Args:
            result_type: `task` in place of the result of a call, `complete` as the result of `tasks/get`.
        """
        optional = {
            "statusMessage": self.message or None,
            "inputRequests": self.requests or None,
            "result": self.result,
            "error": self.error,
        }
        return {
            "resultType": result_type,
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created_at.isoformat(),
            "lastUpdatedAt": self.updated_at.isoformat(),
            "ttlMs": None,  # the permanent record keeps the run until an operator removes it
            "pollIntervalMs": POLL_MS if self.status == "working" and not self.message else SLOW_POLL_MS,
            **{name: value for name, value in optional.items() if value is not None},
        }


def task_of(
    waited: Waited, *, begun: datetime, cause: str = "", requests: Mapping[str, dict[str, Any]] | None = None
) -> Task:
    """Return the task that a run is.

    Args:
        waited: The run, and the runs of its tree that need a person.
        begun: When it began.
        cause: The short name of the cause of its failure.
        requests: The open requests that this caller may decide, by key.
    """
    state = waited.state
    task = Task(id=state.thread, status="working", created_at=begun, updated_at=max(begun, state.updated_at))
    if waited.over:
        return task.model_copy(update=_end_of(state, cause))
    if requests:
        message = "waits for a decision" if len(requests) == 1 else f"waits for {len(requests)} decisions"
        return task.model_copy(update={"status": "input_required", "message": message, "requests": dict(requests)})
    return task.model_copy(update={"message": waiting_text(waited)})


def _end_of(state: ThreadState, cause: str) -> dict[str, Any]:
    """Return the fields of a task that is over."""
    text = state.result or ""
    cause = UNAUTHENTICATED if state.status == UNAUTHENTICATED else cause
    if state.status == "cancelled":
        return {"status": "cancelled", "message": one_line(text, MESSAGE_CHARS)}
    if code := _NOT_CARRIED_OUT.get(cause):
        message = one_line(state.warning if cause == UNAUTHENTICATED else text, MESSAGE_CHARS)
        return {"status": "failed", "message": message, "error": {"code": code, "message": message}}
    return {"status": "completed", "result": wire_result(call_result(state))}


def waiting_text(waited: Waited) -> str:
    """Return what an open run waits for; empty while its agent works."""
    if waited.status == "running":
        return ""
    if blocked := waited.blocked:
        return one_line(f"is blocked until an operator resumes it: {blocked.cause}: {blocked.message}", MESSAGE_CHARS)
    if waited.pending:
        asked = ", ".join(f"{each.tool} (request {each.request})" for each in waited.pending)
        return one_line(f"waits for people to decide about {asked}", MESSAGE_CHARS)
    return one_line(waited.state.now or waited.status.replace("_", " "), MESSAGE_CHARS)


def call_result(state: ThreadState) -> CallToolResult:
    """Return the result of the call of an agent whose run has ended.

    Args:
        state: The state of the run.
    """
    text = state.result or ""
    if state.status != "completed":
        return CallToolResult(content=[TextContent(text=f"The run {state.status}: {text}")], is_error=True)
    value = json.loads(text) if state.structured else None
    return CallToolResult(content=[TextContent(text=text)], structured_content=value)


def wire_result(result: CallToolResult) -> dict[str, Any]:
    """Return the result of a call as JSON."""
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)
