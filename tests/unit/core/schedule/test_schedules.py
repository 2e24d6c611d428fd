"""Cron expressions, ids of scheduled runs, and valid schedules, without a server."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.converter import WorkflowSerializationContext

from holdfast.client.schedule_definitions import Definition, check_schedule_name, checked
from holdfast.client.start_options import check_own_id, issued
from holdfast.core.base.cron import read_cron
from holdfast.core.mac.seals import LAUNCHER, FleetKeys, launched, launcher_prefix, sealing_id
from holdfast.core.run.state.features import PLACES
from holdfast.core.schedule.launching import Launch, ScheduledInput, launch
from holdfast.core.temporal.converter import sealing
from holdfast.errors import ScheduleInvalid, ThreadIdInvalid

NOW = datetime(2026, 11, 22, 7, 0, 1, tzinfo=UTC)
AT = "2026-11-22T07:00:00Z"


@pytest.mark.parametrize(
    ("text", "field", "numbers"),
    [
        ("*/20 * * * *", "minutes", (0, 20, 40)),
        ("5/25 * * * *", "minutes", (5, 30, 55)),
        ("0 8-18/5 * * *", "hours", (8, 13, 18)),
        ("0 7,9-10 * * *", "hours", (7, 9, 10)),
        ("0 7 * feb,DEC *", "months", (2, 12)),
        ("0 7 * * mon-fri", "weekdays", (1, 2, 3, 4, 5)),
        ("0 7 * * 5-7", "weekdays", (0, 5, 6)),
        ("  0   7 29 2 *  ", "days", (29,)),
    ],
)
def test_a_cron_expression_matches_these_numbers(text: str, field: str, numbers: tuple[int, ...]) -> None:
    """Steps, ranges, lists, names and both Sundays are read as cron reads them."""
    assert getattr(read_cron(text), field) == numbers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 7 * *", "has 4 fields, not the five"),
        ("@daily", "has 1 fields"),
        ("60 7 * * *", "the minute, '60', is not a number from 0 to 59"),
        ("0 24 * * *", "the hour, '24', is not a number from 0 to 23"),
        ("0 7 0 * *", "the day of the month, '0', is not a number from 1 to 31"),
        ("0 7 * JANUARY *", "the month, 'JANUARY', is not a number from 1 to 12, or JAN"),
        ("0 7 * * 8", "the day of the week, '8', is not a number from 0 to 7, or SUN"),
        ("*/0 * * * *", "the minute, '*/0', has a step"),
        ("0 18-8 * * *", "the hour, '18-8', has a range that ends before it begins; write 18-23,0-8"),
        ("0 7 31 4,6 *", "never comes"),
        ("0 7 ² * *", "the day of the month"),
        ("0 -1 * * *", "the hour"),
        (", 7 * * *", "the minute"),
    ],
)
def test_a_wrong_cron_expression_names_its_field(text: str, says: str) -> None:
    """The error gives the wrong field and its valid values."""
    with pytest.raises(ValueError, match=r".") as wrong:
        read_cron(text)
    assert says in str(wrong.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0 7 * * *", 86_400), ("* * * * *", 60), ("0 9,17 * * *", 8 * 3_600), ("0 23,1 * * *", 2 * 3_600)],
)
def test_the_shortest_gap_spans_midnight(text: str, seconds: int) -> None:
    """The gap bounds how late a missed run may start."""
    assert read_cron(text).shortest_gap == seconds


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "either `cron`"),
        ({"cron": "0 7 * * *", "every": 60.0}, "either `cron`"),
        ({"cron": "0 7"}, "`cron` '0 7' has 2 fields"),
        ({"every": 5.0}, "from 1m to 366d"),
        ({"every": float("nan")}, "from 1m to 366d"),
        ({"every": 3_600.0, "tz": "Europe/Berlin"}, "an interval has no time zone"),
        ({"cron": "0 7 * * *", "tz": "Europe/Nowhere"}, "no such time zone"),
        ({"cron": "0 7 * * *", "tz": "../../etc/passwd"}, "no such time zone"),
        ({"cron": "0 7 * * *", "until": datetime(2020, 1, 1, tzinfo=UTC)}, "this is over"),
        ({"cron": "0 7 * * *", "until": datetime(2099, 1, 1)}, "no time zone"),  # noqa: DTZ001  # that is the case
        ({"cron": "0 7 * * *", "catchup": 1.0}, "`catchup`: it is from 10s to 30d"),
        ({"cron": "* * * * *", "catchup": 3_600.0, "overlap": "allow"}, "every missed run at once"),
        ({"cron": "* * * * *", "overlap": "all"}, "it is one of skip, queue, cancel, allow"),
        ({"cron": "0 7 * * *", "reason": "x" * 2_001}, "`reason`"),
    ],
)
def test_an_impossible_schedule_is_rejected(given: dict[str, Any], says: str) -> None:
    """The error names the option, before anything is sent."""
    with pytest.raises(ScheduleInvalid) as refused:
        checked(Definition(task="Sort", **given))
    assert says in str(refused.value)


def test_only_the_last_missed_run_is_caught_up_by_default() -> None:
    """A run may start no later than the next one is due."""
    assert checked(Definition(task="Sort", cron="*/15 * * * *")).catchup == 900
    assert checked(Definition(task="Sort", every=7_200.0)).catchup == 7_200


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "é", "a" * 101, f"nightly-{AT}"])
def test_a_name_that_could_be_mistaken_is_rejected(name: str) -> None:
    """A name that ends like a thread of another schedule is rejected, too."""
    with pytest.raises(ScheduleInvalid):
        check_schedule_name(name)


def test_ids_are_taken_apart_as_they_were_put_together() -> None:
    """The launcher's id has the schedule's name and the thread id; no other kind of id has them."""
    launcher = f"{launcher_prefix('nightly')}-{AT}"
    assert launched(launcher) == ("nightly", f"nightly-{AT}")
    assert sealing_id(launcher) == launcher_prefix("nightly")
    for other in (f"nightly-{AT}", launcher_prefix("nightly"), f"{launcher}-1", f"x{launcher}"):
        assert (launched(other), sealing_id(other)) == (None, other)
    with pytest.raises(ThreadIdInvalid, match="begins with"):
        check_own_id(f"{LAUNCHER}x")


def seal_and_open(sealed_for: str, opened_as: str) -> ScheduledInput:
    """Seal an input for one workflow id, and read it as another."""
    converter = sealing(FleetKeys({"k": bytes(32)}))()
    places = [WorkflowSerializationContext(namespace="default", workflow_id=each) for each in (sealed_for, opened_as)]
    payloads = converter.with_context(places[0]).to_payloads([issued(ScheduledInput(task="Sort", by="alice"))])
    (read,) = converter.with_context(places[1]).from_payloads(payloads, [ScheduledInput])
    assert isinstance(read, ScheduledInput)
    return read


def test_an_input_is_valid_for_each_launcher_of_its_schedule_and_for_no_other() -> None:
    """An input sealed once for a schedule is valid at any time, and for no schedule with a similar name."""
    nightly = launcher_prefix("nightly")
    assert seal_and_open(nightly, f"{nightly}-{AT}").sealed
    assert seal_and_open(nightly, f"{nightly}-2030-01-01T00:00:00Z").sealed
    for other in ("daily", "nightly-2", f"nightly-{AT}"):
        assert not seal_and_open(nightly, f"{launcher_prefix(other)}-{AT}").sealed


def test_a_launch_is_the_input_that_the_maker_sealed() -> None:
    """The run has the maker as its user, the schedule's name, and a seal of its own, however old the input's is."""
    begin = ScheduledInput(task="Sort", by="alice", agent="clerk", workspace="/w", sealed=True)
    launched = launch(begin, workflow_id=f"{launcher_prefix('nightly')}-{AT}", started_at=NOW, at=NOW)
    assert isinstance(launched, Launch)
    run = launched.run
    assert (launched.thread, run.start, run.schedule, run.issued_at) == (
        f"nightly-{AT}",
        f"nightly-{AT}",
        "nightly",
        NOW,
    )
    assert (run.task, run.by, run.agent, run.workspace) == ("Sort", "alice", "clerk", "/w")


@pytest.mark.parametrize("late", [timedelta(minutes=5), timedelta(minutes=11)])
def test_the_last_run_before_the_end_may_start_a_little_late(late: timedelta) -> None:
    """`until` allows for the delay between the time a run is due and its start."""
    begin = ScheduledInput(task="Sort", sealed=True, until=NOW - late)
    launched = launch(begin, workflow_id=f"{launcher_prefix('nightly')}-{AT}", started_at=NOW, at=NOW)
    assert isinstance(launched, Launch) is (late < timedelta(minutes=10))


def test_a_launched_run_has_the_schedules_nodes_and_their_feature_level() -> None:
    """A worker that would ignore the scope of the run does not take it; without nodes, nothing changes."""
    place: Any = {"workflow_id": f"{launcher_prefix('nightly')}-{AT}", "started_at": NOW, "at": NOW}
    launched = launch(ScheduledInput(task="Sort", sealed=True, nodes=("region=eu",)), **place)
    assert isinstance(launched, Launch)
    assert (launched.run.scope, launched.run.features) == ((("region=eu",),), PLACES)
    plain = launch(ScheduledInput(task="Sort", sealed=True), **place)
    assert isinstance(plain, Launch)
    assert plain.run.scope == ()
    assert plain.run.features < PLACES
