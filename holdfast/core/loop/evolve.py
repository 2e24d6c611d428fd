"""The state of a loop as a fold over its events: `state = evolve(state, event)`. Pure, and the same on every replay."""

from datetime import datetime, timedelta
from typing import Any, assert_never

from pydantic import TypeAdapter

from holdfast.core.base.models import replace
from holdfast.core.log.events import (
    RefusalsCounted,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunPaused,
    RunResumed,
    RunUnblocked,
    SignalRejected,
)
from holdfast.core.log.loop_events import (
    IterationEnded,
    IterationStarted,
    LoopEvent,
    LoopLimits,
    LoopStarted,
    WorkspaceSurveyed,
)
from holdfast.core.loop.account import begun, opened, settled
from holdfast.core.loop.account import retried as grant_again
from holdfast.core.loop.state import RECENT, WORDS, Iteration, LoopState, Steered
from holdfast.core.run.state.state import Blocked

_STATE: TypeAdapter[LoopState] = TypeAdapter(LoopState)


def evolve(state: LoopState, event: LoopEvent) -> LoopState:
    """Return the state after an event."""
    changed = _changed(state, event)
    if event.position >= 0:
        changed = replace(changed, events=event.position + 1)
    return changed


def state_json(state: LoopState) -> dict[str, Any]:
    """Return a state as JSON for `loop_started`, without what that event has itself."""
    return dict(_STATE.dump_python(uncounted(state), mode="json", exclude_defaults=True))


def uncounted(state: LoopState) -> LoopState:
    """Return a state as workers of level 0 have it, without what the loop's input and its log have."""
    return replace(state, limits=LoopLimits(), events=0)


def _changed(state: LoopState, event: LoopEvent) -> LoopState:
    at = event.at
    match event:
        case LoopStarted():
            return _begun(event)
        case WorkspaceSurveyed():
            surveyed = replace(
                state,
                open=event.open,
                done=event.done,
                agent=event.agent or state.agent,
                notify=event.notify or state.notify,
                features=max(state.features, event.features),
                updated_at=at,
            )
            return opened(surveyed)
        case IterationStarted():
            iteration = Iteration(number=event.number, thread=event.thread, task=event.task, started_at=at)
            return replace(
                state,
                initialized=state.initialized or not event.task,
                count=state.count + 1,
                recent=(*state.recent, iteration)[-RECENT:],
                pauses=0,
                account=begun(state.account, event.number),
                updated_at=at,
            )
        case IterationEnded():
            return _settled(state, event)
        case RunBlocked():
            return replace(state, blocked=Blocked(cause=event.cause, message=event.message), updated_at=at)
        case RunUnblocked():
            return _retried(state, at)
        case RunPaused():
            paused = Steered(by=event.by, reason=event.reason, until=event.until)
            return replace(state, paused=paused, pauses=state.pauses + 1 if state.logged else 0, updated_at=at)
        case RunResumed():
            return replace(state, paused=None, updated_at=at)
        case RunFinished():
            return replace(state, outcome=event.outcome, result=event.result, updated_at=at)
        case RunContinued() | SignalRejected() | RefusalsCounted():
            return state
        case _:
            assert_never(event)


def _begun(event: LoopStarted) -> LoopState:
    limits, at = event.limits, event.at
    if event.before is not None:
        return replace(_STATE.validate_python(event.before), limits=limits)
    return LoopState(
        thread=event.thread,
        task=event.task,
        workspace=event.workspace,
        count_limit=limits.iterations,
        cost_limit=limits.cost,
        deadline=at + timedelta(seconds=limits.seconds) if limits.seconds else None,
        limits=limits,
        updated_at=at,
    )


def _settled(state: LoopState, event: IterationEnded) -> LoopState:
    current = state.current
    assert current is not None
    before = state.recent[-2] if len(state.recent) > 1 else None
    again = before is not None and before.task == current.task
    failed = event.outcome == "failed"
    known = state.cost is not None and event.cost is not None
    ended = Iteration(
        number=current.number,
        thread=current.thread,
        task=current.task,
        started_at=current.started_at,
        outcome=event.outcome,
        explanation=event.explanation[:WORDS],
        commits=event.commits,
        cost=event.cost,
    )
    return replace(
        state,
        recent=(*state.recent[:-1], ended),
        failures=(state.failures if again else 0) + 1 if failed else 0,
        usage=state.usage + event.usage,
        cost=(state.cost or 0) + (event.cost or 0) if known else None,
        account=settled(state.account, event),
        updated_at=event.at,
    )


def _retried(state: LoopState, at: datetime) -> LoopState:
    """Unblock the loop, and grant the same amount again of each limit that it has reached."""
    limits = state.limits
    retried = replace(state, blocked=None, failures=0, initialized=False, updated_at=at)
    if state.count >= state.count_limit:
        retried = replace(retried, count_limit=state.count + limits.iterations)
    if limits.seconds and state.deadline and at >= state.deadline:
        retried = replace(retried, deadline=at + timedelta(seconds=limits.seconds))
    if state.account.limits:
        return replace(retried, account=grant_again(state.account, limits))
    if limits.cost and (state.cost is None or state.cost >= (state.cost_limit or 0)):
        cost = state.cost or 0.0
        retried = replace(retried, cost_limit=cost + limits.cost, cost=cost)
    return retried
