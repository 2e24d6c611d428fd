"""The Python client on the real server: starts, results, decisions, conversations, and its sync interface."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast import (
    Agent,
    Approver,
    Catalog,
    Client,
    Limits,
    NotAccepted,
    Policy,
    Refused,
    RunCancelled,
    RunFailed,
    ServerUnreachable,
    SettingsError,
    SyncClient,
    TaskDiffers,
    TextBlock,
    ThreadNotFound,
    allow,
    ask,
    tool,
)
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key
from holdfast.core.llm.messages import AssistantMessage, UserMessage
from holdfast.core.log.node_seals import make_seal
from holdfast.devstack.ports import any_free
from holdfast.encryption.signing_keys import make_key
from holdfast.errors import ExportFailed, FleetKeyMissing
from holdfast.portable.verify import verify_file
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import PATIENCE, Rig, StartRig, environ_of, eventually

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def catalog(*approvers: Approver) -> Catalog:
    """Return two agents that ask before they pay; approvers have to sign."""
    signatures: Literal["required", "optional"] = "required" if approvers else "optional"
    policy = Policy(rules=(ask("pay"), allow()), approvers=approvers, signatures=signatures)
    clerk = Agent(name="clerk", instructions="Work.", policy=policy, tools=[pay])
    return Catalog(agents=[clerk, clerk.model_copy(update={"name": "other"})], tools=[pay])


def script(conversation: Conversation) -> Reply:
    """Pay if asked to; otherwise echo the message."""
    if conversation.messages[-1]["role"] == "tool":
        return say(str(conversation.messages[-1]["content"]))
    message = conversation.last_user_message
    return call("pay", amount=5) if "pay" in message else say(f"You said: {message}")


@pytest.fixture
def connect(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connect a client with the settings of the environment, as a program does."""
    for name, value in {**environ_of(stack), "DATABASE_URL": stack.database_url}.items():
        monkeypatch.setenv(name, value)
    return Client.connect


def fresh() -> str:
    """Return a new thread id."""
    return f"client-{uuid4().hex[:8]}"


async def test_a_start_returns_a_result(rig: StartRig, connect: Connect) -> None:
    """The result of a started task contains the text, the steps and the tokens."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", by="alice")
        result = await thread.result(timeout=PATIENCE)
        assert (result.status, result.text, result.steps) == ("completed", "You said: hello", 1)
        assert result.usage.completion_tokens > 0
        state = await thread.state()
        assert (state.agent, state.task, state.result) == ("clerk", "hello", "You said: hello")


@pytest.mark.extended
async def test_repeating_a_start_returns_the_same_run(rig: StartRig, connect: Connect) -> None:
    """Concurrent callers with one id and task get one run, even after it has ended; another task is an error."""
    name = fresh()
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        async with connect(task_queue=worker.task_queue) as other:
            both = await asyncio.gather(*(each.start("hello", thread=name) for each in (client, other)))
        results = [await each.result(timeout=PATIENCE) for each in both]
        assert results[0] == results[1]
        again = await client.start("hello", thread=name)
        assert results[0] == await again.result(timeout=PATIENCE)
        with pytest.raises(TaskDiffers):
            await client.start("another", thread=name)
        with pytest.raises(TaskDiffers):
            await client.start("hello", thread=name, agent="other")
        assert sum([event.type == "run_started" async for event in again.events()]) == 1


@pytest.mark.extended
async def test_repeating_the_first_start_of_a_continued_thread_starts_nothing(rig: StartRig, connect: Connect) -> None:
    """A closed thread continues with a message; repeating its first start does not start it again."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", thread=fresh())
        await thread.result(timeout=PATIENCE)
        assert (await thread.say("more")).outcome == "reopened"
        assert (await thread.result(timeout=PATIENCE)).text == "You said: more"
        assert (await (await client.start("hello", thread=thread.id)).result()).text == "You said: more"
        with pytest.raises(TaskDiffers):
            await client.start("more", thread=thread.id)


@pytest.mark.extended
async def test_a_batch_of_threads_runs_at_once(rig: StartRig, connect: Connect) -> None:
    """Twenty threads are started and awaited concurrently, and the list contains them."""
    batch = fresh()
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        threads = await asyncio.gather(*(client.start(f"{n}", thread=f"{batch}-{n}") for n in range(20)))
        results = await asyncio.gather(*(each.result(timeout=PATIENCE) for each in threads))
        assert [f"You said: {n}" for n in range(20)] == [each.text for each in results]

        async def listed() -> set[str]:
            threads = await client.threads(status="completed", limit=500)
            return {each.thread for each in threads if each.thread.startswith(batch)}

        assert await eventually(listed, lambda names: len(names) == 20) == {each.id for each in threads}


async def test_a_conversation(rig: StartRig, connect: Connect) -> None:
    """A result until attention is the reply to the latest message; messages are typed."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("one", idle_limit=300)
        for text in ("one", "two", "three"):
            if text != "one":
                await thread.say(text, by="alice")
            result = await thread.result(until="attention", timeout=PATIENCE)
            assert ("waiting_message", f"You said: {text}") == (result.status, result.text)
        messages = await thread.messages()
        assert [UserMessage, AssistantMessage] * 3 == [type(each) for each in messages]
        await thread.cancel("the customer has left")
        with pytest.raises(RunCancelled):
            await thread.result(timeout=PATIENCE)
        with pytest.raises(Refused):
            await thread.cancel()


async def test_an_approval(rig: StartRig, connect: Connect) -> None:
    """A result until attention contains the request; approving it runs the call with the person's arguments."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("pay")
        with pytest.raises(TimeoutError, match="its run continues"):
            await thread.result(timeout=0.5)
        waiting = await thread.result(until="attention", timeout=PATIENCE)
        assert waiting.status == "waiting_approval"
        (request,) = waiting.pending
        assert (request,) == await thread.pending()
        assert (request.tool, request.arguments) == ("pay", {"amount": 5})
        with pytest.raises(SettingsError, match="by"):
            await thread.decide(request, "approve")
        with pytest.raises(NotAccepted) as refused:
            await thread.decide("99", "approve", by="alice")
        assert refused.value.outcome == "unknown_request"
        decided = await thread.decide(request, "approve", by="alice", reason="ok", arguments={"amount": 3})
        assert decided.outcome == "accepted"
        assert (await thread.result(timeout=PATIENCE)).text.endswith("paid 3")
        with pytest.raises(NotAccepted):
            await thread.decide(request, "deny", by="bob")


@pytest.mark.extended
async def test_a_blocked_run(rig: StartRig, connect: Connect) -> None:
    """A result until attention reports why a run is blocked; a retry resumes it."""
    limits = Limits(max_steps=1)
    agent = Agent(name="clerk", instructions="Work.", policy=Policy(rules=(allow(),)), limits=limits, tools=[pay])
    one = Catalog(agents=[agent])
    async with rig(one, script) as worker, connect(task_queue=worker.task_queue, by="alice") as client:
        thread = await client.start("pay")
        result = await thread.result(until="attention", timeout=PATIENCE)
        assert result.blocked
        assert (result.status, result.blocked.cause, result.text) == ("blocked", "StepLimit", "")
        assert (await thread.retry(reason="one more")).outcome == "accepted"
        assert (await thread.result(timeout=PATIENCE)).text == "paid 5"


async def test_a_signed_approval(rig: StartRig, connect: Connect, tmp_path: Path) -> None:
    """A key signs a request only as `pending` returned it; a bare id or an altered request is not signed. What the
    approver says is in the log, and `verify` finds the ledger's result in agreement.
    """
    key = tmp_path / "alice.key"
    alice = Approver(name="alice", keys=(make_key(key),))
    async with rig(catalog(alice), script) as worker, connect(task_queue=worker.task_queue, by="alice") as client:
        thread = await client.start("pay")
        (request,) = (await thread.result(until="attention", timeout=PATIENCE)).pending
        with pytest.raises(NotAccepted) as refused:
            await thread.decide(request, "approve")
        assert refused.value.outcome == "unsigned"
        with pytest.raises(Refused, match="bound to what was seen"):
            await thread.decide(request.request, "approve", key=key)
        with pytest.raises(Refused, match="nothing was signed"):
            await thread.decide(request.model_copy(update={"arguments": {"amount": 1}}), "approve", key=key)
        await thread.decide(request, "approve", key=key, say="Once only.")
        heard = "[alice approved this call, and says: Once only.]\npaid 5"  # the LLM repeats what it reads
        assert (await thread.result(timeout=PATIENCE)).text == heard
        assert (await thread.verify()).faults == ()


async def test_events_are_typed_and_followed(rig: StartRig, connect: Connect) -> None:
    """Events are instances of their classes; following ends with the run and resumes from a position."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello")
        followed = [event async for event in thread.events(follow=True)]
        assert followed == [event async for event in thread.events()]
        last = followed[-1]
        assert last.type == "run_finished"
        assert last.result == "You said: hello"
        assert [last] == [event async for event in thread.events(after=last.position - 1)]


@pytest.mark.slow
async def test_without_a_worker(client: TemporalClient, rig: StartRig, connect: Connect) -> None:
    """Starting, repeating and reading a run need no worker; a worker that comes later executes it."""
    queue = fresh()
    async with connect(task_queue=queue, answer_seconds=0.5) as program:
        thread = await program.start("pay", thread=fresh())
        assert thread.id == (await program.start("pay", thread=thread.id)).id
        with pytest.raises(TaskDiffers):
            await program.start("something else", thread=thread.id)
        assert (await thread.state()).status == "running"
        with pytest.raises(TimeoutError):
            await thread.result(until="attention", timeout=1)
        async with rig(catalog(), script, task_queue=queue):
            (request,) = (await thread.result(until="attention", timeout=PATIENCE)).pending
        assert (request,) == await thread.pending()
        assert "tool_call_requested" in [event.type async for event in thread.events()]
        assert len(await thread.messages()) == 2
        assert (await thread.decide(request, "deny", by="alice", reason="no")).outcome == "sent"
        waiting = asyncio.create_task(thread.result(timeout=PATIENCE))
        async with rig(catalog(), script, task_queue=queue):
            assert (await waiting).text == "Denied by alice: no"


@pytest.mark.extended
async def test_after_temporal_has_removed_a_thread(rig: StartRig, connect: Connect) -> None:
    """The permanent record has the result and the messages, and a repeated start of the thread starts nothing."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", thread=fresh())
        result = await thread.result(timeout=PATIENCE)
        await remove(worker.client, thread.id)
        assert await thread.result(timeout=PATIENCE) == result
        assert len(await thread.messages()) == 2
        assert thread.id == (await client.start("hello", thread=thread.id)).id
        with pytest.raises(TaskDiffers):
            await client.start("another", thread=thread.id)
        assert len(worker.llm.requests) == 1


async def remove(temporal: TemporalClient, thread: str) -> None:
    """Make Temporal remove a closed thread, as when its retention ends."""
    execution = WorkflowExecution(workflow_id=thread)
    request = DeleteWorkflowExecutionRequest(namespace=temporal.namespace, workflow_execution=execution)
    await temporal.workflow_service.delete_workflow_execution(request)

    async def is_there() -> bool:
        try:
            await temporal.get_workflow_handle(thread).describe()
        except RPCError:
            return False
        return True

    await eventually(is_there, lambda there: not there)


@pytest.mark.extended
async def test_content_blocks_are_a_task(rig: StartRig, connect: Connect) -> None:
    """A task of content blocks is started once, like text."""
    blocks = (TextBlock(text="hello"), TextBlock(text="you"))
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start(blocks, thread=fresh())
        await thread.result(timeout=PATIENCE)
        assert thread.id == (await client.start(blocks, thread=thread.id)).id
        with pytest.raises(TaskDiffers):
            await client.start(blocks[:1], thread=thread.id)


@pytest.mark.extended
async def test_a_result_outlasts_a_restart(rig: StartRig, connect: Connect) -> None:
    """A result is awaited across the end of one worker and the start of the next, for both kinds of wait."""
    queue = fresh()
    async with connect(task_queue=queue, by="alice", answer_seconds=0.5) as client:
        thread = await client.start("pay")
        ends = asyncio.create_task(thread.result(timeout=PATIENCE))
        asks = asyncio.create_task(thread.result(until="attention", timeout=PATIENCE))
        for decided in (False, True):
            async with rig(catalog(), script, task_queue=queue):
                (request,) = (await asks).pending
                if decided:
                    await thread.decide(request, "approve")
                    assert (await ends).text == "paid 5"


async def test_errors(rig: StartRig, connect: Connect) -> None:
    """A failed run, an absent thread and an unreachable server are distinct typed errors that name the cause."""
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", agent="nobody")
        with pytest.raises(RunFailed) as failed:
            await thread.result(timeout=PATIENCE)
        assert ("AgentNotFound", thread.id) == (failed.value.cause, failed.value.thread)
        for ask_for in (client.thread("none").result, client.thread("none").state, client.thread("none").pending):
            with pytest.raises(ThreadNotFound):
                await ask_for()
        with pytest.raises(ThreadNotFound):
            await client.thread("none").say("hello")
        with pytest.raises(NotAccepted, match="malformed"):
            await thread.say("")
        with pytest.raises(Refused):
            await thread.retry(by="alice")
    with pytest.raises(ServerUnreachable):
        async with Client.connect(address=f"127.0.0.1:{any_free()}"):
            pass
    with pytest.raises(SettingsError, match="HOLDFAST_ANSWER_SECONDS"):
        async with Client.connect(answer_seconds=-1):
            pass


@pytest.mark.extended
async def test_a_program_brings_its_own_temporal_client(stack: Stack, rig: StartRig, connect: Connect) -> None:
    """The program's own client is used with Holdfast's encoding and the fleet key of the environment."""
    plain = await TemporalClient.connect(stack.temporal_address, namespace=stack.namespace)
    async with rig(catalog(), script) as worker, connect(plain, task_queue=worker.task_queue) as client:
        thread = await client.start("hello", workspace=worker.workspace)
        assert (await thread.result(timeout=PATIENCE)).text == "You said: hello"
        assert str(worker.workspace) == (await thread.state()).workspace


async def test_without_a_fleet_key(
    rig: StartRig, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program without the fleet key starts new threads, but cannot select a folder."""
    monkeypatch.delenv("HOLDFAST_FLEET_KEYS")
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", thread=fresh())
        assert (await thread.result(timeout=PATIENCE)).text == "You said: hello"
        assert thread.id == (await client.start("hello", thread=thread.id)).id
        with pytest.raises(FleetKeyMissing):
            await client.start("hello", workspace=tmp_path)


async def test_the_sync_client(rig: StartRig, connect: Connect) -> None:
    """A script without an event loop starts, follows, decides and reads, and gets the same errors."""

    def program(worker: Rig) -> list[Any]:
        with SyncClient.connect(task_queue=worker.task_queue, by="alice") as client:
            thread = client.start("pay", thread=fresh())
            (request,) = thread.result(until="attention", timeout=PATIENCE).pending
            thread.decide(request, "approve")
            kinds = [event.type for event in thread.events(follow=True)]
            assert [event.type for event, _ in zip(thread.events(), range(1), strict=False)] == ["run_started"]
            with pytest.raises(TaskDiffers):
                client.start("another", thread=thread.id)
            assert client.thread(thread.id).state().status == "completed"
            assert client.threads(limit=1)
            return [kinds[-1], thread.result().text, thread.id in repr(thread)]

    async with rig(catalog(), script) as worker:
        assert await asyncio.to_thread(program, worker) == ["run_finished", "paid 5", True]


@pytest.mark.extended
async def test_an_export_has_the_seals_that_the_client_can_read(
    rig: StartRig, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export reads the anchors of `HOLDFAST_ANCHORS` or those named; an unreadable anchor is an error."""
    anchor = tmp_path / "anchor"
    anchor.mkdir()
    monkeypatch.setenv("HOLDFAST_ANCHORS", f"{anchor},https://seals.example")
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue) as client:
        thread = await client.start("hello", thread=fresh())
        await thread.result(timeout=PATIENCE)
        bare = await thread.export(tmp_path / "bare.holdfast")
        seal = make_seal(
            encode_key(bytes([7]) * 32),
            namespace=worker.client.namespace,
            thread=thread.id,
            events=bare.events,
            head=bare.head,
            at=datetime.now(UTC),
        )
        await FolderAnchor(anchor).put(seal)
        made = [
            await thread.export(tmp_path / "settings.holdfast"),
            await thread.export(tmp_path / "named.holdfast", anchors=[str(anchor)]),
            await thread.export(tmp_path / "none.holdfast", anchors=()),
        ]
        assert (bare.seals, [each.seals for each in made]) == (0, [1, 1, 0])
        anchor.rename(tmp_path / "moved")
        with pytest.raises(SettingsError, match="cannot be read"):
            await thread.export(tmp_path / "unread.holdfast")
    assert (await verify_file(tmp_path / "settings.holdfast")).seals == 1


@pytest.mark.extended
async def test_a_thread_is_exported_with_its_ledger(rig: StartRig, connect: Connect, tmp_path: Path) -> None:
    """The file verifies with its signer's key, contains the ledger's rows, and never replaces another file."""
    key, path = tmp_path / "alice.key", tmp_path / "thread.holdfast"
    public = make_key(key)
    async with rig(catalog(), script) as worker, connect(task_queue=worker.task_queue, by="alice") as client:
        thread = await client.start("pay", thread=fresh())
        (request,) = (await thread.result(until="attention", timeout=PATIENCE)).pending
        await thread.decide(request, "approve")
        await thread.result(timeout=PATIENCE)
        exported, shared = await asyncio.gather(
            client.thread(thread.id).export(path, key=key),
            thread.export(tmp_path / "shared.holdfast", redact=True, key=str(key)),
        )
        report = await verify_file(path, signer=public)
        assert (report.ok, report.head, report.thread) == (True, exported.head, thread.id), report.reason
        assert (exported.signed, exported.left_out, exported.bytes) == (True, (), path.stat().st_size)
        assert (await verify_file(tmp_path / "shared.holdfast", signer=public)).redacted
        assert (shared.redacted, shared.head, shared.left_out) == (True, exported.head, ("artifacts",))
        assert (await thread.export(tmp_path / "again.holdfast", key=key)).head == exported.head
        assert path.read_bytes() == (tmp_path / "again.holdfast").read_bytes()
        with pytest.raises(ExportFailed, match="not overwritten"):
            await thread.export(str(path))
        with pytest.raises(ThreadNotFound):
            await client.thread(fresh()).export(tmp_path / "none.holdfast")
    assert {each.name for each in tmp_path.glob("*.holdfast")} == {
        f"{n}.holdfast" for n in ("thread", "shared", "again")
    }


def test_the_sync_client_matches_the_async_one() -> None:
    """Every public method of the async classes exists in the sync ones, with the same docstring."""
    from holdfast import SyncThread, Thread

    for asynchronous, synchronous in ((Client, SyncClient), (Thread, SyncThread)):
        names = {name for name in vars(asynchronous) if not name.startswith("_")}
        assert names <= set(dir(synchronous))
        for name in names:
            assert getattr(synchronous, name).__doc__
