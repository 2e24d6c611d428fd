"""Poll for a change: repeat a read-only call, with growing delays, until its result fulfils a condition. Pure functions
over the run's state.

1. The polled call is judged together with the call of `check_back` or `wait_for_run`; the stricter verdict counts
   (`holdfast.core.run.rules.verdicts`), and each poll makes exactly the judged call.
2. A poll is an ordinary activity with its own outcome. Failures are outcomes, too: a wait ends after `FAILURES` of them
   in a row, or when the tool reports that the call cannot be done.
3. The condition is evaluated here, on the recorded result. The LLM reads only the last result.
4. At its time `until`, a wait makes a last poll and ends with it.
5. Polls are paced (`holdfast.core.run.rules.backoff`), and only the first `NEWS` changes of the result count as news.
   So with the default limits, a wait of three weeks makes at most 6,600 polls of about 400 bytes each in the log: one
   every five minutes, and some more after each change.
6. No poll starts while a person has paused the run. After the wait has ended, the answer of a poll that is still under
   way is ignored.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.base.canonical import digest, parsed
from holdfast.core.base.durations import rounded_span
from holdfast.core.llm.blocks import Content, ToolCall, text_of, with_heading
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay
from holdfast.core.run.rules.constraints import constraint_on, constraint_result
from holdfast.core.run.state.dormancy import Polls, Wait
from holdfast.core.run.state.features import OUTCOME_KINDS, SIGNED_RESULTS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.failures import FailureKind
from holdfast.core.tools.triggers import PollTrigger, clock, read_trigger
from holdfast.core.trust import Trust, least

FAILURES = 5
"""Number of failed polls in a row that end a wait."""

NEWS = 20
"""Maximum number of changes of the result that reset the delay. A result that contains the time of day changes at every
poll."""

_KINDS: Mapping[FailureKind, ev.PollKind] = {
    "timeout": "timeout",
    "connection": "no_response",
    "no_response": "no_response",
    "error": "error",
}


def call_problem(spec: AgentSpec, call: ToolCall, *, at: datetime) -> str:
    """Return why the run cannot make the polls that this call requests; empty if it can, or if the call requests none.

    Args:
        spec: The agent.
        call: A call of any tool.
        at: Now.
    """
    own = spec.tool(call.name)
    if own is None or own.kind != "runtime" or call.name not in ("check_back", "wait_for_run"):
        return ""
    arguments = parsed(call.arguments)
    trigger = read_trigger(call.name, arguments if isinstance(arguments, dict) else {}, at=at)
    return trigger if isinstance(trigger, str) else poll_problem(spec, trigger)


def poll_problem(spec: AgentSpec, trigger: object) -> str:
    """Return why the run cannot poll for this trigger; empty if it can, or if the trigger needs no polls."""
    if not isinstance(trigger, PollTrigger):
        return ""
    tool = spec.tool(trigger.tool)
    if tool is None:
        return f"tool: there is no tool named {trigger.tool[:64]!r}"
    if tool.kind == "runtime":
        return f"tool: {tool.name} sleeps itself: call it directly"
    if tool.effect is not Effect.READ:
        return f"tool: {tool.name} is not read-only (its effect is {tool.effect}), so it is not called again and again"
    return ""


def due_polls(state: RunState, *, at: datetime) -> tuple[int, ...]:
    """Return the numbers of the calls whose poll is due, or whose wait a constraint ends."""
    return tuple(
        wait.number
        for wait in state.dormancy.waits
        if wait.polls and (wait.polls.again <= at or refuse_poll(state, wait, at=at))
    )


def refuse_poll(state: RunState, wait: Wait, *, at: datetime) -> ev.ToolCallFinished | None:
    """Return the event that ends a wait because of a later constraint; None if there is none. None ends a task that is
    under way.
    """
    if wait.for_task:
        return None
    constraint = constraint_on(state, state.calls.get(wait.number).call, at=at)
    return constraint_result(wait.number, constraint, None) if constraint else None


def on_poll(state: RunState, number: int, outcome: ToolOutcome, *, poll: int, at: datetime) -> list[ev.AgentEvent]:
    """Return the events that follow from the outcome of a poll; none if its wait has ended.

    Args:
        state: The state before.
        number: The number of the call that sleeps.
        outcome: The outcome of the polled call.
        poll: The number of the poll.
        at: Now.
    """
    wait = state.dormancy.find(number)
    if wait is None or wait.polls is None or poll != wait.polls.count + 1:
        return []
    seen = digest_of_result(outcome.content)
    head = _end(wait, wait.polls, outcome, seen=seen, at=at)
    polled = poll_event(state, wait, outcome, seen=seen, at=at)
    if head is None:
        return [polled]
    status, words = head
    note = state.calls.get(number).people_note
    ended = ev.ToolCallFinished(
        number=number,
        status=status,
        content=with_heading(note + words, outcome.content) if words else outcome.content,
        artifact=outcome.artifact,
        size=outcome.size,
        trust=outcome.trust or _trust(state, wait, outcome.status),
        scope=outcome.scope if status == "cannot" else None,
        until=outcome.until if status == "cannot" else None,
        missing=outcome.missing,
        cause=outcome.cause if state.features >= OUTCOME_KINDS else None,
    )
    return [polled.model_copy(update={"again": None}), ended]


def poll_event(state: RunState, wait: Wait, outcome: ToolOutcome, *, seen: str, at: datetime) -> ev.WaitPolled:
    """Return the event that records a poll after which the wait continues."""
    assert wait.polls is not None
    polls, seconds = wait.polls, outcome.duration_ms / 1_000
    result = _kind_of(state, wait, outcome, seen=seen)
    limits = state.spec.limits if state.spec else Limits()
    pace = Pace(start=limits.poll_seconds, ceiling=max(limits.poll_seconds, limits.poll_ceiling))
    # News after the last delay yields the same delay, so this one outcome replaces all earlier ones.
    outcomes = (PollOutcome("news", polls.delay), PollOutcome(result, seconds))
    remaining = (wait.until - at).total_seconds() if wait.until else None
    return ev.WaitPolled(
        number=wait.number,
        poll=polls.count + 1,
        status=outcome.status,
        result=result,
        seen=seen,
        duration_ms=outcome.duration_ms,
        again=at + timedelta(seconds=next_delay(outcomes, pace, remaining=remaining)),
        signed=outcome.signed if state.features >= SIGNED_RESULTS else "",
    )


def _kind_of(state: RunState, wait: Wait, outcome: ToolOutcome, *, seen: str) -> ev.PollKind:
    """Return how a poll ended, which determines the time of the next one."""
    assert isinstance(wait.trigger, PollTrigger)
    assert wait.polls is not None
    if outcome.status == "ok" and outcome.missing:
        return "partial"
    if outcome.status == "ok":
        return "news" if seen != wait.polls.last and wait.polls.news < NEWS else "same"
    if state.features >= OUTCOME_KINDS and outcome.cause:
        return _KINDS[outcome.cause]
    tool, seconds = state.spec.tool(wait.trigger.tool) if state.spec else None, outcome.duration_ms / 1_000
    return "timeout" if tool and seconds >= tool.timeout else "no_response"


def ends_unfulfilled(wait: Wait, status: ev.ToolStatus, *, at: datetime) -> bool:
    """Return whether a poll with that status ends the wait regardless of its result."""
    assert wait.polls is not None
    failed = status != "ok" and wait.polls.failures + 1 >= FAILURES
    return failed or status in ("cannot", "invalid") or (wait.until is not None and wait.until <= at)


def digest_of_result(content: Content) -> str:
    """Return the digest of a result, for the comparison of polls."""
    parts: Any = content if isinstance(content, str) else [block.model_dump_json() for block in content]
    return digest(["poll/1", parts])


def without_heading(content: Content, note: str) -> Content:
    """Return the poll's own result, from the content of the call that it ended.

    Args:
        content: The content of the call's `tool_call_finished`.
        note: The note before the heading, about arguments that a person had changed.
    """
    if not isinstance(content, str):
        return content[1:]
    return content.removeprefix(note).partition("\n")[2]


def _end(
    wait: Wait, polls: Polls, outcome: ToolOutcome, *, seen: str, at: datetime
) -> tuple[ev.ToolStatus, str] | None:
    """Return the status and the heading of a result that ends the wait; None if it continues."""
    assert isinstance(wait.trigger, PollTrigger)
    condition, looks = wait.trigger.condition, f"{polls.count + 1:,} look{'s' if polls.count else ''}"
    slept, now = rounded_span((at - wait.since).total_seconds()), f"It is now {clock(at)}."
    if outcome.status in ("cannot", "invalid"):
        return outcome.status, ""
    if outcome.status == "ok" and outcome.size and condition.needs_all:
        why = f"the result has {outcome.size:,} bytes, and the log has only its beginning and its end"
        instead = "Use `contains` or `changes`, or arguments that lead to a shorter result."
        return "failed", f"Your condition cannot be evaluated: {why}. {instead} {now}\n"
    changed = bool(polls.first) and seen != polls.first
    # The missing part may hold the text that the result lacks, and is itself a difference from a complete result.
    undecided = bool(outcome.missing) and (bool(condition.lacks) or condition.changes)
    if outcome.status == "ok" and not undecided and condition.fulfilled_by(text_of(outcome.content), changed=changed):
        return "ok", f"Your condition was met after {slept}, in {looks}. {now} The result:\n"
    if not ends_unfulfilled(wait, outcome.status, at=at):
        return None
    if outcome.status == "ok":
        return "ok", f"Your condition was not met within {slept}, in {looks}. {now} The last result:\n"
    failures = polls.failures + 1
    rows = f"the last {failures} looks failed" if failures > 1 else "the last look failed"
    return "failed", f"Your condition was not met: {rows}, of {looks} in {slept}. {now} The last failure:\n"


def _trust(state: RunState, wait: Wait, status: ev.ToolStatus) -> Trust:
    """Return the trust level of a result: that of the tool; for a failure, which may quote any text, at most `tool`."""
    assert isinstance(wait.trigger, PollTrigger)
    tool = state.spec.tool(wait.trigger.tool) if state.spec else None
    trust: Trust = tool.trust if tool else "web"
    return trust if status == "ok" else least(trust, "tool")
