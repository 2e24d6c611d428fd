"""The UI message stream of Vercel's AI SDK: steps as its chunks.

1. A response lasts until the agent waits for people; with an approval, the client's message continues.
2. An open request is a tool approval, whose id has the digest to decide on; the whole request is a data part.
3. Its clients cannot remove a part: a text that is withdrawn is marked (`providerMetadata.holdfast.superseded`).
"""

from collections.abc import Sequence
from typing import Any, assert_never

from holdfast.core.authority.approvals import shown_arguments
from holdfast.gateway.feeds.ag_ui import call_id
from holdfast.gateway.feeds.steps import (
    Asked,
    CallEnded,
    CallShown,
    Closed,
    Ending,
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

_PARTS: dict[TextKind, str] = {"reply": "text", "reasoning": "reasoning"}
_REASONS: dict[Ending, str] = {
    "answered": "stop",
    "completed": "stop",
    "moved": "other",
    "cancelled": "other",
    "asked": "tool-calls",
    "failed": "error",
    "blocked": "error",
}


class UiMessages:
    """Writes the chunks of one client.

    Args:
        thread: The thread id.
    """

    headers: dict[str, str] = {"x-vercel-ai-ui-message-stream": "v1"}  # never changed
    last = "data: [DONE]\n\n"

    def __init__(self, thread: str) -> None:
        self._thread = thread

    def encode(self, step: Step) -> Sequence[JSON]:
        """Return the chunks for a step."""
        match step:
            case Opened():
                return [{"type": "start", "messageMetadata": {"thread": self._thread}}]
            case MessageReceived():
                return [{"type": "data-message", "id": f"message-{step.position}", "data": step._asdict()}]
            case TextStarted(text_id, kind):
                return [{"type": f"{_PARTS[kind]}-start", "id": text_id}]
            case TextAdded(text_id, added, kind):
                return [{"type": f"{_PARTS[kind]}-delta", "id": text_id, "delta": added}]
            case TextEnded(text_id, withdrawn, kind):
                mark = {"providerMetadata": {"holdfast": {"superseded": True}}} if withdrawn else {}
                return [{"type": f"{_PARTS[kind]}-end", "id": text_id, **mark}]
            case TextWithdrawn():
                return []
            case CallShown():
                return [
                    {
                        "type": "tool-input-available",
                        "toolCallId": call_id(step.number),
                        "toolName": step.tool,
                        "input": shown_arguments(step.arguments),
                        "dynamic": True,
                        "providerExecuted": True,
                    }
                ]
            case Asked():
                return _request(step)
            case CallEnded():
                return [_result(step)]
            case Closed():
                return self._end(step)
        assert_never(step)

    def failed(self, detail: str, code: str) -> Sequence[JSON]:
        """Return the chunk that says that the stream ends, and why."""
        return [{"type": "error", "errorText": f"{code}: {detail}"}]

    def _end(self, closed: Closed) -> list[JSON]:
        reason = _REASONS[closed.ending]
        metadata = {"thread": self._thread, "ending": closed.ending}
        finish: JSON = {"type": "finish", "finishReason": reason, "messageMetadata": metadata}
        error: JSON = {"type": "error", "errorText": closed.text or closed.cause}
        return [error, finish] if reason == "error" else [finish]


def _request(asked: Asked) -> list[JSON]:
    approval: JSON = {
        "type": "tool-approval-request",
        "approvalId": asked.interrupt,
        "toolCallId": call_id(asked.number),
    }
    shown: JSON = {"type": "data-request", "id": f"request-{asked.request['request']}", "data": asked.request}
    # Whether a call happened is no question of yes or no: that is answered by POST …/decisions.
    return [approval, shown] if asked.request["kind"] == "approval" else [shown]


def _result(ended: CallEnded) -> JSON:
    call: JSON = {"toolCallId": call_id(ended.number)}
    match ended.status:
        case "ok" | "answered" | "undone":
            return {"type": "tool-output-available", **call, "output": ended.text, "providerExecuted": True}
        case "denied":
            return {"type": "tool-output-denied", **call}
        case "failed" | "invalid" | "unknown" | "cancelled" | "cannot":
            return {"type": "tool-output-error", **call, "errorText": f"{ended.status}: {ended.text}"}
    assert_never(ended.status)
