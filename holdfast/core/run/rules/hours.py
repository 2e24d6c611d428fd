"""Hours in policies (`later`): a call that may run starts when they begin. Pure functions over the run's state.

1. The hours are compared with the run's clock when the call is about to start, so an approval at night counts, and
   starts the call in the morning. Each policy that judges the run has its say; the hours that begin last count.
2. While it only waits for hours, the run is dormant, with one timer. When they begin, it looks again.
3. A message ends the wait: the LLM reads it, and may make the call again. Nobody can start the call earlier.
4. Undoing an effect is never postponed. Calls at the end of a run are denied instead, because the end does not wait.
5. A call that polls another waits for the hours of both; once it sleeps, its polls do not.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.authority.policy import Policy, postponement
from holdfast.core.log import events as ev
from holdfast.core.run.rules.verdicts import tool_use
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import words_of
from holdfast.core.tools.spec import FINAL_RESULT
from holdfast.core.tools.triggers import clock


def postpone_call(
    state: RunState, call: CallState, policies: Sequence[Policy], *, at: datetime
) -> ev.ToolCallPostponed | ev.ToolCallFinished | None:
    """Return the event that postpones an allowed call, or ends it if it cannot wait; None if it may start now.

    Args:
        state: The state before.
        call: The call.
        policies: The policies of the run that have hours.
        at: Now.
    """
    if call.undo or state.spec is None or call.call.name == FINAL_RESULT:
        return None
    uses = [use for each in state.spec.calls_of(call.call) if (use := tool_use(state, each))]
    found = [
        later for policy in policies for use in uses if (later := postponement(policy, use, at=at, zones=state.zones))
    ]
    if not found:
        return None
    last = max(found, key=lambda each: (each.until is None, each.until or at))
    reason = f": {last.reason}" if last.reason else ""
    if last.until is None:
        why = f"the time zone of these hours is unknown to the run ({last.rule}){reason}"
    elif call.own or state.ending.learning or state.account.closing:
        why = f"it may start at {clock(last.until)} ({last.rule}){reason}, and the run ends now"
    else:
        return ev.ToolCallPostponed(number=call.number, rule=last.rule, reason=last.reason, until=last.until)
    content = words_of(f"{call.feedback}Denied by policy: {why}", call.past)
    return ev.ToolCallFinished(number=call.number, status="denied", content=content)


def on_arrival_while_postponed(state: RunState, what: str) -> list[ev.AgentEvent]:
    """Return the events that end the calls that wait for hours because a person's text (`what`: `a message`) was
    accepted.
    """
    ended = [(call.number, words_of(_not_called(call, what), call.past)) for call in state.calls.postponed]
    return [ev.ToolCallFinished(number=number, status="cancelled", content=why) for number, why in ended]


def _not_called(call: CallState, what: str) -> str:
    start = f"it was to start at {clock(call.starts_at)} ({call.postponed})" if call.starts_at else "it was postponed"
    return f"Not called: {start}, and {what} has arrived, which follows. Call it again if it is still to be made."
