"""The pacing of calls by recorded outcomes: a tool that does not answer is called less often. Pure functions over the
run's state.

1. A time-out, a broken connection and a lost worker are no answer. An error is an answer, however short: the other side
   is there, and reading the error is the LLM's task.
2. From `Limits.unanswered_slowed` steps in a row without an answer on, the next call of the tool starts later, with any
   arguments: by at least as long as the last call took, and longer each time
   (`holdfast.core.run.rules.backoff`).
3. A partial answer, and one that took more than half of the tool's time limit, halves the delay. Any other ends it.
4. The delay counts from the outcome, so time in which the agent does something else counts, too. A person's message
   ends it for the call that waits, as with repeated calls (`holdfast.core.run.rules.loop_guard`).
"""

from datetime import datetime, timedelta

from holdfast.core.authority.policy import Verdict
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay
from holdfast.core.run.state.features import PACES_CALLS
from holdfast.core.run.state.pacing import MAX_COUNT, Pacing, Unanswered
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.spec import ToolSpec

PACE = Pace(start=2, ceiling=300)
"""How the delays of calls without an answer grow: at least 2 s, 6 s, 18 s, … 5 min."""

UNANSWERED = ("timeout", "connection", "no_response")
"""The causes of failures that are no answer."""


def count_answer(state: RunState, event: ToolCallFinished) -> Pacing:
    """Return the pacing after a call has ended.

    Args:
        state: The state before.
        event: The end of the call.
    """
    call = state.calls.get(event.number)
    tool = state.spec.tool(call.call.name) if state.spec else None
    if state.features < PACES_CALLS or tool is None or tool.kind != "activity" or call.own:
        return state.pacing
    if event.cause in UNANSWERED:
        return _without_answer(state, tool, event)
    if event.status not in ("ok", "failed", "cannot"):
        return state.pacing  # the tool was not called, or nobody knows whether it answered
    before = state.pacing.find(tool.name)
    if before is None or not (event.missing or event.duration_ms > 500 * tool.timeout):
        return state.pacing.remove(tool.name)
    delay = next_delay([PollOutcome("news", before.delay), PollOutcome("partial")], PACE) if before.delay else 0
    return state.pacing.put(before.model_copy(update={"delay": delay, "until": _after(event, delay)}))


def _without_answer(state: RunState, tool: ToolSpec, event: ToolCallFinished) -> Pacing:
    before, step = state.pacing.find(tool.name), state.steps.count
    if before and before.step == step:
        return state.pacing  # side by side with one that has counted
    count = min(before.count + 1, MAX_COUNT) if before else 1
    limit = state.spec.limits.unanswered_slowed if state.spec else 0
    delay = 0.0
    if limit and count >= limit:
        last = PollOutcome("timeout", event.duration_ms / 1_000)
        earlier = [PollOutcome("news", before.delay)] if before and before.delay else []
        delay = next_delay([*earlier, last], PACE) if earlier else max(PACE.start, min(last.seconds, PACE.ceiling))
    entry = Unanswered(tool=tool.name, count=count, step=step, delay=delay, until=_after(event, delay))
    return state.pacing.put(entry)


def pace_of(state: RunState, call: ToolCall, verdict: Verdict, *, at: datetime) -> tuple[int, float]:
    """Return for how many steps in a row the tool of an allowed call has not answered, and the call's delay in seconds;
    zeros for no delay.
    """
    entry = state.pacing.find(call.name) if state.pacing.tools else None
    if verdict.verdict != "allow" or entry is None or entry.until is None or entry.until <= at:
        return 0, 0
    return entry.count, (entry.until - at).total_seconds()


def _after(event: ToolCallFinished, delay: float) -> datetime | None:
    return event.at + timedelta(seconds=delay) if delay else None
