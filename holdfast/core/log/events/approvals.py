"""Events of requests to people, and of the external state that those requests depend on."""

from typing import Any, Literal

from holdfast.core.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.core.authority.statements import Decision, DecisionKind
from holdfast.core.authority.votes import Standing
from holdfast.core.base.models import Frozen
from holdfast.core.log.events.base import Event, Stated
from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.trust import Trust


class PreviewRequested(Event):
    """A call requires approval, and its tool can compute what the call would do: that is done before people are asked.
    An older open request about the same call is closed.

    Followed by: `approval_requested`, with the preview.
    Correlate: `request.id` is the `request.id` of the `approval_requested`; `request.number` is the call's.
    """

    type: Literal["preview_requested"] = "preview_requested"
    request: ApprovalRequest


class ApprovalRequested(Event):
    """A call requires approval, so people are asked to decide. An older open request about the same call is closed.

    Followed by: `decision_received` or `approval_expired`, possibly after `baseline_recorded`, `approval_reminded` and
    `approval_escalated`.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["approval_requested"] = "approval_requested"
    request: ApprovalRequest


class ReconcileRequested(Event):
    """The outcome of a call is unknown: people are asked whether its effect happened.

    Followed by: `decision_received`, then `tool_call_finished`, or `tool_call_started` if the call is repeated or
    undone. It never expires.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["reconcile_requested"] = "reconcile_requested"
    request: ApprovalRequest
    cause: FailureKind | None = None
    """Why the outcome is unknown; None if the reason is unknown, too."""
    failures: FailedAttempts | None = None
    """The call's earlier failed attempts."""
    signed: str = ""
    """As for `tool_call_finished`; empty also if an effect could not be undone."""
    stack: str = ""
    """As for `tool_call_finished`."""


class AnswerRequested(Event):
    """The server that carries out a call asks people before it continues. Recorded from feature level 2 on.

    Followed by: `decision_received` or `approval_expired`; then `tool_call_started`, with which the server gets the
    answer, or `tool_call_finished` with the status `denied`.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["answer_requested"] = "answer_requested"
    request: ApprovalRequest
    signed: str = ""
    """As for `tool_call_finished`."""


class ApprovalReminded(Event):
    """A request is still open, so the people who may decide it are reminded.

    Followed by: the same events as the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_reminded"] = "approval_reminded"
    request: str


class ApprovalEscalated(Event):
    """A request is still open, so from now on more people may decide it.

    Followed by: the same events as the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_escalated"] = "approval_escalated"
    request: str
    by: tuple[str, ...]
    """The people and roles added to those who may decide."""


class ApprovalExpired(Event):
    """A request expired before it was decided, so the policy decided it.

    Followed by: `tool_call_started`, or `tool_call_finished` with the status `denied`.
    Correlate: `request` is the id of the request, which is closed.
    """

    type: Literal["approval_expired"] = "approval_expired"
    request: str
    decision: Literal["deny", "approve"]


class DecisionReceived(Stated):
    """A person's decision arrived. Only the outcomes `accepted` and `waiting_for_quorum` change anything by themselves;
    `judged_anew` replaces this request with a new one. With any other outcome, only the body's digest and size are
    kept.

    Followed by: if `accepted`, `rule_remembered` if it creates a rule, then `tool_call_started` or
    `tool_call_finished`; if `judged_anew`, `approval_requested`; otherwise no particular event.
    Correlate: `request` is the id of the request, as the person gave it.
    """

    STATEMENT = Decision

    type: Literal["decision_received"] = "decision_received"
    request: str
    decision: DecisionKind
    by: str
    reason: str
    outcome: DecisionOutcome
    explanation: str = ""
    digest_given: str = ""
    """The digest of the request that the person saw, as sent by their client."""
    arguments: dict[str, Any] | None = None
    """The arguments to run with, if the person changed them; the LLM's own are in `tool_call_requested`."""
    result: str | None = None
    remember: bool = False
    say: str = ""
    """Feedback that the LLM reads with the result of the approved call. Recorded from feature level 2 on."""
    right: str = ""
    """The person who delegated the approval authority that was used; empty if the approver used their own."""
    standings: tuple[Standing, ...] = ()
    """If several policies ask: the requirements of the request that it counts towards. Recorded from feature level 1
    on."""
    rule: str = ""
    """The rule that judged the changed arguments."""
    via: str = ""
    """The login that sent it, as claimed by the sender's program. Recorded from feature level 1 on."""
    one_login: tuple[str, ...] = ()
    """The quorum's voters who shared one login or key; empty if each used their own."""
    sent_digest: str = ""
    """For a rejected decision: SHA-256 of its body, which is not kept (`holdfast.core.run.rules.refusals`)."""
    sent_bytes: int = 0

    @property
    def said(self) -> Decision:
        """The decision as it was sent, which the signature covers; for a rejected one, the fields that are kept."""
        return Decision(
            decision=self.decision,
            request=self.request,
            by=self.by,
            reason=self.reason,
            digest=self.digest_given or None,
            arguments=self.arguments,
            result=self.result,
            remember=self.remember,
            say=self.say,
            via=self.via,
            signature=self.signature,
        )


class Finding(Frozen):
    """The result of one `verify` tool."""

    tool: str
    status: ToolStatus
    content: str
    trust: Trust | None = None
    """How far it can be trusted, if that differs from the tool's other results."""


class BaselineRecorded(Event):
    """Approval requests opened, and the agent's `verify` tools recorded the external state that those requests depend
    on. It is hidden from the LLM; after a long pause, new findings are compared with it
    (`holdfast.core.run.rules.baselines`).

    Followed by: `decision_received` or `approval_expired`.
    Correlate: it covers all requests that are open in the step.
    """

    type: Literal["baseline_recorded"] = "baseline_recorded"
    findings: tuple[Finding, ...]


class StateVerified(Event):
    """The agent's `verify` tools ran after a long pause. The LLM reads their findings before its next step.

    Followed by: `approval_requested` for every call that was approved in a different external state; otherwise the
    event that the pause delayed.
    Correlate: `findings` are compared with those of the last `baseline_recorded` or `state_verified` of the step.
    """

    type: Literal["state_verified"] = "state_verified"
    paused_seconds: int
    findings: tuple[Finding, ...]
