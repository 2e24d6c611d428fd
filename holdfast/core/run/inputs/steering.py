"""Authorize the people who steer a run: pause, resume, retry or move it. Pure functions over the run's state.

1. If a policy that judges the run requires signatures, a statement needs the signature of an approver, or of a gateway
   that vouches for its sender. One policy has to list the key that signed a pause, which only stops the run. All of
   them have to list the key of a statement that lets the run continue or moves it.
2. Otherwise anybody may steer the run under a claimed name; a signature that matches no key counts as such a claim.
3. To end or change a pause takes at least as much proof as to make it: a signature for a signed pause, an approver for
   that of an approver.
4. A signed statement is bound to the state that its sender saw (`holdfast.core.authority.interventions`).
"""

from typing import Any, NamedTuple

from holdfast.core.authority.interventions import Pause, Steering
from holdfast.core.authority.statements import read_given
from holdfast.core.base.names import person_name
from holdfast.core.log.events import MoveRequested, RunPaused, RunResumed, RunUnblocked
from holdfast.core.run.rules.authority import Principal, Rejection, policies_of, read_claim, verify_each
from holdfast.core.run.state.features import SIGNED_STEERING
from holdfast.core.run.state.state import RunState


class Steerer(NamedTuple):
    """The person who steers a run, their reason, and the proof of their identity."""

    by: str
    reason: str = ""
    speaker: Principal = Principal()
    signature: str = ""

    @property
    def proven(self) -> dict[str, str]:
        """The proof, as fields of an event."""
        return {"proof": self.speaker.proof, "key": self.speaker.key, "signature": self.signature}


def steerer(state: RunState, kind: type[Steering], payload: Any) -> Steerer | Rejection:
    """Return the person who sends this, or why it is rejected.

    Args:
        state: The state before.
        kind: The type of the statement if it is signed.
        payload: The payload, unvalidated.
    """
    name = kind.__name__.lower()
    policies = policies_of(state) if state.features >= SIGNED_STEERING else ()
    required = any(policy.signatures == "required" for policy in policies)
    if not (policies and isinstance(payload, dict) and payload.get("signature")):
        if required:
            why = f"the policy requires signatures: sign it (`holdfast {name} … --key`), or use a gateway"
            return Rejection("unsigned", why)
        return Steerer(*read_claim(payload))
    example = f'{{"by": "alice", "run": "{state.origin.first_run_id}", "seen": {state.holds}, "signature": "…"}}'
    statement = read_given(payload, kind, name=name, example=example)
    if isinstance(statement, str):
        return Rejection("malformed", statement)
    if (statement.run, statement.seen) != (state.origin.first_run_id, state.holds):
        why = f"the run was paused, resumed, blocked or moved since this was signed (`seen` is {state.holds} now)"
        return Rejection("outdated", f"{why}: look at it again")
    judged = verify_each(state, statement, policies)
    proven = next((each for each in judged if isinstance(each, Principal) and each.proof), None)
    refused = [each for each in judged if not isinstance(each, Principal)]
    if not required and all(each.outcome == "bad_signature" for each in refused):
        refused = []
    if refused and not (kind is Pause and proven):
        return refused[0]
    return Steerer(statement.by, statement.reason, proven or Principal(), statement.signature if proven else "")


def refuse_to_end_pause(state: RunState, who: Steerer) -> Rejection | None:
    """Return why this person may not end or change the pause of the run; None if they may."""
    if state.pause is None or state.features < SIGNED_STEERING:
        return None
    first, again = state.pause.by, "resume it (`holdfast resume … --key`), or use a gateway"
    if state.pause.proof and not who.speaker.proof:
        return Rejection("unsigned", f"{first} has signed the pause, and only a signed statement ends it: {again}")
    naming = [policy for policy in policies_of(state) if policy.approver(_name(first))]
    if naming and not who.speaker.proof and not any(policy.approver(_name(who.by)) for policy in naming):
        why = f"{first}, an approver, has paused the run, and the policy names no approver {who.by!r}"
        return Rejection("not_entitled", why)
    return None


def _name(by: str) -> str:
    try:
        return person_name(by)
    except ValueError:
        return by


def sent_payload(state: RunState, event: RunPaused | RunResumed | RunUnblocked | MoveRequested) -> dict[str, Any]:
    """Return the payload that steered a run, reconstructed from the event that recorded it."""
    sent = event.model_dump(include={"by", "reason", "until", "to", "signature"}, exclude_defaults=True)
    return {**sent, "run": state.origin.first_run_id, "seen": state.holds} if event.signature else sent
