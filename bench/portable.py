"""`python -m bench.portable`: export and verify a run of 10,000 steps as a file, compared with the run itself.

The run is real, on a separate embedded stack with an LLM that answers at once; a real LLM would take far longer. The
benchmark prints the memory that the export needs, and the durations of run, export and verification.
"""

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import psutil
import typer
import uvloop

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, tool
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.portable.export import export_thread
from holdfast.portable.verify import verify_file
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads

THREAD = "portable"
KEY = encode_key(b"bench" * 6 + b"xx")
SECONDS, AHEAD, GROWTH = 5.0, 100, 50.0
"""Limits: the most seconds of a verification, its least speed as a multiple of the run's, the most MB of an export."""


@dataclass(frozen=True)
class Times:
    """Durations in seconds, and the growth of the process in MB."""

    run: float
    export: float
    growth: float
    verify: float
    verify_cpu: float
    """CPU seconds."""


async def measure(stack: Stack, home: Path, url: str, steps: int) -> None:
    """Run the agent, export the run, verify the file, and write the figures to RESULTS.md."""
    text, path = observation(), home / "run.holdfast"

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        return text

    limits = Limits(max_steps=2 * steps, repeats_slowed=0, repeats_warned=0, repeats_asked=0)
    catalog = Catalog(
        agents=[Agent(name="bench", instructions="Call observe until you are done.", limits=limits, tools=[observe])]
    )
    async with (
        serving(stack, home, url, catalog, queue=THREAD) as (client, _, _),
        open_pool(stack.database_url, size=2) as pool,
    ):
        began = time.perf_counter()
        await client.execute_workflow(
            WORKFLOW, RunInput(task=f"steps={steps}"), id=THREAD, task_queue=THREAD, result_type=RunResult
        )
        run_seconds = time.perf_counter() - began
        record = PostgresThreads(pool)
        evidence = Evidence(partial(effects_of, pool), record.asides, PostgresArtifacts(pool))
        process, peak = psutil.Process(), 0
        before = process.memory_info().rss

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, process.memory_info().rss)
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        exported = await export_thread(Threads(client, record=record), THREAD, path, evidence=evidence, private=KEY)
        export_seconds = time.perf_counter() - began
        watching.cancel()
    began, used = time.perf_counter(), time.process_time()
    verification = await verify_file(path, signer=public_key(KEY))
    verify_seconds, cpu = time.perf_counter() - began, time.process_time() - used
    times = Times(run_seconds, export_seconds, (peak - before) / 1e6, verify_seconds, cpu)
    assert verification.ok, verification.reason
    lines = [
        f"- {steps:,} steps: {exported.events:,} events, {exported.bytes / 1e6:.0f} MB; the run took {times.run:.0f} s",
        f"- export: {times.export:.1f} s; the process grew by {times.growth:.0f} MB (at most {GROWTH:.0f})",
        f"- verify: {times.verify:.1f} s (at most {SECONDS:.0f} for 10,000 steps), "
        f"{times.verify_cpu:.1f} s of CPU time, "
        f"{times.run / times.verify:.0f} × as fast as the run (at least {AHEAD} ×)",
    ]
    print("\n".join(lines))
    about = "`python -m bench.portable`: a long run as one file, exported, and verified without a server."
    document.write("portable", "\n".join(["## A run as one file", "", about, "", *lines]))


def main(steps: Annotated[int, typer.Option(min=100)] = 10_000) -> None:
    """Run one agent for that many steps on a separate embedded stack, export the run and verify the file."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, steps))
    leave()


if __name__ == "__main__":
    typer.run(main)
