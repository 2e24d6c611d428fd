"""Places in a feed: the ids of its events. Pure.

A place is `CURSOR[~GENERATION.LENGTH.CHECKSUM.PHASE][_SEEN]`: the id of a frame, as `/threads/{thread}/events` has it;
how much of the reply to come the client has (`reply_text`), unless nothing; and the number of events of the feed that
the client has of the next event of the thread, unless none. It grants nothing, and a made-up one only makes its sender
see a wrong text.
"""

import re
from typing import NamedTuple, Self, cast

from holdfast.core.streams.chunks import Cursor
from holdfast.gateway.feeds.reply_text import Mark, Phase

PATTERN = r"^(-1|[0-9]{1,16})(\.[0-9]{1,9}\.[0-9]{1,9})?(~[0-9]{1,6}\.[0-9]{1,9}\.[0-9]{1,10}\.[coe])?(_[0-9]{1,6})?$"
"""A place, as `Last-Event-ID` has it."""

_PLACE = re.compile(PATTERN, re.ASCII)


class Place(NamedTuple):
    """A place in a feed."""

    cursor: Cursor = Cursor()
    mark: Mark = Mark()
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
        mark = Mark()
        if found[3]:
            generation, length, checksum, phase = found[3][1:].split(".")
            mark = Mark(int(generation), int(length), int(checksum), cast(Phase, phase))
        elif cursor.attempt:
            cursor = Cursor(cursor.after)  # of a stream of events, which does not say what was shown: begin the reply
        seen = int((found[4] or "_0")[1:])
        return cls(Cursor(cursor.after) if seen else cursor, mark, seen)

    def __str__(self) -> str:
        mark = "" if self.mark == Mark() else f"~{'.'.join(map(str, self.mark))}"
        return f"{self.cursor}{mark}" + (f"_{self.seen}" if self.seen else "")
