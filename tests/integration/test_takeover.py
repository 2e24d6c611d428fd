"""Siblings take over the work of a killed worker, but never that of a live or frozen one.

A takeover shows in the call's next attempt, which starts with the failure of the previous one: `WorkerDied`, or a
heartbeat timeout if Temporal noticed first.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import ScriptedLLM, call, hang, say, steps
from holdfast.worker.takeover.liveness import is_gone, this_process
from holdfast.worker.takeover.registry import Offer, WorkerRegistry
from holdfast.worker.takeover.takeover import WORKER_DIED, sweep, taking_over
from holdfast.worker.takeover.worker_identity import WorkerIdentity, parse_identity
from tests.support.processes import WorkerProcess
from tests.support.rig import Rig, StartRig, check_thread, eventually, status_of
from tests.unit.worker.test_liveness import identity_of

pytestmark = pytest.mark.skipif(this_process() is None, reason="processes are proved to be gone on Linux only")

DOOMED = "hf:elsewhere:0123456789abcdef:4711:1"


@tool(effect="unsafe")
async def ship() -> str:
    """Ship."""
    return "shipped"


CATALOG = Catalog(
    agents=[Agent(name="clerk", policy=Policy(rules=(ask("ship"), allow())), instructions="", tools=[ship])]
)


def me() -> WorkerIdentity:
    """Return this process."""
    process = this_process()
    assert process is not None
    return process


async def attempts(run: WorkflowHandle[Any, Any]) -> list[str]:
    """Return what ended each retried attempt: `WorkerDied`, or a timeout's message."""
    failures = []
    async for event in run.fetch_history_events():
        if event.HasField("activity_task_started_event_attributes"):
            started = event.activity_task_started_event_attributes
            if started.attempt > 1:
                failures.append(started.last_failure.application_failure_info.type or started.last_failure.message)
    return failures


async def at_rest(run: WorkflowHandle[Any, Any]) -> bool:
    """Return whether no call of the run and no write of its record is in progress."""
    described = (await run.describe()).raw_description
    return not described.pending_activities and not described.HasField("pending_workflow_task")


async def running_calls(run: WorkflowHandle[Any, Any]) -> list[PendingActivityInfo]:
    """Return the run's calls that have not ended."""
    return list((await run.describe()).raw_description.pending_activities)


async def called(rig: Rig) -> None:
    """Wait until the LLM is called."""
    await eventually(lambda: asyncio.sleep(0, len(rig.llm.requests)), bool)


async def sweep_until(rig: Rig, gone: Any, wanted: dict[str, int]) -> None:
    """Sweep until that many claims are ended in one pass: a new run may not be listed yet."""
    await eventually(lambda: sweep(rig.client, rig.task_queue, gone=gone, me=me()), lambda ended: ended == wanted)


async def test_a_dead_workers_call_is_retried_at_once(rig: StartRig) -> None:
    """The call's activity is failed, retried without delay, and the run continues normally."""
    async with rig(CATALOG, lambda _: hang(), identity=DOOMED) as at_work:
        run = await at_work.start()
        await called(at_work)
        at_work.llm.script = steps([say("done")])
        await sweep_until(at_work, lambda identity: identity == DOOMED, {"activities": 1, "workflows": 1})
        assert (await run.result())["result"] == "done"
        assert await attempts(run) == [WORKER_DIED]


async def test_a_dead_workers_workflows_move_to_any_other_worker(rig: StartRig) -> None:
    """A run that waits for a person does not stay bound to the worker that has it cached; it keeps waiting."""
    async with rig(CATALOG, steps([call("ship"), say("done")]), identity=DOOMED) as at_work:
        run = await at_work.start()
        await status_of(run, "waiting_approval")
        await eventually(lambda: at_rest(run), bool)
        await sweep_until(at_work, lambda identity: identity == DOOMED, {"activities": 0, "workflows": 1})
        before = (await run.fetch_history()).events
        await run.signal("approve", {"request": "1", "by": "alice"})
        assert (await run.result())["result"] == "done"
        after = (await run.fetch_history()).events[len(before) :]
        scheduled = next(event for event in after if event.HasField("workflow_task_scheduled_event_attributes"))
        queue = scheduled.workflow_task_scheduled_event_attributes.task_queue
        assert queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL


async def test_live_workers_keep_their_claims(rig: StartRig) -> None:
    """No claim of this process, or of one whose death cannot be proved here, is ended, whatever the hints say."""
    for identity in (str(me()), DOOMED, "4711@build-7"):
        async with rig(CATALOG, lambda _: hang(), identity=identity) as at_work:
            run = await at_work.start()
            await called(at_work)
            await sweep_until(at_work, lambda identity: identity == "nobody", {"activities": 0, "workflows": 0})

            def gone(identity: str) -> bool:
                parsed = parse_identity(identity)
                return parsed is not None and is_gone(parsed, seen_from=me())

            await sweep_until(at_work, gone, {"activities": 0, "workflows": 0})
            (pending,) = (await run.describe()).raw_description.pending_activities
            assert (pending.attempt, pending.last_worker_identity) == (1, identity)
            await run.terminate()


@pytest.mark.extended
async def test_siblings_take_over_as_soon_as_a_process_has_ended(rig: StartRig, client: Client, tmp_path: Path) -> None:
    """Two workers watch a third one that is busy; after its kill, its call is retried and its registration removed."""
    doomed = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    victim = identity_of(doomed.pid, me())
    async with rig(CATALOG, lambda _: hang(), identity=str(victim)) as at_work:
        queue, address = at_work.task_queue, client.service_client.config.target_host
        registry = WorkerRegistry(tmp_path, address, client.namespace, queue)
        registry.add(victim)
        async with (
            taking_over(client, home=tmp_path, task_queue=queue) as name,
            taking_over(client, home=tmp_path, task_queue=queue),
        ):
            assert name == str(me())
            run = await at_work.start()
            await called(at_work)
            at_work.llm.script = steps([say("done")])
            doomed.kill()
            await doomed.wait()
            assert (await run.result())["result"] == "done"
            assert set(await attempts(run)) == {WORKER_DIED}
            await eventually(lambda: asyncio.to_thread(registry.workers), lambda known: known == [me()])
    assert registry.workers() == []


@pytest.mark.extended
async def test_takeover_can_be_switched_off(client: Client, tmp_path: Path) -> None:
    """With takeover off, a worker has Temporal's default identity, and no registry file."""
    async with taking_over(client, home=tmp_path, task_queue="q", enabled=False) as name:
        assert name is None
        assert list(tmp_path.iterdir()) == []


@pytest.mark.extended
async def test_without_a_registry_a_worker_still_works(client: Client, tmp_path: Path) -> None:
    """A state folder that cannot be written disables the takeover, not the worker."""
    (tmp_path / "workers").write_text("in the way")
    async with taking_over(client, home=tmp_path, task_queue="q") as name:
        assert name == str(me())


@pytest.mark.extended
async def test_a_worker_with_other_agents_on_the_queue_is_named(client: Client, tmp_path: Path) -> None:
    """The log names the other worker's agents and folder, once each, whether it starts earlier or later."""

    def offer(catalog: str) -> Offer:
        return Offer(catalog=catalog, agents=("clerk",), llm="scripted", folder="/srv/b", digest=catalog)

    queue = f"test-{uuid4().hex[:8]}"
    registry = WorkerRegistry(tmp_path, client.service_client.config.target_host, client.namespace, queue)
    early, same, late = (replace(me(), scope=digit * 16) for digit in "abc")  # other machines: death not provable
    registry.add(early, offer("theirs:catalog"))
    with capture_logs() as logged:
        async with taking_over(client, home=tmp_path, task_queue=queue, offer=offer("ours:catalog")):
            registry.add(same, offer("ours:catalog"))
            registry.add(late, offer("late:catalog"))
            await eventually(lambda: asyncio.sleep(0, len(logged)), lambda count: count == 2)
    assert {each["event"] for each in logged} == {"other_agents_on_queue"}
    assert {each["worker"] for each in logged} == {
        f"{early} offers clerk from theirs:catalog, and was started in /srv/b",
        f"{late} offers clerk from late:catalog, and was started in /srv/b",
    }


@pytest.mark.extended
async def test_queues_of_any_name_are_swept(client: Client) -> None:
    """Quotes in the name of a task queue are part of the name."""
    for queue in ("it's", 'a "b"', "back\\slash", "\\'", "a' OR WorkflowType != 'x"):
        assert await sweep(client, queue, gone=lambda _: True, me=me()) == {"activities": 0, "workflows": 0}


# Killed and frozen processes: a worker that owns the stack, and two siblings. The victim is the one that runs the run.


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    """Run an LLM that survives kills of workers."""
    with ScriptedLLM() as llm:
        yield llm


@pytest.fixture(scope="module")
def siblings(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WorkerProcess, ...]]:
    """Run three workers of one task queue and one state folder."""
    home = tmp_path_factory.mktemp("siblings") / "home"
    environ = {"HOLDFAST_CATALOG": "tests.support.killable:catalog", "OPENAI_BASE_URL": llm.base_url}
    first = WorkerProcess(home, beside=None, **environ)
    others = [WorkerProcess(home, beside=first, **environ) for _ in range(2)]
    for worker in (first, *others):
        worker.start()
    yield first, *others
    for worker in (*others, first):
        worker.stop()


class Scene:
    """A run on the three workers, and its workspace."""

    def __init__(self, client: Client, siblings: tuple[WorkerProcess, ...], folder: Path) -> None:
        self.client = client
        self.siblings = siblings
        self.folder = folder
        folder.mkdir()

    async def start(self) -> WorkflowHandle[Any, Any]:
        """Start the run."""
        run = issued(RunInput(task="do it", workspace=str(self.folder)))
        queue = self.siblings[0].task_queue
        return await self.client.start_workflow(WORKFLOW, run, id=f"scene-{uuid4().hex[:8]}", task_queue=queue)

    async def holder(self, run: WorkflowHandle[Any, Any]) -> WorkerProcess:
        """Return the worker that runs the run's call, or else its last workflow task."""
        pending = (await run.describe()).raw_description.pending_activities
        names = [each.last_worker_identity for each in pending if each.last_worker_identity]
        identity = parse_identity(names[0] if names else await _last_worker(run))
        assert identity is not None
        return next(each for each in self.siblings if each.pid == identity.pid)


async def _last_worker(run: WorkflowHandle[Any, Any]) -> str:
    done = [event.workflow_task_completed_event_attributes.identity for event in (await run.fetch_history()).events]
    return next(filter(None, reversed(done)))


@pytest.fixture
async def scenes(siblings: tuple[WorkerProcess, ...], tmp_path: Path) -> Callable[[], Scene]:
    """Yield as many scenes as requested."""
    client = await connect_stack(siblings[0].stack)
    numbers = count()
    return lambda: Scene(client, siblings, tmp_path / f"scene-{next(numbers)}")


async def taken_over(play: Callable[[], Awaitable[list[str]]]) -> None:
    """Repeat until a sibling noticed a crash; on a machine that stalls for seconds, Temporal may notice first."""
    ended = [await play()]
    while WORKER_DIED not in ended[-1]:
        assert len(ended) < 3, f"Temporal was first every time: {ended}"
        ended.append(await play())


@pytest.mark.slow
async def test_killed_during_an_llm_call_beside_a_sibling(llm: ScriptedLLM, scenes: Callable[[], Scene]) -> None:
    """The sibling fails the LLM call, and one of the workers retries it."""

    async def play() -> list[str]:
        scene = scenes()
        llm.script, asked = (lambda _: hang()), len(llm.requests)
        run = await scene.start()
        await eventually(lambda: asyncio.sleep(0, len(llm.requests)), lambda count: count > asked)
        victim = await scene.holder(run)
        llm.script = steps([call("look"), say("done")])
        victim.kill()
        assert (await run.result())["result"] == "done"
        victim.start()
        return await attempts(run)

    await taken_over(play)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["mail", "ship"])
async def test_killed_during_an_effect_beside_a_sibling(
    llm: ScriptedLLM, scenes: Callable[[], Scene], tool: str
) -> None:
    """The next attempt finds the ledger's lock released and the effect started: it happens only once."""

    async def play() -> list[str]:
        scene = scenes()
        llm.script = steps([call(tool), say("done")])
        (scene.folder / "hold").touch()
        run = await scene.start()
        if tool == "ship":
            await status_of(run, "waiting_approval")
            await run.signal("approve", {"request": "1", "by": "alice"})
        await eventually(lambda: asyncio.to_thread((scene.folder / "effects").exists), bool)
        victim = await scene.holder(run)
        victim.kill()
        if tool == "mail":
            (request,) = (await status_of(run, "waiting_approval"))["pending"]
            assert request["kind"] == "reconcile"
            answer = {"request": "1", "decision": "happened", "result": "seen in the outbox", "by": "bob"}
            await run.signal("reconcile", answer)
        assert (await run.result())["result"] == "done"
        assert len((scene.folder / "effects").read_text().splitlines()) == 1
        victim.start()
        return await attempts(run)

    await taken_over(play)


@pytest.mark.slow
async def test_killed_while_waiting_beside_a_sibling(llm: ScriptedLLM, scenes: Callable[[], Scene]) -> None:
    """The sibling releases a run that waits for a person, and a later decision goes to any worker."""
    scene = scenes()
    llm.script = steps([call("ship"), say("done")])
    run = await scene.start()
    await status_of(run, "waiting_approval")
    await eventually(lambda: at_rest(run), bool)
    victim = await scene.holder(run)
    others = [each for each in scene.siblings if each is not victim]
    victim.kill()
    await eventually(lambda: asyncio.to_thread(lambda: any(f":{victim.pid}:" in each.log for each in others)), bool)
    before = (await run.fetch_history()).events
    await run.signal("approve", {"request": "1", "by": "alice"})
    assert (await run.result())["result"] == "done"
    after = (await run.fetch_history()).events[len(before) :]
    scheduled = next(event for event in after if event.HasField("workflow_task_scheduled_event_attributes"))
    queue = scheduled.workflow_task_scheduled_event_attributes.task_queue
    assert queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    victim.start()


@pytest.mark.slow
async def test_a_decision_before_the_next_process_starts(
    llm: ScriptedLLM, siblings: tuple[WorkerProcess, ...], scenes: Callable[[], Scene], tmp_path: Path
) -> None:
    """The only worker is killed, a person decides, and the next process gets the decision as soon as it starts."""
    queue = f"alone-{uuid4().hex[:8]}"
    environ = {"HOLDFAST_CATALOG": "tests.support.killable:catalog", "OPENAI_BASE_URL": llm.base_url}
    worker = WorkerProcess(
        siblings[0].home, beside=siblings[0], HOLDFAST_TASK_QUEUE=queue, STICKY_SECONDS="600", **environ
    )
    worker.task_queue = queue
    worker.start()
    try:
        scene = Scene(scenes().client, (worker,), tmp_path / "alone")
        llm.script = steps([call("ship"), say("done")])
        run = await scene.start()
        await status_of(run, "waiting_approval")
        await eventually(lambda: at_rest(run), bool)
        worker.kill()
        await run.signal("approve", {"request": "1", "by": "alice"})
        worker.start()
        assert (await run.result())["result"] == "done"
        assert len((scene.folder / "effects").read_text().splitlines()) == 1
        await check_thread(scene.client, run)  # a history with a failed task can be read and replayed like any other
        failed = [event.workflow_task_failed_event_attributes for event in (await run.fetch_history()).events]
        assert WORKER_DIED in [each.failure.application_failure_info.type for each in failed]
    finally:
        worker.stop()


@pytest.mark.slow
async def test_a_claim_is_ended_once_by_two_siblings(llm: ScriptedLLM, scenes: Callable[[], Scene]) -> None:
    """Two siblings notice the crash; the slower one does not end the next attempt, which is already running."""
    llm.script, asked = (lambda _: hang()), len(llm.requests)
    runs = [(scene := scenes(), await scene.start()) for _ in range(9)]
    await eventually(lambda: asyncio.sleep(0, len(llm.requests)), lambda count: count == asked + len(runs))
    victim = await runs[0][0].holder(runs[0][1])
    held = [run for scene, run in runs if await scene.holder(run) is victim]
    victim.kill()
    await eventually(lambda: asyncio.sleep(0, len(llm.requests)), lambda count: count >= asked + len(runs) + len(held))
    hint = f":{victim.pid}:"
    victim.start()  # a third sibling that sweeps
    registry = victim.home / "workers"  # dead workers are removed from the registry after the second sweep
    await eventually(
        lambda: asyncio.to_thread(lambda: any(hint in each.name for each in registry.iterdir())),
        lambda known: not known,
    )
    for run in held:
        for each in await running_calls(run):
            assert each.attempt == 2 or each.last_failure.application_failure_info.type != WORKER_DIED
    for _, run in runs:
        await run.terminate()


@pytest.mark.slow
async def test_a_frozen_worker_keeps_its_claims(llm: ScriptedLLM, scenes: Callable[[], Scene]) -> None:
    """During repeated freezes the sibling ends nothing; only Temporal's own timeouts do."""
    scene = scenes()
    llm.script, asked = (lambda _: hang()), len(llm.requests)
    run = await scene.start()
    await eventually(lambda: asyncio.sleep(0, len(llm.requests)), lambda count: count > asked)
    victim = await scene.holder(run)
    before = [each.log.count("taken_over") for each in scene.siblings]
    for seconds in (0.5, 1.5, 0.2, 2.0, 1.0, 7.0):
        os.kill(victim.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(victim.pid, signal.SIGCONT)
        await asyncio.sleep(0.5)
    assert [each.log.count("taken_over") for each in scene.siblings] == before
    pending = (await run.describe()).raw_description.pending_activities
    assert all(each.last_failure.application_failure_info.type != WORKER_DIED for each in pending)
    await run.terminate()
