"""`python -m bench.workers`: steps a second of 1, 2, 4 and 8 worker processes on one embedded stack.

Each number of workers is measured with the SDK's default pollers (five a kind) and with pollers that scale with what
the server reports, from one to five. Rounds alternate, because other load of the machine changes: trust ratios.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import openai
import typer
import uvloop
from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling

from bench import document
from bench.environment import leave, open_stack
from bench.streams import CATALOG, serve
from bench.telemetry import script
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.endpoints.http_client import http_client
from holdfast.hosting.assembly import build_worker
from holdfast.storage.pool import migrate, open_pool
from holdfast.worker.construction import running

POLLERS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "scaling": {
        "workflow_task_poller_behavior": PollerBehaviorAutoscaling(minimum=1, maximum=5, initial=2),
        "activity_task_poller_behavior": PollerBehaviorAutoscaling(minimum=1, maximum=5, initial=2),
    },
}

LEAST = 1.0
"""The limit: steps a second of the most workers relative to those of half as many."""


async def _serve(stack: Stack, home: Path, url: str, queue: str, pollers: str, ends: Any) -> None:
    client = await connect_stack(stack)
    async with AsyncExitStack() as opened:
        pool = await opened.enter_async_context(open_pool(stack.database_url, size=4))
        endpoint = openai.AsyncOpenAI(api_key="bench", base_url=url, max_retries=0, http_client=http_client(url))
        worker = build_worker(
            client,
            task_queue=queue,
            catalog=CATALOG,
            llm=await opened.enter_async_context(endpoint),
            default_llm="bench",
            pool=pool,
            database_url=stack.database_url,
            workspaces=home / "workspaces",
            **POLLERS[pollers],
        )
        async with running(worker):
            ends.send("ready")
            await asyncio.to_thread(ends.recv)


def _work(*arguments: Any) -> None:
    uvloop.run(_serve(*arguments))


@contextmanager
def workers(number: int, *arguments: Any) -> Iterator[None]:
    """Run so many worker processes for a block."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(number)]
    processes = [context.Process(target=_work, args=(*arguments, theirs), daemon=True) for _, theirs in pipes]
    with ExitStack() as block:
        for process in processes:
            process.start()
            block.callback(process.join, 30)
            block.callback(process.kill)
        for ours, _ in pipes:
            assert ours.recv() == "ready"
        yield


async def rate(client: Client, queue: str, *, runs: int, steps: int) -> float:
    """Return the steps a second of so many runs at once."""
    at = time.perf_counter()
    started = [
        await client.start_workflow(WORKFLOW, RunInput(task=f"steps={steps}"), id=f"{queue}-{n}", task_queue=queue)
        for n in range(runs)
    ]
    await asyncio.gather(*(each.result() for each in started))
    return runs * steps / (time.perf_counter() - at)


async def measure(
    stack: Stack, home: Path, numbers: Sequence[int], *, runs: int, steps: int, rounds: int
) -> dict[tuple[str, int], list[float]]:
    """Return the steps a second of each round, by pollers and number of workers."""
    await migrate(stack.database_url)
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    found: dict[tuple[str, int], list[float]] = {}
    with serve(script) as url:
        for at in range(rounds):
            for number in numbers if at % 2 else reversed(numbers):
                for pollers in POLLERS:
                    queue = f"{pollers}-{number}-{at}"
                    with workers(number, stack, home, url, queue, pollers):
                        found.setdefault((pollers, number), []).append(
                            await rate(client, queue, runs=runs, steps=steps)
                        )
    return found


def main(
    numbers: Annotated[str, typer.Option(help="Numbers of workers, ascending, separated by commas.")] = "1,2,4,8",
    runs: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 32,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; each measures everything once.")] = 3,
) -> None:
    """Measure on a separate embedded stack. Exits with 1 if the most workers do less than half as many."""
    counts = [int(each) for each in numbers.split(",")]
    with open_stack() as (stack, home):
        found = uvloop.run(measure(stack, home, counts, runs=runs, steps=steps, rounds=rounds))
    lines = [
        "## Workers and the embedded server",
        "",
        f"`python -m bench.workers --numbers {numbers} --runs {runs} --steps {steps} --rounds {rounds}`: steps a "
        "second, the median of the rounds; the ratio compares the same rounds.",
        "",
        "| pollers | " + " | ".join(f"{number}" for number in counts) + " | most ÷ the number before |",
        "|---|" + "--:|" * (len(counts) + 1),
    ]
    ratios = {}
    for pollers in POLLERS:
        rates = [found[pollers, number] for number in counts]
        ratios[pollers] = median(most / less for most, less in zip(rates[-1], rates[-2:][0], strict=True))
        cells = " | ".join(f"{median(each):.0f}" for each in rates)
        lines.append(f"| {pollers} | {cells} | {ratios[pollers]:.2f} |")
    print("\n".join(lines))
    document.write("workers", "\n".join(lines))
    leave(max(ratios.values()) < LEAST)


if __name__ == "__main__":
    typer.run(main)
