"""The task of a run is refined: narrowed, replaced, or corrected. Pure functions over the run's state.

1. It changes what the LLM reads, and nothing else: the agent, its policy and its digest stay, and so do open requests,
   approvals and constraints. The policy judges calls, never words.
2. The person who gave the thread its task and every approver of the policy, and of those above, may refine it; if no
   policy names approvers, anybody may. Reaching the run is no right to it.
3. If the policy requires signatures, only a refinement counts that an approver has signed, or a gateway that vouches
   for its sender; else a name is taken on trust.
4. A person who refines the task is a requester of all that follows from it, and may not approve it if requesters may
   not.
5. The LLM is shown a refinement as it is shown a message, so the prompt keeps its beginning. The task itself stays as
   it was given, and survives context compaction together with every refinement, word for word.
6. An agent that has the tool `refine_task` may ask for a refinement. Whatever the policy allows and people remember,
   each such call is approved by people, or not made (`holdfast.core.run.rules.verdicts`).
"""

from datetime import datetime

from holdfast.core.authority.refinements import Refinement, read_refinement
from holdfast.core.authority.statements import parsed
from holdfast.core.llm.messages import size_of
from holdfast.core.log.events import AgentEvent, TaskRefined, ToolCallFinished
from holdfast.core.run.inputs.messages import shown, verify_sender
from holdfast.core.run.rules.authority import Principal, Reaction, Refusal
from holdfast.core.run.rules.policies import policies_of, signatures_required
from holdfast.core.run.state.inbox import REFINEMENTS, REFINEMENTS_BYTES
from holdfast.core.run.state.state import RunState


def on_refinement(state: RunState, given: Refinement, *, at: datetime) -> Reaction | Refusal:
    """Refine the task, as a person asked."""
    refined = _judge(state, given, at=at)
    return refined if isinstance(refined, Refusal) else shown(state, refined, "a refinement of the task", at=at)


def _judge(state: RunState, given: Refinement, *, at: datetime) -> TaskRefined | Refusal:
    """The event that accepts a person's refinement, or why it is refused."""
    if state.outcome:
        return Refusal("too_late", f"the run is {state.outcome}")
    if state.spec is None:  # whose policy says who may
        return Refusal("busy", "the agent is being loaded: send it again in a moment")
    required = signatures_required(state)
    if required and not given.signature:
        why = "the policy requires signatures: sign the refinement (--key), or send it through a gateway"
        return Refusal("unsigned", why)
    speaker = verify_sender(state, given, required=required, at=at)
    if isinstance(speaker, Refusal):
        return speaker
    for policy in policies_of(state):
        if policy.approvers and not policy.approver(given.by) and given.by != state.origin.user:
            why = f"{given.by} has not given the task, and the policy names no approver {given.by!r}"
            return Refusal("not_entitled", why)
    return on_refine(state, given, speaker)


def on_refine(state: RunState, given: Refinement, speaker: Principal) -> TaskRefined | Refusal:
    """Return the event that refines the task, or why there is no room for it.

    Args:
        state: The state before.
        given: The refinement.
        speaker: Who has the right to make it, and how that is known.
    """
    before = state.refinements
    if given.id and (same := next((each for each in before if each.id == given.id), None)):
        return Refusal("duplicate", f"it was received before, as refinement {same.number}, and counts once")
    size, held = size_of(given.text), sum(size_of(each.text) for each in before)
    if len(before) >= REFINEMENTS or held + size > REFINEMENTS_BYTES:
        limit = (
            f"the thread has {len(before)} refinements with {held:,} bytes, of {REFINEMENTS} and {REFINEMENTS_BYTES:,}"
        )
        why = f"{limit}: give the whole task, as it is now, to a new thread, or say the rest in a message"
        return Refusal("too_many", why)
    if full := state.inbox.why_full(size):
        return Refusal("too_many", full)
    proven = bool(speaker.proof)  # without a proof, what would expire counts for nothing
    return TaskRefined(
        refinement=len(before) + 1,
        kind=given.kind,
        text=given.text,
        by=given.by,
        when_busy=given.when_busy,
        id=given.id,
        until=given.until if proven else None,
        proof=speaker.proof,
        key=speaker.key,
        signature=given.signature if proven else "",
    )


def on_refine_call(state: RunState, number: int) -> list[AgentEvent]:
    """Return the events that follow the start of a call of `refine_task`, which people have approved.

    Args:
        state: The state before the start.
        number: The call's number.
    """
    call = state.calls.get(number)
    given = parsed(call.call.arguments)
    asked = {name: given.get(name) for name in ("kind", "text")} if isinstance(given, dict) else {}
    read = read_refinement({**asked, "by": state.spec.name if state.spec else ""})
    refined = on_refine(state, read, Principal()) if isinstance(read, Refinement) else read
    if not isinstance(refined, TaskRefined):
        return [ToolCallFinished(number=number, status="failed", content=f"The task is as it was: {refined[1]}")]
    words = f"The task is refined: this is refinement {refined.refinement}, and it counts from now on."
    return [
        refined.model_copy(update={"call": number}),
        ToolCallFinished(number=number, status="ok", content=call.edit_note + words),
    ]
