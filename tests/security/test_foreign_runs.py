"""Foreign runs: an attacker runs our own code with another key, and readers reject the results."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.api.command.v1 import Command, CompleteWorkflowExecutionCommandAttributes
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import CommandType, TaskQueueKind
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest, RespondWorkflowTaskCompletedRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.api.dialogue import OpenEvidence
from holdfast.api.thread import Thread
from holdfast.api.waiting import result_of, wait
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect, connect_stack, stack_config
from holdfast.client.follow import follow
from holdfast.client.idempotent_starts import start_once
from holdfast.client.listing import list_threads
from holdfast.client.messages import say as send_message
from holdfast.client.reading.record import Evidence
from holdfast.client.showing import show_thread
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.encryption_keys import parse_keys
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW
from holdfast.encryption.codec import EncryptionCodec, KeyUnknown
from holdfast.encryption.fleet_keys import stack_seals
from holdfast.errors import AnswerForged, ExportFailed, HistoryForged, TaskDiffers, ThreadExists
from holdfast.portable.export import export_thread
from holdfast.portable.verify import verify_file
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.integration.test_http_api import gateway_of, named
from tests.support.attacker import attacking, reach
from tests.support.keeping import new_pool
from tests.support.rig import PATIENCE, Rig, StartRig, eventually, start_rig

JSON = dict[str, Any]
FORGED = "transferred 1,000,000"
GATEWAY = encode_key(b"gateway" * 4 + b"key!")


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), tools=[look])])


@dataclass
class Readers:
    """All the ways in which our processes read a thread, with the fleet key and the permanent record."""

    threads: Threads
    pool: AsyncConnectionPool

    @property
    def evidence(self) -> Evidence:
        """Return ledger and artifacts."""
        asides = PostgresThreads(self.pool).asides
        return Evidence(partial(effects_of, self.pool), asides, PostgresArtifacts(self.pool))

    async def listed(self, thread: str) -> JSON:
        """Return the row of a thread once the server lists it."""

        async def row() -> JSON | None:
            return next((row for row in await list_threads(self.threads) if row["thread"] == thread), None)

        listing: JSON = await eventually(row, bool)
        return listing

    async def show(self, thread: str) -> tuple[JSON, list[str]]:
        """Return what `show` presents, and its notes."""
        notes: list[str] = []
        return (await show_thread(self.threads, thread, note=notes.append)).view, notes

    async def export(self, thread: str, path: Path, key: str | None = GATEWAY) -> bool:
        """Export a thread, and return whether the file is signed."""
        return (await export_thread(self.threads, thread, path, evidence=self.evidence, private=key)).signed


@pytest.fixture
async def readers(stack: Stack) -> AsyncIterator[Readers]:
    """Yield the fleet's readers, with the database of the fleet's workers."""
    async with open_readers(stack) as readers:
        yield readers


@asynccontextmanager
async def open_readers(stack: Stack, codec: EncryptionCodec | None = None) -> AsyncIterator[Readers]:
    """Connect the fleet's readers for a block."""
    client = await connect_stack(stack, codec=codec)
    async with open_pool(stack.database_url, size=4) as pool:
        yield Readers(Threads(client, answer_within=PATIENCE, record=PostgresThreads(pool)), pool)


@asynccontextmanager
async def stranger(
    stack: Stack, folder: Path, seals: FleetKeys, codec: EncryptionCodec | None = None
) -> AsyncIterator[Rig]:
    """Run our own code as an attacker does: with another key, task queue, database and LLM."""
    folder = folder / "stranger"
    folder.mkdir()
    theirs = [await connect(stack_config(stack), codec=codec, seals=seals) for _ in range(2)]
    async with new_pool(stack.database_url) as (url, _):
        script = steps([call("look"), say(FORGED)])
        async with start_rig(
            theirs[0], CATALOG, script, worker_client=theirs[1], database_url=url, folder=folder, debug_mode=True
        ) as rig:
            yield rig


async def forge(
    stack: Stack, folder: Path, thread: str, seals: FleetKeys, codec: EncryptionCodec | None = None
) -> None:
    """Make an attacker's worker complete a run under a thread's id, from a plain start."""
    async with stranger(stack, folder, seals, codec) as rig:
        run = await rig.client.start_workflow(WORKFLOW, {"task": "do it"}, id=thread, task_queue=rig.task_queue)
        await run.result()


def own_keys(stack: Stack) -> list[FleetKeys]:
    """Return keys that an attacker may choose: another id, and the fleet's own id."""
    return [FleetKeys({"theirs": b"t" * 32}), FleetKeys({next(iter(stack_seals(stack).keys)): b"t" * 32})]


async def finished_thread(rig: Rig, thread: str) -> WorkflowHandle[Any, Any]:
    """Run a thread of our own to its end."""
    run = await rig.start(thread=thread, by="alice")
    await run.result()
    return run


# A new id.


@pytest.mark.parametrize("key", [1, pytest.param(0, marks=pytest.mark.extended)])
async def test_a_run_with_a_foreign_key_is_rejected(stack: Stack, readers: Readers, tmp_path: Path, key: int) -> None:
    """No reader returns its result, `verify` reports it as altered, and nobody signs its file."""
    thread, threads = named("forged"), readers.threads
    await forge(stack, tmp_path, thread, own_keys(stack)[key])

    view, _ = await readers.show(thread)
    assert (view["status"], view["result"], view["events"]) == ("unauthenticated", None, 0)
    assert FORGED not in str(view)
    assert (await readers.listed(thread))["status"] == "unauthenticated"
    for reading in (
        lambda: _all(threads.events(thread)),
        lambda: _all(threads.messages(thread)),
        lambda: _all(follow(threads, thread)),
        lambda: readers.export(thread, tmp_path / "unsigned.holdfast", None),
    ):
        with pytest.raises(HistoryForged, match="our own processes"):
            await reading()
    with pytest.raises(HistoryForged):
        await result_of(threads, await wait(threads, thread, until="end"))
    report = await verify(threads, thread, evidence=readers.evidence)
    assert (report.verdict, report.where) == ("altered", "history")
    with pytest.raises(ExportFailed, match="does not verify"):
        await readers.export(thread, tmp_path / "signed.holdfast")
    assert not (tmp_path / "signed.holdfast").exists()


async def test_a_reader_without_a_key_reports_unchecked_seals(stack: Stack, readers: Readers, tmp_path: Path) -> None:
    """Without a key the seals are reported as unchecked, so nothing is proven."""
    thread = named("forged")
    await forge(stack, tmp_path, thread, own_keys(stack)[0])
    keyless = Threads(await connect(stack_config(stack)), record=PostgresThreads(readers.pool))
    report = await verify(keyless, thread, evidence=readers.evidence)
    assert report.verdict == "not_proven", report.reason
    assert "seals" in {gap.what for gap in report.unchecked}
    assert "seals" not in report.checked


@pytest.mark.extended
async def test_a_run_without_any_seal_is_rejected_even_without_a_key(
    stack: Stack, readers: Readers, tmp_path: Path
) -> None:
    """Unsealed values never count, whether or not the reader has a key."""
    thread = named("bare")
    async with attacking(await reach(stack)) as queue:
        run = await (await reach(stack)).start_workflow(WORKFLOW, {"task": "go"}, id=thread, task_queue=queue + "-none")
        await complete(await reach(stack), queue + "-none", {"result": FORGED, "steps": 1, "usage": {}})
        await run.result()
    keyless = Threads(await connect(stack_config(stack)), record=PostgresThreads(readers.pool))
    for threads in (readers.threads, keyless):
        view = (await show_thread(threads, thread, note=lambda _: None)).view
        assert (view["status"], view["result"]) == ("unauthenticated", None)
        assert (await verify(threads, thread, evidence=readers.evidence)).verdict == "altered"
    assert (await readers.listed(thread))["status"] == "unauthenticated"


@pytest.mark.extended
@pytest.mark.parametrize("encrypts", [False, True])
async def test_with_encryption_on_a_foreign_run_is_rejected(stack: Stack, tmp_path: Path, encrypts: bool) -> None:
    """An attacker may encrypt with another key, or not at all."""
    thread = named("forged")
    theirs = EncryptionCodec(parse_keys(f"theirs:{b64encode(b'e' * 32).decode()}")) if encrypts else None
    await forge(stack, tmp_path, thread, own_keys(stack)[0], theirs)
    async with open_readers(stack, EncryptionCodec(parse_keys(f"ours:{b64encode(b'o' * 32).decode()}"))) as readers:
        assert (await readers.listed(thread))["status"] == "unauthenticated"
        if encrypts:  # it cannot be read at all
            for reading in (
                lambda: readers.show(thread),
                lambda: verify(readers.threads, thread, evidence=readers.evidence),
                lambda: readers.export(thread, tmp_path / "signed.holdfast"),
            ):
                with pytest.raises(KeyUnknown):
                    await reading()
            return
        view, _ = await readers.show(thread)
        assert (view["status"], view["result"]) == ("unauthenticated", None)
        assert (await verify(readers.threads, thread, evidence=readers.evidence)).verdict == "altered"
        with pytest.raises(ExportFailed):
            await readers.export(thread, tmp_path / "signed.holdfast")


@pytest.mark.extended
async def test_an_open_run_with_a_foreign_key_is_rejected(stack: Stack, readers: Readers, tmp_path: Path) -> None:
    """Neither its worker's answers nor its own search attributes count."""
    thread = named("open")
    async with stranger(stack, tmp_path, own_keys(stack)[0]) as rig:
        start = {"task": "do it", "idle_limit": 3_600}
        run = await rig.client.start_workflow(WORKFLOW, start, id=thread, task_queue=rig.task_queue)
        theirs = Threads(rig.client, answer_within=PATIENCE)
        await eventually(lambda: theirs.state(thread), lambda state: state["status"] == "waiting_message")
        with pytest.raises(AnswerForged):
            await readers.show(thread)
        with pytest.raises(AnswerForged):
            await result_of(readers.threads, await wait(readers.threads, thread, until="attention"))
        assert (await readers.listed(thread))["status"] == "unauthenticated"
        assert (await verify(readers.threads, thread, evidence=readers.evidence)).verdict == "altered"
        await run.terminate()


async def test_a_run_of_ours_that_an_attacker_completes_is_not_completed(
    rig: StartRig, stack: Stack, readers: Readers
) -> None:
    """Temporal's status is a claim: an attacker who polls the task queue can end a run, but not give it a result."""
    thread, queue = named("stolen"), f"test-{uuid4().hex[:8]}"
    run = await Threads(await connect_stack(stack), task_queue=queue).start("do it", thread=thread)
    assert run.thread == thread
    await complete(await reach(stack), queue, {"result": FORGED, "steps": 1, "usage": {}})
    view, _ = await readers.show(thread)
    assert (view["status"], view["result"]) == ("unauthenticated", None)
    assert (await readers.listed(thread))["status"] == "unauthenticated"
    report = await verify(readers.threads, thread, evidence=readers.evidence)
    assert (report.verdict, report.where) == ("altered", "history")


# The id of a closed thread.


async def assert_recorded(readers: Readers, thread: str, foreign: str, path: Path) -> None:
    """Check that all readers show the thread's own end, and report the other run."""
    view, notes = await readers.show(thread)
    assert (view["status"], view["result"]) == ("completed", "done")
    assert any(foreign in note and "not the thread's own" in note for note in notes)
    assert (await readers.listed(thread))["status"] == "completed"
    events = await _all(readers.threads.events(thread))
    assert [event["type"] for event in events].count("run_started") == 1
    assert (await _all(readers.threads.messages(thread)))[-1]["content"] == "done"
    assert (await result_of(readers.threads, await wait(readers.threads, thread, until="end"))).text == "done"
    report = await verify(readers.threads, thread, evidence=readers.evidence)
    assert (report.verdict, report.faults) == ("proven", ()), report
    assert any(foreign in note for note in report.notes)
    assert await readers.export(thread, path)


@pytest.mark.parametrize("key", [0, pytest.param(1, marks=pytest.mark.extended)])
async def test_a_foreign_run_does_not_displace_a_closed_thread(
    rig: StartRig, stack: Stack, readers: Readers, tmp_path: Path, key: int
) -> None:
    """An attacker completes a run under the id of a closed thread: readers continue to show the thread."""
    thread = named("closed")
    async with rig(CATALOG, steps([say("done"), say("more")])) as r:
        await finished_thread(r, thread)
        await forge(stack, tmp_path, thread, own_keys(stack)[key])
        foreign = (await r.client.get_workflow_handle(thread).describe()).run_id
        await assert_recorded(readers, thread, foreign, tmp_path / "file.holdfast")
        held = Thread(thread, threads=readers.threads, evidence=_given(readers.evidence))
        assert (await held.verify(require=["seals", "record", "ledger"])).verdict == "proven"
        assert (await held.verify(require=["anchors"])).verdict == "not_proven"
        without = Threads(readers.threads.runs.client, answer_within=PATIENCE)  # and no permanent record
        assert (await without.state(thread))["result"] == "done"
        again = Threads(await connect_stack(stack), task_queue=r.task_queue, record=PostgresThreads(readers.pool))
        await again.start("more", thread=thread)
        await r.client.get_workflow_handle(thread).result()
        assert (await again.state(thread))["result"] == "more"
        assert (await verify(again, thread, evidence=readers.evidence)).verdict == "proven"


@pytest.mark.parametrize(
    "how",
    [
        "plain",
        *(pytest.param(each, marks=pytest.mark.extended) for each in ("copied", "open", "another type", "a loop")),
    ],
)
async def test_a_start_under_a_closed_threads_id_does_not_displace_it(
    rig: StartRig, stack: Stack, readers: Readers, tmp_path: Path, how: str
) -> None:
    """After other starts or workflows, the result stays, and repeating the thread's own start starts nothing."""
    thread = named("closed")
    attacker = await reach(stack)
    async with rig(CATALOG, steps([say("done")])) as r:
        own = await finished_thread(r, thread)
        client = await connect_stack(stack)
        ours = Threads(client, task_queue=r.task_queue, record=PostgresThreads(readers.pool))
        if how == "plain":
            run = await attacker.start_workflow(WORKFLOW, {"task": "do it"}, id=thread, task_queue=r.task_queue)
            await eventually(run.describe, lambda found: found.status.name != "RUNNING")
        elif how == "open":
            run = await attacker.start_workflow(WORKFLOW, {"task": "do it"}, id=thread, task_queue="nobodys")
        elif how == "copied":
            begin = (await own.fetch_history()).events[0].workflow_execution_started_event_attributes
            copy = RawValue(begin.input.payloads[0])
            run = await attacker.start_workflow(WORKFLOW, copy, id=thread, task_queue="nobodys")
        else:
            kind = LOOP_WORKFLOW if how == "a loop" else "Other"
            run = await attacker.start_workflow(kind, {"task": "do it"}, id=thread, task_queue="nobodys")
        foreign = (await run.describe()).run_id
        await assert_recorded(readers, thread, foreign, tmp_path / "file.holdfast")
        assert not await start_once(ours, "do it", thread, StartOptions(by="alice"))
        with pytest.raises(TaskDiffers):
            await start_once(ours, "something else", thread, StartOptions(by="alice"))
        if how in ("open", "copied"):
            with pytest.raises(ThreadExists, match="temporal workflow terminate"):
                await send_message(ours, thread, "more", by="alice")
        if how != "plain":
            await run.terminate()


@pytest.mark.extended
async def test_a_copied_result_does_not_complete_another_run(rig: StartRig, stack: Stack, readers: Readers) -> None:
    """A sealed result belongs to one run: a copy under the same id does not make another run `completed`."""
    thread, queue = named("copied"), f"test-{uuid4().hex[:8]}"
    attacker = await reach(stack)
    async with rig(CATALOG, steps([say("done")])) as r:
        own = await finished_thread(r, thread)
        closed = (await own.fetch_history()).events[-1].workflow_execution_completed_event_attributes
        ours = Threads(await connect_stack(stack), task_queue=queue, record=PostgresThreads(readers.pool))
        await ours.start("more", thread=thread)
        await complete(attacker, queue, closed.result.payloads[0])
        # The server lists the previous run until it has indexed this one.
        await eventually(lambda: readers.listed(thread), lambda row: row["status"] == "unauthenticated")
        view, _ = await readers.show(thread)
        assert (view["status"], view["result"]) == ("unauthenticated", None)


@pytest.mark.extended
async def test_the_gateway_shows_no_forged_result(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """A forged run is a problem with the outcome `unauthenticated`; a repeated PUT of a closed thread stays 200."""
    forged, closed = named("forged"), named("closed")
    async with rig(CATALOG, steps([say("done")])) as r, open_readers(stack) as readers:
        options: dict[str, Any] = {"recorded": True, "key": GATEWAY, "evidence": readers.evidence}
        async with gateway_of(r, **options) as http:
            assert (await http.put(f"/threads/{closed}", json={"task": "do it"})).status_code == 201
            await r.client.get_workflow_handle(closed).result()
            for thread, folder in ((forged, tmp_path / "a"), (closed, tmp_path / "b")):
                folder.mkdir()
                await forge(stack, folder, thread, own_keys(stack)[0])

            assert (await http.get(f"/threads/{forged}")).json()["status"] == "unauthenticated"
            for path in ("result", "result?wait=5", "messages", "export"):
                answer = await http.get(f"/threads/{forged}/{path}")
                assert answer.status_code == 409, path
                assert FORGED not in answer.text
            stream = (await http.get(f"/threads/{forged}/events")).text
            assert "event: problem" in stream
            assert FORGED not in stream
            result = (await http.get(f"/threads/{forged}/result")).json()
            assert result["outcome"] == "unauthenticated"

            assert (await http.put(f"/threads/{closed}", json={"task": "do it"})).status_code == 200
            assert (await http.get(f"/threads/{closed}/result")).json()["text"] == "done"
            exported = await http.get(f"/threads/{closed}/export")
            assert (exported.status_code, exported.headers["Holdfast-Signed"]) == (200, "true")
            (file := tmp_path / "closed.holdfast").write_bytes(exported.content)
            assert (await verify_file(file, signer=public_key(GATEWAY))).verdict == "proven"


async def test_a_file_is_unsigned_if_its_thread_cannot_be_checked(
    rig: StartRig, stack: Stack, readers: Readers, tmp_path: Path
) -> None:
    """Without the fleet key or the permanent record a key signs nothing; a gateway leaves the file unsigned."""
    thread = named("unchecked")
    async with rig(CATALOG, steps([say("done")])) as r:
        await finished_thread(r, thread)
        keyless = Threads(await connect(stack_config(stack)), record=PostgresThreads(readers.pool))
        recordless = Threads(r.client)
        for threads, name in ((keyless, "seals"), (recordless, "record")):
            path = tmp_path / f"{name}.holdfast"
            with pytest.raises(ExportFailed, match=f"cannot be signed.*{name}"):
                await export_thread(threads, thread, path, evidence=readers.evidence, private=GATEWAY)
            made = await export_thread(threads, thread, path, evidence=readers.evidence, private=GATEWAY, unsigned=True)
            assert (made.signed, name in made.not_vouched_for) == (False, True)


# A record that was deleted while Temporal has the history.


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM holdfast.threads WHERE thread = %s",
        pytest.param(
            "DELETE FROM holdfast.events WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
            marks=pytest.mark.extended,
        ),
    ],
)
async def test_a_deleted_record_is_detected_while_temporal_has_the_history(
    rig: StartRig, readers: Readers, statement: str
) -> None:
    """The history says how many events were written, so a record without any is altered, not unknown."""
    thread = named("deleted")
    async with rig(CATALOG, steps([call("look"), say("done")])) as r:
        await finished_thread(r, thread)
        assert (await verify(readers.threads, thread, evidence=readers.evidence)).verdict == "proven"
        async with readers.pool.connection() as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement, [thread])
            await connection.execute("SET session_replication_role = DEFAULT")
        report = await verify(readers.threads, thread, evidence=readers.evidence)
        assert (report.verdict, report.where, report.position) == ("altered", "record", 0)
        assert "were written to it" in report.reason


def _given(evidence: Evidence) -> OpenEvidence:
    async def opened() -> Evidence:
        return evidence

    return opened


async def _all(items: AsyncIterator[JSON]) -> list[JSON]:
    return [item async for item in items]


async def complete(client: Client, task_queue: str, result: JSON | Payload) -> None:
    """Poll the first workflow task of a task queue, and complete the run with any result."""
    asked = PollWorkflowTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL),
        identity="somebody",
    )
    task = await client.workflow_service.poll_workflow_task_queue(asked)
    if not isinstance(result, Payload):
        result = Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(result).encode())
    command = Command(
        command_type=CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
        complete_workflow_execution_command_attributes=CompleteWorkflowExecutionCommandAttributes(
            result=Payloads(payloads=[result])
        ),
    )
    await client.workflow_service.respond_workflow_task_completed(
        RespondWorkflowTaskCompletedRequest(
            namespace=client.namespace, task_token=task.task_token, commands=[command], identity="somebody"
        )
    )
