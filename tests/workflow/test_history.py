"""I2 on a real server: the events rebuilt from a downloaded history are those of the workflow, digest by digest."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, deny, tool
from holdfast.activities.calling_run import Chains, RequestCheck
from holdfast.client.start_options import issued
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import ask
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import AgentEvent, ToolCallFinished
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, EffectsRequest, LoadedAgent, PastEffects
from holdfast.core.run.contracts.record import Archived, ArchiveRequest
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.temporal.history_reader import read_events
from holdfast.core.tools.effects import Effect
from holdfast.testing import call, call_verbatim, cut_off, fail, say, steps, together
from holdfast.testing.scripted_worker import LEAVE
from holdfast.worker.construction import running
from holdfast.worker.workflow_runners import EarlyEventsGuard
from holdfast.workflows import WORKFLOWS
from tests.support.rig import Rig, StartRig, answer_of, events_and_history, events_of, eventually, status_of
from tests.support.runs import agent_spec, calls, says, tool_spec

Handle = WorkflowHandle[Any, Any]


async def rebuild_events(run: Handle) -> list[AgentEvent]:
    """Return the events from the history."""
    return read_events((await run.fetch_history()).events)


async def check(run: Handle) -> list[AgentEvent]:
    """Compare the workflow's answers with its history, and return the events."""
    events, history = await events_and_history(run)
    rebuilt = read_events(history.events)
    assert [(event.type, event.at) for event in rebuilt] == [(event.type, event.at) for event in events]
    assert rebuilt == events
    assert first_altered(events) is None
    return events


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="read")
async def dawdle(seconds: float) -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"after {seconds}"


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="unsafe", timeout=0.2)
async def stall() -> str:
    """Never return."""
    await asyncio.sleep(3_600)
    return "never"


@tool(effect="unsafe")
async def stay(context: ToolContext) -> str:
    """Stay until stopped."""
    (context.workspace / "inside").touch()
    await asyncio.sleep(3_600)
    return "never"


@tool(effect="read")
def wipe() -> str:
    """Never runs."""
    raise AssertionError("a denied tool ran")


CATALOG = Catalog(
    agents=[
        Agent(
            name="clerk",
            instructions="Work.",
            policy=Policy(rules=(deny("wipe"), ask("pay"), allow())),
            limits=Limits(max_steps=4),
            tools=[look, dawdle, pay, stall, stay, wipe],
        )
    ],
)


async def plain(run: Handle, rig: Rig) -> None:
    """Only wait for the end."""
    await run.result()


async def decided(run: Handle, rig: Rig) -> None:
    """Decide two requests out of order by signal and update, among many invalid messages."""
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "9", "by": "alice"})
    await run.signal("nonsense", args=[{"request": "1"}, 2])
    for payload in (None, [1], "1x", {"reqest": "1"}, {"request": True}):
        await run.signal("deny", payload)
    await run.signal("retry", {"by": "x"})
    await run.signal("reconcile", {"request": "1", "decision": "happened"})
    await answer_of(run.execute_update("decide", {"decision": "deny", "request": "2", "by": "bob", "reason": "no"}))
    await answer_of(run.execute_update("decide", {"decision": "deny", "request": "2", "by": "bob", "reason": "no"}))
    await answer_of(run.execute_update("decide", "what?"))
    await run.signal("approve", '{"request": 1, "by": "älice"}')
    await run.result()


async def blocked(run: Handle, rig: Rig) -> None:
    """Be blocked by the provider, fixed, and retried."""
    await status_of(run, "blocked")
    await check(run)
    rig.llm.script = steps([call("look", at="a"), say("done")])
    await run.signal("retry", {"by": "carol", "reason": "paid the bill"})
    await run.result()


async def at_limit(run: Handle, rig: Rig) -> None:
    """Reach the limit of steps, and continue."""
    await status_of(run, "blocked")
    await run.signal("retry")
    await run.result()


async def unknown(run: Handle, rig: Rig) -> None:
    """Have a call with an unknown outcome that runs again, and then report that it happened."""
    await status_of(run, "waiting_approval")
    await answer_of(run.execute_update("decide", {"decision": "absent", "request": "1", "by": "alice"}))
    await status_of(run, "waiting_approval")
    await run.signal("reconcile", {"decision": "happened", "request": "2", "by": "alice", "result": "so it is"})
    await run.result()


async def cancelled_waiting(run: Handle, rig: Rig) -> None:
    """Cancel while requests are open."""
    await status_of(run, "waiting_approval")
    await run.cancel()
    await status_of(run, "cancelled")


async def cancelled_at_work(run: Handle, rig: Rig) -> None:
    """Cancel while a tool runs and a request is open."""
    await eventually(lambda: asyncio.sleep(0, (rig.workspace / "inside").exists()), bool)
    await run.cancel()
    await status_of(run, "cancelled")


async def terminated(run: Handle, rig: Rig) -> None:
    """Terminate the run in Temporal, without a last event."""
    await status_of(run, "waiting_approval")
    await run.terminate()


async def failed(run: Handle, rig: Rig) -> None:
    """Start a run that cannot begin."""
    with pytest.raises(WorkflowFailureError):
        await run.result()


PAYMENTS = together(call("pay", amount=1), call("pay", amount=2))
RUNS: dict[str, tuple[Any, Callable[[Handle, Rig], Awaitable[None]], dict[str, str]]] = {
    "plain": (steps([together(call("look", at="a"), call("look", at="b")), call("wipe"), say("done")]), plain, {}),
    "crowd": (
        steps([together(*(call("dawdle", seconds=n * 37 % 24 / 100) for n in range(24))), say("done")]),
        plain,
        {},
    ),
    "rejected_replies": (
        steps([together(call_verbatim("look", "{"), call("fly")), cut_off("I will"), say("done")]),
        plain,
        {},
    ),
    "decided": (steps([PAYMENTS, say("done")]), decided, {}),
    "blocked": (lambda _: fail(401, "wrong key"), blocked, {}),
    "at_limit": (steps([call("look", at=str(number)) for number in range(5)] + [say("done")]), at_limit, {}),
    "unknown": (steps([call("stall"), say("done")]), unknown, {}),
    "cancelled_waiting": (steps([PAYMENTS]), cancelled_waiting, {}),
    "cancelled_at_work": (steps([together(call("stay"), call("pay", amount=1))]), cancelled_at_work, {}),
    "terminated": (steps([PAYMENTS]), terminated, {}),
    "no_agent": (steps([say("hello")]), failed, {"agent": "nobody"}),
    "no_task": (steps([say("hello")]), failed, {"task": " "}),
}


async def test_the_history_holds_the_workflows_events(rig: StartRig) -> None:
    """For every kind of run, the log can be rebuilt from its history alone."""
    async with rig(CATALOG, steps([])) as r:
        for name, (script, play, start) in RUNS.items():
            r.llm.script = script
            run = await r.start(thread=f"test-{name}-{uuid4().hex[:8]}", **start)
            await play(run, r)
            await check(run)


class Desk:
    """Activities that end when the test lets them, so that many events can arrive while no workflow code runs."""

    def __init__(self, *replies: LLMReply, spec: AgentSpec) -> None:
        self.replies = list(replies)
        self.spec = spec
        self.open = asyncio.Event()
        self.llm_open = asyncio.Event()
        self.llm_open.set()
        self.record_open = asyncio.Event()
        self.record_open.set()
        self.began: set[str] = set()
        self.delay: Callable[[], float] = lambda: 0.0

    @property
    def activities(self) -> list[Callable[..., Any]]:
        """Return all of them."""
        return [self.load_agent, self.load_effects, self.call_llm, self.call_tool, self.archive]

    @activity.defn(name="load_agent")
    async def load_agent(self, request: AgentRequest) -> LoadedAgent:
        return LoadedAgent(spec=self.spec, workspace="/w")

    @activity.defn(name="load_effects")
    async def load_effects(self, request: EffectsRequest) -> PastEffects:
        return PastEffects()

    @activity.defn(name="call_llm")
    async def call_llm(self, request: LLMRequest) -> LLMReply:
        self.began.add("llm")
        await self.llm_open.wait()
        return self.replies.pop(0)

    @activity.defn(name="call_tool")
    async def call_tool(self, request: ToolRequest) -> ToolOutcome:
        self.began.add(request.call.id)
        await self.open.wait()
        await asyncio.sleep(self.delay())
        if request.call.name == "breaks":
            raise ApplicationError("broken", non_retryable=True)
        status = "unknown" if request.call.name == "doubt" and not request.epoch else "ok"
        return ToolOutcome.model_validate({"status": status, "content": request.call.id})

    @activity.defn(name="archive")
    async def archive(self, request: ArchiveRequest) -> Archived:
        await self.record_open.wait()
        return Archived(length=request.stop)


SEALS = FleetKeys({"test": bytes(32)})

SPEC = agent_spec(
    tools=(
        tool_spec("look"),
        tool_spec("pay", Effect.UNSAFE),
        tool_spec("doubt", Effect.UNSAFE),
        tool_spec("breaks", Effect.UNSAFE),
    ),
    policy=Policy(rules=(ask("pay"), allow())),
    limits=Limits(local_seconds=0),  # so that the results of all calls wait for the workflow
)


@asynccontextmanager
async def deciding(
    client: Client, queue: str, desk: Desk, *, sticky: timedelta = timedelta(seconds=10), debug_mode: bool = True
) -> AsyncIterator[None]:
    """Run workflow code and local activities for a block.

    In debug mode, the SDK detects no deadlock: on a busy machine, two seconds pass without one.
    """
    guard = EarlyEventsGuard(UnsandboxedWorkflowRunner())
    worker = Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS,
        activities=desk.activities,
        no_remote_activities=True,
        interceptors=[RequestCheck(Chains())],
        workflow_runner=guard,
        sticky_queue_schedule_to_start_timeout=sticky,
        debug_mode=debug_mode,
    )
    guard.guard(worker)
    async with running(worker, within=LEAVE):
        yield


@asynccontextmanager
async def working(client: Client, desk: Desk) -> AsyncIterator[str]:
    """Run activities, and yield the task queue."""
    queue = f"test-{uuid4().hex[:8]}"
    worker = Worker(client, task_queue=queue, activities=desk.activities, interceptors=[RequestCheck(Chains())])
    async with running(worker, within=LEAVE):
        yield queue


async def begin(client: Client, queue: str, task: str = "do it", **more: Any) -> Handle:
    """Start a run."""
    return await client.start_workflow(WORKFLOW, issued(RunInput(task=task, **more)), id=queue, task_queue=queue)


async def ended(run: Handle, count: int) -> None:
    """Wait until this many activities have ended in history, including local ones."""

    async def ends() -> int:
        return sum(
            event.HasField("activity_task_completed_event_attributes")
            or event.HasField("marker_recorded_event_attributes")
            for event in (await run.fetch_history()).events
        )

    await eventually(ends, lambda found: found >= count)


async def test_simultaneous_decisions_and_results_are_recorded_in_the_workflows_order(client: Client) -> None:
    """Messages that arrive while no workflow code runs share one workflow task: signals, then updates, then results."""
    desk = Desk(calls("look", "look", "pay", "pay", "doubt"), says("done"), spec=SPEC)
    async with working(client, desk) as queue:
        async with deciding(client, queue, desk):
            run = await begin(client, queue)
            await eventually(lambda: asyncio.sleep(0, len(desk.began)), lambda count: count == 4)
        desk.open.set()
        await ended(run, 5)
        await run.signal("approve", {"request": "2"})
        update = asyncio.create_task(run.execute_update("decide", {"decision": "deny", "request": "1"}))
        await run.signal("approve", {"request": "9"})
        async with deciding(client, queue, desk):
            await update
            await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 1)
            await check(run)
            await run.signal("reconcile", {"request": "3", "decision": "absent"})
            await run.result()
            await check(run)


@pytest.mark.parametrize("first", ["cancel", pytest.param("end", marks=pytest.mark.extended)])
async def test_a_cancellation_that_arrives_with_results_is_recorded_in_the_workflows_order(
    client: Client, first: str
) -> None:
    """With results, an approval and a cancel request in one workflow task, in either order, no result is lost."""
    desk = Desk(calls("look", "pay", "doubt"), spec=SPEC)
    async with working(client, desk) as queue:
        async with deciding(client, queue, desk):
            run = await begin(client, queue)
            await eventually(lambda: asyncio.sleep(0, len(desk.began)), lambda count: count == 3)
        if first == "cancel":
            await run.cancel()
        desk.open.set()
        await ended(run, 4)
        if first == "end":
            await run.cancel()
        await run.signal("approve", {"request": "1"})
        async with deciding(client, queue, desk):
            await status_of(run, "cancelled")
            await check(run)
            finished = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
            assert {event.number: event.status for event in finished}[1] == "ok"


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (says("done"), "completed"),
        pytest.param(calls("look"), "cancelled", marks=pytest.mark.extended),
        pytest.param(calls("doubt"), "cancelled", marks=pytest.mark.extended),
    ],
)
async def test_a_cancellation_that_arrives_with_a_reply_loses_no_event(
    client: Client, reply: LLMReply, status: str
) -> None:
    """With a reply and a cancel request in one workflow task, the reply is recorded, and its calls are stopped."""
    desk = Desk(reply, spec=SPEC)
    desk.llm_open.clear()
    async with working(client, desk) as queue:
        async with deciding(client, queue, desk):
            run = await begin(client, queue)
            await eventually(lambda: asyncio.sleep(0, len(desk.began)), lambda count: count == 1)
        desk.llm_open.set()
        await ended(run, 2)
        await run.cancel()
        async with deciding(client, queue, desk):
            await status_of(run, status)
            await check(run)
            assert any(event.type == "llm_replied" for event in await events_of(run))


@pytest.mark.parametrize("task", ["do it", pytest.param(" ", marks=pytest.mark.extended)])
async def test_messages_before_the_first_task_are_recorded_in_the_workflows_order(client: Client, task: str) -> None:
    """This covers signals and a cancel request that wait for the first worker, for a task that can begin and one that
    cannot.
    """
    desk = Desk(says("done"), spec=SPEC)
    async with working(client, desk) as queue:
        run = await begin(client, queue, task)
        await run.signal("approve", {"request": "1"})
        await run.signal("whatever")
        await run.cancel()
        async with deciding(client, queue, desk):
            await eventually(run.describe, lambda found: found.status != 1)
            await check(run)


@pytest.mark.extended
async def test_signals_without_commands_before_an_update_keep_their_time(client: Client) -> None:
    """This covers workflow tasks that produce only events, with an update right after them."""
    desk = Desk(calls("pay"), says("done"), spec=SPEC)
    desk.open.set()
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        await status_of(run, "waiting_approval")
        for seen in range(8, 14):
            await run.signal("approve", {"request": "9"})
            while (await run.query("state"))["events"] < seen:  # noqa: ASYNC110  # the answer is another process's
                await asyncio.sleep(0.01)
        await answer_of(run.execute_update("decide", {"decision": "approve", "request": "8"}))
        live = await events_of(run)
        await check(run)
        await run.signal("approve", {"request": "1"})
        await run.result()
        assert (await check(run))[: len(live)] == live


async def test_a_reset_run_has_a_log_of_its_own(client: Client) -> None:
    """A reset keeps the earlier events; signals and updates after the reset point are applied again."""
    desk = Desk(calls("pay", "look"), says("done"), says("done again"), spec=SPEC)
    desk.open.set()
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        await status_of(run, "waiting_approval")
        await run.signal("approve", {"request": "7"})
        await answer_of(run.execute_update("decide", {"request": "1", "decision": "approve"}))
        await run.result()
        history = await run.fetch_history()
        tasks = [
            event.event_id for event in history.events if event.HasField("workflow_task_completed_event_attributes")
        ]
        request = ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=history.run_id),
            workflow_task_finish_event_id=tasks[2],
            request_id=uuid4().hex,
        )
        reset = await client.workflow_service.reset_workflow_execution(request)
        again = client.get_workflow_handle(run.id, run_id=reset.run_id)
        state = await status_of(again, "waiting_approval", "completed")
        for pending in state["pending"]:
            await answer_of(again.execute_update("decide", {"request": pending["request"], "decision": "approve"}))
        await again.result()
        events = await check(again)
        assert "run_reset" in [event.type for event in events]
        assert events[:3] == read_events(history.events)[:3]


@pytest.mark.extended
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3, 4, 5))])
async def test_under_a_storm_of_messages_the_history_holds_the_workflows_events(client: Client, seed: int) -> None:
    """This covers dozens of decisions by signal and update, valid or not, with parallel calls and stopping workers."""
    chance = random.Random(seed)
    names = [chance.choice(["look", "pay", "pay", "doubt", "breaks"]) for _ in range(16)]
    desk = Desk(calls(*names), calls("pay", "look", "pay", first=50), says("done"), spec=SPEC)
    desk.open.set()
    desk.delay = lambda: chance.random() / 10

    async def throw(*, updates: bool) -> None:
        await asyncio.sleep(chance.random())
        request = str(chance.randint(1, 24))
        payload = chance.choice(
            [{"request": request, "by": "x"}, request, None, 7, {"request": request, "digest": "0"}]
        )
        try:
            match chance.randint(0 if updates else 1, 3):
                case 0:
                    decision = chance.choice(["approve", "deny", "happened", "absent", "abandon", "?"])
                    await answer_of(run.execute_update("decide", {"decision": decision, "request": request}))
                case 1:
                    await run.signal(
                        "reconcile", {"decision": chance.choice(["happened", "absent"]), "request": request}
                    )
                case _:
                    await run.signal(chance.choice(["approve", "approve", "deny", "retry", "what"]), payload)
        except RPCError:
            pass  # the run had ended

    async with working(client, desk) as queue:
        run = await begin(client, queue)
        # No updates while workers stop: losing an update's task right after a task without commands makes
        # the SDK replay both as one, in the later one's time, and the workflow's own log changes its times.
        thrown = asyncio.gather(*(throw(updates=False) for _ in range(40)))
        for _ in range(2):
            async with deciding(client, queue, desk):
                await asyncio.sleep(0.3)
            await asyncio.sleep(0.1)
        async with deciding(client, queue, desk):
            await thrown
            await asyncio.gather(*(throw(updates=True) for _ in range(40)))
            state = await run.query("state")
            events = await events_of(run)
            assert (await rebuild_events(run))[: len(events)] == events  # more events may have followed
            while state["status"] not in ("completed", "cancelled"):
                for request in state["pending"]:
                    decision = "approve" if request["kind"] == "approval" else "happened"
                    await answer_of(run.execute_update("decide", {"decision": decision, "request": request["request"]}))
                await asyncio.sleep(0.05)
                state = await run.query("state")
                if seed % 2 and state["step"] > 1 and state["status"] == "running":
                    await run.cancel()
                    state = await status_of(run, "completed", "cancelled")
            await check(run)
