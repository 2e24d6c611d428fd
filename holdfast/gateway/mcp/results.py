"""The tool `result`, with which a client that has no tasks reads the result of a run that it has started."""

import json
from typing import Annotated, Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BeforeValidator, Field, ValidationError

from holdfast.api.waiting import Waited
from holdfast.gateway.bodies import Body
from holdfast.gateway.http.problems import HTTPProblem, validation_text
from holdfast.gateway.mcp.exposed import RESULT_TOOL
from holdfast.gateway.mcp.tasks import waiting_text

_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "thread": {"type": "string"},
        "status": {"type": "string", "description": "completed, failed or cancelled; or what an open run does."},
        "text": {
            "type": "string",
            "description": "The result, why it failed, or what an open run waits for.",
        },
        "result": {"description": "The result as a value, if the agent has a typed one."},
    },
    "required": ["thread", "status", "text"],
}


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class ResultArguments(Body):
    """The arguments of `result`."""

    thread: str = Field(min_length=1, max_length=1_000)
    wait: Annotated[int, BeforeValidator(_whole)] = Field(default=0, ge=0)

    @classmethod
    def of(cls, given: dict[str, Any] | None) -> "ResultArguments":
        """Read the arguments of a call.

        Raises:
            HTTPProblem: 422: they do not fit the schema.
        """
        try:
            return cls.model_validate(given or {})
        except ValidationError as error:
            raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None


def result_tool(longest: int) -> Tool:
    """Return the tool.

    Args:
        longest: The longest wait, in seconds.
    """
    properties = {
        "thread": {"type": "string", "description": "The thread that the agent's tool returned."},
        "wait": {"type": "integer", "minimum": 0, "maximum": longest, "description": "Seconds to wait for the end."},
    }
    schema = {"type": "object", "properties": properties, "required": ["thread"], "additionalProperties": False}
    return Tool(
        name=RESULT_TOOL,
        description="Read the result of an agent that you have given a task, or what it waits for. Repeat it until "
        "the status is completed, failed or cancelled.",
        input_schema=schema,
        output_schema=_OUTPUT,
        annotations=ToolAnnotations(read_only_hint=True),
    )


def started(thread: str) -> CallToolResult:
    """Return the answer to a client without tasks: the run has begun."""
    text = f"The agent has begun. Its thread is {thread}. Call {RESULT_TOOL} with this thread to read its result."
    view = {"thread": thread, "status": "running", "text": text}
    return CallToolResult(content=[TextContent(text=text)], structured_content=view)


def result_of(waited: Waited) -> CallToolResult:
    """Return a run, as it is now, as the result of the tool."""
    state = waited.state
    text = (state.result or state.warning) if waited.over else waiting_text(waited) or "works"
    view: dict[str, Any] = {"thread": state.thread, "status": waited.status, "text": text or ""}
    if waited.over and state.structured:
        view["result"] = json.loads(state.result or "null")
    failed = waited.over and state.status != "completed"
    shown = f"{waited.status}: {text}" if not waited.over or failed else text or ""
    return CallToolResult(content=[TextContent(text=shown)], structured_content=view, is_error=failed)
