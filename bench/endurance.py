"""`python -m bench.endurance`: one very long run, with context compactions and continue-as-new.

It prints the duration and the worker's memory for each thousand steps, and finally the size of the stored data.
"""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import psutil
import psycopg
import typer
import uvloop
from temporalio.client import Client

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Limits, tool
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult

QUEUE = "endurance"
EVERY = 1_000
"""Steps between two samples."""


@dataclass(frozen=True)
class Sample:
    """A measurement at one step."""

    step: int
    seconds: float
    """Seconds since the run began."""
    megabytes: float
    """Resident memory of the worker's process."""


async def endure(stack: Stack, home: Path, url: str, steps: int) -> None:
    """Run the agent, print the figures, and write them to RESULTS.md."""
    text, process, samples = observation(), psutil.Process(), list[Sample]()
    began = time.perf_counter()

    @tool(effect="read")
    async def observe(n: int) -> str:
        """Look at something."""
        if n % EVERY == 0 or n == 1:
            sample = Sample(n, time.perf_counter() - began, process.memory_info().rss / 1e6)
            samples.append(sample)
            print(f"step {sample.step:>6}  {sample.seconds:8.1f} s  {sample.megabytes:6.0f} MB", flush=True)
        return text

    agent = Agent(
        name="bench",
        instructions="Call observe until you are done.",
        limits=Limits(max_steps=2 * steps),
        tools=[observe],
    )
    catalog = Catalog(agents=[agent])
    async with serving(stack, home, url, catalog, queue=QUEUE) as (client, _, _):
        run = await client.start_workflow(
            WORKFLOW, RunInput(task=f"steps={steps}"), id=QUEUE, task_queue=QUEUE, result_type=RunResult
        )
        result = await run.result()
        async with await psycopg.AsyncConnection.connect(stack.database_url) as connection:
            rows = await connection.execute(
                "SELECT sum(pg_total_relation_size(c)) FROM (VALUES ('holdfast.events'::regclass), "
                "('holdfast.threads'::regclass)) t(c)"
            )
            row = await rows.fetchone()
            kinds = await connection.execute("SELECT sum(stop - position) FROM holdfast.events")
            events = await kinds.fetchone()
    history, runs = await _history(client)
    assert row is not None
    assert events is not None
    spans = [(later.step, later.seconds - earlier.seconds) for earlier, later in pairwise(samples)]
    transcript = result.steps * (len(text) + 250)
    record = int(row[0])
    first, last = samples[1], samples[-1]
    lines = [
        f"- {result.steps:,} LLM calls in {last.seconds:.0f} s, over {runs} Temporal runs; {events[0]:,} events",
        f"- the last thousand steps took {spans[-1][1] / spans[0][1]:.2f} × as long as the first (at most 1.20 ×)",
        f"- the worker held {first.megabytes:.0f} MB after the first thousand, {last.megabytes:.0f} MB at the end",
        f"- history {history / result.steps:,.0f} bytes a step, permanent record {record / result.steps:,.0f}",
        f"- stored in total: {(history + record) / transcript:.2f} × the transcript's own bytes (at most 3 ×)",
    ]
    table = ["| thousand | seconds | MB |", "|--:|--:|--:|"]
    for (step, duration), sample in zip(spans, samples[1:], strict=True):
        table.append(f"| {step // EVERY} | {duration:.1f} | {sample.megabytes:.0f} |")
    about = (
        "`python -m bench.endurance`: one run with context compactions and continue-as-new. The process includes the "
        "driver."
    )
    print("\n".join(lines))
    document.write("endurance", "\n".join(["## A long run", "", about, "", *lines, "", *table]))


async def _history(client: Client) -> tuple[int, int]:
    """Return the bytes of all Temporal runs of the thread, and the number of these runs."""
    size = runs = 0
    while True:
        listed = [run async for run in client.list_workflows(f"WorkflowId = '{QUEUE}'")]
        if listed and all(run.close_time for run in listed):  # visibility lags slightly
            break
        await asyncio.sleep(0.2)
    for run in listed:
        described = await client.get_workflow_handle(QUEUE, run_id=run.run_id).describe()
        size += described.raw_description.workflow_execution_info.history_size_bytes
        runs += 1
    return size, runs


def main(steps: Annotated[int, typer.Option(min=2_000)] = 10_000) -> None:
    """Run one agent for that many steps on a separate embedded stack."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(endure(stack, home, url, steps))
    leave()


if __name__ == "__main__":
    typer.run(main)
