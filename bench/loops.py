"""`python -m bench.loops`: kill the worker of several loops at random moments until all loops are done.

Then it compares the files, the git history and the event logs of each loop (`tests/support/looped.py`).
"""

import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import WorkflowHandle

from bench import document
from bench.environment import open_stack
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.start_options import issued
from holdfast.config.stack_file import Stack
from holdfast.core.loop.state import LoopInput, LoopLimits
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.looped import judge, prepare, script

ABOUT = (
    "Loops complete their tasks, of four steps and two commits each, while their worker is killed (SIGKILL) at random "
    "moments. At the end, each task must be done once and in order, and TASKS.md, progress.txt, the git history and "
    "the event logs must agree on that, call by call and commit by commit."
)
LONGEST_LIFE = 6.0
"""The longest time in seconds between two kills."""


async def measure(stack: Stack, home: Path, *, kills: int, loops: int, tasks: int, seed: int) -> tuple[int, list[str]]:
    """Kill that many times, or until all loops are done; return the number of kills, and the problems."""
    chance = random.Random(seed)
    with ScriptedLLM(script) as llm:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        worker = KillableWorker(
            home / "doomed",
            environ={
                "HOLDFAST_HOME": str(home),
                "HOLDFAST_CATALOG": "tests.support.looped:catalog",
                "HOLDFAST_TASK_QUEUE": "loops",
                "OPENAI_BASE_URL": llm.base_url,
                "DATABASE_URL": stack.database_url,
            },
        )
        await asyncio.to_thread(worker.start)
        try:
            handles: list[WorkflowHandle[None, None]] = []
            for number in range(loops):
                workspace = home / f"loop-{number}"
                prepare(workspace, tasks)
                loop_input = LoopInput(workspace=str(workspace), limits=LoopLimits(iterations=10 * tasks))
                start = client.start_workflow(LOOP_WORKFLOW, issued(loop_input), id=workspace.name, task_queue="loops")
                handles.append(await start)
            ended = asyncio.gather(*(handle.result() for handle in handles))
            while worker.kills < kills and not ended.done():
                await asyncio.wait({ended}, timeout=chance.uniform(0.1, LONGEST_LIFE))
                if not ended.done():
                    worker.kill()
            await ended
            async with open_pool(stack.database_url, size=2) as pool:
                record = PostgresThreads(pool)
                faults = [await judge(client, record, handle.id, home / handle.id, tasks) for handle in handles]
            wrong = [fault for of_loop in faults for fault in of_loop]
        finally:
            await asyncio.to_thread(worker.stop)
    return worker.kills, wrong


def main(
    kills: Annotated[int, typer.Option(min=1)] = 50,
    loops: Annotated[int, typer.Option(min=1, help="Concurrent loops on one worker.")] = 4,
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each loop.")] = 40,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill the worker that many times, on a separate embedded stack."""
    began = time.monotonic()
    with open_stack() as (stack, home):
        made, wrong = asyncio.run(measure(stack, home, kills=kills, loops=loops, tasks=tasks, seed=seed))
    minutes = (time.monotonic() - began) / 60
    summary = (
        f"- {made} SIGKILLs of the worker of {loops} loops with {tasks} tasks each, in {minutes:.0f} min: "
        f"**{len(wrong)} tasks done twice, skipped or recorded inconsistently**"
    )
    lines = [summary, *(f"- WRONG: {what}" for what in wrong)]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.loops --kills {kills} --loops {loops} --tasks {tasks} --seed {seed}`. {ABOUT}"
        document.write("loops", "\n".join(["## Loops whose worker is killed", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
