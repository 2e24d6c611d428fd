"""The events of requests to people, and of the state of the world that people are asked about."""

from typing import Any, Literal

from holdfast.core.authority.approvals import ApprovalRequest, DecisionOutcome
from holdfast.core.authority.statements import Decision, DecisionKind
from holdfast.core.authority.votes import Standing
from holdfast.core.base.models import Frozen
from holdfast.core.log.events.base import Event, Proven
from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.tools.failures import FailedAttempts, FailureKind
from holdfast.core.trust import Trust


class ApprovalRequested(Event):
    """Approval required: people are asked whether a call may run. An older open request about the same call is closed.

    Followed by: `decision_received`, or `approval_expired`; before that, perhaps `baseline_recorded`,
    `approval_reminded` and `approval_escalated`.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["approval_requested"] = "approval_requested"
    request: ApprovalRequest


class ReconcileRequested(Event):
    """The outcome of a call is unknown: people are asked whether its effect happened.

    Followed by: `decision_received`, then `tool_call_finished`, or `tool_call_started` where the call runs again or is
    undone. It never expires.
    Correlate: `request.id` is the `request` of all events about this request; `request.number` is the call's.
    """

    type: Literal["reconcile_requested"] = "reconcile_requested"
    request: ApprovalRequest
    cause: FailureKind | None = None
    """Why the outcome is unknown, in a word; None where that is not known."""
    failures: FailedAttempts | None = None
    """The attempts at the call that failed before."""


class ApprovalReminded(Event):
    """An open request is not decided yet; those who may decide it are reminded.

    Followed by: as after the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_reminded"] = "approval_reminded"
    request: str


class ApprovalEscalated(Event):
    """An open request is not decided yet; from here on, more people may decide it.

    Followed by: as after the request. Correlate: `request` is the id of the open request.
    """

    type: Literal["approval_escalated"] = "approval_escalated"
    request: str
    by: tuple[str, ...]
    """The people and roles who are asked in addition."""


class ApprovalExpired(Event):
    """A request expired before it was decided, so the policy decided it.

    Followed by: `tool_call_started`, or `tool_call_finished` with the status `denied`.
    Correlate: `request` is the id of the request, which is closed.
    """

    type: Literal["approval_expired"] = "approval_expired"
    request: str
    decision: Literal["deny", "approve"]


class DecisionReceived(Event, Proven):
    """A person's decision arrived. Only `accepted` and `waiting_for_quorum` change anything by themselves; after
    `judged_anew` another request takes the place of this one. With any other outcome, the body is kept as digest and
    size only.

    Followed by: if `accepted`, `rule_remembered` if it makes a rule, and `tool_call_started` or `tool_call_finished`;
    if `judged_anew`, `approval_requested`; else nothing.
    Correlate: `request` is the id of the request, as the person gave it.
    """

    type: Literal["decision_received"] = "decision_received"
    request: str
    decision: DecisionKind
    by: str
    reason: str
    outcome: DecisionOutcome
    explanation: str = ""
    digest_given: str = ""
    """The digest of what the person saw, as they sent it."""
    arguments: dict[str, Any] | None = None
    """The arguments to run with, where the person changed them; the LLM's own are in `tool_call_requested`."""
    result: str | None = None
    remember: bool = False
    right: str = ""
    """Who delegated the approval authority that was used; empty for the person's own."""
    standings: tuple[Standing, ...] = ()
    """The requirements of the request for which it counts, where several policies ask. Recorded from feature level 1
    on."""
    rule: str = ""
    """The rule that judged changed arguments."""
    via: str = ""
    """The login from which it was sent, as the sender's program says. Recorded from feature level 1 on."""
    one_login: tuple[str, ...] = ()
    """The people of the quorum whose votes came from one login, or with one key; empty if each had their own."""
    sent_digest: str = ""
    """Of a refused decision: SHA-256 of what was sent, in place of its body (`holdfast.core.run.rules.refusals`)."""
    sent_bytes: int = 0

    @property
    def said(self) -> Decision:
        """The decision as it was sent, which the signature covers; of a refused one, what is kept of it."""
        return Decision(
            decision=self.decision,
            request=self.request,
            by=self.by,
            reason=self.reason,
            digest=self.digest_given or None,
            arguments=self.arguments,
            result=self.result,
            remember=self.remember,
            via=self.via,
            signature=self.signature,
        )


class Finding(Frozen):
    """What one `verify` tool found."""

    tool: str
    status: ToolStatus
    content: str
    trust: Trust | None = None
    """How far it can be trusted, where that differs from the tool's other results."""


class BaselineRecorded(Event):
    """Approval requests opened, and the agent's `verify` tools recorded the world that people are asked about. The LLM
    does not read it; after a long pause, later findings are compared with it (`holdfast.core.run.rules.baselines`).

    Followed by: `decision_received` or `approval_expired`.
    Correlate: it is about all requests that are open in the step.
    """

    type: Literal["baseline_recorded"] = "baseline_recorded"
    findings: tuple[Finding, ...]


class StateVerified(Event):
    """After a long pause, the agent's `verify` tools have run. The LLM reads their findings before its next step.

    Followed by: `approval_requested` for every call whose approval was given for another state of the world; else what
    was due before the pause.
    Correlate: `findings` are compared with those of the last `baseline_recorded` or `state_verified` of the step.
    """

    type: Literal["state_verified"] = "state_verified"
    paused_seconds: int
    findings: tuple[Finding, ...]
