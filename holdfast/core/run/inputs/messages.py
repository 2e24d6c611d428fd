"""A person's message, and the rules that it shares with a refinement of the task: who may send it, and when the LLM is
shown it. Pure functions over the run's state.
"""

from datetime import datetime, timedelta
from typing import Literal

from holdfast.core.authority.extensions import Extension
from holdfast.core.authority.follow_ups import LONGEST_MESSAGE, Message
from holdfast.core.authority.refinements import Refinement
from holdfast.core.llm.messages import size_of
from holdfast.core.log.events import TaskRefined, UserMessageReceived
from holdfast.core.run.rules.authority import Principal, Reaction, Refusal, refuse_reuse, verify_for_all
from holdfast.core.run.rules.policies import policies_of
from holdfast.core.run.state.features import INTERRUPT_NAMES_TOOLS
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_arrival_while_asleep


def on_message(state: RunState, given: Message, *, at: datetime) -> Reaction | Refusal:
    """Take in a message for the LLM."""
    received = _judge(state, given, at=at)
    return received if isinstance(received, Refusal) else shown(state, received, "a message", at=at)


def _judge(state: RunState, given: Message, *, at: datetime) -> UserMessageReceived | Refusal:
    """The event that accepts a message, or why it is refused."""
    if state.outcome:
        return Refusal("too_late", f"the run is {state.outcome}")
    required = any(policy.proves_requesters for policy in policies_of(state))
    if required and not given.signature:
        why = "requesters may not approve here, so requesters have to sign: --key, or a gateway"
        return Refusal("unsigned", why)
    speaker = verify_sender(state, given, required=required, at=at)
    if isinstance(speaker, Principal) and speaker.proof:
        speaker = refuse_reuse(state, given, at=at) or speaker
    if isinstance(speaker, Refusal):
        return speaker
    idle = state.idle.awaiting or state.status == "dormant"
    if (state.pause or not idle) and given.when_busy == "reject":
        return Refusal("busy", f"the run is {state.status}, and the sender asked for the message not to wait")
    if full := state.inbox.why_full(size_of(given.message)):
        return Refusal("too_many", full)
    if not speaker.proof:  # without a proof, what would count once and expire counts for nothing
        return UserMessageReceived(content=given.message, by=given.by, when_busy=given.when_busy)
    return UserMessageReceived(
        content=given.message,
        by=given.by,
        when_busy=given.when_busy,
        id=given.id,
        until=given.until,
        proof=speaker.proof,
        key=speaker.key,
        signature=given.signature,
    )


def verify_sender(
    state: RunState, sent: Message | Refinement | Extension, *, required: bool, at: datetime
) -> Principal | Refusal:
    """Return who sends this, or why it is refused. Where no proof is required, a name is taken on trust.

    Args:
        state: The state before.
        sent: What was sent.
        required: A signature is required.
        at: Now.
    """
    speaker, what = verify_for_all(state, sent), type(sent).__name__.lower()
    if not sent.signature or isinstance(speaker, Refusal):
        return speaker if required and isinstance(speaker, Refusal) else Principal()
    until = sent.until
    if not sent.id or until is None:
        return Refusal(
            "malformed", f"a signed {what} counts once: give it an `id` of its own, and `until` when it is valid"
        )
    if until <= at:
        return Refusal("too_late", f"the {what} was valid until {until.isoformat()}")
    if until - at > timedelta(seconds=LONGEST_MESSAGE):
        days = LONGEST_MESSAGE // 86_400
        return Refusal("malformed", f"until {until.isoformat()} is too far: {days} days are the most")
    return speaker


def shown(state: RunState, event: UserMessageReceived | TaskRefined, what: str, *, at: datetime) -> Reaction:
    """Return the reaction to something that the LLM will be shown: it ends all waits, and may interrupt the LLM call.

    Args:
        state: The state before.
        event: The event that accepts it.
        what: What it is, for a dormant run: `a message`.
        at: Now.
    """
    outcome, explanation = _when_shown(state, event.when_busy)
    events = [event, *on_arrival_while_asleep(state, what, at=at)]
    return Reaction(events, outcome, explanation, interrupts=outcome == "interrupting")


def _when_shown(
    state: RunState, when_busy: Literal["queue", "interrupt", "reject"]
) -> tuple[Literal["accepted", "queued", "interrupting"], str]:
    if state.pause:
        return "queued", "the run is paused; the LLM is shown it after the run resumes"
    if state.idle.awaiting:
        return "accepted", "the run resumes with it"
    if state.status == "dormant":
        return "accepted", "the run wakes, and the LLM reads it"
    if when_busy == "interrupt" and not state.account.closing:  # the last LLM call would be made again and again
        return "interrupting", _interrupting(state)
    return "queued", "the LLM is shown it at the end of the step"


def _interrupting(state: RunState) -> str:
    """Explain a message that interrupts. It ends an LLM call, and no tool: an effect may be under way."""
    tools = sorted({call.call.name for call in state.running_calls})
    if not tools or state.features < INTERRUPT_NAMES_TOOLS:
        return "the LLM call is made again, with the message"
    return f"an interrupt ends no tool: the LLM is shown the message when {', '.join(tools)} has ended"
