"""The timeline of a run: each event in a line, and what it holds below it. Works on JSON, so that events of a newer
release are shown, too.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.config.page_links import path_of
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.messages import read_content
from holdfast.gateway.page.views.text import Block, When, block, blocks, line, when

JSON = Mapping[str, Any]

SHOWN_CHARS = 20_000
"""The most characters of a text in the timeline; the API and the command line have all of it."""


class Entry(NamedTuple):
    """An event in the timeline."""

    position: int
    kind: str
    """`person`, `llm`, `call`, `decision`, `trouble` or `run`: the colour of its mark."""
    title: str
    at: When | None
    blocks: tuple[Block, ...]
    open: bool
    """Its blocks are shown at once."""
    link: str
    """The path of the page to decide on; empty for none."""


class _Words(NamedTuple):
    kind: str
    title: str
    blocks: tuple[Block, ...] = ()
    open: bool = False
    link: str = ""


def entry(event: JSON, thread: str, now: datetime) -> Entry:
    """Return an event for display.

    Args:
        event: As the log has it, possibly without default values.
        thread: The thread's id.
        now: The time.
    """
    kind = str(event.get("type"))
    try:
        words = _WORDS[kind](event, thread) if kind in _WORDS else _other(event, kind)
    except (KeyError, TypeError, ValueError, AttributeError):
        words = _other(event, kind)
    return Entry(
        int(event.get("position") or 0),
        words.kind,
        line(words.title, 300),
        when(event.get("at"), now),
        words.blocks,
        words.open,
        words.link,
    )


def _text(name: str, content: Any) -> Block:
    text = content if isinstance(content, str) else text_of(read_content(content))
    cut = f"\n… cut: {SHOWN_CHARS:,} of {len(text):,} characters" if len(text) > SHOWN_CHARS else ""
    return block(name, text[:SHOWN_CHARS] + cut)


def _arguments(text: str) -> tuple[Block, ...]:
    if len(text) > SHOWN_CHARS:
        return (_text("arguments", text),)
    try:
        return blocks(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return (_text("arguments", text),)


def _message(event: JSON, thread: str) -> _Words:
    by = event.get("by") or "Somebody"
    return _Words(
        "person",
        f"{by} {'gives the task' if event.get('task') else 'writes'}",
        (_text("message", event["content"]),),
        True,
    )


def _reply(event: JSON, thread: str) -> _Words:
    message = event["message"]
    content = message.get("content") or ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    text = "".join(str(each.get("text") or "") for each in parts if each.get("type") == "text")
    calls = [each for each in (*parts, *(message.get("tool_calls") or ())) if "name" in each]
    names = ", ".join(str(each["name"]) for each in calls)
    title = f"The LLM asks for {names}" if names else "The LLM replies"
    return _Words("llm", title, (_text("reply", text),) if text else (), True)


def _requested(event: JSON, thread: str) -> _Words:
    call = event["call"]
    return _Words("call", f"Call {event['number']}: {call['name']}", _arguments(call.get("arguments") or ""))


def _verdict(event: JSON, thread: str) -> _Words:
    words = {"allow": "allowed", "ask": "needs approval", "deny": "denied"}
    verdict = words.get(event["verdict"], event["verdict"])
    return _Words("decision", f"Call {event['number']} {verdict}: {event.get('rule') or 'no rule'}")


def _asked(event: JSON, thread: str) -> _Words:
    request = event["request"]
    what = "Did it happen?" if event["type"] == "reconcile_requested" else "May it run?"
    title = f"Request {request['id']}: {request['tool']}. {what}"
    return _Words(
        "decision",
        title,
        _arguments(request.get("arguments") or ""),
        link=path_of("requests", thread, str(request["id"])),
    )


def _decided(event: JSON, thread: str) -> _Words:
    proof = event.get("proof") or "claimed"
    outcome = str(event["outcome"]).replace("_", " ")
    title = f"{event['by']} ({proof}): {event['decision']} request {event['request']}, {outcome}"
    notes = [
        block(name, event[name]) for name in ("reason", "explanation", "say", "result", "arguments") if event.get(name)
    ]
    return _Words("decision", title, tuple(notes), True)


def _finished(event: JSON, thread: str) -> _Words:
    status = str(event["status"])
    kind = "call" if status in ("ok", "answered", "undone") else "trouble"
    took = f", {event['duration_ms']:,} ms" if event.get("duration_ms") else ""
    return _Words(kind, f"Call {event['number']} {status}{took}", (_text("result", event.get("content") or ""),))


def _blocked(event: JSON, thread: str) -> _Words:
    return _Words("trouble", f"Blocked: {event['cause']}", (_text("reason", event.get("message") or ""),), True)


def _ended(event: JSON, thread: str) -> _Words:
    kind = "run" if event["outcome"] == "completed" else "trouble"
    result = (_text("result", event["result"]),) if event.get("result") else ()
    cause = f" ({event['cause']})" if event.get("cause") else ""
    return _Words(kind, f"The run has {event['outcome']}{cause}", result, True)


def _answered(event: JSON, thread: str) -> _Words:
    return _Words("llm", "It has answered, and waits for a message", (_text("answer", event.get("result") or ""),))


def _loaded(event: JSON, thread: str) -> _Words:
    spec = event["spec"]
    tools = ", ".join(str(each["name"]) for each in spec.get("tools") or ()) or "none"
    return _Words(
        "run", f"Agent {spec['name']} is loaded", (block("tools", tools), block("LLM", str(spec.get("llm") or "")))
    )


def _steered(words: str) -> Callable[[JSON, str], _Words]:
    def steered(event: JSON, thread: str) -> _Words:
        reason = (_text("reason", event["reason"]),) if event.get("reason") else ()
        return _Words("person", f"{event.get('by') or 'The run itself'} {words}", reason, True)

    return steered


def _other(event: JSON, kind: str) -> _Words:
    common = {"schema_version", "position", "at", "digest", "type", "previous"}
    rest = {name: value for name, value in event.items() if name not in common}
    text = json.dumps(rest, ensure_ascii=False, indent=1)
    trouble = any(word in kind for word in ("lost", "rejected", "exceeded", "spent"))
    return _Words(
        "trouble" if trouble else "run", kind.replace("_", " ").capitalize(), (_text("details", text),) if rest else ()
    )


_WORDS: Mapping[str, Callable[[JSON, str], _Words]] = {
    "user_message_received": _message,
    "llm_replied": _reply,
    "tool_call_requested": _requested,
    "verdict_given": _verdict,
    "approval_requested": _asked,
    "reconcile_requested": _asked,
    "decision_received": _decided,
    "tool_call_finished": _finished,
    "run_blocked": _blocked,
    "run_finished": _ended,
    "message_awaited": _answered,
    "agent_loaded": _loaded,
    "run_paused": _steered("pauses the run"),
    "run_resumed": _steered("resumes the run"),
    "run_unblocked": _steered("retries"),
}
