"""The origin of a fork: the record of the original already has the events that both share."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.storage.log_rows import event_of, fit


class Original(NamedTuple):
    """The thread that another one was forked from."""

    thread: str
    events: int
    """The number of events that the fork shares with it."""


def original_of(lines: Sequence[bytes]) -> Original | None:
    """Return the original of a fork, from all lines of the fork; None if the thread is not a fork."""
    for index in range(len(lines) - 1, 0, -1):
        if b'"type":"run_forked"' not in lines[index] or (event := event_of(lines[index])).get("type") != "run_forked":
            continue
        point = event.get("point")
        thread = point.get("thread") if isinstance(point, dict) else None
        return Original(fit(thread), index) if isinstance(thread, str) else None
    return None
