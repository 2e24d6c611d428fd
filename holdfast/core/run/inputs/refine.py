"""Refine the task of a run: narrow, replace or correct it. Pure functions over the run's state.

1. A refinement only adds to the LLM's prompt: the agent, its policy and its digest stay, and so do open requests,
   approvals and constraints. The policy judges calls, never text.
2. The person who gave the task may refine it, and so may every approver of the policy and of the policies above;
   anybody may if no policy names approvers. Access to the run is no authorization.
3. If the policy requires signatures, a refinement needs the signature of an approver, or of a gateway that vouches for
   its sender. Otherwise a name is taken on trust.
4. A person who refines the task is a requester of all later calls, and may not approve them if requesters may not.
5. A refinement is added to the transcript like a message, so the prompt keeps its prefix. The original task and every
   refinement survive context compaction verbatim.
6. An agent with the tool `refine_task` may request a refinement. Each such call needs a person's approval, even if the
   policy or a remembered rule would allow it (`holdfast.core.run.rules.verdicts`).
"""

from datetime import datetime

from holdfast.core.authority.interventions import Refinement, read_refinement
from holdfast.core.base.canonical import parsed
from holdfast.core.llm.messages import size_of
from holdfast.core.log.events import AgentEvent, TaskRefined, ToolCallFinished
from holdfast.core.run.inputs.messages import deliver, verify_sender
from holdfast.core.run.rules.authority import Principal, Reaction, Rejection, refuse_bystander, signatures_required
from holdfast.core.run.state.context import REFINEMENTS, REFINEMENTS_BYTES
from holdfast.core.run.state.state import RunState


def on_refinement(state: RunState, refinement: Refinement, *, at: datetime) -> Reaction | Rejection:
    """Refine the task at a person's request."""
    refined = _judge(state, refinement, at=at)
    return refined if isinstance(refined, Rejection) else deliver(state, refined, "a refinement of the task", at=at)


def _judge(state: RunState, refinement: Refinement, *, at: datetime) -> TaskRefined | Rejection:
    """Return the event that accepts a person's refinement, or why it is rejected."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    if state.spec is None:  # its policy has to authorize the sender
        return Rejection("busy", "the agent is being loaded: send it again in a moment")
    required = signatures_required(state)
    if required and not refinement.signature:
        why = "the policy requires signatures: sign the refinement (--key), or send it through a gateway"
        return Rejection("unsigned", why)
    speaker = verify_sender(state, refinement, required=required, at=at)
    if isinstance(speaker, Rejection):
        return speaker
    if refused := refuse_bystander(state, refinement.by):
        return refused
    return on_refine(state, refinement, speaker)


def on_refine(state: RunState, refinement: Refinement, speaker: Principal) -> TaskRefined | Rejection:
    """Return the event that refines the task, or why there is no room for it.

    Args:
        state: The state before.
        refinement: The refinement.
        speaker: Its authorized sender, with the proof of identity.
    """
    before = state.refinements
    if refinement.id and (same := next((each for each in before if each.id == refinement.id), None)):
        return Rejection("duplicate", f"it was received before, as refinement {same.number}, and counts once")
    size, held = size_of(refinement.text), sum(size_of(each.text) for each in before)
    if len(before) >= REFINEMENTS or held + size > REFINEMENTS_BYTES:
        limit = (
            f"the thread has {len(before)} refinements with {held:,} bytes, of {REFINEMENTS} and {REFINEMENTS_BYTES:,}"
        )
        why = f"{limit}: give the whole task, as it is now, to a new thread, or say the rest in a message"
        return Rejection("too_many", why)
    if full := state.inbox.why_full(size):
        return Rejection("too_many", full)
    proven = bool(speaker.proof)  # without a proof, ignore the expiry and the signature
    return TaskRefined(
        refinement=len(before) + 1,
        kind=refinement.kind,
        text=refinement.text,
        by=refinement.by,
        when_busy=refinement.when_busy,
        id=refinement.id,
        until=refinement.until if proven else None,
        proof=speaker.proof,
        key=speaker.key,
        signature=refinement.signature if proven else "",
    )


def on_refine_call(state: RunState, number: int) -> list[AgentEvent]:
    """Return the events that follow the start of an approved call of `refine_task`.

    Args:
        state: The state before the start.
        number: The call's number.
    """
    call = state.calls.get(number)
    arguments = parsed(call.call.arguments)
    fields = {name: arguments.get(name) for name in ("kind", "text")} if isinstance(arguments, dict) else {}
    refinement = read_refinement({**fields, "by": state.spec.name if state.spec else ""})
    refined = on_refine(state, refinement, Principal()) if isinstance(refinement, Refinement) else refinement
    if not isinstance(refined, TaskRefined):
        return [ToolCallFinished(number=number, status="failed", content=f"The task is as it was: {refined[1]}")]
    words = f"The task is refined: this is refinement {refined.refinement}, and it counts from now on."
    return [
        refined.model_copy(update={"call": number}),
        ToolCallFinished(number=number, status="ok", content=call.people_note + words),
    ]
