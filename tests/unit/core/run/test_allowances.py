"""Allowances: what a run gives to its sub-agents of its budget, what comes back, and what a whole tree may spend."""

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
    ChildReport,
    ChildReports,
    EndChildren,
    LookAtChildren,
    StartChildren,
    StartedChild,
    StartedChildren,
)
from holdfast.core.run.rules.allowances import TOO_LARGE, TOO_SMALL
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
    made = tuple(
        ToolCall(
            id=f"r{n}", name="run_agent", arguments=json.dumps({"agent": "helper", "task": "help", "background": each})
        )
        for n, each in enumerate(background, first)
    )
    thread.reply(LLMReply(message=AssistantMessage(content=made), usage=Usage(prompt_tokens=90, completion_tokens=10)))


def order(thread: Thread, kind: Any) -> Any:
    """Return the open call of that kind."""
    (found,) = [call for call in thread.in_progress.values() if isinstance(getattr(call, "request", None), kind)]
    return found


def begin(thread: Thread, *, taken: tuple[int, ...] = ()) -> list[Budget | None]:
    """Start what is to be started; return the allowances."""
    call = order(thread, StartChildren)
    children = [
        StartedChild(number=each.number, problem="taken")
        if each.number in taken
        else StartedChild(number=each.number, run_id=f"c{each.number}")
        for each in call.request.children
    ]
    budgets = [each.budget for each in call.request.children]
    thread.end(call, StartedChildren(children=tuple(children)))
    return budgets


def find_again(thread: Thread, *given: Budget | None) -> None:
    """Answer the order to start: each child exists, and was started with this allowance."""
    call = order(thread, StartChildren)
    found = [
        StartedChild(number=each.number, run_id=f"c{each.number}", existing=True, budget=budget)
        for each, budget in zip(call.request.children, given, strict=True)
    ]
    thread.end(call, StartedChildren(children=tuple(found)))


def test_a_child_from_before_a_reset_is_covered_by_what_is_reserved_for_it_now() -> None:
    """What is reserved is raised to what it may spend; one that may spend less leaves it as it is."""
    thread = parent(Budget(steps=20))
    delegate(thread, False, False)
    before = [event.steps for event in thread.log if isinstance(event, BudgetReserved) and event.call]
    find_again(thread, Budget(steps=before[0] + 1), Budget(steps=2))
    reserved = {event.call: event.steps for event in thread.log if isinstance(event, BudgetReserved) and event.call}
    assert reserved == {1: before[0] + 1, 2: before[1]}
    assert thread.state.account.used("steps") == 1 + sum(reserved.values())
    assert [child.number for child in thread.state.subagents.open] == [1, 2]
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


@pytest.mark.parametrize("given", [Budget(steps=99), Budget(tokens=5), None])
def test_a_child_from_before_a_reset_that_the_budget_does_not_cover_is_cancelled(given: Budget | None) -> None:
    """No tree exceeds its ceiling: the call ends and frees what was reserved, and nothing takes the child over."""
    thread = parent(Budget(steps=20))
    delegate(thread, False, False)
    share = thread.state.account.reserved["agent 2"].steps
    find_again(thread, given, Budget(steps=share))
    ending = order(thread, EndChildren)
    assert [(each.number, each.run_id) for each in ending.request.children] == [(1, "c1")]
    finished = [event for event in thread.log if isinstance(event, ToolCallFinished)]
    assert [(event.number, TOO_LARGE in event.text) for event in finished] == [(1, True)]
    assert [child.number for child in thread.state.subagents.open] == [2]
    assert thread.state.account.used("steps") == 1 + share
    thread.fail(ending, "NotSealed")
    assert not thread.waiting(EndChildren)
    thread.wake()
    ending = order(thread, EndChildren)
    assert [(each.number, each.run_id) for each in ending.request.children] == [(1, "c1")], "it is cancelled again"
    thread.end(ending, ChildReports(reports=(ChildReport(number=1, status="cancelled", text="x"),)))
    end(thread, 2, TreeCost(steps=1))
    assert thread.calling_llm()
    thread.check_consistent()
    assert fault(thread.log) is None


@pytest.mark.parametrize("was_reset", [False, True])
def test_a_call_for_which_the_budget_has_no_room_after_a_reset_cancels_what_it_had_started_before(
    was_reset: bool,
) -> None:
    """The run does not order that start again, so it cannot learn of the sub-agent: it is looked for, and cancelled."""
    thread = parent(Budget(steps=3))
    if was_reset:
        thread.reset()
        thread.load_effects()
    delegate(thread, False)
    finished = [event for event in thread.log if isinstance(event, ToolCallFinished)]
    assert [TOO_SMALL in event.text for event in finished] == [True]
    assert bool(thread.waiting(EndChildren)) is was_reset
    if was_reset:
        thread.fail(order(thread, EndChildren), "Forged")
        assert not thread.waiting(EndChildren)
        thread.wake()
        ending = order(thread, EndChildren)
        assert [(each.number, each.run_id, bool(each.key)) for each in ending.request.children] == [(1, "", True)]
        begun = (StartedChild(number=1, run_id="c1", existing=True, budget=Budget(steps=2)),)
        report = ChildReport(number=1, status="cancelled", text="x")
        thread.end(ending, ChildReports(started=begun, reports=(report,)))
    assert not thread.state.subagents.children
    assert thread.state.account.used("steps") == thread.state.account.spent.steps + thread.calling_llm()
    assert not thread.waiting(EndChildren)
    thread.check_consistent()
    assert fault(thread.log) is None


@pytest.mark.parametrize("continues", [False, True])
def test_a_run_neither_ends_nor_continues_as_new_before_it_has_cancelled_a_child_from_before_a_reset(
    continues: bool,
) -> None:
    """No other Temporal run has it, so it would go on for ever."""
    thread = parent(Budget(steps=20))
    delegate(thread, True)
    find_again(thread, Budget(steps=99))
    ending = order(thread, EndChildren)
    thread.continue_suggested = continues
    thread.reply(calls("look") if continues else says("done"))
    assert not thread.waiting(ArchiveRequest)
    assert not thread.closed
    thread.end(ending, ChildReports(reports=(ChildReport(number=1, status="cancelled", text="x"),)))
    thread.archive()
    assert thread.closed is not continues
    assert not thread.waiting(EndChildren)
    assert fault(thread.log) is None


def test_a_cancellation_that_fails_over_and_over_is_ordered_ever_more_rarely() -> None:
    """Anybody who reaches Temporal can fail it. The run stays open, and its history grows slowly."""
    thread = parent(Budget(steps=20))
    delegate(thread, True)
    find_again(thread, Budget(steps=99))
    thread.fail(order(thread, EndChildren), "x")
    thread.reply(says("done"))
    pauses = []
    for _ in range(8):
        assert not thread.waiting(EndChildren)
        assert not thread.closed
        before = thread.at
        thread.wake()
        pauses.append(round((thread.at - before).total_seconds()))
        thread.fail(order(thread, EndChildren), "x")
    assert pauses == [6, 18, 54, 162, 300, 300, 300, 300]
    thread.wake()
    thread.end(order(thread, EndChildren), ChildReports(reports=()))
    thread.archive()
    assert thread.closed
    thread.check_consistent()
    assert fault(thread.log) is None


def test_a_start_and_a_look_that_fail_over_and_over_are_ordered_ever_more_rarely() -> None:
    """As a cancellation is. A child whose end the failed look was to find is found by the next one."""
    thread = parent(Budget(steps=20))
    delegate(thread, False)
    assert _pauses_of(thread, StartChildren) == [6, 18, 54, 162, 300, 300]
    begin(thread)
    thread.signal("subagent_ended", {"thread": "t.1"})
    assert _pauses_of(thread, LookAtChildren) == [6, 18, 54, 162, 300, 300]
    look = order(thread, LookAtChildren)
    assert [(each.number, each.closing) for each in look.request.children] == [(1, True)]
    report = ChildReport(number=1, status="completed", text="x", cost=TreeCost(steps=1))
    thread.end(look, ChildReports(reports=(report,)))
    assert thread.calling_llm()
    delegate(thread, True)
    assert order(thread, StartChildren), "what succeeded once begins anew, without a pause"
    thread.check_consistent()
    assert fault(thread.log) is None


def _pauses_of(thread: Thread, kind: Any) -> list[int]:
    """Fail an order six times, and return the seconds until it was given again."""
    pauses = []
    for _ in range(6):
        thread.fail(order(thread, kind), "x")
        before = thread.at
        while not thread.waiting(kind):
            thread.wake()
        pauses.append(round((thread.at - before).total_seconds()))
    return pauses


def end(thread: Thread, number: int, cost: TreeCost | None, status: str = "completed") -> None:
    """Let a child end."""
    thread.signal("subagent_ended", {"thread": f"t.{number}"})
    report = ChildReport.model_validate({"number": number, "status": status, "text": "x", "cost": cost})
    thread.end(order(thread, LookAtChildren), ChildReports(reports=(report,)))


def test_allowances_are_equal_shares_reserved_before_the_start_and_settled_once() -> None:
    """A call whose child never began gives all of it back, one that ended what is left, one that is lost nothing."""
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
    """Two fit at a time here: the third waits for what the others leave; where nothing can come back, the call ends."""
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


def test_a_run_goes_on_beside_agents_in_the_background() -> None:
    """It keeps a share like each of theirs."""
    thread = parent(Budget(steps=13))
    delegate(thread, True)
    assert [each and each.steps for each in begin(thread)] == [5]
    assert thread.state.account.left("steps") == 12 - 5 - 1, "one more is reserved for the call that follows"


def test_without_a_budget_nothing_changes() -> None:
    """No allowance, no reservation, and no cost, whatever a child reports."""
    thread = parent(None)
    delegate(thread, False)
    assert begin(thread) == [None]
    end(thread, 1, TreeCost(steps=2))
    assert [event.cost for event in thread.log if isinstance(event, SubagentEnded)] == [None]
    assert not [event for event in thread.log if isinstance(event, BudgetReserved)]


def child(allowance: Budget, *, above: Policy | None = None, **spec: Any) -> Thread:
    """Return a child run with this allowance."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3, allowance=allowance)
    given: dict[str, Any] = {
        "budget": allowance,
        "lineage": lineage,
        "features": 1,
        "depth": 1,
        "policies": (above,) if above else (),
    }
    thread = Thread(agent_spec(**{**SMALL, **spec}), **given)
    thread.load(1)
    return thread


def test_a_child_whose_allowance_ends_hands_in_what_it_has_and_ends() -> None:
    """No person has to extend it; its result says what ended it, and what its tree has spent."""
    thread = child(Budget(steps=1))
    thread.reply(says("half of it"))
    (finished,) = [event for event in thread.log if isinstance(event, RunFinished)]
    assert (finished.outcome, finished.result) == ("completed", "half of it")


def test_what_is_added_to_a_child_has_to_be_allowed_by_the_runs_above() -> None:
    """Neither by whom, nor by how much: a child's own policy cannot raise the ceiling of its tree."""
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


def test_a_child_with_more_than_its_allowance_is_a_fault_of_its_log() -> None:
    """Its start says what it was given; another run of its thread, which no run above pays for, is not bound to it."""
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
    """A tree of accounts with random spending, as runs have them; counts what nobody's account can hide."""

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
        actual = self.chance.randint(0, cost.tokens if self.exact else 2 * cost.tokens)
        self.counted += actual
        self.overshoot += max(0, actual - cost.tokens)
        return account.reserve(LLM_CALL, cost).settle(LLM_CALL, Cost(tokens=actual))

    def fan_out(self, account: Account, depth: int) -> Account:
        """Start children side by side, and settle what they report; one is lost now and then."""
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
            if self.chance.random() < 0.2:  # unknown: all of it counts, whatever it was
                self.counted, self.overshoot, self.extended = before[0] + share, before[1], before[2]
                account = settle_allowance(account, number, None)
            else:
                account = settle_allowance(account, number, tree_cost(ended))
        return account


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.booleans())
def test_a_tree_spends_no_more_than_the_root_has_but_for_errors_of_estimates(seed: int, exact: bool) -> None:
    """To the token: the root's account is the sum of all calls, and of the allowances of those that are lost. It is at
    most the first budget, what people added, and what calls cost beyond their estimates. Fan-out adds nothing.
    """
    tree = Tree(seed, exact=exact)
    root = tree.run(Account.open(Budget(tokens=50_000), None, tokens=1), 0)
    assert not root.reserved
    assert root.spent.tokens == tree.counted
    assert root.spent.tokens <= 50_000 + tree.extended + tree.overshoot
    assert root.limits["tokens"] - 50_000 == root.extended.tokens <= tree.extended
    assert root.spent.tokens <= root.limits["tokens"] + tree.overshoot, "nothing is exceeded silently"


def test_an_allowance_is_reserved_once_and_only_where_there_is_room() -> None:
    """A log that says otherwise does not fold."""
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
