"""An attacker at Temporal's port fails a sub-agent's start before or after it begins: a cancelled run leaves none."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from holdfast import Agent, Budget, Catalog, Policy, allow
from holdfast.activities import subagents as children
from holdfast.audit.judge.audit import Audit
from holdfast.client.threads import Threads
from holdfast.client.trees import read_tree
from holdfast.core.log.events import AgentEvent, SubagentEnded, SubagentStarted
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.contracts.subagents import StartedSubagent, StartSubagentsRequest, SubagentStart
from holdfast.testing import Conversation, Reply, call, hang, say
from tests.security.test_inputs import fail, pending
from tests.support.rig import Rig, StartRig, check_thread

FORGED = Failure(message="forged", application_failure_info=ApplicationFailureInfo(type="Forged", non_retryable=True))


def pair(budget: Budget | None = None) -> Catalog:
    """Return a parent, and a sub-agent that never ends by itself."""
    policy = Policy(rules=(allow(),))
    head = Agent(name="head", instructions="Delegate.", tools=(), subagents=("idle",), policy=policy, budget=budget)
    return Catalog(agents=[head, Agent(name="idle", instructions="Rest.", tools=())], tools=[])


def script(background: bool) -> Callable[[Conversation], Reply]:
    """Return the script of both."""

    def reply(conversation: Conversation) -> Reply:
        if "run_agent" not in conversation.tools:
            return hang()
        return say("done") if conversation.replies else call("run_agent", agent="idle", task="x", background=background)

    return reply


class Gate:
    """Holds each start of a sub-agent, before it or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, before: bool) -> None:
        self.begun, self.open = asyncio.Event(), asyncio.Event()
        original = children._start

        async def held(order: StartSubagentsRequest, child: SubagentStart, *, traceparent: str) -> StartedSubagent:
            started = None if before else await original(order, child, traceparent=traceparent)
            self.begun.set()
            await self.open.wait()
            return started or await original(order, child, traceparent=traceparent)

        monkeypatch.setattr(children, "_start", held)


async def cancelled(run: WorkflowHandle[Any, Any]) -> None:
    """Wait for the end of a run that was cancelled."""
    with pytest.raises(WorkflowFailureError):
        await run.result()


async def log_of(r: Rig, run: WorkflowHandle[Any, Any]) -> list[AgentEvent]:
    """Return the log, on which history, record and audit agree."""
    events = await check_thread(r.client, run)
    audit = Audit(run.id)
    audit.take(events)
    assert audit.fault is None
    return events


async def status(r: Rig, thread: str) -> WorkflowExecutionStatus | None:
    """Return the status of a run in Temporal, or None if there is none."""
    try:
        return (await r.client.get_workflow_handle(thread).describe()).status
    except RPCError:
        return None


@pytest.mark.parametrize(
    ("background", "budget"),
    [
        (True, Budget(steps=9)),
        pytest.param(True, None, marks=pytest.mark.extended),
        pytest.param(False, Budget(steps=9), marks=pytest.mark.extended),
        pytest.param(False, None, marks=pytest.mark.extended),
    ],
)
async def test_a_cancelled_run_ends_a_sub_agent_whose_start_an_attacker_failed(
    rig: StartRig, client: Client, monkeypatch: pytest.MonkeyPatch, background: bool, budget: Budget | None
) -> None:
    """The sub-agent has begun, the parent lacks its id, and is cancelled before it requests the start again."""
    gate = Gate(monkeypatch, before=False)
    async with rig(pair(budget), script(background)) as r:
        run = await r.start()
        await gate.begun.wait()
        await fail(client, run, await pending(run, "start_subagents"), FORGED)
        await run.cancel()
        await cancelled(run)
        gate.open.set()
        assert await status(r, f"{run.id}.1") == WorkflowExecutionStatus.CANCELED
        events = await log_of(r, run)
        assert [event.thread for event in events if isinstance(event, SubagentStarted)] == [f"{run.id}.1"]
        assert [event.status for event in events if isinstance(event, SubagentEnded)] == ["cancelled"]
        tree = await read_tree(Threads(r.client, task_queue=r.task_queue, record=r.threads), run.id)
        assert f"{run.id}.1" in str(tree)


async def test_a_cancelled_run_ends_a_sub_agent_that_begins_after_its_start_was_failed(
    rig: StartRig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt continues until its worker is notified of the failure; a sub-agent started until then is ended."""
    gate = Gate(monkeypatch, before=True)
    async with rig(pair(), script(background=False)) as r:
        run = await r.start()
        await gate.begun.wait()
        await fail(client, run, await pending(run, "start_subagents"), FORGED)
        await run.cancel()
        await pending(run, "end_subagents")
        assert await status(r, f"{run.id}.1") is None
        gate.open.set()
        await cancelled(run)
        assert await status(r, f"{run.id}.1") == WorkflowExecutionStatus.CANCELED
        events = await log_of(r, run)
        assert [event.status for event in events if isinstance(event, SubagentEnded)] == ["cancelled"]


async def test_a_cancelled_run_leaves_unrelated_runs_alone(
    rig: StartRig, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's run has the id that the sub-agent would have had: the parent names no sub-agent, and ends."""
    gate = Gate(monkeypatch, before=True)
    monkeypatch.setattr(children, "UNSETTLED_SECONDS", 0.1)
    async with rig(pair(), script(background=False)) as r:
        run = await r.start()
        await gate.begun.wait()
        other = await r.client.start_workflow(WORKFLOW, "not ours", id=f"{run.id}.1", task_queue=f"none-{run.id}")
        await fail(client, run, await pending(run, "start_subagents"), FORGED)
        await run.cancel()
        await cancelled(run)
        assert await status(r, other.id) == WorkflowExecutionStatus.RUNNING
        assert not [event for event in await log_of(r, run) if isinstance(event, SubagentStarted | SubagentEnded)]
        await other.terminate("the test is over")
