"""Follow a task of a foreign server until it ends. Pure functions over the run's state.

1. A poll is an ordinary activity that reads the task's state. While it cannot be read, the run keeps trying: neither an
   outage nor weeks of work end the wait.
2. The delay begins with the server's interval, and grows by a tenth with each poll without news, up to the ceiling of
   all polls. So the end of a task is noticed after about a tenth of the time that it took.
3. A task that ended without a result may have had an effect: people are asked, as about any call.
4. An unattended run that fails, or whose parent does, cancels its tasks first. They may have had their effects all the
   same, and the server may refuse, so people are asked what became of them. A run that somebody cancels asks nobody.
"""

from datetime import datetime, timedelta
from typing import Final

from holdfast.core.agents.agent import Limits
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.decide.reactions import on_outcome
from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay
from holdfast.core.run.state.dormancy import Wait
from holdfast.core.run.state.features import SIGNED_RESULTS
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.foreign_waits import block_on_question
from holdfast.core.run.waits.polling import NEWS, digest_of_result
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.triggers import TaskTrigger

CANCELLED: Final = "Its task was cancelled, because the run failed."
"""The text of the outcome of a call whose task is cancelled."""
GROWTH: Final = 1.1
"""Factor of the delay after a poll without news."""


def on_task_poll(state: RunState, number: int, outcome: ToolOutcome, *, poll: int, at: datetime) -> list[ev.AgentEvent]:
    """Return the events that follow from a poll of a task; none if its wait has ended.

    Args:
        state: The state before.
        number: The number of the call that continues as the task.
        outcome: The outcome of the poll.
        poll: The number of the poll.
        at: Now.
    """
    wait = state.dormancy.find(number)
    if wait is None or wait.polls is None or poll != wait.polls.count + 1:
        return []
    polled = task_poll_event(state, wait, outcome, seen=digest_of_result(outcome.content), at=at)
    if not _ends(outcome):
        return [polled]
    if outcome.question and state.unattended:  # nobody answers, so the run fails, and cancels the task
        return [polled, block_on_question(state.calls.get(number))]
    last = outcome.model_copy(update={"task": None, "signed": ""})
    if outcome.status in ("invalid", "cannot"):
        reads = _effect(state, number) is Effect.READ
        last = last.model_copy(update={"status": "failed" if reads else "unknown", "scope": None, "until": None})
    return [polled.model_copy(update={"again": None}), *on_outcome(state, number, last, at=at)]


def on_cancelled_tasks(state: RunState, *, at: datetime) -> list[ev.AgentEvent]:
    """Return the ends of the calls whose tasks were cancelled: people are asked about those with an effect."""
    events: list[ev.AgentEvent] = []
    for number in (wait.number for wait in state.dormancy.waits if wait.for_task):
        if _effect(state, number) is Effect.READ:
            ended = ToolOutcome(status="cancelled", content=CANCELLED)
        else:
            ended = ToolOutcome(status="unknown", content=f"{CANCELLED} The server may have carried it out before.")
        events += on_outcome(state, number, ended, at=at)
    return events


def task_poll_event(state: RunState, wait: Wait, outcome: ToolOutcome, *, seen: str, at: datetime) -> ev.WaitPolled:
    """Return the event that records a poll after which the wait continues."""
    assert isinstance(wait.trigger, TaskTrigger)
    assert wait.polls is not None
    polls, interval = wait.polls, outcome.task.interval if outcome.task else wait.trigger.interval
    limits = state.spec.limits if state.spec else Limits()
    pace = Pace(start=interval, ceiling=max(interval, limits.poll_ceiling), growth=GROWTH)
    result = _kind_of(wait, outcome, seen=seen)
    outcomes = (PollOutcome("news", polls.delay), PollOutcome(result, outcome.duration_ms / 1_000))
    return ev.WaitPolled(
        number=wait.number,
        poll=polls.count + 1,
        status=outcome.status,
        result=result,
        seen=seen,
        duration_ms=outcome.duration_ms,
        again=at + timedelta(seconds=next_delay(outcomes, pace)),
        signed=outcome.signed if state.features >= SIGNED_RESULTS else "",
        interval=outcome.task.interval if outcome.task else 0,
    )


def _kind_of(wait: Wait, outcome: ToolOutcome, *, seen: str) -> ev.PollKind:
    assert wait.polls is not None
    if outcome.task_ended:
        return "error"
    if outcome.status == "ok":
        return "news" if seen != wait.polls.last and wait.polls.news < NEWS else "same"
    return "timeout" if outcome.cause == "timeout" else "no_response"


def _ends(outcome: ToolOutcome) -> bool:
    """Return whether a poll ends the wait: the task has ended, or asks people."""
    if outcome.task:
        return False
    return (
        outcome.status in ("ok", "unknown", "invalid", "cannot") or outcome.task_ended or outcome.question is not None
    )


def _effect(state: RunState, number: int) -> Effect:
    tool = state.spec.tool(state.calls.get(number).call.name) if state.spec else None
    return tool.effect if tool else Effect.UNSAFE
