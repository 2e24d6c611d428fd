"""`python -m bench.telemetry`: what telemetry costs a step, and how long 10,000 steps take to export.

1. **Step**: the same run with traces, metrics (Temporal's own, too, at a Prometheus endpoint) and an export to a
   collector in another process, and without any, alternating on two workers in one process. Each round compares its own
   two runs, and the median of these ratios counts. CPU time counts most, because the export is beside the run.
2. **Export**: a recorded run of 10,000 steps, from PostgreSQL to the collector.
"""

import asyncio
import gc
import multiprocessing
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import httpx2
import openai
import typer
import uvloop
from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from bench import document
from bench.environment import leave, open_stack
from bench.streams import CATALOG, serve
from holdfast.client.connect import connect, connect_stack, ensure_search_attributes, stack_config
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import RunFinished
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.encryption.fleet_keys import stack_seals
from holdfast.endpoints.http_client import http_client
from holdfast.endpoints.script import Conversation, Reply, call, say
from holdfast.hosting.assembly import build_worker
from holdfast.storage.feeds import reading_feed
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.telemetry.exporter import EVERY_SECONDS, TraceExporter
from holdfast.telemetry.following import Part, Taken, following, look
from holdfast.telemetry.metrics.instruments import instruments_of
from holdfast.telemetry.metrics.measuring import Measuring
from holdfast.worker.construction import running
from tests.support.logs import many_steps

COST, EXPORT_SECONDS = 1.03, 10.0
"""The limits: a step with telemetry relative to one without, and the export of `EXPORTED` steps."""
EXPORTED = 10_000


def script(conversation: Conversation) -> Reply:
    """Look until the number of steps in the task is reached."""
    steps = int(conversation.last_user_message.partition("steps=")[2])
    return call("observe", n=conversation.replies) if conversation.replies < steps else say("done")


class _Sink(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


def _collect(address: Any) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Sink) as server:
        address.send(f"http://127.0.0.1:{server.server_port}/v1/traces")
        server.serve_forever()


@contextmanager
def collector() -> Iterator[str]:
    """Run a collector that keeps nothing, in another process; yield its address."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join(10)


class _Exporter(TraceExporter):
    """Notes when a run was exported to its end."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.ended = asyncio.Event()

    async def deliver(self, threads: Sequence[Part]) -> Sequence[Taken]:
        """Export, and note the end."""
        taken = await super().deliver(threads)
        if any(isinstance(part.events[-1], RunFinished) for part in threads):
            self.ended.set()
        return taken


@asynccontextmanager
async def working(stack: Stack, home: Path, url: str, *, observed: bool) -> AsyncIterator[Client]:
    """Run a worker, with traces and metrics or without, for a block. Its queue is `on` or `off`."""
    config, measuring = stack_config(stack), []
    if observed:
        exported = PrometheusConfig("127.0.0.1:0", durations_as_seconds=True)
        config["runtime"] = Runtime(telemetry=TelemetryConfig(metrics=exported))
        measuring.append(Measuring(instruments_of(config["runtime"].metric_meter), CATALOG, ["bench"]))
    client = await connect(config, seals=stack_seals(stack))
    async with AsyncExitStack() as opened:
        pool = await opened.enter_async_context(open_pool(stack.database_url, size=8))
        endpoint = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, http_client=http_client(url))
        worker = build_worker(
            client,
            task_queue="on" if observed else "off",
            catalog=CATALOG,
            llm=await opened.enter_async_context(endpoint),
            default_llm="bench",
            pool=pool,
            database_url=stack.database_url,
            workspaces=home / "workspaces",
            traced=observed,
            interceptors=measuring,
        )
        async with running(worker):
            yield client


@dataclass(frozen=True)
class Step:
    """The cost of a step."""

    ms: float
    cpu_ms: float


async def run_steps(client: Client, queue: str, thread: str, steps: int, exporter: _Exporter | None) -> Step:
    """Run a thread of so many steps, and export it if there is an exporter."""
    gc.collect()
    at, cpu = time.perf_counter(), time.process_time()
    run = await client.start_workflow(WORKFLOW, RunInput(task=f"steps={steps}"), id=thread, task_queue=queue)
    await run.result()
    took = time.perf_counter() - at
    if exporter is not None:
        await exporter.ended.wait()
    return Step(took / steps * 1_000, (time.process_time() - cpu) / steps * 1_000)


async def compare(stack: Stack, home: Path, sink: str, *, steps: int, rounds: int) -> list[tuple[Step, Step]]:
    """Return pairs of steps: with telemetry, and without."""
    pairs = []
    with serve(script) as url:
        async with (
            working(stack, home, url, observed=True) as on,
            working(stack, home, url, observed=False) as off,
            open_pool(stack.database_url, size=2) as pool,
            httpx2.AsyncClient() as client,
        ):

            async def observed(number: int) -> Step:
                exporter = _Exporter(client, sink, {})
                feed = following(
                    f"bench-{number}",
                    exporter,
                    database_url=stack.database_url,
                    threads=PostgresThreads(pool),
                    every=EVERY_SECONDS,
                )
                async with feed:
                    return await run_steps(on, "on", f"on-{number}", steps, exporter)

            for number in range(-1, rounds):
                gc.freeze()  # as `worker.py` does, so that no run pays for what those before it have left
                if number % 2:
                    with_it, without = await observed(number), await run_steps(off, "off", f"off-{number}", steps, None)
                else:
                    without, with_it = await run_steps(off, "off", f"off-{number}", steps, None), await observed(number)
                if number >= 0:  # the first pair warms up
                    pairs.append((with_it, without))
    return pairs


async def export(stack: Stack, sink: str) -> tuple[float, float]:
    """Return the seconds, and those of CPU time, in which a recorded run of many steps is exported."""
    lines = list(many_steps("long", EXPORTED))
    async with open_pool(stack.database_url, size=2) as pool, httpx2.AsyncClient() as client:
        threads = PostgresThreads(pool)
        async with reading_feed(stack.database_url, "bench-export") as feed:
            assert feed is not None
            for at in range(0, len(lines), 2_000):
                await threads.append("long", at, lines[at : at + 2_000])
            began, cpu = time.perf_counter(), time.process_time()
            while await look(feed, TraceExporter(client, sink, {}), threads):
                pass
            return time.perf_counter() - began, time.process_time() - cpu


async def measure(stack: Stack, home: Path, *, steps: int, rounds: int) -> bool:
    """Measure everything, print and write it; return whether the limits are met."""
    await migrate(stack.database_url)
    await ensure_search_attributes(await connect_stack(stack))
    with collector() as sink:
        pairs = await compare(stack, home, sink, steps=steps, rounds=rounds)
        took, cpu = await export(stack, sink)
    costs = [on.cpu_ms / off.cpu_ms for on, off in pairs]
    slower = [on.ms / off.ms for on, off in pairs]
    met = median(costs) <= COST and median(slower) <= COST and took <= EXPORT_SECONDS
    lines = [
        "## Telemetry",
        "",
        f"`python -m bench.telemetry --steps {steps} --rounds {rounds}`: a run with traces, metrics and their export, "
        "and the same run without any, alternating on two workers of one process.",
        "",
        f"- CPU time of a step with telemetry: {_spread(costs)} × that of one without "
        f"({median(off.cpu_ms for _, off in pairs):.2f} ms); {_verdict(median(costs), COST)}",
        f"- time of a step with telemetry: {_spread(slower)} × that of one without "
        f"({median(off.ms for _, off in pairs):.2f} ms); {_verdict(median(slower), COST)}",
        f"- {EXPORTED:,} steps are exported in {took:.1f} s, with {cpu:.1f} s of CPU time; "
        f"{_verdict(took, EXPORT_SECONDS)}",
        "",
        "Ratios are medians of the rounds, with their quartiles.",
    ]
    print("\n".join(lines))
    document.write("telemetry", "\n".join(lines))
    return met


def _spread(ratios: Sequence[float]) -> str:
    """Return the median of some ratios, and their quartiles."""
    low, _, high = quantiles(ratios, n=4, method="inclusive")
    return f"{median(ratios):.3f} ({low:.3f} to {high:.3f})"


def _verdict(measured: float, limit: float) -> str:
    return f"limit {limit:g}: {'met' if measured <= limit else 'missed'}"


def main(
    steps: Annotated[int, typer.Option(min=5, help="Steps of each run.")] = 300,
    rounds: Annotated[int, typer.Option(min=2, help="Pairs of runs.")] = 7,
) -> None:
    """Measure on a separate embedded stack. Exits with 1 if a limit is missed."""
    with open_stack() as (stack, home):
        met = uvloop.run(measure(stack, home, steps=steps, rounds=rounds))
    leave(not met)


if __name__ == "__main__":
    typer.run(main)
