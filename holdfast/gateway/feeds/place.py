"""Places in a feed: the ids of its events. Pure.

A place is `CURSOR[~MARK][!MARK][_SEEN]`: the id of a frame, as `/threads/{thread}/events` has it; how much of the text
of the reply to come the client has, and of its reasoning, unless nothing; and the number of events of the feed that the
client has of the next event of the thread, unless none. A mark is `GENERATION.LENGTH.CHECKSUM.PHASE` (`reply_text`). A
place grants nothing, and a made-up one only makes its sender see a wrong text.
"""

import re
from typing import NamedTuple, Self, cast

from holdfast.core.streams.chunks import Cursor
from holdfast.gateway.feeds.reply_text import Mark, Phase

_MARK = r"[0-9]{1,6}\.[0-9]{1,9}\.[0-9]{1,10}\.[coe]"
PATTERN = rf"^(-1|[0-9]{{1,16}})(\.[0-9]{{1,9}}\.[0-9]{{1,9}})?(~{_MARK})?(!{_MARK})?(_[0-9]{{1,6}})?$"
"""A place, as `Last-Event-ID` has it."""

_PLACE = re.compile(PATTERN, re.ASCII)


class Place(NamedTuple):
    """A place in a feed."""

    cursor: Cursor = Cursor()
    mark: Mark = Mark()
    reasoning: Mark = Mark()
    seen: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an id of a feed, or of a thread's stream of events.

        Raises:
            ValueError: It is neither.
        """
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:60]!r} is no id of this stream")
        cursor = Cursor.parse(found[1] + (found[2] or ""))
        if cursor.attempt and not (found[3] or found[4]):
            cursor = Cursor(cursor.after)  # of a stream of events, which does not say what was shown: begin the reply
        seen = int((found[5] or "_0")[1:])
        return cls(Cursor(cursor.after) if seen else cursor, _read(found[3]), _read(found[4]), seen)

    def __str__(self) -> str:
        seen = f"_{self.seen}" if self.seen else ""
        return f"{self.cursor}{_written('~', self.mark)}{_written('!', self.reasoning)}{seen}"


def _read(text: str | None) -> Mark:
    if not text:
        return Mark()
    generation, length, checksum, phase = text[1:].split(".")
    return Mark(int(generation), int(length), int(checksum), cast(Phase, phase))


def _written(sign: str, mark: Mark) -> str:
    return "" if mark == Mark() else f"{sign}{'.'.join(map(str, mark))}"
