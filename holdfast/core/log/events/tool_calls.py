"""Events of a tool call: requested, judged, started, finished; and of the constraints that calls create."""

from datetime import datetime
from typing import Any, Literal

from holdfast.core.authority.policy import Requirement, Terms, VerdictKind
from holdfast.core.authority.statements import Lift
from holdfast.core.base.models import Frozen
from holdfast.core.llm.blocks import Content, ToolCall, text_of
from holdfast.core.log.events.base import Event, Stated
from holdfast.core.tools.cannot import Scope
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.trust import Trust

ToolStatus = Literal["ok", "failed", "invalid", "denied", "answered", "unknown", "undone", "cancelled", "cannot"]
"""How a call ended: returned · raised or timed out · had invalid arguments · was denied · a person answered in its
place · its outcome is unknown · happened and was undone · was stopped · was ruled out by its tool or a constraint."""


class CallResult(Frozen):
    """The result of a tool call, in its event and as the activity returns it
    (`holdfast.core.run.contracts.tool_calls.ToolOutcome`).
    """

    status: ToolStatus
    content: Content
    adopted: bool = False
    """Whether an earlier attempt had the effect, so that this one did not repeat it."""
    duration_ms: int = 0
    artifact: str = ""
    """Address of the full result, if `content` has only its head and tail."""
    size: int = 0
    """Size of the full result in bytes; 0 if `content` is complete."""
    artifacts: tuple[str, ...] = ()
    """Addresses of the images and files that were left out of `content`, in order. Recorded from feature level 1 on."""
    trust: Trust | None = None
    """How far the result can be trusted, if that differs from the tool's other results."""
    scope: Scope | None = None
    """With the status `cannot`: the calls that are rejected from here on. None if a constraint rejected this call."""
    until: datetime | None = None
    """When the constraint ends; None if it stands until a person removes it."""
    cause: FailureKind | None = None
    """Why the call failed; None if it did not fail or the reason is unknown."""
    failures: FailedAttempts | None = None
    """The call's earlier failed attempts, which have no events of their own."""
    signed: str = ""
    """The signature of the node that made the call (`holdfast.core.run.contracts.signed_results`); empty if none did.
    Recorded from feature level 2 on."""
    missing: str = ""
    """The part of the result that is missing, if the tool returned a partial one. Recorded from feature level 2 on."""
    not_called: bool = False
    """Whether the call has not run, because no node took it: the ledger has no such effect. Recorded from feature level
    2 on."""
    stack: str = ""
    """Address of the artifact with the stack trace, if the tool raised; the LLM does not see it. Recorded from feature
    level 2 on."""


class ToolCallRequested(Event):
    """The LLM requested a tool call, or the run itself makes one (`own`).

    Followed by: `verdict_given`; or `tool_call_finished` with the status `invalid`.
    Correlate: `number` is that of all events of this call; `call.id` is the id in the `llm_replied`; `past` is the key
    of an effect of the `run_reset`.
    """

    type: Literal["tool_call_requested"] = "tool_call_requested"
    number: int
    """Counted from 1 throughout the thread."""
    call: ToolCall
    past: str = ""
    """The key of the effect that this same call had before the run was reset: the call adopts it instead of repeating
    it."""
    own: bool = False
    """Whether the run itself makes the call, to update progress.txt, hidden from the LLM. Recorded from feature level 1
    on."""


class VerdictGiven(Event):
    """A call was judged: it is allowed, approval is required (`ask`), or it is denied.

    Followed by: `tool_call_started` if allowed; `approval_requested` if approval is required; `tool_call_finished` with
    the status `denied`, or `cannot` if a constraint rejects the call.
    Correlate: `number` is the call's; `rule` is a policy rule, `remembered …` with the id of a `rule_remembered`,
    `constraint …` with the number of the call that created it, or `repeated call` (from the loop guard).
    """

    type: Literal["verdict_given"] = "verdict_given"
    number: int
    verdict: VerdictKind
    rule: str
    terms: Terms | None = None
    """If a remembered rule allows the call: the approval requirements that would apply without it."""
    requirements: tuple[Requirement, ...] = ()
    """The same, if several policies would ask. Recorded from feature level 1 on."""
    repeats: int = 0
    """How often the call has returned the same result, if its start is delayed for that reason."""
    delay: float = 0
    """Delay of its start in seconds; a person's message ends the delay."""
    unanswered: int = 0
    """For how many steps in a row calls of the tool got no answer, if the start is delayed for that reason. Recorded
    from feature level 2 on."""


class ToolCallPostponed(Event):
    """A call that may run does not start now, because of the hours in a policy: the run sleeps until they begin.
    Recorded from feature level 2 on.

    Followed by: `tool_call_started` at that time; `tool_call_finished` if the run is cancelled or a message arrives
    before.
    Correlate: `number` is the call's; `rule` is the label of a policy rule.
    """

    type: Literal["tool_call_postponed"] = "tool_call_postponed"
    number: int
    rule: str
    reason: str = ""
    """The rule's reason."""
    until: datetime
    """When the hours begin."""


class ToolCallStarted(Event):
    """The call is about to run (its intent is recorded): from here on its effect may happen.

    Followed by: `tool_call_finished`, or `reconcile_requested` if the outcome is unknown.
    Correlate: `number` is the call's; `request` is the id of the `approval_requested` or `reconcile_requested` whose
    decision allowed it; `key` is its row in the ledger.
    """

    type: Literal["tool_call_started"] = "tool_call_started"
    number: int
    key: str
    """The effect key (`holdfast.core.tools.effects.effect_key`)."""
    request: str = ""
    """The request whose decision this start consumes; empty if the policy allows the call."""
    undo: bool = False
    """Whether the call undoes the effect instead of causing it."""


class ToolCallFinished(CallResult, Event):
    """A call has its result, which the LLM reads. With the status `cannot` and a `scope`, it creates a constraint: from
    here on, such calls are rejected without being made.

    Followed by: `llm_replied`, when every call of the step has a result.
    Correlate: `number` is the call's; an open request about the call is closed with it. A constraint has the number of
    the call that created it: in the `rule` of later `verdict_given`, and in `constraint_lifted`.
    """

    type: Literal["tool_call_finished"] = "tool_call_finished"
    number: int
    repeats: int = 0
    """How often the call has ended like this with nothing new in between, if the LLM is shown that count with the
    result."""

    @property
    def text(self) -> str:
        """The result's text, with the type of each other block in brackets."""
        return text_of(self.content)


class ContextUpdated(Event):
    """A tool changed the typed context of the run. Recorded from feature level 2 on.

    The calls of later steps see the change; those of this step do not.
    Followed by: the `tool_call_finished` of the same call. Correlate: `number` is the call's.
    """

    type: Literal["context_updated"] = "context_updated"
    number: int
    changes: dict[str, Any]
    """The new values of some fields. The tool declares that it may change them (`ToolSpec.writes`)."""


class ConstraintLifted(Stated):
    """A person removed a constraint: the calls that it rejected are judged like any others again. Recorded from feature
    level 1 on.

    Followed by: no particular event. Correlate: `constraint` is the `number` of the `tool_call_finished` that made it.
    """

    STATEMENT = Lift

    type: Literal["constraint_lifted"] = "constraint_lifted"
    constraint: int
    """The constraint's number, which is that of the call that created it."""
    by: str
    reason: str = ""
