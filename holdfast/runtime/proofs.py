"""Check the proofs in a log, of decisions, rights and messages, with the policy and the requests recorded before them.

A chain of digests shows that nothing was altered after it was written; a signature shows who said what was written.

1. What counted was signed with a key of the policy in force, where that policy wants signatures.
2. A request has the digest of what it shows, in this thread and run; a decision was given on that digest.
3. What was accepted has its quorum, a remembered rule the decision that made it, a start the key that was granted.
"""

from holdfast.approval import COUNTING, Request
from holdfast.effects import effect_key
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    DelegationRevoked,
    ReconcileRequested,
    RightDelegated,
    RuleRemembered,
    RuleRevoked,
    RunStarted,
    ToolCallStarted,
    UserMessageReceived,
)
from holdfast.messages import ToolCall
from holdfast.policy import Policy
from holdfast.remembered import made_by
from holdfast.signatures import is_signed
from holdfast.votes import Vote, agreeing, cast

PROVEN = (
    "agent_loaded",
    "approval_requested",
    "decision_received",
    "delegation_revoked",
    "reconcile_requested",
    "right_delegated",
    "rule_remembered",
    "rule_revoked",
    "run_started",
    "tool_call_started",
    "user_message_received",
)
"""The types of event that matter here."""

Said = DecisionReceived | RightDelegated | RuleRevoked | DelegationRevoked | UserMessageReceived


class Proofs:
    """Takes events in, in order; knows the first whose proof does not hold.

    Args:
        thread: The thread id, which a signature is over, too; what `run_started` says comes before it: the log of a
            run that was reset is kept under another id.
    """

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._first_run_id = self._spec_hash = ""
        self._policy: Policy | None = None
        self._sealed = True
        self._requests: dict[str, Request] = {}
        """As they stand; those of earlier runs, which are not here, are not known."""
        self._votes: tuple[Vote, ...] = ()
        """Those that decided, if the last event was an approval."""
        self.fault: tuple[int, str] | None = None
        """Position of that event, and what is wrong with it."""
        self.signed = 0
        """How many signatures were checked."""

    def add(self, event: AgentEvent) -> None:
        """Take in the next event."""
        if (wrong := self._check(event)) and self.fault is None:
            self.fault = event.position, wrong
        if not isinstance(event, DecisionReceived):
            self._votes = ()

    def _check(self, event: AgentEvent) -> str:
        """What is wrong with an event; empty if nothing is."""
        match event:
            case RunStarted():
                self._policy = None  # the agent is loaded anew
                self._thread, self._first_run_id, self._sealed = event.thread, event.first_run_id, event.sealed
            case AgentLoaded():
                self._policy, self._spec_hash = event.spec.policy, event.spec_hash
            case ApprovalRequested(request=request) | ReconcileRequested(request=request):
                self._requests[request.request] = request
                return self._misleading(request)
            case DecisionReceived():
                return self._unsigned(event) or self._miscounted(event)
            case RightDelegated() | RuleRevoked() | DelegationRevoked() | UserMessageReceived():
                return self._unsigned(event)
            case RuleRemembered():
                return self._unfounded(event)
            case ToolCallStarted():
                return self._ungranted(event)
        return ""

    def _unsigned(self, event: Said) -> str:
        """What is wrong with the proof of what somebody said."""
        policy = self._policy
        if not event.proof:
            refused = isinstance(event, DecisionReceived) and event.outcome not in (*COUNTING, "judged_anew")
            required = policy is not None and policy.signatures == "required"
            if isinstance(event, UserMessageReceived):
                required = policy is not None and policy.proves_requesters and not event.task
            return "" if refused or not required else "it counted unsigned, and the policy wants it to be signed"
        self.signed += 1
        if not is_signed(event.key, event.signature, event.said.signed_bytes(self._thread)):
            return f"{event.by}'s signature does not fit what is said"
        if policy is None:
            return ""  # it was recorded in an earlier run, which is not here; the record has it
        if event.proof == "signed":
            approver = policy.approver(event.by)
            known = approver is not None and event.key in approver.keys
        else:
            known = any(event.key in gateway.keys for gateway in policy.gateways)
        whose = event.by if event.proof == "signed" else "a gateway"
        return "" if known else f"the policy knows no such key of {whose}: {event.key}"

    def _misleading(self, request: Request) -> str:
        """What is wrong with what people were asked."""
        if request.digest != request.seen.digest:
            return f"the digest of request {request.request} is not that of what it shows"
        if self._spec_hash and request.spec_hash != self._spec_hash:
            return f"request {request.request} is about another agent than the one loaded"
        if self._first_run_id and request.effect_key != self._key(request, request.call()):
            return f"request {request.request} is about the effect of another run or call"
        return ""

    def _miscounted(self, event: DecisionReceived) -> str:
        """What is wrong with what a decision was given on, and with the votes that it makes."""
        request = self._requests.get(event.request)
        if request is None or event.outcome not in (*COUNTING, "judged_anew"):
            return ""
        if (event.digest_given or event.proof) and event.digest_given != request.digest:
            return f"it was given on {event.digest_given or 'nothing'}, and request {event.request} is {request.digest}"
        if event.outcome == "judged_anew" or event.decision == "deny":
            return ""
        vote = Vote(said=event.said, seen=request.seen, right=event.right, proof=event.proof, key=event.key)
        edit = request.edit(event.arguments)
        if edit:
            request = request.edited(edit, by=event.by, effect_key=self._key(request, request.call(edit)))
        votes = cast(request.votes, vote)
        self._requests[event.request] = request.model_copy(update={"votes": votes})
        alike, quorum = agreeing(votes, vote), request.terms.quorum
        if event.outcome == "accepted" and event.decision == "approve":
            self._votes = alike
        if event.outcome == "accepted" and len(alike) < quorum and not edit:
            return f"it was accepted with {len(alike)} of {quorum} votes"
        return ""

    def _unfounded(self, event: RuleRemembered) -> str:
        """What is wrong with a remembered rule."""
        if not self._votes and not self._first_run_id:
            return ""  # what made it may be in an earlier run, which is not here
        rule = made_by(self._votes, number=0, quorum=1) if self._votes else None
        voters = tuple(vote.by for vote in rule.votes) if rule else ()
        if rule is None or (rule.tool, rule.call_digest, voters) != (event.tool, event.call_digest, event.by):
            return f"no decision makes rule {event.rule}"
        return ""

    def _ungranted(self, event: ToolCallStarted) -> str:
        """What is wrong with the start of a call."""
        if not self._sealed and self._policy and self._policy.proves_requesters:
            return "a call started, and it is not known who started the run"
        request = self._requests.get(event.request)
        if request and self._first_run_id and event.key != request.effect_key:
            return f"request {event.request} is about another effect than the one that started"
        return ""

    def _key(self, request: Request, call: ToolCall) -> str:
        """The key of the effect that a request is about."""
        return effect_key(
            thread=self._thread, first_run_id=self._first_run_id, number=request.number, call_digest=call.digest
        )
