"""Schema evolution of events: what an older release recorded, brought to today's schema one version at a time.

1. An upcaster leads from one version of one type of event to the next, and is never changed or removed after a
   release: somewhere a record begins with it.
2. It is pure, and works on JSON, for the class that it once was is gone.
3. Digests are those of the line as it was stored. Check a chain on the lines, before they are decoded.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from pydantic import TypeAdapter, ValidationError

from holdfast.base.text import one_line
from holdfast.errors import EventUnreadable
from holdfast.log.events import AgentEvent

JSON = dict[str, Any]


class Upcaster(NamedTuple):
    """One step of one type of event: from `version` to the version after it."""

    type: str
    version: int
    summary: str
    """What changed, in one line."""
    change: Callable[[JSON], JSON]
    """Takes the event's JSON and returns it as the next version has it; `schema_version` is set for it."""


UPCASTERS: tuple[Upcaster, ...] = ()
"""In the order of releases. Empty as long as every type of event has its first version."""

CURRENT: Mapping[str, int] = {
    kind.model_fields["type"].default: kind.model_fields["schema_version"].default
    for kind in get_args(get_args(AgentEvent)[0])
}
"""The version in which this release records each type of event."""

_EVENT: TypeAdapter[AgentEvent] = TypeAdapter(AgentEvent)


def decode_event(
    line: bytes | str, *, upcasters: Sequence[Upcaster] = UPCASTERS, current: Mapping[str, int] = CURRENT
) -> AgentEvent:
    """Decode one event as any release up to this one has stored it.

    Args:
        line: Its JSON text.
        upcasters: Each step there is.
        current: The version to bring each type of event to.

    Raises:
        EventUnreadable: It is no event, or of no version known here; the message says which event, and what is wrong.
    """
    event = _parsed(line)
    position = event.get("position")
    which = f"event {position}" if isinstance(position, int) else "an event"
    if "type" not in event:
        raise EventUnreadable(f"{which} cannot be read: it has no type")
    kind, version = event["type"], event.get("schema_version")
    if not isinstance(kind, str) or kind not in current:
        raise EventUnreadable(
            f"{which} cannot be read: no event is of type {one_line(repr(kind), 80)}; "
            "if it was written by a newer release, update Holdfast"
        )
    which += f" ({kind})"
    if type(version) is not int or version < 1:
        raise EventUnreadable(f"{which} cannot be read: its schema_version is {version!r}, and not a number from 1 on")
    if version > current[kind]:
        raise EventUnreadable(
            f"{which} cannot be read: it has schema version {version}, and this release knows {current[kind]}. "
            "It was written by a newer release; update Holdfast."
        )
    for step in range(version, current[kind]):
        event = _upcast(event, which, _the_one(upcasters, kind, step, which))
    try:
        return _EVENT.validate_python(event)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # The first part of a place is the type, by which the union chose the class.
        field = ".".join(str(part) for part in first["loc"][1:]) or "the event"
        raise EventUnreadable(f"{which} cannot be read: {field}: {one_line(first['msg'], 200)}") from error


def _parsed(line: bytes | str) -> JSON:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EventUnreadable(f"an event cannot be read: it is not JSON: {one_line(str(error), 200)}") from error
    if not isinstance(event, dict):
        raise EventUnreadable("an event cannot be read: it is JSON, and not an object")
    return event


def _the_one(upcasters: Sequence[Upcaster], kind: str, version: int, which: str) -> Upcaster:
    found = [each for each in upcasters if (each.type, each.version) == (kind, version)]
    if len(found) != 1:
        raise EventUnreadable(
            f"{which} cannot be read: {len(found) or 'no'} upcasters lead from version {version} to {version + 1}, "
            "where one should; report this as a fault of Holdfast"
        )
    return found[0]


def _upcast(event: JSON, which: str, upcaster: Upcaster) -> JSON:
    try:
        return {**upcaster.change(dict(event)), "schema_version": upcaster.version + 1}
    # An upcaster meets whatever somebody stored, and each lack has an exception of its own.
    except Exception as error:
        step = f"from version {upcaster.version} to {upcaster.version + 1}"
        raise EventUnreadable(
            f"{which} cannot be read: it cannot be brought {step}: {type(error).__name__}: {one_line(str(error), 200)}"
        ) from error
