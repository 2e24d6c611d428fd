"""Turns a provider's reply into an `LLMReply`: normalised, checked against the tools, and safe to record.

A mistake of the LLM raises nothing: it becomes `rejected` or a call's problem, and so goes back to the LLM. A body that
is no reply is a fault of the endpoint, which the LLM cannot fix: `NotAReply`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.agents.middleware import LLMResult
from holdfast.core.base.canonical import exact_json
from holdfast.core.llm.adapters import Adapter, Decoded, as_dict, encode_json, message_of, recordable
from holdfast.core.llm.blocks import ToolCall, blocks_of
from holdfast.core.llm.deltas import StreamingAdapter
from holdfast.core.llm.event_stream import is_event_stream
from holdfast.core.llm.finish_reasons import BROKEN, CUT_OFF, EMPTY, is_context_full, may_be_cut_off, why_unusable
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.llm.refusals import is_too_long
from holdfast.core.llm.written_calls import intended_tool
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.tools.arguments import ArgumentsInvalid, canonical_arguments
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.errors import HoldfastError

MAX_REPLY_BYTES = 900_000
"""A reply that is larger after clipping its text is rejected: Temporal allows 2 MB a payload, and the arguments of its
calls are sent again with each call."""

_SHOWN_BYTES = 20_000
"""The most bytes of a body that is no reply in an error, which is redacted before it is cut to the recorded length."""

RESULT_CHARS = 100_000
"""The most characters of a structured result: longer text would be clipped, which a structured result cannot be."""

_TOO_LONG = f"the result has more than {RESULT_CHARS:,} characters: give a shorter one"
_NO_TYPE = "this worker's catalog has no result type for the agent any more, so the result cannot be checked"


class NotAReply(HoldfastError):
    """The endpoint, or a proxy in front of it, reports success but sends no whole reply; the message describes it.

    Args:
        message: Describes the body.
        refused: The body reports an error, as another status would.
        too_long: The request exceeds the LLM's context window, or left no room for a reply.
    """

    def __init__(self, message: str, *, refused: bool = False, too_long: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.too_long = too_long


def read_reply(
    body: bytes,
    *,
    adapter: Adapter,
    spec: AgentSpec,
    tools: Mapping[str, Tool],
    step_id: str,
    llm: str = "",
    used: Collection[str] = (),
    asked: bool = False,
    parsed: Mapping[str, Any] | None = None,
    before: Decoded | None = None,
) -> LLMReply:
    """Read the body of a successful response.

    Args:
        body: The response body as received.
        adapter: The adapter of the endpoint's API.
        spec: The agent as the run recorded it.
        tools: The worker's tools by name, to check arguments with.
        step_id: Prefix of the ids for calls to which the provider gave no id, or one that is in use.
        llm: The LLM that was called; empty for the agent's only one.
        used: The ids of the transcript's calls.
        asked: The LLM was asked whether the call in the text of its last reply is meant as one.
        parsed: The body, if it was a stream that has been put together; None to parse it.
        before: The reply up to its last pause; None if it was not paused.

    Raises:
        NotAReply: The body is something else, such as a web page, cut JSON, an error or a stream that was cut.
    """
    answer = _parse(body, adapter) if parsed is None else parsed
    decoded = _joined(before, adapter.decode(answer, ids=step_id, used=_with_calls(used, before)))
    message = _with_intended_tools(decoded.message, spec)
    if not decoded.holds_reply or decoded.finish_reason == BROKEN or (message is None and decoded.failure):
        refused = bool(decoded.failure) and message is None
        # The other events of a stream may quote the request.
        report = encode_json(answer.get("error")) if is_event_stream(body) else body
        too_long = message is None and is_too_long(200, report)
        raise NotAReply(_explain(body, decoded.failure), refused=refused, too_long=too_long)
    if is_context_full(decoded.finish_word) and not (message and message.tool_calls):
        raise NotAReply("the LLM's context window was full before its reply ended", too_long=True)
    problems, arguments = _read_calls(message, spec=spec, tools=tools)
    problems |= _cut_off_calls(message, decoded)
    return LLMReply(
        message=message,
        rejected=why_unusable(message, decoded, tools=[tool.name for tool in spec.tools], asked=asked),
        problems=problems,
        arguments=arguments,
        usage=decoded.usage,
        finish_reason=decoded.finish_reason,
        llm=decoded.llm or llm or spec.llm,
    )


def paused_reply(
    body: bytes,
    before: Decoded | None,
    *,
    adapter: Adapter,
    step_id: str,
    used: Collection[str] = (),
    parsed: Mapping[str, Any] | None = None,
) -> Decoded | None:
    """Return the reply so far if the provider pauses its turn, and continues it when it gets that back.

    Args:
        body: The response body as received.
        before: The reply up to the pause before; None for none.
        parsed: See `read_reply`.
        adapter: See `read_reply`.
        step_id: See `read_reply`.
        used: See `read_reply`.
    """
    if b"pause_turn" not in body:
        return None
    answer = _parse(body, adapter) if parsed is None else parsed
    decoded = adapter.decode(answer, ids=step_id, used=_with_calls(used, before))
    return _joined(before, decoded) if decoded.paused and decoded.message else None


def _with_calls(used: Collection[str], before: Decoded | None) -> Collection[str]:
    own = before.message.tool_calls if before and before.message else ()
    return {*used, *(call.id for call in own)} if own else used


def _joined(before: Decoded | None, rest: Decoded) -> Decoded:
    """Return one reply for both parts of a paused turn, with the tokens of both requests."""
    if before is None or before.message is None or not rest.holds_reply:
        return rest
    more = blocks_of(rest.message.content) if rest.message else ()
    message = AssistantMessage(content=(*blocks_of(before.message.content), *more), provider=before.message.provider)
    calls = len(before.message.tool_calls)
    unfinished = before.unfinished | {at + calls for at in rest.unfinished}
    return replace(rest, message=message, usage=before.usage + rest.usage, unfinished=unfinished)


def reply_from_middleware(
    received: LLMReply | None,
    result: LLMResult,
    *,
    spec: AgentSpec,
    tools: Mapping[str, Tool],
    step_id: str,
    llm: str = "",
    used: Collection[str] = (),
) -> LLMReply:
    """Build the reply that middleware returned in place of the provider's; its calls are checked like the LLM's.

    Args:
        received: The provider's reply; None if middleware did not call the LLM.
        result: The result that middleware returned.
        spec: See `read_reply`.
        tools: See `read_reply`.
        step_id: See `read_reply`.
        llm: See `read_reply`.
        used: See `read_reply`.
    """
    message = None
    if result.message is not None:
        recorded = AssistantMessage.model_validate(recordable(result.message.model_dump(mode="json")))
        read = message_of(blocks_of(recorded.content), recorded.provider, ids=step_id, used=used)
        message = _with_intended_tools(read, spec)
    problems, arguments = _read_calls(message, spec=spec, tools=tools)
    if received:  # a call that was cut off stays incomplete, even if middleware changed the reply
        problems |= {call: why for call, why in received.problems.items() if why == CUT_OFF}
        problems = {call.id: problems[call.id] for call in message.tool_calls if call.id in problems} if message else {}
    return (received or LLMReply()).model_copy(
        update={
            "message": message,
            "rejected": _rejection(message, received),
            "problems": problems,
            "arguments": arguments,
            "usage": result.usage,
            "llm": result.llm or llm or spec.llm,
        }
    )


def _rejection(message: AssistantMessage | None, received: LLMReply | None) -> str:
    """Return why a reply that middleware returned instead is still no answer; empty if it is one.

    Middleware may answer if the LLM returned nothing. It cannot complete an answer that the LLM broke off.
    """
    if message is None:
        return (received and received.rejected) or EMPTY
    return received.rejected if received and received.message and not message.tool_calls else ""


def _with_intended_tools(message: AssistantMessage | None, spec: AgentSpec) -> AssistantMessage | None:
    """Return the message with the names of the tools that its calls mean: the policy judges those."""
    if message is None or not message.tool_calls:
        return message
    names = [tool.name for tool in spec.tools]
    content = tuple(
        block.model_copy(update={"name": intended_tool(block.name, names)}) if isinstance(block, ToolCall) else block
        for block in blocks_of(message.content)
    )
    return message.model_copy(update={"content": content})


def _cut_off_calls(message: AssistantMessage | None, decoded: Decoded) -> dict[str, str]:
    """Return, by call id, why calls that may lack a part do not run, even if their arguments look complete."""
    calls = message.tool_calls if message else ()
    cut = set(decoded.unfinished)
    if calls and may_be_cut_off(decoded.finish_reason):
        cut.add(len(calls) - 1)
    return {call.id: CUT_OFF for at, call in enumerate(calls) if at in cut}


def _explain(body: bytes, failure: str) -> str:
    """Describe a body that is no reply, and quote as much of it as may be shown."""
    if failure:
        return f"the provider reports an error: {failure}"
    if is_event_stream(body):
        return "the stream ended before the reply did, or a part of it cannot be read"
    text = body[:_SHOWN_BYTES].decode("utf-8", "replace")
    if not text.strip():
        return "the body is empty"
    return f"the body is no reply of this API: {text}"


def _read_calls(
    message: AssistantMessage | None, *, spec: AgentSpec, tools: Mapping[str, Tool]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return, by call id, why calls cannot run, and the arguments that the tool reads differently than written.

    The arguments of a structured result are always among them: the run accepts only those that a worker has read.
    """
    problems: dict[str, str] = {}
    arguments: dict[str, str] = {}
    for index, call in enumerate(message.tool_calls if message else ()):
        is_result = call.name == FINAL_RESULT and spec.gives_result
        if index >= spec.limits.max_calls:
            problems[call.id] = (
                f"a reply may make at most {spec.limits.max_calls} calls; make this one in the next reply"
            )
        elif spec.tool(call.name) is None:
            names = ", ".join(tool.name for tool in spec.tools) or "none"
            problems[call.id] = f"there is no tool named {call.name!r}; there are: {names}"
        elif is_result and (call.name not in tools or tools[call.name].spec.kind != "runtime"):
            problems[call.id] = _NO_TYPE
        elif is_result and len(call.arguments) > RESULT_CHARS:
            problems[call.id] = _TOO_LONG
        elif call.name in tools:  # otherwise a worker with another catalog runs the call, and checks it then
            try:
                read = _with_polled(tools[call.name].read(call.arguments).text, call, spec=spec, tools=tools)
            except ArgumentsInvalid as error:
                problems[call.id] = f"the arguments do not fit: {error}"
            else:
                if is_result or read != canonical_arguments(call.arguments):
                    arguments[call.id] = read
    return problems, arguments


def _with_polled(text: str, call: ToolCall, *, spec: AgentSpec, tools: Mapping[str, Tool]) -> str:
    """Return the arguments of a call; if it polls a tool, with the arguments as that tool reads them and defaults.

    Raises:
        ArgumentsInvalid: They do not fit the polled tool.
    """
    polled = spec.polled_call(call.model_copy(update={"arguments": text}))
    if polled is None or call.name == "wait_for_run" or polled.name not in tools:
        return text
    try:
        read = tools[polled.name].read(polled.arguments).text
    except ArgumentsInvalid as error:
        raise ArgumentsInvalid(f"those of {polled.name}: {error}") from None
    return exact_json({**from_json(text), "arguments": from_json(read)})


def _parse(body: bytes, adapter: Adapter) -> Mapping[str, Any]:
    """Parse a body. An endpoint may stream even if it was not asked to."""
    if isinstance(adapter, StreamingAdapter) and is_event_stream(body):
        stream = adapter.reply_stream()
        stream.feed(body)
        return stream.end()
    try:
        return as_dict(json.loads(body))
    except (ValueError, RecursionError):
        return {}
