"""A thread that crosses three providers while its workers are killed has the log of one that nobody disturbed."""

import asyncio
import threading
from collections import Counter
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
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.drafts import Draft
from holdfast.streaming.hub import listening
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.reading import read_stream
from tests.support.examples import examples
from tests.support.fake_llms import Answer, FakeLLMs, Received
from tests.support.processes import WorkerProcess
from tests.support.rig import PATIENCE, events_of
from tests.support.streamed import id_of

STEPS = {"anthropic_messages": range(3), "responses": range(3, 6), "chat_completions": range(6, 10)}
"""The steps that each API replies to; after them it rejects its key."""

LAST = 9

VARYING = {"thread", "start", "run_id", "first_run_id", "key"} | {
    "at",
    "digest",
    "signed",
    "duration_ms",
    "attempt",
    "outage",
}
"""Fields that differ between two runs: ids, times and what depends on them, attempts and their failures."""


class Script:
    """Answers requests by their content alone, and lets the test kill the worker within a reply.

    The reader has seen the text of a reply before a kill hits it, and before it ends, as its event may come first
    otherwise.
    """

    def __init__(self) -> None:
        self.kills: Counter[int] = Counter()
        """The kills to come, by the step within whose reply they hit."""
        self._draft = ""
        """The text that the reader has seen of the reply to come."""
        self._changed = threading.Condition()
        self.within = threading.Semaphore(0)
        """Released within a reply that waits for a kill."""

    def answer(self, received: Received) -> Answer:
        """Return the reply of a step."""
        step = received.body.count(b"seen ")
        if step not in STEPS[received.api]:
            return Answer(status=401, message="the key has expired")

        text = "All of it has been seen." if step == LAST else f"Step {step} of many. "

        def held() -> None:
            with self._changed:
                assert self._changed.wait_for(lambda: self._draft == text, PATIENCE)
                if not self.kills[step]:
                    return
                self.kills[step] -= 1
                self._draft = ""  # the next attempt has to be seen, too
            self.within.release()
            threading.Event().wait(60)  # the worker is killed meanwhile

        return Answer(text=text, call=None if step == LAST else ("look", {"at": step}), held=held)

    def see(self, each: Any) -> None:
        """Take what the reader sees."""
        with self._changed:
            if isinstance(each, Chunk) and each.kind == "text":
                self._draft += each.text
            elif not isinstance(each, Chunk) or each.kind == "superseded":
                self._draft = ""
            self._changed.notify_all()


def comparable(events: list[AgentEvent]) -> list[Any]:
    """Return a log without ids, times, attempts and their failures."""
    return [_without(event.model_dump(mode="json")) for event in events]


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in VARYING}
    return [_without(each) for each in value] if isinstance(value, list) else value


async def run_thread(
    client: Client, worker: WorkerProcess, folder: Path, script: Script
) -> tuple[list[AgentEvent], list[Any]]:
    """Run a thread to its end; return its log, and what a reader saw."""
    name = f"crossing-{uuid4().hex[:8]}"
    run = await client.start_workflow(
        WORKFLOW, issued(RunInput(task="go", workspace=str(folder))), id=name, task_queue=worker.task_queue
    )
    threads = Threads(client, task_queue=worker.task_queue)
    async with listening(PostgresStreams(worker.stack.database_url)) as hub:
        items = []
        async for each in read_stream(threads, hub, name, patient=True):
            items.append(each)
            script.see(each)
    return await events_of(run), items


def drafts_of(items: list[Any]) -> tuple[dict[int, Draft], list[tuple[int, Draft]]]:
    """Return the last draft of each reply by the reply's position, and the drafts that were superseded before it."""
    last: dict[int, Draft] = {}
    superseded: list[tuple[int, Draft]] = []
    open_ones: list[Draft] = [Draft()]
    for each in items:
        if isinstance(each, Chunk):
            if each.kind == "superseded":
                open_ones.append(Draft())
            open_ones[-1].add(each)
        elif each["type"] == "llm_replied":
            *earlier, last[each["position"]] = open_ones
            superseded += [(each["position"], draft) for draft in earlier]
            open_ones = [Draft()]
    return last, superseded


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
            undisturbed, _ = await run_thread(client, worker, tmp_path, script)
            script.kills = Counter(number * (LAST + 1) // kills for number in range(kills))
            running = asyncio.create_task(run_thread(client, worker, tmp_path, script))
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
    places = [Cursor.parse(id_of(each)) for each in seen]
    assert places == sorted(set(places), key=lambda place: (place.position, not place.attempt, place))
    last, superseded = drafts_of(seen)
    assert sum(bool(draft.text) for _, draft in superseded) >= kills
    messages = {event.position: event.message for event in replied if event.message}
    # A reply is recorded after its text has been seen, perhaps before the arguments of its call have been.
    assert {at: draft.text for at, draft in last.items()} == {at: each.text for at, each in messages.items()}
    for at, draft in [*last.items(), *superseded]:
        assert messages[at].text.startswith(draft.text)
        recorded = [(call.name, call.arguments) for call in messages[at].tool_calls]
        assert len(draft.calls) <= len(recorded)
        for call, (name, arguments) in zip(draft.calls.values(), recorded, strict=False):
            assert call.tool == name
            assert arguments.startswith(call.arguments)
