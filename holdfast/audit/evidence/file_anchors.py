"""Compare a portable file with seals: with those in anchors, and with those that its exporter put into it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.audit.evidence.anchors import Compared, ThreadSeals, compare, compare_sorted
from holdfast.audit.evidence.evidence import Unchecked
from holdfast.audit.judge.anchors import Nodes
from holdfast.core.log.node_seals import read_seal

OWN_SEALS = Unchecked(
    "anchors",
    "the seals in the file are those that its exporter chose: --anchors compares it with all that are anchored",
)


def compare_file(seals: ThreadSeals, digests: Mapping[int, str]) -> Compared:
    """Compare seals with the log in a portable file, which may be an early part.

    A file does not say of which namespace its thread is. If seals of several have its id, it need fit those of one.

    Args:
        seals: The thread's seals, of any namespace.
        digests: The digests of the file's events.

    Raises:
        SettingsError: An anchor cannot be read.
    """
    names = seals.namespaces()
    each = {name: _compare_file(replace(seals, namespace=name), digests) for name in names}
    # Where all nodes are trusted, anybody can make up a namespace with seals that fit a forged file.
    trusting = seals.nodes is None
    fits = max(names, key=lambda name: (bool(each[name].faults) is trusting, each[name].seals), default=None)
    if fits is None:
        return _compare_file(seals, digests)
    others = [name[:100] for name in names if name != fits]
    if not others:
        return each[fits]
    why = f"the file was compared with seals of namespace {fits[:100]!r}; there are others, of {', '.join(others)}"
    unchecked = [one for one in each[fits].unchecked if "seals of another namespace" not in one.why]
    return replace(each[fits], unchecked=(*unchecked, Unchecked("anchors", why)))


def _compare_file(seals: ThreadSeals, digests: Mapping[int, str]) -> Compared:
    found = seals.sort_out(digests, whole=False)
    compared = compare_sorted(found, seals, digests)
    if found.most <= len(digests):
        return compared
    why = f"a seal covers {found.most} events: the file was made before, or is cut off"
    return replace(compared, unchecked=(*compared.unchecked, Unchecked("anchors", why)))


def compare_own(lines: Sequence[bytes], thread: str, nodes: Nodes | None, events: int) -> Compared:
    """Say what the seals in a portable file show, each of which fits its log.

    Args:
        lines: The seals.
        thread: The thread.
        nodes: The nodes that are trusted; None for all.
        events: How many events the log has.
    """
    heads = {seal.events - 1: seal.head for line in lines if (seal := read_seal(line))}
    seals = ThreadSeals(thread, None, nodes, lines)
    compared = compare(seals, {events - 1: "", **heads}, whole=False)
    return replace(compared, unchecked=(OWN_SEALS, *compared.unchecked))
