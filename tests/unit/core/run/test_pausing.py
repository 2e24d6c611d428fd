"""A run that a person has paused: nothing starts, nothing is lost, and it resumes at the same point."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.log.events import AgentEvent, MessageTaken, RunFinished, RunPaused, RunResumed, ToolCallStarted
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.pause import PAUSES
from holdfast.core.run.rules.refusals import RECORDED
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from tests.support.plays import PLAYS, SEEDS, play
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

IDLE = Limits(idle_limit=60)
ALICE = {"by": "alice", "reason": "let me look"}


def pausable(**limits: Any) -> Thread:
    """Return a thread of the level that has pauses, whose LLM call is in progress."""
    return loaded_thread(agent_spec(limits=Limits(**limits)) if limits else None, features=1)


def last(thread: Thread, kind: Any) -> Any:
    """Return the last event of that kind."""
    return [event for event in thread.log if isinstance(event, kind)][-1]


def pause(thread: Thread, **more: Any) -> str:
    """Pause the run in the name of alice; return the outcome."""
    return thread.update("pause", {**ALICE, **more})["outcome"]


def resume(thread: Thread) -> str:
    """Resume the run in the name of bob; return the outcome."""
    return thread.update("resume", {"by": "bob"})["outcome"]


@given(SEEDS)
def test_nothing_starts_while_a_run_is_paused(seed: int) -> None:
    """No tool call starts, no request goes to the LLM, no message is taken; only a cancellation ends the run."""
    thread, paused, state = play(seed).thread, set[int](), RunState()
    for event in thread.log:
        if state.pause:
            assert not isinstance(event, ToolCallStarted | MessageTaken), event
            assert not isinstance(event, RunFinished) or event.outcome == "cancelled", event
        state = evolve(state, event)
        if state.pause:
            paused.add(state.events)
    assert not paused & {sent.position for sent in thread.sent}


def test_the_plays_pause_and_resume() -> None:
    """As a control, runs are paused with work in progress, and resumed by people and by time."""
    events: list[AgentEvent] = [event for seed in range(PLAYS) for event in play(seed).thread.log]
    by = {event.by for event in events if isinstance(event, RunResumed)}
    assert by >= {"", "bob"}
    assert sum(isinstance(event, RunPaused) for event in events) > 20


def test_calls_in_progress_end_and_no_other_starts() -> None:
    """A call that people approve meanwhile starts when the run resumes; the LLM is called when all have ended."""
    thread = pausable()
    thread.reply(calls("look", "pay"))
    assert pause(thread) == "accepted"
    assert thread.decide("1") == "accepted"
    thread.finish(1)
    assert (thread.state.status, thread.running_calls, thread.calling_llm()) == ("paused", [], False)
    assert resume(thread) == "accepted"
    assert thread.running_calls == [2]
    thread.finish(2)
    assert thread.calling_llm()
    assert (last(thread, RunPaused).by, last(thread, RunResumed).by) == ("alice", "bob")
    thread.check_consistent()


def test_a_final_answer_does_not_end_a_paused_run() -> None:
    """Messages sent meanwhile are read after the run resumes; without any, the run ends then."""
    for said in (True, False):
        thread = pausable(idle_limit=0)
        pause(thread)
        thread.reply(says("done"))
        assert thread.state.status == "paused"
        if said:
            assert thread.say("one more thing", when_busy="interrupt") == "queued"
        thread.advance(hours=5)
        assert thread.state.status == "paused"
        resume(thread)
        if said:
            assert thread.messages()[-1]["content"] == "one more thing"
        else:
            thread.wake()
            assert (thread.state.outcome, thread.state.result) == ("completed", "done")
        thread.check_consistent()


def test_the_wait_for_a_message_begins_anew_after_a_pause() -> None:
    """A run that waits for a message does not end while it is paused, nor as soon as it resumes."""
    thread = pausable(idle_limit=60)
    thread.reply(says("done"))
    pause(thread)
    thread.advance(hours=1)
    assert not thread.state.outcome
    resume(thread)
    thread.advance(seconds=59)
    assert state_view(thread.state)["status"] == "waiting_message"
    thread.advance(seconds=2)
    assert thread.state.outcome == "completed"


def test_a_pause_ends_by_itself() -> None:
    """At `until` the run resumes, and the event names nobody; a later pause changes the time, an equal one does not."""
    thread = pausable()
    until = thread.at + timedelta(hours=2)
    assert pause(thread, seconds=3_600) == "accepted"
    assert pause(thread, until=until.isoformat()) == "accepted"
    assert pause(thread, until=until.isoformat()) == "duplicate"
    since = state_view(thread.state)["paused"]["since"]
    thread.reply(calls("look"))
    thread.advance(minutes=119)
    assert (thread.state.status, state_view(thread.state)["paused"]["since"]) == ("paused", since)
    thread.advance(minutes=1)
    assert thread.running_calls == [1]
    assert last(thread, RunResumed).by == ""
    assert last(thread, RunResumed).at - until < timedelta(seconds=1)
    thread.check_consistent()


def test_the_time_limits_of_people_keep_running() -> None:
    """A request expires while the run is paused; the call that this allows starts when the run resumes."""
    terms = Terms(expires_after=60, on_expiry="approve", remind_every=20)
    policy = Policy(rules=(allow("look"), ask("pay", reason="money", terms=terms)))
    thread = loaded_thread(agent_spec(policy=policy), features=1)
    thread.reply(calls("pay"))
    pause(thread)
    thread.advance(minutes=2)
    assert {"approval_reminded", "approval_expired"} <= set(thread.types())
    assert (thread.state.status, thread.running_calls) == ("paused", [])
    resume(thread)
    assert thread.running_calls == [1]


def test_a_blocked_run_that_is_paused_needs_both_to_resume() -> None:
    """`retry` unblocks it and starts nothing; `resume` of a blocked run leaves it blocked."""
    for first, then in (("retry", "resume"), ("resume", "retry")):
        thread = pausable()
        thread.refuse(LLM_REJECTED)
        pause(thread)
        thread.signal(first, {"by": "bob"})
        assert thread.state.status == ("paused" if first == "retry" else "blocked")
        assert not thread.calling_llm()
        thread.signal(then, {"by": "bob"})
        assert thread.calling_llm()


def test_a_compaction_waits_for_the_end_of_the_pause() -> None:
    """A compaction requested while a paused run waits for a message is made when it resumes."""
    thread = pausable(idle_limit=60)
    thread.reply(says("done"))
    pause(thread)
    assert thread.update("compact", {"by": "bob"})["outcome"] == "accepted"
    assert not thread.summarizing()
    resume(thread)
    assert thread.summarizing()


def test_a_paused_run_is_cancelled_at_once() -> None:
    """Nobody has to resume it first; the thread's next run is not paused."""
    thread = pausable()
    thread.reply(calls("pay"))
    pause(thread)
    thread.cancel()
    assert thread.state.outcome == "cancelled"
    assert pause(thread) == resume(thread) == "too_late"
    while thread.waiting(ArchiveRequest):
        thread.archive()
    thread.reopen("again")
    thread.load_thread()
    thread.load(1)
    assert thread.state.status == "running"


def test_a_paused_run_continues_as_new_and_stays_paused() -> None:
    """The pause, its reason and its end travel in the snapshot; the timer fires in the next Temporal run."""
    thread = pausable()
    thread.reply(calls("pay"))
    pause(thread, seconds=3_600)
    paused = thread.state.pause
    thread.decide("1")
    thread.continue_suggested = True
    thread.signal("nonsense")
    while "run_continued" not in thread.types():
        thread.archive()
    thread.continue_suggested = False
    assert (thread.state.pause, thread.running_calls) == (paused, [])
    thread.advance(hours=1)
    assert thread.running_calls == [1]
    thread.check_consistent()


def test_the_record_is_current_when_a_run_is_paused() -> None:
    """The events are written when it pauses, and again when the work in progress has ended."""
    thread = pausable()
    pause(thread)
    thread.archive()
    assert len(thread.record) == len(thread.log)
    thread.reply(calls("pay"))
    thread.archive()
    assert len(thread.record) == len(thread.log)
    assert not thread.waiting(LLMRequest)


@pytest.mark.parametrize(
    ("payload", "outcome"),
    [
        ({"until": "soon"}, "malformed"),
        ({"until": "2026-05-06T07:08:09"}, "malformed"),
        ({"until": "2001-01-01T00:00:00Z"}, "too_late"),
        ({"until": "9999-12-31T23:59:59-12:00"}, "malformed"),
        ({"until": "0001-01-01T00:00:00+12:00"}, "too_late"),
        ({"seconds": 0}, "malformed"),
        ({"seconds": float("inf")}, "malformed"),
        ({"seconds": float("nan")}, "malformed"),
        ({"seconds": 1e300}, "malformed"),
        ({"seconds": [1]}, "malformed"),
    ],
)
def test_a_pause_with_an_invalid_end_is_rejected(payload: dict[str, Any], outcome: str) -> None:
    """The run is not paused for ever, and the explanation names the fault."""
    thread = pausable()
    answer = thread.update("pause", {"by": "alice", **payload})
    assert answer["outcome"] == outcome
    assert "until" in answer["explanation"] or "seconds" in answer["explanation"]
    assert thread.state.status == "running"
    thread.check_consistent()


def test_resume_without_a_pause_is_rejected() -> None:
    """The outcome says so; a run of the first release has neither signal."""
    assert resume(pausable()) == "not_paused"
    older = loaded_thread()
    older.signal("pause", ALICE)
    assert older.state.status == "running"
    rejection = older.run.refused("pause", ALICE, at=older.at)
    assert rejection is not None
    assert rejection["outcome"] == "unknown_update"


def test_the_web_ui_says_first_that_a_run_is_paused() -> None:
    """The page shows who paused it, until when and why, as plain text, before open requests, and the JSON that resumes
    it.
    """
    thread = pausable()
    thread.reply(calls("pay"))
    pause(thread, reason="**look** [here](http://x)", seconds=60)
    first, *rest = current_details(thread.state).splitlines()
    assert first.startswith(r"**Paused by alice (claimed) until 2026-01-02 03:05 UTC: \*\*look\*\*")
    assert first.count("[here](") == first.count(" `[here](http://x)`") == 1, "as code, which is no link"
    assert "Choose the signal `resume`, and send" in "\n".join(rest)
    assert "### Request 1" in "\n".join(rest)


def test_a_flood_of_pauses_is_bounded() -> None:
    """Repeated or alternating pauses and resumptions are rejected after a while, and then only counted."""
    thread = pausable()
    for number in range(300):
        thread.signal("pause", {"by": f"eve {number}", "reason": "x" * 9_000 + str(number % 2)})
        thread.signal("resume", {"by": "eve"})
    assert thread.types().count("run_paused") == PAUSES
    assert thread.types().count("signal_rejected") <= RECORDED
    assert len(thread.log) < RECORDED + 3 * PAUSES
    thread.reply(calls("look"))
    assert pause(thread) == "accepted", "the next step can be paused"
    thread.check_consistent()
