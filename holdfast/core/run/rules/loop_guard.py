"""The loop guard: the same call with the same result, again and again. Pure functions over the run's state.

1. At first the call is delayed more and more, then a notice to the LLM comes with each result, then people are asked
   (`Limits.repeats_slowed`, `repeats_warned`, `repeats_asked`). The rule for counting is in
   `holdfast.core.run.state.progress`.
2. The guard only ever restricts: a call that the policy denies stays denied. A remembered rule answers the policy's
   question, whether the call may run, but not the guard's, whether it may run again and again.
3. After a person's message, `retry`, or an approval of the guard's request, as many repeats may follow again. After a
   denial, the call is denied without another request until something new happens.
4. A repeated call that is refused costs an LLM call each time and has no effect: the LLM gets the notice, and then the
   run is blocked, because there is nothing that a person could approve.
"""

from itertools import repeat

from holdfast.core.authority.policy import Verdict
from holdfast.core.base.canonical import digest
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.rules.authority import ask_all_policies
from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay
from holdfast.core.run.state.features import LOOP_GUARD
from holdfast.core.run.state.next_actions import Block
from holdfast.core.run.state.progress import Repeats, shorten
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import describe_call

RULE = "repeated call"
"""The rule of the guard's own verdicts."""

PACE = Pace(start=2, ceiling=300, growth=2)
"""How the delays of a repeated call grow: 2 s, 4 s, 8 s, … 5 min."""

_RAN = ("ok", "failed", "undone", "answered")
_REFUSED = ("invalid", "denied")


def count_result(state: RunState, event: ToolCallFinished) -> Repeats:
    """Return the counts after a call has ended.

    An unknown outcome, a stopped call and the run's own calls do not count.

    Args:
        state: The state before.
        event: The end of the call.
    """
    refused = event.status in _REFUSED or (event.status == "cannot" and event.scope is None)
    call = state.calls.get(event.number)
    if state.features < LOOP_GUARD or call.own or not (refused or event.status in (*_RAN, "cannot")):
        return state.repeats
    content = event.content if isinstance(event.content, str) else [block.model_dump() for block in event.content]
    if state.carries_out(event.number) and not state.dormancy.is_asleep(event.number):
        content = ""  # the call did not sleep, and its result has the time: nothing new
    result = digest(["result/1", event.status, content, *([event.missing] if event.missing else [])])
    return state.repeats.add(call.call.digest, result, refused=refused)


def repeats_to_report(state: RunState, event: ToolCallFinished) -> int:
    """Return how often a call has now ended in the same way, if the LLM gets a notice of that; else 0.

    Args:
        state: The state before.
        event: The end of the call.
    """
    limit = state.spec.limits.repeats_warned if state.spec else 0
    if not limit or (limit > 1 and not state.repeats.reaches(state.calls.get(event.number).call.digest, limit - 1)):
        return 0  # spares the digest of the result, which takes longer
    after = count_result(state, event)
    return 0 if after is state.repeats or after.latest().count < limit else after.latest().count


def with_repeats(state: RunState, event: ToolCallFinished) -> ToolCallFinished:
    """Return the event with `repeats` set if the LLM gets a notice that the call repeats itself.

    Args:
        state: The state before.
        event: The end of the call, before it is recorded.
    """
    count = repeats_to_report(state, event)
    return event.model_copy(update={"repeats": count}) if count else event


def guard_verdict(state: RunState, call: ToolCall, verdict: Verdict) -> Verdict:
    """Return the verdict on a call: `ask` if it has repeated itself too often to be allowed.

    Args:
        state: The run's state.
        call: The call.
        verdict: The verdict of the policy and of remembered rules.
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
    asks = ask_all_policies(state, rule=RULE, reason=reason)
    if verdict.remembered:
        asks = asks.model_copy(update={"terms": verdict.terms, "requirements": verdict.requirements})
    return asks.denied_on_expiry()  # only a person may let it continue: without an answer, it stops


def delay_of(state: RunState, call: ToolCall, verdict: Verdict) -> tuple[int, float]:
    """Return how often an allowed call has repeated itself, and its delay in seconds; zeros for no delay."""
    limit, count = state.spec.limits.repeats_slowed if state.spec else 0, state.repeats.count(call.digest)
    if verdict.verdict != "allow" or not limit or count < limit:
        return 0, 0
    return count, next_delay(repeat(PollOutcome("same"), count - limit), PACE)


def block_on_refusals(state: RunState) -> Block | None:
    """Return the block of a run whose LLM repeats a refused call; None while it may continue."""
    limit, refusal = state.spec.limits.repeats_asked if state.spec else 0, state.repeats.refusal
    if refusal is None or not limit or refusal.count < limit:
        return None
    made = (each.call for each in state.calls.current if shorten(each.call.digest) == refusal.call)
    described = next((one_line(describe_call(call), 200) for call in made), "a call")
    why = f"the LLM has made {described} {refusal.count:,} times, each time it was refused for the same reason"
    return Block("RefusedAgain", f"{why}, and nothing new came in between; `retry` allows as many again")
