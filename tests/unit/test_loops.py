"""What follows from what in a loop: the next step, limits, pauses, and what its agents are told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from holdfast.llm.messages import Usage
from holdfast.loop.briefs import initializer_brief, iteration_brief
from holdfast.loop.decide import (
    Block,
    Finish,
    Initialize,
    Work,
    begin,
    next_step,
    on_block,
    on_settled,
    on_start,
    on_steering,
    on_survey,
)
from holdfast.loop.details import loop_details
from holdfast.loop.state import Iteration, LoopInput, LoopLimits, LoopState, Settled, Survey

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BY = {"by": "alice", "reason": "lunch"}


def loop(**limits: Any) -> LoopInput:
    """A loop with a task, and these limits."""
    return LoopInput(workspace="/w", task="build it", limits=LoopLimits(**limits))


def open_tasks(title: str = "one", **more: Any) -> Survey:
    """Files with an open task."""
    return Survey(planned=True, next=title, open=1, twins=1, **more)


def after(begun: LoopInput, *outcomes: str, task: str = "one", cost: float | None = 0.5) -> LoopState:
    """Where a loop stands after iterations at a task that ended so."""
    state = begin(begun, thread="l", at=NOW)
    for number, outcome in enumerate(outcomes):
        iteration = Iteration(number=number, thread=f"l-{number}", task=task, started_at=NOW)
        state = on_start(state, iteration, at=NOW)
        settled = Settled.model_validate(
            {"outcome": outcome, "explanation": f"why {number}", "usage": Usage(prompt_tokens=5), "cost": cost}
        )
        state = on_settled(state, settled, at=NOW)
    return state


def step(begun: LoopInput, state: LoopState, survey: Survey, at: datetime = NOW) -> Any:
    """The next step."""
    return next_step(begun, state, survey, at=at)


def test_the_first_task_that_can_be_done_is_next() -> None:
    """An open task is worked on."""
    assert Work("one") == step(loop(), after(loop()), open_tasks())


def test_a_plan_is_written_once() -> None:
    """Without a task in TASKS.md the initializer runs; if it writes none, the loop says so."""
    assert Initialize() == step(loop(), after(loop()), Survey())
    stuck = step(loop(), after(loop(), "failed", task=""), Survey())
    assert isinstance(stuck, Block)
    assert stuck.cause == "NoTasks"


def test_without_anything_to_plan_from_there_is_no_plan() -> None:
    """A loop without a task, whose workspace has neither tasks nor features, is blocked; features alone are enough."""
    bare = LoopInput(workspace="/w")
    found = step(bare, after(bare), Survey())
    assert isinstance(found, Block)
    assert Initialize() == step(bare, after(bare), Survey(plannable=True))


def test_it_ends_when_everything_is_done() -> None:
    """No open task, none blocked, every feature passing: finished, whatever limits were reached."""
    limited = loop(iterations=1)
    assert Finish() == step(limited, after(limited, "completed"), Survey(planned=True, done=3))


@pytest.mark.parametrize(
    ("survey", "cause", "words"),
    [
        (Survey(problem="a rebase is under way"), "Workspace", "a rebase is under way"),
        (Survey(planned=True, blocked=("one: no key",)), "TasksBlocked", "one: no key"),
        (Survey(planned=True, done=2, failing=("login",)), "FeaturesFailing", "login"),
    ],
)
def test_what_only_people_can_mend_blocks_with_its_reason(survey: Survey, cause: str, words: str) -> None:
    """The block names its cause, and says what it is."""
    found = step(loop(), after(loop()), survey)
    assert isinstance(found, Block)
    assert (found.cause, words in found.message) == (cause, True)


def test_limits_block_and_retry_grants_as_much_again() -> None:
    """Iterations, dollars and time: each blocks when it is used up, and goes on after `retry`."""
    for limits, cause in (
        ({"iterations": 2}, "IterationLimit"),
        ({"cost": 1.0}, "CostLimit"),
        ({"seconds": 60}, "TimeLimit"),
    ):
        begun = loop(**limits)
        state, late = after(begun, "completed", "completed"), NOW + timedelta(seconds=60)
        found = step(begun, state, open_tasks(), late)
        assert isinstance(found, Block)
        assert found.cause == cause
        state, outcome, _ = on_steering(begun, on_block(state, found, at=late), "retry", BY, at=late)
        assert outcome == "accepted"
        assert Work("one") == step(begun, state, open_tasks(), late)


def test_an_unknown_price_stops_a_loop_that_minds_its_cost() -> None:
    """Where nobody knows what was spent, a limit in dollars blocks."""
    begun = loop(cost=1.0)
    found = step(begun, after(begun, "completed", cost=None), open_tasks())
    assert isinstance(found, Block)
    assert found.cause == "CostLimit"


def test_a_task_that_fails_again_and_again_blocks() -> None:
    """So many failures in a row at one task stop the loop; another outcome between them, or `retry`, ends the row."""
    begun = loop(attempts=2)
    assert Work("one") == step(begun, after(begun, "failed"), open_tasks())
    found = step(begun, after(begun, "failed", "failed"), open_tasks())
    assert isinstance(found, Block)
    assert "why 1" in found.message
    assert Work("one") == step(begun, after(begun, "failed", "changed", "failed"), open_tasks())
    assert Work("two") == step(begun, after(begun, "failed", "failed"), open_tasks("two"))
    state, _, _ = on_steering(begun, on_block(after(begun, "failed", "failed"), found, at=NOW), "retry", BY, at=NOW)
    assert Work("one") == step(begun, state, open_tasks())


def test_a_pause_begins_between_iterations() -> None:
    """While an iteration is under way the loop is running; then it is dormant, until somebody resumes it."""
    begun = loop()
    state = on_start(after(begun), Iteration(number=0, thread="l-0", task="one", started_at=NOW), at=NOW)
    state, outcome, why = on_steering(begun, state, "pause", BY, at=NOW)
    assert (state.status, outcome) == ("running", "accepted")
    assert "when the current iteration has ended" in why
    state = on_settled(state, Settled(outcome="completed"), at=NOW)
    assert state.status == "dormant"
    assert on_steering(begun, state, "pause", BY, at=NOW)[1] == "nothing_to_do"
    state, outcome, _ = on_steering(begun, state, "resume", BY, at=NOW)
    assert (state.status, outcome) == ("running", "accepted")


@pytest.mark.parametrize("payload", [None, 7, "alice", [], {}, {"by": ""}, {"by": 3}, {"who": "alice"}])
def test_steering_without_a_name_changes_nothing(payload: Any) -> None:
    """Whatever somebody types into the Web UI is answered, and harms nothing."""
    state = after(loop())
    assert (state, "malformed") == on_steering(loop(), state, "pause", payload, at=NOW)[:2]


def test_a_state_is_bounded() -> None:
    """A loop of any length carries the last iterations alone."""
    state = after(loop(), *["completed"] * 500)
    state = on_survey(state, Survey(done=500, agent="builder"), at=NOW)
    assert len(state.recent) == 20
    assert (state.count, state.usage.prompt_tokens, state.cost) == (500, 2_500, 250.0)
    assert len(TypeAdapter(LoopState).dump_json(state)) < 20_000


def test_the_state_goes_through_json() -> None:
    """What is carried from one Temporal run to the next is what it was."""
    state = after(loop(), "failed", "completed")
    carried = LoopInput.model_validate_json(loop().model_copy(update={"state": state}).model_dump_json())
    assert state == begin(carried, thread="other", at=NOW + timedelta(days=1))


def test_an_iteration_is_told_of_failed_attempts() -> None:
    """The agent reads its task, and why earlier iterations have failed at it; the initializer reads what all is for."""
    state = after(loop(), "failed", "completed", "failed")
    told = iteration_brief(state, "one", number=3)
    assert "## Your task, from TASKS.md\n\none" in told
    assert ("why 0" in told, "why 1" in told, "why 2" in told) == (True, False, True)
    assert "Earlier attempts" not in iteration_brief(state, "two", number=3)
    assert "build it" in initializer_brief(state)


def test_the_web_ui_shows_where_a_loop_is() -> None:
    """The details name the iterations, and the signals that let it go on; a title cannot pose as anything else."""
    state = after(loop(), "completed", task="# `x` [y](z)")
    state = on_block(state, Block("IterationLimit", "enough"), at=NOW)
    shown = loop_details(state)
    assert "### Blocked: IterationLimit" in shown
    assert "`l-0` completed: \\# \\`x\\` \\[y\\](z)" in shown
    paused, _, _ = on_steering(loop(), after(loop()), "pause", BY, at=NOW)
    assert "### Paused by alice: lunch" in loop_details(paused)
