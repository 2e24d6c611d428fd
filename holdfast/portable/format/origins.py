"""The origins of the events of a log: the trace that each belongs to, and the node that sealed it first.

Both are derived from other members of a file, so events do not carry them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.base.canonical import digest
from holdfast.core.log.node_seals import SignedCheckpoint
from holdfast.errors import NotPortable


@dataclass(frozen=True)
class Segment:
    """A stretch of a log that one chain of Temporal runs recorded, up to the beginning of the next one."""

    position: int
    """The position of its first event."""
    first_run_id: str
    """Temporal's id of the first run of the chain."""
    trace_id: str
    """The trace of the chain; of a thread that was moved, from feature level 2 on, that of the segment before."""


@dataclass(frozen=True)
class EventRange:
    """Events that a node was the first to seal."""

    first: int
    last: int
    node: str
    """The node's public key."""


def trace_id(first_run_id: str) -> str:
    """Return the trace id of a chain of Temporal runs: 32 hex digits, as in W3C Trace Context."""
    return digest(["trace/1", first_run_id])[:32]


def segments_of(context: bytes) -> tuple[Segment, ...]:
    """Return the segments in a file's `context.json`; none if they are malformed."""
    try:
        segments = [Segment(**each) for each in json.loads(context)["segments"]]
        kinds = {(type(each.position), type(each.first_run_id)) for each in segments} <= {(int, str)}
        before = [None, *(each.trace_id for each in segments)]
        traces = [(trace_id(each.first_run_id), last) for each, last in zip(segments, before, strict=False)]
        sound = kinds and all(each.trace_id in known for each, known in zip(segments, traces, strict=True))
    except (ValueError, TypeError, KeyError, RecursionError, NotPortable):
        return ()
    return tuple(segments) if sound else ()


def stretches(seals: Iterable[SignedCheckpoint]) -> tuple[EventRange, ...]:
    """Return the stretches of events by the node that sealed them first.

    Each event belongs to the seal with the fewest events that covers it and, among equals, to the one whose line sorts
    first. Events without a seal are in no stretch.
    """
    result: list[EventRange] = []
    covered = 0
    for events, _, node in sorted((seal.events, seal.line(), seal.node) for seal in seals):
        if events <= covered:
            continue
        if result and result[-1].node == node:
            result[-1] = EventRange(result[-1].first, events - 1, node)
        else:
            result.append(EventRange(covered, events - 1, node))
        covered = events
    return tuple(result)
