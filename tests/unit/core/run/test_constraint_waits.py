"""A dormant agent wakes when a constraint ends: its time is over, or a person lifts it."""

from datetime import datetime, timedelta

import pytest

from holdfast.core.base.models import replace
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.state.constraints import Constraints
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.waits.dormancy import on_sleep_due
from tests.support.runs import NOW, Thread, loaded_thread
from tests.unit.core.run.test_constraints import cannot
from tests.unit.core.run.test_dormancy import audited, calling, continue_as_new, result, sleeper


def sleeping(until: datetime | None, *, features: int = FEATURES, name: str = "constraint 1") -> Thread:
    """Return a thread whose agent sleeps until the constraint of its first call ends."""
    thread = loaded_thread(sleeper(), features=features)
    thread.reply(calling(look={}))
    cannot(thread, 1, "everywhere", until)
    thread.reply(calling(sleep_until={"until": name}))
    return thread


def test_it_wakes_at_the_end_of_the_constraint() -> None:
    """One timer is open; when it fires, the agent reads that the call may be possible now, and it is."""
    thread = sleeping(NOW + timedelta(hours=2))
    assert thread.state.status == "dormant"
    assert "the end of constraint 1, until 2026-01-02T05:04:05Z" in thread.state.dormancy.words
    thread.advance(hours=2)
    assert result(thread, 2).text.startswith("Constraint 1 ended after 1h 59m")
    thread.reply(calling(look={}))
    assert thread.running_calls == [3]
    audited(thread)


def test_it_wakes_when_a_person_lifts_the_constraint() -> None:
    """With the lift, and before its time; also after it has continued as new meanwhile."""
    for until in (None, NOW + timedelta(days=3)):
        thread = sleeping(until)
        continue_as_new(thread)
        thread.advance(hours=1)
        assert thread.state.dormancy.waits
        assert thread.update("lift", {"constraint": 1, "by": "alice"})["outcome"] == "accepted"
        assert result(thread, 2).text.startswith("Constraint 1 ended after 1h")
        assert not thread.state.dormancy.waits
        audited(thread)


def test_it_wakes_when_the_constraint_was_about_nodes_of_another_cluster() -> None:
    """An import drops such a constraint, so nobody could lift it any more."""
    thread = sleeping(None)
    here = replace(thread.state, constraints=Constraints())
    assert not on_sleep_due(thread.state, at=thread.at)
    (woken,) = on_sleep_due(here, at=thread.at)
    assert isinstance(woken, ToolCallFinished)
    assert woken.number == 2


def test_lifting_another_constraint_does_not_wake_it() -> None:
    """Nor does an event or a refused lift."""
    thread = sleeping(None)
    assert thread.update("lift", {"constraint": 7, "by": "alice"})["outcome"] != "accepted"
    assert thread.update("wake", {"event": "constraint"})["outcome"] == "buffered"
    assert thread.state.status == "dormant"
    audited(thread)


@pytest.mark.parametrize("name", ["constraint 9", "constraint 9.1", "Constraint 900000000"])
def test_it_does_not_sleep_for_a_constraint_that_does_not_hold(name: str) -> None:
    """The agent reads that it can call the tool again, instead of sleeping for ever."""
    thread = sleeping(None, name=name)
    assert thread.calling_llm()
    assert "does not hold" in result(thread, 2).text
    audited(thread)


def test_an_older_run_reads_the_text_as_a_time() -> None:
    """A recorded history of an earlier release replays with the same result."""
    thread = sleeping(None, features=1)
    assert "is neither a time nor a duration" in result(thread, 2).text
    audited(thread)
