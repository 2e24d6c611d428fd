"""Hours in a time zone: when they begin next, computed from recorded offsets and no clock."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.activities.time_zones import ZoneUnknown, zone_offsets
from holdfast.core.authority.hours import Hours
from holdfast.core.authority.policy import Policy, Rule, ToolUse, allow, ask, evaluate, later, postponement
from holdfast.core.tools.effects import Effect

ZONES = zone_offsets(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca"])
BERLIN = Hours(begin="08:00", end="18:00", days="mon-fri", zone="Europe/Berlin")


def berlin(*time: int) -> datetime:
    """Return a time in Berlin, in UTC."""
    return datetime(*time, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("at", "opens"),
    [
        ((2026, 11, 27, 7, 59), (2026, 11, 27, 8)),
        ((2026, 11, 27, 8), (2026, 11, 27, 8)),
        ((2026, 11, 27, 17, 59), (2026, 11, 27, 17, 59)),
        ((2026, 11, 27, 18), (2026, 11, 30, 8)),  # Friday evening
        ((2026, 10, 24, 12), (2026, 10, 26, 8)),  # clocks go back on the 25th
        ((2026, 3, 28, 12), (2026, 3, 30, 8)),  # clocks go forward on the 29th
    ],
)
def test_hours_begin_in_the_time_of_their_zone(at: tuple[int, ...], opens: tuple[int, ...]) -> None:
    """8:00 in Berlin is another time in UTC in summer than in winter."""
    assert BERLIN.next_opening(berlin(*at), ZONES) == berlin(*opens)


@pytest.mark.parametrize(
    ("hours", "at", "opens"),
    [
        (Hours(begin="22:00", end="06:00", days="fri"), (2026, 11, 28, 5), (2026, 11, 28, 5)),  # of Friday night
        (Hours(begin="22:00", end="06:00", days="fri"), (2026, 11, 28, 6), (2026, 12, 4, 22)),
        (Hours(days="sat,sun"), (2026, 11, 27, 12), (2026, 11, 28, 0)),
        (Hours(), (2026, 11, 27, 12), (2026, 11, 27, 12)),
        (Hours(begin="09:00", end="09:00"), (2026, 11, 27, 8), (2026, 11, 27, 8)),  # the whole day
    ],
)
def test_hours_may_pass_midnight(hours: Hours, at: tuple[int, ...], opens: tuple[int, ...]) -> None:
    """They belong to the day on which they begin."""
    assert hours.next_opening(datetime(*at, tzinfo=UTC), ()) == datetime(*opens, tzinfo=UTC)  # type: ignore[misc,arg-type]


def test_hours_in_the_skipped_hour_begin_when_the_clocks_have_changed() -> None:
    """02:15 to 02:45 does not exist on that night; a longer window begins at 03:00."""
    night = berlin(2026, 3, 29, 1)
    short = Hours(begin="02:15", end="02:45", zone="Europe/Berlin")
    longer = Hours(begin="02:15", end="04:00", zone="Europe/Berlin")
    assert short.next_opening(night, ZONES) == berlin(2026, 3, 30, 2, 15)
    assert longer.next_opening(night, ZONES) == berlin(2026, 3, 29, 3)


TIMES = st.builds(lambda hour, minute: f"{hour:02}:{minute:02}", st.integers(0, 23), st.sampled_from([0, 1, 30, 59]))
DAYS = st.sampled_from(["mon-sun", "mon-fri", "sat,sun", "3", "*/2"])


@given(
    st.builds(Hours, begin=TIMES, end=TIMES, days=DAYS, zone=st.sampled_from([zone.name for zone in ZONES])),
    st.datetimes(datetime(2026, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_the_beginning_of_hours_is_the_first_time_that_they_include(hours: Hours, at: datetime) -> None:
    """By the zone's own clock: they are open at their beginning, and at no quarter of an hour before."""

    def include(time: datetime) -> bool:
        local = time.astimezone(ZoneInfo(hours.zone)).replace(tzinfo=None)
        plain = Hours(begin=hours.begin, end=hours.end, days=hours.days)
        return plain.next_opening(local.replace(tzinfo=UTC), ()) == local.replace(tzinfo=UTC)

    opens = hours.next_opening(at, ZONES)
    assert opens is not None
    assert include(opens)
    assert opens == at or not include(at)
    while (at := at + timedelta(minutes=15)) < opens:
        assert not include(at)


def test_an_unknown_zone_never_opens() -> None:
    """The run fails closed if it has no offsets of the zone."""
    assert BERLIN.next_opening(berlin(2026, 11, 27, 12), ()) is None
    with pytest.raises(ZoneUnknown, match="'Mars/Olympus'"):
        zone_offsets(["Mars/Olympus"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"begin": "8"},
        {"begin": "24:00"},
        {"end": "25:00"},
        {"days": "someday"},
        {"days": ""},
        {"zone": "../etc/passwd"},
    ],
)
def test_wrong_hours_are_rejected(wrong: dict[str, str]) -> None:
    """A policy with a misspelt hour does not load; a zone's name cannot leave the folder of the zones."""
    with pytest.raises(ValidationError):
        Hours(**wrong)


def use(tool: str = "deploy_web", **arguments: Any) -> ToolUse:
    """Return a call."""
    return ToolUse(tool=tool, effect=Effect.UNSAFE, arguments=arguments)


NIGHT = berlin(2026, 11, 27, 3)


def test_a_later_rule_says_when_and_the_rules_after_it_say_whether() -> None:
    """It gives no verdict by itself, and does not concern calls that an earlier rule decides."""
    policy = Policy(rules=(allow("deploy_test"), later("deploy_*", until=BERLIN, reason="quiet"), ask("deploy_*")))
    assert evaluate(policy, use()).rule == "ask deploy_*"
    found = postponement(policy, use(), at=NIGHT, zones=ZONES)
    assert found is not None
    assert (found.rule, found.reason) == ("later deploy_* until 08:00-18:00 mon-fri Europe/Berlin", "quiet")
    assert found.until == berlin(2026, 11, 27, 8)
    assert postponement(policy, use("deploy_test"), at=NIGHT, zones=ZONES) is None
    assert postponement(policy, use(), at=berlin(2026, 11, 27, 9), zones=ZONES) is None


def test_of_several_hours_those_that_begin_last_count() -> None:
    """And a condition that cannot be evaluated postpones the call."""
    noon = Hours(begin="12:00", end="13:00", zone="Europe/Berlin")
    policy = Policy(rules=(later("*", until=BERLIN), later("*", until=noon, when="args.n > 1"), allow()))
    cases: list[tuple[dict[str, Any], int]] = [({"n": 2}, 12), ({"n": 1}, 8), ({}, 12)]
    for arguments, hour in cases:
        found = postponement(policy, use(**arguments), at=NIGHT, zones=ZONES)
        assert found is not None
        assert found.until == berlin(2026, 11, 27, hour)


def test_only_later_rules_have_hours() -> None:
    """A rule with a verdict and hours would read as if it depended on them."""
    for wrong in ({"verdict": "allow", "hours": BERLIN}, {"verdict": "later"}):
        with pytest.raises(ValidationError, match="a `later` rule has hours"):
            Rule(**wrong)


def test_policies_without_hours_keep_their_hash() -> None:
    """The field is left out of the digest at its default, so recorded digests stay."""
    assert "hours" not in Policy(rules=(allow(),)).model_dump_json(exclude_defaults=True)
