"""Allowances: the parts of a run's budget that its sub-agents receive. Pure functions over the run's state.

1. A sub-agent of a run with a budget starts with an allowance, which is recorded as reserved before the start is
   requested. Its own account enforces the allowance, and shares it out to the sub-agents below. So concurrent
   sub-agents never spend more than is left, and the budget at the root bounds the whole tree.
2. Each call of the step that waits for a start gets an equal share. Before that, the run keeps enough for its own next
   call and the last one after it, with the results of all calls that the step waits for, so that it can always return a
   partial result. If a sub-agent starts in the background, the run itself counts as one more, because it continues
   meanwhile.
3. If there is not `least_share` for each of them, fewer start. While the step waits for sub-agents anyway, the others
   wait for the unspent parts of those allowances; otherwise their calls end.
4. Time is not shared out: a sub-agent has at most the time that the run has left, and the run's own clock keeps running
   while it waits for sub-agents.
5. After a reset, a run may find an existing sub-agent whose allowance differs from the amount reserved for it now. The
   reservation is raised to that allowance. If there is no room for that, the call ends, and the sub-agent is
   cancelled: so sub-agents that survive a reset stay within the budget, too.
6. A sub-agent that uses up its allowance makes its last call and then ends: it returns a partial result.
"""

from collections.abc import Sequence

from holdfast.core.budget.account import Cost
from holdfast.core.budget.budget import MICRO, Budget
from holdfast.core.budget.tree import SHARED, allowance_name, covering
from holdfast.core.llm.tokens import tokens_of
from holdfast.core.log.events import BudgetReserved
from holdfast.core.run.rules.budget import NOTICE_TOKENS, call_cost, closing_reserve, reply_tokens, result_tokens
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.subagents import RUN_AGENT, read_run_agent

TOO_SMALL = "the budget of this run has no room for another agent; do the rest yourself, or hand in what you have"
"""The result of a call that starts no sub-agent, because the budget has no room for one."""

TOO_LARGE = (
    "this agent was started before this run was reset, with a larger share of the budget than is left now; it is "
    "cancelled. Call this again to start another one"
)
"""The result of a call whose sub-agent, started before a reset, no longer fits the budget."""


def kept_by_run(state: RunState) -> Cost:
    """Return the cost that a run keeps for itself: its next call and the last one, after the results of the step."""
    awaited = sum(call.phase != "finished" for call in state.calls.current)
    results = state.account.cost_of(request=2 * awaited * result_tokens(state), reply=0, steps=0)
    return call_cost(state) + closing_reserve(state) + results


def least_share(state: RunState, waiting: Sequence[CallState]) -> Cost:
    """Return the smallest useful allowance: one call and the last one, with replies as long as this run's."""
    tasks = [started.task for call in waiting if (started := read_run_agent(call.call))]
    request = max(map(tokens_of, tasks), default=0) + NOTICE_TOKENS
    return state.account.cost_of(request=2 * request, reply=2 * reply_tokens(state), steps=2)


def allowances(state: RunState, waiting: Sequence[CallState], *, room: int) -> list[BudgetReserved]:
    """Return the events that reserve the allowances of the next sub-agents; none if the budget has no room.

    Args:
        state: The state before.
        waiting: The calls that wait for a start and have no allowance.
        room: How many sub-agents may start besides those with an allowance.
    """
    account, kept, least = state.account, kept_by_run(state), least_share(state, waiting)
    shared = [name for name in SHARED if name in account.limits]
    free = {name: max(0, account.left(name) - kept.of(name)) for name in shared}
    arguments = [read_run_agent(call.call) for call in waiting]
    own = int(any(each.background for each in arguments if each))
    fits = min((free[name] // max(1, least.of(name)) for name in shared), default=len(waiting) + own)
    count = min(len(waiting), fits - own)
    if count < 1 or ("seconds" in account.limits and account.left("seconds") - kept.seconds < MICRO):
        return []
    share = Cost(**{name: free[name] // (count + own) for name in shared})
    return [
        BudgetReserved(steps=share.steps, tokens=share.tokens, nano_usd=share.usd, call=call.number)
        for call in waiting[: max(0, min(count, room))]
    ]


def on_existing_subagent(state: RunState, number: int, allowance: Budget | None) -> list[BudgetReserved] | None:
    """Return the events that reserve the allowance of an existing sub-agent; None if there is no room.

    Args:
        state: The state before.
        number: The number of the call.
        allowance: The allowance that it was started with.
    """
    account, name = state.account, allowance_name(number)
    if not account.limits or name not in account.reserved:
        return []
    cost = covering(account, number, allowance)
    if cost is None or account.settle(name, Cost()).short_of_more_than_time(cost):
        return None
    if cost == account.reserved[name]:
        return []
    return [BudgetReserved(steps=cost.steps, tokens=cost.tokens, nano_usd=cost.usd, call=number)]


def share_may_return(state: RunState) -> bool:
    """Return whether the step waits for a sub-agent with an allowance, whose unspent part will return."""
    started = (call.number for call in state.calls.current if call.phase == "started" and call.call.name == RUN_AGENT)
    return any(allowance_name(number) in state.account.reserved for number in started)
