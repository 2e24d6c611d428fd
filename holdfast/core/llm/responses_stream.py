"""Streamed replies of the Responses API, put together to the body that it sends without streaming. Pure.

Reference: https://platform.openai.com/docs/api-reference/responses-streaming. The last event has the whole response,
so the deltas before it are only a preview. Servers that leave the output out of the last event have sent each item in
`response.output_item.done`. Events are numbered: one that comes twice is skipped, and after a gap the preview stops.
llama.cpp sends neither numbers nor `output_index`: there, an event belongs to the item that it names.
"""

import json
from collections.abc import Iterator
from typing import Any

from holdfast.core.llm.adapters import as_dict, as_list, as_text
from holdfast.core.llm.deltas import Delta, DeltaKind, JoinedText
from holdfast.core.llm.event_stream import EventParser, ServerEvent
from holdfast.core.llm.leading_thoughts import LeadingThoughts

_BEGUN = ("response.created", "response.queued", "response.in_progress")
_ENDED = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_DELTAS: dict[str, DeltaKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}

_Key = tuple[object, ...]


class ResponsesStream:
    """See `holdfast.core.llm.deltas.ReplyStream`."""

    def __init__(self) -> None:
        self._events = EventParser()
        self._response: dict[str, Any] = {}
        """The response as the last event describes it that has one."""
        self._named: dict[str, int] = {}
        """The index of each item that events without an index name."""
        self._items: dict[int, Any] = {}
        """The items of the output that have arrived whole, by their index."""
        self._error: dict[str, Any] = {}
        self._ended = ""
        """The type of the event that ended the reply."""
        self._broken = False
        """Whether an event could not be read."""
        self._numbers = _Numbers()
        self._texts: dict[_Key, JoinedText] = {}
        self._thoughts: dict[_Key, LeadingThoughts] = {}
        self._calls: dict[object, tuple[int, str]] = {}
        """Number and tool of each call, by the index of its item."""
        self._reasoning: dict[object, str] = {}
        """By the index of an item: the type of the events that show its reasoning."""
        self._thought: _Key = ()
        """The part whose reasoning was shown last."""

    def feed(self, data: bytes) -> list[Delta]:
        """See `ReplyStream`."""
        return [delta for event in self._events.feed(data) for delta in self._read(event)]

    def end(self) -> dict[str, Any]:
        """See `ReplyStream`."""
        for event in self._events.end():
            list(self._read(event))
        answer = dict(self._response)
        if self._error:
            answer["error"] = self._error
        if not self._response and not self._items:
            return answer
        answer["output"] = as_list(answer.get("output")) or [self._items[index] for index in sorted(self._items)]
        whole = self._ended and not self._error and (self._response.get("output") or not self._broken)
        answer["status"] = (answer.get("status") or self._ended.rpartition(".")[2]) if whole else "failed"
        return answer

    def _read(self, event: ServerEvent) -> Iterator[Delta]:
        text = event.data.strip()
        if self._ended or not text or text == "[DONE]":
            return
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            self._broken = True
            return
        kind = as_text(fields.get("type")) or event.name
        if kind == "error" or (fields.get("error") and "response" not in fields):
            self._error = as_dict(fields.get("error")) or {"message": fields.get("error"), **fields}
        elif kind in _BEGUN or kind in _ENDED:
            self._response = as_dict(fields.get("response"))
            self._ended = kind if kind in _ENDED else ""
        elif kind == "response.output_item.done":
            self._items[self._index(fields)] = fields.get("item")
        if self._numbers.follow(fields.get("sequence_number"), begins=kind in _BEGUN):
            if kind == "response.output_item.added":
                yield from self._begin(self._index(fields), as_dict(fields.get("item")))
            elif kind in _DELTAS:
                yield from self._delta(kind, fields)
            elif kind == "response.output_text.done" and (thoughts := self._thoughts.get(self._key(fields, "text"))):
                yield from thoughts.end()

    def _begin(self, index: int, item: dict[str, Any]) -> Iterator[Delta]:
        if item.get("type") == "function_call" and index not in self._calls:
            number, tool = self._calls[index] = len(self._calls), as_text(item.get("name"))
            yield Delta("arguments", as_text(item.get("arguments")), number, tool)

    def _delta(self, event: str, fields: dict[str, Any]) -> Iterator[Delta]:
        kind, index = _DELTAS[event], self._index(fields)
        key = self._key(fields, kind)
        text = self._texts.setdefault(key, JoinedText()).feed(as_text(fields.get("delta")))
        if not text:
            return
        match kind:
            case "arguments":
                number, tool = self._calls.setdefault(index, (len(self._calls), ""))
                yield Delta("arguments", text, number, tool)
            case "text":
                yield from self._thoughts.setdefault(key, LeadingThoughts()).feed(text)
            case "reasoning" if self._reasoning.setdefault(index, event) == event:
                # Recorded reasoning has a blank line between its parts, too.
                yield Delta("reasoning", f"\n\n{text}" if self._thought not in ((), key) else text)
                self._thought = key
            case "refusal":
                yield Delta("refusal", text)

    def _index(self, fields: dict[str, Any]) -> int:
        index, item = fields.get("output_index"), as_dict(fields.get("item"))
        if isinstance(index, int):
            return index
        names = map(as_text, (fields.get("item_id"), item.get("id"), item.get("call_id")))
        return self._named.setdefault(next(filter(None, names), ""), len(self._named))

    def _key(self, fields: dict[str, Any], kind: str) -> _Key:
        parts = (fields.get("content_index"), fields.get("summary_index"))
        return (self._index(fields), *(part if isinstance(part, int) else 0 for part in parts), kind)


class _Numbers:
    """The numbers of a stream's events, which some servers leave out."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._gap = False

    def follow(self, number: Any, *, begins: bool) -> bool:
        """Take the number of the next event; return whether the event belongs to the preview.

        Args:
            number: The number; anything else if the server sends none.
            begins: Streams may begin with an event of this type, whatever its number.
        """
        if isinstance(number, int):
            if self._last is not None and number <= self._last:
                return False
            first = self._last is None and (begins or number == 0)
            self._gap = self._gap or not (first or number - 1 == self._last)
            self._last = number
        return not self._gap
