"""The lines with which a fork begins: those of another thread, byte for byte, up to the fork's point."""

import json
from collections.abc import Awaitable, Callable, Sequence

from temporalio.exceptions import ApplicationError

from holdfast.base.digests import GENESIS
from holdfast.base.parsing import parse_json
from holdfast.errors import RecordUnreadable
from holdfast.log.event_log import digest_of_line, event_line
from holdfast.log.events import AgentEvent
from holdfast.log.fork_point import ForkPoint
from holdfast.log.references import artifacts_of
from holdfast.log.stored_lines import run_events
from holdfast.log.upcasters import decode_stored
from holdfast.run.contracts import RECORD_UNREADABLE, START_REFUSED
from holdfast.stores import ArtifactStore, SharesArtifacts, ThreadStore

Past = Callable[[str, int], Awaitable[list[AgentEvent]]]
"""Reads a thread's events from Temporal's histories: its id, and the position from which the record lacks them."""


async def forked_lines(store: ThreadStore, point: ForkPoint, past: Past) -> list[bytes]:
    """Read the lines of a fork's original, from the first one up to the fork's point.

    Args:
        store: The permanent record.
        point: Where the fork leaves its original.
        past: Reads what the record does not have yet.

    Raises:
        ApplicationError: START_REFUSED or RECORD_UNREADABLE: the original does not have these events any more.
    """
    stop = point.position + 1
    lines: list[bytes] = []
    try:
        while len(lines) < stop and (page := await store.read(point.thread, len(lines))):
            lines += page
        lines = lines[:stop]
        if len(lines) < stop:
            events = await past(point.thread, len(lines))
            lines += [event_line(event) for event in events if len(lines) <= event.position < stop]
    except RecordUnreadable as error:  # also where the original was forgotten
        raise ApplicationError(str(error), type=RECORD_UNREADABLE, non_retryable=True) from None
    if len(lines) < stop or json.loads(lines[-1]).get("digest") != point.head:
        message = (
            f"thread {point.thread} does not have the event {point.position} with the digest {point.head} any more: "
            "it was reset or removed; look at its log, and fork it again"
        )
        raise ApplicationError(message, type=START_REFUSED, non_retryable=True)
    return lines


def chains(lines: Sequence[bytes]) -> bool:
    """Return whether each line's digest follows from the line before, from the first one of a log on."""
    head = GENESIS
    for line in lines:
        stored = parse_json(line)
        head = digest_of_line(head, stored, line)
        if stored.get("digest") != head:
            return False
    return True


async def share_artifacts(artifacts: ArtifactStore, *, origin: str, thread: str, lines: Sequence[bytes]) -> None:
    """Let a fork refer to its original's artifacts too, so that they outlive the original.

    Args:
        artifacts: The artifact store.
        origin: The thread that has them.
        thread: The fork.
        lines: The copied events.
    """
    if isinstance(artifacts, SharesArtifacts):
        await artifacts.share(origin, thread)
        return
    events = run_events(origin, [decode_stored(line) for line in lines])
    for address in dict.fromkeys(each for event in events for each in artifacts_of(event, named=False)):
        await artifacts.put(await artifacts.get(address), thread=thread)
