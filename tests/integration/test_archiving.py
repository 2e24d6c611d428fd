"""The permanent record and artifacts, with stores that are unavailable, reject a write or receive large content."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads as Reading
from holdfast.core.base.canonical import address_of
from holdfast.core.log.event_log import event_line
from holdfast.core.log.stored_lines import read_lines
from holdfast.errors import ArtifactNotFound, RecordConflict, RecordGap
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.support.rig import StartRig, check_thread, eventually, runs_of, status_of


class Threads:
    """A `ThreadStore` in memory that can be unavailable and can reject a position."""

    def __init__(self) -> None:
        self.unavailable = False
        self.conflict_from: int | None = None
        self.refusals = 0
        self._lines: dict[str, list[bytes]] = {}

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store lines."""
        self._reach()
        kept = self._lines.setdefault(thread, [])
        if start > len(kept):
            raise RecordGap(f"thread {thread} cannot go on at position {start}")
        if self.conflict_from is not None and start + len(lines) > self.conflict_from:
            raise RecordConflict(f"thread {thread} has another event at position {self.conflict_from}")
        for position, line in enumerate(lines, start):
            if position == len(kept):
                kept.append(line)
            assert kept[position] == line

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Return all lines from a position on; reads work even while writes are unavailable."""
        if lines := self._lines.get(thread, [])[start:]:
            self._reach()
        return lines

    async def length(self, thread: str) -> int:
        """Return the number of lines."""
        return len(self._lines.get(thread, []))

    def _reach(self) -> None:
        if self.unavailable:
            self.refusals += 1
            raise OSError("the database is unavailable")


class Artifacts:
    """An `ArtifactStore` in memory that can be unavailable."""

    def __init__(self) -> None:
        self.unavailable = False
        self.refusals = 0
        self.contents: dict[str, bytes] = {}

    async def put(self, content: bytes, *, thread: str) -> str:
        """Store content."""
        if self.unavailable:
            self.refusals += 1
            raise OSError("the store is unavailable")
        self.contents[address_of(content)] = content
        return address_of(content)

    async def get(self, address: str, offset: int = 0, limit: int | None = None) -> bytes:
        """Return a part of the content."""
        await self.size(address)
        return self.contents[address][offset:][:limit]

    async def size(self, address: str) -> int:
        """Return the size in bytes."""
        if address not in self.contents:
            raise ArtifactNotFound(address)
        return len(self.contents[address])


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int, context: ToolContext) -> str:
    """Pay by appending a line to a file; return a long receipt."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{context.key} {amount}\n")
    return f"paid {amount}" + "." * 20_000


@tool(effect="read")
def dump() -> str:
    """Return fifty megabytes."""
    return "0123456789" * 5_000_000


def catalog(threads: Threads | None = None, artifacts: Artifacts | None = None, **limits: Any) -> Catalog:
    """Return a catalog whose agent must ask before it pays."""
    policy = Policy(rules=(allow("look"), allow("dump"), allow("read_artifact")))
    agent = Agent(name="clerk", instructions="Work.", policy=policy, limits=Limits(**limits), tools=[look, pay, dump])
    return Catalog(agents=[agent], threads=threads, artifacts=artifacts)


@asynccontextmanager
async def unavailable(store: Threads | Artifacts) -> AsyncIterator[None]:
    """Make the store unavailable during the block, which ends once a caller has failed."""
    store.unavailable = True
    yield
    await eventually(lambda: asyncio.sleep(0, store.refusals), bool)
    store.unavailable = False


async def check_complete(run: WorkflowHandle[Any, Any], threads: Threads, client: Any) -> None:
    """Check that the record is complete and agrees with the histories."""
    events = await check_thread(client, run)
    assert await threads.read(run.id) == [event_line(event) for event in events]
    read_lines(run.id, 0, await threads.read(run.id))


@pytest.mark.extended
async def test_an_unavailable_database_does_not_block_a_waiting_run(rig: StartRig) -> None:
    """A decision counts while the record is unavailable; the run waits for the record only before it ends."""
    threads = Threads()
    async with rig(catalog(threads), steps([call("pay", amount=1), say("done")])) as r:
        async with unavailable(threads):
            run = await r.start()
            await status_of(run, "waiting_approval")
            await run.signal("approve", {"request": "1"})
            await status_of(run, "completed")
            assert await threads.length(run.id) == 0
        assert (await run.result())["result"] == "done"
        await check_complete(run, threads, r.client)


async def test_an_unavailable_database_delays_the_end_of_a_run(rig: StartRig) -> None:
    """The result is available at once, and the run ends as soon as the record has stored it."""
    threads = Threads()
    async with rig(catalog(threads), steps([say("done")])) as r:
        async with unavailable(threads):
            run = await r.start()
            assert (await status_of(run, "completed"))["result"] == "done"
        assert (await run.result())["result"] == "done"
        await check_complete(run, threads, r.client)


@pytest.mark.extended
async def test_an_unavailable_database_delays_continue_as_new(rig: StartRig) -> None:
    """A run that is due to continue as new waits for the record; nothing is lost or done twice."""
    threads = Threads()
    script = steps([call("look", at=str(n)) for n in range(8)] + [say("done")])
    async with rig(catalog(threads, history_events=60), script) as r:
        async with unavailable(threads):
            run = await r.start()
        assert (await run.result())["result"] == "done"
        await check_complete(run, threads, r.client)
        assert len(await runs_of(r.client, run)) >= 2
        assert len(r.llm.requests) == 9


async def test_a_record_conflict_blocks_the_run_visibly(rig: StartRig) -> None:
    """A run is blocked with the store's error if another run wrote under its thread id; `retry` resumes it."""
    threads = Threads()
    threads.conflict_from = 3
    async with rig(catalog(threads), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "RecordConflict"
        assert "has another event at position 3" in state["blocked"]["message"]
        await run.signal("retry", {"by": "bob"})
        await status_of(run, "waiting_approval")
        await run.signal("approve", {"request": "1"})
        assert (await run.result())["result"] == "done"
        await check_thread(r.client, run)


async def test_a_branch_archived_by_a_reset_is_kept(rig: StartRig) -> None:
    """After `temporal workflow reset` the run continues differently; both logs are kept, and both verify."""
    amounts = [1]

    def script(conversation: Conversation) -> Reply:
        return say("done") if conversation.replies else call("pay", amount=amounts[-1])

    async def paid(run: WorkflowHandle[Any, Any]) -> None:
        await status_of(run, "waiting_approval")
        await run.signal("approve", {"request": "1"})
        assert (await run.result())["result"] == "done"

    async with rig(catalog(), script) as r:
        run = await r.start()
        await paid(run)
        before = await r.threads.read(run.id)
        history = (await run.fetch_history()).events
        task = next(event.event_id for event in history if event.HasField("workflow_task_completed_event_attributes"))
        request = ResetWorkflowExecutionRequest(
            namespace=r.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=run.first_execution_run_id or ""),
            reason="a test",
            request_id=run.id,
            workflow_task_finish_event_id=task,
        )
        amounts.append(2)
        await r.client.workflow_service.reset_workflow_execution(request)
        await paid(r.client.get_workflow_handle(run.id))
        lines = await r.threads.read(run.id)
        assert [event.type for event in read_lines(run.id, 0, lines)][-1] == "run_finished"
        assert isinstance(r.threads, PostgresThreads)
        (aside,) = await r.threads.asides(run.id)
        assert await r.threads.read(aside) == before
        # The ledger has both payments: the archived branch started one of them.
        pool = r.threads._pool
        assert len(await effects_of(pool, run.id)) == 2
        evidence = Evidence(partial(effects_of, pool), r.threads.asides, PostgresArtifacts(pool))
        for thread, sources in ((run.id, ("history", "record")), (aside, ("record",))):
            report = await verify(Reading(r.client, record=r.threads), thread, evidence=evidence)
            assert (report.ok, report.sources, report.reason) == (True, sources, "")
            assert (await Reading(r.client, record=r.threads).state(thread))["status"] == "completed"


@pytest.mark.extended
async def test_fifty_megabytes_of_output_are_read_in_parts(rig: StartRig) -> None:
    """The log stores head, tail and address; the history stays small; the agent reads the part that it needs."""

    def script(conversation: Conversation) -> Reply:
        if not conversation.replies:
            return call("dump")
        if conversation.replies == 1:
            address = conversation.results[0].split('read_artifact("')[1].split('"')[0]
            return call("read_artifact", address=address, offset=25_000_005, limit=15)
        return say(conversation.results[0])

    async with rig(catalog(), script) as r:
        run = await r.start()
        assert (await run.result())["result"] == "[bytes 25,000,005 to 25,000,020 of 50,000,000]\n567890123456789"
        assert len((await run.fetch_history()).to_json()) < 200_000
        (dumped, _) = [event for event in await check_thread(r.client, run) if event.type == "tool_call_finished"]
        assert (dumped.size, dumped.artifact[:7]) == (50_000_000, "sha256:")


async def test_a_reply_of_three_hundred_kilobytes_is_clipped_into_an_artifact(rig: StartRig) -> None:
    """The complete text is stored as an artifact; the log and the result contain its head and tail."""
    artifacts, text = Artifacts(), "0123456789" * 30_000
    async with rig(catalog(artifacts=artifacts), steps([say(text)])) as r:
        run = await r.start()
        result = (await run.result())["result"]
        assert len(result) < 101_000
        assert result.startswith("0123456789")
        (replied,) = [event for event in await check_thread(r.client, run) if event.type == "llm_replied"]
        assert artifacts.contents[replied.artifact] == text.encode()
        assert replied.artifact in result


async def test_an_artifact_store_that_fails_after_an_effect_repeats_no_effect(rig: StartRig) -> None:
    """A call whose effect has happened waits for the artifact store if its receipt cannot be stored yet."""
    artifacts = Artifacts()
    async with rig(catalog(artifacts=artifacts), steps([call("pay", amount=7), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        async with unavailable(artifacts):
            await run.signal("approve", {"request": "1"})
        await run.result()
        assert len((r.workspace / "paid").read_text().splitlines()) == 1
        (finished,) = [event for event in await check_thread(r.client, run) if event.type == "tool_call_finished"]
        assert (finished.status, finished.adopted) == ("ok", False)
        assert artifacts.contents[finished.artifact].startswith(b"paid 7")
