"""Compare node seals with a log: each states the length and head of the permanent record at one moment.

A seal that contradicts the log shows that the log was rewritten or truncated, unless a node has also sealed that it
removed the sealed log from the record, after a reset or to prune it. A reset claimed only by the database is not
evidence, because the database's owner can forge it. The seal of a restored backup explains only later events.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.core.log.node_seals import SignedCheckpoint, read_seal

Nodes = Mapping[str, datetime | None]
"""Public keys of trusted nodes, each with the time from which its seals are not trusted, or None."""

MOST = 10_000
"""The most contradicting seals that are kept; if there are more, one of them counts as unexplained."""
_MOST_GONE = 1_000
"""The most seals of removed logs that are kept."""
_MOST_NODES = 100
"""The most nodes that are named."""


@dataclass
class SortedCheckpoints:
    """The seals of a thread, sorted by their relation to a log. Its size is bounded."""

    matching: int = 0
    """The number of seals that the log matches, each of which covers more events than those before it."""
    covered: int = 0
    """The number of events that they cover."""
    mismatches: list[SignedCheckpoint] = field(default_factory=list)
    """The seals that contradict the log, at most `MOST`, by the number of events."""
    gone: list[SignedCheckpoint] = field(default_factory=list)
    """The seals that state that a log was removed from the record, the oldest first."""
    beyond: SignedCheckpoint | None = None
    """One of the contradicting seals beyond `MOST`; None if there are no more."""
    most: int = 0
    """The most events that any seal covers."""
    nodes: set[str] = field(default_factory=set)
    """The nodes whose seals count."""
    refused: tuple[str, ...] = ()
    """The reasons why other lines are no evidence, each once."""

    @property
    def any(self) -> bool:
        """Whether a seal counts."""
        return bool(self.nodes)


def sort_seals(
    lines: Iterable[bytes],
    digests: Mapping[int, str],
    *,
    thread: str,
    namespace: str | None = None,
    nodes: Nodes | None = None,
    whole: bool = True,
) -> SortedCheckpoints:
    """Compare each seal with a log.

    Args:
        lines: The anchored lines.
        digests: The digests of the log's events, by position.
        thread: The thread's id.
        namespace: Temporal's namespace; None for any.
        nodes: The trusted nodes; None for all.
        whole: Whether the log is complete, so that a sealed event that it lacks is missing.
    """
    result, refused = SortedCheckpoints(), dict[str, tuple[int, str]]()
    mismatches: dict[tuple[int, str], SignedCheckpoint] = {}
    gone: dict[tuple[int, str, str], SignedCheckpoint] = {}
    for line in lines:
        seal = read_seal(line)
        own = digests.get(seal.events - 1) if seal else None
        fits = seal is not None and own == seal.head
        reason = _refusal(seal, thread=thread, namespace=namespace, nodes=nodes)
        if seal and not reason:
            if fits and not seal.gone and seal.events <= result.covered:
                continue  # an earlier seal covers more
            reason = "" if seal.is_signed() else "seals that their node did not sign"
        if seal is None or reason:
            count, shown = refused.get(reason, (0, "" if seal is None else f", such as {_shown(seal)}"))
            refused[reason] = count + 1, shown
            continue
        result.most = max(result.most, seal.events)
        if len(result.nodes) < _MOST_NODES:
            result.nodes.add(seal.node)
        if seal.gone:
            last = gone.get((seal.events, seal.head, seal.node))
            if len(gone) < _MOST_GONE and (last is None or last.at < seal.at):
                gone[seal.events, seal.head, seal.node] = seal
        elif fits:
            result.matching, result.covered = result.matching + 1, seal.events
        elif own is not None or whole:
            before = mismatches.get((seal.events, seal.head))
            if before is None and len(mismatches) == MOST:
                result.beyond = seal
            elif before is None or before.at < seal.at:
                mismatches[seal.events, seal.head] = seal
    result.mismatches = sorted(mismatches.values(), key=lambda seal: (seal.events, seal.at))
    result.gone = sorted(gone.values(), key=lambda seal: (seal.at, seal.events))
    result.refused = tuple(f"no evidence: {reason} ({count}{shown})" for reason, (count, shown) in refused.items())
    return result


def _refusal(seal: SignedCheckpoint | None, *, thread: str, namespace: str | None, nodes: Nodes | None) -> str:
    """Return the reason why a line is no evidence, regardless of its signature; empty if it may be evidence."""
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


def is_trusted(seal: SignedCheckpoint, nodes: Nodes | None) -> bool:
    """Whether a seal is by a trusted node, from before its key was revoked; None trusts all nodes."""
    if nodes is None:
        return True
    until = nodes.get(seal.node)
    return seal.node in nodes and (until is None or seal.at < until)


def _shown(seal: SignedCheckpoint) -> str:
    return f"{seal.events} events of thread {seal.thread[:100]!r} in {seal.namespace[:100]!r} by {seal.node}"


def explaining_seal(
    seal: SignedCheckpoint, gone: Sequence[SignedCheckpoint], branches: Sequence[Mapping[int, str]], *, trusting: bool
) -> SignedCheckpoint | None:
    """Return the seal that states that the log of `seal` was removed from the record; None if there is none.

    Args:
        seal: A seal that contradicts the log.
        gone: Seals of removed logs.
        branches: Digests of archived branches in the database: one that ends like a removed log shows the content of
            that log.
        trusting: Whether all nodes are trusted; then each explains only its own seals.
    """
    for each in gone:
        if each.events < seal.events or (trusting and each.node != seal.node):
            continue
        if each.kept >= seal.events:
            continue  # the restored record has to have these events
        if (each.events, each.head) == (seal.events, seal.head):
            return each
        same = [known for known in branches if known.get(each.events - 1) == each.head]
        if any(known.get(seal.events - 1) == seal.head for known in same) or (not same and seal.at <= each.at):
            return each
    return None


def mismatch_text(seal: SignedCheckpoint) -> str:
    """Describe the contradiction between a seal and a log."""
    return (
        f"the log was rewritten or truncated: on {seal.at:%Y-%m-%d at %H:%M:%S} UTC, node {seal.node} saw "
        f"event {seal.events - 1} with the digest {seal.head}"
    )
