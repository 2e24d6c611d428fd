"""Agents in a program's own workflows: each is a sealed run with a thread of its own, and runs once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import BaseModel
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from holdfast import Agent, Catalog, Client, Context, HoldfastPlugin, Policy, allow, ask, tool, vouch_for
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import RunStarted, UserMessageReceived
from holdfast.testing import Conversation, Reply, Script, ScriptedLLM, call, hang, say, steps
from tests.support.own_workflows import (
    AskWorkflow,
    ChatWorkflow,
    ImpatientWorkflow,
    NightlyWorkflow,
    Plan,
    Research,
    ResearchWorkflow,
)
from tests.support.rig import environ_of, runs_of

WRITER = Agent(name="writer", instructions="Write.", tools=())
CATALOG = Catalog(
    agents=[
        Agent(name="planner", instructions="Plan.", tools=(), result=Plan),
        Agent(name="searcher", instructions="Search.", tools=()),
        WRITER,
    ]
)


def script(conversation: Conversation) -> Reply:
    """Plan three searches; repeat any other task as the answer."""
    task = conversation.last_user_message
    if task == "Hang.":
        return hang()
    if task.startswith("Plan: "):
        return call("final_result", result={"queries": ["one", "two", "three"]})
    return say(f"<{task}>")


@asynccontextmanager
async def programs_worker(
    stack: Stack, home: Path, workflows: list[type], *, catalog: Catalog = CATALOG, llm: Script = script
) -> AsyncIterator[Any]:
    """Run a program's worker with the plugin for a block; yield its client, and its task queue."""
    queue = f"program-{uuid4().hex[:8]}"
    with ScriptedLLM(llm) as endpoint:
        environ = environ_of(stack) | {
            "DATABASE_URL": stack.database_url,
            "HOLDFAST_HOME": str(home),
            "OPENAI_BASE_URL": endpoint.base_url,
            "OPENAI_API_KEY": "none",
        }
        plugin = HoldfastPlugin(catalog, environ=environ)
        client = await TemporalClient.connect(stack.temporal_address, plugins=[plugin])
        async with Worker(client, task_queue=queue, workflows=workflows):
            yield client, queue


def new_id(name: str) -> str:
    """Return a new workflow id."""
    return f"{name}-{uuid4().hex[:8]}"


def children_of(history: WorkflowHistory) -> list[str]:
    """Return the ids of the child workflows that a Temporal run has started."""
    started = (event.start_child_workflow_execution_initiated_event_attributes for event in history.events)
    return [each.workflow_id for each in started if each.workflow_id]


async def test_a_workflow_plans_searches_side_by_side_and_reports(stack: Stack, state_folder: Path) -> None:
    """Results are typed, runs are side by side, and the history replays with a replayer that has the plugin."""
    async with programs_worker(stack, state_folder, [ResearchWorkflow]) as (client, queue):
        handle = await client.start_workflow(ResearchWorkflow.run, "queues", id=new_id("research"), task_queue=queue)
        assert await handle.result() == "<Report: <Search: one>, <Search: two>, <Search: three>>"
        history = await handle.fetch_history()
        replayer = Replayer(workflows=[ResearchWorkflow], plugins=[HoldfastPlugin(environ=environ_of(stack))])
        await replayer.replay_workflow(history)
        threads = children_of(history)
        assert [thread.rpartition("-")[2] for thread in threads] == ["planner", *3 * ["searcher"], "writer"]
        async with Client.connect(client, task_queue=queue) as holdfast:
            for thread in threads:
                begun, *_ = [event async for event in holdfast.thread(thread).events()]
                assert begun.type == "run_started"
                assert (begun.sealed, begun.user_proven, begun.caller) == (True, False, handle.id)
                assert begun.trust == ("person" if thread.endswith("planner") else "agent")
                await replayer.replay_workflow(await client.get_workflow_handle(thread).fetch_history())


class Customer(BaseModel):
    """The context of a cashier."""

    number: str


@tool(effect="unsafe")
def pay(customer: Context[Customer]) -> str:
    """Pay a customer."""
    return f"paid {customer.number}"


@pytest.mark.extended
async def test_a_workflow_gives_context_and_says_that_nobody_is_there(stack: Stack, state_folder: Path) -> None:
    """Policies read the context; a run that would ask people fails with the cause, and so does one whose context is too
    large to record.
    """
    rules = (allow("pay", when="context.number == '1'"), ask("pay"))
    cashier = Agent(name="cashier", instructions="Pay.", tools=[pay], context=Customer, policy=Policy(rules=rules))
    catalog, llm = Catalog(agents=[cashier]), steps([call("pay"), say("Paid.")])
    async with programs_worker(stack, state_folder, [NightlyWorkflow], catalog=catalog, llm=llm) as (client, queue):
        contexts = [{"number": "1"}, {"number": "2"}, {"number": "3" * 20_000}]
        answers = await client.execute_workflow(NightlyWorkflow.run, contexts, id=new_id("nightly"), task_queue=queue)
    assert answers == ["Paid.", "ApprovalRequired", "ContextInvalid"]


@pytest.mark.extended
async def test_a_person_is_proven_only_by_a_start_that_is(stack: Stack, state_folder: Path) -> None:
    """The proof goes along when the workflow continues as new; without one, the name stays a claim."""
    async with programs_worker(stack, state_folder, [AskWorkflow]) as (client, queue):
        for vouched in (True, False):
            given = Research(topic="queues", rounds=2, by="alice")
            given = vouch_for("alice", given) if vouched else given
            handle = await client.start_workflow(AskWorkflow.run, given, id=new_id("ask"), task_queue=queue)
            assert await handle.result() == f"{vouched}: <Report: queues>"
            histories = [await run.fetch_history() for run in await runs_of(client, handle)]
            threads = {thread for history in histories for thread in children_of(history)}
            assert len(threads) == 2
            async with Client.connect(client, task_queue=queue) as holdfast:
                for thread in sorted(threads):
                    begun, task, *_ = [event async for event in holdfast.thread(thread).events()]
                    assert isinstance(begun, RunStarted)
                    assert isinstance(task, UserMessageReceived)
                    assert (begun.user_proven, task.by) == (vouched, "alice")


@pytest.mark.extended
async def test_a_workflow_talks_with_an_agent(stack: Stack, state_folder: Path) -> None:
    """`say` returns the answer to the message; a handle by id reads the state, cancels, and waits for the end."""
    async with programs_worker(stack, state_folder, [ChatWorkflow]) as (client, queue):
        told = await client.execute_workflow(
            ChatWorkflow.run, ["one", "two", "three"], id=new_id("chat"), task_queue=queue
        )
        assert told == ["<two>", "<three>", "waiting_message", "RunCancelled"]


@pytest.mark.extended
async def test_a_time_limit_of_the_workflow_cancels_the_run(stack: Stack, state_folder: Path) -> None:
    """The run has ended before the workflow goes on, and the limit raises what it raises for any other step."""
    async with programs_worker(stack, state_folder, [ImpatientWorkflow]) as (client, queue):
        ended = await client.execute_workflow(ImpatientWorkflow.run, id=new_id("impatient"), task_queue=queue)
        assert ended == "cancelled"


@pytest.mark.extended
async def test_a_run_that_cannot_start_fails_the_workflow_with_its_cause(stack: Stack, state_folder: Path) -> None:
    """The type of the workflow's failure is that of the run's."""
    async with programs_worker(stack, state_folder, [ResearchWorkflow], catalog=Catalog(agents=[WRITER])) as (
        client,
        queue,
    ):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(ResearchWorkflow.run, "queues", id=new_id("research"), task_queue=queue)
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "AgentNotFound"


@pytest.mark.extended
async def test_a_worker_without_the_plugin_says_so(stack: Stack) -> None:
    """The workflow fails once, with what to do, instead of failing its task for ever."""
    client, queue = await TemporalClient.connect(stack.temporal_address), new_id("queue")
    runner = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("holdfast"))
    async with Worker(client, task_queue=queue, workflows=[ResearchWorkflow], workflow_runner=runner):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow(ResearchWorkflow.run, "queues", id=new_id("research"), task_queue=queue)
        assert "has no HoldfastPlugin" in str(failed.value.cause)
