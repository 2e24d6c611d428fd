"""The places of `bench.moves`: each has a Temporal server, a database, a worker to kill, and the command line."""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from collections.abc import AsyncIterator, Container, Mapping, Sequence
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
from holdfast.core.authority.signatures import encode_key
from holdfast.core.log.event_log import event_line
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.audit import RecordedLog
from holdfast.testing.kill_matrix.process import KillableWorker

QUEUE = "moves"
KEY = encode_key(b"moves" * 6 + b"xx")
"""The private key with which the files are signed."""
_FORKED = multiprocessing.get_context("forkserver")
"""Forks commands from a process that has loaded the program, which saves most of their time."""


@dataclass(frozen=True)
class CommandResult:
    """The outcome of a command."""

    code: int
    """The exit code; for a signal, its negative number."""
    output: str
    seconds: float


@dataclass
class Cluster:
    """One of the two places, with its workers and its command line."""

    name: str
    client: Client
    pool: AsyncConnectionPool
    threads: Threads
    workers: Sequence[KillableWorker]
    folder: Path
    environ: Mapping[str, str]

    @property
    def evidence(self) -> Evidence:
        """The ledger and the artifact store."""
        return collect_evidence(PostgresThreads(self.pool), self.pool, PostgresArtifacts(self.pool))

    async def run(self, *words: str, kill_after: float | None = None) -> CommandResult:
        """Run `holdfast`; kill it after `kill_after` seconds unless it has ended."""
        return await asyncio.to_thread(self._run, words, kill_after)

    def _run(self, words: Sequence[str], kill_after: float | None) -> CommandResult:
        output = self.folder / f"command-{time.monotonic_ns()}.log"
        start = time.monotonic()
        process = _FORKED.Process(target=command, args=(words, dict(self.environ), str(self.folder), str(output)))
        process.start()
        process.join(kill_after)
        if process.exitcode is None and kill_after is not None:
            process.kill()
        process.join()
        assert process.exitcode is not None
        return CommandResult(process.exitcode, output.read_text() if output.exists() else "", time.monotonic() - start)

    async def live(self, thread: str) -> str:
        """Return Temporal's run id of a thread's open run; empty if there is none."""
        try:
            description = await self.client.get_workflow_handle(thread).describe()
        except RPCError:
            return ""
        return description.run_id if description.status == WorkflowExecutionStatus.RUNNING else ""

    async def lines(self, thread: str) -> list[bytes]:
        """Return the recorded log of a thread."""
        return [event_line(event) for event in await self.threads.recorded_events(thread)]


def command(words: Sequence[str], environ: Mapping[str, str], folder: str, output: str) -> None:
    """Act as the command line: run `holdfast` with these arguments."""
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
    """Preload the modules that commands need in the process from which they are forked."""
    verbs = ("holdfast.__main__", "holdfast.starter", "holdfast.cli.verbs.portable")
    others = ("bench.move_audit", "bench.environment", "tests.support.moved", "holdfast.worker.__main__")
    _FORKED.set_forkserver_preload([*verbs, "holdfast.portable.moving", *others])


ONE_WORKER: Mapping[str, Mapping[str, str]] = {QUEUE: {"HOLDFAST_CATALOG": "tests.support.moved:catalog"}}


@asynccontextmanager
async def open_place(
    name: str,
    stack: Stack,
    home: Path,
    llm: ScriptedLLM,
    outside: Mapping[str, str],
    *,
    nodes: Mapping[str, Mapping[str, str]] = ONE_WORKER,
    late: Container[str] = (),
) -> AsyncIterator[Cluster]:
    """Run a place's workers during the block, with a client and a pool of connections.

    Args:
        name: The place's name.
        stack: Its servers.
        home: Its state folder.
        llm: The LLM of all places.
        outside: The environment variables of the tools.
        nodes: The environment variables of each worker, by the name of its folder.
        late: The workers that the caller starts later.
    """
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    await migrate(stack.database_url)
    environ = {
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_TASK_QUEUE": QUEUE,
        "HOLDFAST_ANSWER_SECONDS": "60",
        "HOLDFAST_BY": "carol",
        "OPENAI_BASE_URL": llm.base_url,
        "DATABASE_URL": stack.database_url,
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "TEMPORAL_"))}
    workers = [KillableWorker(home / folder, environ={**environ, **outside, **own}) for folder, own in nodes.items()]
    folder = home / "commands"
    folder.mkdir()
    (folder / "key").write_text(KEY)
    (folder / "key").chmod(0o600)
    try:
        for worker, node in zip(workers, nodes, strict=True):
            if node not in late:
                await asyncio.to_thread(worker.start)
        async with open_pool(stack.database_url, size=4) as pool:
            threads = Threads(client, task_queue=QUEUE, answer_within=60, record=PostgresThreads(pool))
            commands = inherited | environ | {"HOLDFAST_CATALOG": next(iter(nodes.values()))["HOLDFAST_CATALOG"]}
            yield Cluster(name, client, pool, threads, workers, folder, commands)
    finally:
        for worker in workers:
            await asyncio.to_thread(worker.stop)


class MovedLog(RecordedLog):
    """A thread's events, read in its current place."""

    def __init__(self, place: Cluster, thread: str) -> None:
        super().__init__(place.client, thread, "")
        self._place = place

    async def refresh(self) -> None:
        """Read its events."""
        self.events = await self._place.threads.recorded_events(self.thread)


def json_output(result: CommandResult) -> dict[str, Any]:
    """Return the JSON object printed by a command; empty if it printed none."""
    for line in result.output.splitlines():
        if line.startswith("{"):
            output: dict[str, Any] = json.loads(line)
            return output
    return {}
