"""Follow-up messages: what a person says to a run that is open, and what becomes of it."""

from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.authority.statements import Signed, in_words, parsed
from holdfast.base.names import PersonName
from holdfast.llm.content import too_long, unfit
from holdfast.llm.messages import Content, text_of

INBOX = 100
"""Messages that wait for the LLM's answer at the same time, taken or not; more are refused. They travel from one
Temporal run to the next.
"""

INBOX_BYTES = 250_000
"""Of all of them together, as JSON. A message that is longer than that can wait alone."""

WhenBusy = Literal["queue", "interrupt", "reject"]
"""What becomes of a message to a run that is at work: it waits for the end of the step · the LLM call under way is
given up for it · it is turned away."""

LONGEST_MESSAGE = 7 * 86_400
"""Seconds for which a signed message can be good."""

MessageOutcome = Literal[
    "accepted",
    "queued",
    "interrupting",
    "busy",
    "malformed",
    "too_long",
    "too_late",
    "too_many",
    "duplicate",
    "unsigned",
    "bad_signature",
]


class Message(Signed):
    """What a person says; the JSON of the signal and the update `say`."""

    message: Content = Field(min_length=1)
    by: PersonName = ""
    when_busy: WhenBusy = "queue"
    id: str = Field(default="", max_length=100)
    """A signed message has one of its own: it counts once, and the same words can be said again under another."""
    until: AwareDatetime | None = None
    """Until when it is good; a signed message says so."""


def read_message(payload: Any) -> Message | tuple[MessageOutcome, str]:
    """A payload as a message, or the outcome and a sentence that say why it is none.

    Args:
        payload: What was sent: an object, or the message's text alone.
    """
    if isinstance(payload, str):
        given = parsed(payload)
        payload = given if isinstance(given, dict) and "message" in given else {"message": payload}
    if not isinstance(payload, dict):
        return "malformed", f'expected an object such as {{"message": "…"}}, got {type(payload).__name__}'
    try:
        message = Message.model_validate(payload)
    except ValidationError as error:
        return "malformed", in_words(error)[:2_000]
    if not text_of(message.message).strip():
        return "malformed", "the message is empty"
    if why := unfit(message.message):
        return "malformed", f"the message {why}"
    if excess := too_long(message.message):
        return "too_long", f"the message {excess}; put it into a file in the workspace"
    return message
