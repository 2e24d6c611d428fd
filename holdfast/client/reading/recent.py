"""Summaries of a thread's last events: running calls, errors, and why a reply could not be used.

Pure functions of events as JSON, so they also read those of a newer release.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.core.authority.approvals import COUNTING
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall, text_of
from holdfast.core.llm.messages import read_content
from holdfast.core.llm.outages import Outage
from holdfast.core.tools.effects import describe_call

JSON = Mapping[str, Any]

ERRORS = 5
"""Number of most recent errors that `show` lists."""

ERROR_CHARS = 300

_FAILED = ("failed", "invalid", "unknown")
"""Statuses of calls that are errors; `denied`, `cancelled` and `cannot` are answers."""


def last_event(events: Sequence[JSON]) -> dict[str, Any] | None:
    """Return the position, type and time of the last event; None if there are no events."""
    return {name: events[-1][name] for name in ("position", "type", "at")} if events else None


def errors_in(events: Sequence[JSON]) -> list[dict[str, Any]]:
    """Return the most recent errors, oldest first: failed calls, outages, rejected replies, rejected signals.

    Each error has the `position`, `type` and `at` of its event, and a one-line description, `what`.
    """
    tools = {event["number"]: str(event["call"]["name"]) for event in events if event["type"] == "tool_call_requested"}
    found: list[dict[str, Any]] = []
    for event in reversed(events):
        try:
            words = _error(event, tools)
        except (KeyError, TypeError, ValueError, AttributeError):
            continue  # an event of a newer release, with another meaning
        if words:
            place = {name: event[name] for name in ("position", "type", "at")}
            found.append({**place, "what": one_line(words, ERROR_CHARS)})
        if len(found) == ERRORS:
            break
    return found[::-1]


def _error(event: JSON, tools: Mapping[int, str]) -> str:
    """Describe the error that this event records; empty if it records none."""
    match event["type"]:
        case "tool_call_finished" if event["status"] in _FAILED:
            number = event["number"]
            name = f" of {tools[number]}" if number in tools else ""
            return f"call {number}{name}: {event['status']}: {text_of(read_content(event['content']))}"
        case "reconcile_requested":
            asked = event["request"]
            return f"call {asked['number']} of {asked['tool']}: its outcome is unknown: {asked['why']}"
        case "llm_replied" | "context_compacted" if event.get("outage"):
            return f"the LLM answered {_outage(event)}"
        case "reply_rejected":
            return f"a reply could not be used: {event['reason']}"
        case "run_blocked":
            after = f", {_outage(event)}" if event.get("outage") else ""
            return f"blocked by {event['cause']}: {event['message']}{after}"
        case "signal_rejected":
            return f"{event['signal']}{_sender(event)} was refused: {event['explanation']}"
        case "decision_received" if event["outcome"] not in (*COUNTING, "judged_anew"):
            explanation = event.get("explanation") or event["outcome"].replace("_", " ")
            return f"{event['decision']} on request {event['request']}{_sender(event)} did not count: {explanation}"
        case "refusals_counted":
            return f"{event['count']:,} more signals were refused"
        case "run_finished" if event["outcome"] == "failed":
            return f"the run failed: {event.get('result', '')}"
        case _:
            return ""


def _outage(event: JSON) -> str:
    return Outage.model_validate(event["outage"]).words(datetime.fromisoformat(event["at"]))


def _sender(event: JSON) -> str:
    return f" by {event['by']}" if event.get("by") else ""


def running_calls(events: Iterable[JSON]) -> list[str]:
    """Return the tool calls that are running after these events, each in one line, oldest first."""
    asked: dict[int, str] = {}
    running: dict[int, str] = {}
    for event in events:
        match event["type"]:
            case "tool_call_requested":
                call = event["call"]
                asked[event["number"]] = describe_call(ToolCall(id="", name=call["name"], arguments=call["arguments"]))
            case "tool_call_started":
                running[event["number"]] = asked.get(event["number"], f"call {event['number']}")
            case "tool_call_finished" | "reconcile_requested" | "dormancy_began":
                running.pop(event.get("number", event.get("request", {}).get("number")), None)
    return list(running.values())


def last_rejection(events: Iterable[JSON]) -> str:
    """Return why the last unusable reply could not be used, with the problem of each call; empty for none."""
    reason, problems = "", dict[str, None]()
    for event in events:
        match event["type"]:
            case "llm_replied":
                reason, problems = "", {}
            case "tool_call_finished" if event.get("status") == "invalid":
                problems[text_of(read_content(event["content"]))] = None
            case "reply_rejected":
                reason = "; ".join([event["reason"], *problems])
    return reason
