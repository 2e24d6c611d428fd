"""`python -m bench.kills`: workers killed again and again, at random, while all their runs are under way.

One kill of four hits a random moment, one any recorded boundary (`holdfast.testing.kill_matrix.matrix`), one a tool in
mid-effect, one a request or a decision. At the end, what the logs say is held against an HTTP server that counts, a
file that grows and a PostgreSQL table.
"""

import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench import document
from bench.lane import Figures, Lane
from bench.stage import open_stack
from holdfast.log.events import AgentEvent, DecisionReceived, RunFinished, ToolCallFinished
from holdfast.runtime.client.connect import connect_stack, ensure_search_attributes
from holdfast.runtime.config.stack_file import Stack
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say, together
from holdfast.testing.kill_matrix.audit import audit
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.integration.outside import Api, Outside

ROOT = Path(__file__).resolve().parents[1]
TURNS = (("charge", "look"), ("mail",), ("transfer",), ("ship",), ("charge", "mail", "transfer", "ship"))
"""What the LLM asks for, again and again, until all kills are spent."""
ABOUT = (
    "A kill is a SIGKILL of a worker's process, with all its runs open: a quarter each at any moment, at any recorded "
    "boundary, in mid-effect, at a request or a decision. The runs ask for effects of all classes until the kills are "
    "spent. Then each call in each log is held against an HTTP server that counts, a file that grows and a PostgreSQL "
    "table: what the log says was done is there, once, and every decision that was sent is in the log."
)
PATIENCE = 900.0
"""Seconds for all runs to end after the last kill."""


@dataclass
class Result:
    """What came of it."""

    kills: int
    runs: int
    workers: int
    seconds: float
    wrong: list[str]
    """What is not as it should be: effects twice or lost, decisions lost, runs that did not complete."""
    lines: list[str]


async def measure(
    stack: Stack, home: Path, outside: Outside, *, kills: int, runs: int, workers: int, seed: int
) -> Result:
    """Kill, and look what is left."""
    began = time.monotonic()
    spent = False

    def script(conversation: Conversation) -> Reply:
        if spent:
            return say("served")
        order = str(conversation.replies)
        return together(*(call(name, order=order) for name in TURNS[conversation.replies % len(TURNS)]))

    figures, doomed = Figures(), []
    with ScriptedLLM(script) as llm:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        try:
            lanes = []
            for number in range(workers):
                doomed.append(worker := doomed_worker(f"lane-{number}", stack, home, llm, outside))
                await asyncio.to_thread(worker.start)
                chance = random.Random(seed + number)
                lanes.append(Lane(f"lane-{number}", client, worker, outside, chance=chance, figures=figures))
            await asyncio.gather(*(lane.start(runs // workers) for lane in lanes))
            telling = asyncio.create_task(_tell(doomed))
            await asyncio.gather(*(lane.kill(kills // workers) for lane in lanes))
            spent = True
            with suppress(TimeoutError):  # what has not ended by then, is told below
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(lane.end() for lane in lanes))
            telling.cancel()
        finally:
            await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in doomed))
    made = sum(worker.kills for worker in doomed)
    wrong, lines = judge(lanes, outside), tell(lanes, outside, figures)
    return Result(made, sum(len(lane.logs) for lane in lanes), workers, time.monotonic() - began, wrong, lines)


def doomed_worker(queue: str, stack: Stack, home: Path, llm: ScriptedLLM, outside: Outside) -> KillableWorker:
    """A worker on a task queue of its own."""
    environ = {
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_CATALOG": "tests.integration.outside:catalog",
        "HOLDFAST_TASK_QUEUE": queue,
        "OPENAI_BASE_URL": llm.base_url,
        "DATABASE_URL": stack.database_url,
    }
    return KillableWorker(home / queue, worker=ROOT / "worker.py", environ=environ | outside.environ)


def judge(lanes: Sequence[Lane], outside: Outside) -> list[str]:
    """What is wrong, a sentence each."""
    effects, wrong, keys = outside.effects(), [], set()
    for lane in lanes:
        for log in lane.logs:
            sent = lane.people[log.thread].sent
            wrong += [f"{log.thread}: {what}" for what in audit(log.events, effects=effects, sent=sent)]
            keys |= set(log.keys.values())
    return wrong + [f"effect {key} is of no call of any run" for key in effects if key not in keys]


async def _tell(doomed: list[KillableWorker]) -> None:
    """Say now and then how far it is."""
    while True:
        await asyncio.sleep(30)
        print(f"{sum(worker.kills for worker in doomed)} kills …", file=sys.stderr, flush=True)


def tell(lanes: Sequence[Lane], outside: Outside, figures: Figures) -> list[str]:
    """What was counted, a sentence each."""
    effects, logs = outside.effects(), [log for lane in lanes for log in lane.logs]
    sent = sum(len(person.sent) for lane in lanes for person in lane.people.values())
    events: list[AgentEvent] = [event for log in logs for event in log.events]
    kinds = Counter(event.type for event in events)
    finished = [event for event in events if isinstance(event, ToolCallFinished)]
    accepted = sum(isinstance(event, DecisionReceived) and event.outcome == "accepted" for event in events)
    completed = sum(isinstance(event, RunFinished) and event.outcome == "completed" for event in events)
    twice = sum(count > 1 for count in effects.values())
    return [
        f"- {completed} of {len(logs)} runs completed, over {sum(log.moves for log in logs) + len(logs)} Temporal runs;"
        f" {len(events):,} events",
        f"- {len(effects):,} effects in the outside world, {twice} of them more than once; the API that knows keys was"
        f" sent {outside.api.requests - sum(outside.api.transfers.values()):,} requests for"
        f" {len(outside.api.charges):,} charges",
        f"- {sum(event.adopted for event in finished):,} results were adopted from an earlier attempt or a person's"
        f" answer; {kinds['reconcile_requested']:,} times a person was asked whether an effect had happened",
        f"- {sent:,} decisions were sent ({figures.frozen:,} to a worker that was frozen, and then killed;"
        f" {figures.updates:,} as updates that were answered), {accepted:,} are in the logs",
        "- where the kills fell: " + ", ".join(f"{what} {count}" for what, count in figures.boundaries.most_common()),
    ]


def main(
    kills: Annotated[int, typer.Option(min=1)] = 500,
    runs: Annotated[int, typer.Option(min=1)] = 50,
    workers: Annotated[int, typer.Option(min=1, help="Side by side, each with its share of the runs.")] = 5,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Put the figures into RESULTS.md.")] = True,
) -> None:
    """Kill so often, on an embedded stack of its own."""
    with open_stack() as (stack, home), Api() as api:
        outside = Outside(api, home / "outbox")
        outside.prepare(stack.database_url)
        result = asyncio.run(measure(stack, home, outside, kills=kills, runs=runs, workers=workers, seed=seed))
    summary = (
        f"- {result.kills} SIGKILLs of {result.workers} workers, {result.runs // result.workers} runs under way on each"
        f" ({result.kills // result.workers} kills a run), in {result.seconds / 60:.0f} min:"
        f" **{len(result.wrong)} duplicates, lost effects, lost decisions or stuck runs**"
    )
    told = [summary, *result.lines, *(f"- WRONG: {what}" for what in result.wrong)]
    print("\n".join(told))
    if write:
        about = f"`python -m bench.kills --kills {kills} --runs {runs} --workers {workers} --seed {seed}`. {ABOUT}"
        document.write("kills", "\n".join(["## Kills", "", about, "", *told]))
    sys.stdout.flush()
    os._exit(bool(result.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
