"""SIGKILL at critical moments: the run continues from the last recorded event, and no effect happens twice."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey

from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.config.stack_file import write_stack
from holdfast.core.log.event_log import first_altered
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.devstack.ports import any_free
from holdfast.testing import ScriptedLLM, call, hang, say, steps
from holdfast.worker.takeover.liveness import this_process
from holdfast.worker.takeover.worker_identity import parse_identity
from tests.support.processes import WorkerProcess
from tests.support.rig import PATIENCE, events_of, eventually, status_of

STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")


@pytest.fixture(scope="module")
def llm() -> Iterator[ScriptedLLM]:
    """Run an LLM that survives kills of workers."""
    with ScriptedLLM() as llm:
        yield llm


@pytest.fixture(scope="module")
def worker(llm: ScriptedLLM, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Run a worker process with its own embedded stack."""
    worker = WorkerProcess(
        tmp_path_factory.mktemp("kills") / "home",
        HOLDFAST_CATALOG="tests.support.killable:catalog",
        OPENAI_BASE_URL=llm.base_url,
    )
    worker.start()
    yield worker
    assert worker.stop() == 0
    # A worker that shuts down in order is not mistaken for a dead one afterwards.
    assert not [path for path in (worker.home / "workers").iterdir() if f":{worker.pid}:" in path.name]


@pytest.fixture
async def client(worker: WorkerProcess) -> Client:
    """Connect a client to the worker's server."""
    return await connect_stack(worker.stack)


class Scene:
    """A run with its own folder and effects."""

    def __init__(self, client: Client, folder: Path, *, task_queue: str) -> None:
        self.client = client
        self.folder = folder
        self.task_queue = task_queue

    async def start(self, **begin: Any) -> WorkflowHandle[Any, Any]:
        """Start the run."""
        run = issued(RunInput(**{"task": "do it", "workspace": str(self.folder), **begin}))
        return await self.client.start_workflow(WORKFLOW, run, id=f"kill-{uuid4().hex[:8]}", task_queue=self.task_queue)

    def hold(self) -> None:
        """Pause tools within their effects from now on."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        """Let the tools finish."""
        (self.folder / "hold").unlink()

    async def held(self, name: str) -> None:
        """Wait until that tool is paused after its effect."""
        file = self.folder / f"held {name}"
        await eventually(lambda: asyncio.sleep(0, file.exists()), bool)

    async def effects(self, count: int) -> None:
        """Wait until that many effects have happened."""
        file = self.folder / "effects"

        async def seen() -> int:
            return len(file.read_text().splitlines()) if file.exists() else 0

        await eventually(seen, lambda seen: seen == count)


@pytest.fixture
def scene(client: Client, worker: WorkerProcess, tmp_path: Path) -> Scene:
    """Return a new scene."""
    return Scene(client, tmp_path, task_queue=worker.task_queue)


@pytest.mark.slow  # the kill matrix covers this, too
async def test_killed_during_an_llm_call(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """The next worker repeats the LLM call, and the run continues."""
    llm.script = lambda _: hang()
    asked = len(llm.requests)
    run = await scene.start()
    await eventually(lambda: asyncio.sleep(0, len(llm.requests)), lambda count: count > asked)
    (activity,) = (await run.describe()).raw_description.pending_activities
    identity = parse_identity(activity.last_worker_identity)
    assert identity is None if this_process() is None else identity and identity.pid == worker.pid
    worker.kill()
    llm.script = steps([call("look"), say("done")])
    worker.start()
    assert (await run.result())["result"] == "done"


@pytest.mark.slow  # the kill matrix covers this, too
async def test_killed_while_waiting_for_approval(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """A decision sent while no worker runs is processed by the next one."""
    llm.script = steps([call("ship"), say("done")])
    run = await scene.start()
    await status_of(run, "waiting_approval")
    worker.kill()
    await run.signal("approve", {"request": "1", "by": "alice"})
    worker.start()
    assert (await run.result())["result"] == "done"
    await scene.effects(1)


@pytest.mark.slow
async def test_killed_during_a_verifiable_effect(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """An effect that happened but was not recorded is found and adopted by the second attempt."""
    llm.script = steps([call("ship"), say("done")])
    scene.hold()
    run = await scene.start()
    await status_of(run, "waiting_approval")
    await run.signal("approve", {"request": "1", "by": "alice"})
    await scene.effects(1)
    worker.kill()
    worker.start()
    assert (await run.result())["result"] == "done"
    await scene.effects(1)
    (finished,) = [event for event in await events_of(run) if event.type == "tool_call_finished"]
    assert (finished.content, finished.adopted) == ("found it done", True)


@pytest.mark.slow
async def test_killed_during_an_unsafe_effect(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """The run asks a person instead of guessing, and continues with the answer."""
    llm.script = steps([call("mail"), say("done")])
    scene.hold()
    run = await scene.start()
    await scene.effects(1)
    worker.kill()
    worker.start()
    state = await status_of(run, "waiting_approval")
    assert state["pending"][0]["kind"] == "reconcile"
    await run.signal("reconcile", {"request": "1", "decision": "happened", "result": "seen in the outbox", "by": "bob"})
    assert (await run.result())["result"] == "done"
    await scene.effects(1)


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "most"), [("parse", 5), ("render", 3)])
async def test_a_call_that_kills_its_worker_is_abandoned(
    llm: ScriptedLLM, worker: WorkerProcess, scene: Scene, tool: str, most: int
) -> None:
    """After three worker crashes a read has failed, and an effect asks a person; other runs on the worker survive."""
    llm.script = steps([call("ship"), say("done")])
    other = await scene.start()
    await status_of(other, "waiting_approval")
    llm.script = steps([call(tool), say("done")])
    run = await scene.start()
    logs = ""
    while not (logs.count("worker_died_during_call") >= 3 and worker.is_alive()):
        await asyncio.sleep(0.05)
        if not worker.is_alive():
            logs += worker.log
            with suppress(AssertionError):  # it may die before it is ready
                await asyncio.to_thread(worker.start)
        elif (await run.describe()).typed_search_attributes.get(STATUS) in ("completed", "waiting_approval"):
            break
    crashes = (scene.folder / "crashes").read_text()
    assert 3 <= len(crashes) <= most, "as a local activity, a read may kill one or two more"
    if tool == "render":
        (pending,) = (await status_of(run, "waiting_approval"))["pending"]
        assert pending["kind"] == "reconcile"
        assert "3 times the worker that ran it died" in pending["why"]
        await run.signal("reconcile", {"request": "1", "decision": "abandon", "by": "bob"})
    else:
        await run.result()
        (finished,) = [event for event in await events_of(run) if event.type == "tool_call_finished"]
        assert finished.status == "failed"
        assert "3 times the worker that ran it died" in finished.text
    assert (await run.result())["result"] == "done"
    await other.signal("approve", {"request": "1", "by": "alice"})
    assert (await other.result())["result"] == "done"


@pytest.mark.slow
async def test_everything_killed_at_once(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """If server, database and worker are killed together, all runs continue on the same ports with their whole logs."""
    llm.script = steps([call("look"), call("ship"), say("done")])
    runs = [await scene.start() for _ in range(3)]
    before = [await status_of(run, "waiting_approval") for run in runs]
    address = worker.stack.temporal_address
    worker.kill_all()
    worker.start()
    assert worker.stack.temporal_address == address
    client = await connect_stack(worker.stack)
    for old, state in zip(runs, before, strict=True):
        run: WorkflowHandle[Any, Any] = client.get_workflow_handle(old.id)
        assert await run.query("state") == state
        await run.signal("approve", {"request": "1", "by": "alice"})
        assert (await run.result())["result"] == "done"
        assert first_altered(await events_of(run)) is None
    await scene.effects(3)


@pytest.mark.slow
async def test_servers_are_killed_under_a_running_worker(llm: ScriptedLLM, worker: WorkerProcess, scene: Scene) -> None:
    """`worker.py --dev` restarts its servers; the worker reconnects, and the run continues."""
    llm.script = steps([call("ship"), say("done")])
    run = await scene.start()
    await status_of(run, "waiting_approval")
    before = worker.stack
    worker.kill_servers()
    await eventually(
        lambda: asyncio.sleep(0, worker.stack),
        lambda stack: stack.temporal_pid != before.temporal_pid and stack.postgres_pid != before.postgres_pid,
    )
    client = await connect_stack(worker.stack)
    again: WorkflowHandle[Any, Any] = client.get_workflow_handle(run.id)
    await again.signal("approve", {"request": "1", "by": "alice"})
    assert (await again.result())["result"] == "done"
    await scene.effects(1)


@pytest.mark.slow
def test_a_worker_whose_port_was_taken_ends(tmp_path: Path) -> None:
    """If Temporal restarts on another port, the worker ends instead of serving another server on the old one."""
    worker = WorkerProcess(tmp_path / "home")
    worker.start()
    try:
        elsewhere = worker.stack.model_copy(update={"temporal_port": any_free()})
        write_stack(worker.home, elsewhere)  # the port on which the server will try to restart
        worker.kill_servers()
        assert worker.wait() == 2
    finally:
        worker.stop()


@pytest.mark.slow
async def test_a_follower_never_reads_unrecorded_events(
    llm: ScriptedLLM, worker: WorkerProcess, client: Client, scene: Scene
) -> None:
    """A query that overtakes a workflow task shows the log only up to that task, as later events may change order.

    The query waits for the dead worker's sticky queue first. Meanwhile the call ends, and its own workflow task waits
    there too, a second longer: a replay that already includes the result answers the query.
    """
    llm.script = steps([call("stare"), say("done")])
    scene.hold()
    run = await scene.start()
    running = await eventually(run.describe, lambda run: "call_tool" in str(run.raw_description.pending_activities))
    (activity,) = running.raw_description.pending_activities  # its first attempt was a local activity
    worker.kill()
    worker.start(HOLDFAST_TAKEOVER="false")
    patience = timedelta(seconds=PATIENCE)
    early = asyncio.create_task(run.query("log", 0, result_type=bytes, rpc_timeout=patience))
    early_state = asyncio.create_task(run.query("state", rpc_timeout=patience))
    await asyncio.sleep(1)
    pending = client.get_async_activity_handle(
        workflow_id=run.id, run_id=run.first_execution_run_id, activity_id=activity.activity_id
    )
    await pending.complete(ToolOutcome(status="ok", content="shipped"))
    seen = (await early).split(b"\n")
    await run.result()
    final = (await run.query("log", 0, result_type=bytes)).split(b"\n")
    assert seen == final[: len(seen)]
    assert (await early_state)["events"] in (len(seen), len(final))
    scene.release()


@pytest.mark.slow
async def test_killed_between_a_memory_file_and_the_ledger(
    llm: ScriptedLLM, worker: WorkerProcess, scene: Scene
) -> None:
    """A note, a completed task and a learning are written once, though each is attempted twice.

    The worker is killed after it wrote the file and before the ledger has the result.
    """
    workspace, hold = scene.folder / "workspace", scene.folder / "hold"
    workspace.mkdir()
    (workspace / "TASKS.md").write_text("## To do\n- [ ] one\n## Done\n")
    (workspace / "progress.txt").write_text("## Current Status\n- Thread: older\n- Goal: before\n")
    llm.script = steps(
        [
            call("complete_task", title="one", what="did it"),
            say("the answer"),
            call("note_learning", title="t", text="x"),
        ]
    )
    names = ("update_progress", "complete_task", "note_learning")
    hold.write_text(names[0])
    run = await scene.start(agent="archivist", workspace=str(workspace))
    for name, following in zip(names, (*names[1:], ""), strict=True):
        if name == "note_learning":  # the run has read files, which no person vouches for
            await status_of(run, "waiting_approval")
            await run.signal("approve", {"request": "1", "by": "alice"})
        await scene.held(name)
        worker.kill()
        hold.write_text(following)
        worker.start()
    assert (await run.result())["result"] == "the answer"
    tasks, progress = (workspace / "TASKS.md").read_text(), (workspace / "progress.txt").read_text()
    assert tasks.startswith("## To do\n## Done\n- [x] one (completed: ")
    assert tasks.count("\n") == 3
    assert progress.count("older: before") == progress.count("did it") == 1
    assert progress.count("- Goal:") == progress.count("- Last Step: 3, completed") == 1
    assert (workspace / "LEARNINGS.md").read_text().count("> x") == 1
    events = await events_of(run)
    assert first_altered(events) is None
    assert sum(event.type == "tool_call_started" for event in events) == 4
