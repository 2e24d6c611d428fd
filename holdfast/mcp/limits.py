"""The limits of what an MCP server may send, and the errors of calls that it does not answer.

The names of the errors say whether a request may have arrived, which decides what becomes of a call with an effect.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.core.tools.not_done import NotSent

MAX_MESSAGE_BYTES: Final = 8_000_000
"""Largest message of a server. An image in base64 has a few megabytes; parsed JSON takes some ten times as much."""
MAX_RESPONSE_BYTES: Final = 32_000_000
"""Largest HTTP response, which may be a stream of messages."""
CONNECT_SECONDS: Final = 30.0
"""Time limit for starting or reaching a server, and again for reading its list of tools."""


class ServerMisbehaved(Exception):
    """The server cannot be used: it did not start, or exceeded a limit."""


class NotConnected(NotSent):
    """There was no connection, so nothing was sent by this attempt."""


class PinRejected(NotSent):
    """The server offers another tool than the accepted one, so nothing was sent by this attempt."""


class ConnectionLost(Exception):
    """The connection ended after the request was sent: the effect may have happened."""


class AnswerTimeout(Exception):
    """The server did not answer in time: the effect may have happened."""


class QuestionRejected(NotSent):
    """The server asks for what nobody answers. It had not acted yet, by its own word."""


class TaskUnknown(Exception):
    """The server does not know the task, or any more: the effect may have happened."""


class ServerError(Exception):
    """The server answered with an error; it does not say whether the effect happened."""


class StateExpired(ServerError):
    """The server no longer reads the state that it sent with a question, so it has not acted on the answer."""


@dataclass
class Verdict:
    """Why a connection had to end; empty as long as it need not."""

    reason: str = ""

    def reach(self, reason: str) -> None:
        """Keep the first reason."""
        self.reason = self.reason or reason
