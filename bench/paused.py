"""`python -m bench.paused`: hundreds of runs that wait for an approval, on one worker.

It prints the worker's memory per waiting run, and the time to approve one while the others wait.
"""

import asyncio
import gc
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import psutil
import typer
import uvloop
from temporalio.client import Client, WorkflowHandle

from bench import document
from bench.environment import leave, observation, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog, Policy, allow, ask, tool
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput

QUEUE = "paused"
STEPS = 10
"""Steps before the approval request: 20 messages and the task."""
AT_ONCE = 20


@tool(effect="read")
async def observe(n: int) -> str:
    """Look at something."""
    return OBSERVATION


@tool(effect="idempotent")
async def pay(n: int) -> str:
    """Pay."""
    return "paid"


OBSERVATION = observation()


async def start(client: Client, numbers: range) -> list[WorkflowHandle[Any, Any]]:
    """Start runs, and wait until all of them wait for an approval."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> WorkflowHandle[Any, Any]:
        async with limit:
            task = RunInput(task=f"steps={STEPS} then=pay")
            run = await client.start_workflow(WORKFLOW, task, id=f"{QUEUE}-{number}", task_queue=QUEUE)
            while (await run.query("state"))["status"] != "waiting_approval":  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            return run

    return list(await asyncio.gather(*map(one, numbers)))


async def measure(stack: Stack, home: Path, url: str, count: int) -> None:
    """Start the runs, and approve each."""
    agent = Agent(name="bench", instructions="Go on.", policy=Policy(rules=(ask("pay"), allow())), tools=[observe, pay])
    process = psutil.Process()
    catalog = Catalog(agents=[agent])
    async with serving(stack, home, url, catalog, queue=QUEUE, connections=8) as (client, _, _):
        await start(client, range(50))  # warms up imports, connections and the allocator
        gc.collect()
        before = process.memory_info().rss
        runs = await start(client, range(50, 50 + count))
        gc.collect()
        held = (process.memory_info().rss - before) / count
        lines = [f"- {count} waiting runs with {2 * STEPS} messages each: {held / 1e3:.0f} KB each (at most 200 KB)"]
        answers, ends = [], []
        for run in runs:
            began = time.perf_counter()
            await run.execute_update("decide", {"decision": "approve", "request": "1", "by": "bench"})
            answers.append(time.perf_counter() - began)
            await run.result()
            ends.append(time.perf_counter() - began)
        for what, times in (("the outcome", answers), ("the end of the run", ends)):
            p99 = quantiles(times, n=100)[98]
            lines.append(f"- from approval to {what}: median {median(times) * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
    print("\n".join(lines))
    about = "One worker, `python -m bench.paused`; each run is approved while the others wait."
    document.write("paused", "\n".join(["## Runs that wait for an approval", "", about, "", *lines]))


def main(runs: Annotated[int, typer.Option(min=100)] = 500) -> None:
    """Start that many runs on a separate embedded stack, and approve each."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, runs))
    leave()


if __name__ == "__main__":
    typer.run(main)
