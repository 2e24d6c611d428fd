"""Reruns recorded runs on a separate worker and server (see `holdfast.evaluation`)."""

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
from holdfast.core.run.state.features import BUDGETS, level_of_start
from holdfast.core.tools.secrets import Secrets
from holdfast.devstack.shared import shared_server
from holdfast.devstack.temporal_server import NAMESPACE
from holdfast.endpoints.prices import price
from holdfast.errors import HoldfastError, NotPlayable
from holdfast.evaluation.compare.datasets import Stub
from holdfast.evaluation.compare.evaluation import Evaluation, RunCost, compare
from holdfast.evaluation.compare.recording import Recording
from holdfast.evaluation.compare.trajectory import Trajectory, trajectory_of
from holdfast.evaluation.endpoints import Endpoint
from holdfast.evaluation.recorded_people import NOBODY, drive, events_of, send
from holdfast.evaluation.recorded_results import Rerun, RerunInterceptor
from holdfast.evaluation.replies import FIELD, Replies
from holdfast.storage.in_memory.memories import InMemoryMemories
from holdfast.storage.in_memory.record import InMemoryArtifacts, InMemoryLedger, InMemoryThreads

PATIENCE = 600.0
"""The default time limit of a rerun, in seconds."""

_LEAVE = 10.0
"""Seconds after which a worker that fails to stop is abandoned."""


@asynccontextmanager
async def open_eval_runner(
    catalog: Catalog, endpoint: Endpoint, *, patience: float = PATIENCE
) -> AsyncIterator["EvalRunner"]:
    """Run a worker that reruns recorded runs, for a block.

    Args:
        catalog: The agents of the reruns. None of its tools, middleware, resources and stores is used.
        endpoint: The LLM.
        patience: The time limit of a rerun, in seconds.

    Raises:
        StackError: The server cannot be started.
    """
    from holdfast.worker.construction import running

    # The SDK warns about every local activity that ends just at its timeout.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    server = await asyncio.to_thread(shared_server)
    temporal = await connect({"target_host": server.address, "namespace": NAMESPACE}, seals=server.seals)
    record, interceptor, queue = InMemoryThreads(), RerunInterceptor(), f"rerun-{uuid4().hex[:8]}"
    hosting: Any = import_module("holdfast.hosting.assembly")  # the only one that imports both sides
    async with AsyncExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-rerun-")))
        built = hosting.build_worker(
            temporal,
            task_queue=queue,
            catalog=_rerun_catalog(catalog, endpoint, record),
            llm=endpoint.client,
            default_llm=endpoint.default,
            ledger=InMemoryLedger(),
            workspaces=folder / "workspaces",
            secrets=Secrets({}),
            resources=dict.fromkeys(catalog.resources),  # never opened, because no tool runs
            interceptors=[interceptor],
            debug_mode=True,
        )
        await cleanup.enter_async_context(running(built, within=_LEAVE))
        # Await every decision and message: one that is only sent may take effect after the next look at the rerun.
        threads = Threads(temporal, task_queue=queue, record=record, answer_within=patience)
        yield EvalRunner(temporal, threads, interceptor, endpoint, catalog, folder, patience=patience)


def _rerun_catalog(catalog: Catalog, endpoint: Endpoint, record: InMemoryThreads) -> Catalog:
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


class EvalRunner:
    """Reruns recorded runs. Created by `open_eval_runner`."""

    def __init__(
        self,
        temporal: TemporalClient,
        threads: Threads,
        interceptor: RerunInterceptor,
        endpoint: Endpoint,
        catalog: Catalog,
        folder: Path,
        *,
        patience: float,
    ) -> None:
        self._temporal = temporal
        self._threads = threads
        self._interceptor = interceptor
        self._endpoint = endpoint
        self._catalog = catalog
        self._folder = folder
        self._patience = patience

    async def rerun(
        self, recording: Recording, *, run: str, agent: str | None = None, stubs: Sequence[Stub] = ()
    ) -> Evaluation:
        """Rerun a recorded run, and compare the rerun with it.

        Args:
            recording: The recorded run.
            run: The name of the run, for the report.
            agent: The agent of the rerun; None for the one with the recorded name.
            stubs: The results of calls that are missing from the recording.

        Raises:
            NotPlayable: The catalog has no such agent, or the rerun took too long.
        """
        name = agent or recording.agent or None
        if name is not None and name not in self._catalog.agents:
            known = ", ".join(self._catalog.agents)
            raise NotPlayable(f"{run}: the catalog has no agent {name!r}; choose another one: {known}")
        thread = f"rerun-{uuid4().hex}"
        (folder := self._folder / thread).mkdir()
        rerun = Rerun(thread, recording, folder, tuple(stubs))
        self._interceptor.reruns[thread] = rerun
        script = self._endpoint.recorded
        replies = script.add(thread, recording) if script else None
        if replies:
            rerun.options[FIELD] = thread
        handle = Client(self._threads, by=NOBODY).thread(thread)
        rerun.send = partial(send, handle)
        try:
            async with asyncio.timeout(self._patience):
                await self._start(rerun, agent=name)
                await drive(rerun, handle, self._threads)
                trajectory = trajectory_of(await events_of(handle))
        except TimeoutError:
            raise NotPlayable(
                f"{run}: its rerun took longer than {self._patience:g} s{await self._retries(thread)}"
            ) from None
        finally:
            with suppress(RPCError):  # it is closed
                await self._temporal.get_workflow_handle(thread).terminate("the rerun has ended")
            del self._interceptor.reruns[thread]
            if script:
                script.drop(thread)
        return _evaluate(run, rerun, trajectory, replies)

    async def _start(self, rerun: Rerun, *, agent: str | None) -> None:
        recording = rerun.recording
        start = RunInput(
            task=check_task(recording.task),
            by=recording.by,
            agent=agent,
            idle_limit=recording.idle_limit,
            when_blocked=recording.when_blocked,
            trust=recording.trust,
            budget=recording.budget,
            workspace=str(rerun.folder),
            context=recording.context,
            conversation=recording.conversation,
            features=level_of_start(
                others=BUDGETS if recording.budget else 0,
                context=recording.context,
                when_blocked=recording.when_blocked,
                conversation=recording.conversation,
            ),
        )
        queue = self._threads.task_queue
        await self._temporal.start_workflow(WORKFLOW, issued(start), id=rerun.thread, task_queue=queue)

    async def _retries(self, thread: str) -> str:
        """Describe the activities that the rerun is retrying, for an error."""
        with suppress(HoldfastError):
            retries = retrying(await self._threads.runs.describe(thread))
            return "".join(
                f"; {each.activity} failed in {each.attempt - 1} attempts: {each.reason}" for each in retries
            )
        return ""


def _evaluate(run: str, rerun: Rerun, trajectory: Trajectory, replies: Replies | None) -> Evaluation:
    recorded = rerun.recording.trajectory
    stopped = recorded.ended in ("cancelled", "open") or recorded.cause in (LLM_REJECTED, CONTEXT_TOO_LONG)
    if replies and stopped and (replies.ended or (trajectory.ended == "asked" and not replies.steps)):
        # The whole recording was rerun. It ended without a reply, so no reply can end the rerun that way.
        trajectory = trajectory.model_copy(update={"ended": recorded.ended, "result": recorded.result})
    evaluation = compare(run, recorded, trajectory, thread=rerun.recording.thread, missing=rerun.missing)
    sides = {"recorded": (evaluation.recorded, recorded), "played": (evaluation.played, trajectory)}
    return evaluation.model_copy(update={name: _with_price(*side) for name, side in sides.items()})


def _with_price(cost: RunCost, trajectory: Trajectory) -> RunCost:
    prices = [price(each.llm, each.usage) for each in trajectory.costs]
    usd = None if None in prices else sum(each or 0 for each in prices)
    return cost.model_copy(update={"usd": usd})
