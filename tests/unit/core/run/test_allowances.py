"""Allowances: the budget that a run gives to its sub-agents, what they return, and the limit of a whole tree."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.judge.audit import Audit
from holdfast.audit.judge.forks import first_thread
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Extensions, Policy, allow
from holdfast.core.base.models import replace
from holdfast.core.budget.account import LLM_CALL, Account, Cost
from holdfast.core.budget.budget import Amounts, Budget
from holdfast.core.budget.tree import TreeCost, allowance_of, reserve_allowance, settle_allowance, tree_cost
from holdfast.core.lineage import Lineage
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import AgentLoaded, BudgetReserved, RunFinished, SubagentEnded, ToolCallFinished
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.loading import ThreadRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.subagents import (
    Announced,
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReport,
    SubagentReports,
)
from holdfast.core.run.rules.allowances import TOO_LARGE, TOO_SMALL, allowances
from holdfast.errors import EventOutOfPlace
from tests.support.people import PEOPLE
from tests.support.plays import SUBAGENT_TOOLS
from tests.support.runs import UNGUARDED, Thread, agent_spec, calls, says, tool_spec
from tests.unit.audit.test_audit import fault

SMALL: dict[str, Any] = {
    "llm_options": {"max_tokens": 100},
    "limits": Limits(max_steps=50, tool_result_chars=400, **UNGUARDED),
    "tools": (tool_spec("look"), *SUBAGENT_TOOLS),
    "policy": Policy(rules=(allow(),)),
}


def parent(budget: Budget | None) -> Thread:
    """Return a thread that may run helpers, with this budget."""
    spec = agent_spec(budget=budget, **SMALL).model_copy(update={"subagents": ("helper",)})
    thread = Thread(spec)
    thread.load(1)
    return thread


def delegate(thread: Thread, *background: bool) -> None:
    """Reply with a call of `run_agent` for each."""
    first = thread.state.calls.count + 1
    tool_calls = tuple(
        ToolCall(
            id=f"r{n}", name="run_agent", arguments=json.dumps({"agent": "helper", "task": "help", "background": each})
        )
        for n, each in enumerate(background, first)
    )
    thread.reply(
        LLMReply(message=AssistantMessage(content=tool_calls), usage=Usage(prompt_tokens=90, completion_tokens=10))
    )


def order(thread: Thread, kind: Any) -> Any:
    """Return the open activity request of that kind."""
    (request,) = [call for call in thread.in_progress.values() if isinstance(getattr(call, "request", None), kind)]
    return request


def begin(thread: Thread, *, taken: tuple[int, ...] = ()) -> list[Budget | None]:
    """Start every sub-agent that is due; return the allowances."""
    call = order(thread, StartSubagentsRequest)
    subagents = [
        StartedSubagent(number=each.number, problem="taken")
        if each.number in taken
        else StartedSubagent(number=each.number, run_id=f"c{each.number}")
        for each in call.request.children
    ]
    budgets = [each.budget for each in call.request.children]
    thread.end(call, StartedSubagents(children=tuple(subagents)))
    return budgets


def report_existing(thread: Thread, *budgets: Budget | None) -> None:
    """Answer the start request: each sub-agent exists, and was started with this allowance."""
    call = order(thread, StartSubagentsRequest)
    existing = [
        StartedSubagent(number=each.number, run_id=f"c{each.number}", existing=True, budget=budget)
        for each, budget in zip(call.request.children, budgets, strict=True)
    ]
    thread.end(call, StartedSubagents(children=tuple(existing)))


def test_calls_without_room_reserve_nothing() -> None:
    """No more calls get an allowance than sub-agents may start, in the order of the calls."""
    thread = parent(Budget(steps=20))
    delegate(thread, False, False, False)
    waiting = [thread.state.calls.get(number) for number in (1, 2, 3)]
    state = replace(thread.state, account=Account.open(Budget(steps=20), None, tokens=1))
    assert [[event.call for event in allowances(state, waiting, room=room)] for room in (-1, 0, 2, 9)] == [
        [],
        [],
        [1, 2],
        [1, 2, 3],
    ]


def test_the_current_reservation_covers_a_sub_agent_from_before_a_reset() -> None:
    """The reservation is raised to the sub-agent's allowance; a smaller allowance leaves it unchanged."""
    thread = parent(Budget(steps=20))
    delegate(thread, False, False)
    before = [event.steps for event in thread.log if isinstance(event, BudgetReserved) and event.call]
    report_existing(thread, Budget(steps=before[0] + 1), Budget(steps=2))
    reserved = {event.call: event.steps for event in thread.log if isinstance(event, BudgetReserved) and event.call}
    assert reserved == {1: before[0] + 1, 2: before[1]}
    assert thread.state.account.used("steps") == 1 + sum(reserved.values())
    assert [subagent.number for subagent in thread.state.subagents.open] == [1, 2]
    thread.check_consistent()
    assert fault(thread.log) is None
    (raised,) = [event for event in thread.log[-3:] if isinstance(event, BudgetReserved)]
    place = thread.log.index(raised)
    alone = [*thread.log[:place], raised, *thread.log[place + 2 :]]
    lowered = [*thread.log[:place], raised.model_copy(update={"steps": 3}), *thread.log[place + 1 :]]
    beyond = [*thread.log[:place], raised.model_copy(update={"steps": 99}), *thread.log[place + 1 :]]
    assert all(fault(forged) for forged in (alone, lowered, beyond))
    fork = thread.fork(at=raised.position)
    fork.load(1)
    audit = Audit(first_thread(fork.log, "u"))
    audit.take(fork.log)
    assert audit.fault is None, "a fork may leave it right after"


@pytest.mark.parametrize("budget", [Budget(steps=99), Budget(tokens=5), None])
def test_a_sub_agent_from_before_a_reset_beyond_the_budget_is_cancelled(budget: Budget | None) -> None:
    """No tree exceeds its ceiling: the call ends and frees its reservation, and nothing takes over the sub-agent."""
    thread = parent(Budget(steps=20))
    delegate(thread, False, False)
    share = thread.state.account.reserved["agent 2"].steps
    report_existing(thread, budget, Budget(steps=share))
    ending = order(thread, EndSubagentsRequest)
    assert [(each.number, each.run_id) for each in ending.request.children] == [(1, "c1")]
    finished = [event for event in thread.log if isinstance(event, ToolCallFinished)]
    assert [(event.number, TOO_LARGE in event.text) for event in finished] == [(1, True)]
    assert [subagent.number for subagent in thread.state.subagents.open] == [2]
    assert thread.state.account.used("steps") == 1 + share
    thread.fail(ending, "NotSealed")
    assert not thread.waiting(EndSubagentsRequest)
    thread.wake()
    ending = order(thread, EndSubagentsRequest)
    assert [(each.number, each.run_id) for each in ending.request.children] == [(1, "c1")], "it is cancelled again"
    thread.end(ending, SubagentReports(reports=(SubagentReport(number=1, status="cancelled", text="x"),)))
    end(thread, 2, TreeCost(steps=1))
    assert thread.calling_llm()
    thread.check_consistent()
    assert fault(thread.log) is None


@pytest.mark.parametrize("was_reset", [False, True])
def test_a_call_without_budget_after_a_reset_cancels_the_sub_agents_it_had_started(
    was_reset: bool,
) -> None:
    """The run does not repeat the start request and so never sees the sub-agent; it looks it up and cancels it."""
    thread = parent(Budget(steps=3))
    if was_reset:
        thread.reset()
        thread.load_effects()
    delegate(thread, False)
    finished = [event for event in thread.log if isinstance(event, ToolCallFinished)]
    assert [TOO_SMALL in event.text for event in finished] == [True]
    assert bool(thread.waiting(EndSubagentsRequest)) is was_reset
    if was_reset:
        thread.fail(order(thread, EndSubagentsRequest), "Forged")
        assert not thread.waiting(EndSubagentsRequest)
        thread.wake()
        ending = order(thread, EndSubagentsRequest)
        assert [(each.number, each.run_id, bool(each.key)) for each in ending.request.children] == [(1, "", True)]
        begun = (StartedSubagent(number=1, run_id="c1", existing=True, budget=Budget(steps=2)),)
        report = SubagentReport(number=1, status="cancelled", text="x")
        thread.end(ending, SubagentReports(started=begun, reports=(report,)))
    assert not thread.state.subagents.children
    assert thread.state.account.used("steps") == thread.state.account.spent.steps + thread.calling_llm()
    assert not thread.waiting(EndSubagentsRequest)
    thread.check_consistent()
    assert fault(thread.log) is None


@pytest.mark.parametrize("continues", [False, True])
def test_a_run_cancels_a_sub_agent_from_before_a_reset_before_it_ends_or_continues_as_new(
    continues: bool,
) -> None:
    """No other Temporal run knows of the sub-agent, so it would run for ever."""
    thread = parent(Budget(steps=20))
    delegate(thread, True)
    report_existing(thread, Budget(steps=99))
    ending = order(thread, EndSubagentsRequest)
    thread.continue_suggested = continues
    thread.reply(calls("look") if continues else says("done"))
    assert not thread.waiting(ArchiveRequest)
    assert not thread.closed
    thread.end(ending, SubagentReports(reports=(SubagentReport(number=1, status="cancelled", text="x"),)))
    thread.archive()
    assert thread.closed is not continues
    assert not thread.waiting(EndSubagentsRequest)
    assert fault(thread.log) is None


def test_a_cancellation_that_keeps_failing_is_retried_with_growing_delays() -> None:
    """Anybody who reaches Temporal can make a cancellation fail. The run stays open, and its history grows slowly."""
    thread = parent(Budget(steps=20))
    delegate(thread, True)
    report_existing(thread, Budget(steps=99))
    thread.fail(order(thread, EndSubagentsRequest), "x")
    thread.reply(says("done"))
    pauses = []
    for _ in range(8):
        assert not thread.waiting(EndSubagentsRequest)
        assert not thread.closed
        before = thread.at
        thread.wake()
        pauses.append(round((thread.at - before).total_seconds()))
        thread.fail(order(thread, EndSubagentsRequest), "x")
    assert pauses == [6, 18, 54, 162, 300, 300, 300, 300]
    thread.wake()
    thread.end(order(thread, EndSubagentsRequest), SubagentReports(reports=()))
    thread.archive()
    assert thread.closed
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_start_and_a_poll_that_keep_failing_are_retried_with_growing_delays() -> None:
    """Starts and polls back off as cancellations do. A later poll finds an end that a failed poll missed."""
    thread = parent(Budget(steps=20))
    delegate(thread, False)
    assert _retry_delays_of(thread, StartSubagentsRequest) == [6, 18, 54, 162, 300, 300]
    begin(thread)
    thread.signal("subagent_ended", {"thread": "t.1"})
    assert _retry_delays_of(thread, CheckSubagentsRequest) == [6, 18, 54, 162, 300, 300]
    look = order(thread, CheckSubagentsRequest)
    assert [(each.number, each.closing) for each in look.request.children] == [(1, True)]
    report = SubagentReport(number=1, status="completed", text="x", cost=TreeCost(steps=1))
    thread.end(look, SubagentReports(reports=(report,)))
    assert thread.calling_llm()
    delegate(thread, True)
    assert order(thread, StartSubagentsRequest), "what succeeded once begins anew, without a pause"
    thread.check_consistent()
    assert fault(thread.log) is None


def _retry_delays_of(thread: Thread, kind: Any) -> list[int]:
    """Fail an activity request six times, and return the seconds before each retry."""
    pauses = []
    for _ in range(6):
        thread.fail(order(thread, kind), "x")
        before = thread.at
        while not thread.waiting(kind):
            thread.wake()
        pauses.append(round((thread.at - before).total_seconds()))
    return pauses


def end(thread: Thread, number: int, cost: TreeCost | None, status: str = "completed") -> None:
    """End a sub-agent."""
    thread.signal("subagent_ended", {"thread": f"t.{number}"})
    report = SubagentReport.model_validate({"number": number, "status": status, "text": "x", "cost": cost})
    thread.end(order(thread, CheckSubagentsRequest), SubagentReports(reports=(report,)))


def test_allowances_are_equal_shares_reserved_before_the_start_and_settled_once() -> None:
    """A sub-agent that never began returns its whole allowance, one that ended the rest, and a lost one nothing."""
    thread = parent(Budget(steps=20, tokens=20_000, seconds=600))
    delegate(thread, False, False, False)
    account = thread.state.account
    reserved = [event for event in thread.log if isinstance(event, BudgetReserved) and event.call]
    assert [(event.call, event.steps) for event in reserved] == [(1, 5), (2, 5), (3, 5)]
    assert account.left("steps") == 4, "the next call, the last one, and what cannot be shared out evenly"
    thread.reset()
    thread.load_effects()
    budgets = begin(thread, taken=(2,))
    assert [each and each.steps for each in budgets] == 3 * [5]
    assert all(each and 500 < (each.seconds or 0) <= 600 for each in budgets), "what is left of the time, for each"
    assert thread.state.account.used("steps") == 11
    end(thread, 1, TreeCost(steps=2, tokens=77, short="tokens"))
    assert thread.state.account.used("steps") == 8
    end(thread, 3, None, "lost")
    spent = thread.state.account.spent
    assert (spent.steps, spent.tokens) == (1 + 2 + 5, 100 + 77 + reserved[2].tokens)
    assert "its share of the budget has ended (tokens)" in str(thread.log)
    thread.check_consistent()
    assert fault(thread.log) is None
    for change in ({"steps": 6}, {"tokens": 9_999}, {"call": 9}):
        place = thread.log.index(reserved[0])
        forged = [*thread.log[:place], reserved[0].model_copy(update=change), *thread.log[place + 1 :]]
        assert fault(forged) is not None, change


def test_a_budget_that_does_not_suffice_starts_fewer_agents_or_none_and_says_so() -> None:
    """Two fit at a time here: the third waits for the others' remainders; if nothing can come back, the call ends."""
    thread = parent(Budget(steps=7))
    delegate(thread, False, False, False)
    assert [each and each.steps for each in begin(thread)] == [2, 2]
    end(thread, 1, TreeCost(steps=1))
    assert not [event for event in thread.log if isinstance(event, BudgetReserved) and event.call == 3]
    end(thread, 2, TreeCost(steps=1))
    assert [each and each.steps for each in begin(thread)] == [2]
    end(thread, 3, TreeCost(steps=2))
    delegate(thread, False)
    texts = [event.text for event in thread.log if isinstance(event, ToolCallFinished)]
    assert TOO_SMALL in texts[-1]
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_run_continues_beside_background_agents() -> None:
    """The run keeps a share as large as each sub-agent's."""
    thread = parent(Budget(steps=13))
    delegate(thread, True)
    assert [each and each.steps for each in begin(thread)] == [5]
    assert thread.state.account.left("steps") == 12 - 5 - 1, "one more is reserved for the call that follows"


def test_without_a_budget_nothing_changes() -> None:
    """There is no allowance, no reservation and no cost, whichever cost a sub-agent reports."""
    thread = parent(None)
    delegate(thread, False)
    assert begin(thread) == [None]
    end(thread, 1, TreeCost(steps=2))
    assert [event.cost for event in thread.log if isinstance(event, SubagentEnded)] == [None]
    assert not [event for event in thread.log if isinstance(event, BudgetReserved)]


def child(allowance: Budget, *, above: Policy | None = None, **spec: Any) -> Thread:
    """Return a sub-agent with this allowance."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3, allowance=allowance)
    fields: dict[str, Any] = {
        "budget": allowance,
        "lineage": lineage,
        "features": 1,
        "depth": 1,
        "policies": (above,) if above else (),
    }
    thread = Thread(agent_spec(**{**SMALL, **spec}), **fields)
    thread.load(1)
    return thread


def test_a_sub_agent_that_uses_up_its_allowance_returns_a_partial_result() -> None:
    """No person has to extend it; its result gives the exhausted limit and the cost of its tree."""
    thread = child(Budget(steps=1))
    thread.reply(says("half of it"))
    (finished,) = [event for event in thread.log if isinstance(event, RunFinished)]
    assert (finished.outcome, finished.result) == ("completed", "half of it")


def test_the_runs_above_must_permit_an_extension_of_a_sub_agent() -> None:
    """A sub-agent's own policy cannot raise the ceiling of its tree: neither the people nor the amount count."""
    finance = Policy(rules=(allow(),), extensions=Extensions(by=("alice",), most=Amounts(steps=3)))
    thread = child(Budget(steps=5), above=finance)
    outcomes = [
        thread.update("extend", {"by": by, "steps": steps})["outcome"] for by, steps in [("bob", 1), ("alice", 4)]
    ]
    assert outcomes == ["not_entitled", "too_much"]
    assert thread.update("extend", {"by": "alice", "steps": 3})["outcome"] == "accepted"
    cost = tree_cost(thread.state.account)
    assert cost
    assert cost.more_steps == 3
    signing = child(Budget(steps=5), above=Policy(rules=(allow(),), approvers=PEOPLE, signatures="required"))
    assert signing.update("extend", {"by": "alice", "steps": 1})["outcome"] == "unsigned"


def test_a_sub_agent_with_more_than_its_allowance_is_a_fault_of_its_log() -> None:
    """The start records the allowance; another run of the thread, which no run above pays for, is not bound to it."""
    thread = child(Budget(steps=1))
    thread.reply(says("half of it"))
    place = next(n for n, event in enumerate(thread.log) if isinstance(event, AgentLoaded))
    forged = [*thread.log]
    forged[place] = forged[place].model_copy(update={"budget": Budget(steps=2)})
    assert "its parent gave it" in str(fault(forged))
    while not thread.closed:
        call = thread.waiting()[0]
        thread.archive() if isinstance(call, Call) and isinstance(call.request, ArchiveRequest) else thread.end(
            call, Announced()
        )
    thread.reopen()
    while thread.state.spec is None:
        thread.load_thread() if thread.waiting(ThreadRequest) else thread.load(1)
    assert thread.state.origin.lineage
    assert thread.state.origin.lineage.allowance is None
    assert not thread.state.account.limits


class Tree:
    """A tree of accounts with random spending, as in real runs; records the totals that no account can hide."""

    def __init__(self, seed: int, *, exact: bool) -> None:
        self.chance, self.exact = random.Random(seed), exact
        self.overshoot = self.counted = self.extended = 0

    def run(self, account: Account, depth: int) -> Account:
        """Spend, start children, and extend; return the account at the end."""
        chance = self.chance
        for _ in range(chance.randint(1, 4)):
            match chance.random():
                case dice if dice < 0.5:
                    account = self.call(account)
                case dice if dice < 0.6:
                    more = chance.randint(1, 5_000)
                    account, self.extended = account.extend(Amounts(tokens=more)), self.extended + more
                case _ if depth < 3:
                    account = self.fan_out(account, depth)
        return account

    def call(self, account: Account) -> Account:
        """Make an LLM call, which costs less or more than expected."""
        cost = Cost(tokens=min(account.left("tokens"), self.chance.randint(1, 4_000)))
        if not cost.tokens:
            return account
        spent = self.chance.randint(0, cost.tokens if self.exact else 2 * cost.tokens)
        self.counted += spent
        self.overshoot += max(0, spent - cost.tokens)
        return account.reserve(LLM_CALL, cost).settle(LLM_CALL, Cost(tokens=spent))

    def fan_out(self, account: Account, depth: int) -> Account:
        """Start sub-agents in parallel, and settle their reports; one is lost now and then."""
        count = self.chance.randint(1, 3)
        share = account.left("tokens") // (count + 1)
        if not share:
            return account
        for number in range(count):
            account = reserve_allowance(account, number, Cost(tokens=share))
        for number in range(count):
            budget = allowance_of(account, number)
            assert budget
            before = self.counted, self.overshoot, self.extended
            ended = self.run(Account.open(budget, None, tokens=1), depth + 1)
            if self.chance.random() < 0.2:  # unknown: it counts in full, however large
                self.counted, self.overshoot, self.extended = before[0] + share, before[1], before[2]
                account = settle_allowance(account, number, None)
            else:
                account = settle_allowance(account, number, tree_cost(ended))
        return account


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.booleans())
def test_a_tree_spends_no_more_than_the_root_has_but_for_errors_of_estimates(seed: int, exact: bool) -> None:
    """The root's account equals the sum of all calls, and of the allowances of lost sub-agents, to the token. It is at
    most the first budget, plus extensions by people, plus the calls' costs beyond their estimates. Fan-out adds
    nothing.
    """
    tree = Tree(seed, exact=exact)
    root = tree.run(Account.open(Budget(tokens=50_000), None, tokens=1), 0)
    assert not root.reserved
    assert root.spent.tokens == tree.counted
    assert root.spent.tokens <= 50_000 + tree.extended + tree.overshoot
    assert root.limits["tokens"] - 50_000 == root.extended.tokens <= tree.extended
    assert root.spent.tokens <= root.limits["tokens"] + tree.overshoot, "nothing is exceeded silently"


def test_an_allowance_is_reserved_once_and_only_within_the_budget() -> None:
    """A log that records anything else does not fold."""
    account = reserve_allowance(Account.open(Budget(steps=5), None, tokens=1), 1, Cost(steps=3))
    with pytest.raises(EventOutOfPlace, match="already"):
        reserve_allowance(account, 1, Cost(steps=1))
    with pytest.raises(EventOutOfPlace, match="no room"):
        reserve_allowance(account, 2, Cost(steps=3))
    raised = settle_allowance(account, 1, TreeCost(steps=7, more_steps=2))
    assert (raised.limits, raised.extended.steps, raised.left("steps")) == ({"steps": 7}, 2, 0)
    assert settle_allowance(raised, 1, TreeCost(steps=9)) is raised, "settled once"
    assert replace(raised, spent=Cost()).left("steps") == 7
    vast = settle_allowance(account, 1, TreeCost(steps=10**30, more_steps=10**30))
    assert vast.limits["steps"] == 10**6, "no limit beyond what a budget can have"
