"""Tombstones: what remains of a thread whose content was removed on request.

1. Of each event, its position, type, time and digest remain. A digest covers the event and the digest before it, so
   whoever has a copy of an event can still prove that it stood at its position.
2. The tombstone's own digest covers those lines, and who removed the content, when and why.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from holdfast.core.base.canonical import GENESIS, canonical
from holdfast.core.base.models import Frozen

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Tombstone(Frozen):
    """What remains of a forgotten thread."""

    thread: str
    forgotten_at: datetime
    forgotten_by: str
    """Who removed the content, by their own claim."""
    reason: str
    events: int
    """How many events the thread had."""
    head: str
    """Digest of the last event that could be read."""
    remains: bytes
    """A line of canonical JSON for each event: `at`, `digest`, `position`, `type`."""
    digest: str
    """Of the fields above."""


def remains_of(position: int, line: bytes) -> bytes:
    """Return what remains of an event.

    Args:
        position: Its position.
        line: Its line in the log. Of a line that does not decode, the position alone remains.
    """
    kept = {"position": position, "type": "unreadable", "at": "", "digest": ""}
    try:
        event = json.loads(line)
        kept |= {name: str(event[name]) for name in ("type", "at", "digest")}
        return canonical(kept)
    except (ValueError, TypeError, KeyError, RecursionError):
        return canonical(kept)


def tombstone(thread: str, remains: Iterable[bytes], *, at: datetime, by: str, reason: str) -> Tombstone:
    """Make a thread's tombstone of what remains of its events, in order."""
    lines = list(remains)
    head = next((known for line in reversed(lines) if (known := str(json.loads(line)["digest"]))), GENESIS)
    made = Tombstone(
        thread=thread,
        forgotten_at=at,
        forgotten_by=by,
        reason=reason,
        events=len(lines),
        head=head,
        remains=b"\n".join(lines),
        digest="",
    )
    return made.model_copy(update={"digest": _digest(made)})


def fault_in(found: Tombstone) -> tuple[int | None, str]:
    """Return the position of the first event at fault, if one is, and what is wrong; an empty text if nothing is."""
    lines = found.remains.split(b"\n") if found.remains else []
    head = GENESIS
    for position, line in enumerate(lines):
        try:
            kept = json.loads(line)
            head = str(kept["digest"]) or head
            if kept["position"] != position or canonical(kept) != line:
                return position, "it is missing, or out of place"
        except (ValueError, TypeError, KeyError, RecursionError):
            return position, "what remains of it does not decode"
    if len(lines) != found.events:
        return len(lines), f"it is missing: {found.events} events were forgotten, and {len(lines)} remain"
    if head != found.head:
        return None, "the digest of the last event is not that of the tombstone"
    if _digest(found) != found.digest:
        return None, "the tombstone was altered: its digest does not match"
    return None, ""


def _digest(found: Tombstone) -> str:
    fields = {
        "thread": found.thread,
        "at": (found.forgotten_at - _EPOCH) // timedelta(microseconds=1),
        "by": found.forgotten_by,
        "reason": found.reason,
        "head": found.head,
        "events": found.events,
    }
    return hashlib.sha256(canonical(fields) + b"\n" + found.remains).hexdigest()
