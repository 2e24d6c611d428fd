"""Schema evolution of events: upcasters convert stored events to the current schema, one version at a time.

1. An upcaster converts one type of event from one version to the next. It is never changed or removed after a
   release, because records may contain that version.
2. It is a pure function on JSON, because the older version's class no longer exists.
3. Digests cover the stored lines, so verify a chain before decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast, get_args

from pydantic import TypeAdapter, ValidationError

from holdfast.core.base.canonical import parse_json
from holdfast.core.base.text import one_line
from holdfast.core.log.events import AgentEvent, Event
from holdfast.core.log.loop_events import LoopEvent, StoredEvent
from holdfast.errors import EventUnreadable

JSON = dict[str, Any]


class Upcaster(NamedTuple):
    """Converts one type of event from `version` to the next version."""

    type: str
    version: int
    summary: str
    """What changed, in one line."""
    change: Callable[[JSON], JSON]
    """Converts the event's JSON to the next version; `schema_version` is set automatically."""


UPCASTERS: tuple[Upcaster, ...] = ()
"""All upcasters, in the order of releases. Empty as long as every type of event has its first version."""

_OF_RUNS: tuple[type[Event], ...] = get_args(get_args(AgentEvent)[0])
_OF_LOOPS: tuple[type[Event], ...] = get_args(get_args(LoopEvent)[0])

EVENT_CLASSES: tuple[type[Event], ...] = tuple(dict.fromkeys((*_OF_RUNS, *_OF_LOOPS)))
"""The class of each type of event: those of runs, then those that only loops have."""

CURRENT: Mapping[str, int] = {
    kind.model_fields["type"].default: kind.model_fields["schema_version"].default for kind in EVENT_CLASSES
}
"""The version of each type of event that this release records."""

_EVENT: TypeAdapter[StoredEvent] = TypeAdapter(StoredEvent)


def decode_event(
    line: bytes | str, *, upcasters: Sequence[Upcaster] = UPCASTERS, current: Mapping[str, int] = CURRENT
) -> AgentEvent:
    """Decode one event of an agent run, as `decode_stored` decodes any.

    Raises:
        EventUnreadable: The line is not such an event; the message names the event and the problem.
    """
    event = decode_stored(line, upcasters=upcasters, current=current)
    if not isinstance(event, _OF_RUNS):
        raise _misplaced(event, "an agent run")
    return cast(AgentEvent, event)


def decode_loop_event(line: bytes | str) -> LoopEvent:
    """Decode one event of a loop, as `decode_stored` decodes any.

    Raises:
        EventUnreadable: The line is not such an event; the message names the event and the problem.
    """
    event = decode_stored(line)
    if not isinstance(event, _OF_LOOPS):
        raise _misplaced(event, "a loop")
    return cast(LoopEvent, event)


def _misplaced(event: StoredEvent, whose: str) -> EventUnreadable:
    return EventUnreadable(f"event {event.position} ({event.type}) is no event of {whose}, and this is the log of one")


def decode_stored(
    line: bytes | str, *, upcasters: Sequence[Upcaster] = UPCASTERS, current: Mapping[str, int] = CURRENT
) -> StoredEvent:
    """Decode one event, of a run or a loop, that this or an earlier release stored.

    Args:
        line: The event's JSON text.
        upcasters: All upcasters.
        current: The target version of each type of event.

    Raises:
        EventUnreadable: The line is not an event, or has an unknown version; the message names the event and the
            problem.
    """
    return decode_parsed(parse_event(line), upcasters=upcasters, current=current)


def decode_parsed(
    event: JSON, *, upcasters: Sequence[Upcaster] = UPCASTERS, current: Mapping[str, int] = CURRENT
) -> StoredEvent:
    """Decode one event, as `decode_stored`, from its JSON as `parse_event` returns it.

    Raises:
        EventUnreadable: As for `decode_stored`.
    """
    position = event.get("position")
    which = f"event {position}" if isinstance(position, int) else "an event"
    if "type" not in event:
        raise EventUnreadable(f"{which} cannot be read: it has no type")
    kind, version = event["type"], event.get("schema_version")
    if not isinstance(kind, str) or kind not in current:
        raise EventUnreadable(
            f"{which} cannot be read: there is no event type {one_line(repr(kind), 80)}; "
            "if it was written by a newer release, update Holdfast"
        )
    which += f" ({kind})"
    if type(version) is not int or version < 1:
        raise EventUnreadable(f"{which} cannot be read: its schema_version is {version!r}, not an integer from 1")
    if version > current[kind]:
        raise EventUnreadable(
            f"{which} cannot be read: it has schema version {version}, but this release reads up to {current[kind]}. "
            "It was written by a newer release; update Holdfast."
        )
    for step in range(version, current[kind]):
        event = _upcast(event, which, _the_one(upcasters, kind, step, which))
    try:
        return _EVENT.validate_python(event)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # The first part of a location is the type, by which the union selects the class.
        field = ".".join(str(part) for part in first["loc"][1:]) or "the event"
        raise EventUnreadable(f"{which} cannot be read: {field}: {one_line(first['msg'], 200)}") from error


def parse_event(line: bytes | str) -> JSON:
    """Parse an event's JSON text.

    Raises:
        EventUnreadable: It is no JSON object.
    """
    try:
        event = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise EventUnreadable(f"an event cannot be read: it is not JSON: {one_line(str(error), 200)}") from error
    if not isinstance(event, dict):
        raise EventUnreadable("an event cannot be read: it is JSON, but not an object")
    return event


def _the_one(upcasters: Sequence[Upcaster], kind: str, version: int, which: str) -> Upcaster:
    found = [each for each in upcasters if (each.type, each.version) == (kind, version)]
    if len(found) != 1:
        raise EventUnreadable(
            f"{which} cannot be read: {len(found) or 'no'} upcasters lead from version {version} to {version + 1}, "
            "instead of one; report this as a bug in Holdfast"
        )
    return found[0]


def _upcast(event: JSON, which: str, upcaster: Upcaster) -> JSON:
    try:
        return {**upcaster.change(dict(event)), "schema_version": upcaster.version + 1}
    # An upcaster may get any stored JSON, and each defect raises a different exception.
    except Exception as error:
        step = f"from version {upcaster.version} to {upcaster.version + 1}"
        raise EventUnreadable(
            f"{which} cannot be read: conversion {step} failed: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from error
