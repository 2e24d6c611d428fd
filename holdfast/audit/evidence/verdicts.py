"""The three answers of a verification: proven, not proven, altered.

1. A fault means altered, whatever else was checked.
2. Proven takes a witness for who wrote the log: a Temporal history whose seals were checked, seals of nodes that are
   named, or the signature of a signer who is named. What that witness makes needless may stay unchecked.
3. Anything else is not proven, and the gaps have names.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, get_args

from holdfast.audit.evidence.evidence import ADVICE, Finding, Unchecked

Verdict = Literal["proven", "not_proven", "altered"]

Check = Literal["history", "seals", "record", "ledger", "artifacts", "anchors", "keys", "iterations", "signature"]
"""What can be checked, and required."""

CHECKS: tuple[Check, ...] = get_args(Check)

_GAPS: Mapping[str, str] = {"nodes": "anchors", "policy": "keys", "signer": "signature"}
"""A gap that means that another check was not made."""

_NEEDLESS: Mapping[str, frozenset[str]] = {
    "seals": frozenset({"anchors", "nodes", "keys", "policy"}),
    "anchors": frozenset({"history", "seals", "beginning", "keys", "policy", "signature", "signer"}),
    "signature": frozenset({"history", "seals", "anchors", "nodes", "keys", "policy"}),
}
"""Witness → the gaps that do not matter beside it. The witness of a history is the check of its seals, if the history
reaches back to the beginning."""


@dataclass(frozen=True)
class Verification:
    """The result of verifying a thread."""

    thread: str
    verdict: Verdict
    events: int
    """How many events were checked."""
    sources: tuple[str, ...]
    """The sources that they were read from: `history`, `record`."""
    first: int = 0
    """Position of the first event that could be checked: no source has the events before it."""
    checked: tuple[str, ...] = ()
    """What was checked, of `CHECKS`."""
    unchecked: tuple[Unchecked, ...] = ()
    """What could not be checked, and why."""
    faults: tuple[Finding, ...] = ()
    """What is wrong, the first event at fault first."""
    advice: str = ""
    """What to do about the first fault."""
    signatures: int = 0
    """How many signatures were verified."""
    seals: int = 0
    """How many seals of nodes, from anchors, the log bears out."""
    head: str = ""
    """The digest of the log's last event."""
    notes: tuple[str, ...] = ()
    """What else was found, which is no part of the thread."""

    @property
    def ok(self) -> bool:
        """Whether nothing that was checked is wrong. That proves nothing: `verdict` says whether enough was checked."""
        return self.verdict != "altered"

    @property
    def where(self) -> str:
        """The place of the first fault: `record`, `history`, `ledger`, `artifacts`; of a file a member, or `zip`."""
        return self.faults[0].where if self.faults else ""

    @property
    def position(self) -> int | None:
        """Position of the event at fault; None if the first fault is in no event."""
        return self.faults[0].position if self.faults else None

    @property
    def reason(self) -> str:
        """What is wrong first."""
        return self.faults[0].reason if self.faults else ""


VerificationT = TypeVar("VerificationT", bound=Verification)


def conclude(
    thread: str,
    events: int,
    sources: tuple[str, ...],
    faults: Sequence[Finding],
    gaps: Sequence[Unchecked],
    *,
    made: Set[str] = frozenset(),
    **found: Any,
) -> Verification:
    """Return the result of verifying a thread or a loop.

    Args:
        thread: Its id.
        events: How many events were checked.
        sources: Where they were read.
        faults: What is wrong.
        gaps: What could not be checked.
        made: The checks that were begun.
        found: Other fields of the result.
    """
    ordered = tuple(sorted(faults, key=lambda fault: fault.order))
    checked = checked_of(made, gaps)
    return Verification(
        thread=thread,
        verdict=verdict_of(ordered, checked, gaps),
        events=events,
        sources=sources,
        checked=checked,
        unchecked=tuple(gaps),
        faults=ordered,
        advice=ADVICE[ordered[0].where] if ordered else "",
        **found,
    )


def checked_of(made: Set[str], gaps: Sequence[Unchecked]) -> tuple[str, ...]:
    """Return which checks were made in full: of those that were begun, the ones without a gap."""
    names = {gap.what for gap in gaps}
    names |= {_GAPS[name] for name in names & _GAPS.keys()}
    return tuple(name for name in CHECKS if name in made and name not in names)


def verdict_of(faults: Sequence[Finding], checked: Sequence[str], gaps: Sequence[Unchecked]) -> Verdict:
    """Return the answer to what was found, checked and not checked."""
    if faults:
        return "altered"
    names = {gap.what for gap in gaps}
    for witness, needless in _NEEDLESS.items():
        if witness in checked and not names - needless:
            return "proven"
    return "not_proven"


def required(found: VerificationT, names: Sequence[str]) -> VerificationT:
    """Return the result where these checks have to have been made: without one of them, nothing is proven."""
    known = {gap.what for gap in found.unchecked}
    lacking = [name for name in names if name not in found.checked]
    if not lacking:
        return found
    added = tuple(Unchecked(name, "it is required, and was not checked") for name in lacking if name not in known)
    verdict: Verdict = "altered" if found.verdict == "altered" else "not_proven"
    return replace(found, verdict=verdict, unchecked=(*found.unchecked, *added))


def view_of(found: Verification) -> dict[str, Any]:
    """Return the result as `verify --json` prints it."""
    view = asdict(found)
    view["not_checked"] = view.pop("unchecked")
    first = {"where": found.where, "position": found.position, "reason": found.reason}
    return {"thread": view.pop("thread"), "verdict": view.pop("verdict"), "from": view.pop("sources"), **view, **first}
