"""AG-UI 1.0: steps as its events, `RUN_STARTED` to `RUN_FINISHED`.

1. A run of the protocol lasts until the agent waits for people: their answers begin the next one.
2. An open request is an interrupt. Its id has the digest to decide on, and its metadata the whole request.
3. A text that is withdrawn is replaced by an activity message, which the protocol's clients do not show as text.
4. Reasoning is a message of its own, without the optional span around it (`REASONING_START`): so each step of a text is
   one event, after which a client can resume.
"""

import json
from collections.abc import Sequence
from typing import Any, assert_never

from holdfast.gateway.feeds.steps import (
    Asked,
    CallEnded,
    CallShown,
    Closed,
    MessageReceived,
    Opened,
    Step,
    TextAdded,
    TextEnded,
    TextKind,
    TextStarted,
    TextWithdrawn,
)

JSON = dict[str, Any]

SUPERSEDED = "holdfast.superseded"
"""The type of the activity message in place of a withdrawn text."""
MESSAGE = "holdfast.message_received"
REQUEST = "holdfast.request_opened"
"""Names of custom events: a person's message; and an open request, before the run of the protocol ends."""

_MESSAGES: dict[TextKind, str] = {"reply": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}


class AgUi:
    """Writes the events of one client.

    Args:
        thread: The thread id.
        run: The client's id for the run; empty for the thread's.
    """

    headers: dict[str, str] = {}  # never changed
    last = ""

    def __init__(self, thread: str, run: str = "") -> None:
        self._ids: JSON = {"threadId": thread, "runId": run or thread}

    def encode(self, step: Step) -> Sequence[JSON]:
        """Return the events for a step."""
        match step:
            case Opened():
                return [{"type": "RUN_STARTED", **self._ids, "protocolVersion": "1.0"}]
            case MessageReceived():
                return [{"type": "CUSTOM", "name": MESSAGE, "value": step._asdict()}]
            case TextStarted(text_id, kind):
                role = "assistant" if kind == "reply" else "reasoning"
                return [{"type": f"{_MESSAGES[kind]}_START", "messageId": text_id, "role": role}]
            case TextAdded(text_id, added, kind):
                return [{"type": f"{_MESSAGES[kind]}_CONTENT", "messageId": text_id, "delta": added}]
            case TextEnded(text_id, _, kind):
                return [{"type": f"{_MESSAGES[kind]}_END", "messageId": text_id}]
            case TextWithdrawn(text_id):
                return [{"type": "ACTIVITY_SNAPSHOT", "messageId": text_id, "activityType": SUPERSEDED, "content": {}}]
            case CallShown():
                return [] if step.again else _call(step)
            case Asked():
                return [{"type": "CUSTOM", "name": REQUEST, "value": step.request}]
            case CallEnded():
                return [_result(step)]
            case Closed():
                return [self._end(step)]
        assert_never(step)

    def failed(self, detail: str, code: str) -> Sequence[JSON]:
        """Return the event that says that the stream ends, and why."""
        return [{"type": "RUN_ERROR", "message": detail, "code": code}]

    def _end(self, closed: Closed) -> JSON:
        if closed.ending in ("failed", "blocked"):
            return {"type": "RUN_ERROR", "message": closed.text, "code": closed.cause or closed.ending}
        outcome: JSON = {"type": "cancelled" if closed.ending == "cancelled" else "success"}
        if closed.asked:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(each) for each in closed.asked]}
        result = {"result": json.loads(closed.text) if closed.structured else closed.text} if closed.text else {}
        return {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, **result}


def _call(call: CallShown) -> list[JSON]:
    id = {"toolCallId": call_id(call.number)}
    return [
        {"type": "TOOL_CALL_START", **id, "toolCallName": call.tool},
        {"type": "TOOL_CALL_ARGS", **id, "delta": call.arguments},
        {"type": "TOOL_CALL_END", **id},
    ]


def _result(ended: CallEnded) -> JSON:
    metadata = {"status": ended.status} | ({"cause": ended.cause} if ended.cause else {})
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"result-{ended.position}",
        "toolCallId": call_id(ended.number),
        "content": ended.text,
        "role": "tool",
        "metadata": {"holdfast": metadata},
    }


def _interrupt(asked: Asked) -> JSON:
    request = asked.request
    expires = {"expiresAt": request["expires_at"]} if request["expires_at"] else {}
    return {
        "id": asked.interrupt,
        "reason": "tool_call" if request["kind"] == "approval" else "holdfast:reconcile",
        "message": request["why"],
        "toolCallId": call_id(asked.number),
        "responseSchema": _answer_schema(request["answers"]),
        **expires,
        "metadata": {"holdfast": request},
    }


def _answer_schema(answers: Sequence[str]) -> JSON:
    text = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "decision": {"enum": list(answers)},
            "reason": text,
            "arguments": {"type": "object"},
            "result": text,
            "remember": {"type": "boolean"},
            "say": text,
        },
        "required": ["decision"],
    }


def call_id(number: int) -> str:
    """Return the id of a call in a protocol: the LLM's own need not be unique in a thread."""
    return f"call-{number}"
