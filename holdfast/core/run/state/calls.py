"""The tool calls of the current step, and the table of the legal transitions of a call.

A call is `requested`, `allowed`, `started` and `finished`. If approval is required, it is `awaiting_approval` before it
is allowed; if its tool has a preview, it is `previewing` before that. `outcome_unknown`: it was started, and people are
asked whether its effect happened. `awaiting_answer`: its server asked people a question. `orphaned`: its effect was
under way when the run was closed from outside; the run has to resolve it before it does anything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.authority.policy import Requirement, Terms
from holdfast.core.base.models import replace
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.effects import PastEffect
from holdfast.core.tools.foreign_waits import Resumption
from holdfast.errors import EventOutOfPlace

Phase = Literal[
    "requested",
    "previewing",
    "awaiting_approval",
    "allowed",
    "started",
    "outcome_unknown",
    "awaiting_answer",
    "orphaned",
    "finished",
]

Move = Literal[
    "judge",
    "allow",
    "preview",
    "require_approval",
    "answer",
    "approve",
    "start",
    "lose_outcome",
    "ask",
    "repeat",
    "return",
    "orphan",
    "settle",
    "finish",
]
"""The change that an event makes to a call: the policy judged it and did not allow it · the policy, or a remembered
rule, allowed it · approval is required, and a preview is computed first · approval is required · people answered, and
the answer does not let it run · it was approved, or the policy approved it when the request expired · it started · its
outcome is unknown · its server asks people · people said that the effect did not happen, or is to be undone; or they
answered its server · no node has run it, or its tool
could not run there · the run was closed from outside and begins again · the run was imported, and resolves the call's
outcome here · it has a result."""

TRANSITIONS: Mapping[Phase, Mapping[Move, Phase]] = {
    "requested": {
        "judge": "requested",
        "allow": "allowed",
        "preview": "previewing",
        "require_approval": "awaiting_approval",
        "finish": "finished",
    },
    "previewing": {
        "preview": "previewing",  # asked again meanwhile
        "require_approval": "awaiting_approval",
        "finish": "finished",
    },
    "awaiting_approval": {
        "answer": "awaiting_approval",
        "approve": "allowed",
        "preview": "previewing",
        "require_approval": "awaiting_approval",  # asked again: the arguments or the world changed
        "finish": "finished",
    },
    "allowed": {
        "start": "started",
        "settle": "orphaned",  # it was to be undone
        "preview": "previewing",
        "require_approval": "awaiting_approval",  # asked again: the world changed since the approval
        "finish": "finished",
    },
    "started": {
        "return": "allowed",
        "ask": "awaiting_answer",
        "lose_outcome": "outcome_unknown",
        "orphan": "orphaned",
        "settle": "orphaned",
        "finish": "finished",
    },
    "outcome_unknown": {
        "answer": "outcome_unknown",
        "repeat": "allowed",
        "orphan": "orphaned",
        "settle": "orphaned",
        "finish": "finished",
    },
    "awaiting_answer": {
        "answer": "awaiting_answer",
        "repeat": "allowed",
        "settle": "orphaned",
        "finish": "finished",
    },
    "orphaned": {
        "lose_outcome": "outcome_unknown",
        "orphan": "orphaned",
        "settle": "orphaned",
        "finish": "finished",
    },
    "finished": {
        "orphan": "finished",
    },
}
"""Every legal transition: phase → move → next phase. Any other raises `EventOutOfPlace`."""


@dataclass(frozen=True)
class CallState:
    """A tool call of the current step."""

    number: int
    call: ToolCall
    phase: Phase = "requested"
    epoch: int = 0
    """How often people said that the effect did not happen; each time opens a new row in the ledger."""
    request: str | None = None
    """Id of the open request about the call."""
    asked: ApprovalRequest | None = None
    """The request that opens when the call's preview is computed."""
    base: str = ""
    """The base of the preview by which the call was approved (`CallPreview.base`); empty for none."""
    terms: Terms | None = None
    """The terms by which its approval, and later its unknown outcome, is decided; None for the policy's own."""
    requirements: tuple[Requirement, ...] = ()
    """The terms of each policy, if several ask."""
    grant: str = ""
    """Id of the request whose approval lets the call run; the start uses it up."""
    used_grant: str = ""
    """The grant that the start of a call under way has used: a call that has not run gets it back."""
    granted_by: tuple[str, ...] = ()
    """The public keys that signed that approval."""
    undo: bool = False
    """The call is allowed to run in order to undo its effect."""
    edited_by: str = ""
    """The person who changed the arguments; empty for nobody."""
    feedback: str = ""
    """A line for each approver who said something to the LLM with the approval; it lapses with the approval."""
    approved: bool = False
    """A person approved the call as it is. Approval by the policy, when a request expires, does not count."""
    begun: bool = False
    """This run started the call."""
    past: PastEffect | None = None
    """The effect that the call had before a reset, or in a run that was closed."""
    own: bool = False
    """The run itself makes the call; no LLM requested it."""
    starts_at: datetime | None = None
    """The earliest start of an allowed call that repeats itself; None for at once."""
    repeats: int = 0
    """How often the call has had the same result, if its start is delayed for that; else 0."""
    postponed: str = ""
    """The policy rule whose hours the call waits for; empty for none."""
    unanswered: int = 0
    """For how many steps the tool has not answered, if the call's start is delayed for that; else 0."""
    resumed: Resumption | None = None
    """What the call continues with, once people have answered its server; None for one that begins."""
    context: dict[str, Any] | None = None
    """The context of the closed run that made an orphaned call, if the run that resolves the call has another one."""

    @property
    def people_note(self) -> str:
        """The note before the result that shows the LLM the arguments that a person put in place, and the approvers'
        feedback; empty if there is neither.
        """
        arguments = self.call.arguments[:2_000]
        edit = f"[{self.edited_by} changed the arguments to {arguments}]\n" if self.edited_by else ""
        return edit + self.feedback

    def view(self) -> dict[str, Any]:
        """Return a delayed call as `show` presents it."""
        starts_at = self.starts_at.isoformat() if self.starts_at else None
        shown = {"call": self.number, "tool": self.call.name, "repeats": self.repeats, "starts_at": starts_at}
        if self.postponed:
            return {**shown, "postponed": self.postponed}
        return {**shown, "unanswered": self.unanswered} if self.unanswered else shown

    @property
    def delay_reason(self) -> str:
        """Why the start of an allowed call is delayed."""
        if self.postponed:
            return f"the policy lets it start then ({self.postponed})"
        if self.unanswered:
            return f"the last {self.unanswered:,} steps that called {self.call.name} got no answer from it"
        return f"the same call has had the same result {self.repeats:,} times"

    def after(self, move: Move) -> Phase:
        """Return the phase to which this move leads.

        Raises:
            EventOutOfPlace: The move is illegal in this phase.
        """
        phase = TRANSITIONS[self.phase].get(move)
        if phase is None:
            raise EventOutOfPlace(f"call {self.number} is {self.phase}, and no transition {move!r} leads on from there")
        return phase


@dataclass(frozen=True)
class Calls:
    """The tool calls of the current step, and past effects that calls may still adopt."""

    current: tuple[CallState, ...] = ()
    """The calls of the current step, in call order."""
    count: int = 0
    """How many calls the whole thread has requested, which is the number of the last one."""
    past: tuple[PastEffect, ...] = ()
    """Effects from before a reset that no call of this branch has adopted yet, oldest first."""
    claim: str = ""
    """The LLM's text in the reply that made the calls, cut to `CLAIM_CHARS`. People read it beside a request: it is the
    agent's claim, and nothing is decided by it. Empty below feature level 2."""

    @property
    def orphaned(self) -> tuple[int, ...]:
        """Numbers of the calls that have to be resolved."""
        return tuple(call.number for call in self.current if call.phase == "orphaned")

    @property
    def previewing(self) -> tuple[CallState, ...]:
        """The calls whose preview is to be computed."""
        return tuple(call for call in self.current if call.phase == "previewing")

    @property
    def allowed(self) -> tuple[int, ...]:
        """Numbers of the calls that are allowed."""
        return tuple(call.number for call in self.current if call.phase == "allowed")

    @property
    def delayed(self) -> tuple[CallState, ...]:
        """The allowed calls whose start is delayed because they repeat themselves, though the delay may be over."""
        return tuple(call for call in self.current if call.phase == "allowed" and call.starts_at)

    @property
    def postponed(self) -> tuple[CallState, ...]:
        """The delayed calls that wait for the hours of a policy."""
        return tuple(call for call in self.delayed if call.postponed)

    def startable(self, at: datetime) -> tuple[int, ...]:
        """Return the numbers of the calls that may start at this time."""
        later = {call.number for call in self.delayed if call.starts_at and call.starts_at > at}
        return tuple(number for number in self.allowed if number not in later)

    def without_delays(self) -> "Calls":
        """Let every allowed call start at once, except those that wait for the hours of a policy."""
        if not self.delayed:
            return self
        none: dict[str, Any] = {"starts_at": None, "repeats": 0, "unanswered": 0}
        return replace(self, current=tuple(call if call.postponed else replace(call, **none) for call in self.current))

    @property
    def waiting(self) -> bool:
        """Whether the step waits for a call: one that has no result yet, and does not have to be resolved first."""
        return any(call.phase not in ("finished", "orphaned") for call in self.current)

    @property
    def open(self) -> bool:
        """Whether any call of the step has no result yet."""
        return any(call.phase != "finished" for call in self.current)

    def find(self, number: int) -> CallState | None:
        """Return the call with this number in the current step; None if there is none."""
        for call in self.current:
            if call.number == number:
                return call
        return None

    def get(self, number: int) -> CallState:
        """Return the call with this number in the current step.

        Raises:
            EventOutOfPlace: There is none.
        """
        call = self.find(number)
        if call is None:
            raise EventOutOfPlace(f"the current step has no call {number}")
        return call

    def request(self, number: int, call: ToolCall, *, past: str, own: bool = False) -> "Calls":
        """Add a call, which adopts the past effect with this key, unless the key is empty.

        Raises:
            EventOutOfPlace: The thread has already had a call with this number.
        """
        if number <= self.count:
            raise EventOutOfPlace(f"call {number} was requested before; the last one was call {self.count}")
        effect = self.past_effect(past) if past else None
        added = CallState(number=number, call=call, past=effect, epoch=effect.epoch if effect else 0, own=own)
        return replace(self.without_past(effect), current=(*self.current, added), count=number)

    def put(self, changed: CallState) -> "Calls":
        """Replace the call that has the same number."""
        return replace(self, current=tuple(changed if call.number == changed.number else call for call in self.current))

    def claim_about(self, number: int) -> str:
        """Return the LLM's text in the reply that made this call; empty for a call that the run makes by itself."""
        call = self.find(number)
        return self.claim if call and not call.own else ""

    def next_step(self, claim: str = "") -> "Calls":
        """Drop the calls of the step, which is over.

        Args:
            claim: The LLM's text in the reply that begins the next step.

        Raises:
            EventOutOfPlace: One of them has no result yet.
        """
        if self.open:
            numbers = ", ".join(str(call.number) for call in self.current if call.phase != "finished")
            raise EventOutOfPlace(f"the step is not over: no result yet of call {numbers}")
        return replace(self, current=(), claim=claim)

    def past_effect(self, key: str) -> PastEffect | None:
        """Return the past effect with this key that no call has adopted yet; None if there is none."""
        return next((effect for effect in self.past if effect.key == key), None)

    def without_past(self, adopted: PastEffect | None) -> "Calls":
        """Drop a past effect that a call has adopted."""
        if adopted is None:
            return self
        return replace(self, past=tuple(effect for effect in self.past if effect is not adopted))
