"""Check that the parts of a log join: each line must follow from the one before it."""

import json
from collections.abc import Sequence

from holdfast.core.base.canonical import GENESIS
from holdfast.core.log.event_log import digest_after
from holdfast.core.log.fork_point import ForkPoint
from holdfast.errors import LogBroken


class Continuity:
    """Checks that parts of a log follow one another; each part is assumed to be gapless.

    Args:
        thread: The thread id, for errors.
        start: The position that the first line must have.
    """

    def __init__(self, thread: str, start: int) -> None:
        self.position = start
        """The position that the next line must have."""
        self._thread = thread
        self._head = GENESIS if start == 0 else None

    def join(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Check the next part, and return it.

        Raises:
            LogBroken: It does not follow the previous part.
        """
        first = position_of(lines[0])
        if first != self.position:
            raise LogBroken(
                f"thread {self._thread!r}: expected event {self.position}, found event {first}. "
                "Try again; if the error persists, report it as a bug in Holdfast."
            )
        if self._head is not None and not follows(self._head, lines[0]):
            raise LogBroken(
                f"thread {self._thread!r}: event {first} does not follow from the one before it. The permanent record "
                "and Temporal hold different events, as after a reset or after a row was altered: run `verify`."
            )
        self.position = first + len(lines)
        self._head = str(json.loads(lines[-1]).get("digest"))
        return lines


def follows(head: str, line: bytes) -> bool:
    """Return whether the digest of an event follows from `head`, the digest of the event before it."""
    event = json.loads(line)
    return digest_after(head, event) == str(event.get("digest"))


def fork_of(line: bytes) -> ForkPoint | None:
    """Return where a thread leaves another one, if this line begins a fork; else None."""
    event = json.loads(line) if line else {}
    return ForkPoint.model_validate(event["point"]) if event.get("type") == "run_forked" else None


def begins_for_person(line: bytes) -> bool:
    """Return whether a person gave the task of a thread that begins with this line: no agent, and no file."""
    event = json.loads(line)
    return not event.get("lineage") and event.get("trust", "person") == "person"


def position_of(line: bytes) -> int:
    """Return the position of the event on a line."""
    return int(json.loads(line)["position"])
