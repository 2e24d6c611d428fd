"""The calls of a run as bars on one scale: waiting for a worker, for a person, held, and running.

Pure functions of events as JSON, so that events of a newer release are shown, too. The log has no event for an attempt
that failed: its results count them, and say how long the last one took.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from holdfast.core.base.durations import rounded_span
from holdfast.gateway.page.views.text import line

JSON = Mapping[str, Any]

WIDTH = 1_000
"""The width of a row of bars, in its own units."""
THINNEST = 2
"""The width of the shortest bar, so that it can be seen."""

Part = Literal["worker", "person", "held", "running"]
WORDS: Mapping[Part, str] = {
    "worker": "waiting for a worker",
    "person": "waiting for a person",
    "held": "held by a sleep, an event, the hours of a policy or a node",
    "running": "running",
}


class Bar(NamedTuple):
    """A stretch of a call, in units of `WIDTH`."""

    part: Part
    x: int
    width: int


class CallRow(NamedTuple):
    """A call of a tool or of the LLM, with its bars."""

    name: str
    position: int
    """Of the event with which it begins."""
    status: str
    times: tuple[str, ...]
    """The length of each part in words: `waiting for a person 3m 2s`."""
    bars: tuple[Bar, ...]
    survived: str
    """The failed attempts and the deaths of workers before its result; empty for none."""


@dataclass
class _Call:
    name: str
    position: int
    begin: datetime
    end: datetime | None = None
    status: str = ""
    duration: float = 0.0
    survived: str = ""
    asked: datetime | None = None
    held_since: datetime | None = None
    started: datetime | None = None
    subagent: datetime | None = None
    waits: list[tuple[Part, datetime, datetime]] = field(default_factory=list)

    def end_waits(self, at: datetime) -> None:
        """End what the call waits for."""
        if self.asked:
            self.waits.append(("person", self.asked, at))
        if self.held_since:
            self.waits.append(("held", self.held_since, at))
        self.asked = self.held_since = None


def timed(event: JSON) -> JSON:
    """Return the fields of an event that `call_rows` reads, without its texts: a page has hundreds of events."""
    kept = {name: event[name] for name in _FIELDS if name in event}
    if isinstance(call := event.get("call"), Mapping):
        kept["call"] = {"name": call.get("name")}
    if isinstance(request := event.get("request"), Mapping):
        kept["request"] = {"id": request.get("id"), "number": request.get("number")}
    elif "request" in event:
        kept["request"] = request
    return kept


_FIELDS = frozenset(
    {
        *("type", "position", "at", "number", "verdict", "outcome", "status"),
        *("duration_ms", "failures", "attempt", "outage", "llm"),
    }
)


def call_rows(events: Iterable[JSON], now: datetime, *, is_open: bool) -> tuple[CallRow, ...]:
    """Return the calls in a part of a log, in the order in which they begin.

    Args:
        events: A part of the log, oldest first.
        now: The time, at which calls in progress end for now.
        is_open: Whether the part reaches the end of an open run; else a call without a result ends with the part.
    """
    calls: dict[int, _Call] = {}
    replies: list[_Call] = []
    requests: dict[str, int] = {}
    ready = latest = None
    for event in events:
        at = _time(event.get("at"))
        if at is None:
            continue
        latest = at
        kind = str(event.get("type"))
        if kind == "llm_replied":
            replies.append(_reply(event, at, ready))
        elif kind in _TOOL_CALLS:
            number = _number(event, requests)
            if kind == "tool_call_requested":
                name = line(f"Call {number}: {(event.get('call') or {}).get('name')}", 120)
                calls[number] = _Call(name, int(event.get("position") or 0), at)
            elif number in calls:
                _TOOL_CALLS[kind](calls[number], event, at)
        ready = at if kind not in _ARRIVALS else ready
    if latest is None:
        return ()
    end = max(now, latest) if is_open else latest
    ordered = sorted([*calls.values(), *replies], key=lambda call: (call.begin, call.position))
    return _scaled(ordered, end, open_words="in progress" if is_open else "continues later")


def _reply(event: JSON, at: datetime, ready: datetime | None) -> _Call:
    duration = _seconds(event.get("duration_ms"))
    outage, attempt = event.get("outage") or {}, int(event.get("attempt") or 1)
    failed = int(outage.get("failed") or 0)
    deaths = max(0, attempt - 1 - failed)
    last = (outage.get("last") or [{}])[-1]
    begin = min(ready or at, at)
    call = _Call(line(f"LLM {event.get('llm') or ''}", 120), int(event.get("position") or 0), begin, at, "replied")
    call.duration, call.started = duration, begin
    call.survived = _survived(failed, deaths, f"{last.get('cause')}: {last.get('message')}" if last else "")
    return call


def _verdict(call: _Call, event: JSON, at: datetime) -> None:
    call.status = {"allow": "allowed", "ask": "needs approval", "deny": "denied"}.get(str(event.get("verdict")), "")


def _asked(call: _Call, event: JSON, at: datetime) -> None:
    call.asked = call.asked or at


def _decided(call: _Call, event: JSON, at: datetime) -> None:
    if event.get("outcome", "accepted") == "accepted":
        call.end_waits(at)


def _held(call: _Call, event: JSON, at: datetime) -> None:
    call.held_since = call.held_since or at


def _started(call: _Call, event: JSON, at: datetime) -> None:
    call.end_waits(at)
    call.started = at


def _subagent(call: _Call, event: JSON, at: datetime) -> None:
    call.subagent = call.subagent or at


def _finished(call: _Call, event: JSON, at: datetime) -> None:
    call.end_waits(at)
    call.end, call.status, call.duration = at, line(event.get("status") or "", 40), _seconds(event.get("duration_ms"))
    failures = event.get("failures") or {}
    last = failures.get("last") or []
    deaths = sum(each.get("kind") == "no_response" for each in last)
    failed = int(failures.get("count") or 0) - deaths
    call.survived = _survived(failed, deaths, f"{last[-1].get('kind')}: {last[-1].get('message')}" if last else "")


_Step = Callable[[_Call, JSON, datetime], None]
_TOOL_CALLS: Mapping[str, _Step] = {
    "tool_call_requested": lambda call, event, at: None,
    "verdict_given": _verdict,
    "approval_requested": _asked,
    "reconcile_requested": _asked,
    "answer_requested": _asked,
    "decision_received": _decided,
    "approval_expired": _decided,
    "tool_call_postponed": _held,
    "node_awaited": _held,
    "dormancy_began": _held,
    "subagent_started": _subagent,
    "tool_call_started": _started,
    "tool_call_finished": _finished,
}
_ARRIVALS = frozenset({"user_message_received", "signal_rejected", "refusals_counted", "wake_received"})
"""Events that arrive while an LLM call is in progress, and do not begin it."""


def _number(event: JSON, requests: dict[str, int]) -> int:
    """Return the number of the call that an event is about; remember the requests about it."""
    request = event.get("request")
    if isinstance(request, Mapping):
        number = int(request.get("number") or 0)
        requests[str(request.get("id"))] = number
        return number
    if "number" in event:
        return int(event["number"]) if isinstance(event["number"], int) else 0
    return requests.get(str(request), 0)


def _parts(call: _Call, end: datetime) -> list[tuple[Part, datetime, datetime]]:
    """Split a call into what it did, one after the other."""
    stop, waiting = call.end or end, False
    if call.end is None:
        waiting = bool(call.asked or call.held_since)
        call.end_waits(end)
    parts: list[tuple[Part, datetime, datetime]] = []
    at = call.begin
    for part, since, until in sorted(call.waits, key=lambda wait: wait[1]):
        if since > at:
            parts.append(("worker", at, since))
        if until > max(at, since):
            parts.append((part, max(at, since), until))
        at = max(at, until)
    running = call.subagent
    if running is None and (call.duration or (call.started and call.end)):  # less than a millisecond is recorded as 0
        running = stop - timedelta(seconds=min(call.duration, max(0.0, (stop - at).total_seconds())))
    if running is None and call.end is None and call.started and not waiting:
        running = call.started
    if running is not None:
        running = max(at, min(running, stop))
        parts += [("worker", at, running)] if running > at else []
        parts.append(("running", running, stop))
    elif stop > at:
        parts.append(("worker", at, stop))
    return parts


def _scaled(calls: Sequence[_Call], end: datetime, *, open_words: str) -> tuple[CallRow, ...]:
    if not calls:
        return ()
    first = min(call.begin for call in calls)
    last = max(call.end or end for call in calls)
    whole = max((last - first).total_seconds(), 0.001)
    rows = []
    for call in calls:
        bars, sums = [], dict.fromkeys(WORDS, 0.0)
        for part, since, until in _parts(call, end):
            x = min(WIDTH - THINNEST, int(WIDTH * (since - first).total_seconds() / whole))
            seconds = (until - since).total_seconds()
            bars.append(Bar(part, x, min(WIDTH - x, max(THINNEST, round(WIDTH * seconds / whole)))))
            sums[part] += seconds
        sums["running"] = max(sums["running"], call.duration)  # events of one workflow task have the same time
        times = tuple(f"{WORDS[part]} {_span(seconds)}" for part, seconds in sums.items() if seconds > 0)
        status = call.status if call.end else f"{call.status}, {open_words}".lstrip(", ")
        rows.append(CallRow(call.name, call.position, status, times, tuple(bars), call.survived))
    return tuple(rows)


def _survived(failed: int, deaths: int, last: str) -> str:
    parts = [f"{deaths:,} {'worker' if deaths == 1 else 'workers'} died"] if deaths else []
    parts += [f"{failed:,} {'attempt' if failed == 1 else 'attempts'} failed"] if failed > 0 else []
    return line(f"{' and '.join(parts)} before it; the last: {last}", 400) if parts and last else " and ".join(parts)


def _span(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms" if seconds < 1 else rounded_span(seconds)


def _seconds(milliseconds: Any) -> float:
    return max(0.0, milliseconds / 1_000) if isinstance(milliseconds, int | float) else 0.0


def _time(text: Any) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return at if at.tzinfo else None
