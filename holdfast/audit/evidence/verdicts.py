"""The three verdicts of a verification: proven, not proven, altered.

1. Any fault means altered.
2. Proven needs a witness to the origin of the log: a Temporal history whose MACs were checked, seals of trusted nodes,
   or the signature of a trusted signer. Checks that the witness makes needless may be missing.
3. Everything else is not proven, and the gaps are named.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from holdfast.audit.evidence.evidence import ADVICE, Finding, Unchecked
from holdfast.audit.judge.signed_results import MadeCall

Verdict = Literal["proven", "not_proven", "altered"]

Check = Literal[
    "history", "seals", "record", "ledger", "artifacts", "anchors", "results", "keys", "iterations", "signature"
]
"""The checks, which a caller may require."""

CHECKS: tuple[Check, ...] = get_args(Check)

_GAPS: Mapping[str, str] = {"nodes": "anchors", "policy": "keys", "signer": "signature"}
"""Gap → the check that is incomplete because of it."""

_NEEDLESS: Mapping[str, frozenset[str]] = {
    "seals": frozenset({"anchors", "nodes", "results", "keys", "policy"}),
    "anchors": frozenset({"history", "seals", "beginning", "results", "keys", "policy", "signature", "signer"}),
    "signature": frozenset({"history", "seals", "anchors", "nodes", "results", "keys", "policy"}),
}
"""Witness → the gaps that it makes irrelevant. The witness `seals` is the check of a history's MACs, if the history
reaches back to the beginning."""


@dataclass(frozen=True)
class Verification:
    """The result of verifying a thread."""

    thread: str
    verdict: Verdict
    events: int
    """The number of events that were checked."""
    sources: tuple[str, ...]
    """The sources of the events: `history`, `record`."""
    first: int = 0
    """The position of the first checked event; no source has the events before it."""
    checked: tuple[str, ...] = ()
    """The complete checks, from `CHECKS`."""
    unchecked: tuple[Unchecked, ...] = ()
    """The checks that could not be made, with reasons."""
    faults: tuple[Finding, ...] = ()
    """The faults, in the order of their events."""
    advice: str = ""
    """Advice about the first fault."""
    signatures: int = 0
    """The number of verified signatures."""
    seals: int = 0
    """The number of node seals from anchors that the log matches."""
    calls: tuple[MadeCall, ...] = ()
    """The LLM and tool calls, each with the node that made it; none if no result has a signature."""
    head: str = ""
    """The digest of the log's last event."""
    notes: tuple[str, ...] = ()
    """Other findings, which do not affect the verdict."""

    @property
    def ok(self) -> bool:
        """Whether no fault was found. That proves nothing: see `verdict`."""
        return self.verdict != "altered"

    @property
    def where(self) -> str:
        """The location of the first fault: `record`, `history`, `ledger`, `artifacts`; in a file, a member or `zip`."""
        return self.faults[0].where if self.faults else ""

    @property
    def position(self) -> int | None:
        """Position of the event at fault; None if the first fault is in no event."""
        return self.faults[0].position if self.faults else None

    @property
    def reason(self) -> str:
        """The first fault; empty if there is none."""
        return self.faults[0].reason if self.faults else ""


VerificationT = TypeVar("VerificationT", bound=Verification)


def conclude(
    thread: str,
    events: int,
    sources: tuple[str, ...],
    faults: Sequence[Finding],
    gaps: Sequence[Unchecked],
    *,
    begun: Set[str] = frozenset(),
    **fields: Any,
) -> Verification:
    """Return the result of verifying a thread or a loop.

    Args:
        thread: The id of the thread or loop.
        events: The number of events that were checked.
        sources: The sources of the events.
        faults: The faults.
        gaps: The checks that could not be made.
        begun: The checks that were begun.
        fields: Other fields of the result.
    """
    ordered = tuple(sorted(faults, key=lambda fault: fault.order))
    checked = checked_of(begun, gaps)
    return Verification(
        thread=thread,
        verdict=verdict_of(ordered, checked, gaps),
        events=events,
        sources=sources,
        checked=checked,
        unchecked=tuple(gaps),
        faults=ordered,
        advice=ADVICE[ordered[0].where] if ordered else "",
        **fields,
    )


def checked_of(begun: Set[str], gaps: Sequence[Unchecked]) -> tuple[str, ...]:
    """Return the complete checks: those that were begun and have no gap."""
    names = {gap.what for gap in gaps}
    names |= {_GAPS[name] for name in names & _GAPS.keys()}
    return tuple(name for name in CHECKS if name in begun and name not in names)


def verdict_of(faults: Sequence[Finding], checked: Sequence[str], gaps: Sequence[Unchecked]) -> Verdict:
    """Derive the verdict from the faults, the complete checks and the gaps."""
    if faults:
        return "altered"
    names = {gap.what for gap in gaps}
    for witness, needless in _NEEDLESS.items():
        if witness in checked and not names - needless:
            return "proven"
    return "not_proven"


def required(verification: VerificationT, names: Sequence[str]) -> VerificationT:
    """Require these checks: without one of them, the verdict is at best not proven."""
    known = {gap.what for gap in verification.unchecked}
    lacking = [name for name in names if name not in verification.checked]
    if not lacking:
        return verification
    added = tuple(Unchecked(name, "it is required, and was not checked") for name in lacking if name not in known)
    verdict: Verdict = "altered" if verification.verdict == "altered" else "not_proven"
    return replace(verification, verdict=verdict, unchecked=(*verification.unchecked, *added))


def view_of(verification: Verification) -> dict[str, Any]:
    """Return the result in the form of `verify --json`."""
    view = asdict(verification)
    view["not_checked"] = view.pop("unchecked")
    first = {"where": verification.where, "position": verification.position, "reason": verification.reason}
    return {"thread": view.pop("thread"), "verdict": view.pop("verdict"), "from": view.pop("sources"), **view, **first}
