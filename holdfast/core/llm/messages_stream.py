"""Streamed replies of the Messages API, put together to the body that it sends without streaming. Pure.

Reference: https://docs.claude.com/en/build-with-claude/streaming. Blocks are numbered and have a beginning and an end:
an event for a block that is not open is out of order, and makes the stream none that can be read. Events of unknown
types are skipped, as the API demands.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.llm.adapters import arguments_text, as_dict, as_list, as_text
from holdfast.core.llm.deltas import Delta, JoinedText
from holdfast.core.llm.event_stream import EventParser, ServerEvent
from holdfast.core.llm.leading_thoughts import LeadingThoughts

_SHOWN = ("text", "thinking")
"""Fields of blocks that readers see."""


@dataclass
class _Block:
    fields: dict[str, Any]
    number: int | None
    """For a tool call: its number in the reply."""
    texts: dict[str, JoinedText] = field(default_factory=dict)
    """The fields that arrive in pieces."""
    citations: list[Any] = field(default_factory=list)
    thoughts: LeadingThoughts = field(default_factory=LeadingThoughts)
    input: JoinedText = field(default_factory=JoinedText)
    open: bool = True

    def add(self, name: str, piece: str) -> str:
        """Add a piece to a field, and return the next text."""
        if name not in self.texts:
            self.texts[name] = JoinedText()
            piece = as_text(self.fields.get(name)) + piece
        return self.texts[name].feed(piece)


class MessagesStream:
    """See `holdfast.core.llm.deltas.ReplyStream`."""

    def __init__(self) -> None:
        self._events = EventParser()
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._error: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._calls = 0
        self._stopped = self._broken = False

    def feed(self, data: bytes) -> list[Delta]:
        """See `ReplyStream`."""
        return [delta for event in self._events.feed(data) for delta in self._read(event)]

    def end(self) -> dict[str, Any]:
        """See `ReplyStream`."""
        for event in self._events.end():
            list(self._read(event))
        answer = {**self._message, "usage": self._usage} if self._message else {}
        if self._error:
            answer["error"] = self._error
        if not self._message:
            return answer
        answer["content"] = [self._whole(block) for block in self._blocks]
        open_blocks = any(block.open for block in self._blocks)
        if self._broken or self._error or open_blocks or not answer.get("stop_reason"):
            answer["stop_reason"] = "error"
        return answer

    def _whole(self, block: _Block) -> dict[str, Any]:
        texts = {name: text for name, joined in block.texts.items() if (text := joined.joined())}
        whole = {**block.fields, **texts}
        if block.citations:
            whole["citations"] = [*as_list(block.fields.get("citations")), *block.citations]
        if (written := block.input.joined()) and block.number is None:
            try:
                whole["input"] = json.loads(written)
            except (ValueError, RecursionError):
                self._broken = True  # the API would not take it back
        elif written:
            whole["input"] = written  # as the LLM wrote it
        return whole

    def _read(self, event: ServerEvent) -> Iterator[Delta]:
        text = event.data.strip()
        if self._stopped or not text or text == "[DONE]":
            return
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            self._broken = True  # a word may be missing
            return
        kind = as_text(fields.get("type")) or event.name
        if kind == "error" or fields.get("error"):
            self._error = as_dict(fields.get("error")) or {"message": fields.get("error"), **fields}
            return
        match kind:
            case "message_start":
                self._broken = self._broken or bool(self._message)
                self._message = as_dict(fields.get("message"))
                self._count(self._message.get("usage"))
            case "content_block_start":
                yield from self._begin(fields.get("index"), as_dict(fields.get("content_block")))
            case "content_block_delta" if block := self._open(fields.get("index")):
                yield from self._delta(block, as_dict(fields.get("delta")))
            case "content_block_stop" if block := self._open(fields.get("index")):
                yield from self._close(block)
            case "message_delta":
                delta = as_dict(fields.get("delta"))
                self._message |= {name: value for name, value in delta.items() if value is not None}
                self._count(fields.get("usage"))
            case "message_stop":
                self._stopped = True

    def _count(self, usage: Any) -> None:
        """Merge usage. Counts are of the reply so far, and some servers send 0 for one that they sent before."""
        for name, value in as_dict(usage).items():
            before = self._usage.get(name)
            if isinstance(value, int) and isinstance(before, int):
                value = max(value, before)
            if value is not None:
                self._usage[name] = value

    def _open(self, index: Any) -> _Block | None:
        """Return an open block; None, and give the stream up, if there is none with this index."""
        if isinstance(index, int) and 0 <= index < len(self._blocks) and self._blocks[index].open and not self._over:
            return self._blocks[index]
        self._broken = True
        return None

    @property
    def _over(self) -> bool:
        return self._message.get("stop_reason") is not None

    def _begin(self, index: Any, fields: dict[str, Any]) -> Iterator[Delta]:
        if index != len(self._blocks) or not self._message or self._over:
            self._broken = True
            return
        is_call = fields.get("type") == "tool_use"
        block = _Block(fields, self._calls if is_call else None)
        self._blocks.append(block)
        for name in _SHOWN:
            yield from self._text(block, name, "")
        if block.number is not None:
            self._calls += 1
            yield Delta("arguments", "", block.number, as_text(fields.get("name")))

    def _delta(self, block: _Block, delta: dict[str, Any]) -> Iterator[Delta]:
        for name, piece in delta.items():
            match name, piece:
                case "type", _:
                    continue
                case (("text" | "thinking"), str()):
                    yield from self._text(block, name, piece)
                case "partial_json", str():
                    if (text := block.input.feed(piece)) and block.number is not None:
                        yield Delta("arguments", text, block.number, as_text(block.fields.get("name")))
                case "citation", dict():
                    block.citations.append(piece)
                case _, str() if name != "signature":
                    block.add(name, piece)
                case _:
                    block.fields[name] = piece

    def _text(self, block: _Block, name: str, piece: str) -> Iterator[Delta]:
        if not (text := block.add(name, piece)):
            return
        if name == "text":
            yield from block.thoughts.feed(text)
        else:
            yield Delta("reasoning", text)

    def _close(self, block: _Block) -> Iterator[Delta]:
        block.open = False
        yield from block.thoughts.end()
        if block.number is not None and not block.input.joined():
            text = arguments_text(block.fields.get("input"))
            yield Delta("arguments", text, block.number, as_text(block.fields.get("name")))
