"""Reclassify a run: another agent continues it, at a lower trust level, or within a smaller budget. Pure functions.

1. Nothing about it widens what may run. Another agent's calls are also judged by the policy of the agent before it, as
   a fork's are that keeps its policy. A trust level only falls, and limits only shrink: `extend` raises them.
2. To lower the trust level or the budget, a person needs the right to refine the task. To change the agent, they must
   be an approver of every policy that names any, and no requester if requesters may not approve. If a policy requires
   signatures, it is signed. No agent reclassifies its own run.
3. The new agent is loaded at the end of the step: open calls, requests and approvals belong to the agent that made
   them. Remembered rules and delegations end with it. The rest of the run stays: its task, transcript, workspace, trust
   scope, constraints, account and steps.
4. The LLM reads of it like of a message, so the new agent makes a step. Its author counts as a requester.
5. An agent that cannot be loaded blocks the run; another reclassification, or `retry`, continues it.
"""

from datetime import datetime

from holdfast.core.authority.interventions import Reclassification
from holdfast.core.base.text import one_line
from holdfast.core.llm.messages import size_of
from holdfast.core.log.events import RunReclassified
from holdfast.core.nodes import MAX_LAYERS
from holdfast.core.run.inputs.messages import delivery, verify_sender
from holdfast.core.run.rules.authority import (
    Reaction,
    Rejection,
    policies_of,
    refuse_bystander,
    refuse_reuse,
    refuse_stranger,
    signatures_required,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.trust import least

POLICIES = 10
"""The most policies that judge a run besides that of its agent: each change of the agent may add one."""


def on_reclassification(state: RunState, change: Reclassification, *, at: datetime) -> Reaction | Rejection:
    """Reclassify the run at a person's request."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}; start the thread again, with another agent")
    if state.spec is None:  # its policy has to authorize the sender
        return Rejection("busy", "the agent is being loaded: send it again in a moment")
    required = signatures_required(state)
    if required and not change.signature:
        why = "the policy requires signatures: sign the reclassification (--key), or send it through a gateway"
        return Rejection("unsigned", why)
    speaker = verify_sender(state, change, required=required, at=at)
    if not isinstance(speaker, Rejection) and speaker.proof:
        speaker = refuse_reuse(state, change, at=at) or speaker
    if isinstance(speaker, Rejection):
        return speaker
    if refused := _refuse_sender(state, change) or _refuse_change(state, change):
        return refused
    proven = bool(speaker.proof)  # without a proof, ignore the expiry and the signature
    event = RunReclassified(
        agent=change.agent,
        trust=change.trust,
        budget=change.budget,
        by=change.by,
        reason=change.reason,
        id=change.id,
        until=change.until if proven else None,
        proof=speaker.proof,
        key=speaker.key,
        signature=change.signature if proven else "",
        notice=_notice(change),
    )
    if full := state.inbox.why_full(size_of(event.notice)):
        return Rejection("too_many", full)
    return delivery(state, event, "a reclassification of the run", at=at)


def _refuse_sender(state: RunState, change: Reclassification) -> Rejection | None:
    """Return a refusal if this person may not make this change; else None."""
    assert state.spec is not None
    if change.agent:
        return refuse_changer(state, change.by, "reclassifies no run")
    if change.by == state.spec.name:
        return Rejection("not_entitled", f"{change.by} is the agent of this run, and an agent reclassifies no run")
    return refuse_bystander(state, change.by)


def refuse_changer(state: RunState, by: str, never: str) -> Rejection | None:
    """Return a refusal unless a person may change the agent of a run, or its policy; else None.

    Args:
        state: The state before.
        by: The person.
        never: What no agent does, in words: `reclassifies no run`.
    """
    if state.spec and by == state.spec.name:
        return Rejection("not_entitled", f"{by} is the agent of this run, and an agent {never}")
    if stranger := refuse_stranger(state, by):
        return stranger
    barred = any(policy.approvers and not policy.terms.requester_may_decide for policy in policies_of(state))
    if barred and state.authority.is_requester(by):
        why = f"{by} asked for this with the task or a message; another approver changes its agent or policy"
        return Rejection("not_entitled", why)
    return None


def _refuse_change(state: RunState, change: Reclassification) -> Rejection | None:
    """Return a refusal if the run cannot be changed like this; else None."""
    if change.agent and state.origin.lineage:
        why = "a sub-agent's agent is the one that its parent run asked for; reclassify the parent run"
        return Rejection("not_entitled", why)
    if change.agent and state.next_agent and not state.blocked:
        return Rejection("busy", f"the run is being changed to the agent {state.next_agent}: wait until it is loaded")
    if change.agent and len(state.origin.policies) >= POLICIES:
        return Rejection("too_many", f"{POLICIES} policies besides that of its agent judge this run already")
    if change.agent and len(state.scope) >= MAX_LAYERS:
        return Rejection("too_many", f"its trust scope has {MAX_LAYERS} layers already")
    now = state.context.trust
    if change.trust and (change.trust == now or least(change.trust, now) != change.trust):
        return Rejection("too_much", f"the run has the trust level {now}, and a trust level only falls")
    if change.budget is None:
        return None
    limits, units = state.account.limits, change.budget.units
    if other := [name for name in units if name not in limits]:
        return Rejection("no_budget", f"the run has no limit of {', '.join(other)}")
    if more := [name for name in units if units[name] > limits[name]]:
        return Rejection("too_much", f"a reclassification only lowers limits; `extend` raises {', '.join(more)}")
    return None


# This text enters transcripts: changing the wording changes the digests of runs recorded with the old one.


def _notice(change: Reclassification) -> str:
    agent = f"You are now the agent {one_line(change.agent, 200)}; what came before was said and done by another one."
    trust = f"Its trust level is {change.trust} now."
    budget = f"Its budget is at most {change.budget.words} now." if change.budget else ""
    said = " ".join(filter(None, (change.agent and agent, change.trust and trust, budget)))
    reason = "".join(f"\n> {line}" for line in change.reason.splitlines())
    return f"[{one_line(change.by, 200)} has reclassified this run. {said}]{reason}"
