"""What the gateway is sent and what it answers, as JSON. Nothing that is sent can say who sends it."""

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from holdfast.authority.follow_ups import WhenBusy
from holdfast.authority.statements import DecisionKind
from holdfast.llm.content import MAX_TEXT_BYTES
from holdfast.llm.messages import MAX_DEPTH, too_deep
from holdfast.runtime.gateway.problems import Answer, Trouble, in_words

NOT_BLANK = r"[^\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""For OpenAPI: what `str.strip` leaves something of. The white space of JSON Schema's own `\\S` is not quite that."""


class _Body(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


class DecisionBody(_Body):
    """A decision on one request. Who decides is whose token or key it is."""

    decision: DecisionKind
    request: str = Field(min_length=1, max_length=200, json_schema_extra={"pattern": NOT_BLANK}, examples=["1"])
    """The request's id."""
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])
    """The request's digest, as it was shown to whoever decides: an approval counts for nothing else."""
    reason: str = Field(default="", max_length=2_000)
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened` and `respond`: what the LLM is to be told the call returned."""
    arguments: dict[str, Any] | None = None
    """For `approve`: the arguments to run with, in place of the LLM's."""
    remember: bool = False
    """For `approve`: the same call is allowed from now on, in this thread."""

    _of_request = field_validator("request")(_not_blank)


class MessageBody(_Body):
    """Something to say to the agent. Who says it is whose token or key it is."""

    message: str = Field(min_length=1, max_length=MAX_TEXT_BYTES, json_schema_extra={"pattern": NOT_BLANK})
    when_busy: WhenBusy = "queue"
    """While the run is at work: wait for the end of the step, give the LLM call up, or be turned away."""

    _of_message = field_validator("message")(_not_blank)


class Outcome(Answer):
    """What became of a decision or a message."""

    outcome: str
    """`accepted`, `waiting_for_quorum`, `queued`, … `sent`: Temporal keeps it, and a worker judges it later."""
    explanation: str = ""
    by: str
    """Whose token or key it was."""


class PendingOf(Answer):
    """The open requests of a thread."""

    pending: list[dict[str, Any]]


class Unanswered(Answer):
    """A thread that has open requests, and did not answer."""

    thread: str
    why: str


class PendingOfAll(Answer):
    """The open requests of all threads."""

    pending: list[dict[str, Any]]
    unanswered: list[Unanswered]
    """Threads that could not be asked."""


class Health(Answer):
    """Whether the gateway can work."""

    temporal: Literal["ok", "away"]
    record: Literal["ok", "away", "none"]
    """The permanent record; it is needed only for what Temporal has forgotten."""


_Sent = TypeVar("_Sent", bound=_Body)


def read_body(body: bytes, kind: type[_Sent]) -> _Sent:
    """What was sent.

    Raises:
        Trouble: 422: it is something else.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is infinity, too
    except ValueError as error:
        raise Trouble(422, f"the body is no JSON that everybody can read: {error}") from None
    if too_deep(value):
        raise Trouble(422, f"the body has more than {MAX_DEPTH} levels of JSON")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise Trouble(422, in_words(error.errors(include_input=False))) from None
