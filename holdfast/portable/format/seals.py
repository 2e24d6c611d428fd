"""Node seals in a portable file: those of its thread that the exporter's anchors had, and the nodes that made them.

They are optional; each must match the log. The reader decides which nodes to trust.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from holdfast.core.base.canonical import canonical
from holdfast.core.log.node_seals import SignedCheckpoint, read_seal
from holdfast.errors import NotPortable
from holdfast.portable.format.layout import Unsound
from holdfast.portable.format.members import NODES, SEALS
from holdfast.portable.format.origins import stretches

MOST_SEALS = 10_000
"""The most seals that an exporter writes into a file; of more, it takes those that cover the most events."""


@dataclass(frozen=True)
class FileCheckpoints:
    """Seals of a thread that may go into its file."""

    seals: tuple[SignedCheckpoint, ...] = ()

    @property
    def positions(self) -> frozenset[int]:
        """The positions of the last events that they cover."""
        return frozenset(seal.events - 1 for seal in self.seals)

    def members(self, digests: Mapping[int, str]) -> list[tuple[str, bytes]]:
        """Return the members for a log, with their content; none if no seal matches.

        Args:
            digests: The digests of its events, by position.
        """
        matching = [seal for seal in self.seals if digests.get(seal.events - 1) == seal.head]
        if not matching:
            return []
        lines = sorted({seal.line() for seal in matching})
        return [(SEALS, b"".join(line + b"\n" for line in lines)), (NODES, nodes_of(matching))]


def own_seals(lines: Iterable[bytes], *, thread: str, namespace: str) -> FileCheckpoints:
    """Choose the signed seals of a thread, except those of logs that are gone.

    Args:
        lines: The anchored lines.
        thread: The thread's id.
        namespace: Temporal's namespace.
    """
    chosen: dict[bytes, SignedCheckpoint] = {}
    for line in lines:
        seal = read_seal(line)
        if seal and (seal.thread, seal.namespace, seal.gone) == (thread, namespace, "") and seal.is_signed():
            chosen[seal.line()] = seal
            if len(chosen) > 2 * MOST_SEALS:
                chosen = {each.line(): each for each in _most(chosen.values())}
    return FileCheckpoints(tuple(_most(chosen.values())))


def _most(seals: Iterable[SignedCheckpoint]) -> list[SignedCheckpoint]:
    return sorted(seals, key=lambda seal: (seal.events, seal.at), reverse=True)[:MOST_SEALS]


def nodes_of(seals: Iterable[SignedCheckpoint]) -> bytes:
    """Return the member with the nodes of seals, sorted, and the events that each was the first to seal."""
    known = list(seals)
    first = [asdict(stretch) for stretch in stretches(known)]
    return canonical({"nodes": sorted({seal.node for seal in known}), "stretches": first})


def claimed_positions(content: bytes) -> set[int]:
    """Return the positions of events that the lines of a file's seals name; the lines are not checked."""
    positions: set[int] = set()
    for line in content.splitlines():
        if seal := read_seal(line):
            positions.add(seal.events - 1)
    return positions


def check_seals(content: bytes, *, thread: str, digests: Mapping[int, str]) -> tuple[SignedCheckpoint, ...]:
    """Return the seals of a file.

    Args:
        content: The member.
        thread: The thread's id, from the manifest.
        digests: The digests of the events that the seals name, by position.

    Raises:
        Unsound: Seals are out of order; or one is of another thread, has no valid signature, or contradicts the log.
    """
    lines = content.split(b"\n")
    if lines.pop() or not lines or lines != sorted(set(lines)):
        raise Unsound(SEALS, "its lines are out of order, or one is there twice, or none")
    seals: list[SignedCheckpoint] = []
    for line in lines:
        seal = read_seal(line)
        if seal is None or seal.gone or seal.thread != thread or _line(seal) != line or not seal.is_signed():
            raise Unsound(SEALS, "a line is no seal of this thread that its node has signed")
        if digests.get(seal.events - 1) != seal.head:
            seen = f"node {seal.node} saw event {seal.events - 1} with the digest {seal.head}"
            raise Unsound(SEALS, f"a seal does not fit the log: {seen}")
        seals.append(seal)
    return tuple(seals)


def _line(seal: SignedCheckpoint) -> bytes:
    try:
        return seal.line()
    except NotPortable:
        return b""


def check_nodes(content: bytes, seals: Iterable[SignedCheckpoint]) -> None:
    """Check that the member names exactly the nodes of the seals.

    Raises:
        Unsound: It lists other nodes.
    """
    if content != nodes_of(seals):
        raise Unsound(NODES, "it does not name exactly the nodes of the seals, and what they sealed first")
