"""A thread that crosses three providers while its workers are killed has the log of one that nobody disturbed."""

import asyncio
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.client.threads import Threads
from holdfast.core.log.events import AgentEvent, LLMReplied
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.streaming.hub import listening
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.reading import read_stream
from tests.support.examples import examples
from tests.support.fake_llms import Answer, FakeLLMs, Received
from tests.support.processes import WorkerProcess
from tests.support.rig import PATIENCE, events_of
from tests.support.streamed import drafts

STEPS = {"anthropic_messages": range(3), "responses": range(3, 6), "chat_completions": range(6, 10)}
"""The steps that each API replies to; after them it rejects its key."""

LAST = 9


class Script:
    """Answers requests by their content alone, and lets the test kill the worker within a reply."""

    def __init__(self) -> None:
        self.kills = 0
        """The kills to come."""
        self.within = threading.Semaphore(0)
        """Released within a reply that waits for a kill."""
        self._killed: dict[int, int] = {}

    def answer(self, received: Received) -> Answer:
        """Return the reply of a step."""
        step = received.body.count(b"seen ")
        if step not in STEPS[received.api]:
            return Answer(status=401, message="the key has expired")

        def held() -> None:
            if self.kills and self._killed.get(step, 0) <= min(self._killed.values(), default=0):
                self.kills -= 1
                self._killed[step] = self._killed.get(step, 0) + 1
                self.within.release()
                threading.Event().wait(60)  # the worker is killed meanwhile

        if step == LAST:
            return Answer(text="All of it has been seen.", held=held)
        return Answer(text=f"Step {step} of many. ", call=("look", {"at": step}), held=held)


def comparable(events: list[AgentEvent]) -> list[Any]:
    """Return a log without ids, times, attempts and their failures."""
    found: list[Any] = []
    for event in events:
        if isinstance(event, LLMReplied):
            passed = [(each.llm, each.cause, each.message, each.rejected) for each in event.passed_over]
            found.append((event.message, event.usage, event.endpoint, event.finish_reason, passed))
        else:
            found.append((event.type, getattr(event, "content", None), getattr(event, "result", None)))
    return found


async def run_thread(client: Client, worker: WorkerProcess, folder: Path) -> tuple[list[AgentEvent], list[Any]]:
    """Run a thread to its end; return its log, and what a reader saw."""
    name = f"crossing-{uuid4().hex[:8]}"
    run = await client.start_workflow(
        WORKFLOW, issued(RunInput(task="go", workspace=str(folder))), id=name, task_queue=worker.task_queue
    )
    threads = Threads(client, task_queue=worker.task_queue)
    async with listening(PostgresStreams(worker.stack.database_url)) as hub:
        seen = [each async for each in read_stream(threads, hub, name, patient=True)]
    return await events_of(run), seen


@pytest.mark.slow
@pytest.mark.timeout(5_400)
async def test_a_thread_that_crosses_three_providers_survives_kills_within_replies(tmp_path: Path) -> None:
    """Workers are killed while replies are streamed: the log differs in attempts alone, and a reader sees no word
    twice.
    """
    script, kills = Script(), examples(4, 50)
    with FakeLLMs(**dict.fromkeys(STEPS, script.answer)) as llms:
        settings: dict[str, Any] = {
            "OPENAI_API_KEY": "sk-openai-key-0000",
            "OPENAI_BASE_URL": f"{llms.root}/v1",
            "ANTHROPIC_API_KEY": "sk-ant-key-11111",
            "ANTHROPIC_BASE_URL": llms.root,
        }
        worker = WorkerProcess(tmp_path / "home", HOLDFAST_CATALOG="tests.support.crossing:catalog", **settings)
        worker.start()
        try:
            client = await connect_stack(worker.stack)
            undisturbed, _ = await run_thread(client, worker, tmp_path)
            script.kills = kills
            running = asyncio.create_task(run_thread(client, worker, tmp_path))
            for _ in range(kills):
                assert await asyncio.to_thread(script.within.acquire, timeout=3 * PATIENCE)
                worker.kill()
                worker.start()
            disturbed, seen = await asyncio.wait_for(running, PATIENCE)
        finally:
            worker.stop()
    assert comparable(disturbed) == comparable(undisturbed)
    replied = [event for event in disturbed if isinstance(event, LLMReplied)]
    assert [event.endpoint for event in replied] == ["anthropic"] * 3 + ["openai"] * 3 + ["chat"] * 4
    assert sum(event.attempt - 1 for event in replied) >= kills
    texts = {event.position: event.message.text for event in replied if event.message}
    # The reply may be recorded before a reader has its last pieces: then it has seen the beginning of the text.
    assert [(text, texts[at]) for at, text in drafts(seen).items() if not texts[at].startswith(text)] == []
