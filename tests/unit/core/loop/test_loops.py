"""The decisions of a loop: the next step, limits, pauses, and the briefs of its agents."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from holdfast.core.budget.budget import Budget
from holdfast.core.budget.tree import TreeCost, allowance_of
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import RunBlocked
from holdfast.core.log.loop_events import IterationStarted, LoopEvent
from holdfast.core.loop.briefs import initializer_brief, iteration_brief
from holdfast.core.loop.decide import Block, Finish, Initialize, Work, next_step, on_settled, on_survey
from holdfast.core.loop.details import loop_details
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import LoopInput, LoopLimits, LoopState, Settled, Steering, Survey
from holdfast.core.loop.steering import on_steering

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BY = {"by": "alice", "reason": "lunch"}


def loop(**limits: Any) -> LoopInput:
    """Return a loop with a task and these limits."""
    return LoopInput(workspace="/w", task="build it", limits=LoopLimits(**limits))


def open_tasks(title: str = "one", **more: Any) -> Survey:
    """Return a survey with an open task."""
    return Survey(planned=True, next=title, open=1, twins=1, **more)


def recorder_after(
    begun: LoopInput, *outcomes: str, task: str = "one", cost: float | None = 0.5, level: int = 0
) -> LoopRecorder:
    """Return the recorder of a loop after iterations at one task with these outcomes."""
    recorder = LoopRecorder(begun, thread="l", run_id="r", first_run_id="r", at=NOW)
    recorder.record(on_survey(Survey(features=level)), at=NOW)
    for number, outcome in enumerate(outcomes):
        recorder.record(IterationStarted(number=number, thread=f"l-{number}", task=task), at=NOW)
        settled = Settled.model_validate(
            {"outcome": outcome, "explanation": f"why {number}", "usage": Usage(prompt_tokens=5), "cost": cost}
        )
        recorder.record(on_settled(number, settled), at=NOW)
    return recorder


def state_after(begun: LoopInput, *outcomes: str, **more: Any) -> LoopState:
    """Return the state of a loop after iterations at one task with these outcomes."""
    return recorder_after(begun, *outcomes, **more).state


def state_with(state: LoopState, *events: LoopEvent, at: datetime = NOW) -> LoopState:
    """Return the state after events at a time."""
    for event in events:
        state = evolve(state, event.model_copy(update={"at": at}))
    return state


def steer(state: LoopState, what: Steering, payload: Any = BY, at: datetime = NOW) -> tuple[LoopState, str, str]:
    """Return the state after a request, with its outcome and the explanation."""
    outcome, why, events = on_steering(state, what, payload, at=at)
    return state_with(state, *events, at=at), outcome, why


def block_loop(state: LoopState, block: Block, at: datetime = NOW) -> LoopState:
    """Return the blocked state."""
    return state_with(state, RunBlocked(cause=block.cause, message=block.message), at=at)


def step(begun: LoopInput, state: LoopState, survey: Survey, at: datetime = NOW) -> Any:
    """Return the next step."""
    return next_step(begun, state, survey, at=at)


def test_the_first_task_that_can_be_done_is_next() -> None:
    """The next step works on an open task."""
    assert Work("one") == step(loop(), state_after(loop()), open_tasks())


def test_a_plan_is_written_once() -> None:
    """Without a task in TASKS.md, the initializer runs; if it writes none, the loop is blocked."""
    assert Initialize() == step(loop(), state_after(loop()), Survey())
    stuck = step(loop(), state_after(loop(), "failed", task=""), Survey())
    assert isinstance(stuck, Block)
    assert stuck.cause == "NoTasks"


def test_a_loop_needs_a_source_for_its_plan() -> None:
    """A loop without a task of its own is blocked if its workspace has no tasks and no features; features suffice."""
    bare = LoopInput(workspace="/w")
    block = step(bare, state_after(bare), Survey())
    assert isinstance(block, Block)
    assert Initialize() == step(bare, state_after(bare), Survey(plannable=True))


def test_a_loop_ends_when_everything_is_done() -> None:
    """With no open or blocked task and every feature passing, the loop is finished, even beyond its limits."""
    limited = loop(iterations=1)
    assert Finish() == step(limited, state_after(limited, "completed"), Survey(planned=True, done=3))


@pytest.mark.parametrize(
    ("survey", "cause", "words"),
    [
        (Survey(problem="a rebase is under way"), "Workspace", "a rebase is under way"),
        (Survey(planned=True, blocked=("one: no key",)), "TasksBlocked", "one: no key"),
        (Survey(planned=True, done=2, failing=("login",)), "FeaturesFailing", "login"),
    ],
)
def test_problems_that_only_people_can_fix_block_the_loop(survey: Survey, cause: str, words: str) -> None:
    """The block names its cause and describes the problem."""
    block = step(loop(), state_after(loop()), survey)
    assert isinstance(block, Block)
    assert (block.cause, words in block.message) == (cause, True)


def test_limits_block_and_retry_extends_them() -> None:
    """Iterations, cost and time each block when used up; `retry` grants the same amount again."""
    for limits, cause in (
        ({"iterations": 2}, "IterationLimit"),
        ({"cost": 1.0}, "CostLimit"),
        ({"seconds": 60}, "TimeLimit"),
    ):
        begun = loop(**limits)
        state, late = state_after(begun, "completed", "completed"), NOW + timedelta(seconds=60)
        block = step(begun, state, open_tasks(), late)
        assert isinstance(block, Block)
        assert block.cause == cause
        state, outcome, _ = steer(block_loop(state, block, late), "retry", at=late)
        assert outcome == "accepted"
        assert Work("one") == step(begun, state, open_tasks(), late)


def test_an_unknown_price_blocks_a_loop_with_a_cost_limit() -> None:
    """If the cost of an iteration is unknown, a limit in dollars blocks."""
    begun = loop(cost=1.0)
    block = step(begun, state_after(begun, "completed", cost=None), open_tasks())
    assert isinstance(block, Block)
    assert block.cause == "CostLimit"


def test_consecutive_failures_of_a_task_block() -> None:
    """Too many failures in a row at one task block the loop; another outcome or `retry` resets the count."""
    begun = loop(attempts=2)
    assert Work("one") == step(begun, state_after(begun, "failed"), open_tasks())
    block = step(begun, state_after(begun, "failed", "failed"), open_tasks())
    assert isinstance(block, Block)
    assert "why 1" in block.message
    assert Work("one") == step(begun, state_after(begun, "failed", "changed", "failed"), open_tasks())
    assert Work("two") == step(begun, state_after(begun, "failed", "failed"), open_tasks("two"))
    state, _, _ = steer(block_loop(state_after(begun, "failed", "failed"), block), "retry")
    assert Work("one") == step(begun, state, open_tasks())


@pytest.mark.parametrize(("level", "status", "again"), [(0, "dormant", "nothing_to_do"), (1, "paused", "duplicate")])
def test_a_pause_begins_between_iterations(level: int, status: str, again: str) -> None:
    """The loop keeps running until the current iteration ends, then stays paused until a person resumes it."""
    state = state_with(state_after(loop(), level=level), IterationStarted(number=0, thread="l-0", task="one"))
    state, outcome, why = steer(state, "pause")
    assert (state.status, outcome) == ("running", "accepted")
    assert "current iteration" in why
    state = state_with(state, on_settled(0, Settled(outcome="completed")))
    assert state.status == status
    assert steer(state, "pause")[1] == again
    state, outcome, _ = steer(state, "resume")
    assert (state.status, outcome) == ("running", "accepted")


@pytest.mark.parametrize("payload", [None, 7, "alice", [], {}, {"by": ""}, {"by": 3}, {"who": "alice"}])
def test_steering_without_a_name_changes_nothing(payload: Any) -> None:
    """Any malformed signal from the Web UI gets an answer and changes nothing."""
    state = state_after(loop())
    assert (state, "malformed") == steer(state, "pause", payload)[:2]


def test_the_state_is_bounded() -> None:
    """A loop of any length carries only its last iterations."""
    state = state_after(loop(), *["completed"] * 500)
    state = state_with(state, on_survey(Survey(done=500, agent="builder")))
    assert len(state.recent) == 20
    assert (state.count, state.usage.prompt_tokens, state.cost) == (500, 2_500, 250.0)
    assert len(TypeAdapter(LoopState).dump_json(state)) < 20_000


@pytest.mark.parametrize("level", [0, 1])
def test_the_state_survives_a_round_trip_through_json(level: int) -> None:
    """The next Temporal run begins with the state that this one ended with, at either feature level."""
    begun = loop(cost=3)
    recorder = recorder_after(begun, "failed", "completed", level=level)
    following = recorder.next_input(begun, first_run_id="r", at=NOW)
    carried = LoopInput.model_validate_json(following.model_dump_json(exclude_defaults=True))
    later = LoopRecorder(carried, thread="l", run_id="r2", first_run_id="r", at=NOW + timedelta(days=1))
    assert replace(recorder.state, events=0) == replace(later.state, events=0)
    assert later.log.length == (recorder.log.length + 1 if level else 1)


def test_an_iterations_brief_names_failed_attempts() -> None:
    """The agent reads its task and the reasons of earlier failures at it; the initializer reads the loop's task."""
    state = state_after(loop(), "failed", "completed", "failed")
    brief = iteration_brief(state, "one", number=3)
    assert "## Your task, from TASKS.md\n\none" in brief
    assert ("why 0" in brief, "why 1" in brief, "why 2" in brief) == (True, False, True)
    assert "Earlier attempts" not in iteration_brief(state, "two", number=3)
    assert "build it" in initializer_brief(state)


def test_the_web_ui_shows_the_state_of_a_loop() -> None:
    """The details name the iterations and the signals that unblock the loop; a title cannot forge other text."""
    state = state_after(loop(), "completed", task="# `x` [y](z)")
    state = block_loop(state, Block("IterationLimit", "enough"))
    shown = loop_details(state)
    assert "### Blocked: IterationLimit" in shown
    assert "`l-0` completed: \\# \\`x\\` \\[y\\](z)" in shown
    paused, _, _ = steer(state_after(loop()), "pause")
    assert "### Paused by alice: lunch" in loop_details(paused)


def test_an_iteration_reserves_the_remainder_and_settles_its_cost() -> None:
    """An iteration reserves the whole remainder; its unspent part is free again, and an unknown cost counts in full."""
    begun = loop(tokens=1_000, cost=2.5)
    state = state_after(begun, level=1)
    state = state_with(state, IterationStarted(number=0, thread="l-0", task="one"))
    assert allowance_of(state.account, 0) == Budget(tokens=1_000, usd="2.5")
    state = state_with(state, on_settled(0, Settled(outcome="completed", spent=TreeCost(tokens=300, nano_usd=10**9))))
    assert [(each["limit"], each["left"]) for each in state.view()["budget"]["limits"]] == [
        ("tokens", "700"),
        ("usd", "1.5"),
    ]
    assert Work("one") == step(begun, state, open_tasks())
    state = state_with(state, IterationStarted(number=1, thread="l-1", task="one"))
    assert allowance_of(state.account, 1) == Budget(tokens=700, usd="1.5")
    state = state_with(state, on_settled(1, Settled(outcome="failed")))
    block = step(begun, state, open_tasks())
    assert isinstance(block, Block)
    assert (block.cause, block.message) == (
        "TokenLimit",
        "the loop has spent 1,000 tokens; `retry` allows 1,000 more",
    )


def test_a_limit_that_ends_an_iteration_is_reached() -> None:
    """The remainder is then too little for a call: the loop is blocked, and `retry` grants the same amount again."""
    begun = loop(tokens=1_000)
    state = state_with(state_after(begun, level=1), IterationStarted(number=0, thread="l-0", task="one"))
    state = state_with(state, on_settled(0, Settled(outcome="failed", spent=TreeCost(tokens=900, short="tokens"))))
    block = step(begun, state, open_tasks())
    assert isinstance(block, Block)
    assert block.cause == "TokenLimit"
    state, _, _ = steer(block_loop(state, block), "retry")
    assert (state.account.left("tokens"), state.account.limits["tokens"]) == (1_100, 2_000)
    assert Work("one") == step(begun, state, open_tasks())


def test_a_limit_too_small_for_a_call_grows_with_each_retry() -> None:
    """The remainder is kept, or a loop whose limit is less than a first call needs would never start."""
    begun = loop(tokens=1_000, cost=0.02)
    state = state_after(begun, level=1)
    for number in range(3):
        state = state_with(state, IterationStarted(number=number, thread=f"l-{number}", task="one"))
        assert allowance_of(state.account, number) == Budget(tokens=1_000, usd=f"{0.02 * (number + 1):.2f}")
        state = state_with(state, on_settled(number, Settled(outcome="failed", spent=TreeCost(short="usd"))))
        block = step(begun, state, open_tasks())
        assert isinstance(block, Block)
        message = "the loop has spent $0.00, and what is left is too little for another call; `retry` allows $0.02 more"
        assert (block.cause, block.message) == ("CostLimit", message)
        state, _, _ = steer(block_loop(state, block), "retry")


def test_an_overspent_limit_is_granted_in_full() -> None:
    """Spending beyond the limit is not deducted from the amount that `retry` grants."""
    begun = loop(tokens=1_000)
    state = state_with(state_after(begun, level=1), IterationStarted(number=0, thread="l-0", task="one"))
    state = state_with(state, on_settled(0, Settled(outcome="failed", spent=TreeCost(tokens=3_500, short="tokens"))))
    block = step(begun, state, open_tasks())
    assert isinstance(block, Block)
    assert block.message == "the loop has spent 3,500 tokens; `retry` allows 1,000 more"
    state, _, _ = steer(block_loop(state, block), "retry")
    assert state.account.left("tokens") == 1_000


def test_the_end_of_an_agents_own_budget_reaches_no_limit_of_the_loop() -> None:
    """The iteration has failed; the loop begins another one, as after any failure."""
    begun = loop(tokens=1_000)
    state = state_with(state_after(begun, level=1), IterationStarted(number=0, thread="l-0", task="one"))
    state = state_with(state, on_settled(0, Settled(outcome="failed", spent=TreeCost(tokens=300, short="steps"))))
    assert Work("one") == step(begun, state, open_tasks())


def test_an_extension_of_an_iteration_extends_the_loop() -> None:
    """An extension by people counts as far as it is spent beyond what the loop reserved."""
    begun = loop(tokens=1_000)
    state = state_with(state_after(begun, level=1), IterationStarted(number=0, thread="l-0", task="one"))
    spent = TreeCost(tokens=1_500, more_tokens=2_000)
    state = state_with(state, on_settled(0, Settled(outcome="completed", spent=spent)))
    assert (state.account.limits["tokens"], state.account.left("tokens")) == (1_500, 0)


def test_a_loop_of_an_earlier_release_keeps_what_it_has_spent() -> None:
    """Its account opens with the first survey by a worker of this release; below that level it compares as it did."""
    begun = loop(cost=2.0)
    state = state_after(begun, "completed", "completed", level=0)
    assert state.view()["budget"] is None
    state = state_with(state, on_survey(Survey(features=1)))
    assert (state.account.limits, state.account.left("usd")) == ({"usd": 2 * 10**9}, 10**9)


def test_a_survey_by_an_older_worker_leaves_a_loop_its_limit_of_tokens() -> None:
    """A loop that started with a feature level keeps its limit from its first survey on; that worker's 0 would remove
    it.
    """
    state = state_with(state_after(loop(tokens=1_000)), on_survey(Survey(features=0), level=1))
    state = state_with(state, IterationStarted(number=0, thread="l-0", task="one"))
    assert allowance_of(state.account, 0) == Budget(tokens=1_000)


@pytest.mark.parametrize("cost", [1e-12, 1e9])
def test_any_limit_in_dollars_makes_a_budget(cost: float) -> None:
    """An amount too small or too large becomes the smallest or largest budget, so the loop never fails for it."""
    state = state_with(state_after(loop(cost=cost), level=1), IterationStarted(number=0, thread="l-0", task="one"))
    assert allowance_of(state.account, 0) is not None
