"""Wake triggers, which end the sleep of a dormant agent: a closed union, and parsing of arguments into one.

The LLM, or a person who edits its call, writes the arguments. So an error in them is a sentence for the LLM, never an
exception.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, assert_never

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from holdfast.core.base.canonical import exact_json
from holdfast.core.base.constraint_names import constraint_name, constraint_number
from holdfast.core.base.durations import read_seconds, rounded_span
from holdfast.core.base.models import Frozen
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.tools.result_conditions import Matched, ResultCondition, matches, read_condition, read_match
from holdfast.errors import NotPortable

LONGEST_SLEEP = 10 * 365 * 86_400
"""Maximum number of seconds until a wait ends by itself. Python's dates end with the year 9999."""

EVENT_NAME = r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,99}"
"""Matches the names of events, which are safe in queries of Temporal's visibility store and on a command line."""

NAME_RULE = "an event's name begins with a letter or digit, and has up to 100 letters, digits and _ . : / -"
"""The same rule as a sentence."""

COUNTED = 20
"""Maximum number of events that one wait may count."""

POLLED_BYTES = 4_000
"""Maximum size of a polled call's arguments as JSON: a sleeping run carries them along."""

POLICY_CHANGED = "policy_changed"
"""The event that a run sends itself when it adopts another policy, and that nobody else can send."""

RUNTIME_TOOLS = ("sleep_until", "wait_for_event", "check_back", "wait_for_run")
"""The tools that the run itself carries out. If an agent of a catalog has them, no other tool may have these names."""

RUN_STATUS = "run_status"
"""The tool that `wait_for_run` polls."""

ENDED = '"ended": true'
"""Part of its result once the other run has ended. A long result is clipped only in its middle."""

# Python's own parser accepts more, but that differs between versions, and a replay must parse as the run did.
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(?P<offset>Z|[+-]\d\d:\d\d)?", re.ASCII | re.IGNORECASE
)


_CONSTRAINT = re.compile(r"constraint (?P<name>\d{1,9}(\.\d{1,9})?)", re.ASCII | re.IGNORECASE)


class TimeTrigger(Frozen):
    """A time is reached."""

    kind: Literal["time"]
    until: datetime

    @property
    def words(self) -> str:
        """A short description of the trigger."""
        return clock(self.until)


class ConstraintTrigger(Frozen):
    """A constraint of the thread ends: its time is over, or a person lifts it."""

    kind: Literal["constraint"]
    constraint: int
    """Its number."""
    until: datetime | None = None
    """When it ends by itself; None if only a person can lift it."""

    @property
    def words(self) -> str:
        """A short description of the trigger."""
        end = f", until {clock(self.until)}" if self.until else ""
        return f"the end of constraint {constraint_name(self.constraint)}{end}"


class EventTrigger(Frozen):
    """An event arrives, or a time is reached."""

    kind: Literal["event"]
    event: str
    """The event's name."""
    match: dict[str, Matched] = {}
    """Fields that the event's data must have, with these values."""
    until: datetime | None = None
    """The time at which the wait ends without the event; None for never."""
    count: int = 1
    """How many such events have to arrive."""
    of: int | None = None
    """Among how many events of that name, with any data; None for any number."""
    within: float | None = None
    """Within how many seconds they have to arrive; None for any time."""

    @property
    def counts(self) -> bool:
        """Whether the trigger counts events."""
        return self.count > 1 or self.of is not None

    @property
    def words(self) -> str:
        """A short description of the trigger."""
        match = f" with {exact_json(self.match)}" if self.match else ""
        end = f", until {clock(self.until)}" if self.until else ""
        if not self.counts:
            return f"event {self.event}{match}{end}"
        of = f" of {self.of}" if self.of is not None else ""
        within = f" within {rounded_span(self.within)}" if self.within is not None else ""
        return f"{self.count}{of} events {self.event}{match}{within}{end}"

    def fits(self, event: str, data: str) -> bool:
        """Whether an event matches the trigger.

        Args:
            event: The event's name.
            data: The event's data: an object, as canonical JSON.
        """
        if event != self.event:
            return False
        return matches(self.match, from_json(data) if self.match else {})


class PollTrigger(Frozen):
    """The result of a read-only call fulfils a condition, or a time is reached."""

    kind: Literal["poll"]
    tool: str
    """The tool that is called repeatedly."""
    arguments: str
    """Its arguments, as canonical JSON."""
    condition: ResultCondition
    until: datetime | None = None
    """The time of the last poll; None for no end."""

    @property
    def words(self) -> str:
        """A short description of the trigger."""
        end = f", until {clock(self.until)}" if self.until else ""
        if self.tool == RUN_STATUS and self.condition.contains == ENDED:
            return f"the end of the run of {one_line(self.arguments, 300)}{end}"
        return f"a result of {self.tool}({one_line(self.arguments, 200)}) that {self.condition.words}{end}"


class TaskTrigger(Frozen):
    """A task of a foreign server ends. No agent sets this trigger: it follows from a call of the server's tool."""

    kind: Literal["task"]
    server: str
    """The server's name in the catalog."""
    task: str
    """The server's id of the task."""
    interval: float
    """Seconds between two polls, at least."""

    @property
    def words(self) -> str:
        """A short description of the trigger."""
        return f"the end of task {one_line(self.task, 100)} of {self.server}"


WakeTrigger = Annotated[
    TimeTrigger | ConstraintTrigger | EventTrigger | PollTrigger | TaskTrigger, Field(discriminator="kind")
]
"""The trigger that ends a wait. Its `kind` has no default, because encodings leave defaults out."""

WAKE_TRIGGER: TypeAdapter[WakeTrigger] = TypeAdapter(WakeTrigger)
"""Decodes wake triggers by their kind."""


def deadline(trigger: WakeTrigger) -> datetime | None:
    """Return the time at which a wait ends by itself; None for never."""
    match trigger:
        case TimeTrigger() | ConstraintTrigger() | EventTrigger() | PollTrigger():
            return trigger.until
        case TaskTrigger():
            return None
        case _:
            assert_never(trigger)


def read_trigger(tool: str, arguments: Mapping[str, Any], *, at: datetime) -> WakeTrigger | str:
    """Return the trigger of a call, or a sentence about the error in its arguments.

    Args:
        tool: The tool's name.
        arguments: The call's arguments, parsed.
        at: The current time.
    """
    try:
        match tool:
            case "sleep_until":
                return TimeTrigger(kind="time", until=_time(arguments.get("until"), at=at))
            case "wait_for_event":
                until = arguments.get("until")
                return EventTrigger(
                    kind="event",
                    event=_name(arguments.get("name")),
                    match=read_match(arguments.get("match"), name="match"),
                    until=None if until is None else _time(until, at=at),
                    **_counted(arguments),
                )
            case "check_back":
                until = arguments.get("until")
                polled = _polled(arguments)
                return PollTrigger(
                    kind="poll",
                    tool=polled.name,
                    arguments=polled.arguments,
                    condition=read_condition(arguments.get("condition")),
                    until=None if until is None else _time(until, at=at),
                )
            case "wait_for_run":
                until = arguments.get("until")
                return PollTrigger(
                    kind="poll",
                    tool=RUN_STATUS,
                    arguments=_of_run(arguments).arguments,
                    condition=ResultCondition(contains=ENDED),
                    until=None if until is None else _time(until, at=at),
                )
            case _:
                return f"this release of Holdfast cannot carry out {tool}"
    except ValueError as error:
        return str(error)


def awaited_constraint(tool: str, arguments: Mapping[str, Any]) -> int | None:
    """Return the number of the constraint whose end a call of `sleep_until` waits for; None for another call."""
    until = arguments.get("until")
    if tool != "sleep_until" or not isinstance(until, str) or not (match := _CONSTRAINT.fullmatch(until.strip())):
        return None
    number = constraint_number(match["name"])
    return number if isinstance(number, int) else None


def clock(time: datetime) -> str:
    """Format a time as the LLM reads and writes it: `2026-05-06T07:08:09Z`."""
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _time(text: Any, *, at: datetime) -> datetime:
    """Parse a time, which may be in the past, or a duration from now.

    Raises:
        ValueError: The text is neither, or the time is too far away.
    """
    if not isinstance(text, str):
        raise ValueError("`until` is missing; write a time such as 2026-05-06T07:08:00Z, or 90s, 15m, 3h or 20d")
    too_far = f"until: {text.strip()[:40]!r} is more than 10 years away"
    try:
        seconds = read_seconds(text)
    except ValueError:
        seconds = None
    if seconds is not None:
        if seconds > LONGEST_SLEEP:
            raise ValueError(too_far)
        return at + timedelta(seconds=seconds)
    match = _TIME.fullmatch(text.strip())
    wrong = f"until: {text[:40]!r} is neither a time nor a duration; write 2026-05-06T07:08:00Z, 90s, 15m, 3h or 20d"
    if match is None:
        raise ValueError(wrong)
    if not match["offset"]:
        raise ValueError(f"until: {text[:40]!r} has no offset from UTC; write 2026-05-06T07:08:00Z or …+02:00")
    try:
        time = datetime.fromisoformat(match[0].upper().replace("Z", "+00:00")).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(wrong) from None
    if time - at > timedelta(seconds=LONGEST_SLEEP):
        raise ValueError(too_far)
    return time


def _counted(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Parse how many events a wait counts.

    Raises:
        ValueError: A number or the span is invalid.
    """
    count, of, within = arguments.get("count"), arguments.get("of"), arguments.get("within")
    count = 1 if count is None else count
    if type(count) is not int or not 1 <= count <= COUNTED:
        raise ValueError(f"count: give a number from 1 to {COUNTED}")
    if of is not None and (type(of) is not int or not count <= of <= COUNTED):
        raise ValueError(f"of: give a number from {count}, the count, to {COUNTED}")
    if within is None:
        return {"count": count, "of": of}
    if of is not None or count == 1:
        raise ValueError("within: it goes with a count of 2 or more, and not with `of`")
    try:
        seconds = read_seconds(within) if isinstance(within, str) else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SLEEP:
        raise ValueError("within: write a span such as 90s, 15m, 3h or 20d")
    return {"count": count, "within": float(seconds)}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(EVENT_NAME, name, re.ASCII):
        raise ValueError(f"name: {NAME_RULE}")
    return name


def polled_call(call: ToolCall) -> ToolCall | None:
    """Return the call that Holdfast's `check_back` or `wait_for_run` polls; None for any other call."""
    if call.name not in ("check_back", "wait_for_run"):
        return None
    try:
        parsed = from_json(call.arguments)
        arguments = parsed if isinstance(parsed, dict) else {}
        return _polled(arguments) if call.name == "check_back" else _of_run(arguments)
    except ValueError:
        return None


def _of_run(arguments: Mapping[str, Any]) -> ToolCall:
    thread = arguments.get("thread")
    if not isinstance(thread, str) or not 0 < len(thread) <= 200:
        raise ValueError("thread: give the id of the other thread")
    try:
        return ToolCall(id="", name=RUN_STATUS, arguments=exact_json({"thread": thread}))
    except NotPortable as error:
        raise ValueError(f"thread: it holds {error}") from None


def _polled(arguments: Mapping[str, Any]) -> ToolCall:
    tool, polled_arguments = arguments.get("tool"), arguments.get("arguments")
    if not isinstance(tool, str):
        raise ValueError("tool: give the name of one of your read-only tools")
    if not isinstance(polled_arguments, dict | None):
        raise ValueError(f"arguments: give an object with the arguments of {tool[:64]}")
    try:
        text = exact_json(polled_arguments or {})
    except (NotPortable, RecursionError) as error:
        raise ValueError(f"arguments: they hold {error}") from None
    if len(text.encode()) > POLLED_BYTES:
        raise ValueError(f"arguments: they have {len(text.encode()):,} bytes as JSON; {POLLED_BYTES:,} are the most")
    return ToolCall(id="", name=tool, arguments=text)
