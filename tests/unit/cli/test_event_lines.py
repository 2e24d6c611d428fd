"""Event lines: how `log` and `watch` show each event."""

import json
from functools import cache

import pytest

from holdfast.cli.screens import event_lines
from holdfast.core.log.event_log import event_line as event_bytes
from holdfast.core.log.events import AgentEvent, ApprovalRequested
from holdfast.core.temporal.history_reader import read_events
from tests.unit.core.temporal.test_history import RECORDED, recorded


@cache
def events() -> list[AgentEvent]:
    """Return the events of all recorded histories."""
    return [event for name in RECORDED for event in read_events(recorded(name).events)]


def test_every_recorded_event_has_a_text() -> None:
    """No event of this release is shown as JSON, which is reserved for events of newer releases."""
    for event in {event.type: event for event in events()}.values():
        shown = json.loads(event_bytes(event))
        summary = event_lines._summary(event_lines._with_defaults(shown))
        assert event_lines.event_summary(shown) == summary


def test_a_request_is_shown_with_its_id() -> None:
    """The line names what to type into `approve`."""
    asked = next(event for event in events() if isinstance(event, ApprovalRequested))
    line = event_lines.event_summary(json.loads(event_bytes(asked)))
    assert line.startswith(f"request {asked.request.id}: may this run? {asked.request.tool}(")


@pytest.mark.parametrize("columns", [30, 40, 60])
def test_a_narrow_terminal_shows_each_events_text(columns: int) -> None:
    """Each row fits, and besides the time shows the event's text, or its type if it has none."""
    for event in {event.type: json.loads(event_bytes(event)) for event in events()}.values():
        row = event_lines.event_row(event, columns).plain
        text = event_lines.event_summary(event) or event["type"].replace("_", " ")
        assert len(row) <= columns
        assert row[6:26].rstrip("…") == text[: len(row[6:26].rstrip("…"))]


def test_a_wide_terminal_shows_the_whole_line() -> None:
    """A wide terminal shows the same row as `log`."""
    event = json.loads(event_bytes(events()[0]))
    assert event_lines.event_row(event, 200).plain == event_lines.event_line(event).plain
