"""Signatures of results: the node that made an LLM or tool call signs what it returns.

1. A signature covers the thread, the call, the Temporal attempt and the result, so it is valid for no other result.
   For a tool call, the call is its effect key (which names thread, chain of runs, number, tool and arguments) and its
   epoch; for an LLM call, the chain of runs and the digest of the prompt.
2. The fields are those of the event, as the run records them, so the log alone suffices to verify a signature.
3. `signed` is text: the node's id, the signature, and the number of the attempt if it is not the first. Without the
   last part, it has 88 characters.
4. The id only names the key; a verifier has the keys of the nodes that it trusts. A log that brought its own keys would
   prove nothing.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from holdfast.core.authority.signatures import PREFIX, SIGNATURE_BYTES, SigningKey, verifies
from holdfast.core.base.canonical import canonical, portable
from holdfast.core.llm.blocks import text_of
from holdfast.core.log.events import CallResult, LLMReplied, ToolStatus
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.tool_calls import NO_REASON, ToolOutcome
from holdfast.errors import NotPortable

FORMAT: Final = "result/1"

ID_CHARS: Final = 8
"""Characters of a node's id: the first ones of its key, after `ed25519:`."""

_SIGNATURE_CHARS: Final = SIGNATURE_BYTES // 4 * 5


def _defaults(model: type[BaseModel], *names: str) -> Mapping[str, Any]:
    return {name: model.model_fields[name].default for name in sorted(names)}


_REPLY: Final = _defaults(LLMReply, *LLMReply.model_fields.keys() & LLMReplied.model_fields.keys() - {"signed"})
_SUMMARY: Final = _defaults(LLMReply, "usage", "outage", "cost")
_OUTCOME: Final = _defaults(ToolOutcome, *CallResult.model_fields.keys() - {"signed"}, "changes")
_UNKNOWN: Final = _defaults(ToolOutcome, "status", "cause", "failures")
_ASKED: Final = _defaults(ToolOutcome, "status", "question")
"""The signed fields of results by kind, each with its default."""

Statement = Mapping[str, Any]
"""The signed fields, without the attempt, as JSON."""


class ResultSignature(NamedTuple):
    """The parts of `signed`."""

    node: str
    """The id of the node."""
    signature: bytes
    attempt: int
    """The number of the Temporal attempt that returned the result, counted from 1."""


def node_id(public: str) -> str:
    """Return the id of the node with this public key."""
    return public.removeprefix(PREFIX)[:ID_CHARS]


def reply_statement(reply: LLMReply, *, thread: str, first_run_id: str, prompt: str) -> Statement:
    """Return what the signature of an LLM's reply covers.

    Args:
        reply: The reply; only the fields that its event has count.
        thread: The thread's id.
        first_run_id: The first run id of the chain of Temporal runs.
        prompt: The digest of the request's messages and agent (`TranscriptRef.digest`).
    """
    result = _fields(reply, _REPLY)
    return {"kind": "reply", "thread": thread, "run": first_run_id, "prompt": prompt, "result": result}


def summary_statement(reply: LLMReply, *, thread: str, first_run_id: str, prompt: str) -> Statement:
    """Return what the signature of the reply to a request for a summary covers; the arguments are as before."""
    result = {**_fields(reply, _SUMMARY), "summary": reply.message.text.strip() if reply.message else ""}
    return {"kind": "summary", "thread": thread, "run": first_run_id, "prompt": prompt, "result": result}


def outcome_statement(outcome: ToolOutcome, *, thread: str, key: str, epoch: int, undo: bool) -> Statement:
    """Return what the signature of a tool call's result covers.

    Args:
        outcome: The result, as the tool's activity returns it.
        thread: The thread's id.
        key: The effect key.
        epoch: The epoch of the effect.
        undo: Whether the call undid the effect.
    """
    if outcome.status == "unknown":  # people read it in a request, which has its text alone
        result = {**_fields(outcome, _UNKNOWN), "content": text_of(outcome.content) or NO_REASON}
    elif outcome.question:  # people read it in a request
        result = _fields(outcome, _ASKED)
    else:
        result = _fields(outcome, _OUTCOME)
    return {"kind": "tool", "thread": thread, "key": key, "epoch": epoch, "undo": undo, "result": result}


def poll_statement(*, thread: str, key: str, poll: int, status: ToolStatus, seen: str, duration_ms: int) -> Statement:
    """Return what the signature of a poll covers.

    Args:
        thread: The thread's id.
        key: The effect key of the polled call.
        poll: The number of the poll.
        status: How the polled call ended.
        seen: The digest of its result.
        duration_ms: Its duration in milliseconds.
    """
    result = {"status": status, "seen": seen, "duration_ms": duration_ms}
    return {"kind": "poll", "thread": thread, "key": key, "poll": poll, "result": result}


def sign_result(key: SigningKey, statement: Statement, *, attempt: int) -> str:
    """Sign a result; return the text of `signed`."""
    signature = base64.b85encode(key.sign(_signed_bytes(statement, attempt))).decode()
    return node_id(key.public) + signature + (str(attempt) if attempt > 1 else "")


def read_signature(signed: str) -> ResultSignature | None:
    """Parse `signed`; None if it has another form."""
    end = ID_CHARS + _SIGNATURE_CHARS
    attempt = signed[end:]
    if len(signed) < end or not (attempt == "" or (attempt.isascii() and attempt.isdigit() and len(attempt) < 10)):
        return None
    if attempt and (attempt.startswith("0") or attempt == "1"):
        return None  # one attempt has one spelling
    try:
        signature = base64.b85decode(signed[ID_CHARS:end])
    except ValueError:
        return None
    return ResultSignature(signed[:ID_CHARS], signature, int(attempt or 1))


def is_signed_by(public: str, signed: ResultSignature, statement: Statement) -> bool:
    """Whether the node with this key signed this result of this call."""
    return verifies(public, signed.signature, _signed_bytes(statement, signed.attempt))


def _signed_bytes(statement: Statement, attempt: int) -> bytes:
    fields = {"holdfast": FORMAT, "attempt": attempt, **statement}
    try:
        return canonical(fields)
    except NotPortable:  # the log records the nearest value that has canonical JSON
        return canonical(portable(fields))


def _fields(result: BaseModel, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a result as `model_dump` does, as JSON without defaults; most are plain values, which need no
    serializer.

    Args:
        result: The result.
        names: The names of the fields, each with its default.
    """
    values, fields, others = result.__dict__, {}, set()
    for name, default in names.items():
        value = values[name]
        kind = type(value)
        if kind is str or kind is int or kind is bool or value is None:
            if value != default:
                fields[name] = value
        elif isinstance(value, BaseModel):
            dumped = value.model_dump(mode="json", exclude_defaults=True)
            if dumped or not isinstance(default, BaseModel):  # a default that is a model has defaults alone
                fields[name] = dumped
        elif value != default:
            others.add(name)
    if others:
        fields |= result.model_dump(mode="json", include=others, exclude_defaults=True)
    return fields
