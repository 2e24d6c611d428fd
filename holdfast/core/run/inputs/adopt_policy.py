"""Have an open run adopt another policy, and judge its waiting calls again. Pure functions.

1. A deployment alone changes no open run: an old and a new worker would change its policy back and forth. A person asks
   for it, with the same authority as for another agent (`holdfast.core.run.inputs.reclassify`): an approver of every
   policy that judges the run and names any, signed if one requires that, and never its agent.
2. They name a digest. The policy itself comes from a worker that has it for the run's agent; workers that do not send
   the request on. If none has it, the run keeps its policy.
3. It takes effect when no tool runs and no outcome is open, before anything else starts. The policies above, of a
   parent, a fork or an agent before, stay as they are.
4. It loosens nothing that people have decided: a denied call stays denied, remembered rules and delegations end, and a
   call that people were asked about, or approved, asks them again, even if the new policy would let it run.
5. A call that waits for hours is judged by the new ones. Calls that wait for the event `policy_changed` end, and polls
   that the new policy does not allow at once. Only the run itself sends that event.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.authority.hours import ZoneOffsets
from holdfast.core.authority.interventions import PolicyAdoption
from holdfast.core.authority.policy import Policy
from holdfast.core.base.text import one_line
from holdfast.core.log import events as ev
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.messages import verify_sender
from holdfast.core.run.inputs.reclassify import refuse_changer
from holdfast.core.run.rules.approval_requests import ask_again, ask_people, asks, new_request, with_editor
from holdfast.core.run.rules.authority import (
    Reaction,
    Rejection,
    ask_all_policies,
    policy_of,
    refuse_reuse,
    signatures_required,
)
from holdfast.core.run.rules.verdicts import denial_of, policy_verdict
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_policy_changed_while_asleep

PROBLEM_CHARS = 1_000
"""Characters of the reason why a policy was not adopted."""

ASKED_BEFORE = "people were asked before the policy changed"
"""The rule of a request about a call that the new policy alone would let run."""


def on_adoption(state: RunState, adoption: PolicyAdoption, *, at: datetime) -> Reaction | Rejection:
    """Have the run adopt a policy at a person's request."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}; the thread's next run loads its policy anew")
    if state.spec is None:  # its policy has to authorize the sender
        return Rejection("busy", "the agent is being loaded: send it again in a moment")
    required = signatures_required(state)
    if required and not adoption.signature:
        why = "the policy requires signatures: sign the adoption (--key)"
        return Rejection("unsigned", why)
    speaker = verify_sender(state, adoption, required=required, at=at)
    if not isinstance(speaker, Rejection) and speaker.proof:
        speaker = refuse_reuse(state, adoption, at=at) or speaker
    if isinstance(speaker, Rejection):
        return speaker
    if refused := refuse_changer(state, adoption.by, "adopts no policy"):
        return refused
    if state.policy_change and state.policy_change != adoption.policy:
        return Rejection("busy", f"the run is adopting the policy {state.policy_change[:16]}…: wait until it has")
    if adoption.policy in (state.policy_change, policy_of(state).hash):
        return Rejection("duplicate", f"the run has the policy {adoption.policy[:16]}…, or is adopting it")
    proven = bool(speaker.proof)  # without a proof, ignore the expiry and the signature
    event = ev.PolicyChangeRequested(
        policy=adoption.policy,
        by=adoption.by,
        reason=adoption.reason,
        id=adoption.id,
        until=adoption.until if proven else None,
        proof=speaker.proof,
        key=speaker.key,
        signature=adoption.signature if proven else "",
    )
    return Reaction([event], "accepted", "the run adopts the policy, if a worker has it")


def on_policy_loaded(
    state: RunState, policy: Policy, zones: Sequence[ZoneOffsets], *, at: datetime
) -> list[ev.AgentEvent]:
    """Return the events that follow if a worker has loaded a policy: its adoption, and what that changes.

    Args:
        state: The state before.
        policy: The policy of the run's agent on that worker.
        zones: The offsets of the time zones of all policies' hours.
        at: Now.
    """
    if not state.adopts_policy:
        return []  # it was cancelled or reset meanwhile, or is due again later
    if policy.hash != state.policy_change:
        return on_policy_missing(state, f"a worker answered with the policy {policy.hash[:16]}…")
    assert state.spec is not None
    changed = ev.PolicyChanged(policy=policy, spec_hash=state.spec.governed_by(policy).hash, zones=tuple(zones))
    after = evolve(state, changed.model_copy(update={"at": at}))
    events: list[ev.AgentEvent] = [changed]
    opened = 0
    for before, call in zip(state.calls.current, after.calls.current, strict=True):
        if call.undo or call.own or call.phase not in ("previewing", "awaiting_approval", "allowed"):
            continue
        judged = _judge_again(after, call, asked=_asked(before), at=at, ahead=opened)
        opened += any(map(asks, judged))
        events += judged
    return [*events, *_end_polls(after), *on_policy_changed_while_asleep(after, policy.hash, at=at)]


def on_policy_missing(state: RunState, problem: str) -> list[ev.AgentEvent]:
    """Return the event that ends an adoption, because no worker has the policy; none if none is under way."""
    if state.outcome or not state.policy_change:
        return []
    return [ev.PolicyChangeFailed(policy=state.policy_change, problem=one_line(problem, PROBLEM_CHARS))]


def _asked(call: CallState) -> bool:
    """Return whether people were asked about a call that has not started."""
    return call.phase != "allowed" or bool(call.grant)


def _judge_again(state: RunState, call: CallState, *, asked: bool, at: datetime, ahead: int) -> list[ev.AgentEvent]:
    events = ask_again(state, call, at=at, ahead=ahead)
    if events or not asked or state.unattended:
        return events
    request = state.authority.request(call.request or "") or call.asked
    arguments, editor = (request.arguments, request.edited_by) if request else (call.call.arguments, call.edited_by)
    same = call.call.model_copy(update={"arguments": arguments})
    verdict = ask_all_policies(state, rule=ASKED_BEFORE, reason="").denied_on_expiry()
    anew = new_request(state, "approval", call.number, same, verdict, at=at, ahead=ahead)
    return [ask_people(state, with_editor(anew, by=editor))]


def _end_polls(state: RunState) -> list[ev.AgentEvent]:
    """Return the ends of the waits whose polls the policy does not allow at once."""
    ended: list[ev.AgentEvent] = []
    for wait in state.dormancy.wakeable:
        if not wait.polls:
            continue
        verdict = policy_verdict(state, state.calls.get(wait.number).call)
        if verdict.verdict == "deny":
            ended.append(ev.ToolCallFinished(number=wait.number, status="denied", content=denial_of(verdict)))
        elif verdict.verdict == "ask":
            why = f"The policy changed: this call requires approval now ({verdict.rule}). Call it again if needed."
            ended.append(ev.ToolCallFinished(number=wait.number, status="cancelled", content=why))
    return ended
