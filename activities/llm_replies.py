"""Turns a provider's reply into an `LLMReply`: normalised, checked against the tools, and safe to record.

Nothing here raises for what the LLM wrote: each mistake becomes `rejected` or a call's problem, and so goes back to
the LLM.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.agents.agent import AgentSpec
from holdfast.llm.messages import AssistantMessage, ToolCall, Usage, too_deep
from holdfast.run.contracts import LLMReply
from holdfast.tools.arguments import ArgumentsInvalid, canonical_arguments
from holdfast.tools.decorator import Tool

MAX_REPLY_BYTES = 900_000
"""A reply that is larger after clipping its text is rejected: Temporal allows 2 MB a payload, and the arguments of its
calls are sent again with each call."""

MAX_CALLS = 100
"""The most tool calls of one reply that run; Temporal allows 2,000 activities at a time."""

_NOT_EXTRA = ("role", "content", "tool_calls", "annotations", "audio", "function_call")
"""Fields of a reply that `AssistantMessage` has itself, or that the API refuses in requests."""


def read_reply(body: bytes, *, spec: AgentSpec, tools: Mapping[str, Tool], step_id: str) -> LLMReply:
    """Read the body of a successful response.

    Args:
        body: The response body as received.
        spec: The agent as the run recorded it.
        tools: The worker's tools by name, to check arguments with.
        step_id: Prefix of the ids for calls to which the provider gave no id, or a duplicate.
    """
    answer = _parse(body)
    choice = _dict(next(iter(_list(answer.get("choices"))), None))
    finish_reason = str(choice.get("finish_reason") or "stop")
    message = _message(_dict(choice.get("message")), step_id=step_id)
    rejected = ""
    if not choice:
        start = body[:200].decode("utf-8", "replace")
        rejected = f"the provider's response holds no reply ({start})."
    elif message is None:
        rejected = "it is empty."
    elif finish_reason == "length" and not message.tool_calls:
        rejected = "it was cut off by the length limit; be shorter."
    problems, arguments = _read_calls(message, spec=spec, tools=tools, cut_off=finish_reason == "length")
    return LLMReply(
        message=message,
        rejected=rejected,
        problems=problems,
        arguments=arguments,
        usage=_usage(_dict(answer.get("usage"))),
        finish_reason=finish_reason,
        llm=str(answer.get("model") or spec.llm),
    )


def _message(given: dict[str, Any], *, step_id: str) -> AssistantMessage | None:
    """The message; None if it has no content."""
    content = given.get("content")
    if isinstance(content, list):
        content = [block for block in content if isinstance(block, dict) and not too_deep(block)]
    message = AssistantMessage(
        content=content if isinstance(content, str | list) else None,
        tool_calls=tuple(_calls(_list(given.get("tool_calls")), step_id=step_id)),
        extra=_extra(given, without=_NOT_EXTRA),
    )
    return message if message.content or message.tool_calls or message.text else None


def _calls(given: list[Any], *, step_id: str) -> Iterator[ToolCall]:
    used: set[str] = set()
    for index, item in enumerate(map(_dict, given)):
        function = _dict(item.get("function"))
        arguments = function.get("arguments")
        call_id = item.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in used:
            call_id = f"{step_id}_{index}"
        used.add(call_id)
        yield ToolCall(
            id=call_id,
            name=str(function.get("name") or ""),
            # Some endpoints send the arguments as an object.
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments or {}),
            extra=_extra(item, without=("id", "type", "function", "index")),
        )


def _read_calls(
    message: AssistantMessage | None, *, spec: AgentSpec, tools: Mapping[str, Tool], cut_off: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """By call id: why calls cannot run, and the arguments of calls that the tool reads differently than written."""
    problems: dict[str, str] = {}
    arguments: dict[str, str] = {}
    for index, call in enumerate(message.tool_calls if message else ()):
        if index >= MAX_CALLS:
            problems[call.id] = f"a reply may make at most {MAX_CALLS} calls; make this one in the next reply"
        elif spec.tool(call.name) is None:
            known = ", ".join(tool.name for tool in spec.tools) or "none"
            problems[call.id] = f"there is no tool named {call.name!r}; there are: {known}"
        elif call.name in tools:  # otherwise a worker with another catalog runs the call, and checks it then
            try:
                read = tools[call.name].read(call.arguments).text
            except ArgumentsInvalid as error:
                hint = " (the reply was cut off by the length limit)" if cut_off else ""
                problems[call.id] = f"the arguments do not fit: {error}{hint}"
            else:
                if read != canonical_arguments(call.arguments):
                    arguments[call.id] = read
    return problems, arguments


def _usage(given: dict[str, Any]) -> Usage:
    cached = _dict(given.get("prompt_tokens_details")).get("cached_tokens")
    return Usage(
        prompt_tokens=_count(given.get("prompt_tokens")),
        cached_tokens=_count(cached),
        completion_tokens=_count(given.get("completion_tokens")),
    )


def _parse(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
        if not body.isascii() or b"\\ud" in body.lower():
            # JSON allows a lone surrogate, but no encoding does: it could not be recorded.
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
        return _dict(answer)
    except (ValueError, RecursionError):
        return {}


def _extra(given: dict[str, Any], *, without: tuple[str, ...]) -> dict[str, Any]:
    wanted = {name: value for name, value in given.items() if name not in without and not too_deep(value)}
    return {name: value for name, value in wanted.items() if value not in (None, [], {}, "")}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
