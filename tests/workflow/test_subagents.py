"""Sub-agents on a real server: how a parent starts, awaits, reads and ends them."""

from contextlib import suppress
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from holdfast import Agent, Cannot, Catalog, Limits, Policy, Terms, allow, ask, deny, tool
from holdfast.audit.judge.audit import Audit
from holdfast.client.threads import Threads
from holdfast.client.trees import pending_of_tree, read_tree
from holdfast.core.log.events import (
    AgentEvent,
    RunStarted,
    SignalRejected,
    SubagentEnded,
    SubagentStarted,
    ToolCallFinished,
)
from holdfast.core.run.contracts.subagents import ENDED_SIGNAL
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.rig import Rig, StartRig, check_thread, events_of, eventually, reset, status_of, tasks_of

ALLOWED = Policy(rules=(allow(),))
ASKS = Policy(rules=(ask("pay", reason="money"), allow()))


@tool(effect="unsafe")
async def pay(n: int) -> str | Cannot:
    """Pay."""
    return Cannot("the safe is empty", scope="everywhere") if n == 13 else f"paid {n}"


def family(limits: Limits | None = None, *, policy: Policy = ALLOWED, worker: Policy = ALLOWED) -> Catalog:
    """Return a parent that can pay, and may run workers and itself; and a worker that can pay."""
    boss = Agent(
        name="boss",
        instructions="Delegate.",
        tools=("pay",),
        policy=policy,
        subagents=("worker", "boss"),
        limits=limits or Limits(),
    )
    hand = Agent(name="worker", instructions="Work.", tools=("pay",), policy=worker, description="pays")
    return Catalog(agents=[boss, hand], tools=[pay])


def script(conversation: Conversation) -> Reply:
    """Follow the task step by step: `run A;B & pay 3 & wait THREAD & back A`; then report the results."""
    task = str(conversation.messages[1]["content"])
    steps = [step.strip() for step in task.split("&")]
    if conversation.replies >= len(steps):
        return say(" | ".join(conversation.results) or f"the answer to {task}")
    verb, _, rest = steps[conversation.replies].partition(" ")
    match verb:
        case "run":
            return together(*(call("run_agent", agent="worker", task=each) for each in rest.split(";")))
        case "back":
            return call("run_agent", agent="worker", task=rest, background=True)
        case "nest":
            return call("run_agent", agent="boss", task=rest)
        case "wait":
            return call("agent_result", thread=rest)
        case "pay":
            return call("pay", n=int(rest))
    return say(f"the answer to {task}")


def call_results(events: list[AgentEvent]) -> list[ToolCallFinished]:
    """Return the results of calls."""
    return [event for event in events if isinstance(event, ToolCallFinished)]


def child_of(r: Rig, run: WorkflowHandle[Any, Any], number: int = 1) -> WorkflowHandle[Any, Any]:
    """Return the sub-agent that the call of this number has started."""
    return r.client.get_workflow_handle(f"{run.id}.{number}")


async def child_status(r: Rig, run: WorkflowHandle[Any, Any], *wanted: str, number: int = 1) -> dict[str, Any]:
    """Wait until there is a sub-agent with one of these statuses, and return its state."""
    state: dict[str, Any] = await eventually(lambda: run.query("state"), lambda s: len(s["subagents"]) >= 1)
    return await status_of(child_of(r, run, number), *wanted) or state


async def test_a_parent_runs_agents_side_by_side_and_reads_only_their_answers(rig: StartRig) -> None:
    """Each sub-agent is a thread of its own, whose lineage names the parent; the parent reads its final text. The log
    leads from event to event, and an altered one does not.
    """
    async with rig(family(), script) as r:
        run = await r.start("run one;two;pay 3", by="dana")
        result = (await run.result())["result"]
        assert "the answer to one" in result
        assert "paid 3" in result
        events = await check_thread(r.client, run)
        started = [event for event in events if isinstance(event, SubagentStarted)]
        assert [each.thread for each in started] == [f"{run.id}.{n}" for n in (1, 2, 3)]
        assert {(end.status, end.trust) for end in call_results(events)} == {("ok", "agent"), ("ok", "tool")}
        subagent = await check_thread(r.client, r.client.get_workflow_handle(f"{run.id}.3", run_id=started[2].run_id))
        first = subagent[0]
        assert isinstance(first, RunStarted)
        assert first.lineage is not None
        assert (first.lineage.path, first.lineage.number, first.depth, first.trust) == ((run.id,), 3, 1, "agent")
        for thread, log in ((run.id, events), (f"{run.id}.3", subagent)):
            audit = Audit(thread)
            audit.take(log)
            assert audit.fault is None
        forged: list[tuple[type, dict[str, Any]]] = [
            (ToolCallFinished, {"content": f"Agent worker (thread {run.id}.1) has completed: all of it"}),
            (SubagentStarted, {"thread": "another"}),
            (SubagentStarted, {"number": 9}),
            (SubagentEnded, {"number": 9}),
            (SubagentEnded, {"said": "0" * 64}),
        ]
        for kind, change in forged:
            place = next(n for n, event in enumerate(events) if isinstance(event, kind))
            audit = Audit(run.id)
            audit.take([*events[:place], events[place].model_copy(update=change), *events[place + 1 :]])
            assert audit.fault is not None, (kind, change)


@pytest.mark.extended
async def test_a_background_sub_agent_is_read_later_or_cancelled_at_the_end(rig: StartRig) -> None:
    """`run_agent` returns at once; `agent_result` waits, and may be called twice; an unread sub-agent is ended."""
    async with rig(family(worker=ASKS), script) as r:
        thread = "background-parent"
        run = await r.start(f"back one & back pay 1 & wait {thread}.1 & wait {thread}.1 & wait x", thread=thread)
        await run.result()
        events = await check_thread(r.client, run)
        assert ["the answer to one" in end.text for end in call_results(events)] == [False, False, True, True, False]
        assert "You run no agent in that thread" in call_results(events)[-1].text
        assert [e.status for e in events if isinstance(e, SubagentEnded)] == ["completed", "cancelled"]
        assert (await child_of(r, run, 2).query("state"))["status"] == "cancelled"
        audit = Audit(thread)
        audit.take(events)
        assert audit.fault is None


async def test_a_sub_agents_approval_is_shown_at_the_root_and_decided_in_the_sub_agent(rig: StartRig) -> None:
    """The tree shows the request with its path; deciding it in the root has no effect, in the sub-agent lets it run."""
    async with rig(family(worker=ASKS), script) as r:
        run = await r.start("nest run pay 1")
        await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        threads = Threads(r.client, task_queue=r.task_queue, record=r.threads)

        async def pending() -> list[dict[str, Any]]:
            return (await pending_of_tree(threads, run.id))[0]

        (request,) = await eventually(pending, bool)
        leaf = f"{run.id}.1.1"
        assert (request["thread"], request["path"]) == (leaf, [run.id, f"{run.id}.1", leaf])
        await run.signal("approve", {"request": "1", "by": "dana"})
        assert (await child_of(r, run).query("state"))["status"] == "running"
        tree = await read_tree(threads, run.id)
        assert [(depth, node.agent) for depth, node in tree.walk()] == [(0, "boss"), (1, "boss"), (2, "worker")]
        await r.client.get_workflow_handle(leaf).signal("approve", {"request": "1", "by": "dana"})
        assert "paid 1" in (await run.result())["result"]
        attribute = (await r.client.get_workflow_handle(leaf).describe()).search_attributes["HoldfastRoot"]
        assert attribute == [run.id]


async def test_a_policy_from_above_binds_every_agent(rig: StartRig) -> None:
    """The parent's policy applies to the sub-agent, whose own policy allows everything."""
    async with rig(family(policy=Policy(rules=(deny("pay"), allow()))), script) as r:
        run = await r.start("run pay 1")
        assert "Denied by policy" in (await run.result())["result"]


@pytest.mark.extended
async def test_a_tree_is_bounded_in_depth_and_a_run_in_its_sub_agents(rig: StartRig) -> None:
    """Beyond a limit nothing starts, and the LLM reads why."""
    async with rig(family(Limits(max_subagents=2, max_depth=2)), script) as r:
        deep, wide = await r.start("nest nest run x"), await r.start("run a;b;c")
        assert "depth 2" in (await deep.result())["result"]
        assert "which is the limit" in (await wide.result())["result"]


async def test_cancelling_the_parent_cancels_the_tree_from_below(rig: StartRig) -> None:
    """Every run below has ended before the one above it does."""
    async with rig(family(worker=ASKS), script) as r:
        run = await r.start("nest run pay 1")
        leaf = r.client.get_workflow_handle(f"{run.id}.1.1")
        await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        await eventually(lambda: child_of(r, run).query("state"), lambda state: state["subagents"])
        await status_of(leaf, "waiting_approval")
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        closed = [(await each.describe()).close_time for each in (leaf, child_of(r, run), run)]
        assert all(closed)
        assert closed == sorted(closed)  # type: ignore[type-var]
        assert [e.status for e in await check_thread(r.client, run) if isinstance(e, SubagentEnded)] == ["cancelled"]


@pytest.mark.extended
async def test_a_terminated_sub_agent_has_a_result_that_says_so(rig: StartRig) -> None:
    """A hint from anybody makes the parent poll; the hint itself ends nothing. A false one is rejected and recorded if
    it names no open sub-agent.
    """
    async with rig(family(worker=ASKS), script) as r:
        run = await r.start("run pay 1")
        await child_status(r, run, "waiting_approval")
        for forged in ({"thread": f"{run.id}.1"}, {"thread": "x"}, {"thread": f"{run.id}.1", "result": "paid"}, 7):
            await run.signal(ENDED_SIGNAL, forged)
        rejections = await eventually(lambda: rejections_of(run), lambda rejections: len(rejections) == 2)
        assert [e.outcome for e in rejections] == ["not_waiting", "not_waiting"]
        assert [subagent["status"] for subagent in (await run.query("state"))["subagents"]] == ["open"]
        await child_of(r, run).terminate("a test")
        with suppress(RPCError):  # it has ended: the parent polled because of a forged hint, or at a regular poll
            await run.signal(ENDED_SIGNAL, {"thread": f"{run.id}.1"})
        assert "was closed from outside" in (await run.result())["result"]
        events = await check_thread(r.client, run)
        assert [e.status for e in events if isinstance(e, SubagentEnded)] == ["terminated"]


async def rejections_of(run: WorkflowHandle[Any, Any]) -> list[SignalRejected]:
    """Return the run's rejections so far."""
    return [e for e in await events_of(run) if isinstance(e, SignalRejected)]


async def test_another_persons_thread_is_never_taken_for_a_sub_agent(rig: StartRig) -> None:
    """Its result is not read; the LLM reads that the id is taken."""
    async with rig(family(), script) as r:
        thread = "taken-parent"
        other = await r.start("secret", thread=f"{thread}.1", agent="worker")
        await other.result()
        run = await r.start("run one", thread=thread)
        result = (await run.result())["result"]
        assert "there is another thread" in result
        assert "secret" not in result


@pytest.mark.extended
async def test_a_reset_parent_finds_its_sub_agent_again(rig: StartRig) -> None:
    """The sub-agent was started in the abandoned branch; it is not started twice."""
    async with rig(family(worker=ASKS), script) as r:
        run = await r.start("run pay 1")
        await child_status(r, run, "waiting_approval")
        first = (await child_of(r, run).describe()).run_id
        tasks = await tasks_of(run)
        again = await reset(r, run, to=tasks[1])
        await child_of(r, run).signal("approve", {"request": "1", "by": "dana"})
        assert "paid 1" in (await again.result())["result"]
        assert (await child_of(r, run).describe()).run_id == first
        assert len([e for e in await check_thread(r.client, again) if isinstance(e, SubagentStarted)]) == 1


@pytest.mark.extended
async def test_a_wait_survives_that_the_parent_continues_as_new(rig: StartRig) -> None:
    """A flood of signals makes the parent continue as new while it waits; the next Temporal run polls by itself."""
    async with rig(family(Limits(history_events=40), worker=ASKS), script) as r:
        run = await r.start("run pay 1")
        await child_status(r, run, "waiting_approval")
        for _ in range(20):
            await run.signal(ENDED_SIGNAL, {"thread": "x"})
        again = r.client.get_workflow_handle(run.id)
        await eventually(again.describe, lambda found: found.run_id != run.first_execution_run_id)
        await child_of(r, run).signal("approve", {"request": "1", "by": "dana"})
        assert "paid 1" in (await again.result())["result"]
        await check_thread(r.client, run)


@pytest.mark.extended
async def test_a_constraint_counts_in_the_parent_and_in_later_sub_agents(rig: StartRig) -> None:
    """A constraint from a sub-agent's tool rejects the call in the parent, untried, and in the next sub-agent."""
    async with rig(family(), script) as r:
        run = await r.start("run pay 13 & pay 1 & run pay 2")
        await run.result()
        ends = call_results(await check_thread(r.client, run))
        assert [end.status for end in ends] == ["ok", "cannot", "ok"]
        assert all("the safe is empty" in end.text for end in ends)
        assert "constraint 0.1 from the run above" in ends[-1].text
        subagent = child_of(r, run, 3)
        subagent = r.client.get_workflow_handle(subagent.id, run_id=(await subagent.describe()).run_id)
        for log in (await check_thread(r.client, run), await check_thread(r.client, subagent)):
            audit = Audit(log[0].thread if isinstance(log[0], RunStarted) else "")
            audit.take(log)
            assert audit.fault is None


async def test_the_parents_requester_may_not_approve_in_the_sub_agent(rig: StartRig) -> None:
    """If requesters may not decide, the parent's requester is one in the sub-agent, too."""
    strict = Policy(rules=(ask("pay"), allow()), terms=Terms(requester_may_decide=False))
    async with rig(family(worker=strict), script) as r:
        run = await r.start("run pay 1", by="dana")
        await child_status(r, run, "waiting_approval")
        subagent = child_of(r, run)
        await subagent.signal("approve", {"request": "1", "by": "dana"})
        await subagent.signal("approve", {"request": "1", "by": "erin"})
        assert "paid 1" in (await run.result())["result"]
        subagent = r.client.get_workflow_handle(subagent.id, run_id=(await subagent.describe()).run_id)
        outcomes = [e.outcome for e in await check_thread(r.client, subagent) if e.type == "decision_received"]
        assert outcomes == ["not_entitled", "accepted"]


@pytest.mark.extended
async def test_a_closed_sub_agent_is_continued_like_any_thread(rig: StartRig) -> None:
    """The parent keeps the earlier result; the thread keeps its lineage."""
    async with rig(family(), script) as r:
        run = await r.start("run one")
        await run.result()
        threads = Threads(r.client, task_queue=r.task_queue, record=r.threads)
        again = await threads.start("two", thread=f"{run.id}.1")
        assert again.continued
        await r.client.get_workflow_handle(f"{run.id}.1").result()
        state = await child_of(r, run).query("state")
        assert state["lineage"]["parent"] == run.id


@pytest.mark.extended
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
async def test_many_sub_agents_cost_the_parent_little_history(rig: StartRig, count: int) -> None:
    """The parent's history grows by less than 2 kB for each of them."""
    catalog = family(Limits(subagents_at_once=100, max_calls=100, compaction_tokens=10**9))
    async with rig(catalog, script) as r:
        alone = await r.start("one")
        await alone.result()
        run = await r.start("run " + ";".join(f"t{n}" for n in range(count)))
        result = (await run.result())["result"]
        assert all(f"the answer to t{n}" in result for n in range(count))
        sizes = [
            (await each.describe()).raw_description.workflow_execution_info.history_size_bytes for each in (alone, run)
        ]
        assert sizes[1] - sizes[0] < count * 2_048
