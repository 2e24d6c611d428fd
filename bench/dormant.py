"""`python -m bench.dormant`: ten thousand runs that sleep until an event arrives, and one event that wakes some.

It prints the memory of a sleeping run that the worker has evicted from its cache, the time for an event to wake a
thousand runs, and the time until they have called the LLM once more and ended. Each of them must wake once, and no
other run may wake.
"""

import asyncio
import gc
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import psutil
import typer
import uvloop
from temporalio.client import Client

from bench import document
from bench.environment import leave, open_stack, serving
from bench.llm import serve_llm
from holdfast import Agent, Catalog
from holdfast.client.publishing import publish
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput

QUEUE = "dormant"
AT_ONCE = 50
EVENT, OTHER = "deploy.finished", "never"
SLEEPING = "ExecutionStatus = 'Running' AND HoldfastStatus = 'dormant'"
POLL_SECONDS = 0.5
"""Seconds between polls: counting ten thousand runs costs the server a noticeable part of a core."""
WITHIN = 30.0
"""Seconds within which an event should have woken all runs that wait for it."""


async def start(client: Client, numbers: range, *, event: str) -> None:
    """Start runs that wait for an event, and wait until they sleep.

    Two groups start at a time: with more, tasks would wait longer than the time-out of the sticky queue.
    """
    before = await count(client, SLEEPING)
    task = RunInput(task=f"steps=0 then=wait_for_event event={event}")
    for done in range(0, len(numbers), AT_ONCE):
        ids = [f"{QUEUE}-{event}-{number}" for number in numbers[done : done + AT_ONCE]]
        await asyncio.gather(*(client.start_workflow(WORKFLOW, task, id=each, task_queue=QUEUE) for each in ids))
        await wait_for_count(client, SLEEPING, before + done)
    await wait_for_count(client, SLEEPING, before + len(numbers))


async def count(client: Client, condition: str) -> int:
    """Return the number of runs that a visibility query finds."""
    return (await client.count_workflows(f"TaskQueue = '{QUEUE}' AND {condition}")).count


async def wait_for_count(client: Client, condition: str, expected: int) -> None:
    """Wait until a visibility query finds that many runs."""
    while await count(client, condition) < expected:  # noqa: ASYNC110  # the server has the count
        await asyncio.sleep(POLL_SECONDS)


async def measure(stack: Stack, home: Path, url: str, runs: int, woken: int) -> None:
    """Start the runs, publish the event, and count the runs that woke."""
    catalog = Catalog(agents=[Agent(name="bench", instructions="Wait.", dormancy=True)])
    process = psutil.Process()
    async with serving(stack, home, url, catalog, queue=QUEUE, connections=8) as (client, worker, _):
        cached = int(worker.config()["max_cached_workflows"])
        await start(client, range(cached), event=OTHER)  # fills the cache: from now on, each run evicts another one
        gc.collect()
        before, began = process.memory_info().rss, time.perf_counter()
        await start(client, range(woken), event=EVENT)
        await start(client, range(cached, runs - woken), event=OTHER)
        gc.collect()
        held = (process.memory_info().rss - before) / max(runs - cached, 1)
        asleep = (runs - cached) / (time.perf_counter() - began)
        threads = Threads(client, task_queue=QUEUE)
        sent = datetime.now(UTC)
        published = await publish(threads, EVENT, by="bench", id="one")
        done = f"ExecutionStatus = 'Completed' AND WorkflowId STARTS_WITH '{QUEUE}-{EVENT}-'"
        await wait_for_count(client, done, woken)
        again = await publish(threads, EVENT, by="bench", id="one")
        wakes, last_wake, last_end = Counter[str](), sent, sent
        for thread in (f"{QUEUE}-{EVENT}-{number}" for number in range(woken)):
            async for event in threads.events(thread):
                at = datetime.fromisoformat(event["at"])
                if event["type"] == "wake_received":
                    wakes[thread] += 1
                    last_wake = max(last_wake, at)
                last_end = max(last_end, at)
        still = await count(client, SLEEPING)
    wrong = (
        sum(wakes[f"{QUEUE}-{EVENT}-{number}"] != 1 for number in range(woken))
        + len(again.sent)
        + abs(still - (runs - woken))
    )
    lines = [
        f"- {runs:,} runs sleep; the worker keeps {cached:,} in memory, and {held / 1e3:.1f} KB of each further one"
        f" ({asleep:.0f} runs a second fall asleep)",
        f"- one event wakes {len(published.sent):,} of them: all are awake after {seconds(last_wake - sent)} (at most"
        f" {WITHIN:g} s), and have called the LLM and ended after {seconds(last_end - sent)}",
        f"- {wrong} woken twice, not at all, or by mistake",
    ]
    print("\n".join(lines))
    about = "One worker, `python -m bench.dormant`; each run waits for an event of one of two names."
    document.write("dormant", "\n".join(["## Runs that sleep", "", about, "", *lines]))


def seconds(duration: timedelta) -> str:
    """Return a duration in seconds as text."""
    return f"{duration.total_seconds():.1f} s"


def main(
    runs: Annotated[int, typer.Option(min=100)] = 10_000, woken: Annotated[int, typer.Option(min=1)] = 1_000
) -> None:
    """Start that many runs on a separate embedded stack, and wake some of them."""
    with open_stack() as (stack, home), serve_llm() as url:
        uvloop.run(measure(stack, home, url, runs, woken))
    leave()


if __name__ == "__main__":
    typer.run(main)
