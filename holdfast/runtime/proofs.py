"""Check the signatures in a log, of decisions and of rights, with the keys of the policy that was recorded before.

A chain of digests shows that nothing was altered after it was written; a signature shows who said what was written.
"""

from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    DelegationRevoked,
    RightDelegated,
    RuleRevoked,
    RunStarted,
)
from holdfast.policy import Policy
from holdfast.signatures import is_signed

PROVEN = (
    "agent_loaded",
    "decision_received",
    "delegation_revoked",
    "right_delegated",
    "rule_revoked",
    "run_started",
)
"""The types of event that matter here."""


class Proofs:
    """Takes events in, in order; knows the first whose proof does not hold.

    Args:
        thread: The thread id, which a signature is over, too; what `run_started` says comes before it: the log of a
            run that was reset is kept under another id.
    """

    def __init__(self, thread: str) -> None:
        self._thread = thread
        self._policy: Policy | None = None
        self.fault: tuple[int, str] | None = None
        """Position of that event, and what is wrong with it."""
        self.signed = 0
        """How many signatures were checked."""

    def add(self, event: AgentEvent) -> None:
        """Take in the next event."""
        match event:
            case RunStarted():
                self._policy = None  # the agent is loaded anew
                self._thread = event.thread
            case AgentLoaded():
                self._policy = event.spec.policy
            case DecisionReceived() | RightDelegated() | RuleRevoked() | DelegationRevoked():
                if (wrong := self._wrong(event)) and self.fault is None:
                    self.fault = event.position, wrong

    def _wrong(self, event: DecisionReceived | RightDelegated | RuleRevoked | DelegationRevoked) -> str:
        """What is wrong with the proof of what somebody said; empty if nothing is."""
        policy = self._policy
        if not event.proof:
            refused = isinstance(event, DecisionReceived) and event.outcome not in ("accepted", "waiting_for_quorum")
            required = policy is not None and policy.signatures == "required"
            return "" if refused or not required else "it counted unsigned, and the policy wants decisions to be signed"
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
