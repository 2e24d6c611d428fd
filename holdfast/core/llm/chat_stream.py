"""Streamed replies of the Chat Completions API, put together to the body that it sends without streaming. Pure.

Servers differ: some repeat a call's id and name in each delta, give every call the index 0 or none at all, send a whole
message in place of a delta, or omit the finish reason or `[DONE]`. One of these two has to come, `[DONE]` as the last.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.base.canonical import too_deep
from holdfast.core.llm.adapters import arguments_text, as_dict, as_list, as_text, failure_in
from holdfast.core.llm.deltas import Delta, JoinedText
from holdfast.core.llm.event_stream import EventParser, ServerEvent
from holdfast.core.llm.leading_thoughts import LeadingThoughts

_DONE = "[DONE]"
_REASONING = ("reasoning_content", "reasoning")
_READ = ("role", "content", "refusal", "tool_calls", *_REASONING)
_REPLACED = ("id", "type", "index", "format", "name", "role", "signature")
"""Fields of other providers that are repeated whole; other text is sent piece by piece."""


@dataclass
class _Call:
    number: int
    fields: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    arguments: JoinedText = field(default_factory=JoinedText)

    def wire(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments.joined()}
        return {"type": "function", **self.fields, "function": function}


class ChatStream:
    """See `holdfast.core.llm.deltas.ReplyStream`."""

    def __init__(self) -> None:
        self._events = EventParser()
        self._answer: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._texts: dict[str, JoinedText] = {}
        self._parts: list[dict[str, Any]] = []
        """The content, if the server sends it in typed parts."""
        self._thoughts = LeadingThoughts()
        self._calls: list[_Call] = []
        self._by_index: dict[object, _Call] = {}
        self._begun = self._done = self._broken = False

    def feed(self, data: bytes) -> list[Delta]:
        """See `ReplyStream`."""
        return [delta for event in self._events.feed(data) for delta in self._read(event)]

    def end(self) -> dict[str, Any]:
        """See `ReplyStream`."""
        for event in self._events.end():
            list(self._read(event))
        if not self._begun:
            return self._answer
        message = {**self._message, **{name: text.joined() for name, text in self._texts.items()}}
        if self._parts:
            message["content"] = self._parts
        if self._calls:
            message["tool_calls"] = [call.wire() for call in self._calls]
        choice = {**self._choice, "message": message}
        failed = bool(failure_in(self._answer) or failure_in(choice))
        whole = not self._broken and not failed and (self._done or bool(choice.get("finish_reason")))
        if not whole:
            choice["finish_reason"] = "error"
        return {**self._answer, "choices": [choice]}

    def _read(self, event: ServerEvent) -> Iterator[Delta]:
        text = event.data.strip()
        if not text:
            return
        if text == _DONE:
            self._done = True
            return
        try:
            chunk = json.loads(text)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self._broken |= not self._done  # a word may be missing
            return
        if event.name == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        for name in ("model", "error"):
            if chunk.get(name):
                self._answer[name] = chunk[name]
        if usage := as_dict(chunk.get("usage")) or as_dict(as_dict(chunk.get("x_groq")).get("usage")):
            self._answer["usage"] = usage
        for choice in map(as_dict, as_list(chunk.get("choices"))):
            if choice.get("index") in (None, 0):
                yield from self._read_choice(choice)

    def _read_choice(self, choice: dict[str, Any]) -> Iterator[Delta]:
        self._begun, self._done = True, False  # a `[DONE]` before this was not the end
        for name in ("finish_reason", "native_finish_reason", "error"):
            if choice.get(name) is not None:
                self._choice[name] = choice[name]
        delta = as_dict(choice.get("delta")) or as_dict(choice.get("message"))
        for name in _REASONING:
            piece = delta.get(name)
            text = self._add(name, piece) if isinstance(piece, str) else ""
            # Some servers send the same reasoning in both fields.
            if text and (name == _REASONING[0] or _REASONING[0] not in self._texts):
                yield Delta("reasoning", text)
        yield from self._content(delta.get("content"))
        if isinstance(piece := delta.get("refusal"), str) and (text := self._add("refusal", piece)):
            yield Delta("refusal", text)
        calls = delta.get("tool_calls")
        for item in [calls] if isinstance(calls, dict) else as_list(calls):
            yield from self._call(as_dict(item))
        for name in delta.keys() - set(_READ):
            self._message[name] = _merged(self._message.get(name), delta[name])

    def _content(self, content: Any) -> Iterator[Delta]:
        if isinstance(content, str):
            if not self._parts:
                if content and (text := self._add("content", content)):
                    yield from self._thoughts.feed(text)
                return
            content = [{"type": "text", "text": content}]
        for part in map(as_dict, as_list(content)):
            if not self._parts and (text := self._texts.pop("content", JoinedText()).joined()):
                self._parts.append({"type": "text", "text": text})
            if self._parts and part.get("type") in _JOINED and self._parts[-1].get("type") == part["type"]:
                self._parts[-1] = {**self._parts[-1], **part, **_joined(self._parts[-1], part)}
            elif part and not too_deep(part):
                self._parts.append(part)
            if part.get("type") == "text" and (text := as_text(part.get("text"))):
                yield Delta("text", text)

    def _call(self, item: dict[str, Any]) -> Iterator[Delta]:
        index, given = item.get("index"), as_text(item.get("id"))
        index = index if isinstance(index, int | str) else None
        call = self._by_index.get(index) or (self._calls[-1] if index is None and not given and self._calls else None)
        if call is None or (given and call.fields.get("id") not in (None, "", given)):
            call = _Call(len(self._calls))
            self._calls.append(call)
        self._by_index[index] = call
        function = as_dict(item.get("function"))
        for name in item.keys() - {"function", "index"}:
            if item[name] not in (None, ""):
                call.fields[name] = _merged(call.fields.get(name), item[name], replaced=name in _REPLACED)
        if (name := as_text(function.get("name"))) and name != call.name:
            call.name += name
        piece = function.get("arguments")
        text = call.arguments.feed(arguments_text(piece)) if piece is not None else ""
        if text or name:
            yield Delta("arguments", text, call.number, call.name)

    def _add(self, name: str, piece: str) -> str:
        return self._texts.setdefault(name, JoinedText()).feed(piece)


_JOINED = ("text", "thinking")
"""Content parts that are sent piece by piece."""


def _joined(earlier: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for name in _JOINED:
        first, second = earlier.get(name), part.get(name)
        if isinstance(first, str | list) and type(first) is type(second):
            joined[name] = first + second  # type: ignore[operator]
    return joined


def _merged(earlier: Any, piece: Any, *, replaced: bool = False, levels: int = 20) -> Any:
    """Merge a piece of a field that only some providers have: text is joined, and lists by the `index` of entries."""
    match earlier, piece:
        case (_, None):
            return earlier
        case str(), str() if not replaced:
            return earlier + piece
        case dict(), dict() if levels:
            merged = dict(earlier)
            for name, value in piece.items():
                merged[name] = _merged(earlier.get(name), value, replaced=name in _REPLACED, levels=levels - 1)
            return merged
        case list(), list() if levels:
            return _merged_lists(earlier, piece, levels)
        case _:
            return piece


def _merged_lists(earlier: list[Any], piece: list[Any], levels: int) -> list[Any]:
    merged = list(earlier)
    for entry in piece:
        index = as_dict(entry).get("index")
        at = next((n for n, each in enumerate(merged) if index is not None and as_dict(each).get("index") == index), -1)
        if at < 0:
            merged.append(entry)
        else:
            merged[at] = _merged(merged[at], entry, levels=levels - 1)
    return merged
