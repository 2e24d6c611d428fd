"""The loop guard: the same call with the same result, again and again. Pure functions over the run's state.

1. First the call starts later and later, then the LLM is told with each result, then people are asked
   (`Limits.repeats_slowed`, `repeats_told`, `repeats_asked`). The rule for counting is in
   `holdfast.core.run.state.repeats`.
2. The guard only ever restricts. What the policy denies stays denied. A remembered rule lifts the policy's question,
   which is whether the call may run; it does not say that it may run for ever, so it does not lift the guard's.
3. A person's message, `retry`, and an approval of the guard's question let the same number of repeats follow. After a
   denial, the call is denied without another question until something new happens.
4. A refused call that is repeated costs an LLM call each time and does nothing: the LLM is told, and then the run is
   blocked, for there is nothing that a person could approve.
"""

from itertools import repeat

from holdfast.core.authority.policy import Verdict
from holdfast.core.authority.summaries import describe_call
from holdfast.core.base.canonical import digest
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay
from holdfast.core.run.rules.policies import asked_of_all
from holdfast.core.run.state.features import LOOP_GUARD
from holdfast.core.run.state.next_actions import Block
from holdfast.core.run.state.repeats import Repeats, short
from holdfast.core.run.state.state import RunState

RULE = "repeated call"
"""The rule of the guard's own verdicts."""

PACE = Pace(start=2, ceiling=300, growth=2)
"""How the delays of a repeated call grow: 2 s, 4 s, 8 s, … 5 min."""

_RAN = ("ok", "failed", "undone", "answered")
_REFUSED = ("invalid", "denied")


def counted(state: RunState, event: ToolCallFinished) -> Repeats:
    """Return the counts after a call has ended.

    An unknown outcome, a call that was stopped, and a call of the run's own count as nothing.

    Args:
        state: The state before.
        event: The end of the call.
    """
    refused = event.status in _REFUSED or (event.status == "cannot" and event.scope is None)
    call = state.calls.get(event.number)
    if state.features < LOOP_GUARD or call.own or not (refused or event.status in (*_RAN, "cannot")):
        return state.repeats
    content = event.content if isinstance(event.content, str) else [block.model_dump() for block in event.content]
    if state.carries_out(event.number) and not state.dormancy.waits_of(event.number):
        content = ""  # the call did not sleep, and its result tells the time: nothing new
    result = digest(["result/1", event.status, content])
    return state.repeats.add(call.call.digest, result, refused=refused)


def told(state: RunState, event: ToolCallFinished) -> int:
    """Return how often a call has now ended in the same way, where the LLM is told that; else 0.

    Args:
        state: The state before.
        event: The end of the call.
    """
    limit = state.spec.limits.repeats_told if state.spec else 0
    if not limit or (limit > 1 and not state.repeats.reaches(state.calls.get(event.number).call.digest, limit - 1)):
        return 0  # without its result's digest, which takes longer
    after = counted(state, event)
    return 0 if after is state.repeats or after.latest().count < limit else after.latest().count


def noted(state: RunState, event: ToolCallFinished) -> ToolCallFinished:
    """Return the event with `repeats` set if the LLM is told that the call repeats itself.

    Args:
        state: The state before.
        event: As it is about to be recorded.
    """
    count = told(state, event)
    return event.model_copy(update={"repeats": count}) if count else event


def guarded(state: RunState, call: ToolCall, verdict: Verdict) -> Verdict:
    """Return the verdict on a call, which is `ask` where it has repeated itself too often to be allowed.

    Args:
        state: The run's.
        call: The call.
        verdict: That of the policy and of remembered rules.
    """
    spec, count = state.spec, state.repeats.count(call.digest)
    limit = spec.limits.repeats_asked if spec else 0
    if spec is None or verdict.verdict == "deny" or not limit or count < limit:
        return verdict
    if state.repeats.is_denied(call.digest):
        reason = "people denied this call because it repeats itself, and nothing new has come since"
        return Verdict(verdict="deny", rule=RULE, reason=reason)
    reason = f"the same call has had the same result {count:,} times, and nothing new came in between"
    if verdict.verdict == "ask":
        return verdict.model_copy(update={"reason": f"{verdict.reason or verdict.rule}; {reason}"})
    asks = asked_of_all(state, rule=RULE, reason=reason)
    if verdict.remembered:
        asks = asks.model_copy(update={"terms": verdict.terms, "requirements": verdict.requirements})
    return asks.denied_on_expiry()  # only a person may let it continue: where nobody answers, it stops


def delay_of(state: RunState, call: ToolCall, verdict: Verdict) -> tuple[int, float]:
    """Return how often an allowed call repeats itself, and the seconds by which it starts later; zeros for none."""
    limit, count = state.spec.limits.repeats_slowed if state.spec else 0, state.repeats.count(call.digest)
    if verdict.verdict != "allow" or not limit or count < limit:
        return 0, 0
    return count, next_delay(repeat(PollOutcome("same"), count - limit), PACE)


def refusals_block(state: RunState) -> Block | None:
    """Return the block of a run whose LLM repeats a refused call; None while it may continue."""
    limit, refusal = state.spec.limits.repeats_asked if state.spec else 0, state.repeats.refusal
    if refusal is None or not limit or refusal.count < limit:
        return None
    made = (each.call for each in state.calls.current if short(each.call.digest) == refusal.call)
    what = next((one_line(describe_call(call), 200) for call in made), "a call")
    why = f"the LLM has made {what} {refusal.count:,} times, each time it was refused for the same reason"
    return Block("RefusedAgain", f"{why}, and nothing new came in between; `retry` allows as many again")
