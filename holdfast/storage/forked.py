"""What the record of a fork has in common with that of its original: the database has it already."""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.storage.log_rows import event_of, fit


class Original(NamedTuple):
    """The thread that another one was forked from."""

    thread: str
    events: int
    """How many events the fork has of it."""


def original_of(lines: Sequence[bytes]) -> Original | None:
    """Return the thread that another one was forked from, by its lines from the first one on; None if it was not."""
    for place in range(len(lines) - 1, 0, -1):
        if b'"type":"run_forked"' not in lines[place] or (event := event_of(lines[place])).get("type") != "run_forked":
            continue
        point = event.get("point")
        thread = point.get("thread") if isinstance(point, dict) else None
        return Original(fit(thread), place) if isinstance(thread, str) else None
    return None
