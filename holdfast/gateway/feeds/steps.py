"""Steps of a conversation, as user interfaces show it: what both protocols have in common."""

from typing import Any, Literal, NamedTuple

from holdfast.core.log.events.tool_calls import ToolStatus
from holdfast.core.tools.failures import FailureKind

TextKind = Literal["reply", "reasoning"]
"""What the agent says · what it thinks before, as far as the provider shows it."""

Ending = Literal["answered", "completed", "cancelled", "failed", "blocked", "moved", "asked"]
"""Why the agent stopped: it answered and waits for a message · the run completed · was cancelled · failed · is blocked
· continues on another cluster · every open call waits for a person."""


class Opened(NamedTuple):
    """The agent works on the conversation."""


class MessageReceived(NamedTuple):
    """A person sent a message."""

    position: int
    by: str
    text: str
    id: str
    """The sender's id for it; empty for none."""


class TextStarted(NamedTuple):
    """A text of the agent begins."""

    text_id: str
    kind: TextKind = "reply"


class TextAdded(NamedTuple):
    """A text of the agent continues."""

    text_id: str
    added: str
    kind: TextKind = "reply"


class TextEnded(NamedTuple):
    """A text of the agent is complete, or will be withdrawn."""

    text_id: str
    withdrawn: bool = False
    kind: TextKind = "reply"


class TextWithdrawn(NamedTuple):
    """An ended text is not what the agent said: the LLM was called again, and replied otherwise."""

    text_id: str


class CallShown(NamedTuple):
    """The LLM requested a tool call."""

    number: int
    tool: str
    arguments: str
    """As the LLM wrote them: JSON, unless the call is invalid."""
    again: bool = False
    """Whether it has been shown before, before the last message of a person."""


class Asked(NamedTuple):
    """People are asked to decide about a call."""

    number: int
    request: dict[str, Any]
    """The request as `GET /threads/{thread}/pending` shows it."""

    @property
    def interrupt(self) -> str:
        """The id under which clients answer: `REQUEST.DIGEST`, so that an answer is bound to the request as shown."""
        return f"{self.request['request']}.{self.request['digest']}"


class CallEnded(NamedTuple):
    """A call has its result."""

    position: int
    number: int
    status: ToolStatus
    text: str
    cause: FailureKind | None


class Closed(NamedTuple):
    """The agent stopped, until a person does something or for good."""

    ending: Ending
    text: str = ""
    """The result, or why the run failed or is blocked."""
    structured: bool = False
    """Whether the result is JSON of the agent's result type."""
    cause: str = ""
    asked: tuple[Asked, ...] = ()
    """With `asked`: the open requests."""


Step = (
    Opened
    | MessageReceived
    | TextStarted
    | TextAdded
    | TextEnded
    | TextWithdrawn
    | CallShown
    | Asked
    | CallEnded
    | Closed
)
