"""Staleness: after a long pause of any cause, the agent verifies the world before it acts."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agents.agent import Limits
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    LLMReplied,
    MessageTaken,
    ReconcileRequested,
    SignalRejected,
    StateVerified,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from tests.support.plays import SEEDS, play
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

HOUR = 3_600
RETURNED = ("ok", "failed", "undone", "cannot")
SPEC = agent_spec(verify=("look",), limits=Limits(max_steps=50, stale_after=HOUR, idle_limit=30 * 86_400))


def is_verifying(thread: Thread) -> bool:
    """Return whether a `verify` tool is running."""
    return any(not getattr(call, "number", 0) for call in thread.waiting(ToolRequest))


def wait_for_a_person(thread: Thread, passes: Callable[[], None]) -> None:
    """An approval arrives late."""
    thread.reply(calls("pay"))
    thread.finish_verification("as it was")
    passes()
    thread.decide("1")


def wait_for_a_denial(thread: Thread, passes: Callable[[], None]) -> None:
    """A denial arrives late, and the LLM continues with it."""
    thread.reply(calls("pay"))
    thread.finish_verification("as it was")
    passes()
    thread.decide("1", "deny")


def wait_for_the_llm(thread: Thread, passes: Callable[[], None]) -> None:
    """The LLM or all workers are down; the reply answers an earlier request."""
    passes()
    thread.reply(calls("look"))


def wait_for_a_tool(thread: Thread, passes: Callable[[], None]) -> None:
    """A tool takes long, or its worker is down."""
    thread.reply(calls("look"))
    passes()
    thread.finish(1)


def wait_for_a_message(thread: Thread, passes: Callable[[], None]) -> None:
    """The LLM has answered, and a message arrives later."""
    thread.reply(says("done"))
    passes()
    thread.say("and now?")


def wait_for_a_retry(thread: Thread, passes: Callable[[], None]) -> None:
    """The run is blocked until a person fixes the cause."""
    thread.refuse("LLMRejected")
    passes()
    thread.signal("retry", {"by": "bob"})


def begin_again(thread: Thread, passes: Callable[[], None]) -> None:
    """The thread is closed and re-opened."""
    thread.reply(calls("pay"))
    thread.finish_verification("as it was")
    passes()
    thread.reopen()
    thread.load_thread()
    thread.load()


WAITS = [
    wait_for_a_person,
    wait_for_a_denial,
    wait_for_the_llm,
    wait_for_a_tool,
    wait_for_a_message,
    wait_for_a_retry,
    begin_again,
]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("hours", [0.9, 26])
@pytest.mark.parametrize("strangers", [False, True])
def test_a_long_pause_of_any_cause_is_followed_by_verification(
    wait: Callable[[Thread, Callable[[], None]], None], hours: float, strangers: bool
) -> None:
    """The time since the agent acted counts; a rejected signal in between does not reset it."""
    thread = loaded_thread(SPEC, idle_limit=30 * 86_400)

    def pause() -> None:
        for _ in range(4):
            thread.advance(hours=hours / 4)
            if strangers:
                thread.signal("approve", {"request": "99", "by": "mallory"})
                thread.signal("what?")
                assert not is_verifying(thread), "a refused signal starts no verification"

    wait(thread, pause)
    assert is_verifying(thread) == (hours > 1)
    if hours > 1:
        assert not thread.running_calls
        assert not thread.calling_llm()
        thread.finish_verification("as it was")
        (verified,) = [event for event in thread.log if isinstance(event, StateVerified)]
        assert verified.paused_seconds == pytest.approx(hours * HOUR, abs=5)
    assert thread.running_calls or thread.calling_llm(), "the run continues afterwards"
    while thread.waiting(ArchiveRequest):
        thread.archive()
    thread.check_consistent()


def test_an_agent_without_verify_tools_continues_at_once() -> None:
    """There is no extra call and no extra event, even if the previous agent had such tools."""
    thread = loaded_thread(SPEC)
    thread.reply(calls("pay"))
    thread.finish_verification("as it was")
    thread.advance(hours=26)
    thread.spec = agent_spec()
    thread.reopen()
    thread.load_thread()
    thread.load()
    assert not is_verifying(thread)
    assert thread.calling_llm()


def test_a_pause_without_events_counts_too() -> None:
    """The permanent record is unavailable for a day: no event was recorded meanwhile."""
    thread = loaded_thread(SPEC)
    thread.say("and now?")
    thread.reply(calls("look"))
    thread.continue_suggested = True
    thread.finish(1)
    thread.at += timedelta(hours=26)
    thread.continue_suggested = False
    thread.archive()
    assert is_verifying(thread)
    assert "message_taken" not in thread.types()
    thread.finish_verification("as it was")
    assert thread.calling_llm()
    thread.check_consistent()


@given(SEEDS)
def test_the_agent_never_acts_on_stale_findings(seed: int) -> None:
    """Over whole plays, no call starts, no message is taken and no LLM is asked later than `stale_after` after the
    agent acted or verified; and it verifies nothing without that reason.
    """
    thread = play(seed).thread
    limit = thread.spec.limits.stale_after
    requests = {request.position for request in thread.sent}
    acted: datetime | None = None
    stale, started = False, set[int]()
    for event in thread.log:
        stale = stale or bool(acted and event.at - acted > timedelta(seconds=limit))
        if isinstance(event, StateVerified):
            assert stale
            acted, stale = event.at, False
        if isinstance(event, ToolCallStarted | MessageTaken) and thread.spec.verify:
            assert not stale
        if event.position + 1 in requests and thread.spec.verify:
            assert not stale
        if isinstance(event, ToolCallStarted):
            started.add(event.number)
        if isinstance(event, ReconcileRequested):
            started.discard(event.request.number)  # a person reports the outcome
        returned = isinstance(event, ToolCallFinished) and event.number in started and event.status in RETURNED
        if returned or isinstance(event, LLMReplied | ToolCallStarted | AgentLoaded):
            acted = event.at


@given(SEEDS, st.data())
def test_rejected_events_do_not_change_the_timing(seed: int, data: st.DataObject) -> None:
    """Without the rejected events, the agent would have acted and verified at the same times."""
    log = play(seed).thread.log
    log = log[: data.draw(st.integers(1, len(log)))]

    def refused(event: AgentEvent) -> bool:
        counted = ("accepted", "waiting_for_quorum", "judged_anew")
        return isinstance(event, SignalRejected) or (
            isinstance(event, DecisionReceived) and event.outcome not in counted
        )

    whole = reduce(evolve, log, RunState())
    without = reduce(evolve, (event for event in log if not refused(event)), RunState())
    assert without.freshness.acted_at == whole.freshness.acted_at
