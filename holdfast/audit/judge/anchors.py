"""Compare node seals with a log: each was made when the permanent record stood at a certain event.

A seal that the log does not bear out shows that it was rewritten or truncated; unless a node has also sealed that it
took the log which the seal is of out of the record, after a reset, or to prune it. What the database says about resets
is no evidence, for its owner can write it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.log.node_seals import NodeSeal, read_seal

Nodes = Mapping[str, datetime | None]
"""Public keys of the nodes that are trusted; with a time, those whose later seals are not."""

MOST = 10_000
"""Seals that a log does not bear out which are looked at; of more, one is not accounted for."""
_MOST_GONE = 1_000
"""Seals of logs that are gone which are looked at."""
_MOST_NODES = 100
"""Nodes that are named."""


@dataclass
class Sorted:
    """What the seals of a thread show about a log. Its size is bounded, however many there are."""

    fitting: int = 0
    """How many the log bears out, each of which covers more than those before it."""
    covered: int = 0
    """The number of events that they cover."""
    misfits: list[NodeSeal] = field(default_factory=list)
    """Those that the log does not bear out, at most `MOST`; the one with the fewest events first."""
    gone: list[NodeSeal] = field(default_factory=list)
    """Those that say that a log was taken out of the record; the oldest first."""
    beyond: NodeSeal | None = None
    """One that the log does not bear out, where there are more than `MOST`."""
    most: int = 0
    """The most events that any seal covers."""
    nodes: set[str] = field(default_factory=set)
    """Whose seals count."""
    refused: tuple[str, ...] = ()
    """Why the others are no evidence, once for each reason."""

    @property
    def any(self) -> bool:
        """Whether a seal counts."""
        return bool(self.nodes)


def sort_out(
    lines: Iterable[bytes],
    digests: Mapping[int, str],
    *,
    thread: str,
    namespace: str | None = None,
    nodes: Nodes | None = None,
    whole: bool = True,
) -> Sorted:
    """Compare each seal with a log.

    Args:
        lines: As anchored.
        digests: The digests of the log's events, by position.
        thread: The thread's id.
        namespace: Temporal's namespace; None for any.
        nodes: The nodes that are trusted; None for all.
        whole: No event of the log is left out, so that one which is not there is missing.
    """
    found, refused = Sorted(), dict[str, tuple[int, str]]()
    misfits: dict[tuple[int, str], NodeSeal] = {}
    gone: dict[tuple[int, str, str], NodeSeal] = {}
    for line in lines:
        seal = read_seal(line)
        own = digests.get(seal.events - 1) if seal else None
        fits = seal is not None and own == seal.head
        why = _refusal(seal, thread=thread, namespace=namespace, nodes=nodes)
        if seal and not why:
            if fits and not seal.gone and seal.events <= found.covered:
                continue  # it says less than one before it
            why = "" if seal.is_signed() else "seals that their node did not sign"
        if seal is None or why:
            count, shown = refused.get(why, (0, "" if seal is None else f", such as {_shown(seal)}"))
            refused[why] = count + 1, shown
            continue
        found.most = max(found.most, seal.events)
        if len(found.nodes) < _MOST_NODES:
            found.nodes.add(seal.node)
        if seal.gone:
            last = gone.get((seal.events, seal.head, seal.node))
            if len(gone) < _MOST_GONE and (last is None or last.at < seal.at):
                gone[seal.events, seal.head, seal.node] = seal
        elif fits:
            found.fitting, found.covered = found.fitting + 1, seal.events
        elif own is not None or whole:
            before = misfits.get((seal.events, seal.head))
            if before is None and len(misfits) == MOST:
                found.beyond = seal
            elif before is None or before.at < seal.at:
                misfits[seal.events, seal.head] = seal
    found.misfits = sorted(misfits.values(), key=lambda seal: (seal.events, seal.at))
    found.gone = sorted(gone.values(), key=lambda seal: (seal.at, seal.events))
    found.refused = tuple(f"no evidence: {why} ({count}{shown})" for why, (count, shown) in refused.items())
    return found


def _refusal(seal: NodeSeal | None, *, thread: str, namespace: str | None, nodes: Nodes | None) -> str:
    """Return why a line is no evidence, whoever signed it; empty if it may be."""
    if seal is None:
        return "lines that are not seals"
    if seal.thread != thread:
        return "seals of another thread"
    if namespace is not None and seal.namespace != namespace:
        return "seals of another namespace"
    if nodes is not None and seal.node not in nodes:
        return "seals of nodes that are not among the given ones"
    if not is_trusted(seal, nodes):
        return "seals from after their node's key was revoked"
    return ""


def is_trusted(seal: NodeSeal, nodes: Nodes | None) -> bool:
    """Whether a seal is of a node that is trusted, and was made before its key was revoked; None trusts all nodes."""
    if nodes is None:
        return True
    until = nodes.get(seal.node)
    return seal.node in nodes and (until is None or seal.at < until)


def _shown(seal: NodeSeal) -> str:
    return f"{seal.events} events of thread {seal.thread[:100]!r} in {seal.namespace[:100]!r} by {seal.node}"


def accounted_for(
    seal: NodeSeal, gone: Sequence[NodeSeal], branches: Sequence[Mapping[int, str]], *, trusting: bool
) -> NodeSeal | None:
    """Return the seal by which a node says that it took the log of `seal` out of the record; None if there is none.

    Args:
        seal: The log does not bear it out.
        gone: Seals of logs that are gone.
        branches: Digests of logs that the database says were set aside: if one leads to the end of a log that is gone,
            it shows what that was.
        trusting: All nodes are trusted: one accounts for its own seals alone.
    """
    for each in gone:
        if each.events < seal.events or (trusting and each.node != seal.node):
            continue
        if (each.events, each.head) == (seal.events, seal.head):
            return each
        same = [known for known in branches if known.get(each.events - 1) == each.head]
        if any(known.get(seal.events - 1) == seal.head for known in same) or (not same and seal.at <= each.at):
            return each
    return None


def misfit_words(seal: NodeSeal) -> str:
    """Say what a seal shows that a log does not bear out."""
    return (
        f"the log was rewritten or truncated: on {seal.at:%Y-%m-%d at %H:%M:%S} UTC, node {seal.node} saw "
        f"event {seal.events - 1} with the digest {seal.head}"
    )
