"""Plays recorded runs, on a worker and a server of their own (`holdfast.runtime.evaluating` says how)."""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.agents.catalog import Catalog
from holdfast.errors import HoldfastError, NotPlayable, Refused
from holdfast.evaluation.course import Course, course_of
from holdfast.evaluation.evaluation import Evaluation, Measured, compare
from holdfast.evaluation.recording import RecordedInput, Recording
from holdfast.evaluation.sets import Stub
from holdfast.llm.blocks import text_of
from holdfast.log.events import AgentEvent, ApprovalRequested, ToolCallRequested
from holdfast.run.contracts import LLM_REJECTED, WORKFLOW, RunInput
from holdfast.run.features import BUDGETS
from holdfast.runtime.api.client import Client
from holdfast.runtime.api.thread import Thread
from holdfast.runtime.api.views import ThreadState
from holdfast.runtime.api.waiting import wait
from holdfast.runtime.client.connect import connect
from holdfast.runtime.client.start_options import check_task, issued
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.devstack.shared import shared_server
from holdfast.runtime.devstack.temporal_server import NAMESPACE
from holdfast.runtime.evaluating.playback import Play, Playback
from holdfast.runtime.evaluating.replies import FIELD, RecordedReplies
from holdfast.runtime.in_memory.artifacts import InMemoryArtifacts
from holdfast.runtime.in_memory.ledger import InMemoryLedger
from holdfast.runtime.in_memory.memories import InMemoryMemories
from holdfast.runtime.in_memory.threads import InMemoryThreads
from holdfast.runtime.llm.prices import price
from holdfast.runtime.llm.script import Script
from holdfast.runtime.llm.scripted_server import ScriptedLLM
from holdfast.runtime.reading.runs import retrying
from holdfast.tools.secrets import Secrets

if TYPE_CHECKING:
    import openai

PATIENCE = 600.0
"""Seconds that a play may take, unless the caller says otherwise."""

_LEAVE = 10.0
"""Seconds after which a worker that does not end is abandoned."""
_POLL = 0.01
_NOBODY = "recording"
"""Who decides where the recorded run's policy did, at the expiry of a request."""


@dataclass(frozen=True)
class Endpoint:
    """The LLM of plays."""

    client: "openai.AsyncOpenAI"
    default: str
    """The LLM of agents that name none."""
    llm: str | None = None
    """The LLM of all agents; None for their own."""
    recorded: RecordedReplies | None = None
    """It gives the recorded replies again."""


@asynccontextmanager
async def scripted(script: Script | RecordedReplies) -> AsyncIterator[Endpoint]:
    """Serve a script on loopback for a block, as the LLM of plays."""
    import openai

    with ScriptedLLM(script) as llm:
        direct = openai.DefaultAsyncHttpxClient(trust_env=False)  # the server is on this machine
        client = openai.AsyncOpenAI(api_key="scripted", base_url=llm.base_url, max_retries=0, http_client=direct)
        async with client:
            yield Endpoint(client, "scripted", recorded=script if isinstance(script, RecordedReplies) else None)


@asynccontextmanager
async def open_player(catalog: Catalog, endpoint: Endpoint, *, patience: float = PATIENCE) -> AsyncIterator["Player"]:
    """Run a worker that plays recorded runs, for a block.

    Args:
        catalog: The agents that play them. None of its tools, middleware, resources and stores is used.
        endpoint: The LLM.
        patience: Seconds that a play may take.

    Raises:
        StackError: The server cannot be started.
    """
    from holdfast.runtime.worker.graceful import running

    # The SDK warns for every local activity that ends just as its time is over.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    server = await asyncio.to_thread(shared_server)
    temporal = await connect({"target_host": server.address, "namespace": NAMESPACE}, seals=server.seals)
    record, playback, queue = InMemoryThreads(), Playback(), f"play-{uuid4().hex[:8]}"
    worker: Any = import_module("holdfast.worker")  # the one place that has workflows and activities
    async with AsyncExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-play-")))
        built = worker.build_worker(
            temporal,
            task_queue=queue,
            catalog=_played(catalog, endpoint, record),
            llm=endpoint.client,
            default_llm=endpoint.default,
            ledger=InMemoryLedger(),
            workspaces=folder / "workspaces",
            secrets=Secrets({}),
            resources=dict.fromkeys(catalog.resources),  # none is opened: no tool runs
            interceptors=[playback],
            debug_mode=True,
        )
        await cleanup.enter_async_context(running(built, within=_LEAVE))
        # Every decision and message is awaited: what is only sent may count after the play has been looked at again.
        threads = Threads(temporal, task_queue=queue, record=record, answer_within=patience)
        yield Player(temporal, threads, playback, endpoint, catalog, folder, patience=patience)


def _played(catalog: Catalog, endpoint: Endpoint, record: InMemoryThreads) -> Catalog:
    agents = list(catalog.agents.values())
    if endpoint.llm is not None:
        agents = [agent.model_copy(update={"llm": endpoint.llm}) for agent in agents]
    return Catalog(
        agents=agents,
        tools=catalog.tools.values(),
        skills=catalog.skills.values(),
        resources=catalog.resources.values(),
        threads=record,
        artifacts=InMemoryArtifacts(),
        memories=InMemoryMemories(),
    )


class Player:
    """Plays recorded runs. `open_player` makes it."""

    def __init__(
        self,
        temporal: TemporalClient,
        threads: Threads,
        playback: Playback,
        endpoint: Endpoint,
        catalog: Catalog,
        folder: Path,
        *,
        patience: float,
    ) -> None:
        self._temporal = temporal
        self._threads = threads
        self._playback = playback
        self._endpoint = endpoint
        self._catalog = catalog
        self._folder = folder
        self._patience = patience

    async def play(
        self, recording: Recording, *, run: str, agent: str | None = None, stubs: Sequence[Stub] = ()
    ) -> Evaluation:
        """Play a recorded run, and compare the play with it.

        Args:
            recording: The recorded run.
            run: What it is called.
            agent: The agent that plays it; None for the one of the recorded name.
            stubs: The results of calls that the recording does not have.

        Raises:
            NotPlayable: The catalog has no such agent, or the play does not end in time.
        """
        name = agent or recording.agent or None
        if name is not None and name not in self._catalog.agents:
            known = ", ".join(self._catalog.agents)
            raise NotPlayable(f"{run}: the catalog has no agent {name!r}; choose another one: {known}")
        thread = f"play-{uuid4().hex}"
        (folder := self._folder / thread).mkdir()
        play = Play(thread, recording, folder, tuple(stubs))
        self._playback.plays[thread] = play
        if self._endpoint.recorded:
            self._endpoint.recorded.add(thread, recording)
            play.options[FIELD] = thread
        opened = Client(self._threads, by=_NOBODY).thread(thread)
        play.send = partial(_send, opened)
        try:
            async with asyncio.timeout(self._patience):
                await self._start(play, agent=name)
                await self._drive(play, opened)
                course = course_of(await _events(opened))
        except TimeoutError:
            raise NotPlayable(
                f"{run}: its play took longer than {self._patience:g} s{await self._why(thread)}"
            ) from None
        finally:
            with suppress(RPCError):  # it is closed
                await self._temporal.get_workflow_handle(thread).terminate("the play has ended")
            del self._playback.plays[thread]
        return self._evaluated(run, play, course)

    def _evaluated(self, run: str, play: Play, course: Course) -> Evaluation:
        recorded = play.recording.course
        replies = self._endpoint.recorded
        if replies and play.thread in replies.ended and recorded.ended != "completed":
            # Its last event came from outside, such as a cancellation. All that was recorded has been played.
            course = course.model_copy(update={"ended": recorded.ended, "result": recorded.result})
        found = compare(run, recorded, course, thread=play.recording.thread, missing=play.missing)
        sides = {"recorded": (found.recorded, recorded), "played": (found.played, course)}
        return found.model_copy(update={name: _priced(*side) for name, side in sides.items()})

    async def _start(self, play: Play, *, agent: str | None) -> None:
        recording = play.recording
        given = RunInput(
            task=check_task(recording.task),
            by=recording.by,
            agent=agent,
            idle_limit=recording.idle_limit,
            trust=recording.trust,
            budget=recording.budget,
            workspace=str(play.folder),
            features=BUDGETS if recording.budget else 0,  # a start with a budget carries the level that has it
        )
        queue = self._threads.task_queue
        await self._temporal.start_workflow(WORKFLOW, issued(given), id=play.thread, task_queue=queue)

    async def _drive(self, play: Play, thread: Thread) -> None:
        """Give the play what people gave the recorded run, until it needs something else."""
        unblocked, extensions = list(play.recording.unblocked), list(play.recording.extensions)
        while True:
            state = await wait(self._threads, play.thread, until="attention", poll=_POLL)
            match state.status:
                case "completed" | "waiting_message" if play.inputs:
                    await _send(thread, play.inputs.pop(0))
                case "waiting_approval":
                    if not await _decide(play, thread, state):
                        return
                case "blocked" if state.blocked and state.blocked.cause == "BudgetSpent" and extensions:
                    await thread.extend(extensions.pop(0))
                case "blocked" if state.blocked and state.blocked.cause in unblocked:
                    if state.blocked.cause == LLM_REJECTED:
                        return
                    unblocked.remove(state.blocked.cause)
                    await thread.retry()
                case _:
                    return

    async def _why(self, thread: str) -> str:
        """What the play tries again, for an error."""
        with suppress(HoldfastError):
            tried = retrying(await self._threads.runs.describe(thread))
            return "".join(f"; {each.activity} failed in {each.attempt - 1} attempts: {each.reason}" for each in tried)
        return ""


async def _send(thread: Thread, given: RecordedInput) -> None:
    with suppress(Refused):  # in another course, it may come too late
        if given.refinement:
            await thread.refine(given.refinement, text_of(given.content), by=given.by)
        else:
            await thread.say(given.content, by=given.by)


async def _decide(play: Play, thread: Thread, state: ThreadState) -> bool:
    """Decide open requests as they were decided in the recording; False if that has none of these decisions."""
    calls = dict[int, str]()
    asked = dict[str, str]()
    for event in await _events(thread):
        match event:
            case ToolCallRequested(number=number):
                calls[number] = event.call.digest
            case ApprovalRequested():
                asked[event.request.id] = calls.get(event.request.number, "")
            case _:
                pass
    decided = False
    for request in state.pending:
        if made := play.decisions.get(asked.get(request.request, "")):
            decision = made.pop(0)
            given = decision.model_dump(exclude={"decision", "by"})
            with suppress(Refused):
                await thread.decide(request, decision.decision, by=decision.by or _NOBODY, **given)
            decided = True
    return decided


async def _events(thread: Thread) -> list[AgentEvent]:
    return [event async for event in thread.events()]


def _priced(measured: Measured, course: Course) -> Measured:
    prices = [price(cost.llm, cost.usage) for cost in course.costs]
    usd = None if None in prices else sum(each or 0 for each in prices)
    return measured.model_copy(update={"usd": usd})
