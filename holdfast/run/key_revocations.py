"""A key no longer counts in a run that is open: what it has signed, and what has not taken effect yet, lapses. Pure
functions over the run's state.

1. Any approver of a policy that judges the run may revoke any key that one of them lists, a gateway's too, by a signed
   statement; also with that very key. That only takes authority away: a thief can stop a run with a stolen key, as by a
   denial, and gains nothing.
2. Votes on open requests, remembered rules and delegations that the key signed are gone. A call that was approved with
   it, and has not started, is asked about again.
3. The key counts in no later statement to this thread, and in no sub-agent that starts later.
"""

from datetime import datetime

from holdfast.authority.key_revocations import KeyRevocation
from holdfast.log.events import AgentEvent, ApprovalRequested, KeyRevoked, SignalRejected
from holdfast.run.approval_requests import ask_again
from holdfast.run.evolve import evolve
from holdfast.run.judge import approval_required, judge_call
from holdfast.run.policies import policies_of
from holdfast.run.rights import Refusal, Speaker, verify_by_any
from holdfast.run.state import RunState
from holdfast.run.substates.calls import CallState


def on_key_revocation(
    state: RunState, revocation: KeyRevocation, *, at: datetime
) -> tuple[Refusal | None, list[AgentEvent]]:
    """Return the events that follow when a key is revoked; and why that is refused, or None."""
    speaker = verify_by_any(state, revocation)
    refusal = speaker if isinstance(speaker, Refusal) else _refuse(state, revocation, speaker)
    if isinstance(speaker, Refusal) or refusal:
        assert refusal
        return refusal, [SignalRejected(signal="revoke_key", explanation=refusal.explanation, outcome=refusal.outcome)]
    revoked = KeyRevoked(
        revoked=revocation.revoked,
        by=revocation.by,
        reason=revocation.reason,
        proof=speaker.proof,
        key=speaker.key,
        signature=revocation.signature,
    )
    after = evolve(state, revoked.model_copy(update={"at": at}))
    events: list[AgentEvent] = [revoked]
    opened = 0
    for call in after.calls.current:
        if _lapses(after, call, revocation.revoked):
            anew = ask_again(after, call, at=at, ahead=opened, reason=lambda _: f"{revocation.by} revoked a key: {WHY}")
            opened += any(isinstance(event, ApprovalRequested) for event in anew)
            events += anew
    return None, events


WHY = "the approval of this call depended on it"


def _refuse(state: RunState, revocation: KeyRevocation, speaker: Speaker) -> Refusal | None:
    policies, key = policies_of(state), revocation.revoked
    if state.outcome:
        return Refusal("too_late", f"the run is {state.outcome}")
    if not speaker.proof:
        return Refusal("unsigned", "only a signed statement revokes a key: that of an approver, or a gateway's for one")
    if key not in {key for policy in policies for key in policy.keys}:
        return Refusal("unknown_request", f"no policy that judges this run lists the key {key}")
    if key in state.authority.revoked_keys:
        return Refusal("duplicate", f"the key {key} was revoked before")
    return None


def _lapses(state: RunState, call: CallState, key: str) -> bool:
    """Whether a call that has not started was allowed by what the key signed."""
    if call.phase != "allowed" or call.undo:
        return False
    if call.grant:
        return key in call.granted_by
    return call.terms is not None and approval_required(judge_call(state, call.call))
