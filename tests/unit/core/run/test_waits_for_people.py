"""A run that waits for people has a timer that says so, and whose end changes nothing."""

from datetime import timedelta

import pytest

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Policy, Terms
from holdfast.core.run.contracts.commands import Call, Sleep
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.decide.decide import OPEN_WAIT
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.views.web_ui import archive_summary, wait_summary
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says


def waiting_timer(thread: Thread) -> Sleep | None:
    """Return the timer under way."""
    sleeps = thread.waiting(Sleep)
    assert len(sleeps) <= 1
    return sleeps[0] if sleeps and isinstance(sleeps[0], Sleep) else None


def test_an_open_request_has_a_timer_until_it_is_decided() -> None:
    """Without a deadline, the timer is open-ended; another request starts another one; a decision ends it."""
    thread = loaded_thread(features=FEATURES)
    assert waiting_timer(thread) is None
    thread.reply(calls("pay", "pay"))
    assert waiting_timer(thread) is None
    thread.archive()
    timer = waiting_timer(thread)
    assert timer is not None
    assert (timer.awaited, timer.open_ended) == ("decide 1 2", True)
    assert timer.until - thread.at == OPEN_WAIT
    assert wait_summary(thread.state) == "waits for 2 decisions: pay (request 1), pay (request 2)"
    thread.decide("1", "deny")
    timer = waiting_timer(thread)
    assert timer is not None
    assert timer.awaited == "decide 2"
    thread.decide("2", "deny")
    assert waiting_timer(thread) is None


def test_a_decision_during_the_write_of_the_record_costs_no_timer() -> None:
    """The timer that only shows a wait begins when the record is written; one with a deadline begins at once."""
    thread = loaded_thread(features=FEATURES)
    thread.reply(calls("pay"))
    assert thread.waiting(ArchiveRequest)
    assert waiting_timer(thread) is None
    thread.decide("1", "deny")
    assert waiting_timer(thread) is None
    asking = loaded_thread(agent_spec(policy=Policy(terms=Terms(expires_after=60))), features=FEATURES)
    asking.reply(calls("pay"))
    assert asking.waiting(ArchiveRequest)
    timer = waiting_timer(asking)
    assert timer is not None
    assert not timer.open_ended


def test_the_end_of_an_open_wait_changes_nothing() -> None:
    """After a year, nothing is recorded, and another timer begins."""
    thread = loaded_thread(features=FEATURES)
    thread.reply(calls("pay"))
    before = thread.types()
    thread.archive()
    timer = waiting_timer(thread)
    assert timer is not None
    thread.advance(seconds=OPEN_WAIT.total_seconds() + 1)
    assert thread.types() == before
    after = waiting_timer(thread)
    assert after is not None
    assert (after.awaited, after.open_ended, after.id != timer.id) == ("decide 1", True, True)


def test_pauses_blocks_and_messages_are_waits() -> None:
    """Each has a timer that names it; what the summary says is plain text of bounded length."""
    thread = loaded_thread(agent_spec(limits=Limits(idle_limit=60)), features=FEATURES)
    thread.refuse("LLMRejected")
    thread.archive()
    timer = waiting_timer(thread)
    assert timer is not None
    assert timer.awaited == "retry LLMRejected"
    assert wait_summary(thread.state).startswith("waits for a person to fix the cause (LLMRejected)")
    thread.signal("retry", {"by": "bob"})
    thread.signal("pause", {"by": "bob"})
    thread.archive()
    timer = waiting_timer(thread)
    assert timer is not None
    assert timer.awaited == "resume"
    thread.signal("resume", {"by": "bob"})
    thread.reply(says("hello"))
    timer = waiting_timer(thread)
    assert timer is not None
    assert (timer.awaited, timer.until - thread.at <= timedelta(seconds=60)) == ("say", True)


@pytest.mark.parametrize(("level", "words"), [(1, "events 0 to 9"), (FEATURES, "events 0 to 9; the run waits for")])
def test_the_write_of_the_record_says_what_the_run_waits_for(level: int, words: str) -> None:
    """While the database is down, the timer does not start; the call that writes the record says the same."""
    thread = loaded_thread(features=level)
    thread.reply(calls("pay"))
    (call,) = thread.waiting(ArchiveRequest)
    assert isinstance(call, Call)
    assert not waiting_timer(thread)
    wait = "" if level == 1 else f"; the run {wait_summary(thread.state)}"
    assert archive_summary("events 0 to 9", thread.state) == f"events 0 to 9{wait}"
    assert archive_summary("events 0 to 9", thread.state).startswith(words)
    thread.decide("1", "deny")
    assert archive_summary("events 0 to 9", thread.state) == "events 0 to 9"


@pytest.mark.parametrize("features", [0, 1])
def test_older_runs_have_no_such_timers(features: int) -> None:
    """Below the level, an open request without a deadline has none, as in 0.2.0."""
    thread = loaded_thread(features=features)
    thread.reply(calls("pay"))
    assert waiting_timer(thread) is None
