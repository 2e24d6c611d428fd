"""A run's prompt, its tree, its state at an event and the verdict on its record, as template data."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.audit.evidence.verdicts import Verification
from holdfast.client.trees import Node
from holdfast.config.page_links import path_of
from holdfast.gateway.page.views.runs import Fact, css_class
from holdfast.gateway.page.views.text import Block, Piece, When, block, line, pieces, when

JSON = Mapping[str, Any]

WIDTH = 1_000
"""The width of a bar, in its own units."""
SHOWN_CHARS = 20_000
"""The most characters of a tier; the command line has all of it."""
DEEPEST = 8
"""The deepest level of a tree that is indented further."""


class TierRow(NamedTuple):
    """A part of the prompt."""

    name: str
    size: str
    bar: int
    """Its share of the request, in units of `WIDTH`."""
    text: Block | None


class PromptPage(NamedTuple):
    """The next request to the LLM."""

    facts: tuple[Fact, ...]
    tiers: tuple[TierRow, ...]
    waits: tuple[tuple[Piece, ...], ...]


class TreeRow(NamedTuple):
    """A run in a tree."""

    depth: int
    thread: str
    path: str
    agent: str
    status: str
    status_words: str
    used: str
    needs: str
    """What it needs a person for; empty for nothing."""


class Verdict(NamedTuple):
    """The verdict on a record."""

    css: str
    """`good`, `bad`, or empty."""
    words: str
    at: When | None
    events: int
    faults: tuple[Fact, ...]
    unchecked: tuple[Fact, ...]
    facts: tuple[Fact, ...]


def prompt_page(view: JSON) -> PromptPage:
    """Return a prompt for display; `view` is as `prompt --json` presents it."""
    whole = max(1, int(view.get("tokens") or 0), *(int(each["tokens"]) for each in view["tiers"]))
    provider = view.get("provider") or {}
    facts = [
        Fact("Request", f"{view['bytes']:,} bytes, about {view['tokens']:,} tokens"),
        Fact("Messages", f"{view['messages']:,}, after {view['compactions']:,} context compactions"),
        Fact("LLM", line(view.get("llm") or "")),
    ]
    if provider:
        cached = f", {int(provider.get('cached_tokens') or 0):,} of them from its cache"
        facts.append(Fact("The provider counted", f"{int(provider.get('prompt_tokens') or 0):,} tokens{cached}"))
    if view.get("compacting"):
        facts.append(Fact("Next", "it asks for the summary of a context compaction"))
    return PromptPage(
        tuple(facts),
        tuple(_tier(each, whole) for each in view["tiers"]),
        tuple(pieces(line(f"{each['kind']}: {each['text']}", 400)) for each in view["waits"]),
    )


def _tier(tier: JSON, whole: int) -> TierRow:
    tokens, budget = int(tier["tokens"]), tier.get("budget")
    limit = f" of {budget:,} ({round(100 * tokens / budget)} %)" if budget else ""
    text = str(tier.get("text") or "")
    cut = f"\n… cut: {SHOWN_CHARS:,} of {len(text):,} characters" if len(text) > SHOWN_CHARS else ""
    return TierRow(
        line(tier["tier"]),
        f"{tokens:,} tokens{limit}, {int(tier['chars']):,} characters",
        round(WIDTH * tokens / whole),
        block(str(tier["tier"]), text[:SHOWN_CHARS] + cut) if text else None,
    )


def tree_rows(top: Node) -> tuple[TreeRow, ...]:
    """Return the runs of a tree, each before those below it."""
    rows = []
    for depth, node in top.walk():
        usage = node.usage or {}
        tokens = int(usage.get("prompt_tokens") or 0) + int(usage.get("completion_tokens") or 0)
        needs = [f"{len(node.pending)} open requests"] if node.pending else []
        needs += ["blocked"] if node.blocked else []
        needs += ["paused"] if node.paused else []
        needs += [f"not read: {node.error}"] if node.error else []
        rows.append(
            TreeRow(
                min(depth, DEEPEST),
                line(node.thread, 300),
                path_of("runs", node.thread),
                line(node.agent or ""),
                css_class(str(node.status)),
                line(str(node.status).replace("_", " ")),
                f"step {node.step:,}, {tokens:,} tokens" if node.usage else f"step {node.step:,}",
                line("; ".join(needs), 300),
            )
        )
    return tuple(rows)


_VERDICTS: Mapping[str, tuple[str, str]] = {
    "proven": ("good", "Proven: nothing was altered"),
    "not_proven": ("", "Not proven: no fault was found, and some checks could not be made"),
    "altered": ("bad", "Altered: the record has a fault"),
}


def verdict_view(found: Verification, at: datetime, now: datetime) -> Verdict:
    """Return the result of a verification for display."""
    css, words = _VERDICTS[found.verdict]
    faults = [_fault(each.where, each.position, each.reason) for each in found.faults]
    facts = [
        Fact("Events", f"{found.events:,}, from the {' and the '.join(found.sources)}"),
        Fact("Checked", ", ".join(found.checked) or "nothing as a whole"),
        Fact("Signatures", f"{found.signatures:,} verified"),
    ]
    facts += [Fact("Seals", f"{found.seals:,} match")] if found.seals else []
    facts += [Fact("Advice", line(found.advice, 400))] if found.advice else []
    facts += [Fact("Note", line(each, 400)) for each in found.notes]
    return Verdict(
        css,
        words,
        when(at, now),
        found.events,
        tuple(faults),
        tuple(Fact(line(each.what), line(each.why, 400)) for each in found.unchecked),
        tuple(facts),
    )


def _fault(where: str, position: int | None, reason: str) -> Fact:
    return Fact(line(where if position is None else f"{where}, event {position}"), line(reason, 600))


def state_blocks(state: JSON) -> tuple[Block, ...]:
    """Return the parts of a state that its head does not have: rules, constraints, sub-agents and the like."""
    return tuple(block(name, state[name]) for name in _PARTS if state.get(name))


_PARTS = (
    "refinements",
    "remembered",
    "delegated",
    "constraints",
    "subagents",
    "delayed",
    "dormancy",
    "context",
    "limits",
)
