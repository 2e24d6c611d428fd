"""Follow-up messages: what a person says to a run that is open, and what becomes of it."""

import json
from typing import Any, Literal

from pydantic import AwareDatetime, Field, ValidationError

from holdfast.messages import MAX_DEPTH, Content, text_of, too_deep
from holdfast.model import canonical
from holdfast.names import PersonName
from holdfast.statements import Signed, in_words, parsed

MAX_TEXT_BYTES = 200_000
"""A longer text belongs into a file in the workspace; also where it is given in content blocks."""

MAX_BLOCKS_BYTES = 1_000_000
"""Of a message in content blocks, images included: Temporal allows 2 MB a payload."""

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


def unfit(content: Content) -> str:
    """Why a message or a task cannot be kept as it is; empty if it can."""
    if too_deep(content):
        return f"has more than {MAX_DEPTH} levels of JSON"
    try:
        json.dumps(content, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return "holds what JSON cannot say: a number that is none, or half a surrogate pair"
    return ""


def size_of(content: Content) -> int:
    """Bytes of a message as JSON."""
    return len(canonical(content))


def too_long(content: Content) -> str:
    """What is wrong with the length of a message or a task; empty if nothing is."""
    size, what = len(text_of(content).encode("utf-8", "replace")), "bytes of text"
    limit = MAX_TEXT_BYTES
    if size <= limit and not isinstance(content, str):
        size, limit, what = (
            len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")),
            MAX_BLOCKS_BYTES,
            "bytes",
        )
    return f"has {size:,} {what}, and {limit:,} are the limit" if size > limit else ""
