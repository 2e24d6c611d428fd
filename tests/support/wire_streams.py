"""Streams of the Responses and the Messages API, made from whole replies with the events of the SDKs' own types."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.support.chat_streams import pieces_of
from tests.support.values import Wire

Cut = Callable[[str], list[str]]
"""Cuts a text into pieces."""


def check_events(api: str, events: list[Wire]) -> None:
    """Check that the events of a stream are of the SDK's types.

    Raises:
        pydantic.ValidationError: One is not.
    """
    for event in events:
        _types()[api].validate_json(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace"))


@cache
def _types() -> dict[str, TypeAdapter[Any]]:
    from anthropic.types import RawMessageStreamEvent
    from openai.types.responses import ResponseStreamEvent

    return {"responses": TypeAdapter(ResponseStreamEvent), "anthropic": TypeAdapter(RawMessageStreamEvent)}


def responses_events(reply: Wire, cut: Cut) -> list[Wire]:
    """Return the events of a reply of the Responses API, numbered."""
    return [{**event, "sequence_number": number} for number, event in enumerate(_responses(reply, cut))]


def _responses(reply: Wire, cut: Cut) -> Iterator[Wire]:
    begun = {**reply, "output": [], "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(reply["output"]):
        where = {"output_index": index, "item_id": item.get("id") or f"item_{index}"}
        empty = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
        added = {**item, **{name: value for name, value in empty.items() if name in item}}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        match item["type"]:
            case "message":
                for at, part in enumerate(item["content"]):
                    yield from _part({**where, "content_index": at}, part, cut)
            case "function_call":
                for piece in cut(item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
                yield {"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]}
            case "reasoning":
                for at, part in enumerate(item.get("summary") or ()):
                    yield from _thought("reasoning_summary_text", {**where, "summary_index": at}, part["text"], cut)
                for at, part in enumerate(item.get("content") or ()):
                    yield from _thought("reasoning_text", {**where, "content_index": at}, part["text"], cut)
            case "web_search_call":
                yield {"type": "response.web_search_call.searching", **where}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": reply}


def _part(where: Wire, part: Wire, cut: Cut) -> Iterator[Wire]:
    name, kind = ("text", "output_text") if part["type"] == "output_text" else ("refusal", "refusal")
    empty = {"annotations": [], name: ""}
    shown = {**part, **{field: value for field, value in empty.items() if field in part}}
    more: Wire = {"logprobs": []} if name == "text" else {}
    yield {"type": "response.content_part.added", **where, "part": shown}
    for piece in cut(part[name]):
        yield {"type": f"response.{kind}.delta", **where, "delta": piece, **more}
    for at, annotation in enumerate(part.get("annotations") or ()):
        added = {"annotation_index": at, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **where, **added}
    yield {"type": f"response.{kind}.done", **where, name: part[name], **more}
    yield {"type": "response.content_part.done", **where, "part": part}


def _thought(kind: str, where: Wire, text: str, cut: Cut) -> Iterator[Wire]:
    for piece in cut(text):
        yield {"type": f"response.{kind}.delta", **where, "delta": piece}
    yield {"type": f"response.{kind}.done", **where, "text": text}


def anthropic_events(reply: Wire, cut: Cut) -> list[Wire]:
    """Return the events of a reply of the Messages API."""
    return list(_anthropic(reply, cut))


def _anthropic(reply: Wire, cut: Cut) -> Iterator[Wire]:
    usage = {**reply["usage"], "output_tokens": min(1, reply["usage"]["output_tokens"])}
    begun = {**reply, "content": [], "stop_reason": None, "usage": usage}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(reply["content"]):
        shown, deltas = dict(block), list[Wire]()
        match block["type"]:
            case "text":
                shown |= {"text": ""} | ({"citations": []} if block.get("citations") else {})
                deltas += ({"type": "text_delta", "text": piece} for piece in cut(block["text"]))
                deltas += ({"type": "citations_delta", "citation": each} for each in block.get("citations") or ())
            case "thinking":
                shown |= {"thinking": "", "signature": ""}
                deltas += ({"type": "thinking_delta", "thinking": piece} for piece in cut(block["thinking"]))
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use" | "server_tool_use":
                shown |= {"input": {}}
                deltas += (
                    {"type": "input_json_delta", "partial_json": each} for each in cut(json.dumps(block["input"]))
                )
        yield {"type": "content_block_start", "index": index, "content_block": shown}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": reply["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


EVENTS: dict[str, Callable[[Wire, Cut], list[Wire]]] = {"responses": responses_events, "anthropic": anthropic_events}


def encoded(event: Wire, end: bytes = b"\n\n") -> bytes:
    """Return an event as these APIs send it."""
    return f"event: {event['type']}".encode() + end[: len(end) // 2] + b"data: " + json.dumps(event).encode() + end


@st.composite
def events_of(draw: st.DrawFn, api: str, reply: Wire) -> list[Wire]:
    """Return the events of a reply, whose texts are cut anywhere."""
    return EVENTS[api](reply, lambda text: draw(pieces_of(text)))


@st.composite
def streams_of(draw: st.DrawFn, api: str, reply: Wire) -> bytes:
    """Return a reply's stream, with keep-alives, pings and events of types to come."""
    end = draw(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
    events = [encoded(event, end) for event in draw(events_of(api, reply))]
    for _ in range(draw(st.integers(0, 3))):
        more = [b": keep-alive" + end, encoded({"type": "ping"}, end), encoded({"type": "of_the_future", "a": 1}, end)]
        events.insert(draw(st.integers(0, len(events))), draw(st.sampled_from(more)))
    return b"".join(events)
