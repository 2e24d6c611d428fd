"""A worker is killed while its request is in flight: another one takes over, and the request arrives once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.core.log.events import ToolCallFinished
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import ScriptedLLM, call, say, steps
from tests.support.outside import Api, Outside
from tests.support.processes import WorkerProcess
from tests.support.rig import events_of, eventually, status_of


@pytest.fixture
def api() -> Iterator[Api]:
    """Run a server that delays every request."""
    with Api(late=1.0) as api:
        yield api


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["transfer", "mail"])
async def test_a_request_that_outlives_its_worker_arrives_once(api: Api, tool: str, tmp_path: Path) -> None:
    """A check finds the late request on a retry; without a check, a person decides once nothing can arrive."""
    outside = Outside(api, tmp_path / "outbox")
    with ScriptedLLM(steps([call(tool, order="7"), say("done")])) as llm:
        worker = WorkerProcess(
            tmp_path / "home",
            HOLDFAST_CATALOG="tests.support.outside:catalog",
            OPENAI_BASE_URL=llm.base_url,
            OUTSIDE_API=api.url,
            OUTSIDE_FILE=str(outside.file),
        )
        await asyncio.to_thread(worker.start)
        try:
            client = await connect_stack(worker.stack)
            begin, thread = issued(RunInput(task="go", agent="shop")), f"late-{uuid4().hex[:8]}"
            run = await client.start_workflow(WORKFLOW, begin, id=thread, task_queue=worker.task_queue)
            await eventually(lambda: asyncio.sleep(0, api.under_way), bool)
            worker.kill()
            await asyncio.to_thread(worker.start)
            if tool == "mail":
                state = await status_of(run, "waiting_approval")
                assert "may still arrive until" in state["pending"][0]["why"]
                await asyncio.to_thread(api.drain)
                answer = {"request": "1", "decision": "happened", "by": "alice"}
                await run.signal("reconcile", answer)
            assert (await run.result())["result"] == "done"
            (ended,) = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
            assert (ended.status, ended.adopted) == ("ok", True)
            api.drain()
            assert list(outside.effects().values()) == [1]
        finally:
            await asyncio.to_thread(worker.stop)
