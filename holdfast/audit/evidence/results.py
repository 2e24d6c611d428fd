"""Summarise which nodes made the calls of a thread, and what about their signatures could not be checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.audit.evidence.evidence import Unchecked
from holdfast.audit.judge.signed_results import MadeCall

_MOST_NODES = 20
"""The most nodes that are named."""


@dataclass(frozen=True)
class NodeCalls:
    """The calls of a thread that one node made."""

    node: str
    """The public key; the id, if the key is not known."""
    known: bool
    """Whether the signatures were verified with the node's key."""
    llm: int
    """The number of LLM calls."""
    tools: int
    """The number of tool calls."""


def calls_by_node(calls: Sequence[MadeCall]) -> list[NodeCalls]:
    """Return the nodes that made signed calls, in the order of their first ones, at most twenty."""
    nodes: dict[tuple[str, bool], list[MadeCall]] = {}
    for call in calls:
        if call.node:
            nodes.setdefault((call.key or call.node, bool(call.key)), []).append(call)
    return [
        NodeCalls(node, known, sum(call.call is None for call in own), sum(call.call is not None for call in own))
        for (node, known), own in list(nodes.items())[:_MOST_NODES]
    ]


def any_signed(calls: Sequence[MadeCall]) -> bool:
    """Whether a result has a signature."""
    return any(call.node for call in calls)


def unchecked_results(calls: Sequence[MadeCall]) -> list[Unchecked]:
    """Return the gaps in the signatures of results; none for a log without any."""
    if not any_signed(calls):
        return []
    gaps = []
    if unsigned := [call for call in calls if not call.node]:
        text = f"{len(unsigned)} of {len(calls)} results have no signature, such as event {unsigned[0].position}"
        gaps.append(Unchecked("results", f"{text}: their worker had no key, or was lost, or somebody removed it"))
    if unknown := sorted({call.node for call in calls if call.node and not call.key}):
        count = sum(bool(call.node and not call.key) for call in calls)
        named = ", ".join(unknown[:_MOST_NODES])
        text = f"{count} results name nodes whose keys are not known here, or were revoked by then ({named})"
        gaps.append(Unchecked("results", f"{text}: give the keys that you trust with --nodes"))
    return gaps


def all_signed(calls: Sequence[MadeCall]) -> bool:
    """Whether there are results, and known nodes have signed all of them."""
    return bool(calls) and all(call.key for call in calls)
