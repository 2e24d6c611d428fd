"""A wait may count events: 3 of 5 builds green, two failures in an hour."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.log.events import WakeReceived
from holdfast.core.tools.triggers import COUNTED, read_trigger
from tests.support.runs import NOW, Thread, loaded_thread
from tests.unit.core.run.test_dormancy import audited, calling, continue_as_new, result, sleeper, wake

GREEN: dict[str, Any] = {"name": "build", "match": {"state": "green"}, "count": 3, "of": 5}
TWICE: dict[str, Any] = {"name": "failure", "count": 2, "within": "1h"}


def counting(*, features: int = 2, **arguments: Any) -> Thread:
    """Return a thread whose agent counts events."""
    thread = loaded_thread(sleeper(), features=features)
    thread.reply(calling(wait_for_event=arguments))
    return thread


def builds(thread: Thread, *states: str) -> list[str]:
    """Send a build of each state; return the outcomes."""
    return [wake(thread, event="build", data={"state": state, "n": n}) for n, state in enumerate(states)]


def test_the_wait_ends_when_enough_events_match() -> None:
    """3 of 5 builds green: the agent reads how many, and the data of each that matched."""
    thread = counting(**GREEN)
    assert builds(thread, "green", "red", "green") == ["counted"] * 3
    assert thread.state.status == "dormant"
    assert thread.state.dormancy.words.endswith('3 of 5 events build with {"state":"green"} (2 so far, 1 others)')
    assert builds(thread, "green") == ["delivered"]
    text = result(thread).text
    assert text.startswith("3 events build that match have arrived, and 1 of that name that did not match")
    assert text.count("green") == 3
    assert "red" not in text
    audited(thread)


def test_the_wait_ends_when_enough_events_can_no_longer_match() -> None:
    """With three of five red, the agent does not wait for ever."""
    thread = counting(**GREEN)
    assert builds(thread, "red", "green", "red", "red") == ["counted", "counted", "counted", "delivered"]
    assert "3 can no longer be reached" in result(thread).text
    audited(thread)


def test_events_within_a_span_are_counted() -> None:
    """Two failures in an hour: one in the morning and one in the evening are none."""
    thread = counting(**TWICE)
    for hours, outcome in [(0, "counted"), (2, "counted"), (0.5, "delivered")]:
        thread.at += timedelta(hours=hours)
        assert wake(thread, event="failure") == outcome
    assert result(thread).text.startswith("2 events failure that match have arrived")
    audited(thread)


def test_kept_events_count_when_the_agent_begins_to_wait() -> None:
    """They are used up, even if more have to arrive."""
    thread = loaded_thread(sleeper(), features=2)
    assert builds(thread, "green", "red", "green") == ["buffered"] * 3
    thread.reply(calling(wait_for_event=GREEN))
    assert not thread.state.dormancy.buffered
    assert builds(thread, "green") == ["delivered"]
    audited(thread)


def test_enough_kept_events_end_the_wait_at_once() -> None:
    """The agent does not sleep."""
    thread = loaded_thread(sleeper(), features=2)
    builds(thread, "green", "green", "green")
    thread.reply(calling(wait_for_event=GREEN))
    assert result(thread).text.startswith("3 events build")
    assert thread.calling_llm()
    audited(thread)


def test_an_event_may_end_one_wait_and_count_in_another() -> None:
    """Both calls of a step see it."""
    thread = loaded_thread(sleeper(), features=2)
    thread.reply(calling(wait_for_event=[{"name": "build"}, {"name": "build", "count": 2}]))
    assert builds(thread, "green") == ["delivered"]
    assert builds(thread, "green") == ["delivered"]
    assert result(thread, 2).text.startswith("2 events build")
    audited(thread)


def test_the_same_event_counts_once() -> None:
    """A sender that repeats itself is no second failure."""
    thread = counting(**TWICE)
    assert wake(thread, event="failure", id="1") == "counted"
    assert wake(thread, event="failure", id="1") == "duplicate"
    assert thread.state.status == "dormant"


def test_the_count_survives_continue_as_new() -> None:
    """It is in the snapshot."""
    thread = counting(**GREEN)
    builds(thread, "green", "green")
    continue_as_new(thread)
    assert builds(thread, "green") == ["delivered"]
    thread.check_consistent()


def test_the_state_keeps_little_of_what_is_sent() -> None:
    """Whoever reaches the run can send the longest data, and any number of events that do not match."""
    thread = counting(name="build", match={"state": "green"}, count=COUNTED)
    for _ in range(200):
        wake(thread, event="build", data={"state": "red", "text": "x" * 10_000})
    for _ in range(COUNTED - 1):
        wake(thread, event="build", data={"state": "green", "text": "x" * 10_000})
    (wait,) = thread.state.dormancy.waits
    assert len(wait.model_dump_json()) < 10_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": COUNTED + 1},
        {"count": True},
        {"count": "3"},
        {"count": 3, "of": 2},
        {"count": 1, "of": 99},
        {"within": "1h"},
        {"count": 2, "within": "soon"},
        {"count": 2, "within": "0s"},
        {"count": 2, "within": 3600},
        {"count": 2, "of": 3, "within": "1h"},
    ],
)
def test_wrong_counts_are_sentences_for_the_llm(wrong: dict[str, Any]) -> None:
    """Nobody is woken by a condition that means something else."""
    problem = read_trigger("wait_for_event", {"name": "build", **wrong}, at=NOW)
    assert isinstance(problem, str)
    assert problem.split(":")[0] in ("count", "of", "within")


def test_a_run_of_an_earlier_release_does_not_count() -> None:
    """An older worker could not continue it; the LLM reads why."""
    thread = counting(features=1, **GREEN)
    assert (result(thread).status, "need a run of Holdfast 0.3.0" in result(thread).text) == ("failed", True)
    assert not [event for event in thread.log if isinstance(event, WakeReceived)]
