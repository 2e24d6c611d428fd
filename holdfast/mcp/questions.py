"""What a server asks for before it continues a call, from its own messages.

1. Elicitation goes to people. The roots are the run's workspace. Sampling is refused: an LLM call that a server words
   would be made outside of the run's budget and policy.
2. Sizes are bounded before anything is recorded. An address is plain ASCII, so that it is what it looks like.
3. A server of an older protocol asks in the middle of a call, on the connection. A person may take days, so nobody is
   asked: the server hears that the question was dismissed, and the result says so.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import mcp_types as types
from pydantic import ValidationError

from holdfast.core.authority.previews import PREVIEW_CHARS
from holdfast.core.authority.server_questions import question_text
from holdfast.core.base.canonical import portable, too_deep, unportable
from holdfast.core.tools.foreign_waits import (
    FORM_BYTES,
    KEY_CHARS,
    MAX_PARTS,
    MESSAGE_CHARS,
    URL_CHARS,
    QuestionPart,
    ServerQuestion,
)
from holdfast.mcp.limits import QuestionRejected

STATE_CHARS: Final = 1_000_000
"""Maximum length of the state that a server sends with a question."""

NOT_ASKED: Final = (
    "[its server asked people a question meanwhile; nobody was asked, because servers of this protocol version wait "
    "for the answer on the connection]"
)


@dataclass(frozen=True)
class Requested:
    """What a server asks for."""

    parts: tuple[QuestionPart, ...]
    """Its questions to people."""
    roots: tuple[str, ...]
    """The keys of its requests for the roots."""

    def question(self, server: str, *, task: str = "") -> ServerQuestion:
        """Return the question to people.

        Raises:
            QuestionRejected: Its text is too long.
        """
        question = ServerQuestion(server=server, parts=self.parts, task=task)
        if len(question_text(question)) > PREVIEW_CHARS:
            raise QuestionRejected(f"its question has more than {PREVIEW_CHARS:,} characters in all")
        return question


def read_requests(requests: Mapping[str, types.InputRequest]) -> Requested:
    """Return what a server asks for.

    Raises:
        QuestionRejected: It asks for what nobody answers; nothing has happened.
    """
    parts: list[QuestionPart] = []
    roots: list[str] = []
    for key, request in requests.items():
        if len(key) > KEY_CHARS:
            raise QuestionRejected("the name of one of its questions is too long")
        match request:
            case types.ListRootsRequest():
                roots.append(key)
            case types.ElicitRequest(params=types.ElicitRequestURLParams() as params):
                parts.append(_visit(key, params))
            case types.ElicitRequest(params=types.ElicitRequestFormParams() as params):
                parts.append(_form(key, params))
            case types.CreateMessageRequest():
                raise QuestionRejected("it asks for sampling, which is refused: no server words this run's LLM calls")
    if len(parts) > MAX_PARTS or len(roots) > MAX_PARTS:
        raise QuestionRejected(f"it asks more than {MAX_PARTS} questions at once")
    return Requested(tuple(parts), tuple(roots))


def _visit(key: str, params: types.ElicitRequestURLParams) -> QuestionPart:
    url = params.url
    try:
        parts = urlsplit(url)
        web = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.username is None
    except ValueError:
        web = False
    if not web or len(url) > URL_CHARS or not (url.isascii() and url.isprintable()) or " " in url:
        raise QuestionRejected(f"it sends people to {url[:200]!r}, which is no plain address of the web")
    return QuestionPart(key=portable(key), message=_message(params.message), url=url)


def _form(key: str, params: types.ElicitRequestFormParams) -> QuestionPart:
    form = params.requested_schema
    if too_deep(form) or unportable(form) or len(json.dumps(form)) > FORM_BYTES:
        raise QuestionRejected("the form of its question is too large, or has no canonical JSON")
    if form.get("type") != "object" or not isinstance(form.get("properties"), dict):
        raise QuestionRejected("the form of its question is not an object with properties")
    return QuestionPart(key=portable(key), message=_message(params.message), form=form)


def _message(text: str) -> str:
    if len(text) > MESSAGE_CHARS:
        raise QuestionRejected(f"its question has more than {MESSAGE_CHARS:,} characters")
    return str(portable(text))


class RequiredVisits(types.InputRequiredResult):
    """The questions of a server that has only to be called again: its protocol has no place for answers."""


def required_visits(data: Any) -> RequiredVisits | None:
    """Return the questions in the error with which a server of protocol 2025-11-25 sends people to an address; None if
    the error has none.
    """
    try:
        asked = types.ElicitationRequiredErrorData.model_validate(data)
    except ValidationError:
        return None
    visits: types.InputRequests = {
        params.elicitation_id or str(number): types.ElicitRequest(params=params)
        for number, params in enumerate(asked.elicitations)
    }
    return RequiredVisits(input_requests=visits) if visits else None


def roots_of(workspace: Path) -> dict[str, Any]:
    """Return the answer to a request for the roots."""
    return {"roots": [{"uri": workspace.absolute().as_uri(), "name": "workspace"}]}


@dataclass(frozen=True)
class CallState:
    """What a call needs to continue after people have answered."""

    state: str | None
    """The server's own state."""
    roots: tuple[str, ...] = ()
    """The keys of its requests for the roots, which are answered together with people's answers."""
    visits: bool = False
    """The server has only to be called again: its protocol has no place for answers."""
    asked: str = ""
    """The digest of the question."""

    def encoded(self) -> str:
        """Return it as JSON.

        Raises:
            QuestionRejected: The server's state is too long.
        """
        if self.state is not None and len(self.state) > STATE_CHARS:
            raise QuestionRejected(f"its state has more than {STATE_CHARS:,} characters")
        return json.dumps({"state": self.state, "roots": self.roots, "visits": self.visits, "asked": self.asked})

    @classmethod
    def decoded(cls, text: str) -> "CallState":
        """Read it from JSON."""
        fields = json.loads(text)
        return cls(fields["state"], tuple(fields["roots"]), fields["visits"], fields.get("asked", ""))
