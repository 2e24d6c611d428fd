"""`python -m bench.streams`: streams of replies, and what they cost a run.

1. **Delivery**: a publisher and a hub in one process, with PostgreSQL between them; 32 replies of 50 tokens a second
   are read by 100 readers. A chunk's delivery is the time from its last token to a reader; its age also has the time
   that the token waited for the batch.
2. **First token**: the time from the moment at which an endpoint in another process sends the first token of a reply
   to the moment at which a reader of the run has it.
3. **Step**: runs with streaming and without it, alternating on two workers in one process. The endpoint writes 100
   tokens
   a second, and streams them or sends the whole reply when it is written; then it sends everything at once, which shows
   the CPU time of a token.
"""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import openai
import psutil
import typer
import uvloop
from temporalio.client import Client

from bench import document
from bench.environment import leave, open_stack
from holdfast import Agent, Catalog, Limits, tool
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.llm.deltas import Delta
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.streams.chunks import Chunk, Cursor
from holdfast.core.streams.following import Following
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.endpoints.http_client import http_client
from holdfast.endpoints.script import Conversation, Reply, call, say, slow
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.hosting.assembly import build_worker
from holdfast.storage.pool import migrate, open_pool
from holdfast.streaming.hub import Hub, listening
from holdfast.streaming.postgres import PostgresStreams
from holdfast.streaming.publisher import Publisher, publishing
from holdfast.streaming.reading import read_stream
from holdfast.streaming.transport import Attempt
from holdfast.worker.construction import running

REPLIES, READERS, PACE, SECONDS = 32, 100, 0.02, 20.0
DELIVERY_MS, FIRST_MS, COST = 100.0, 30.0, 1.03
"""The limits: p95 of delivery, median of the first token, and time of a step with streams relative to one without."""
TOKENS = 50
TOKEN_SECONDS = 0.01


@dataclass
class Delivered:
    """What readers have measured, in milliseconds."""

    delivery: list[float] = field(default_factory=list)
    age: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)

    def take(self, chunk: Chunk) -> None:
        """Take a chunk, whose tokens are the times at which they were written."""
        now, times = time.monotonic(), [float(token) for token in chunk.text.split()]
        (self.delivery if chunk.chunk > 1 else self.first).append((now - times[-1]) * 1000)
        self.age.append((now - times[0]) * 1000)


async def deliver(stack: Stack) -> tuple[Delivered, float]:
    """Stream replies to readers; return what they measured, and the growth of the process's memory in MB."""
    measured, process = Delivered(), psutil.Process()
    async with (
        publishing(PostgresStreams(stack.database_url)) as publisher,
        listening(PostgresStreams(stack.database_url)) as hub,
    ):
        readers = [asyncio.create_task(_read(hub, f"bench-{n % REPLIES}", measured)) for n in range(READERS)]
        await asyncio.sleep(0.5)
        before = process.memory_info().rss
        await asyncio.gather(*(_write(publisher, f"bench-{n}") for n in range(REPLIES)))
        await asyncio.sleep(0.5)
        grown = (process.memory_info().rss - before) / 1e6
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    return measured, grown


async def _write(publisher: Publisher, thread: str) -> None:
    async def find() -> Attempt:
        return Attempt(thread, 1, 0, 1)

    reply, end = publisher.reply(find, NO_SECRETS), time.monotonic() + SECONDS
    while time.monotonic() < end:
        reply.emit(Delta("text", f"{time.monotonic():.6f} "))
        await asyncio.sleep(PACE)


async def _read(hub: Hub, thread: str, measured: Delivered) -> None:
    following = Following(Cursor(0))
    with hub.subscribe(thread) as reader:
        reader.advance(following)
        while True:
            for chunk in following.chunks(reader.attempts):
                measured.take(chunk)
            await reader.news.wait()
            reader.news.clear()


def _script(conversation: Conversation) -> Reply:
    steps = int(conversation.last_user_message.partition("steps=")[2].split()[0])
    text, started = "word " * TOKENS, time.monotonic()
    reply = replace(call("observe", n=conversation.replies), text=text) if conversation.replies < steps else say(text)
    if "at once" in conversation.last_user_message:
        return reply
    if not conversation.request.get("stream"):
        return slow(reply, TOKENS * TOKEN_SECONDS)

    def pause(number: int) -> None:
        written = started + min(number, TOKENS) * TOKEN_SECONDS
        time.sleep(max(0.0, written - time.monotonic()))

    return replace(reply, pause=pause)


def _timed(conversation: Conversation) -> Reply:
    # The one token is written when the reply is: `pause` holds the rest back until a reader must have seen it.
    return replace(say(f"{time.monotonic():.6f} end"), pause=lambda number: time.sleep(0.3 if number == 2 else 0))


def _serve(script: Callable[[Conversation], Reply], address: Any) -> None:
    with ScriptedLLM(script, recorded_requests=1) as llm:
        address.send(llm.base_url)
        address.recv()


@contextmanager
def serve(script: Callable[[Conversation], Reply]) -> Any:
    """Run an endpoint in another process for a block; yield its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(script, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(10)


@tool(effect="read")
async def observe(n: int) -> str:
    """Look at something."""
    return "seen"


CATALOG = Catalog(
    agents=[Agent(name="reader", instructions="Observe.", tools=[observe], limits=Limits(max_steps=1_000))],
)


@asynccontextmanager
async def working(stack: Stack, home: Path, url: str, *, queue: str, streams: bool) -> AsyncIterator[Client]:
    """Run a worker, with streams or without, for a block."""
    client = await connect_stack(stack)
    async with AsyncExitStack() as opened:
        pool = await opened.enter_async_context(open_pool(stack.database_url, size=8))
        endpoint = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, http_client=http_client(url))
        llm = await opened.enter_async_context(endpoint)
        publisher = (
            await opened.enter_async_context(publishing(PostgresStreams(stack.database_url))) if streams else None
        )
        worker = build_worker(
            client,
            task_queue=queue,
            catalog=CATALOG,
            llm=llm,
            default_llm="bench",
            pool=pool,
            database_url=stack.database_url,
            workspaces=home / "workspaces",
            publisher=publisher,
        )
        async with running(worker):
            yield client


async def first_tokens(stack: Stack, home: Path, count: int) -> list[float]:
    """Return the milliseconds until a reader of a run has the first token of its reply."""
    measured: list[float] = []
    with serve(_timed) as url:
        async with (
            working(stack, home, url, queue="first", streams=True) as client,
            listening(PostgresStreams(stack.database_url)) as hub,
        ):
            for number in range(count):
                thread = f"first-{number}"
                await client.start_workflow(WORKFLOW, RunInput(task="Answer"), id=thread, task_queue="first")
                async for each in read_stream(Threads(client, task_queue="first"), hub, thread, patient=True):
                    if isinstance(each, Chunk):
                        measured.append((time.monotonic() - float(each.text.split()[0])) * 1000)
                        break
    return measured


@dataclass(frozen=True)
class Step:
    """The cost of a step."""

    ms: float
    cpu_ms: float


async def steps_of(client: Client, queue: str, thread: str, steps: int, how: str) -> Step:
    """Run a thread of so many steps."""
    at, cpu = time.perf_counter(), time.process_time()
    task = RunInput(task=f"steps={steps} {how}")
    run = await client.start_workflow(WORKFLOW, task, id=thread, task_queue=queue)
    await run.result()
    return Step((time.perf_counter() - at) / steps * 1000, (time.process_time() - cpu) / steps * 1000)


async def compare(stack: Stack, home: Path, how: str, *, steps: int, rounds: int) -> list[tuple[Step, Step]]:
    """Return pairs of steps: with streams, and without."""
    pairs = []
    with serve(_script) as url:
        async with (
            working(stack, home, url, queue="on", streams=True) as on,
            working(stack, home, url, queue="off", streams=False) as off,
        ):
            for number in range(-1, rounds):
                order = [(on, "on"), (off, "off")]
                made = {}
                for client, queue in order if number % 2 else order[::-1]:
                    made[queue] = await steps_of(client, queue, f"{queue}-{number}-{how.replace(' ', '-')}", steps, how)
                if number >= 0:  # the first pair warms up
                    pairs.append((made["on"], made["off"]))
    return pairs


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1]


async def measure(stack: Stack, home: Path, *, steps: int, rounds: int) -> bool:
    """Measure everything, print and write it; return whether the limits are met."""
    await migrate(stack.database_url)
    await ensure_search_attributes(await connect_stack(stack))
    delivered, grown = await deliver(stack)
    first = await first_tokens(stack, home, 20)
    pairs = await compare(stack, home, "in time", steps=steps, rounds=rounds)
    at_once = await compare(stack, home, "at once", steps=4 * steps, rounds=rounds)
    token_us = median((on.cpu_ms - off.cpu_ms) / TOKENS * 1000 for on, off in at_once)
    time_ratio = median(on.ms / off.ms for on, off in pairs)
    cpu_ratio = median(on.cpu_ms / off.cpu_ms for on, off in pairs)
    lines = [
        "## Streams",
        "",
        f"- {READERS} readers of {REPLIES} replies of {1 / PACE:.0f} tokens a second: delivery p50 "
        f"{median(delivered.delivery):.1f}, p95 {_p95(delivered.delivery):.1f} ms (limit {DELIVERY_MS:.0f}); age of a "
        f"token with its batch p95 {_p95(delivered.age):.0f} ms; first token p50 {median(delivered.first):.1f} ms; "
        f"memory grew by {grown:.1f} MB",
        f"- first token of a run, from the endpoint to a reader: median {median(first):.1f} ms (limit {FIRST_MS:.0f})",
        f"- a step of {TOKENS} tokens at {1 / TOKEN_SECONDS:.0f} a second, streamed: {time_ratio:.3f} × the time and "
        f"{cpu_ratio:.2f} × the CPU time of one that is not ({median(off.ms for _, off in pairs):.0f} ms, "
        f"{median(off.cpu_ms for _, off in pairs):.1f} ms of CPU); limit {COST:.2f} × the time",
        f"- a token that arrives with all others at once costs {token_us:.0f} µs of CPU time more than one of a reply "
        "that is sent whole",
    ]
    print("\n".join(lines))
    document.write("streams", "\n".join(lines))
    return _p95(delivered.delivery) <= DELIVERY_MS and median(first) <= FIRST_MS and time_ratio <= COST


def main(
    steps: Annotated[int, typer.Option(min=5, help="Steps of each run.")] = 12,
    rounds: Annotated[int, typer.Option(min=1, help="Pairs of runs.")] = 5,
) -> None:
    """Measure on a separate embedded stack. Takes about two minutes. Exits with 1 if a limit is missed."""
    with open_stack() as (stack, home):
        met = uvloop.run(measure(stack, home, steps=steps, rounds=rounds))
    leave(not met)


if __name__ == "__main__":
    typer.run(main)
