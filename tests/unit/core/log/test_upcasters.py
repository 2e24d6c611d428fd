"""Events of every release are upcast step by step to the current schema, or rejected with the reason."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given

from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import RunUnblocked
from holdfast.core.log.upcasters import CURRENT, UPCASTERS, Upcaster, decode_event
from holdfast.errors import EventUnreadable
from tests.support.plays import SEEDS, play
from tests.support.runs import NOW

RENAMED = Upcaster("run_unblocked", 1, "`who` became `by`", lambda event: {**event, "by": event["who"]})
TRIMMED = Upcaster("run_unblocked", 2, "`by` without white space", lambda event: {**event, "by": event["by"].strip()})
TABLE = (TRIMMED, RENAMED)  # not in the order of versions
KNOWN = {**CURRENT, "run_unblocked": 3}


def stored_line(**fields: Any) -> str:
    """Return a line of a record."""
    line = {"type": "run_unblocked", "schema_version": 1, "position": 7, "who": " bob "}
    return json.dumps({name: value for name, value in (line | fields).items() if value is not None})


def faults(upcasters: Sequence[Upcaster], current: Mapping[str, int]) -> list[str]:
    """Return the faults of a table: missing, duplicate, unsummarised and superfluous upcasters."""
    steps = [(upcaster.type, upcaster.version) for upcaster in upcasters]
    wanted = {(kind, version) for kind, latest in current.items() for version in range(1, latest)}
    messages = [f"{step}: {steps.count(step)} upcasters" for step in sorted(wanted) if steps.count(step) != 1]
    messages += [f"{step}: leads nowhere" for step in steps if step not in wanted]
    return messages + [f"{each.type} {each.version}: no summary" for each in upcasters if not each.summary.strip()]


@given(SEEDS)
def test_every_event_of_a_run_decodes_to_itself(seed: int) -> None:
    """The current release reads back every event that it writes, digest included."""
    run = play(seed).thread.run
    lines = run.log.page(0).split(b"\n")
    assert run.log.events == [decode_event(line) for line in lines]
    assert run.log.events[0] == decode_event(lines[0].decode())


def test_an_old_event_is_upcast_step_by_step() -> None:
    """An event of any version passes through each later version in order."""
    assert decode_event(stored_line(), upcasters=TABLE, current=KNOWN) == RunUnblocked(
        schema_version=3, position=7, by="bob"
    )
    second = stored_line(schema_version=2, who=None, by=" eve ")
    assert decode_event(second, upcasters=TABLE, current=KNOWN).model_dump()["by"] == "eve"
    third = stored_line(schema_version=3, who=None, by=" eve ")
    assert decode_event(third, upcasters=TABLE, current=KNOWN).model_dump()["by"] == " eve "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "it is not JSON"),
        (b"\xff\xfe\xfd", "it is not JSON"),
        ("", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "not an object"),
        (stored_line(type=None), "event 7 cannot be read: it has no type"),
        (
            stored_line(type="teleported"),
            "there is no event type 'teleported'; if it was written by a newer release, update",
        ),
        (stored_line(type=["run_unblocked"]), "there is no event type ['run_unblocked']"),
        (stored_line(schema_version=None), "its schema_version is None"),
        (stored_line(schema_version=0), "its schema_version is 0"),
        (stored_line(schema_version=True), "its schema_version is True"),
        (stored_line(schema_version="1"), "its schema_version is '1'"),
        (
            stored_line(schema_version=4),
            "event 7 (run_unblocked) cannot be read: it has schema version 4, but this release reads up to 3. "
            "It was written by a newer release; update Holdfast.",
        ),
        (stored_line(who=None), "conversion from version 1 to 2 failed: KeyError: 'who'"),
        (
            stored_line(schema_version=3, by=5),
            "event 7 (run_unblocked) cannot be read: by: Input should be a valid string",
        ),
        (stored_line(schema_version=3), "by: Field required"),
        (
            json.dumps({"type": "tool_call_requested", "schema_version": 1, "number": 1, "call": {"id": "c"}}),
            "an event (tool_call_requested) cannot be read: call.name: Field required",
        ),
    ],
)
def test_an_unreadable_event_is_explained(line: bytes | str, message: str) -> None:
    """Every failure is an `EventUnreadable` that names the event and the fault."""
    with pytest.raises(EventUnreadable) as raised:
        decode_event(line, upcasters=TABLE, current=KNOWN)
    assert message in str(raised.value)


@pytest.mark.parametrize(("table", "count"), [((TRIMMED,), "no"), ((*TABLE, RENAMED), "2")])
def test_a_gap_in_the_upcasters_is_named(table: tuple[Upcaster, ...], count: str) -> None:
    """A missing or duplicated upcaster is reported as an error in Holdfast."""
    with pytest.raises(EventUnreadable, match=f"{count} upcasters lead from version 1 to 2"):
        decode_event(stored_line(), upcasters=table, current=KNOWN)


def test_an_upcast_event_keeps_its_digest() -> None:
    """Upcasting adds fields; the digest remains that of the stored line."""
    log = EventLog()
    log.append(RunUnblocked(by="bob"), at=NOW)
    reason = Upcaster("run_unblocked", 1, "a reason is required", lambda event: {**event, "reason": "not given"})
    event = decode_event(log.page(0), upcasters=(reason,), current={**CURRENT, "run_unblocked": 2})
    assert (event.digest, event.schema_version) == (log.events[0].digest, 2)
    assert isinstance(event, RunUnblocked)
    assert (event.by, event.reason) == ("bob", "not given")


def test_every_version_that_was_ever_written_has_one_upcaster() -> None:
    """Each type of event has exactly one upcaster with a summary for each earlier version."""
    assert faults(UPCASTERS, CURRENT) == []
    assert {"run_started", "run_finished", "llm_replied"} <= CURRENT.keys()


def test_the_check_of_the_table_can_fail() -> None:
    """A missing, a duplicated, an undocumented and a superfluous upcaster are each found."""
    assert faults(TABLE, KNOWN) == []
    assert faults((TRIMMED,), KNOWN) == ["('run_unblocked', 1): 0 upcasters"]
    assert faults((*TABLE, RENAMED), KNOWN) == ["('run_unblocked', 1): 2 upcasters"]
    assert faults((TRIMMED, RENAMED._replace(summary=" ")), KNOWN) == ["run_unblocked 1: no summary"]
    assert faults(TABLE, CURRENT) == [f"('run_unblocked', {version}): leads nowhere" for version in (2, 1)]
