"""For an audit: reads facts from outside back from the events that recorded them, and compares events.

Prose is not compared, because a later release may word it differently.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from holdfast.core.llm.blocks import text_of
from holdfast.core.log import events as ev
from holdfast.core.log.event_log import event_json
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.waits.polling import without_heading
from holdfast.core.tools.failures import FailureKind
from holdfast.core.tools.foreign_waits import ASKED, ForeignTask
from holdfast.core.tools.triggers import TaskTrigger

_STAMPS = ("position", "at", "digest", "schema_version")
_PROSE = {
    "budget_extended": ("notice",),
    "budget_low": ("notice",),
    "budget_spent": ("notice",),
    "decision_received": ("explanation",),
    "learning_requested": ("notice",),
    "reply_rejected": ("reason", "notice"),
    "run_blocked": ("message",),
    "run_finished": ("result",),
    "run_reclassified": ("notice",),
    "tool_call_finished": ("content", "repeats"),
}
"""Fields that repeat in prose the content of other fields; `repeats` is compared when the event is folded."""

_REPLY_FIELDS = tuple(name for name in LLMReply.model_fields if name in ev.LLMReplied.model_fields)

Expected = ev.AgentEvent | type[ev.RunStarted]
"""An expected event, up to its stamps; or the type of an expected fact."""


class IllegalEvent(Exception):
    """An event does not follow from those before it; the message gives the reason."""


def as_reply(event: ev.LLMReplied, events: Sequence[ev.AgentEvent]) -> LLMReply:
    """Return the reply as the worker returned it; its arguments and problems are in the events that follow."""
    problems: dict[str, str] = {}
    arguments: dict[str, str] = {}
    rejected = ""
    if event.message and event.message.tool_calls:
        group = (ev.ToolCallRequested, ev.VerdictGiven, ev.PreviewRequested, ev.ApprovalRequested, ev.ToolCallFinished)
        follows = list(takewhile(lambda each: isinstance(each, group), events[1:]))
        for each, after in zip(follows, [*follows[1:], None], strict=True):
            if isinstance(each, ev.ToolCallRequested) and not each.own:
                arguments[each.call.id] = each.call.arguments
                if isinstance(after, ev.ToolCallFinished) and after.status == "invalid":
                    problems[each.call.id] = text_of(after.content)
    elif len(events) > 1 and isinstance(events[1], ev.ReplyRejected):
        rejected = events[1].reason or "rejected"
    fields = {name: getattr(event, name) for name in _REPLY_FIELDS}
    return LLMReply(**fields, problems=problems, arguments=arguments, rejected=rejected)


def as_outcome(
    event: ev.ToolCallFinished | ev.ReconcileRequested | ev.AnswerRequested | ev.RunFinished,
) -> ToolOutcome:
    """Return the outcome of a tool, read back from the event that recorded it."""
    if isinstance(event, ev.AnswerRequested):
        return ToolOutcome(status="failed", content=ASKED, question=event.request.question, signed=event.signed)
    if isinstance(event, ev.ToolCallFinished):
        fields = {name: getattr(event, name) for name in ev.CallResult.model_fields}
        return ToolOutcome(**{**fields, "status": "ok" if event.status == "undone" else event.status})
    if isinstance(event, ev.ReconcileRequested):
        request = event.request
        settles_in = (request.settles_at - request.asked_at).total_seconds() if request.settles_at else None
        return ToolOutcome(
            status="unknown",
            content=request.why,
            cause=event.cause,
            failures=event.failures,
            settles_in=settles_in,
            signed=event.signed,
            stack=event.stack,
        )
    return ToolOutcome(status="unknown", content="")


def as_poll(event: ev.WaitPolled, ended: ev.ToolCallFinished, *, note: str) -> ToolOutcome:
    """Return the outcome of a polled tool, read back from the events of a poll that ended its wait.

    Args:
        event: The poll.
        ended: The end of the sleeping call.
        note: The note in its result about arguments that a person changed.
    """
    headed = event.status not in ("cannot", "invalid")
    content = without_heading(ended.content, note) if headed else ended.content
    fields = {"status": event.status, "content": content, "duration_ms": event.duration_ms, "signed": event.signed}
    return as_outcome(ended).model_copy(update=fields)


_CAUSES: Mapping[ev.PollKind, FailureKind] = {"timeout": "timeout", "no_response": "no_response", "error": "error"}


def as_unended_poll(event: ev.WaitPolled) -> ToolOutcome:
    """Return the outcome of a polled tool whose result is not in the log, as far as the time of the next poll depends
    on it.
    """
    missing = "a part" if event.result == "partial" else ""
    cause = _CAUSES.get(event.result)
    return ToolOutcome(
        status=event.status,
        content="",
        duration_ms=event.duration_ms,
        missing=missing,
        cause=cause,
        signed=event.signed,
    )


def as_unended_task_poll(event: ev.WaitPolled, trigger: TaskTrigger) -> ToolOutcome:
    """Return the outcome of a poll of a task that continues, as far as the time of the next poll depends on it."""
    outcome = as_unended_poll(event)
    if not event.interval:
        return outcome
    task = ForeignTask(server=trigger.server, id=trigger.task, interval=event.interval)
    return outcome.model_copy(update={"task": task})


def same(expected: Expected, event: ev.AgentEvent) -> bool:
    """Return whether an event is the expected one."""
    if isinstance(expected, type):
        return isinstance(event, expected)
    return expected is event or _equal(expected, event) or _compared(expected) == _compared(event)


def _equal(expected: ev.AgentEvent, event: ev.AgentEvent) -> bool:
    """Whether all fields except the stamps are equal: a cheap test, which implies that their JSON is equal."""
    if type(expected) is not type(event):
        return False
    one, other = vars(expected), vars(event)
    return all(one[name] == other[name] for name in _compared_fields(type(event)))


@cache
def _compared_fields(kind: type[ev.AgentEvent]) -> tuple[str, ...]:
    return tuple(name for name in kind.model_fields if name not in _STAMPS)


def _compared(event: ev.AgentEvent) -> dict[str, Any]:
    """Return an event's JSON without stamps and prose."""
    completed = isinstance(event, ev.RunFinished) and event.outcome == "completed"  # its result is the LLM's own
    left_out = (*_STAMPS, *(() if completed else _PROSE.get(event.type, ())))
    compared = {name: value for name, value in event_json(event).items() if name not in left_out}
    if isinstance(event, ev.PreviewRequested | ev.ApprovalRequested | ev.ReconcileRequested | ev.AnswerRequested):
        compared["request"] = {name: value for name, value in compared["request"].items() if name != "why"}
    return compared


def difference(expected: Expected, event: ev.AgentEvent) -> str:
    """Describe how an event differs from the expected one."""
    if isinstance(expected, type):
        return "run_started has to stand here, after the events that end the run before"
    if isinstance(event, ev.DecisionReceived) and isinstance(expected, ev.DecisionReceived):
        reason = f": {expected.explanation}" if expected.explanation else ""
        if event.outcome != expected.outcome:
            return f"it was recorded as {event.outcome}, and has to be {expected.outcome}{reason}"
    if isinstance(expected, ev.SignalRejected):
        return f"it counted, and has to be refused ({expected.explanation})"
    wanted, actual = _compared(expected), _compared(event)
    if wanted["type"] != actual["type"]:
        return f"what came before leads to {wanted['type']} here"
    name = next(name for name in sorted({*wanted, *actual}) if wanted.get(name) != actual.get(name))
    if name == "request" and isinstance(wanted[name], dict):
        name = next(
            n
            for n in sorted({*wanted["request"], *actual["request"]})
            if wanted["request"].get(n) != actual["request"].get(n)
        )
        wanted, actual = wanted["request"], actual["request"]
    return f"its {name} is {_short(actual.get(name))}, and what came before leads to {_short(wanted.get(name))}"


def first_difference(actual: str, wanted: str) -> str:
    """Describe the first difference between two texts, with some context."""
    pairs = enumerate(zip(actual, wanted, strict=False))
    index = next((n for n, (one, other) in pairs if one != other), min(len(actual), len(wanted)))
    start = max(0, index - 20)
    return f"from character {index} on it is {_short(actual[start:])!r}, and not {_short(wanted[start:])!r}"


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
