"""Budgets of trees on a real server: allowances, returned remainders, and exhausted budgets below and above."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from holdfast import Agent, Budget, Catalog, Limits, Policy, allow, ask, tool
from holdfast.audit.judge.audit import Audit
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    BudgetReserved,
    BudgetSpent,
    LLMReplied,
    SubagentEnded,
    SubagentStarted,
    ToolCallFinished,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.allowances import TOO_LARGE
from holdfast.core.run.state.state import RunState
from holdfast.testing import Conversation, Reply, call, say, together
from tests.replay.scenarios import CATALOG, SCENARIOS
from tests.support.rig import Rig, StartRig, check_thread, eventually, reset, task_of
from tests.unit.core.temporal.test_history import EXPECTED


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


def family(budget: Budget) -> Catalog:
    """Return a boss with this budget, which runs workers, and managers that run workers of their own."""
    shared = {
        "tools": ("look",),
        "policy": Policy(rules=(allow(),)),
        "llm_options": {"max_completion_tokens": 100},
        "limits": Limits(tool_result_chars=400),
    }
    boss = Agent(name="boss", instructions="Rule.", subagents=("manager", "worker"), budget=budget, **shared)  # type: ignore[arg-type]
    manager = Agent(name="manager", instructions="Manage.", subagents=("worker",), **shared)  # type: ignore[arg-type]
    worker = Agent(name="worker", instructions="Work.", **shared)  # type: ignore[arg-type]
    return Catalog(agents=[boss, manager, worker], tools=[look])


def script(conversation: Conversation) -> Reply:
    """Let the boss and the manager delegate, and a worker look at four things; each reports when asked to finish."""
    task = str(conversation.messages[1]["content"])
    if "The budget of this run has ended" in str(conversation.messages[-1]["content"]):
        return say(f"half of {task}")
    if task == "all" and not conversation.replies:
        return together(
            call("run_agent", agent="worker", task="a"),
            call("run_agent", agent="worker", task="b"),
            call("run_agent", agent="manager", task="c"),
        )
    if task == "c" and not conversation.replies:
        return together(call("run_agent", agent="worker", task="d"), call("run_agent", agent="worker", task="e"))
    if task in ("all", "c"):
        return say(" | ".join(conversation.results))
    return call("look", at=str(conversation.replies)) if conversation.replies < 4 else say(f"all of {task}")


async def logs_of(r: Rig, root: str, events: Sequence[AgentEvent]) -> dict[str, Sequence[AgentEvent]]:
    """Return the logs of a tree, after checking that each passes its audit."""
    logs = {root: events}
    for event in events:
        if isinstance(event, SubagentStarted):
            run = r.client.get_workflow_handle(event.thread, run_id=event.run_id)
            logs |= await logs_of(r, event.thread, await check_thread(r.client, run))
    audit = Audit(root)
    audit.take(events)
    assert audit.fault is None
    return logs


def state_of(thread: str, events: Sequence[AgentEvent]) -> RunState:
    """Return the state that a log leads to."""
    state = RunState(thread=thread)
    for event in events:
        state = evolve(state, event)
    return state


def check_balance(root: str, logs: dict[str, Sequence[AgentEvent]]) -> None:
    """Check that the root's account is the sum of the tree's LLM calls, and that each run got its reservation."""
    usages = [event.usage for log in logs.values() for event in log if isinstance(event, LLMReplied)]
    account = state_of(root, logs[root]).account
    assert account.spent.steps == len(usages)
    assert account.spent.tokens == sum(usage.prompt_tokens + usage.completion_tokens for usage in usages)
    assert not account.reserved
    assert all(account.spent.of(name) <= limit for name, limit in account.limits.items())
    for thread, log in logs.items():
        for event in log:
            if isinstance(event, BudgetReserved) and event.call:
                (loaded,) = [each for each in logs[f"{thread}.{event.call}"] if isinstance(each, AgentLoaded)]
                assert loaded.budget is not None
                assert (loaded.budget.steps, loaded.budget.tokens) == (event.steps, event.tokens)


@pytest.mark.extended
async def test_a_tree_with_enough_budget_completes_and_its_sums_balance(rig: StartRig) -> None:
    """One boss, three agents, and two more below one of these: unspent amounts are returned."""
    async with rig(family(Budget(steps=200, tokens=2_000_000)), script) as r:
        run = await r.start("all")
        result = (await run.result())["result"]
        assert all(f"all of {task}" in result for task in "abde")
        logs = await logs_of(r, run.id, await check_thread(r.client, run))
        assert len(logs) == 6
        check_balance(run.id, logs)


@pytest.mark.extended
async def test_a_tree_with_too_small_a_budget_returns_partial_results(rig: StartRig) -> None:
    """The workers close and end, the manager has no room for workers, and the boss reports: no person acts."""
    async with rig(family(Budget(steps=12, tokens=2_000_000)), script) as r:
        run = await r.start("all")
        result = (await run.result())["result"]
        assert "because its share of the budget has ended (steps)" in result
        assert all(f"half of {task}" in result for task in "ab")
        assert "has no room for another agent" in result
        logs = await logs_of(r, run.id, await check_thread(r.client, run))
        assert len(logs) == 4
        assert sum(isinstance(event, BudgetSpent) for log in logs.values() for event in log) == 2
        check_balance(run.id, logs)


@pytest.mark.extended
async def test_a_cancelled_or_terminated_sub_agent_costs_what_its_log_says(rig: StartRig) -> None:
    """The sub-agent has no result. Its log has its cost; a call in progress counts as reserved."""
    asking = Policy(rules=(ask("look"), allow()))
    boss = Agent(name="boss", instructions="Rule.", tools=(), subagents=("worker",), budget=Budget(steps=40))
    worker = Agent(name="worker", instructions="Work.", tools=("look",), policy=asking)

    def waits(conversation: Conversation) -> Reply:
        if str(conversation.messages[1]["content"]) != "all":
            return call("look", at="a")
        both = together(*(call("run_agent", agent="worker", task=each) for each in "ab"))
        return say("done") if conversation.replies else both

    async with rig(Catalog(agents=[boss, worker], tools=[look]), waits) as r:
        run = await r.start("all")
        await eventually(lambda: run.query("state"), lambda state: len(state["subagents"]) == 2)
        for number in (1, 2):
            subagent = r.client.get_workflow_handle(f"{run.id}.{number}")
            await eventually(lambda c=subagent: c.query("state"), lambda state: state["pending"])  # type: ignore[misc]
            await (subagent.cancel() if number == 1 else subagent.terminate())
        with suppress(RPCError):  # on a slow machine, the run has found both ends by itself
            await run.signal("subagent_ended", {"thread": f"{run.id}.2"})
        await run.result()
        events = await check_thread(r.client, run)
        costs = {event.status: event.cost for event in events if isinstance(event, SubagentEnded)}
        assert {status: cost and cost.steps for status, cost in costs.items()} == {"cancelled": 1, "terminated": 1}
        account = state_of(run.id, events).account
        assert (account.spent.steps, account.reserved) == (4, {})


def asking_family() -> Catalog:
    """Return a boss with a budget, whose workers ask before they do anything."""
    boss = Agent(name="boss", instructions="Rule.", tools=(), subagents=("worker",), budget=Budget(steps=40))
    policy = Policy(rules=(ask("look"), allow()))
    return Catalog(
        agents=[boss, Agent(name="worker", instructions="Work.", tools=("look",), policy=policy)], tools=[look]
    )


async def approve_child(r: Rig, run: WorkflowHandle[Any, Any], number: int) -> None:
    """Wait until the run's sub-agent asks for an approval, and approve that."""

    def is_there(state: dict[str, Any]) -> bool:
        return any(subagent["call"] == number for subagent in state["subagents"])

    subagent = r.client.get_workflow_handle(f"{run.id}.{number}")
    await eventually(lambda: run.query("state"), is_there)
    await eventually(lambda: subagent.query("state"), lambda state: state["pending"])
    await subagent.signal("approve", {"request": "1", "by": "dana"})


@pytest.mark.parametrize("tasks", ["a", pytest.param("abc", marks=pytest.mark.extended)])
async def test_a_reset_never_lets_a_tree_spend_more_than_its_budget(rig: StartRig, tasks: str) -> None:
    """A sub-agent from before the reset is taken over if the reservation covers its share. If the LLM now divides the
    budget among more, that sub-agent is cancelled.
    """
    wanted = ["a"]

    def shares(conversation: Conversation) -> Reply:
        if str(conversation.messages[1]["content"]) != "all":
            return say("looked") if conversation.replies else call("look", at="a")
        return say("done") if conversation.replies else together(*(run_agent(each) for each in wanted[0]))

    def run_agent(task: str) -> Reply:
        return call("run_agent", agent="worker", task=task)

    async with rig(asking_family(), shares) as r:
        run = await r.start("all")
        first = r.client.get_workflow_handle(f"{run.id}.1")
        await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        await eventually(lambda: first.query("state"), lambda state: state["pending"])
        began = (await first.describe()).run_id
        wanted[0] = tasks
        again = await reset(r, run, to=await task_of(run, "call_llm"))
        kept = len(tasks) == 1
        numbers = [1] if kept else [2, 3]
        for number in numbers:
            await approve_child(r, again, number)
        await again.result()
        events = await check_thread(r.client, again)
        started = [event.thread for event in events if isinstance(event, SubagentStarted)]
        assert started == [f"{run.id}.{number}" for number in numbers]
        state = await eventually(
            lambda: first.query("state"), lambda state: state["status"] in ("completed", "cancelled")
        )
        assert state["status"] == ("completed" if kept else "cancelled")
        assert (await first.describe()).run_id == began
        texts = [event.text for event in events if isinstance(event, ToolCallFinished)]
        assert [TOO_LARGE in text for text in texts if TOO_LARGE in text] == ([] if kept else [True])
        account = state_of(run.id, events).account
        assert (account.reserved, account.spent.steps) == ({}, 2 + 2 * len(numbers))
        audit = Audit(run.id)
        audit.take(events)
        assert audit.fault is None


@pytest.mark.extended
async def test_the_scenario_replays(rig: StartRig, client: Client) -> None:
    """The history of a run with allowances rebuilds the same events."""
    scripted, acts, begin = SCENARIOS["allotted"]
    async with rig(CATALOG, scripted) as r:
        run = await r.start(**begin)
        await acts(run, r)
        events = await check_thread(client, run)
        assert [event.type for event in events] == EXPECTED["allotted"].split()
