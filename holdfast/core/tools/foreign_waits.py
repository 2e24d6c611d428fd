"""What a call of a foreign tool may return instead of its result: a question to people, or a task that continues.

The run asks people (`holdfast.core.authority.server_questions`), or polls the task, and continues the call with what
came of it.
"""

from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Frozen

MAX_PARTS: Final = 10
"""Maximum number of questions that a server asks at once."""
MESSAGE_CHARS: Final = 2_000
"""Maximum length of the text of a question."""
URL_CHARS: Final = 2_000
"""Maximum length of an address."""
FORM_BYTES: Final = 16_000
"""Maximum size of the schema of a form, as JSON."""
KEY_CHARS: Final = 200
"""Maximum length of the server's name for a question."""
MAX_ANSWERED: Final = 50
"""How many answered questions of a call are remembered."""

ASKED: Final = "the server asks people a question"
"""The text of an outcome that is a question."""


BEGAN: Final = "the server works on it"
"""The text of an outcome that is a task, if its server gives none."""


class QuestionPart(Frozen):
    """One of the questions: a form to fill in, or an address to visit."""

    key: str
    """The server's name for it."""
    message: str
    """The server's text."""
    url: str = ""
    """The address that people are to visit; empty for a form."""
    form: dict[str, Any] = {}
    """The JSON schema of the answer: an object with flat fields. Empty for an address."""


class ServerQuestion(Frozen):
    """All that a server asks before it continues a call."""

    server: str
    """The server's name in the catalog."""
    parts: tuple[QuestionPart, ...]
    """At least one."""
    state: str = ""
    """Address of the artifact with the state that the server gets back with the answer; empty if it sent none."""
    task: str = ""
    """The id of the task that asks; empty if the call itself does."""

    @property
    def is_visit(self) -> bool:
        """Whether people are only to visit an address, and have nothing to fill in."""
        return len(self.parts) == 1 and bool(self.parts[0].url)

    @property
    def digest(self) -> str:
        """The digest of all fields, format `server-question/1`."""
        return digest(["server-question/1", self.model_dump(mode="json", exclude_defaults=True)])


class ForeignTask(Frozen):
    """A task of a foreign server, by which a call continues after its request has been answered."""

    server: str
    """The server's name in the catalog."""
    id: str
    """The server's id of the task."""
    interval: float
    """Seconds between two polls that the server asks for."""
    message: str = ""
    """The server's text about the state of the task."""


class Resumption(Frozen):
    """What a call continues with: people's answers, or nothing but the id of its task."""

    responses: str = ""
    """The answer to each question by its key, as the protocol writes them, as canonical JSON; empty for none."""
    state: str = ""
    """`ServerQuestion.state`."""
    task: str = ""
    """The id of the task; empty if the call has none."""
    answered: tuple[str, ...] = ()
    """The keys of all questions of the call that people have answered, so that none is asked twice."""


@dataclass(frozen=True)
class Asks:
    """A tool's return value: the call continues when people have answered."""

    question: ServerQuestion
    state: str | None = None
    """The server's state, which becomes an artifact."""


@dataclass(frozen=True)
class Working:
    """A tool's return value: the call continues as a task of the server."""

    task: ForeignTask


@dataclass(frozen=True)
class TaskEnded:
    """A tool's return value: its task has ended without a result."""

    reason: str
    unknown: bool = False
    """Whether the task may have had an effect."""


@dataclass(frozen=True)
class Resumed:
    """What a tool's function gets of the call that it continues."""

    responses: dict[str, Any]
    """The answers by key; empty for none."""
    state: str | None = None
    """The state that the server sent with its question; None if it sent none."""
    task: str = ""
    """The id of the task; empty if the call has none."""
    answered: tuple[str, ...] = ()
    """The keys of all questions that people have answered."""
    polls: bool = False
    """The task is polled: if it cannot be read, it is polled again."""
    cancels: bool = False
    """The task is to be cancelled."""
