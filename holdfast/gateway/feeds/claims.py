"""Reads the requests of clients of AG-UI and of Vercel's AI SDK. Pure.

Such clients send the whole conversation along. That is a claim: of the messages, only the last one counts, and only if
it is a person's; earlier ones, tools, states and contexts are ignored. Decisions name the request and the digest that
the client was shown.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from holdfast.core.authority.statements import DecisionKind
from holdfast.gateway.bodies import DecisionBody, MessageBody, read_json
from holdfast.gateway.http.problems import HTTPProblem, validation_text

MOST_DECISIONS = 32
"""The most decisions in one request."""

_MESSAGE_ID = r"[A-Za-z0-9._:-]{1,100}"
RUN_ID = r"^[A-Za-z0-9._:-]{1,100}$"


class Answer(NamedTuple):
    """A decision, with the signature that the client made."""

    body: DecisionBody
    signature: str = ""


class Claim(NamedTuple):
    """What a client asks for."""

    message: MessageBody | None = None
    message_id: str = ""
    """The client's id for the message: sent again, it counts once."""
    first: bool = False
    """Whether the message is the only one of the conversation that the client has."""
    answers: tuple[Answer, ...] = ()
    run: str = ""
    """The client's id for the run of the protocol."""
    ids: frozenset[str] = frozenset()
    """The ids of the messages that the client has."""


class _Loose(BaseModel):
    """A part of a request: other fields are the protocol's, and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)


class _Part(_Loose):
    type: str = Field(max_length=100)
    text: str = ""


class _Message(_Loose):
    id: str = Field(default="", max_length=1_000)
    role: str = Field(max_length=100)
    content: Any = None
    parts: Any = None


class _Approval(_Loose):
    id: str = Field(max_length=300)
    approved: bool
    reason: str = Field(default="", max_length=2_000)


class _ToolPart(_Loose):
    approval: _Approval


class _Payload(_Loose):
    """An answer to an interrupt: `DecisionBody` without request and digest, or what clients without a form send."""

    decision: DecisionKind | None = None
    approved: bool | None = None
    reason: str = Field(default="", max_length=2_000)
    arguments: dict[str, Any] | None = None
    edited: dict[str, Any] | None = Field(default=None, validation_alias="editedArgs")
    """The same, as some clients write it."""
    result: str | None = Field(default=None, max_length=8_000)
    remember: bool = False
    say: str = Field(default="", max_length=2_000)


class _Metadata(_Loose):
    signature: str = Field(default="", max_length=200)


class _Resume(_Loose):
    interrupt: str = Field(max_length=300, validation_alias="interruptId")
    status: Literal["resolved", "cancelled"]
    payload: Any = None
    metadata: _Metadata = _Metadata()


class AgUiBody(_Loose):
    """The parts of AG-UI's `RunAgentInput` that the gateway uses."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"threadId": "refund-1", "runId": "1", "messages": [{"id": "1", "role": "user", "content": "Hello"}]}
            ]
        }
    )

    thread: str = Field(validation_alias="threadId")
    run: str = Field(validation_alias="runId", pattern=RUN_ID)
    messages: list[Any]
    resume: list[_Resume] = Field(default=[], max_length=MOST_DECISIONS)


class UiMessagesBody(_Loose):
    """The parts of a request of the AI SDK's chat that the gateway uses."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}]}]
        }
    )

    id: str | None = None
    messages: list[Any] = Field(min_length=1)
    trigger: Literal["submit-message"] = "submit-message"


def read_ag_ui(body: bytes, thread: str) -> Claim:
    """Read the `RunAgentInput` of an AG-UI client.

    Args:
        body: The request's body.
        thread: The thread in the path.

    Raises:
        HTTPProblem: 422: it is invalid, names another thread, or asks for nothing.
    """
    try:
        given = AgUiBody.model_validate(read_json(body))
        _check_thread(given.thread, thread, "threadId")
        ids = frozenset(str(each["id"]) for each in given.messages if isinstance(each, dict) and "id" in each)
        if given.resume:
            answers = tuple(_answered(each) for each in given.resume)
            return Claim(answers=answers, run=given.run, ids=ids)
        message, message_id = _last_message(given.messages)
    except ValidationError as error:
        raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None
    return Claim(message, message_id, len(given.messages) == 1, run=given.run, ids=ids)


def read_ui_messages(body: bytes, thread: str) -> Claim:
    """Read the request of a chat of Vercel's AI SDK (`DefaultChatTransport`).

    Args:
        body: The request's body.
        thread: The thread in the path.

    Raises:
        HTTPProblem: 422: it is invalid, names another thread, or asks for nothing.
    """
    try:
        given = UiMessagesBody.model_validate(read_json(body))
        if given.id is not None:
            _check_thread(given.id, thread, "id")
        last = _Message.model_validate(given.messages[-1])
        if last.role == "assistant":
            answers = tuple(_approvals(last))
            if not answers:
                raise HTTPProblem(422, "the last message is the agent's, and answers no approval: there is no news")
            return Claim(answers=answers)
        message, message_id = _last_message(given.messages)
    except ValidationError as error:
        raise HTTPProblem(422, validation_text(error.errors(include_input=False))) from None
    return Claim(message, message_id, len(given.messages) == 1)


def _check_thread(given: str, thread: str, field: str) -> None:
    if given != thread:
        raise HTTPProblem(422, f"{field} is {given[:60]!r}, and the path names {thread!r}: give the client that id")


def _last_message(messages: list[Any]) -> tuple[MessageBody, str]:
    """Return the last message, if it is a person's, and its id."""
    last = _Message.model_validate(messages[-1]) if messages else None
    if last is None or last.role != "user":
        raise HTTPProblem(422, "the last message is none of a person: there is no news for the agent")
    message = MessageBody(message=_text(last.content if last.parts is None else last.parts))
    return message, last.id if re.fullmatch(_MESSAGE_ID, last.id) else ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [_Part.model_validate(each) for each in content] if isinstance(content, list) else []
    if other := [each.type for each in parts if each.type != "text"]:
        raise HTTPProblem(422, f"the message has a part of type {other[0]!r}, and only text is accepted here")
    return "".join(each.text for each in parts)


def _approvals(message: _Message) -> Iterator[Answer]:
    parts = message.parts if isinstance(message.parts, list) else []
    answered = [each for each in parts if isinstance(each, dict) and each.get("state") == "approval-responded"]
    if len(answered) > MOST_DECISIONS:
        raise HTTPProblem(422, f"more than {MOST_DECISIONS} approvals in one message")
    for part in answered:
        approval = _ToolPart.model_validate(part).approval
        decision: DecisionKind = "approve" if approval.approved else "deny"
        yield Answer(_decision(approval.id, _Payload(decision=decision, reason=approval.reason)))


def _answered(resume: _Resume) -> Answer:
    """Return the decision of an answer to an interrupt. One that is abandoned is a denial."""
    if resume.status == "cancelled":
        payload = _Payload(decision="deny", reason="cancelled by the client")
    elif isinstance(resume.payload, bool):
        payload = _Payload(approved=resume.payload)
    else:
        payload = _Payload.model_validate(resume.payload)
    return Answer(_decision(resume.interrupt, payload), resume.metadata.signature)


def _decision(interrupt: str, payload: _Payload) -> DecisionBody:
    request, _, digest = interrupt.rpartition(".")
    decision = payload.decision
    if payload.approved is not None:
        said: DecisionKind = "approve" if payload.approved else "deny"
        if decision not in (None, said):
            raise HTTPProblem(422, f"the answer to {request!r} is {decision!r}, and `approved` says otherwise")
        decision = said
    if decision is None:
        raise HTTPProblem(422, f"the answer to {request!r} neither has a `decision` nor says whether it is `approved`")
    fields = payload.model_dump(exclude={"decision", "approved", "edited"}, exclude_unset=True, exclude_none=True)
    edited = {"arguments": payload.edited} if payload.edited is not None else {}
    return DecisionBody(decision=decision, request=request, digest=digest, **{**edited, **fields})
