"""Follow-up messages to open runs: their format, limits and outcomes."""

from typing import Any, ClassVar, Literal

from pydantic import AwareDatetime, Field

from holdfast.core.authority.statements import Signed, parsed, read_given
from holdfast.core.base.canonical import unportable
from holdfast.core.base.names import PersonName
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.llm.messages import too_long, unfit

INBOX = 100
"""Maximum number of messages without a reply from the LLM, taken into the transcript or not; more are rejected.
They are carried from one Temporal run to the next.
"""

INBOX_BYTES = 250_000
"""Maximum total size of these messages as JSON. A single longer message is accepted if no other waits."""

WhenBusy = Literal["queue", "interrupt", "reject"]
"""The handling of a message while the run is busy: it waits for the end of the step · it cancels the current LLM call ·
it is rejected."""

LONGEST_MESSAGE = 7 * 86_400
"""Maximum number of seconds for which a signed message is valid."""

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
    "id_taken",
    "unsigned",
    "bad_signature",
]


class Message(Signed):
    """A person's message; the JSON of the signal and the update `say`."""

    FORMAT: ClassVar[str] = "message/1"

    message: Content
    by: PersonName = ""
    when_busy: WhenBusy = "queue"
    id: str = Field(default="", max_length=100)
    """The sender's id: a message that is sent again with its id counts once. Repeating the same text requires a new
    id. Unsigned messages have one from feature level 2 on."""
    until: AwareDatetime | None = None
    """When a signed message expires; required for one."""


def read_message(payload: Any) -> Message | tuple[MessageOutcome, str]:
    """Parse a payload as a message; if it is invalid, return the outcome and a sentence that explains it.

    Args:
        payload: An object, or the message's text alone.
    """
    if isinstance(payload, str):
        given = parsed(payload)
        payload = given if isinstance(given, dict) and "message" in given else {"message": payload}
    message = read_given(payload, Message, name="message", example='{"message": "…"}')
    if isinstance(message, str):
        return "malformed", message
    if not text_of(message.message).strip():
        return "malformed", "the message is empty"
    if why := unfit(message.message):
        return "malformed", f"the message {why}"
    if why := unportable(message.model_dump(mode="json", exclude={"message"})):
        return "malformed", f"the message holds {why}"
    if excess := too_long(message.message):
        return "too_long", f"the message {excess}; put it into a file in the workspace"
    return message
