"""Bodies of requests and responses, as JSON. No body names its sender: the caller's token or key does."""

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from holdfast.authority.follow_ups import WhenBusy
from holdfast.authority.statements import DecisionKind
from holdfast.llm.content import MAX_TEXT_BYTES
from holdfast.llm.messages import MAX_DEPTH, too_deep
from holdfast.runtime.gateway.problems import HTTPProblem, ResponseBody, in_words

NOT_BLANK = r"[^\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""For OpenAPI: a character that `str.strip` keeps. JSON Schema's own `\\S` differs in some characters."""


class _Body(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is blank")
    return text


class DecisionBody(_Body):
    """A decision on one request, in the name of the owner of the token or key."""

    decision: DecisionKind
    request: str = Field(min_length=1, max_length=200, json_schema_extra={"pattern": NOT_BLANK}, examples=["1"])
    """The request's id."""
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])
    """The request's digest, as it was shown to the approver: an approval counts for nothing else."""
    reason: str = Field(default="", max_length=2_000)
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened` and `respond`: the tool result that the LLM gets."""
    arguments: dict[str, Any] | None = None
    """For `approve`: the arguments to run with, in place of the LLM's. Integers are limited to 2^53 - 1; write a larger
    one as a string, which a parameter of type integer takes."""
    remember: bool = False
    """For `approve`: allow the same call from now on, in this thread."""

    _of_request = field_validator("request")(_not_blank)


class MessageBody(_Body):
    """A message to the agent, in the name of the owner of the token or key."""

    message: str = Field(min_length=1, max_length=MAX_TEXT_BYTES, json_schema_extra={"pattern": NOT_BLANK})
    when_busy: WhenBusy = "queue"
    """While the run is busy: wait for the end of the step, interrupt the LLM call, or refuse the message."""

    _of_message = field_validator("message")(_not_blank)


class Outcome(ResponseBody):
    """The outcome of a decision or a message."""

    outcome: str
    """`accepted`, `waiting_for_quorum`, `queued`, … `sent`: Temporal holds it until a worker judges it."""
    explanation: str = ""
    by: str
    """The owner of the token or key."""


class PendingOf(ResponseBody):
    """The open requests of a thread."""

    pending: list[dict[str, Any]]


class Unanswered(ResponseBody):
    """A thread that has open requests, and whose worker did not answer."""

    thread: str
    why: str


class PendingOfAll(ResponseBody):
    """The open requests of all threads."""

    pending: list[dict[str, Any]]
    unanswered: list[Unanswered]
    """Threads whose workers did not answer."""


class Health(ResponseBody):
    """Whether the gateway can work."""

    temporal: Literal["ok", "away"]
    record: Literal["ok", "away", "none"]
    """The permanent record; only what Temporal has removed needs it."""


_Sent = TypeVar("_Sent", bound=_Body)


def read_body(body: bytes, kind: type[_Sent]) -> _Sent:
    """Read a body.

    Raises:
        HTTPProblem: 422: it is something else.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is infinity
    except ValueError as error:
        raise HTTPProblem(422, f"the body is not JSON that every parser reads: {error}") from None
    if too_deep(value):
        raise HTTPProblem(422, f"the body has more than {MAX_DEPTH} levels of JSON")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise HTTPProblem(422, in_words(error.errors(include_input=False))) from None
