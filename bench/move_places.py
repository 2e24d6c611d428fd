"""The places of `bench.moves`: each with a Temporal, a database, a worker that is killed, and the command line."""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.composition.stores import collect_evidence
from holdfast.config.stack_file import Stack
from holdfast.core.log.event_log import event_line
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.audit import RecordedLog
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.outside import Outside

QUEUE = "moves"
_FORKED = multiprocessing.get_context("forkserver")
"""Starts commands from a process that has loaded the program, which saves most of the time that they take."""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    """Its exit code; negative for the signal that ended it."""
    output: str
    seconds: float


@dataclass
class Place:
    """One of the places, and its command line."""

    name: str
    client: Client
    pool: AsyncConnectionPool
    threads: Threads
    worker: KillableWorker
    folder: Path
    environ: Mapping[str, str]

    @property
    def evidence(self) -> Evidence:
        """Ledger and artifacts."""
        return collect_evidence(PostgresThreads(self.pool), self.pool, PostgresArtifacts(self.pool))

    async def run(self, *words: str, kill_after: float | None = None) -> Ran:
        """Run `holdfast`, and kill it after that many seconds unless it has ended."""
        return await asyncio.to_thread(self._run, words, kill_after)

    def _run(self, words: Sequence[str], kill_after: float | None) -> Ran:
        output = self.folder / f"command-{time.monotonic_ns()}.log"
        began = time.monotonic()
        process = _FORKED.Process(target=command, args=(words, dict(self.environ), str(self.folder), str(output)))
        process.start()
        process.join(kill_after)
        if process.exitcode is None and kill_after is not None:
            process.kill()
        process.join()
        assert process.exitcode is not None
        return Ran(process.exitcode, output.read_text() if output.exists() else "", time.monotonic() - began)

    async def live(self, thread: str) -> str:
        """Return Temporal's id of the open run of a thread; empty for none."""
        try:
            found = await self.client.get_workflow_handle(thread).describe()
        except RPCError:
            return ""
        return found.run_id if found.status == WorkflowExecutionStatus.RUNNING else ""

    async def lines(self, thread: str) -> list[bytes]:
        """Return a thread's log, as far as it is recorded."""
        return [event_line(event) for event in await self.threads.recorded_events(thread)]


def command(words: Sequence[str], environ: Mapping[str, str], folder: str, output: str) -> None:
    """Be the command line: `holdfast` with these words."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["holdfast", *words]
    from holdfast.__main__ import main

    main()


def preload() -> None:
    """Have the process from which commands are forked load what they need."""
    verbs = ("holdfast.__main__", "holdfast.starter", "holdfast.cli.verbs.portable")
    beside = ("bench.move_audit", "bench.environment", "tests.support.moved", "holdfast.worker.__main__")
    _FORKED.set_forkserver_preload([*verbs, "holdfast.portable.moving", *beside])


@asynccontextmanager
async def open_place(name: str, stack: Stack, home: Path, llm: ScriptedLLM, outside: Outside) -> AsyncIterator[Place]:
    """Run a worker of a place for the block, with a client and a pool of connections."""
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    await migrate(stack.database_url)
    environ = {
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_CATALOG": "tests.support.moved:catalog",
        "HOLDFAST_TASK_QUEUE": QUEUE,
        "HOLDFAST_ANSWER_SECONDS": "60",
        "HOLDFAST_BY": "carol",
        "OPENAI_BASE_URL": llm.base_url,
        "DATABASE_URL": stack.database_url,
    }
    worker = KillableWorker(home / QUEUE, environ=environ | outside.environ)
    await asyncio.to_thread(worker.start)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    folder = home / "commands"
    folder.mkdir()
    try:
        async with open_pool(stack.database_url, size=4) as pool:
            threads = Threads(client, task_queue=QUEUE, answer_within=60, record=PostgresThreads(pool))
            yield Place(name, client, pool, threads, worker, folder, kept | environ)
    finally:
        await asyncio.to_thread(worker.stop)


class MovedLog(RecordedLog):
    """A thread's events, read in the place where it is."""

    def __init__(self, place: Place, thread: str) -> None:
        super().__init__(place.client, thread, "")
        self._place = place

    async def refresh(self) -> None:
        """Read its events."""
        self.events = await self._place.threads.recorded_events(self.thread)


def answer_of(ran: Ran) -> dict[str, Any]:
    """Return the object that a command has printed; empty if it printed none."""
    for line in ran.output.splitlines():
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return {}
