"""The loop guard: repeated calls are delayed, the LLM is notified, people are asked; rejected ones block the run."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import (
    AgentEvent,
    ApprovalRequested,
    LLMReplied,
    RunBlocked,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    VerdictGiven,
)
from holdfast.core.run.contracts.commands import Sleep
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.loop_guard import RULE
from holdfast.core.run.state.progress import MAX_COUNT, WINDOW, Repeats
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import state_view
from holdfast.core.run.views.web_ui import current_details
from tests.support.plays import PLAYS, SEEDS, play
from tests.support.runs import NOW, Thread, agent_spec, loaded_thread, says
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_dormancy import sleeper

ALLOWED = Policy(rules=(allow(),))


def guarded(policy: Policy | None = None, *, features: int = 1, **limits: Any) -> Thread:
    """Return a thread whose calls are guarded, with no other limit in the way."""
    bounds = Limits(max_steps=1_000, **limits)
    spec = agent_spec(limits=bounds, policy=policy) if policy else agent_spec(limits=bounds)
    return loaded_thread(spec, features=features)


def reply_with_calls(*calls_to_make: tuple[str, str], step: int = 0) -> LLMReply:
    """Return a reply that calls these tools with these arguments."""
    blocks = tuple(
        ToolCall(id=f"{step}-{n}", name=name, arguments=args) for n, (name, args) in enumerate(calls_to_make)
    )
    return LLMReply(message=AssistantMessage(content=blocks), usage=Usage(prompt_tokens=10, completion_tokens=1))


def step(thread: Thread, name: str = "look", args: str = "{}", result: str = "done", status: str = "ok") -> float:
    """Make one call as the LLM, and end it once it starts. Return the seconds before its start."""
    thread.reply(reply_with_calls((name, args), step=thread.state.steps.count))
    at = thread.at
    while thread.state.calls.delayed:
        assert not thread.running_calls
        thread.wake()
    if thread.running_calls:
        thread.finish(thread.state.calls.count, result, status)
    return round((thread.at - at).total_seconds())


def last(thread: Thread, kind: Any) -> Any:
    """Return the last event of that kind."""
    return [event for event in thread.log if isinstance(event, kind)][-1]


def repeats(thread: Thread) -> list[int]:
    """Return the repeat count that the LLM reads with each call; 0 without a note."""
    return [event.repeats for event in thread.log if isinstance(event, ToolCallFinished)]


# Counting.


def test_a_repeated_call_is_delayed_then_noted_to_the_llm_then_put_to_people() -> None:
    """Three calls start at once, seven with growing delays, notes begin with the fifth, and the eleventh asks."""
    thread = guarded()
    assert [step(thread) for _ in range(10)] == [0, 0, 0, 2, 4, 8, 16, 32, 64, 128]
    assert repeats(thread) == [0, 0, 0, 0, 5, 6, 7, 8, 9, 10]
    text = thread.messages()[-1]["content"]
    assert text.startswith("[Note: this call has now had the same result 10 times, and nothing new came in between.")
    assert text.endswith("]\ndone")
    assert last(thread, ToolCallFinished).content == "done"
    step(thread)
    assert thread.state.status == "waiting_approval"
    request = last(thread, ApprovalRequested).request
    assert (request.rule, request.tool) == (RULE, "look")
    assert request.why == "the same call has had the same result 10 times, and nothing new came in between"
    assert fault(thread.log) is None
    thread.check_consistent()


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_llm_is_notified_from_the_limit_on(limit: int) -> None:
    """With a limit of 1, every result has the note, including the first."""
    thread = guarded(repeats_warned=limit)
    for _ in range(4):
        step(thread)
    assert repeats(thread) == [count if count >= limit else 0 for count in range(1, 5)]
    assert fault(thread.log) is None


@pytest.mark.parametrize("cycle", [1, 2, 3, WINDOW])
def test_a_cycle_of_calls_is_found(cycle: int) -> None:
    """A, B, A, B, … counts as A, A, A, … does, for cycles up to the window's size."""
    thread = guarded(repeats_slowed=1, repeats_warned=2, repeats_asked=3)
    count = 0
    while thread.state.status != "waiting_approval":
        step(thread, args=f'{{"n":{count % cycle}}}')
        count += 1
    assert count == 3 * cycle + cycle  # the last call of the first round was news, and the count starts there


def test_a_cycle_that_is_longer_than_the_window_escapes() -> None:
    """This limit is documented; `max_steps` bounds the cycle."""
    thread = guarded(repeats_slowed=1, repeats_warned=2, repeats_asked=3)
    for _ in range(4):
        for number in range(WINDOW + 1):
            assert step(thread, args=f'{{"n":{number}}}') == 0
    assert not any(repeats(thread))


def test_realistic_work_is_never_slowed() -> None:
    """Read, edit, test with the same failure, edit differently, test; or poll a job that makes progress."""
    thread = guarded(ALLOWED)
    for number in range(30):
        assert step(thread, "look", '{"path":"main.py"}', "the file") == 0
        assert step(thread, "pay", f'{{"edit":{number}}}') == 0
        assert step(thread, "look", '{"run":"tests"}', "1 failed", "failed") == 0
    for percent in range(0, 100, 5):
        assert step(thread, "look", '{"job":1}', f"{percent} %") == 0
    assert not any(repeats(thread))


def test_a_result_that_differs_by_a_time_stamp_escapes() -> None:
    """This limit is documented; `max_steps` bounds the run."""
    thread = guarded()
    for second in range(30):
        assert step(thread, result=f"12:00:{second:02} still running") == 0
    assert not any(repeats(thread))


def test_order_and_spacing_of_arguments_make_no_difference() -> None:
    """The guard counts the canonical call, not the LLM's spelling."""
    thread = guarded()
    for args in ('{"a":1,"b":2}', '{"b": 2, "a": 1}', '{ "b":2,"a":1 }'):
        assert step(thread, args=args) == 0
    assert step(thread, args='{"a": 1, "b":2}') == 2


def test_a_failure_counts_as_a_result() -> None:
    """A call that fails in the same way again and again is a loop; one that fails differently is news."""
    thread = guarded()
    delays = [step(thread, result="HTTPError: 500", status="failed") for _ in range(5)]
    assert delays == [0, 0, 0, 2, 4]
    assert step(thread, result="HTTPError: 404", status="failed") == 8
    assert step(thread, result="HTTPError: 500", status="failed") == 0


def test_identical_calls_of_one_reply_run_side_by_side_and_each_counts() -> None:
    """No result exists when they start; all of them count for the next reply."""
    thread = guarded()
    thread.reply(reply_with_calls(*[("look", "{}")] * 12))
    assert len(thread.running_calls) == 12
    for number in range(1, 13):
        thread.finish(number)
    assert repeats(thread) == [0] * 4 + list(range(5, 13))
    thread.reply(reply_with_calls(("look", "{}"), step=1))
    assert thread.state.status == "waiting_approval"
    thread.check_consistent()


PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.booleans()), max_size=120)


@given(PAIRS)
def test_counts_are_bounded_and_news_is_never_slowed(pairs: list[tuple[int, int, bool]]) -> None:
    """A pair that the window lacks resets all other counts; counts and size are bounded."""
    repeats, added = Repeats(), 0
    for call, result, refused in pairs:
        known = {(each.call, each.result) for each in repeats.seen}
        repeats, added = repeats.add(f"c{call}", f"r{result}-{refused}", refused=refused), added + 1
        news = (f"c{call}", f"r{result}-{refused}") not in known and not refused
        assert len(repeats.seen) <= WINDOW
        assert repeats.highest <= min(added, MAX_COUNT)
        if news:
            assert repeats.highest == 1
            assert repeats.count(f"c{call}") == 1
    assert Repeats().add("c", "r", refused=True).count("c") == 0


def test_counts_stop_at_a_maximum() -> None:
    """A run whose guard never asks cannot grow its state."""
    repeats = Repeats()
    for _ in range(MAX_COUNT + 5):
        repeats = repeats.add("c", "r", refused=False)
    assert repeats.highest == MAX_COUNT


@pytest.mark.parametrize(
    ("limit", "off"), [("repeats_slowed", "delay"), ("repeats_warned", "note"), ("repeats_asked", "ask")]
)
def test_each_measure_can_be_turned_off(limit: str, off: str) -> None:
    """0 turns off one measure, and leaves the others."""
    limits: dict[str, Any] = {limit: 0}
    thread = guarded(**limits)
    delays = [step(thread) for _ in range(10)]
    thread.reply(reply_with_calls(("look", "{}"), step=99))
    measures = {"delay": any(delays), "note": any(repeats(thread)), "ask": thread.state.status == "waiting_approval"}
    assert measures == {name: name != off for name in measures}


def test_a_run_of_the_first_level_counts_nothing() -> None:
    """Level 0 has no delay, no note, no question, and no guard in the state."""
    thread = guarded(features=0)
    assert [step(thread) for _ in range(20)] == [0] * 20
    assert thread.state.repeats == Repeats()
    assert not any(repeats(thread))


# Delays.


def waiting_thread(count: int = 6) -> Thread:
    """Return a thread whose seventh call waits 16 seconds."""
    thread = guarded(idle_limit=60)
    for _ in range(count):
        step(thread)
    thread.reply(reply_with_calls(("look", "{}"), step=count))
    assert not thread.running_calls
    return thread


def test_a_delayed_call_is_running_and_says_what_it_waits_for() -> None:
    """`show` and the Web UI have the count and the time; the log has the delay with the verdict."""
    thread = waiting_thread()
    assert thread.state.status == "running"
    (delayed,) = state_view(thread.state)["delayed"]
    assert (delayed["call"], delayed["tool"], delayed["repeats"]) == (7, "look", 6)
    assert state_view(thread.state)["limits"]["repeats"] == 6
    verdict = last(thread, VerdictGiven)
    assert (verdict.verdict, verdict.repeats, verdict.delay) == ("allow", 6, 16)
    assert delayed["starts_at"] == (verdict.at + timedelta(seconds=16)).isoformat()
    assert "the same call has had the same result 6 times" in current_details(thread.state)
    thread.wake()
    assert thread.running_calls == [7]
    assert state_view(thread.state)["delayed"] == []


def test_a_message_ends_the_wait_and_starts_the_count_over() -> None:
    """A person does not wait for a delay, and their message is news."""
    thread = waiting_thread()
    assert thread.say("look once more, please") == "queued"
    assert thread.running_calls == [7]
    thread.finish(7)
    assert thread.state.repeats == Repeats()
    assert [step(thread) for _ in range(4)] == [0, 0, 0, 2]
    thread.check_consistent()


def test_a_cancelled_run_does_not_wait() -> None:
    """The delayed call ends as cancelled, and has not run."""
    thread = waiting_thread()
    thread.cancel()
    assert thread.state.status == "cancelled"
    assert last(thread, ToolCallFinished).status == "cancelled"
    assert 7 not in [event.number for event in thread.log if isinstance(event, ToolCallStarted)]


def test_a_delay_that_ends_during_a_pause_starts_the_call_when_the_run_resumes() -> None:
    """While the run is paused nothing starts, and no timer fires for the call."""
    thread = waiting_thread()
    thread.update("pause", {"by": "alice"})
    assert not thread.waiting(Sleep)
    thread.at += timedelta(seconds=20)
    assert not thread.running_calls
    thread.update("resume", {"by": "alice"})
    assert thread.running_calls == [7]
    thread.check_consistent()


def test_a_delay_survives_continue_as_new() -> None:
    """The new Temporal run waits for the remainder, with one timer."""
    thread = waiting_thread()
    thread.continue_suggested = True
    thread.say("x", when_busy="reject")
    thread.signal("nonsense")
    thread.archive()
    thread.continue_suggested = False
    (sleep,) = thread.waiting(Sleep)
    assert isinstance(sleep, Sleep)
    assert sleep.seconds < 16
    thread.wake()
    assert thread.running_calls == [7]
    thread.check_consistent()


def test_an_expired_delay_keeps_no_timer_during_verification() -> None:
    """A run that verifies the world before it acts fires no timer repeatedly meanwhile."""
    thread = loaded_thread(agent_spec(limits=Limits(max_steps=99, stale_after=1), verify=("look",)), features=1)
    for _ in range(3):
        step(thread)
    thread.reply(reply_with_calls(("look", "{}"), step=3))
    thread.wake()
    assert not thread.running_calls
    assert not thread.waiting(Sleep)
    thread.finish_verification("as before")
    assert thread.running_calls == [4]


# People.


def thread_with_question(policy: Policy | None = None, **limits: Any) -> Thread:
    """Return a thread whose repeated call people are asked about, as request 1."""
    thread = guarded(policy, repeats_slowed=0, repeats_asked=4, **limits)
    for _ in range(4):
        step(thread)
    step(thread)
    assert thread.state.status == "waiting_approval"
    return thread


def test_a_person_who_approves_grants_the_same_number_again() -> None:
    """The call runs; four later, people are asked again."""
    thread = thread_with_question()
    assert thread.decide("1") == "accepted"
    thread.finish(5)
    assert [step(thread) for _ in range(3)] == [0] * 3
    step(thread)
    assert thread.state.status == "waiting_approval"
    assert thread.state.authority.requests[0].id == "2"
    thread.check_consistent()


def test_a_denied_repeat_is_denied_without_a_question_until_there_is_news() -> None:
    """The LLM cannot ask a person ten times; after news, the call runs again."""
    thread = thread_with_question()
    assert thread.decide("1", "deny", reason="stop it") == "accepted"
    step(thread)
    verdict = last(thread, VerdictGiven)
    assert (verdict.verdict, verdict.rule) == ("deny", RULE)
    assert "people denied this call because it repeats itself" in last(thread, ToolCallFinished).text
    step(thread, args='{"other":1}', result="new")
    step(thread)
    assert last(thread, ToolCallFinished).status == "ok"
    assert fault(thread.log) is None
    thread.check_consistent()


def test_an_unanswered_question_denies_the_call_under_any_policy() -> None:
    """Only a person may let a loop continue: `on_expiry="approve"` is not for this question."""
    thread = thread_with_question(Policy(rules=(allow(),), terms=Terms(expires_after=60, on_expiry="approve")))
    thread.advance(seconds=61)
    assert last(thread, ToolCallFinished).status == "denied"
    step(thread)
    assert (last(thread, VerdictGiven).verdict, last(thread, VerdictGiven).rule) == ("deny", RULE)


def test_a_remembered_rule_does_not_suppress_the_question() -> None:
    """The rule permits the call, but not for ever."""
    thread = guarded(repeats_slowed=0, repeats_asked=3)
    thread.reply(reply_with_calls(("pay", "{}")))
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    for _ in range(2):
        step(thread, "pay")
    assert thread.state.calls.count == 3
    step(thread, "pay")
    assert thread.state.authority.requests[0].rule == RULE
    assert thread.decide("2", remember=True) == "accepted"
    thread.finish(4)
    for _ in range(2):
        step(thread, "pay")
    step(thread, "pay")
    assert thread.state.authority.requests[0].rule == RULE


def test_a_call_that_the_policy_asks_about_says_that_it_repeats_itself() -> None:
    """The policy's rule and requirements stay; the reason gives the count."""
    thread = guarded(Policy(rules=(ask("pay", reason="money"),)), repeats_slowed=0, repeats_asked=2)
    for request in ("1", "2"):
        thread.reply(reply_with_calls(("pay", "{}"), step=thread.state.steps.count))
        thread.decide(request)
        thread.finish(thread.state.calls.count)
    thread.reply(reply_with_calls(("pay", "{}"), step=9))
    asked = thread.state.authority.requests[0]
    assert asked.rule != RULE
    assert asked.why.startswith("money; the same call has had the same result 2 times")


def test_changed_arguments_are_another_call() -> None:
    """A person who approves with other arguments ends the question; the policy judges those arguments."""
    thread = thread_with_question()
    assert thread.decide("1", arguments={"n": 1}) == "accepted"
    thread.finish(5, "other")
    step(thread)
    assert last(thread, ToolCallFinished).status == "ok"
    thread.check_consistent()


# Rejected calls.


@pytest.mark.parametrize("name", ["wipe", "fly"])
def test_a_repeated_rejected_call_notifies_the_llm_and_blocks_the_run(name: str) -> None:
    """This covers a call that the policy denies, and an unknown tool: there is nothing to approve, so a person looks;
    `retry` unblocks.
    """
    thread = guarded()
    for number in range(10):
        # With a call that is judged, so that the reply as a whole can be used.
        thread.reply(reply_with_calls((name, "{}"), ("wipe", f'{{"n":{number}}}'), step=number))
    blocked = last(thread, RunBlocked)
    assert blocked.cause == "RefusedAgain"
    assert f"the LLM has made {name}() 10 times" in blocked.message
    assert max(repeats(thread)) == 10
    thread.signal("retry", {"by": "alice"})
    assert thread.calling_llm()
    assert thread.state.repeats == Repeats()
    thread.check_consistent()


def test_a_rejection_is_no_news() -> None:
    """An LLM whose other calls are rejected between its repeats has learnt nothing about the world."""
    thread = guarded()
    for number in range(3):
        assert step(thread) == 0
        step(thread, "wipe", f'{{"n":{number}}}')
    assert step(thread) == 2


def test_a_message_comes_before_the_block() -> None:
    """A person's message is news: the LLM reads it instead of being blocked."""
    thread = guarded(repeats_asked=2, idle_limit=60)
    step(thread, "wipe")
    thread.say("stop that")
    thread.reply(reply_with_calls(("wipe", "{}"), step=9))
    assert thread.state.status == "running"
    assert thread.calling_llm()


def test_a_constraint_that_rejects_repeatedly_blocks_the_run() -> None:
    """After the tool's `Cannot`, the same call is rejected without running, and the rejections are counted."""
    thread = guarded(repeats_asked=3)
    thread.reply(reply_with_calls(("look", "{}")))
    call = next(call for call in thread.waiting(ToolRequest))
    thread.end(call, ToolOutcome(status="cannot", content="locked", scope="here"))
    for _ in range(3):
        step(thread)
    assert last(thread, RunBlocked).cause == "RefusedAgain"


# The log.


def test_a_forged_count_is_found() -> None:
    """The audit counts again: a missing note, or one with another number, does not follow."""
    thread = guarded()
    for _ in range(5):
        step(thread)
    events = list(thread.log)
    index = max(n for n, event in enumerate(events) if isinstance(event, ToolCallFinished))
    for count in (0, 4, 6):
        forged = [*events[:index], events[index].model_copy(update={"repeats": count}), *events[index + 1 :]]
        first_fault = fault(forged)
        assert first_fault is not None
        assert "times" in first_fault.reason
    assert fault(events) is None


def test_a_call_that_starts_before_its_time_is_found() -> None:
    """The audit computes the delay: a log in which the call starts at once does not follow."""
    thread = waiting_thread()
    thread.wake()
    events = list(thread.log)
    assert isinstance(events[-1], ToolCallStarted)
    early = events[-1].model_copy(update={"at": events[-2].at})
    first_fault = fault([*events[:-1], early])
    assert first_fault is not None
    assert "was not allowed to run" in first_fault.reason


@given(SEEDS)
def test_a_call_never_starts_before_its_time(seed: int) -> None:
    """This holds across messages, pauses, floods and further Temporal runs."""
    state = RunState()
    for event in play(seed).thread.log:
        if isinstance(event, ToolCallStarted):
            starts_at = state.calls.get(event.number).starts_at
            assert starts_at is None or starts_at <= event.at
        state = evolve(state, event)
        assert len(state.repeats.seen) <= WINDOW


def test_the_plays_repeat_calls() -> None:
    """As a control, the random threads have delays and notes of the guard."""

    def events() -> Iterator[AgentEvent]:
        return (event for seed in range(PLAYS) for event in play(seed).thread.log)

    assert any(isinstance(event, VerdictGiven) and event.delay for event in events())
    assert any(isinstance(event, ToolCallFinished) and event.repeats for event in events())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["look", "pay", "wipe", "fly"]),
        st.integers(0, 1),
        st.sampled_from(["a", "a", "a", "b"]),
        st.sampled_from(["approve", "approve", "deny", "respond", "say", "retry", "pause", "move"]),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_guard_only_ever_restricts_and_its_log_can_be_audited(made: list[tuple[str, int, str, str]]) -> None:
    """No denied call runs, every delay ends, the fold is the same, and the audit finds no fault."""
    thread = guarded(repeats_slowed=1, repeats_warned=2, repeats_asked=3, idle_limit=60)
    for name, n, result, act in made:
        if thread.calling_llm():
            thread.reply(reply_with_calls((name, f'{{"n":{n}}}'), ("look", "{}"), step=thread.state.steps.count))
        if act == "say":
            thread.say(f"message {thread.state.events}")
        elif act == "pause":
            thread.update("pause", {"by": "alice"})
            thread.update("resume", {"by": "alice"})
        elif act == "move":
            thread.continue_suggested = True
        while requests := thread.state.authority.requests:
            answer = act if act in ("deny", "respond") else "approve"
            assert thread.decide(requests[0].id, answer, result="so") == "accepted"  # type: ignore[arg-type]
        while thread.waiting(ArchiveRequest) or thread.running_calls or thread.state.calls.delayed:
            if thread.waiting(ArchiveRequest):
                thread.archive(features=1)
                thread.continue_suggested = False
            elif thread.running_calls:
                thread.finish(thread.running_calls[0], result)
            else:
                thread.wake()
        thread.continue_suggested = False
        if thread.state.blocked:
            thread.signal("retry", {"by": "alice"})
    tools = {event.number: event.call.name for event in thread.log if isinstance(event, ToolCallRequested)}
    assert not {tools[event.number] for event in thread.log if isinstance(event, ToolCallStarted)} & {"wipe", "fly"}
    assert fault(thread.log) is None
    thread.check_consistent()


def test_delays_double() -> None:
    """Each delay is twice the one before, up to five minutes."""
    thread = guarded(repeats_asked=0)
    delays = [step(thread) for _ in range(16)][3:]
    assert delays[-1] == 300
    assert all(later == min(2 * earlier, 300) for earlier, later in pairwise(delays))
    assert isinstance(thread.log[-1], ToolCallFinished | LLMReplied)
    thread.reply(says("done"))
    assert thread.state.status == "completed"
    assert thread.at > NOW


def test_a_repeatedly_rejected_sleep_is_a_repeated_call() -> None:
    """Its result gives the time, but that is no news. A sleep that took place has waited, which is news."""
    thread = loaded_thread(sleeper(limits=Limits(max_steps=1_000)), features=1)
    while thread.state.status != "waiting_approval":
        step(thread, "sleep_until", '{"until":"2020-01-01T00:00:00Z"}')
    assert repeats(thread) == [0, 0, 0, 0, 5, 6, 7, 8, 9, 10]
    assert fault(thread.log) is None
    thread = loaded_thread(sleeper(limits=Limits(max_steps=1_000)), features=1)
    for _ in range(12):
        thread.reply(reply_with_calls(("sleep_until", '{"until":"1h"}'), step=thread.state.steps.count))
        thread.advance(hours=1)
    assert not any(repeats(thread))
    assert thread.calling_llm()
