"""Streams of the Chat Completions API, made from whole replies in the ways in which servers differ."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.support.values import Wire

_JOINED = ("content", "refusal", "reasoning_content", "reasoning")


def units(text: str) -> list[str]:
    """Return the UTF-16 units of a text: a server may cut a pair in two."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    return [chr(int.from_bytes(encoded[at : at + 2], "little")) for at in range(0, len(encoded), 2)]


@st.composite
def pieces_of(draw: st.DrawFn, text: str) -> list[str]:
    """Return a text in pieces that may be cut anywhere, also within a surrogate pair."""
    parts = units(text)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(parts) - 1)), max_size=4)))
    bounds = [0, *[cut for cut in cuts if cut < len(parts)], len(parts)]
    return ["".join(parts[a:b]) for a, b in pairwise(bounds)]


@st.composite
def chat_streams(draw: st.DrawFn, reply: Wire) -> list[bytes]:
    """Return the events of a reply's stream."""
    (choice,) = reply["choices"]
    message = choice["message"]
    deltas: list[Wire] = [{"role": "assistant", "content": draw(st.sampled_from([None, ""]))}]
    for name, value in message.items():
        if name in _JOINED and isinstance(value, str):
            deltas += [{name: piece} for piece in draw(pieces_of(value))]
        elif name not in (*_JOINED, "role", "tool_calls") and value is not None:
            deltas.append({name: value})
    repeats = draw(st.booleans())
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        head = {"id": call["id"], "type": "function", "index": index}
        deltas.append({"tool_calls": [{**head, "function": {"name": function["name"], "arguments": ""}}]})
        for piece in draw(pieces_of(function["arguments"])):
            again = {**head, "function": {"name": function["name"], "arguments": piece}}
            deltas.append({"tool_calls": [again if repeats else {"index": index, "function": {"arguments": piece}}]})
    chunks: list[Wire] = [_chunk(reply, [{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    chunks.append(_chunk(reply, [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]))
    usage = _chunk(reply, []) | {"usage": reply.get("usage")}
    chunks.insert(draw(st.sampled_from([0, len(chunks)])), usage)
    events = [b"data: " + json.dumps(chunk).encode() for chunk in chunks]
    for _ in range(draw(st.integers(0, 3))):
        kept = draw(
            st.sampled_from([b": keep-alive", b"data: " + json.dumps(_chunk(reply, [])).encode(), b"event: ping"])
        )
        events.insert(draw(st.integers(0, len(events))), kept)
    if draw(st.booleans()):
        events.append(b"data: [DONE]")
    end = draw(st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
    return [event + end for event in events]


def _chunk(reply: Wire, choices: list[Any]) -> Wire:
    return {"id": reply["id"], "object": "chat.completion.chunk", "model": reply["model"], "choices": choices}
