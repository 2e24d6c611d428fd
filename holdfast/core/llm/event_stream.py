"""Server-sent events, parsed from bytes that may be cut anywhere. Pure.

Reference: https://html.spec.whatwg.org/multipage/server-sent-events.html. Ids and retry times are ignored.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


class ServerEvent(NamedTuple):
    """One event with data."""

    name: str
    """The event's type; empty if the server names none."""
    data: str


def is_event_stream(body: bytes) -> bool:
    """Whether a body is a stream of events. Its content type does not count."""
    return body[:1_000].removeprefix(_BOM).lstrip().startswith(_STARTS)


class EventParser:
    """Parses one stream."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        """The last line so far, without its end."""
        self._begun = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Yield the events that end within these bytes."""
        if not data:
            return
        held = self._parts[-1:] and self._parts[-1].endswith(b"\r")
        if not held and not _LINE_END.search(data):
            self._parts.append(data)  # a long line is not scanned again for each of its pieces
            return
        text = b"".join([*self._parts, data])
        after = b"\r" if text.endswith(b"\r") else b""  # the next byte may belong to the same line end
        *lines, rest = _LINE_END.split(text.removesuffix(b"\r") if after else text)
        self._parts = [rest + after]
        yield from self._lines(lines)

    def end(self) -> Iterator[ServerEvent]:
        """Yield the last event, which some servers do not end with a blank line."""
        text, self._parts = b"".join(self._parts), []
        yield from self._lines([*_LINE_END.split(text), b""])

    def _lines(self, lines: list[bytes]) -> Iterator[ServerEvent]:
        for line in lines:
            if not self._begun:
                line, self._begun = line.removeprefix(_BOM), True
            if not line:
                if self._data:
                    yield ServerEvent(self._name, "\n".join(self._data))
                self._name, self._data = "", []
                continue
            field, _, value = line.partition(b":")
            text = value.removeprefix(b" ").decode("utf-8", "replace")
            if field == b"data":
                self._data.append(text)
            elif field == b"event":
                self._name = text
