"""Compare a portable file with seals: those in anchors, and those that its exporter included."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.audit.evidence.anchors import CheckpointComparison, ThreadCheckpoints, compare, compare_sorted
from holdfast.audit.evidence.evidence import Unchecked
from holdfast.audit.judge.anchors import Nodes
from holdfast.core.log.node_seals import read_seal

OWN_SEALS = Unchecked(
    "anchors",
    "the seals in the file are those that its exporter chose: --anchors compares it with all that are anchored",
)


def compare_file(seals: ThreadCheckpoints, digests: Mapping[int, str]) -> CheckpointComparison:
    """Compare seals with the log in a portable file, which may be an early part.

    A file does not name the namespace of its thread. If several namespaces have seals of its id, it must match one.

    Args:
        seals: The thread's seals, of any namespace.
        digests: The digests of the file's events.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    names = seals.namespaces()
    each = {name: _compare_file(replace(seals, namespace=name), digests) for name in names}
    # If all nodes are trusted, anyone can invent a namespace with seals that match a forged file.
    trusting = seals.nodes is None
    fits = max(names, key=lambda name: (bool(each[name].faults) is trusting, each[name].seals), default=None)
    if fits is None:
        return _compare_file(seals, digests)
    others = [name[:100] for name in names if name != fits]
    if not others:
        return each[fits]
    reason = f"the file was compared with seals of namespace {fits[:100]!r}; there are others, of {', '.join(others)}"
    unchecked = [one for one in each[fits].unchecked if "seals of another namespace" not in one.why]
    return replace(each[fits], unchecked=(*unchecked, Unchecked("anchors", reason)))


def _compare_file(seals: ThreadCheckpoints, digests: Mapping[int, str]) -> CheckpointComparison:
    result = seals.sort_seals(digests, whole=False)
    compared = compare_sorted(result, seals, digests)
    if result.most <= len(digests):
        return compared
    reason = f"a seal covers {result.most} events: the file was made before, or is cut off"
    return replace(compared, unchecked=(*compared.unchecked, Unchecked("anchors", reason)))


def compare_own(lines: Sequence[bytes], thread: str, nodes: Nodes | None, events: int) -> CheckpointComparison:
    """Evaluate the seals in a portable file, each of which matches its log.

    Args:
        lines: The seals.
        thread: The thread.
        nodes: The trusted nodes; None for all.
        events: The number of events in the log.
    """
    heads = {seal.events - 1: seal.head for line in lines if (seal := read_seal(line))}
    seals = ThreadCheckpoints(thread, None, nodes, lines)
    compared = compare(seals, {events - 1: "", **heads}, whole=False)
    return replace(compared, unchecked=(OWN_SEALS, *compared.unchecked))
