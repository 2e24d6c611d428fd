"""What a person's message and a refinement of the task have in common: who sends it, and when the LLM is shown it. Pure
functions over the run's state.
"""

from datetime import datetime, timedelta
from typing import Literal

from holdfast.authority.extensions import Extension
from holdfast.authority.follow_ups import LONGEST_MESSAGE, Message
from holdfast.authority.refinements import Refinement
from holdfast.run.features import INTERRUPT_NAMES_TOOLS
from holdfast.run.rights import Refusal, Speaker, verify_for_all
from holdfast.run.state import RunState


def verify_sender(
    state: RunState, sent: Message | Refinement | Extension, *, required: bool, at: datetime
) -> Speaker | Refusal:
    """Return who sends this, or why it is refused. Where no proof is required, a name is taken on trust.

    Args:
        state: The state before.
        sent: What was sent.
        required: A signature is required.
        at: Now.
    """
    speaker, what = verify_for_all(state, sent), type(sent).__name__.lower()
    if not sent.signature or isinstance(speaker, Refusal):
        return speaker if required and isinstance(speaker, Refusal) else Speaker()
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


def when_shown(
    state: RunState, when_busy: Literal["queue", "interrupt", "reject"]
) -> tuple[Literal["accepted", "queued", "interrupting"], str]:
    """Return the outcome of something that the inbox takes, and when the LLM is shown it.

    Args:
        state: The state before.
        when_busy: What its sender asked for.
    """
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
    """What a message that interrupts leads to. It ends an LLM call, and no tool: an effect may be under way."""
    tools = sorted({call.call.name for call in state.running_calls})
    if not tools or state.features < INTERRUPT_NAMES_TOOLS:
        return "the LLM call is made again, with the message"
    return f"an interrupt ends no tool: the LLM is shown the message when {', '.join(tools)} has ended"
