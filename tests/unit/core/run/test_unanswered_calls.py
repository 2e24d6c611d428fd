"""A tool that does not answer is called less often, whatever the arguments; an error is an answer, however short."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.screens.thread_words import delay_text
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Policy, allow, ask
from holdfast.core.log.events import VerdictGiven
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.rules.backoff import Pace, PollOutcome, PollResult, next_delay
from holdfast.core.run.state.pacing import TOOLS, Pacing, Unanswered
from holdfast.core.run.views.status import run_view, state_view
from holdfast.core.run.views.web_ui import current_details
from tests.support.runs import Thread, agent_spec, loaded_thread, tool_spec
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_dormancy import calling
from tests.unit.core.run.test_polling import bring, check, poller, recorded_polls
from tests.unit.core.run.test_repeats import last

ALLOWED = Policy(rules=(allow(),))
KINDS: tuple[PollResult, ...] = ("news", "partial", "same", "error", "no_response")


def paced(*, features: int = 2, policy: Policy = ALLOWED, **limits: Any) -> Thread:
    """Return a thread whose repeated calls are not slowed."""
    tools = (tool_spec("fetch", timeout=40), tool_spec("look"))
    bounds = Limits(**{"max_steps": 1_000, "repeats_slowed": 0, "repeats_warned": 0, "repeats_asked": 0, **limits})
    return loaded_thread(agent_spec(limits=bounds, policy=policy, tools=tools), features=features)


def end(thread: Thread, *causes: str, **more: Any) -> None:
    """End the calls in progress, each with that cause; `ok` for one that was answered."""
    for call, cause in zip(thread.waiting(ToolRequest), causes, strict=True):
        failed: dict[str, Any] = {"status": "failed", "cause": cause} if cause != "ok" else {"status": "ok"}
        thread.end(call, ToolOutcome.model_validate({"content": "text", **failed, **more}))


def step(thread: Thread, *causes: str, name: str = "fetch", **more: Any) -> float:
    """Make a call for each cause; return the seconds before they started."""
    made = thread.state.steps.count
    thread.reply(calling(**{name: [{"page": f"{made}-{n}"} for n in range(len(causes))]}))
    before = thread.at
    while thread.state.calls.delayed:
        assert not thread.running_calls
        thread.wake()
    end(thread, *causes, **more)
    return round((thread.at - before).total_seconds())


def test_a_tool_that_does_not_answer_is_called_less_often_whatever_the_arguments() -> None:
    """Two steps in a row are let through; then each call starts later, until an answer comes."""
    thread = paced()
    causes = ["connection", "connection", "connection", "timeout", "no_response", "ok", "ok"]
    assert [step(thread, cause) for cause in causes] == [0, 0, 2, 6, 18, 54, 0]
    given = [(event.unanswered, round(event.delay)) for event in thread.log if isinstance(event, VerdictGiven)]
    assert given == [(0, 0), (0, 0), (2, 2), (3, 6), (4, 18), (5, 54), (0, 0)]
    assert fault(thread.log) is None
    thread.check_consistent()


def test_an_error_is_an_answer() -> None:
    """A tool that raises after 4 ms responds: its calls are not delayed, and it ends a delay."""
    thread = paced()
    assert [step(thread, "error", duration_ms=4) for _ in range(6)] == [0] * 6
    assert [step(thread, cause) for cause in ("timeout", "timeout", "error", "timeout")] == [0, 0, 2, 0]


def test_a_delay_is_at_least_as_long_as_the_last_call_took() -> None:
    """Latency counts: a tool that times out after 40 seconds is not called again 2 seconds later."""
    thread = paced()
    delays = [step(thread, "timeout", duration_ms=40_000) for _ in range(5)]
    assert delays == [0, 0, 40, 120, 300]


@pytest.mark.parametrize("half", [{"missing": "page 2"}, {"duration_ms": 30_000}])
def test_a_partial_or_slow_answer_halves_the_delay(half: dict[str, Any]) -> None:
    """The other side works, but is not well; a whole answer in good time ends the delay."""
    thread = paced()
    assert [step(thread, "timeout") for _ in range(4)] == [0, 0, 2, 6]
    assert [step(thread, "ok", **half) for _ in range(3)] == [18, 9, 5]
    assert step(thread, "ok") == 2
    assert step(thread, "ok") == 0
    assert fault(thread.log) is None


def test_calls_side_by_side_count_once() -> None:
    """Ten calls of one step that meet the same outage are one sign of it."""
    thread = paced()
    assert [step(thread, *["timeout"] * 10) for _ in range(3)] == [0, 0, 2]
    assert last(thread, VerdictGiven).unanswered == 2


def test_only_the_tool_that_does_not_answer_is_delayed() -> None:
    """Calls of another tool start at once, and say nothing about this one."""
    thread = paced()
    delays = [step(thread, "timeout"), step(thread, "timeout"), step(thread, "ok", name="look"), step(thread, "ok")]
    assert delays == [0, 0, 0, 2]


def test_time_in_which_the_agent_does_something_else_counts() -> None:
    """The delay counts from the outcome, not from the next call."""
    thread = paced()
    for _ in range(3):
        step(thread, "timeout")
    thread.at += timedelta(seconds=5)
    assert step(thread, "ok") == 1


def test_a_message_starts_the_call_and_an_approved_call_is_not_delayed() -> None:
    """People decide when to try again."""
    thread = paced(policy=Policy(rules=(ask(when="args.page == '3-0'"), allow())))
    for _ in range(3):
        step(thread, "timeout")
    thread.reply(calling(fetch={"page": "3-0"}))
    thread.signal("approve", {"request": "1", "by": "alice"})
    assert thread.running_calls == [4]
    end(thread, "timeout")
    thread.reply(calling(fetch={"page": "4"}))
    assert not thread.running_calls
    thread.signal("say", {"message": "it is up again", "by": "alice"})
    assert thread.running_calls == [5]


def test_people_see_what_a_delayed_call_waits_for() -> None:
    """The screens name the tool and the number of steps."""
    thread = paced()
    for _ in range(2):
        step(thread, "timeout")
    thread.reply(calling(fetch={"page": "2"}))
    assert "the last 2 steps that called fetch got no answer from it" in current_details(thread.state)
    (delayed,) = state_view(thread.state)["delayed"]
    shown = "call 3 of fetch waits 2 s: 2 steps in a row that called it got no answer"
    assert delay_text(delayed, thread.at) == shown
    assert "to call fetch" in json.dumps(run_view(thread.state))


@pytest.mark.parametrize("thread", [paced(features=1), paced(unanswered_slowed=0)], ids=["0.2.0", "turned off"])
def test_runs_of_earlier_releases_and_agents_without_the_limit_are_not_slowed(thread: Thread) -> None:
    """0 turns it off."""
    assert [step(thread, "timeout") for _ in range(6)] == [0] * 6


def test_a_delay_survives_continue_as_new() -> None:
    """The tools that do not answer are in the snapshot."""
    thread = paced()
    for _ in range(3):
        step(thread, "timeout")
    thread.reply(calling(fetch={"page": "3"}))
    thread.continue_suggested = True
    thread.signal("nonsense")
    thread.archive()
    thread.continue_suggested = False
    thread.wake()
    end(thread, "timeout")
    assert thread.snapshots
    assert step(thread, "ok") == 18


def test_the_list_of_tools_is_bounded() -> None:
    """The tool that failed to answer least recently makes room."""
    pacing = Pacing()
    for number in range(TOOLS + 5):
        pacing = pacing.put(Unanswered(tool=f"t{number}", count=1, step=number))
    assert [each.tool for each in pacing.tools] == [f"t{number}" for number in range(5, TOOLS + 5)]


CAUSES = st.sampled_from(["ok", "error", "timeout", "connection", "no_response"])


@given(st.lists(st.tuples(CAUSES, st.integers(0, 60_000), st.sampled_from(["", "a part"])), max_size=12))
def test_no_delay_is_longer_than_five_minutes_and_the_log_can_be_audited(made: list[tuple[str, int, str]]) -> None:
    """Whatever the outcomes are, a replay and an audit find the same delays."""
    thread = paced()
    for cause, duration, missing in made:
        more = {"missing": missing} if cause == "ok" else {}
        assert 0 <= step(thread, cause, duration_ms=duration, **more) <= 300
    assert fault(thread.log) is None
    thread.check_consistent()


# Polls.


@pytest.mark.parametrize(
    ("cause", "kind", "delay"),
    [
        ("error", "error", 4),
        ("timeout", "timeout", 6),
        ("connection", "no_response", 6),
        ("no_response", "no_response", 6),
    ],
)
def test_a_poll_that_was_answered_with_an_error_is_no_missing_response(cause: str, kind: str, delay: float) -> None:
    """The recorded cause tells them apart, and an error lengthens the delay less."""
    thread = loaded_thread(poller(), features=2)
    thread.reply(calling(check_back=check()))
    bring(thread, "not yet")
    bring(thread, "oops", "failed", cause=cause, duration_ms=4)
    poll = recorded_polls(thread)[-1]
    assert poll.again is not None
    assert (poll.result, (poll.again - poll.at).total_seconds()) == (kind, delay)
    bring(thread, "done")
    assert fault(thread.log) is None


def test_an_error_lengthens_a_delay_less_than_no_response_and_more_than_the_same_result() -> None:
    """The order of the signals: news, part, same, error, no response."""
    delays = [next_delay([PollOutcome("same")] * 3 + [PollOutcome(kind)], Pace()) for kind in KINDS]
    assert delays == sorted(delays)
    assert len(set(delays)) == len(KINDS)
