"""Decisions of a loop: its next step, and the events for the results of its activities, as pure functions."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.core.budget.account import Account
from holdfast.core.budget.budget import NANO
from holdfast.core.log.loop_events import IterationEnded, LoopLimits, WorkspaceSurveyed
from holdfast.core.loop.account import reached_limit
from holdfast.core.loop.state import WORDS, LoopInput, LoopResult, LoopState, Settled, Survey


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
    """End the loop because everything is done."""


Step = Initialize | Work | Block | Finish


def next_step(loop: LoopInput, state: LoopState, survey: Survey, *, at: datetime, refused: str = "") -> Step:
    """Decide a loop's next step from a survey of its files.

    Args:
        loop: The loop's input.
        state: The state, after the survey.
        survey: The survey.
        at: The time.
        refused: The reason that the permanent record rejects the loop's log; empty if it does not.
    """
    if refused:
        return Block("RecordConflict", refused)
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
    if state.account.limits:
        return _limit_of_account(limits, state.account)
    if state.cost_limit is not None and (state.cost is None or state.cost >= state.cost_limit):
        spent = "an unknown amount" if state.cost is None else f"${state.cost:,.2f}"
        return Block("CostLimit", f"the loop has spent {spent}; `retry` allows ${limits.cost:,.2f} more")
    return None


def _limit_of_account(limits: LoopLimits, account: Account) -> Block | None:
    name = reached_limit(account)
    if not name:
        return None
    rest = ", and what is left is too little for another call" if account.left(name) else ""
    if name == "usd":
        spent = account.spent.usd / NANO
        return Block("CostLimit", f"the loop has spent ${spent:,.2f}{rest}; `retry` allows ${limits.cost:,.2f} more")
    message = f"the loop has spent {account.spent.tokens:,} tokens{rest}; `retry` allows {limits.tokens:,} more"
    return Block("TokenLimit", message)


def _attempt(limits: LoopLimits, state: LoopState, task: str) -> Step:
    last = state.recent[-1] if state.recent else None
    if last and last.task == task and state.failures >= limits.attempts:
        why = f"{state.failures} iterations in a row failed at {task!r}; the last one: {last.explanation}"
        return Block("AttemptsFailed", why)
    return Work(task)


def on_survey(survey: Survey, *, level: int = 0) -> WorkspaceSurveyed:
    """Return the event for a survey of the files.

    Args:
        survey: The survey.
        level: The feature level that the loop was started with: a worker of an older release may survey its files.
    """
    return WorkspaceSurveyed(
        agent=survey.agent,
        open=survey.open,
        done=survey.done,
        notify=survey.notify,
        features=max(survey.features, level),
    )


def on_settled(number: int, settled: Settled) -> IterationEnded:
    """Return the event for the end of an iteration."""
    return IterationEnded(
        number=number,
        outcome=settled.outcome,
        explanation=settled.explanation[:WORDS],
        commits=settled.commits,
        usage=settled.usage,
        cost=settled.cost,
        spent=settled.spent,
        log_events=settled.log_events,
        log_head=settled.log_head,
    )


def result_of(state: LoopState) -> LoopResult:
    """Return the result of a loop that is done."""
    return LoopResult(iterations=state.count, tasks=state.done, usage=state.usage, cost=state.cost)
