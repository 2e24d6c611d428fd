"""Where the parts of a log are put together: each line has to follow from the one before it."""

import json
from collections.abc import Sequence

from holdfast.base.digests import GENESIS
from holdfast.errors import LogBroken
from holdfast.log.event_log import digest_after


class Continuity:
    """Checks that parts of a log, each of which is whole, follow one from the other.

    Args:
        thread: Named in errors.
        start: The position that the first line must have.
    """

    def __init__(self, thread: str, start: int) -> None:
        self.position = start
        """The position that the next line must have."""
        self._thread = thread
        self._head = GENESIS if start == 0 else None

    def join(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Take the next part, and return it.

        Raises:
            LogBroken: It does not follow.
        """
        first = position_of(lines[0])
        if first != self.position:
            raise LogBroken(
                f"thread {self._thread!r}: event {first} comes where event {self.position} should. "
                "Ask again; if it stays so, report it as a fault of Holdfast."
            )
        if self._head is not None and not follows(self._head, lines[0]):
            raise LogBroken(
                f"thread {self._thread!r}: event {first} does not follow from the one before it. The permanent record "
                "and Temporal hold different events, as after a reset or where a row was altered: see `verify`."
            )
        self.position = first + len(lines)
        self._head = str(json.loads(lines[-1]).get("digest"))
        return lines


def follows(head: str, line: bytes) -> bool:
    """Whether the digest of an event follows from `head`, the digest of the event before it."""
    event = json.loads(line)
    return digest_after(head, event) == str(event.get("digest"))


def position_of(line: bytes) -> int:
    """The position of the event on a line."""
    return int(json.loads(line)["position"])
