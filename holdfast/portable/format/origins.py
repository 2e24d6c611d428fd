"""Where the entries of a log come from: the trace that each belongs to, and the node that has sealed it first.

Both follow from what a file has anyway, so no entry of a log has them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.base.canonical import digest
from holdfast.core.log.node_seals import NodeSeal
from holdfast.errors import NotPortable


@dataclass(frozen=True)
class Segment:
    """A stretch of a log that one chain of Temporal runs has recorded; it ends where the next one begins."""

    position: int
    """Its first event."""
    first_run_id: str
    """Temporal's id of the first run of the chain."""
    trace_id: str


@dataclass(frozen=True)
class Stretch:
    """Events that a node was the first to seal."""

    first: int
    last: int
    node: str
    """The node's public key."""


def trace_id(first_run_id: str) -> str:
    """Return the trace id of a chain of Temporal runs: 32 hex digits, as W3C Trace Context has them."""
    return digest(["trace/1", first_run_id])[:32]


def segments_of(context: bytes) -> tuple[Segment, ...]:
    """Return the segments that a file's `context.json` names; none where it does not name them as we do."""
    try:
        found = [Segment(**each) for each in json.loads(context)["segments"]]
        kinds = {(type(each.position), type(each.first_run_id)) for each in found} <= {(int, str)}
        sound = kinds and all(each.trace_id == trace_id(each.first_run_id) for each in found)
    except (ValueError, TypeError, KeyError, RecursionError, NotPortable):
        return ()
    return tuple(found) if sound else ()


def stretches(seals: Iterable[NodeSeal]) -> tuple[Stretch, ...]:
    """Return which node was the first to seal which events.

    Each event belongs to the seal with the fewest events that covers it; of several with as many, to the one whose
    line is the first. Events that no seal covers are in no stretch.
    """
    found: list[Stretch] = []
    covered = 0
    for events, _, node in sorted((seal.events, seal.line(), seal.node) for seal in seals):
        if events <= covered:
            continue
        if found and found[-1].node == node:
            found[-1] = Stretch(found[-1].first, events - 1, node)
        else:
            found.append(Stretch(covered, events - 1, node))
        covered = events
    return tuple(found)
