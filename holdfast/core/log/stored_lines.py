"""Decodes and verifies lines of the permanent record."""

from collections.abc import Sequence

from holdfast.core.base.canonical import GENESIS, canonical
from holdfast.core.log.event_log import digest_after, digest_of_bytes, digest_of_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.loop_events import IterationEnded, IterationStarted, LoopStarted, StoredEvent, WorkspaceSurveyed
from holdfast.core.log.upcasters import decode_parsed, parse_event
from holdfast.errors import EventUnreadable, RecordUnreadable


def read_lines(thread: str, start: int, lines: Sequence[bytes], *, head: str | None = None) -> list[StoredEvent]:
    """Decode lines of the record, and verify that none is missing, out of place or altered.

    Digests cover the stored JSON, not the decoded events, so that fields of newer releases and upcast events verify
    too. A line is canonical JSON: of two spellings of an event with one digest, one is in the log.

    Args:
        thread: Thread id, for errors.
        start: Position of the first line.
        lines: The lines, from `ThreadStore.read`.
        head: Digest of the event before `start`. Without it the first line is trusted, unless `start` is 0, where the
            chain begins.

    Raises:
        RecordUnreadable: A line does not decode, is not the event of its position, or was altered.
    """
    events = []
    previous = GENESIS if start == 0 else head
    for position, line in enumerate(lines, start):
        try:
            stored = parse_event(line)
            event = decode_parsed(stored)
            claimed = stored.get("digest")
            is_canonical = canonical(stored) == line
            if previous is None:
                digest = claimed
            else:
                digest = digest_of_line(previous, stored, line) if is_canonical else digest_after(previous, stored)
        except (ValueError, RecursionError, EventUnreadable) as error:
            raise _unreadable(thread, position, f"does not decode ({error})") from error
        if event.position != position:
            raise _unreadable(thread, position, f"is missing: the line in its place has position {event.position}")
        if not claimed or digest != claimed:
            raise _unreadable(thread, position, "was altered, or one before it: its digest does not match")
        if not is_canonical:
            raise _unreadable(thread, position, "was altered: its line is not canonical JSON")
        events.append(event)
        previous = digest
    return events


def end_of_chain(thread: str, start: int, lines: Sequence[bytes], *, head: str) -> str:
    """Return the digest that lines lead to, and check that each follows from the one before.

    For who has the digest of the last line from the run itself: where that is the one returned, the lines are the
    run's, byte for byte, so that none is decoded to an event or encoded again, which would take three times as long.

    Args:
        thread: Thread id, for errors.
        start: Position of the first line.
        lines: The lines.
        head: Digest of the event before `start`; of no meaning where `start` is 0.

    Raises:
        RecordUnreadable: A line is not the event of its position, or does not follow.
    """
    head = head if start else GENESIS
    for position, line in enumerate(lines, start):
        try:
            stored = parse_event(line)
            # Where the digest itself stands is not in what it covers: canonical JSON has it in its alphabetical place.
            digest = digest_of_bytes(head, stored, line) if list(stored) == sorted(stored) else None
            if digest is None and canonical(stored) == line:
                digest = digest_after(head, stored)
        except (ValueError, RecursionError, EventUnreadable) as error:
            raise _unreadable(thread, position, f"does not decode ({error})") from error
        if digest is None or (stored.get("position"), stored.get("digest")) != (position, digest):
            raise _unreadable(thread, position, "was altered, or one before it: its digest does not match")
        head = digest
    return head


def run_events(thread: str, events: Sequence[StoredEvent]) -> list[AgentEvent]:
    """Return the events, which must be those of an agent run.

    Raises:
        RecordUnreadable: They are those of a loop.
    """
    own = (LoopStarted, WorkspaceSurveyed, IterationStarted, IterationEnded)
    found = [event for event in events if not isinstance(event, own)]
    if len(found) < len(events):
        raise RecordUnreadable(f"the record has the log of a loop under the id {thread!r}: start under another id")
    return found


def _unreadable(thread: str, position: int, what: str) -> RecordUnreadable:
    return RecordUnreadable(
        f"event {position} of thread {thread} {what}. Events from there on cannot be trusted: restore the record "
        "from a backup, or read it with the release that wrote it."
    )
