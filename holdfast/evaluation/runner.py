"""Plays recorded runs, on a worker and a server of their own (`holdfast.evaluation` says how)."""

import asyncio
import tempfile
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError

from holdfast.api.client import Client
from holdfast.client.connect import connect
from holdfast.client.reading.runs import retrying
from holdfast.client.start_options import check_task, issued
from holdfast.client.threads import Threads
from holdfast.core.agents.catalog import Catalog
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.state.features import BUDGETS
from holdfast.core.tools.secrets import Secrets
from holdfast.devstack.shared import shared_server
from holdfast.devstack.temporal_server import NAMESPACE
from holdfast.endpoints.prices import price
from holdfast.errors import HoldfastError, NotPlayable
from holdfast.evaluation.compare.datasets import Stub
from holdfast.evaluation.compare.evaluation import Evaluation, Measured, compare
from holdfast.evaluation.compare.recording import Recording
from holdfast.evaluation.compare.trajectory import Course, course_of
from holdfast.evaluation.endpoints import Endpoint
from holdfast.evaluation.recorded_people import NOBODY, drive, events_of, send
from holdfast.evaluation.recorded_results import Play, Playback
from holdfast.evaluation.replies import FIELD, Replies
from holdfast.storage.in_memory.artifacts import InMemoryArtifacts
from holdfast.storage.in_memory.ledger import InMemoryLedger
from holdfast.storage.in_memory.memories import InMemoryMemories
from holdfast.storage.in_memory.threads import InMemoryThreads

PATIENCE = 600.0
"""Seconds that a play may take, unless the caller says otherwise."""

_LEAVE = 10.0
"""Seconds after which a worker that does not end is abandoned."""


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
    from holdfast.worker.construction import running

    # The SDK warns for every local activity that ends just as its time is over.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    server = await asyncio.to_thread(shared_server)
    temporal = await connect({"target_host": server.address, "namespace": NAMESPACE}, seals=server.seals)
    record, playback, queue = InMemoryThreads(), Playback(), f"play-{uuid4().hex[:8]}"
    worker: Any = import_module("holdfast.worker.__main__")  # the one place that has workflows and activities
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
        script = self._endpoint.recorded
        replies = script.add(thread, recording) if script else None
        if replies:
            play.options[FIELD] = thread
        opened = Client(self._threads, by=NOBODY).thread(thread)
        play.send = partial(send, opened)
        try:
            async with asyncio.timeout(self._patience):
                await self._start(play, agent=name)
                await drive(play, opened, self._threads)
                course = course_of(await events_of(opened))
        except TimeoutError:
            raise NotPlayable(
                f"{run}: its play took longer than {self._patience:g} s{await self._why(thread)}"
            ) from None
        finally:
            with suppress(RPCError):  # it is closed
                await self._temporal.get_workflow_handle(thread).terminate("the play has ended")
            del self._playback.plays[thread]
            if script:
                script.drop(thread)
        return _evaluated(run, play, course, replies)

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

    async def _why(self, thread: str) -> str:
        """What the play tries again, for an error."""
        with suppress(HoldfastError):
            tried = retrying(await self._threads.runs.describe(thread))
            return "".join(f"; {each.activity} failed in {each.attempt - 1} attempts: {each.reason}" for each in tried)
        return ""


def _evaluated(run: str, play: Play, course: Course, replies: Replies | None) -> Evaluation:
    recorded = play.recording.course
    stopped = recorded.ended in ("cancelled", "open") or recorded.cause in (LLM_REJECTED, CONTEXT_TOO_LONG)
    if replies and stopped and (replies.ended or (course.ended == "asked" and not replies.steps)):
        # All that was recorded has been played. It ended without a reply, so no reply ends the play like it.
        course = course.model_copy(update={"ended": recorded.ended, "result": recorded.result})
    found = compare(run, recorded, course, thread=play.recording.thread, missing=play.missing)
    sides = {"recorded": (found.recorded, recorded), "played": (found.played, course)}
    return found.model_copy(update={name: _priced(*side) for name, side in sides.items()})


def _priced(measured: Measured, course: Course) -> Measured:
    prices = [price(cost.llm, cost.usage) for cost in course.costs]
    usd = None if None in prices else sum(each or 0 for each in prices)
    return measured.model_copy(update={"usd": usd})
