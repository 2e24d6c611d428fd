"""Compare the logs of a tree of runs with each other and with the outside world. Pure.

No sub-agent is lost or started twice, no result is lost or changed, no effect happens twice, and every account is the
exact sum of the run's own LLM calls and its sub-agents' settlements.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.core.base.canonical import digest
from holdfast.core.budget.account import Account, Cost
from holdfast.core.budget.tree import SHARED, tree_cost
from holdfast.core.log.events import (
    AgentEvent,
    BudgetReserved,
    LLMCallLost,
    LLMReplied,
    NodeAwaited,
    RunFinished,
    SubagentEnded,
    SubagentStarted,
    ToolCallFinished,
    ToolCallRequested,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.budget import actual_cost
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.subagents import AGENT_RESULT, RUN_AGENT, read_agent_result
from holdfast.testing.kill_matrix.audit import Effects, audit


@dataclass(frozen=True)
class Run:
    """A run of a tree, after its end."""

    thread: str
    events: Sequence[AgentEvent]
    chains: int = 1
    """The number of chains of Temporal runs with its id; each is a start."""
    dropped: bool = False
    """True if it was cancelled with its parent, or may have been."""
    asked: int = 0
    """Tokens of all requests that the LLM received from it."""

    @property
    def account(self) -> Account:
        """Its account at the end."""
        state = RunState(thread=self.thread)
        for event in self.events:
            state = evolve(state, event)
        return state.account

    @property
    def answer(self) -> str:
        """Its result."""
        return next((event.result for event in reversed(self.events) if isinstance(event, RunFinished)), "")


Tree = Mapping[str, Run]
"""The runs of a tree by thread, root first."""


def audit_tree(tree: Tree, *, effects: Effects) -> list[str]:
    """Return the faults of a tree whose runs have all ended, one sentence each.

    Args:
        tree: Its runs.
        effects: The number of times that each effect happened, by key; they may include effects of other trees.
    """
    faults = [f"{run.thread}: {what}" for run in tree.values() for what in _run_faults(run, tree, effects)]
    root = next(iter(tree.values()))
    return faults + [f"{root.thread}: {what}" for what in _ceiling_faults(root, tree)]


def _run_faults(run: Run, tree: Tree, effects: Effects) -> Iterator[str]:
    if run.chains != 1:
        yield f"it was started {run.chains} times"
    for what in audit(run.events, effects=effects):
        if not (run.dropped and ("did not complete" in what or "has no result" in what)):
            yield what
    yield from _result_faults(run, tree)
    yield from _account_faults(run, tree)


def _result_faults(run: Run, tree: Tree) -> Iterator[str]:
    """Yield the faults of a run's sub-agents, and of the results of the calls that run or read them."""
    calls = {event.number: event.call for event in run.events if isinstance(event, ToolCallRequested)}
    begun = {event.number: event for event in run.events if isinstance(event, SubagentStarted)}
    ends = [event for event in run.events if isinstance(event, SubagentEnded)]
    results = Counter(event.number for event in run.events if isinstance(event, ToolCallFinished))
    finished = [event for event in run.events if isinstance(event, ToolCallFinished)]
    texts = {event.number: event.text for event in finished}
    unread = {event.number for event in finished if run.dropped and event.status == "cancelled"}
    for number, call in calls.items():
        if results[number] != 1 and not run.dropped:
            yield f"call {number} of {call.name} has {results[number]} results"
        unexplained = number not in begun and "Not started: " not in texts.get(number, "")
        if call.name == RUN_AGENT and unexplained and not run.dropped:
            yield f"call {number} has started no sub-agent: {texts.get(number)!r:.100}"
    for number, count in Counter(event.number for event in ends).items():
        if count != 1:
            yield f"the sub-agent of call {number} ended {count} times"
    for number, event in begun.items():
        child = tree.get(event.thread)
        end = next((each for each in ends if each.number == number), None)
        if child is None or end is None:
            yield f"the sub-agent {event.thread} is lost: {'it has not ended' if child else 'it has no run'}"
            continue
        if end.status != "completed":
            if not child.dropped:
                yield f"the sub-agent {event.thread} is {end.status}"
            continue
        for reader in _readers(calls, number, event):
            if reader in unread:
                continue
            if reader in texts and not texts[reader].endswith(f"\n{child.answer}"):
                yield f"call {reader} does not have the answer of {event.thread}: {texts[reader]!r:.200}"
            if reader in texts and end.said != digest(["subagent/1", texts[reader]]):
                yield f"call {reader} has other words than the end of {event.thread}"


def _readers(calls: Mapping[int, object], number: int, begun: SubagentStarted) -> Iterator[int]:
    """Yield the numbers of the calls whose result is this sub-agent's answer."""
    if not begun.background:
        yield number
    for other, call in calls.items():
        if getattr(call, "name", "") == AGENT_RESULT:
            request = read_agent_result(call)  # type: ignore[arg-type]  # a ToolCall
            if request and request.thread == begun.thread:
                yield other


def _account_faults(run: Run, tree: Tree) -> Iterator[str]:
    """Yield differences between an account and the sum of its parts, to the token and the nano-dollar."""
    account = run.account
    if account.reserved:
        yield f"still reserved: {account.reserved}"
    own, settled = own_cost(run, account), Cost()
    allowances = {e.call: e for e in run.events if isinstance(e, BudgetReserved) and e.call is not None}
    for end in run.events:
        if not isinstance(end, SubagentEnded):
            continue
        allowance = allowances[end.number]
        whole = Cost(steps=allowance.steps, tokens=allowance.tokens, usd=allowance.nano_usd)
        settled += end.cost.spent if end.cost else whole
        child = tree.get(end.thread)
        if end.cost and child and end.cost != tree_cost(child.account):
            yield f"{end.thread} has settled {end.cost}, and its account is {tree_cost(child.account)}"
        if end.cost is None and end.status != "unfinished":
            yield f"the cost of {end.thread} ({end.status}) is unknown"
    for name in SHARED:
        if account.spent.of(name) != own.of(name) + settled.of(name):
            parts = f"{own.of(name)} of its own and {settled.of(name)} below it"
            yield f"its {name} do not balance: {account.spent.of(name)} spent, {parts}"
    if own.tokens < run.asked:
        last = ", ".join(event.type for event in run.events[-6:])
        yield f"the LLM received {run.asked} tokens, and the account has {own.tokens}; its log ends with {last}"


def own_cost(run: Run, account: Account) -> Cost:
    """Return the cost of a run's own LLM calls, without its sub-agents."""
    total, pending = Cost(), None
    for event in run.events:
        if isinstance(event, LLMReplied):
            pending = None
            total += _cost(event, account)
        elif isinstance(event, LLMCallLost):
            pending = None
            total += _lost_cost(event, account)
        elif isinstance(event, NodeAwaited) and not event.number:
            pending = None  # no node made the call
        elif isinstance(event, RunFinished) or (isinstance(event, BudgetReserved) and event.call is None):
            if pending:
                total += Cost(tokens=pending.tokens, usd=pending.nano_usd)
            pending = event if isinstance(event, BudgetReserved) else None
    return total


def _cost(event: LLMReplied, account: Account) -> Cost:
    return actual_cost(account, event.usage, event.cost, steps=1, attempt=event.attempt, outage=event.outage)


def _lost_cost(event: LLMCallLost, account: Account) -> Cost:
    return account.cost_of(request=event.attempts * event.request_tokens, reply=0, steps=0)


def _ceiling_faults(root: Run, tree: Tree) -> Iterator[str]:
    """Yield limits that a tree exceeded by more than its calls that were repeated after a worker crash.

    The last call of a budget may be repeated.
    """
    account, repeated = root.account, Cost()
    for run in tree.values():
        for event in run.events:
            if isinstance(event, LLMCallLost):
                repeated += _lost_cost(event, account)
    for name in SHARED:
        if name in account.limits and account.spent.of(name) > account.limits[name] + repeated.of(name):
            yield f"its tree has spent {account.spent.of(name)} {name}, and the limit is {account.limits[name]}"
