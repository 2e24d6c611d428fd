"""JSON bodies of requests. No body names its sender: the caller's token or key does."""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import from_json

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.authority.interventions import LONGEST_REFINEMENT, RefinementKind, WhenBusy
from holdfast.core.authority.statements import LONGEST_DELEGATION, DecisionKind
from holdfast.core.base.canonical import MAX_DEPTH, too_deep
from holdfast.core.base.models import DEFINING
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.conversation import MAX_MESSAGES, read_conversation
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.core.nodes import Nodes
from holdfast.core.run.inputs.pause import LONGEST_PAUSE
from holdfast.core.tools.typed_context import context_excess
from holdfast.errors import TaskInvalid
from holdfast.gateway.http.problems import HTTPProblem, validation_text

NOT_BLANK = r"[^\t-\r\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""For OpenAPI: a character that `str.strip` keeps. JSON Schema's own `\\S` differs in some characters."""

AGENT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
PERSON_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}$"


class Body(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    def payload(self) -> dict[str, Any]:
        """Return the fields that were set, as the payload of an intervention."""
        return {name: value for name, value in self.model_dump(exclude_unset=True).items() if value is not None}


def not_blank(text: str) -> str:
    """Return a text, unless it is blank.

    Raises:
        ValueError: It is blank.
    """
    if not text.strip():
        raise ValueError("it is blank")
    return text


class DecisionBody(Body):
    """A decision on one request, in the name of the owner of the token or key."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"decision": "approve", "request": "1", "digest": "0" * 64, "reason": "within the limit"}]
        }
    )

    decision: DecisionKind
    request: str = Field(min_length=1, max_length=200, json_schema_extra={"pattern": NOT_BLANK}, examples=["1"])
    """The request's id."""
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])
    """The digest of the request as the approver saw it: an approval covers nothing else."""
    reason: str = Field(default="", max_length=2_000)
    result: str | None = Field(default=None, max_length=8_000)
    """For `happened` and `respond`: the tool result that the LLM gets."""
    arguments: dict[str, Any] | None = None
    """For `approve`: the arguments to run with, in place of the LLM's. Integers are limited to 2^53 - 1; write a larger
    one as a string, which a parameter of type integer accepts."""
    remember: bool = False
    """For `approve`: allow the same call from now on, in this thread."""
    say: str = Field(default="", max_length=2_000)
    """For `approve`: feedback that the LLM reads with the call's result."""

    _request_is_not_blank = field_validator("request")(not_blank)


class SignedDecision(Body):
    """A decision that a browser has signed: sent on exactly as it was signed."""

    thread: str = Field(min_length=1, max_length=1_000)
    statement: DecisionBody
    signature: str = Field(pattern=r"^[A-Za-z0-9_-]{86}$")


class SignedSteering(Body):
    """A statement that steers a run, which a browser has signed, bound to the state that its sender saw."""

    thread: str = Field(min_length=1, max_length=1_000)
    run: str = Field(min_length=1, max_length=200)
    seen: int = Field(ge=0, le=1_000_000_000)
    signature: str = Field(pattern=r"^[A-Za-z0-9_-]{86}$")


class SignedOnce(Body):
    """A message, a refinement or an extension that a browser has signed: it counts once, until it expires."""

    thread: str = Field(min_length=1, max_length=1_000)
    statement: dict[str, Any]
    id: str = Field(pattern=r"^[A-Za-z0-9._:-]{1,100}$")
    until: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    signature: str = Field(pattern=r"^[A-Za-z0-9_-]{86}$")


class MessageBody(Body):
    """A message to the agent, in the name of the owner of the token or key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"message": "Now announce it."}]})

    message: str = Field(min_length=1, max_length=MAX_TEXT_BYTES, json_schema_extra={"pattern": NOT_BLANK})
    when_busy: WhenBusy = "queue"
    """While the run is busy: wait for the end of the step, interrupt the LLM call, or refuse the message."""

    _message_is_not_blank = field_validator("message")(not_blank)


class RefinementBody(Body):
    """A refinement of the task, in the name of the owner of the token or key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"kind": "narrow", "text": "Only the release notes."}]})

    kind: RefinementKind
    """`narrow`: do less than before; `rescope`: do this instead; `correct`: correct a mistake in the task."""
    text: str = Field(min_length=1, max_length=LONGEST_REFINEMENT, json_schema_extra={"pattern": NOT_BLANK})
    """The refinement, which the LLM reads verbatim."""
    when_busy: Literal["queue", "interrupt"] = "queue"
    """While the run is busy: wait for the end of the step, or interrupt the LLM call."""
    id: str = Field(default="", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._:-]*$", examples=["narrow-1"])
    """The caller's id for it: a refinement that is sent again with the same id counts once."""

    _text_is_not_blank = field_validator("text")(not_blank)


def whole(value: object) -> object:
    """Convert 3.0 to 3: JSON has only one type of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Steps = Annotated[int, Field(ge=1, le=10**6), BeforeValidator(whole)]
Tokens = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(whole)]
_BELOW_ONE = "|".join(f"0{{{zeros}}}[1-9][0-9]{{0,{8 - zeros}}}" for zeros in range(9))
"""The decimal places of an amount below one dollar: at most nine, and not all zero."""
Usd = Annotated[
    str, Field(pattern=rf"^(?:[1-9][0-9]{{0,5}}(?:\.[0-9]{{1,9}})?|1000000(?:\.0{{1,9}})?|0\.(?:{_BELOW_ONE}))$")
]
Seconds = Annotated[int, Field(ge=1, le=316_224_000), BeforeValidator(whole)]

_AT_LEAST_ONE: list[Any] = [
    {"required": [name], "properties": {name: {"type": kind}}}
    for name, kind in {"steps": "integer", "tokens": "integer", "usd": "string", "seconds": "integer"}.items()
]


def _fits(context: dict[str, Any] | None) -> dict[str, Any] | None:
    """Check the size of a typed context."""
    if context is not None and (why := context_excess(context)):
        raise ValueError(why)
    return context


class BudgetBody(Body):
    """Limits of a run; at least one of them."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _AT_LEAST_ONE, "examples": [{"usd": "2.50"}]})

    steps: Steps | None = None
    """LLM calls."""
    tokens: Tokens | None = None
    """Tokens of requests and replies."""
    usd: Usd | None = None
    """US dollars by list prices, as a decimal in a string."""
    seconds: Seconds | None = None
    """Seconds of work of the run."""

    @model_validator(mode="after")
    def _has_valid_amounts(self) -> Self:
        Amounts(steps=self.steps, tokens=self.tokens, usd=self.usd, seconds=self.seconds)
        return self


class ExtensionBody(BudgetBody):
    """An extension of a run's budget, in the name of the owner of the token or key."""

    model_config = ConfigDict(json_schema_extra={"anyOf": _AT_LEAST_ONE, "examples": [{"usd": "1", "id": "more-1"}]})

    reason: str = Field(default="", max_length=2_000)
    """The reason, for the log."""
    id: str = Field(default="", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._:-]*$", examples=["more-1"])
    """The caller's id for it: an extension that is sent again with the same id counts once."""


ContextBody = Annotated[dict[str, Any] | None, AfterValidator(_fits)]
"""A typed context: at most 16,384 bytes of JSON, which the worker validates by the agent's model."""


def _readable(conversation: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check a conversation from elsewhere."""
    try:
        read_conversation(conversation)
    except TaskInvalid as error:
        raise ValueError(str(error)) from None
    return conversation


ConversationBody = Annotated[list[dict[str, Any]], Field(max_length=MAX_MESSAGES), AfterValidator(_readable)]
"""A conversation from elsewhere: messages as in Chat Completions, at most 100,000 bytes."""


class StartBody(Body):
    """A task for an agent, in the name of the owner of the token or key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"task": "Refund 500 cents of order 4711."}]})

    task: str = Field(
        min_length=1,
        max_length=MAX_TEXT_BYTES,
        json_schema_extra={"pattern": NOT_BLANK},
        examples=["Refund 500 cents of order 4711."],
    )
    """The agent's task."""
    agent: str | None = Field(default=None, pattern=AGENT_NAME, examples=["support"])
    """The agent's name; null for the catalog's first."""
    idle_limit: float | None = Field(default=None, ge=0, le=LONGEST_DELEGATION)
    """Seconds that the run stays open for messages after the agent has replied; null for the agent's own limit."""
    budget: BudgetBody | None = None
    """The run's budget, within the agent's own; null for the agent's own."""
    context: ContextBody = None
    """The run's typed context: the fields of the agent's model; null for no context."""
    when_blocked: WhenBlocked | None = None
    """If the run cannot continue without a person: `fail` with the cause, for a run that nobody attends, or `wait`;
    null for the agent's own."""
    nodes: Nodes = ()
    """The nodes that may execute the run and its sub-agents, by name, label (`region=eu`) or key (`key:BASE64`): any of
    them is enough, and commas join what one node must have. Empty for the agent's own, which they can only narrow."""

    conversation: ConversationBody = []
    """A conversation from elsewhere, as messages of the roles user, assistant and tool in Chat Completions. The LLM
    reads it as a claim: its calls are only text, and nothing in it counts as approved."""

    _task_is_not_blank = field_validator("task")(not_blank)


def until_of(payload: dict[str, Any]) -> dict[str, Any]:
    """Replace a duration in seconds by a time: a signed duration could be replayed."""
    seconds = payload.pop("seconds", None)
    return payload | ({"until": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()} if seconds else {})


class ReasonBody(Body):
    """A reason, for the record."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "the order was wrong"}]})

    reason: str = Field(default="", max_length=2_000)


class PauseBody(ReasonBody):
    """The reason for a pause, and its duration."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "let me look", "seconds": 3_600}]})

    seconds: float | None = Field(default=None, ge=1, le=LONGEST_PAUSE, examples=[3_600])
    """The duration; null to pause until somebody resumes the run."""

    def payload(self) -> dict[str, Any]:
        return until_of(super().payload())


class EventBody(Body):
    """The data of a published event."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"data": {"service": "web", "version": "1.2"}}]})

    data: dict[str, Any] = {}
    """At most 16,384 bytes of JSON. Runs read it as an unproven claim."""


class LiftBody(ReasonBody):
    """A constraint to remove: the policy then judges the calls that it rejected like any other call."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"constraint": 3, "reason": "the invoice is unlocked"}]})

    constraint: Annotated[int, BeforeValidator(whole)] = Field(ge=0, le=1_000_000_000, examples=[3])
    """Its number, as the thread's state lists it; 0 to let the effects of a fork run as the policy says."""
    say: str = Field(default="", max_length=MAX_TEXT_BYTES)
    """A message for the agent, which needs the scope `say`, too. A closed thread continues with it."""


_Sent = TypeVar("_Sent", bound=Body)


def _with_unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate names: a proxy in front may have judged the value that we would not use."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object has two values of one name")
    return value


def read_json(body: bytes) -> Any:
    """Parse JSON from outside.

    Raises:
        HTTPProblem: 422: it is invalid, too deep, or some parsers would read something else.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # 1e999 is infinity
        json.loads(body, object_pairs_hook=_with_unique_names)
    except ValueError as error:
        raise HTTPProblem(422, f"the body is not JSON that every parser reads: {error}") from None
    if too_deep(value):
        raise HTTPProblem(422, f"the body has more than {MAX_DEPTH} levels of JSON")
    return value


def read_body(body: bytes, kind: type[_Sent]) -> _Sent:
    """Parse a body.

    Raises:
        HTTPProblem: 422: it is invalid.
    """
    read_json(body)
    try:
        return kind.model_validate_json(body, extra="forbid", context=DEFINING)  # a body may define a policy
    except ValidationError as error:
        raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None
