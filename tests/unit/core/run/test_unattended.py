"""Unattended runs: what would wait for a person fails the run, and nothing runs that would have asked."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from holdfast.core.agents.agent import Limits, Memory
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.budget.budget import Budget
from holdfast.core.log.events import (
    AgentLoaded,
    ApprovalRequested,
    RunBlocked,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.run.contracts.error_types import LLM_REJECTED, RECORD_CONFLICT
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.subagents import (
    PARENT_ENDS,
    EndSubagentsRequest,
    StartSubagentsRequest,
    SubagentReports,
    child_input,
)
from holdfast.core.run.decide.results import end_of
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.features import FEATURES, UNATTENDED
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect
from tests.support.examples import examples
from tests.support.plays import SEEDS, RandomRun
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says, tool_spec
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_subagents import completed_report, helpers, order, parent, start


def unattended(spec: Any = None, **begin: Any) -> Thread:
    """Return an unattended thread whose LLM call is in progress."""
    fields: dict[str, Any] = {"when_blocked": "fail", "features": UNATTENDED}
    thread = Thread(spec, **(fields | begin))
    thread.load(UNATTENDED)
    return thread


def end(thread: Thread) -> RunFinished:
    """Write the log to its end; return the last event, of a log that an audit accepts."""
    while not thread.closed:
        thread.archive()
    last = thread.log[-1]
    assert isinstance(last, RunFinished)
    assert fault(thread.log) is None
    thread.check_consistent()
    return last


def types(thread: Thread, kind: type[Any]) -> list[Any]:
    """Return the events of a kind."""
    return [event for event in thread.log if isinstance(event, kind)]


def test_a_call_that_requires_approval_fails_the_run_and_nothing_of_its_reply_starts() -> None:
    """Nobody is asked: `pay` ends as denied, the allowed `look` beside it does not start, and the cause is in the end
    of the workflow.
    """
    thread = unattended()
    thread.reply(calls("look", "pay"))
    finished = end(thread)
    assert (finished.outcome, finished.cause) == ("failed", "ApprovalRequired")
    assert "call 2 (pay" in finished.result
    assert not types(thread, ApprovalRequested)
    assert not types(thread, ToolCallStarted)
    assert [(event.number, event.status) for event in types(thread, ToolCallFinished)] == [
        (2, "denied"),
        (1, "cancelled"),
    ]
    failure = end_of(thread.state, first_run_id="r1").failure
    assert failure is not None
    assert failure.cause == "ApprovalRequired"


def test_a_policy_that_approves_on_expiry_lets_nothing_run_unattended() -> None:
    """The rule would have asked, and approved by itself after an hour: the run fails before that."""
    policy = Policy(rules=(allow("look"), ask("pay", terms=Terms(expires_after=3600, on_expiry="approve"))))
    thread = unattended(agent_spec(policy=policy))
    thread.reply(calls("pay"))
    assert end(thread).cause == "ApprovalRequired"
    assert not types(thread, ToolCallStarted)


@pytest.mark.parametrize(
    ("limits", "reach", "cause"),
    [
        (Limits(), lambda thread: thread.refuse(LLM_REJECTED), LLM_REJECTED),
        (Limits(max_steps=1), lambda thread: (thread.reply(calls("look")), thread.finish(1)), "StepLimit"),
        (Limits(max_rejected_replies=1), lambda thread: thread.reply(calls("none")), "RepliesRejected"),
    ],
)
def test_each_block_fails_the_run_with_its_cause(limits: Limits, reach: Any, cause: str) -> None:
    """The log says what blocked the run, then that it has failed of that."""
    thread = unattended(agent_spec(limits=limits))
    reach(thread)
    assert (end(thread).cause, [event.cause for event in types(thread, RunBlocked)]) == (cause, [cause])
    assert "retry" not in thread.state.result


def test_a_spent_budget_fails_the_run_after_the_partial_answer() -> None:
    """Nobody can extend it. The LLM's last reply stays in the transcript."""
    thread = unattended(budget=Budget(steps=2))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.reply(says("as far as I got"))
    assert end(thread).cause == "BudgetSpent"
    assert thread.messages()[-1]["content"] == "as far as I got"


def test_a_record_of_another_run_fails_the_run_although_it_cannot_be_written() -> None:
    """The run ends, and does not wait for a record that rejects it."""
    thread = unattended(agent_spec(limits=Limits(history_events=20)))
    thread.continue_suggested = True
    thread.reply(calls("look"))
    thread.archive_refused(RECORD_CONFLICT)
    assert thread.closed
    assert thread.state.failure == RECORD_CONFLICT


def test_running_tools_end_before_the_run_fails_and_what_they_did_is_recorded() -> None:
    """An effect under way is not abandoned: its result is in the log before the run's end."""
    spec = agent_spec(policy=Policy(rules=(allow(),)), limits=Limits(max_rejected_replies=1))
    thread = unattended(spec)
    thread.reply(calls("pay", "look"))
    thread.finish(2)
    thread._observe()  # a block while a tool runs: the record rejects the run
    thread.run._log.record(RunBlocked(cause=RECORD_CONFLICT, message="another run"))
    thread.say("hello?")
    assert not thread.state.outcome
    thread.finish(1, "paid")
    assert end(thread).cause == RECORD_CONFLICT
    assert [event.status for event in types(thread, ToolCallFinished)] == ["ok", "ok"]


def test_an_unknown_outcome_is_kept_for_a_person_and_the_run_continues_after_the_decision() -> None:
    """The request stays open, for nobody else can say what happened; then the run is unattended as before."""
    thread = unattended(agent_spec(policy=Policy(rules=(allow(),))))
    thread.reply(calls("pay"))
    thread.finish(1, "no answer came", status="unknown")
    assert thread.state.status == "waiting_approval"
    thread.advance(days=30)
    assert not thread.state.outcome
    assert thread.decide("1", "happened", result="receipt 7") == "accepted"
    thread.refuse(LLM_REJECTED)
    assert end(thread).cause == LLM_REJECTED


@pytest.mark.parametrize(("answer", "status"), [("happened", "ok"), ("absent", "cancelled"), ("abandon", "unknown")])
def test_a_blocked_run_fails_only_when_a_person_has_resolved_its_unknown_outcome(answer: Any, status: str) -> None:
    """An effect that did not happen is not repeated: the run fails with the cause of its block."""
    thread = unattended(agent_spec(policy=Policy(rules=(allow("look"), allow("pay"), ask("wipe")))))
    thread.reply(calls("pay"))
    thread.finish(1, "no answer came", status="unknown")
    thread.run._log.record(RunBlocked(cause=RECORD_CONFLICT, message="another run"))
    thread.say("hello?")
    assert not thread.state.outcome
    assert thread.decide("1", answer) == "accepted"
    assert end(thread).cause == RECORD_CONFLICT
    assert types(thread, ToolCallFinished)[-1].status == status
    assert len(thread.attempts) == 1


def test_an_effect_that_a_person_undoes_is_undone_before_the_run_fails() -> None:
    """A person has asked for the undoing, so it runs although the run is about to fail."""
    tools = (tool_spec("look"), tool_spec("pay", Effect.UNSAFE, undoable=True))
    thread = unattended(agent_spec(tools=tools, policy=Policy(rules=(allow(),))))
    thread.reply(calls("pay"))
    thread.finish(1, "no answer came", status="unknown")
    thread.run._log.record(RunBlocked(cause=RECORD_CONFLICT, message="another run"))
    assert thread.decide("1", "undo") == "accepted"
    thread.finish(1, "undone")
    assert end(thread).cause == RECORD_CONFLICT
    assert types(thread, ToolCallFinished)[-1].status == "undone"


@pytest.mark.parametrize(("reason", "kept"), [(PARENT_ENDS, True), ("", False), ("a person's reason", False)])
def test_a_sub_agent_that_ends_with_its_parent_keeps_an_unknown_outcome_for_a_person(reason: str, kept: bool) -> None:
    """Nobody has asked for its end, so nobody has given up finding out. A person who cancels it has."""
    thread = unattended(agent_spec(policy=Policy(rules=(allow(),))))
    thread.reply(calls("pay"))
    thread.finish(1, "no answer came", status="unknown")
    thread.cancel(reason)
    assert (thread.state.outcome is None) is kept
    if kept:
        thread.advance(days=30)
        assert thread.decide("1", "happened") == "accepted"
    while not thread.closed:
        thread.archive()
    assert thread.state.outcome == "cancelled"
    assert types(thread, ToolCallFinished)[-1].status == ("ok" if kept else "unknown")
    assert fault(thread.log) is None


def test_sub_agents_are_cancelled_before_the_run_fails() -> None:
    """Nothing that an unattended run has started is left behind, and no further sub-agent starts."""
    thread = parent(Limits(subagents_at_once=1), when_blocked="fail")
    thread = unattended(thread.spec.model_copy(update={"limits": Limits(subagents_at_once=1)}))
    thread.reply(helpers(2))
    (first,) = start(thread)
    thread.run._log.record(RunBlocked(cause=RECORD_CONFLICT, message="another run"))
    thread.say("hello?")
    assert not thread.waiting(StartSubagentsRequest)
    report = completed_report(first, status="cancelled", text="no answer")
    ending = order(thread, EndSubagentsRequest).request
    assert isinstance(ending, EndSubagentsRequest)
    assert ending.keeps_unknown
    thread.end(order(thread, EndSubagentsRequest), SubagentReports(reports=(report,)))
    assert end(thread).cause == RECORD_CONFLICT


def test_a_sub_agent_of_an_unattended_run_is_unattended() -> None:
    """The start of a sub-agent carries it at every level; that of an attended run's says nothing."""
    attended = parent()
    attended.reply(helpers(1))
    thread = unattended(attended.spec)
    thread.reply(helpers(1))
    orders = [order(each, StartSubagentsRequest).request for each in (thread, attended)]
    begins = [child_input(each, each.children[0]) for each in orders if isinstance(each, StartSubagentsRequest)]
    assert [begin.when_blocked for begin in begins] == ["fail", None]
    below = Thread(attended.spec, **begins[0].model_dump(exclude={"sealed", "task"}))
    below.load(FEATURES)
    assert below.state.unattended


@pytest.mark.parametrize(
    ("start_says", "agent_says", "expected"),
    [(None, "wait", False), (None, "fail", True), ("fail", "wait", True), ("wait", "fail", False)],
)
def test_a_start_decides_and_without_it_the_agent(start_says: Any, agent_says: Any, expected: bool) -> None:
    """The run records what applies, with its agent."""
    thread = unattended(agent_spec(when_blocked=agent_says), when_blocked=start_says)
    (loaded,) = types(thread, AgentLoaded)
    assert loaded.unattended is expected is thread.state.unattended
    assert types(thread, RunStarted)[0].when_blocked == start_says


def test_a_later_run_of_the_thread_is_attended_again() -> None:
    """A person who continues the thread is there; an agent that says so itself stays unattended."""
    thread = unattended()
    thread.refuse(LLM_REJECTED)
    end(thread)
    thread.reopen()
    thread.load_thread()
    thread.load(UNATTENDED)
    assert not thread.state.unattended
    thread.reply(calls("pay", first=7))
    assert thread.state.status == "waiting_approval"


def test_a_moved_run_stays_unattended_on_the_other_cluster() -> None:
    """The import's own start says nothing, so it changes nothing."""
    there = unattended().moved().imported()
    assert there.state.unattended


def test_a_run_that_continues_as_new_stays_unattended_also_before_its_agent_is_loaded() -> None:
    """A flood of signals may end the first Temporal run before the agent is loaded."""
    thread = Thread(when_blocked="fail", features=UNATTENDED)
    thread.continue_suggested = True
    thread.signal("say", {"message": "hello"})
    while thread.waiting(object) and not thread.waiting(AgentRequest):
        thread.archive()
    thread.continue_suggested = False
    thread.load(UNATTENDED)
    assert thread.state.unattended


def test_a_plain_start_fails_if_the_worker_is_of_a_release_without_unattended_runs() -> None:
    """It would otherwise wait for a person of whom nobody knows."""
    thread = Thread(when_blocked="fail")
    thread.load(UNATTENDED - 1)
    while not thread.closed:
        thread.archive()
    assert thread.state.failure == "UnattendedUnsupported"


def test_below_its_level_nothing_of_it_is_recorded() -> None:
    """A history of an earlier release replays byte for byte."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    recorded = "".join(event.model_dump_json(exclude_defaults=True) for event in thread.log)
    assert "unattended" not in recorded
    assert "when_blocked" not in recorded
    assert RunInput(task="x").model_dump(exclude_defaults=True) == {"task": "x"}


def test_a_pause_by_a_person_holds_an_unattended_run() -> None:
    """The person who paused it is there: it fails only when it has resumed."""
    thread = unattended()
    assert thread.update("pause", {"by": "alice"})["outcome"] == "accepted"
    thread.reply(calls("pay"))
    assert (thread.state.status, thread.state.outcome) == ("paused", None)
    thread.update("resume", {"by": "alice"})
    assert end(thread).cause == "ApprovalRequired"


def test_what_a_run_learns_at_its_end_may_require_approval_without_failing_it() -> None:
    """The answer stands: the note is not written, and the run completes."""
    tools = (tool_spec("look"), tool_spec("note_learning", Effect.IDEMPOTENT))
    spec = agent_spec(tools=tools, memory=Memory(learn=True), policy=Policy(rules=(ask("note_learning"),)))
    thread = unattended(spec)
    thread.reply(says("the answer"))
    thread.reply(calls("note_learning"))
    assert (end(thread).outcome, thread.state.result) == ("completed", "the answer")


def test_people_are_notified_once_of_an_unattended_run_that_is_blocked() -> None:
    """They read that it failed, and of what: it is not theirs to retry."""
    thread = Thread(when_blocked="fail", features=UNATTENDED)
    thread.notify = True
    thread.load(UNATTENDED)
    thread.refuse(LLM_REJECTED)
    for call in thread.waiting(Notice):
        thread.deliver(call)
    assert [(each.occasion, each.status) for each in thread.notices] == [("run_finished", "failed")]
    assert thread.notices[0].text.startswith(f"{LLM_REJECTED}: ")


@settings(max_examples=examples(3, 100))
@given(SEEDS)
def test_nothing_starts_unattended_that_required_approval(seed: int) -> None:
    """In any play, a call of an unattended run starts only if the policy alone allows it, or a person resolves it."""
    thread = RandomRun(seed, unattended=True).thread
    verdicts: dict[int, str] = {}
    state = RunState()
    for event in thread.log:
        if event.type == "verdict_given":
            verdicts[event.number] = event.verdict
        if isinstance(event, ToolCallStarted) and not event.undo and state.unattended:
            assert verdicts[event.number] == "allow", event
        assert not (isinstance(event, ApprovalRequested) and state.unattended), event
        state = evolve(state, event)


def test_thirty_days_of_silence_do_not_change_a_failed_run() -> None:
    """A failed run has no timer left."""
    thread = unattended()
    thread.reply(calls("pay"))
    end(thread)
    assert thread.state.wake_at(thread.at + timedelta(days=30)) is None
