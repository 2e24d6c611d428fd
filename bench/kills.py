"""`python -m bench.kills`: kills workers at random, repeatedly, while all their runs are active.

A fifth of the kills each hits a random moment, a recorded boundary (`holdfast.testing.kill_matrix.matrix`), an effect
in progress, a request or decision, and a pause, sleep, event or refinement. Finally, the logs are compared with the
messages sent, an HTTP server that counts, a file that grows and a PostgreSQL table.
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
from bench.environment import open_stack
from bench.scenario import PUBLISHED, Figures, Scenario
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import AgentEvent, DecisionReceived, RunFinished, ToolCallFinished, WakeReceived
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say, together
from holdfast.testing.kill_matrix.audit import audit
from holdfast.testing.kill_matrix.audit_interventions import audit_sent
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.outside import LATE, Api, Outside

TURNS: tuple[tuple[str | tuple[str, str], ...], ...] = (
    ("charge", "look"),
    ("mail", ("wait_for_event", "paid")),
    ("transfer",),
    (("sleep_until", "2h"),),
    ("ship", ("sleep_until", "1s")),
    (("wait_for_event", "paid"), ("wait_for_event", PUBLISHED)),
    ("charge", "mail", "transfer", "ship"),
)
"""The tools that the LLM calls, repeatedly, until all kills are done. A pair has the argument of `sleep_until` or the
event name of `wait_for_event`."""
ABOUT = (
    "A kill is a SIGKILL of a worker's process with all its runs open: a fifth each at a random moment, a recorded "
    "boundary, during an effect, at a request or a decision, at a pause, sleep, event or refinement. The runs ask for "
    "effects of all classes and sleep until the kills are done; meanwhile they are paused, resumed and refined, and "
    "events are sent and published to them, some before they wait and some twice. One request of ten "
    "has its effect 1 to 4 s later, even if the worker that sent it has died. Then each call in each log is "
    "compared with an HTTP server that counts, a file that grows and a PostgreSQL table: every effect in the log "
    "happened exactly once; every decision, event and refinement that was sent is in the log, no id twice; every wait "
    "ended once; nothing started during a pause."
)
PATIENCE = 900.0
"""Seconds for all runs to end after the last kill."""


@dataclass
class Result:
    """The outcome of all kills."""

    kills: int
    runs: int
    workers: int
    seconds: float
    wrong: list[str]
    """Problems: duplicate or lost effects, lost decisions, runs that did not complete, and so on."""
    lines: list[str]


async def measure(
    stack: Stack, home: Path, outside: Outside, *, kills: int, runs: int, workers: int, seed: int
) -> Result:
    """Kill the workers, then check effects, decisions and runs."""
    began = time.monotonic()
    over = False

    def script(conversation: Conversation) -> Reply:
        if over:
            return say("served")
        order = str(conversation.replies)
        return together(*(_call(each, order) for each in TURNS[conversation.replies % len(TURNS)]))

    figures, doomed = Figures(), []
    with ScriptedLLM(script) as llm:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        try:
            scenarios = []
            for number in range(workers):
                doomed.append(worker := doomed_worker(f"scenario-{number}", stack, home, llm, outside))
                await asyncio.to_thread(worker.start)
                chance = random.Random(seed + number)
                scenarios.append(
                    Scenario(f"scenario-{number}", client, worker, outside, chance=chance, figures=figures)
                )
            await asyncio.gather(*(scenario.start(runs // workers) for scenario in scenarios))
            reporting = asyncio.create_task(_report_progress(doomed))
            await asyncio.gather(*(scenario.kill(kills // workers) for scenario in scenarios))
            over = True
            with suppress(TimeoutError):  # runs that have not ended by then are reported below
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(scenario.end() for scenario in scenarios))
            reporting.cancel()
        finally:
            await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in doomed))
    killed = sum(worker.kills for worker in doomed)
    wrong, lines = judge(scenarios, outside), summarize(scenarios, outside, figures)
    return Result(
        killed, sum(len(scenario.logs) for scenario in scenarios), workers, time.monotonic() - began, wrong, lines
    )


def _call(entry: str | tuple[str, str], order: str) -> Reply:
    if isinstance(entry, str):
        return call(entry, order=order)
    tool, argument = entry
    return call(tool, **{"until" if tool == "sleep_until" else "name": argument})


def doomed_worker(queue: str, stack: Stack, home: Path, llm: ScriptedLLM, outside: Outside) -> KillableWorker:
    """Return a worker with its own task queue."""
    environ = {
        "HOLDFAST_HOME": str(home),
        "HOLDFAST_CATALOG": "tests.support.outside:catalog",
        "HOLDFAST_TASK_QUEUE": queue,
        "OPENAI_BASE_URL": llm.base_url,
        "DATABASE_URL": stack.database_url,
    }
    return KillableWorker(home / queue, environ=environ | outside.environ)


def judge(scenarios: Sequence[Scenario], outside: Outside) -> list[str]:
    """Return the problems, one sentence each."""
    outside.api.drain()
    effects, wrong, keys = outside.effects(), [], set()
    for scenario in scenarios:
        for log in scenario.logs:
            sent = scenario.people[log.thread].sent
            wrong += [f"{log.thread}: {what}" for what in audit(log.events, effects=effects, sent=sent)]
            others = scenario.others[log.thread]
            lost = audit_sent(log.events, ids=others.events, refinements=others.refinements)
            wrong += [f"{log.thread}: {what}" for what in lost]
            keys |= set(log.keys.values())
    return wrong + [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]


async def _report_progress(doomed: list[KillableWorker]) -> None:
    """Print the number of kills every 30 seconds."""
    while True:
        await asyncio.sleep(30)
        print(f"{sum(worker.kills for worker in doomed)} kills …", file=sys.stderr, flush=True)


def summarize(scenarios: Sequence[Scenario], outside: Outside, figures: Figures) -> list[str]:
    """Return the figures, one sentence each."""
    effects, logs = outside.effects(), [log for scenario in scenarios for log in scenario.logs]
    sent = sum(len(person.sent) for scenario in scenarios for person in scenario.people.values())
    events: list[AgentEvent] = [event for log in logs for event in log.events]
    kinds = Counter(event.type for event in events)
    finished = [event for event in events if isinstance(event, ToolCallFinished)]
    accepted = sum(isinstance(event, DecisionReceived) and event.outcome == "accepted" for event in events)
    completed = sum(isinstance(event, RunFinished) and event.outcome == "completed" for event in events)
    wakes = Counter(event.outcome for event in events if isinstance(event, WakeReceived))
    events_sent = sum(len(others.events) for scenario in scenarios for others in scenario.others.values())
    refined = sum(len(others.refinements) for scenario in scenarios for others in scenario.others.values())
    twice = sum(count > 1 for count in effects.values())
    return [
        f"- {completed} of {len(logs)} runs completed, over {sum(1 + log.continuations for log in logs)} Temporal runs;"
        f" {len(events):,} events",
        f"- {len(effects):,} external effects, {twice} of them more than once; the API with idempotency keys received"
        f" {outside.api.asked:,} requests for"
        f" {len(outside.api.charges):,} charges",
        f"- {sum(event.adopted for event in finished):,} results were adopted from an earlier attempt or a person's"
        f" answer; {kinds['reconcile_requested']:,} times a person was asked whether an effect had happened",
        f"- {sent:,} decisions were sent ({figures.frozen:,} to a worker that was frozen and then killed;"
        f" {figures.updates:,} as updates that were answered), {accepted:,} are in the logs",
        f"- {kinds['dormancy_began']:,} waits; {wakes['delivered']:,} events and requests to wake ended one,"
        f" {wakes['buffered']:,} events were kept first; {events_sent:,} events were sent, twice or before the wait;"
        f" {figures.published:,} deliveries of published events",
        f"- {kinds['run_paused']:,} pauses, {kinds['task_refined']:,} refinements of {refined:,} that were sent",
        "- where the kills hit: " + ", ".join(f"{what} {count}" for what, count in figures.boundaries.most_common()),
    ]


def main(
    kills: Annotated[int, typer.Option(min=1)] = 500,
    runs: Annotated[int, typer.Option(min=1)] = 50,
    workers: Annotated[int, typer.Option(min=1, help="Concurrent workers, each with its share of the runs.")] = 5,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill workers that many times, on a separate embedded stack."""
    with open_stack() as (stack, home), Api(late=LATE) as api:
        outside = Outside(api, home / "outbox")
        outside.prepare(stack.database_url)
        result = asyncio.run(measure(stack, home, outside, kills=kills, runs=runs, workers=workers, seed=seed))
    summary = (
        f"- {result.kills} SIGKILLs of {result.workers} workers, {result.runs // result.workers} active runs on each"
        f" ({result.kills // result.workers} kills a run), in {result.seconds / 60:.0f} min:"
        f" **{len(result.wrong)} duplicates, lost effects, decisions or events, or stuck runs**"
    )
    lines = [summary, *result.lines, *(f"- WRONG: {what}" for what in result.wrong)]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.kills --kills {kills} --runs {runs} --workers {workers} --seed {seed}`. {ABOUT}"
        document.write("kills", "\n".join(["## Kills", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(result.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
