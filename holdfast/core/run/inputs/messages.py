"""Messages from people, and the rules that they share with refinements of the task: authorization of the sender, and
delivery to the LLM. Pure functions over the run's state.
"""

from datetime import datetime, timedelta
from typing import Literal

from holdfast.core.authority.interventions import GOOD_SECONDS, LONGEST_MESSAGE, Message, WhenBusy
from holdfast.core.authority.statements import Once
from holdfast.core.llm.messages import size_of
from holdfast.core.log.events import RunReclassified, TaskRefined, UserMessageReceived
from holdfast.core.run.rules.authority import Principal, Reaction, Rejection, policies_of, refuse_reuse, verify_for_all
from holdfast.core.run.rules.hours import on_arrival_while_postponed
from holdfast.core.run.state.features import INTERRUPT_NAMES_TOOLS, MESSAGE_IDS
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_arrival_while_asleep


def on_message(state: RunState, message: Message, *, at: datetime) -> Reaction | Rejection:
    """Accept or reject a message for the LLM."""
    received = _judge(state, message, at=at)
    return received if isinstance(received, Rejection) else deliver(state, received, "a message", at=at)


def _judge(state: RunState, message: Message, *, at: datetime) -> UserMessageReceived | Rejection:
    """Return the event that accepts a message, or why it is rejected."""
    if state.outcome:
        return Rejection("too_late", f"the run is {state.outcome}")
    required = any(policy.proves_requesters for policy in policies_of(state))
    if required and not message.signature:
        why = "requesters may not approve here, so requesters have to sign: --key, or a gateway"
        return Rejection("unsigned", why)
    speaker = verify_sender(state, message, required=required, at=at)
    if isinstance(speaker, Principal) and speaker.proof:
        speaker = refuse_reuse(state, message, at=at) or speaker
    if isinstance(speaker, Rejection):
        return speaker
    if state.features >= MESSAGE_IDS and (repeated := _refuse_repeated(state, message)):
        return repeated
    idle = state.idle.awaiting or state.status == "dormant"
    if (state.pause or not idle) and message.when_busy == "reject":
        return Rejection("busy", f"the run is {state.status}, and the sender asked for the message not to wait")
    if full := state.inbox.why_full(size_of(message.message)):
        return Rejection("too_many", full)
    if not speaker.proof:  # without a proof, ignore the expiry and the signature
        id = message.id if state.features >= MESSAGE_IDS else ""
        return UserMessageReceived(content=message.message, by=message.by, when_busy=message.when_busy, id=id)
    return UserMessageReceived(
        content=message.message,
        by=message.by,
        when_busy=message.when_busy,
        id=message.id,
        until=message.until,
        proof=speaker.proof,
        key=speaker.key,
        signature=message.signature,
    )


def refuse_signature(past: RunState, message: Message, *, at: datetime) -> Rejection | None:
    """Return why the signature of a message may not re-open a closed thread; None if it may, or if there is none.

    Args:
        past: The state in which the thread's last run ended.
        message: The message.
        at: Now.
    """
    if not message.signature or past.spec is None:
        return None
    required = any(policy.proves_requesters for policy in policies_of(past))
    speaker = verify_sender(past, message, required=required, at=at)
    if not isinstance(speaker, Rejection):
        return None
    return Rejection(speaker.outcome, f"{speaker.explanation} (by the policy of the thread's last run)")


def _refuse_repeated(state: RunState, message: Message) -> Rejection | None:
    """Return a refusal if a message was received before under the same id; else None."""
    match state.inbox.repeats(message.id, message.message, message.by):
        case "same":
            return Rejection("duplicate", f"the message {message.id!r} was received before, and counts once")
        case "other":
            return Rejection("id_taken", f"another message was received under the id {message.id!r}: take another id")
        case _:
            return None


def verify_sender(
    state: RunState,
    sent: Once,
    *,
    required: bool,
    at: datetime,
) -> Principal | Rejection:
    """Return the sender, or why the input is rejected. If no proof is required, a name is taken on trust.

    After a gap in the log, nothing shows which statements were used before it. Our programs sign for `GOOD_SECONDS`, so
    what expires sooner than that after the gap was made before it.

    Args:
        state: The state before.
        sent: The message, or another statement that a policy without signatures takes on trust.
        required: A signature is required.
        at: Now.
    """
    speaker, what = verify_for_all(state, sent), type(sent).__name__.lower()
    if not sent.signature or isinstance(speaker, Rejection):
        return speaker if required and isinstance(speaker, Rejection) else Principal()
    until = sent.until
    if not sent.id or until is None:
        return Rejection(
            "malformed", f"a signed {what} counts once: give it an `id` of its own, and `until` when it is valid"
        )
    if until <= at:
        return Rejection("too_late", f"the {what} was valid until {until.isoformat()}")
    if state.lost and until < (since := state.lost.at + timedelta(seconds=GOOD_SECONDS)):
        lost = f"events of this thread were lost, and the {what} may have been used in them"
        return Rejection("too_late", f"{lost}: sign it until {since.isoformat()} or later")
    if until - at > timedelta(seconds=LONGEST_MESSAGE):
        days = LONGEST_MESSAGE // 86_400
        return Rejection("malformed", f"until {until.isoformat()} is too far: {days} days are the most")
    return speaker


def deliver(state: RunState, event: UserMessageReceived | TaskRefined, what: str, *, at: datetime) -> Reaction:
    """Return the reaction to an accepted text for the LLM: it ends all waits, and may interrupt the LLM call.

    Args:
        state: The state before.
        event: The event that accepts the text.
        what: The kind of text, in the words for a dormant run: `a message`.
        at: Now.
    """
    return delivery(state, event, what, at=at, when_busy=event.when_busy)


def delivery(
    state: RunState,
    event: UserMessageReceived | TaskRefined | RunReclassified,
    what: str,
    *,
    at: datetime,
    when_busy: WhenBusy = "queue",
) -> Reaction:
    """Return the reaction to an accepted event that the LLM reads like a message. The arguments are as for `deliver`,
    and what the sender wants while the run is busy.
    """
    outcome, explanation = _when_shown(state, when_busy)
    events = [event, *on_arrival_while_asleep(state, what, at=at), *on_arrival_while_postponed(state, what)]
    return Reaction(events, outcome, explanation, interrupts=outcome == "interrupting")


def _when_shown(
    state: RunState, when_busy: Literal["queue", "interrupt", "reject"]
) -> tuple[Literal["accepted", "queued", "interrupting"], str]:
    if state.pause:
        return "queued", "the run is paused; the LLM is shown it after the run resumes"
    if state.idle.awaiting:
        return "accepted", "the run resumes with it"
    if state.status == "dormant" and (state.dormancy.wakeable or not state.dormancy.waits):
        return "accepted", "the run wakes, and the LLM reads it"
    if when_busy == "interrupt" and not state.account.closing:  # interrupts would repeat the last LLM call endlessly
        return "interrupting", _interrupting(state)
    return "queued", "the LLM is shown it at the end of the step"


def _interrupting(state: RunState) -> str:
    """Explain the effect of an interrupt: it ends an LLM call, but no tool, because an effect may be under way."""
    tools = sorted({call.call.name for call in state.running_calls})
    if not tools or state.features < INTERRUPT_NAMES_TOOLS:
        return "the LLM call is made again, with the message"
    return f"an interrupt ends no tool: the LLM is shown the message when {', '.join(tools)} has ended"
