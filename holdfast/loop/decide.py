"""Decisions of a loop: its next step, limits and state changes, as pure functions over `holdfast.loop.state`."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.base.replacing import replace
from holdfast.loop.state import (
    RECENT,
    WORDS,
    Iteration,
    LoopInput,
    LoopLimits,
    LoopResult,
    LoopState,
    Settled,
    Steered,
    Steering,
    Survey,
)
from holdfast.run.state import Blocked


@dataclass(frozen=True)
class Initialize:
    """Run the initializer, which writes the plan."""


@dataclass(frozen=True)
class Work:
    """Run an iteration on a task."""

    task: str


@dataclass(frozen=True)
class Block:
    """Wait until somebody fixes the cause and sends `retry`."""

    cause: str
    message: str


@dataclass(frozen=True)
class Finish:
    """End the loop, because everything is done."""


Step = Initialize | Work | Block | Finish


def begin(loop: LoopInput, *, thread: str, at: datetime) -> LoopState:
    """Return the state with which a loop begins, or continues in a new Temporal run."""
    if loop.state:
        return loop.state
    limits = loop.limits
    return LoopState(
        thread=thread,
        task=loop.task,
        workspace=loop.workspace,
        count_limit=limits.iterations,
        cost_limit=limits.cost,
        deadline=at + timedelta(seconds=limits.seconds) if limits.seconds else None,
        updated_at=at,
    )


def next_step(loop: LoopInput, state: LoopState, survey: Survey, *, at: datetime) -> Step:
    """Decide what a loop does next, given a survey of its files."""
    if survey.problem:
        return Block(survey.cause, survey.problem)
    if survey.planned and not survey.next:
        return _nothing_to_do(survey)
    if reached := _limit(loop.limits, state, at=at):
        return reached
    if survey.next:
        return _attempt(loop.limits, state, survey.next)
    if state.initialized:
        return Block("NoTasks", "the initializer has run, but TASKS.md has no task; add one to TASKS.md")
    if not (loop.task or survey.plannable):
        return Block(
            "NoTasks",
            "there is neither a TASKS.md with tasks nor a features.json, and the loop was started without a task",
        )
    return Initialize()


def _nothing_to_do(survey: Survey) -> Step:
    if survey.blocked:
        return Block("TasksBlocked", "; ".join(survey.blocked)[: 4 * WORDS])
    if survey.failing:
        features = ", ".join(survey.failing)[:WORDS]
        return Block(
            "FeaturesFailing",
            f"all tasks in TASKS.md are done, but these features in features.json do not pass: {features}",
        )
    return Finish()


def _limit(limits: LoopLimits, state: LoopState, *, at: datetime) -> Block | None:
    if state.count >= state.count_limit:
        return Block("IterationLimit", f"{state.count} iterations have run; `retry` allows {limits.iterations} more")
    if state.deadline and at >= state.deadline:
        return Block("TimeLimit", f"the time limit is reached; `retry` allows {limits.seconds:g} more seconds")
    if state.cost_limit is not None and (state.cost is None or state.cost >= state.cost_limit):
        spent = "an unknown amount" if state.cost is None else f"${state.cost:,.2f}"
        return Block("CostLimit", f"the loop has spent {spent}; `retry` allows ${limits.cost:,.2f} more")
    return None


def _attempt(limits: LoopLimits, state: LoopState, task: str) -> Step:
    last = state.recent[-1] if state.recent else None
    if last and last.task == task and state.failures >= limits.attempts:
        why = f"{state.failures} iterations in a row failed at {task!r}; the last one: {last.explanation}"
        return Block("AttemptsFailed", why)
    return Work(task)


def on_survey(state: LoopState, survey: Survey, *, at: datetime) -> LoopState:
    """Record a survey of the files."""
    return replace(
        state,
        open=survey.open,
        done=survey.done,
        agent=survey.agent or state.agent,
        notify=survey.notify or state.notify,
        features=max(state.features, survey.features),
        updated_at=at,
    )


def on_start(state: LoopState, iteration: Iteration, *, at: datetime) -> LoopState:
    """Record the start of an iteration."""
    return replace(
        state,
        initialized=state.initialized or not iteration.task,
        count=state.count + 1,
        recent=(*state.recent, iteration)[-RECENT:],
        updated_at=at,
    )


def on_settled(state: LoopState, settled: Settled, *, at: datetime) -> LoopState:
    """Record the end of the current iteration."""
    current = state.current
    assert current is not None
    before = state.recent[-2] if len(state.recent) > 1 else None
    again = before is not None and before.task == current.task
    failed = settled.outcome == "failed"
    known = state.cost is not None and settled.cost is not None
    ended = Iteration(
        number=current.number,
        thread=current.thread,
        task=current.task,
        started_at=current.started_at,
        outcome=settled.outcome,
        explanation=settled.explanation[:WORDS],
        commits=settled.commits,
        cost=settled.cost,
    )
    return replace(
        state,
        recent=(*state.recent[:-1], ended),
        failures=(state.failures if again else 0) + 1 if failed else 0,
        usage=state.usage + settled.usage,
        cost=(state.cost or 0) + (settled.cost or 0) if known else None,
        updated_at=at,
    )


def on_block(state: LoopState, block: Block, *, at: datetime) -> LoopState:
    """Record that the loop is blocked."""
    return replace(state, blocked=Blocked(cause=block.cause, message=block.message), updated_at=at)


def on_retry(loop: LoopInput, state: LoopState, *, at: datetime) -> LoopState:
    """Unblock the loop, and grant the same amount again of each limit that it has reached."""
    limits = loop.limits
    retried = replace(state, blocked=None, failures=0, initialized=False, updated_at=at)
    if state.count >= state.count_limit:
        retried = replace(retried, count_limit=state.count + limits.iterations)
    if limits.seconds and state.deadline and at >= state.deadline:
        retried = replace(retried, deadline=at + timedelta(seconds=limits.seconds))
    if limits.cost and (state.cost is None or state.cost >= (state.cost_limit or 0)):
        cost = state.cost or 0.0
        retried = replace(retried, cost_limit=cost + limits.cost, cost=cost)
    return retried


def on_steering(
    loop: LoopInput, state: LoopState, what: Steering, payload: Any, *, at: datetime
) -> tuple[LoopState, str, str]:
    """Pause, resume or retry the loop on a person's request.

    Args:
        loop: The loop's input.
        state: The state before.
        what: What is requested.
        payload: `{"by": "alice", "reason": "…"}`; unvalidated.
        at: The current time.

    Returns:
        The new state, the outcome (`accepted`, `nothing_to_do` or `malformed`), and an explanation.
    """
    if not isinstance(payload, dict) or not isinstance(by := payload.get("by"), str) or not by.strip():
        return state, "malformed", 'it must be a JSON object that names you: {"by": "your name"}'
    if what == "pause":
        if state.paused:
            return state, "nothing_to_do", f"the loop is paused already, by {state.paused.by}"
        paused = Steered(by=by[:200], reason=str(payload.get("reason") or "")[:WORDS])
        when = "the loop pauses when the current iteration has ended" if state.current else "the loop is paused"
        return replace(state, paused=paused, updated_at=at), "accepted", when
    if what == "resume":
        if not state.paused:
            return state, "nothing_to_do", "the loop is not paused"
        return replace(state, paused=None, updated_at=at), "accepted", "the loop resumes"
    if not state.blocked:
        return state, "nothing_to_do", "the loop is not blocked"
    return on_retry(loop, state, at=at), "accepted", "the loop resumes"


def result_of(state: LoopState) -> LoopResult:
    """Return the result of a loop that is done."""
    return LoopResult(iterations=state.count, tasks=state.done, usage=state.usage, cost=state.cost)
