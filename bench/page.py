"""`python -m bench.page`: the page with many runs that wait, a long run, and many open tabs.

A worker, and a gateway in a process of its own; people sign in with tokens and read over loopback.

1. **Lists**: the inbox and the list of runs while many runs wait for a decision: the time to the first byte.
2. **A long run**: the same for its page, when it waits at the end of 10,000 events, and for its other sides.
3. **Tabs**: the gateway's memory while 200 pages are open, half on the inbox, half on runs; they refresh as htmx does,
   and those of runs also follow the reply to come.
"""

import asyncio
import hashlib
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, get_args

import httpx2
import psutil
import typer
import uvloop
from temporalio.client import Client

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, Policy, allow, ask, tool
from holdfast.client.connect import connect_stack
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers, CallersFile, Scope, Token
from holdfast.gateway.http.serving import Server, listen
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.streaming.hub import listening
from holdfast.streaming.postgres import PostgresStreams

QUEUE, LONG = "page", "page-long"
PEOPLE = 25
"""Each has a quota of their own, and opens eight pages."""
LIST_MS, RUN_MS, TABS_MB = 150.0, 500.0, 300.0
"""The limits: p95 of the first byte of a list and of a long run's page, and the memory of 200 open pages."""
AT_ONCE = 20
SAMPLES = 100
RUN_EVERY, INBOX_EVERY = 3.0, 10.0
"""Seconds between two refreshes of a run and of the inbox, as the templates have them."""
ALL: tuple[Scope, ...] = tuple(scope for scope in get_args(Scope) if scope != "codec")

OBSERVATION = observation()


@tool(effect="read")
async def observe(n: int) -> str:
    """Look at something."""
    return OBSERVATION


@tool(effect="idempotent", consequence="pays invoice {n}")
async def pay(n: int) -> str:
    """Pay."""
    return "paid"


def serve_gateway(stack: Stack, ready: Connection) -> None:
    """Serve a gateway with its page in this process, and send its URL."""

    async def serve() -> None:
        async with open_pool(stack.database_url, size=4) as pool, listening(PostgresStreams(stack.database_url)) as hub:
            record = PostgresThreads(pool)
            threads = Threads(await connect_stack(stack), task_queue=QUEUE, answer_within=60.0, record=record)
            socket = listen("127.0.0.1", 0)
            url = f"http://127.0.0.1:{socket.getsockname()[1]}"
            digests = ((f"person-{n}", hashlib.sha256(f"token-{n}".encode()).hexdigest()) for n in range(PEOPLE))
            tokens = tuple(Token(name=name, sha256=digest, scopes=ALL) for name, digest in digests)
            server = Server(build_app(threads, Callers(CallersFile(tokens=tokens)), page=url, hub=hub))
            ready.send(url)
            await server.serve(sockets=[socket])

    uvloop.run(serve())


@contextmanager
def gateway(stack: Stack) -> Iterator[tuple[str, psutil.Process]]:
    """Run a gateway in a process of its own during the block, and yield its URL and process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_gateway, args=(stack, there), daemon=True)
    process.start()
    try:
        yield here.recv(), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join()


async def signed_in(url: str, number: int) -> httpx2.AsyncClient:
    """Return a client with the session of a person."""
    http = httpx2.AsyncClient(base_url=url, timeout=120.0, trust_env=False)
    answer = await http.post("/page/sign-in", data={"token": f"token-{number}"}, headers={"Origin": url})
    assert answer.status_code == 303, answer.text
    return http


async def first_byte(http: httpx2.AsyncClient, path: str) -> float:
    """Return the seconds until the first byte of a page."""
    began = time.perf_counter()
    async with http.stream("GET", path) as answer:
        async for _ in answer.aiter_raw(1):
            break
        took = time.perf_counter() - began
        assert answer.status_code == 200, (path, answer.status_code)
    return took


async def sampled(
    people: list[httpx2.AsyncClient], path: str, samples: int, gateway: psutil.Process
) -> tuple[float, float, float, float]:
    """Return the first, the median and the 95th percentile of the times to a page's first byte, and the gateway's CPU
    time for each page with all that it did meanwhile, in ms.
    """
    times: list[float] = []
    used = sum(gateway.cpu_times()[:2])
    for number in range(samples):
        times.append(1e3 * await first_byte(people[number % len(people)], path))
        await asyncio.sleep(0.05)
    used = sum(gateway.cpu_times()[:2]) - used
    return times[0], median(times[1:]), quantiles(times[1:], n=20)[18], 1e3 * used / samples


async def tab(http: httpx2.AsyncClient, path: str, every: float, until: float) -> None:
    """Open a page, and refresh it until a time, as htmx does; follow the reply to come of a run."""
    await http.get(path)
    live, following = path, None
    if "/runs/" in path:
        live = f"{path}/live?after=1000000&seen=waiting_approval"
        following = asyncio.create_task(follow(http, f"{path}/stream?after=1000000"))
    while time.monotonic() < until:
        await asyncio.sleep(every)
        answer = await http.get(live, headers={"HX-Request": "true"})
        assert answer.status_code in (200, 204, 429, 503), answer.status_code
    if following:
        assert not following.done(), following
        following.cancel()


async def follow(http: httpx2.AsyncClient, path: str) -> None:
    """Read the stream of a page until it is cancelled; it has no end while its run waits."""
    async with http.stream("GET", path) as answer:
        assert answer.status_code == 200, answer.status_code
        async for _ in answer.aiter_raw():
            pass


async def waiting(client: Client, count: int) -> None:
    """Wait until so many runs wait for a decision, by Temporal's visibility: a query would cost their worker time."""
    while (await client.count_workflows("HoldfastStatus = 'waiting_approval'")).count < count:  # noqa: ASYNC110
        await asyncio.sleep(0.5)


async def measure(stack: Stack, home: Path, llm: str, *, runs: int, steps: int, seconds: float) -> None:
    """Start the runs, and read the pages."""
    agent = Agent(
        name="bench",
        instructions="Go on.",
        policy=Policy(rules=(ask("pay"), allow())),
        tools=[observe, pay],
        limits=Limits(max_steps=steps + 10),
    )
    async with AsyncExitStack() as cleanup:
        serves = serving(stack, home, llm, Catalog(agents=[agent]), queue=QUEUE, connections=8)
        client, _, _ = await cleanup.enter_async_context(serves)
        for number, id in enumerate([LONG, *(f"{QUEUE}-{number}" for number in range(runs))]):
            run_input = RunInput(task=f"steps={1 if number else steps} then=pay")
            await client.start_workflow(WORKFLOW, run_input, id=id, task_queue=QUEUE)
            if number % AT_ONCE == 0 or number == runs:
                await waiting(client, number if number < runs else number + 1)
        events = (await client.get_workflow_handle(LONG).query("state"))["events"]
        url, process = cleanup.enter_context(gateway(stack))
        people = [await signed_in(url, number) for number in range(PEOPLE)]
        lines = []
        for name, path in (("the inbox", "/page/inbox"), ("the list of runs", "/page/runs")):
            first, middle, p95, used = await sampled(people, path, SAMPLES, process)
            lines.append(
                f"- {runs:,} runs that wait: first byte of {name} median {middle:.0f} ms, p95 {p95:.0f} ms (limit "
                f"{LIST_MS:.0f}), {used:.0f} ms of the gateway's CPU time; the first reader after a start waits "
                f"{first:,.0f} ms"
            )
        own = f"/page/runs/{LONG}"
        sides = {side: await sampled(people, own + side, 20, process) for side in ("", "/calls", "/costs", "/at")}
        _, middle, p95, used = sides[""]
        lines.append(
            f"- a run of {events:,} events opens in {middle:.0f} ms (median; p95 {p95:.0f} ms, limit {RUN_MS:.0f}), "
            f"{used:.0f} ms of the gateway's CPU time; "
            + ", ".join(f"{side[1:]} {times[1]:.0f} ms" for side, times in sides.items() if side)
        )
        before, until, peaks = process.memory_info().rss, time.monotonic() + seconds, [0]
        inbox = ("/page/inbox", INBOX_EVERY)
        tabs = [
            tab(http, *(inbox if number % 2 else (f"/page/runs/{QUEUE}-{number % runs}", RUN_EVERY)), until)
            for number, http in enumerate(people * 8)
        ]
        watching = asyncio.create_task(watch_memory(process, peaks))
        await asyncio.gather(*tabs)
        watching.cancel()
        held = (max(peaks) - before) / 1e6
        lines.append(
            f"- {len(tabs)} open pages for {seconds:.0f} s: the gateway grew by {held:.0f} MB (limit "
            f"{TABS_MB:.0f}), from {before / 1e6:.0f} MB"
        )
        for http in people:
            await http.aclose()
    print("\n".join(lines))
    about = f"`python -m bench.page --runs {runs} --steps {steps}`: worker, gateway and readers on the same two cores."
    document.write("page", "\n".join(["## The page", "", about, "", *lines]))


async def watch_memory(process: psutil.Process, peaks: list[int]) -> None:
    """Note the memory of a process, ten times a second."""
    while True:
        peaks.append(process.memory_info().rss)
        await asyncio.sleep(0.1)


def main(
    runs: Annotated[int, typer.Option(min=1)] = 1_000,
    steps: Annotated[int, typer.Option(min=1, help="Of the long run; each has five events.")] = 2_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long the pages stay open.")] = 60.0,
) -> None:
    """Measure the page on a separate embedded stack."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, runs=runs, steps=steps, seconds=seconds))
    leave()


if __name__ == "__main__":
    typer.run(main)
