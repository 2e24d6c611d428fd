"""Unattended runs: a run that would wait for a person fails instead, with the cause. Pure functions.

1. Nobody is asked to approve. A call that requires approval ends as denied, and its run is blocked: no decision, no
   expiry and no `retry` can let it run.
2. A blocked run fails. Before that, its running tools end, and its sub-agents and the tasks of foreign servers are
   cancelled; nothing else starts.
3. A call whose outcome is unknown is kept for a person: the run stays open until its request is decided. A sub-agent
   that ends because the run above it does keeps it, too; a cancellation by anybody else ends it as unknown.
4. A pause by a person and the waits of a dormant agent are no blocks.
"""

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.authority.policy import Verdict
from holdfast.core.base.text import one_line
from holdfast.core.log import events as ev
from holdfast.core.run.state.next_actions import Fail, StartCalls, Wait
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import PastEffect, words_of

APPROVAL_REQUIRED = "ApprovalRequired"
"""The cause of the block of an unattended run that made a call that requires approval."""

NAMED_CALLS = 5
"""Maximum number of calls that the message of a block names."""

RULE_CHARS = 200
"""Characters of each rule's label in that message."""

_ENDED = "The run failed before this was done."


def deny_unasked(number: int, verdict: Verdict, past: PastEffect | None) -> ev.ToolCallFinished:
    """Return the end of a call that requires approval, in a run in which nobody is asked."""
    content = f"Not called: it requires approval ({one_line(verdict.rule, RULE_CHARS)}), and this run is unattended"
    return ev.ToolCallFinished(number=number, status="denied", content=words_of(content, past))


def block_unasked(unasked: Sequence[tuple[int, str, Verdict]]) -> ev.RunBlocked:
    """Return the block of a run whose calls require approval.

    Args:
        unasked: The number, the tool and the verdict of each of them; at least one.
    """
    named = [f"call {n} ({tool}: {one_line(verdict.rule, RULE_CHARS)})" for n, tool, verdict in unasked[:NAMED_CALLS]]
    more = f" and {len(unasked) - NAMED_CALLS} more" if len(unasked) > NAMED_CALLS else ""
    which = f"{', '.join(named)}{more}"
    require = "requires" if len(unasked) == 1 else "require"
    message = f"{which} {require} approval, and the run is unattended: allow this in the policy, or start it attended"
    return ev.RunBlocked(cause=APPROVAL_REQUIRED, message=message)


def next_of_failing(state: RunState, *, at: datetime) -> StartCalls | Wait | Fail:
    """Return the next action of a blocked run that is unattended: the end, as soon as all effects are accounted for.

    Of the calls that could start, only those of the run itself do, and those that undo an effect at a person's request.
    """
    last = [call.number for call in state.calls.current if call.phase == "allowed" and (call.own or call.undo)]
    if starts := tuple(number for number in state.calls.startable(at) if number in last):
        return StartCalls(starts)
    tasks = {wait.number for wait in state.dormancy.waits if wait.for_task}  # they are cancelled
    running = (call.number for call in state.calls.current if call.phase == "started" and call.number not in tasks)
    under_way = not all(map(state.carries_out, running))
    return Wait() if under_way or is_in_doubt(state) or last else Fail()


def is_in_doubt(state: RunState) -> bool:
    """Return whether people are asked about the outcome of a call."""
    return any(call.phase == "outcome_unknown" for call in state.calls.current)


def on_failing(state: RunState) -> list[ev.AgentEvent]:
    """Return the events that fail a blocked run: the ends of its open calls, and its own."""
    assert state.blocked is not None
    ends: list[ev.AgentEvent] = [
        ev.ToolCallFinished(number=call.number, status="cancelled", content=words_of(_ENDED, call.past))
        for call in state.calls.current
        if call.phase != "finished"
    ]
    return [*ends, ev.RunFinished(outcome="failed", cause=state.blocked.cause, result=state.blocked.message)]
