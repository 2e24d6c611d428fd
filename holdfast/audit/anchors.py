"""Compare node seals with a log: each was made when the permanent record stood at a certain event."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from holdfast.log.node_seals import NodeSeal, read_seal


@dataclass(frozen=True)
class Anchored:
    """What anchors have of a thread."""

    seals: tuple[NodeSeal, ...] = ()
    """Those that are evidence; the one with the fewest events first."""
    refused: tuple[str, ...] = ()
    """Why the others are none, once for each reason."""


def anchored(
    lines: Iterable[bytes], *, thread: str, namespace: str | None = None, nodes: Set[str] | None = None
) -> Anchored:
    """Sort out which of the lines are evidence about a thread.

    Args:
        lines: As anchored.
        thread: The thread's id.
        namespace: Temporal's namespace; None for any.
        nodes: The public keys of the nodes that are trusted; None for all.
    """
    seals: dict[NodeSeal, None] = {}
    refused: dict[str, list[str]] = {}
    for line in lines:
        seal = read_seal(line)
        if why := _refusal(seal, thread=thread, namespace=namespace, nodes=nodes):
            refused.setdefault(why, []).append("" if seal is None else f", such as {_shown(seal)}")
        elif seal:
            seals[seal] = None
    words = tuple(f"no evidence: {why} ({len(found)}{found[0]})" for why, found in refused.items())
    return Anchored(tuple(sorted(seals, key=lambda seal: (seal.events, seal.at))), words)


def _refusal(seal: NodeSeal | None, *, thread: str, namespace: str | None, nodes: Set[str] | None) -> str:
    """Return why a line is no evidence; empty if it is."""
    if seal is None:
        return "lines that are not seals"
    if not seal.is_signed():
        return "seals that their node did not sign"
    if seal.thread != thread:
        return "seals of another thread"
    if namespace is not None and seal.namespace != namespace:
        return "seals of another namespace"
    if nodes is not None and seal.node not in nodes:
        return "seals of nodes that are not among the given ones"
    return ""


def _shown(seal: NodeSeal) -> str:
    return f"{seal.events} events of thread {seal.thread[:100]!r} in {seal.namespace[:100]!r} by {seal.node}"


def misfits(seals: Sequence[NodeSeal], digests: Mapping[int, str], *, whole: bool = True) -> list[NodeSeal]:
    """Return the seals that a log does not bear out, in their order.

    Args:
        seals: Evidence about its thread.
        digests: The digests of its events, by position.
        whole: No event of the log is left out, so that one which is not there is missing.
    """
    return [seal for seal in seals if digests.get(seal.events - 1, "" if whole else seal.head) != seal.head]


def superseded(seal: NodeSeal, fitting: Sequence[NodeSeal]) -> bool:
    """Whether a node has sealed the log as it is after this seal, beyond what it covers: a reset came in between."""
    return any(later.at > seal.at and later.events >= seal.events for later in fitting)


def misfit_words(seal: NodeSeal) -> str:
    """Say what a seal shows that a log does not bear out."""
    return (
        f"the log was rewritten or truncated: on {seal.at:%Y-%m-%d at %H:%M:%S} UTC, node {seal.node} saw "
        f"event {seal.events - 1} with the digest {seal.head}"
    )
