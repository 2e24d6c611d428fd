"""The events of a tool call: requested, judged, started, finished; and of the constraints that calls make."""

from datetime import datetime
from typing import Literal

from holdfast.core.authority.policy import Requirement, Terms, VerdictKind
from holdfast.core.authority.statements import Lift
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import Content, ToolCall, text_of
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.tools.cannot import Scope
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.trust import Trust

ToolStatus = Literal["ok", "failed", "invalid", "denied", "answered", "unknown", "undone", "cancelled", "cannot"]
"""How a call ended: returned · raised or timed out · could not be called so · was denied · a person answered in its
place · its outcome is unknown · happened and was undone · was stopped · cannot be made: its tool, or a constraint, said
so."""


class CallResult(Frozen):
    """The result of a tool call, in its event and as the activity returns it
    (`holdfast.core.run.contracts.ToolOutcome`).
    """

    status: ToolStatus
    content: Content
    adopted: bool = False
    """An earlier attempt had the effect; this one found it done and did not repeat it."""
    duration_ms: int = 0
    artifact: str = ""
    """Address of the full result, where `content` has only its head and tail."""
    size: int = 0
    """Bytes of the full result; 0 where `content` is complete."""
    artifacts: tuple[str, ...] = ()
    """Addresses of the images and files that were left out of `content`, in its order. Recorded from feature level 1
    on."""
    trust: Trust | None = None
    """How far the result can be trusted, where that differs from the tool's other results."""
    scope: Scope | None = None
    """With the status `cannot`: which calls are refused from here on. None where a constraint refused this call."""
    until: datetime | None = None
    """When they are no longer refused; None for when a person lifts the constraint."""
    cause: FailureKind | None = None
    """Why the call failed, in a word; None where it did not fail, or where that is not known."""
    failures: FailedAttempts | None = None
    """The attempts at the call that failed before; each left no event of its own."""


class ToolCallRequested(Event):
    """The LLM requested a tool call; or the run makes one of its own (`own`).

    Followed by: `verdict_given`; or `tool_call_finished` with the status `invalid`.
    Correlate: `number` is that of all events of this call; `call.id` is the id in the `llm_replied`; `past` is the key
    of an effect of the `run_reset`.
    """

    type: Literal["tool_call_requested"] = "tool_call_requested"
    number: int
    """Counted from 1 throughout the thread."""
    call: ToolCall
    past: str = ""
    """The key of the effect that this very call had before the run was reset: the call adopts it, and has no other."""
    own: bool = False
    """The run itself makes it, to keep progress.txt: the LLM reads nothing of it. Recorded from feature level 1 on."""


class VerdictGiven(Event):
    """A call was judged: it is allowed, approval is required (`ask`), or it is denied.

    Followed by: `tool_call_started` if allowed; `approval_requested` if approval is required; `tool_call_finished` with
    the status `denied`, or `cannot` where a constraint refuses the call.
    Correlate: `number` is the call's; `rule` is a policy rule, `remembered …` with the id of a `rule_remembered`,
    `constraint …` with the number of the call whose tool said that it cannot, or `repeated call` (the loop guard's).
    """

    type: Literal["verdict_given"] = "verdict_given"
    number: int
    verdict: VerdictKind
    rule: str
    terms: Terms | None = None
    """Where a remembered rule allows the call: the terms under which approval would be required."""
    requirements: tuple[Requirement, ...] = ()
    """The same, where several policies would ask. Recorded from feature level 1 on."""
    repeats: int = 0
    """How often the call has had the same result, where it is allowed and starts later for that."""
    delay: float = 0
    """Seconds by which it starts later; a person's message ends the wait."""


class ToolCallStarted(Event):
    """The intent: from here on the call's effect may happen.

    Followed by: `tool_call_finished`, or `reconcile_requested` if the outcome is unknown.
    Correlate: `number` is the call's; `request` is the id of the `approval_requested`, or `reconcile_requested`, whose
    decision lets it run; `key` is its row in the ledger.
    """

    type: Literal["tool_call_started"] = "tool_call_started"
    number: int
    key: str
    """Names the effect (`holdfast.core.tools.effects.effect_key`)."""
    request: str = ""
    """The request whose decision this start uses up; empty where the policy allows the call."""
    undo: bool = False
    """The call undoes the effect instead of having it."""


class ToolCallFinished(CallResult, Event):
    """A call has its result, which the LLM reads. With the status `cannot` and a `scope`, a constraint stands from here
    on: such calls are refused without being made.

    Followed by: `llm_replied`, when every call of the step has a result.
    Correlate: `number` is the call's; an open request about the call is closed with it. A constraint has the number of
    the call: in the `rule` of later `verdict_given`, and in `constraint_lifted`.
    """

    type: Literal["tool_call_finished"] = "tool_call_finished"
    number: int
    repeats: int = 0
    """How often the call has ended like this with nothing new in between, where the LLM reads that with the result."""

    @property
    def text(self) -> str:
        """The result's text, with the type of each other block in brackets."""
        return text_of(self.content)


class ConstraintLifted(Event, Proven):
    """A person lifted a constraint: the calls that it refused are judged again like any others. Recorded from feature
    level 1 on.

    Followed by: nothing of its own. Correlate: `constraint` is the `number` of the `tool_call_finished` that made it.
    """

    type: Literal["constraint_lifted"] = "constraint_lifted"
    constraint: int
    """The constraint's number, which is that of the call whose tool said that it cannot."""
    by: str
    reason: str = ""

    @property
    def said(self) -> Lift:
        """The statement as it was sent, which the signature covers."""
        return Lift(by=self.by, reason=self.reason, constraint=self.constraint, signature=self.signature)
