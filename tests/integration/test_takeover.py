"""A worker that was killed is taken over from by its siblings; one that lives, or was frozen, never is.

Whether a call was taken over shows in its next attempt, which begins with the failure of the one before: `WorkerDied`,
or a heartbeat time-out where Temporal was the first to notice.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.runtime.liveness import is_gone, this_process
from holdfast.runtime.registry import WorkerRegistry
from holdfast.runtime.takeover import WORKER_DIED, sweep, taking_over
from holdfast.runtime.worker_identity import WorkerIdentity, parse_identity
from holdfast.testing import call, hang, say, steps
from tests.rig import Rig, StartRig, eventually, status_of
from tests.unit.test_liveness import identity_of

pytestmark = pytest.mark.skipif(this_process() is None, reason="processes are proved to be gone on Linux only")

DOOMED = "holdfast:elsewhere:0123456789abcdef:4711:1"


@tool(effect="unsafe")
async def ship() -> str:
    """Ship."""
    return "shipped"


CATALOG = Catalog(
    agents=[Agent(name="clerk", policy=Policy(rules=(ask("ship"), allow())), instructions="")], tools=[ship]
)


def me() -> WorkerIdentity:
    """This process."""
    found = this_process()
    assert found is not None
    return found


async def attempts(run: WorkflowHandle[Any, Any]) -> list[str]:
    """What ended each attempt that was followed by another: `WorkerDied`, or a time-out's words."""
    failures = []
    async for event in run.fetch_history_events():
        if event.HasField("activity_task_started_event_attributes"):
            started = event.activity_task_started_event_attributes
            if started.attempt > 1:
                failures.append(started.last_failure.application_failure_info.type or started.last_failure.message)
    return failures


async def at_rest(run: WorkflowHandle[Any, Any]) -> bool:
    """Whether nothing of the run is under way, its record neither."""
    described = (await run.describe()).raw_description
    return not described.pending_activities and not described.HasField("pending_workflow_task")


async def called(rig: Rig) -> None:
    """Wait until the LLM is asked."""
    await eventually(lambda: asyncio.sleep(0, len(rig.llm.requests)), bool)


async def swept(rig: Rig, gone: Any, wanted: dict[str, int]) -> None:
    """Sweep until that much is ended at once: a run that has just begun may not be listed yet."""
    await eventually(lambda: sweep(rig.client, rig.task_queue, gone=gone, me=me()), lambda ended: ended == wanted)


async def test_a_dead_workers_call_is_made_again_at_once(rig: StartRig) -> None:
    """Its activity is given back, to be retried without delay, and the run goes on as if nothing had happened."""
    async with rig(CATALOG, lambda _: hang(), identity=DOOMED) as at_work:
        run = await at_work.start()
        await called(at_work)
        at_work.llm.script = steps([say("done")])
        await swept(at_work, lambda identity: identity == DOOMED, {"activities": 1, "workflows": 1})
        assert (await run.result())["result"] == "done"
        assert await attempts(run) == [WORKER_DIED]


async def test_a_dead_workers_workflows_go_to_any_other(rig: StartRig) -> None:
    """A run that waits for a person is not kept for the worker that has it cached; what it waits for stays."""
    async with rig(CATALOG, steps([call("ship"), say("done")]), identity=DOOMED) as at_work:
        run = await at_work.start()
        await status_of(run, "waiting_approval")
        await eventually(lambda: at_rest(run), bool)
        await swept(at_work, lambda identity: identity == DOOMED, {"activities": 0, "workflows": 1})
        before = (await run.fetch_history()).events
        await run.signal("approve", {"request": "1", "by": "alice"})
        assert (await run.result())["result"] == "done"
        after = (await run.fetch_history()).events[len(before) :]
        scheduled = next(event for event in after if event.HasField("workflow_task_scheduled_event_attributes"))
        queue = scheduled.workflow_task_scheduled_event_attributes.task_queue
        assert queue.kind == TaskQueueKind.TASK_QUEUE_KIND_NORMAL


async def test_the_claims_of_the_living_stay(rig: StartRig) -> None:
    """Of this process, and of those that nobody here can judge: nothing is ended, whatever the hints say."""
    for identity in (str(me()), DOOMED, "4711@build-7"):
        async with rig(CATALOG, lambda _: hang(), identity=identity) as at_work:
            run = await at_work.start()
            await called(at_work)
            await swept(at_work, lambda identity: identity == "nobody", {"activities": 0, "workflows": 0})

            def gone(identity: str) -> bool:
                found = parse_identity(identity)
                return found is not None and is_gone(found, seen_from=me())

            await swept(at_work, gone, {"activities": 0, "workflows": 0})
            (pending,) = (await run.describe()).raw_description.pending_activities
            assert (pending.attempt, pending.last_worker_identity) == (1, identity)
            await run.terminate()


async def test_siblings_take_over_as_soon_as_a_process_is_gone(rig: StartRig, client: Client, tmp_path: Path) -> None:
    """Two of them watch a third one that works; it is killed, its call is made again, and nobody remembers it."""
    doomed = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    victim = identity_of(doomed.pid, me())
    async with rig(CATALOG, lambda _: hang(), identity=str(victim)) as at_work:
        watching = {"home": tmp_path, "task_queue": at_work.task_queue}
        address = client.service_client.config.target_host
        registry = WorkerRegistry(tmp_path, address, client.namespace, at_work.task_queue)
        registry.enter(victim)
        async with taking_over(client, **watching) as name, taking_over(client, **watching):
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


async def test_takeover_can_be_switched_off(client: Client, tmp_path: Path) -> None:
    """Then a worker has Temporal's own identity, and no file of it lies anywhere."""
    async with taking_over(client, home=tmp_path, task_queue="q", wanted=False) as name:
        assert name is None
        assert list(tmp_path.iterdir()) == []


async def test_without_a_registry_a_worker_works_all_the_same(client: Client, tmp_path: Path) -> None:
    """A state folder that cannot be written costs the takeover, not the worker."""
    (tmp_path / "workers").write_text("in the way")
    async with taking_over(client, home=tmp_path, task_queue="q") as name:
        assert name == str(me())


async def test_queues_of_any_name_are_looked_through(client: Client) -> None:
    """Quotes in a task queue's name are part of the name."""
    for queue in ("it's", 'a "b"', "back\\slash", "\\'", "a' OR WorkflowType != 'x"):
        assert await sweep(client, queue, gone=lambda _: True, me=me()) == {"activities": 0, "workflows": 0}
