"""With encryption on, Temporal stores nothing readable, and every reader of a thread still works."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from temporalio.client import Client

from holdfast import Agent, Catalog, tool
from holdfast.client.connect import connect_stack
from holdfast.client.threads import Threads
from holdfast.config.encryption_keys import PLAIN
from holdfast.config.stack_file import Stack
from holdfast.encryption.codec import EncryptionCodec
from holdfast.testing import Conversation, Reply, call, fail, say, slow, steps
from tests.integration.test_cli import Ran, Shell
from tests.support.rig import Rig, environ_of, eventually, start_rig, status_of


def new_key(name: str) -> str:
    """Return a key in the format of the setting."""
    return f"{name}:{base64.b64encode(os.urandom(32)).decode()}"


OLD, NEW = new_key("2026-01"), new_key("2026-07")
ROTATED = f"{NEW},{OLD}"
MARKS = (b"TASK-MARK", b"CALL-MARK", b"RESULT-MARK", b"FAILURE-MARK", b"ANSWER-MARK", b"AGENT-MARK")


@tool(effect="unsafe")
def publish(version: str) -> str:
    """Publish a version."""
    return f"RESULT-MARK {version}"


CATALOG = Catalog(agents=[Agent(name="releaser", instructions="AGENT-MARK", tools=[publish])])


class Provider:
    """An LLM provider that replies after one outage."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, conversation: Conversation) -> Reply:
        self.asked += 1
        if self.asked == 1:
            return fail(503, "FAILURE-MARK: overloaded")
        return steps([call("publish", version="CALL-MARK"), say("ANSWER-MARK")])(conversation)


@pytest.fixture
async def worker(client: Client, stack: Stack, tmp_path: Path) -> Any:
    """Run a worker with these keys, and yield a client."""

    @asynccontextmanager
    async def start(keys: str, *, task_queue: str = "") -> AsyncIterator[Rig]:
        codec = EncryptionCodec.of(SecretStr(keys) if keys else None)
        mine, its = [await connect_stack(stack, codec=codec) for _ in range(2)]
        async with start_rig(
            mine,
            CATALOG,
            Provider(),
            worker_client=its,
            database_url=stack.database_url,
            folder=tmp_path,
            task_queue=task_queue,
        ) as rig:
            yield rig

    return start


@pytest.fixture
def starter(stack: Stack, tmp_path: Path) -> Any:
    """Return a function that runs `starter.py` with these keys."""
    shell = Shell(
        {
            "HOLDFAST_HOME": str(tmp_path),
            **environ_of(stack),
            "DATABASE_URL": stack.database_url,
            "HOLDFAST_ANSWER_SECONDS": "4",
        }
    )

    async def run(keys: str, *words: str) -> Ran:
        return await asyncio.to_thread(shell, *words, HOLDFAST_ENCRYPTION_KEYS=keys)

    return run


async def stored(client: Client, thread: str) -> bytes:
    """Return everything that Temporal has stored of a thread."""
    run = client.get_workflow_handle(thread)
    events = (await run.fetch_history()).events
    described = (await run.describe()).raw_description
    return b"\n".join([described.SerializeToString(), *(event.SerializeToString() for event in events)])


async def test_everything_but_temporal_reads_an_encrypted_run(
    worker: Any, starter: Any, client: Client, tmp_path: Path
) -> None:
    """Nothing of a run with an outage and an approval is readable in Temporal.

    `starter.py` reads it with the key, even behind a newer one, and otherwise names the missing key.
    """
    async with worker(OLD) as r:
        run = await r.start("TASK-MARK")
        await status_of(run, "waiting_approval")
        thread = run.id
        show = await starter(OLD, "show", thread)
        assert (show.code, "CALL-MARK" in show.out) == (0, True), show
        assert (await starter(OLD, "approve", thread, "1")).code == 0
        assert "ANSWER-MARK" in str(await run.result())
        raw = await stored(client, thread)
        for mark in MARKS:
            assert mark not in raw
        assert raw.count(b"binary/encrypted") > 20

    file = tmp_path / "history.json"
    file.write_text((await client.get_workflow_handle(thread).fetch_history()).to_json())
    log, shown, transcript, checked, *replayed = await asyncio.gather(
        starter(OLD, "log", thread, "--json"),
        starter(OLD, "show", thread, "--json"),
        starter(OLD, "transcript", thread),
        starter(ROTATED, "verify", thread, "--json"),
        starter(ROTATED, "replay", thread),
        starter(OLD, "replay", "--file", str(file)),
    )
    assert {each.code for each in (log, shown, transcript, checked, *replayed)} == {0}
    assert [event["position"] for event in log.lines] == list(range(shown.json["events"]))
    assert shown.json["status"] == "completed"
    for mark in (b"TASK-MARK", b"CALL-MARK", b"RESULT-MARK", b"ANSWER-MARK"):
        assert mark.decode() in transcript.out
    assert (checked.json["verdict"], checked.json["from"]) == ("proven", ["history", "record"])

    keyless = [("show", thread), ("log", thread), ("verify", thread), ("replay", "--file", str(file))]
    other, *refused = await asyncio.gather(starter(NEW, "verify", thread), *(starter("", *words) for words in keyless))
    for ran in refused:
        assert (ran.code, ran.out) == (1, ""), ran
        assert "encrypted with the key '2026-01'" in ran.err
    assert "is not set here" in refused[0].err
    # Somebody else may have made a run that no key here decrypts: only the permanent record counts.
    assert (other.code, "has only 2026-07 here" in other.out) == (7, True), other


@pytest.mark.extended
async def test_a_worker_without_the_key_names_it_and_a_worker_with_it_continues(
    worker: Any, starter: Any, client: Client
) -> None:
    """A worker without the key answers nothing, gets stuck on a run and names the key.

    A worker with a rotated key continues the run with the new key, in one log.
    """

    async def is_idle() -> bool:
        described = (await run.describe()).raw_description
        return not (described.pending_activities or described.HasField("pending_workflow_task"))

    async with worker(OLD) as r:
        run = await r.start("TASK-MARK")
        await status_of(run, "waiting_approval")
        await eventually(is_idle, bool)
        thread, queue = run.id, r.task_queue
    async with worker("", task_queue=queue):
        read = await starter(OLD, "pending", thread)
        assert (read.code, "the one that has it lacks a key" in read.err) == (0, True), read
        assert "no worker answered" in (await starter(OLD, "approve", thread, "1")).out

        async def stuck_message() -> str:
            ran: Ran = await starter(OLD, "pending", thread)
            return ran.err

        await eventually(stuck_message, lambda words: "encrypted with the key '2026-01'" in words)
    async with worker(ROTATED, task_queue=queue) as r:
        run = r.client.get_workflow_handle(thread)
        assert "ANSWER-MARK" in str(await run.result())
    raw = await stored(client, thread)
    assert b"2026-01" in raw
    assert b"2026-07" in raw
    for mark in MARKS:
        assert mark not in raw
    assert (await starter(ROTATED, "verify", thread)).code == 0
    assert "2026-07" in (await starter(OLD, "verify", thread)).err


@pytest.mark.slow
async def test_a_run_that_started_before_encryption_continues_encrypted(
    worker: Any, starter: Any, client: Client
) -> None:
    """If encryption is switched on while a run waits, earlier events stay readable, and later ones are encrypted."""
    async with worker("") as r:
        run = await r.start("TASK-MARK")
        await status_of(run, "waiting_approval")
        thread, queue = run.id, r.task_queue
    switched_on = f"{NEW},{PLAIN}"
    async with worker(switched_on, task_queue=queue) as r:
        run = r.client.get_workflow_handle(thread)
        await status_of(run, "waiting_approval")
        await run.signal("approve", {"request": "1", "by": "ann"})
        assert "ANSWER-MARK" in str(await run.result())
    raw = await stored(client, thread)
    assert b"TASK-MARK" in raw
    assert b"ANSWER-MARK" not in raw
    runs = (starter(switched_on, verb, thread) for verb in ("show", "log", "verify", "replay"))
    assert [ran.code for ran in await asyncio.gather(*runs)] == [0] * 4


@pytest.mark.extended
async def test_events_of_a_terminated_run_are_recovered(worker: Any) -> None:
    """A terminated thread is re-opened: the worker reads its unrecorded events from the encrypted history."""
    async with worker(OLD) as r:
        r.llm.script = steps([slow(say("never heard"), 20)])
        run = await r.start("TASK-MARK")
        await eventually(lambda: run.query("state"), lambda state: state["events"] > 1)
        assert not await r.threads.read(run.id)
        await run.terminate()
        r.llm.script = steps([say("ANSWER-MARK")])
        await Threads(r.client, task_queue=r.task_queue).start("more", thread=run.id)
        assert "ANSWER-MARK" in str(await r.client.get_workflow_handle(run.id).result())
        record = b"\n".join(await r.threads.read(run.id))
        assert b"TASK-MARK" in record, "it is not encrypted, and says so in docs/how-to/encrypt.md"
        assert b"TASK-MARK" in r.llm.requests[-1].body
