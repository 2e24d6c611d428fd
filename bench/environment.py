"""The environment: an embedded stack, an LLM server, and similar workers for all contenders in one process."""

import gc
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import openai
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from bench.figures import EFFECTS, FLOOR, HOLDFAST, LOCAL_FLOOR
from bench.floor import FloorActivities, FloorWorkflow, LocalFloorWorkflow
from holdfast import Agent, Catalog, Limits, Policy, allow, tool
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.devstack.devstack import DevStack
from holdfast.endpoints.http_client import http_client
from holdfast.hosting.assembly import build_worker
from holdfast.storage.pool import EFFECTS_AT_ONCE, migrate, open_pool
from holdfast.streaming.publisher import Publisher
from holdfast.worker.construction import running
from holdfast.worker.takeover.takeover import taking_over

OBSERVATION_BYTES = 2048
PATIENCE = timedelta(minutes=5)
"""The time limit of a run. After it, the server ends the run, and the measurement fails."""


def observation() -> str:
    """Return a text of constant size that compresses like prose: fixed words in a fixed random order."""
    chance = random.Random(2048)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(300)]
    return " ".join(chance.choices(words, k=1000))[:OBSERVATION_BYTES]


@dataclass(frozen=True)
class Contender:
    """An implementation of the benchmark's steps."""

    name: str
    start: Callable[[int, str], Awaitable[WorkflowHandle[Any, Any]]]
    """Starts a run, from its number of steps and its workflow id."""
    calls_made: Callable[[Any], int]
    """Extracts the number of LLM calls from a run's result."""


@contextmanager
def open_stack() -> Iterator[tuple[Stack, Path]]:
    """Run the embedded servers in a temporary folder during the block.

    Yields:
        The stack, and the folder.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        servers = DevStack(home)
        try:
            yield servers.start(), home
        finally:
            servers.stop()


@asynccontextmanager
async def serving(
    stack: Stack,
    home: Path,
    llm_url: str,
    catalog: Catalog,
    *,
    queue: str,
    connections: int = 4,
    client: Client | None = None,
    node_key: SigningKey | None = None,
    publisher: Publisher | None = None,
    node_policy: Policy | None = None,
) -> AsyncIterator[tuple[Client, Worker, openai.AsyncOpenAI]]:
    """Run a Holdfast worker in this process during the block, with takeover as in `worker.py`.

    With a key, it signs the results of LLM and tool calls; with a publisher, it streams replies; with a policy of its
    own, it judges each call.

    Yields:
        The Temporal client, the worker, and the worker's LLM client.
    """
    client = client or await connect_stack(stack)
    await ensure_search_attributes(client)
    await migrate(stack.database_url)
    async with (
        open_pool(stack.database_url, size=connections) as pool,
        openai.AsyncOpenAI(
            api_key="bench",
            base_url=llm_url,
            max_retries=0,
            http_client=http_client(llm_url) if publisher else None,  # ours reports the pieces of a stream
        ) as llm,
        taking_over(client, home=home, task_queue=queue) as identity,
    ):
        worker = build_worker(
            client,
            task_queue=queue,
            catalog=catalog,
            llm=llm,
            default_llm="bench",
            pool=pool,
            database_url=stack.database_url,
            workspaces=home / "workspaces",
            identity=identity,
            node_key=node_key,
            publisher=publisher,
            node_policy=node_policy,
        )
        async with running(worker):
            gc.freeze()  # as `worker.py` does
            yield client, worker, llm


def leave(code: int = 0) -> NoReturn:
    """End the process at once: temporalio can crash the interpreter at exit, which would change the exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@asynccontextmanager
async def open_contenders(
    stack: Stack, home: Path, llm_url: str, *, publisher: Publisher | None = None
) -> AsyncIterator[tuple[Client, dict[str, Contender]]]:
    """Run the workers of all contenders during the block; with a publisher, ours streams replies.

    Yields:
        The client that they share, and the contenders by name.
    """
    text = observation()

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        return text

    @tool(effect="unsafe")
    async def act(n: int) -> str:
        """Do something."""
        return text

    limits = Limits(max_steps=1_000_000, compaction_tokens=10**9)
    reader = Agent(name="reader", instructions="Call observe until you are done.", tools=("observe",), limits=limits)
    actor = Agent(
        name="actor",
        instructions="Call act until you are done.",
        tools=("act",),
        policy=Policy(rules=(allow(),)),
        limits=limits,
    )
    catalog = Catalog(agents=[reader, actor], tools=[observe, act])
    ours_open = serving(stack, home, llm_url, catalog, queue=HOLDFAST, connections=EFFECTS_AT_ONCE, publisher=publisher)
    async with ours_open as (client, ours, llm):
        # The floor's worker has the same options: sandbox, pass-through modules, time-outs.
        options = ours.config()
        options["task_queue"] = FLOOR
        options["workflows"] = [FloorWorkflow, LocalFloorWorkflow]
        options["interceptors"] = []  # the floor's activities have no Holdfast requests to check
        options["activities"] = [(own := FloorActivities(llm, text)).floor_llm, own.floor_tool]
        async with running(Worker(**options)):
            acting = _holdfast(client, EFFECTS, agent="actor", task="Do things: uses=act steps=")
            reading = _holdfast(client, HOLDFAST, agent="reader", task="Look at things: steps=")
            bare = _floor(client, FLOOR, FloorWorkflow), _floor(client, LOCAL_FLOOR, LocalFloorWorkflow)
            yield client, {one.name: one for one in (*bare, reading, acting)}


def _floor(client: Client, contender: str, workflow: type[FloorWorkflow | LocalFloorWorkflow]) -> Contender:
    async def start(steps: int, name: str) -> WorkflowHandle[Any, Any]:
        return await client.start_workflow(workflow.run, steps, id=name, task_queue=FLOOR, execution_timeout=PATIENCE)

    return Contender(contender, start, calls_made=int)


def _holdfast(client: Client, contender: str, *, agent: str, task: str) -> Contender:
    async def start(steps: int, name: str) -> WorkflowHandle[Any, Any]:
        return await client.start_workflow(
            WORKFLOW,
            RunInput(task=f"{task}{steps}", agent=agent),
            id=name,
            task_queue=HOLDFAST,
            result_type=RunResult,
            execution_timeout=PATIENCE,
        )

    return Contender(contender, start, calls_made=lambda result: int(result.steps))
