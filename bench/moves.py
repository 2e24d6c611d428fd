"""`python -m bench.moves`: moves runs between two places at random moments, and kills the processes involved.

Each place has its own Temporal server, database and worker; threads move between them only as files, by the command
line. A killed command is repeated, as a person would do. Finally, the logs are compared with the outside world, with
the files, and with the messages sent (`bench.move_audit`).
"""

import asyncio
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from temporalio.service import RPCError

from bench import document
from bench.environment import open_stack
from bench.move_audit import Actors, Logs, audit_moved, file_faults, logs_of, summarize
from bench.move_places import KEY, Cluster, CommandResult, MovedLog, json_output, open_place, preload
from holdfast import Budget
from holdfast.client.start_options import StartOptions
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import public_key
from holdfast.errors import HoldfastError
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.audit import Effects
from holdfast.testing.kill_matrix.interventions import Interventions
from holdfast.testing.kill_matrix.person import Person
from tests.support.moved import END, script
from tests.support.outside import LATE, Api, Outside

ABOUT = (
    "Runs with effects of all classes, waits, requests, sub-agents and a budget are moved back and forth between two "
    "places, each with its own Temporal server, database and worker, by `holdfast move` and `holdfast import`. Half "
    "of the kills (SIGKILL) hit these commands, which are then repeated, and half the workers. Meanwhile the runs are "
    "paused, refined and sent events. At the end, every effect in the logs must have happened once; every decision, "
    "event and refinement must be in the log, no id twice; every file must have continued the one before, with the "
    "logs of all sub-agents; no thread may have been open in both places; and every account must balance and every "
    "thread verify."
)
SIGNER = public_key(KEY)
PATIENCE = 600.0
"""Time limit in seconds for each expected change of a thread."""
LONGEST_STAY = 3.0
"""The most seconds between an import and the next move."""


@dataclass
class Plan:
    """The planned moves and kills, and the counts so far. A quarter of the kills hits each of the two commands."""

    moves: int
    kills: int
    chance: random.Random
    until: float = math.inf
    """The latest start of a move, by the monotonic clock."""
    begun: int = 0
    moved: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    """Kills by target: a command, or `worker`."""
    statuses: Counter[str] = field(default_factory=Counter)
    """The statuses of the runs when they were moved."""
    wrong: list[str] = field(default_factory=list)
    _durations: dict[str, float] = field(default_factory=dict)

    def moment(self, verb: str) -> float | None:
        """Return the seconds after which to kill a command; None to let it end."""
        if self.killed[verb] >= self.kills / 4 * (self.moved + 1) / self.moves:
            return None
        return self.chance.uniform(0.1, 1.1 * self._durations.get(verb, 1.0))

    def record(self, verb: str, result: CommandResult) -> None:
        """Record the outcome of a command."""
        self.killed[verb] += result.code < 0
        if not result.code:
            self._durations[verb] = result.seconds

    @property
    def worker_due(self) -> bool:
        """True if it is time to kill a worker."""
        return self.killed["worker"] < self.kills / 2 * min(1, self.moved / self.moves)


class Traveller:
    """A thread that is moved back and forth, and the people who act on it.

    Args:
        thread: The thread's id.
        places: The two places; the thread begins in the first one.
        effects: Returns how often each effect has happened.
        plan: The planned moves and kills.
    """

    def __init__(self, thread: str, places: Sequence[Cluster], effects: Callable[[], Effects], plan: Plan) -> None:
        self.thread, self._plan, self._effects = thread, plan, effects
        self._here, self._there = places
        self._actors = {
            place.name: Actors(
                log := MovedLog(place, thread),
                Person(place.client, log, effects),
                Interventions(place.client, log),
            )
            for place in places
        }
        self._moves = 0
        self._file: Logs = {}
        """The logs in the latest file."""

    async def start(self) -> None:
        """Start the thread's run."""
        budget = Budget(steps=50_000, tokens=500_000_000)
        await self._here.threads.start("Serve.", self.thread, StartOptions(agent="shop", budget=budget, by="dana"))

    async def travel(self) -> None:
        """Move the thread until the plan has enough moves, and then end it."""
        while self._plan.begun < self._plan.moves and time.monotonic() < self._plan.until:
            self._plan.begun += 1
            await self._stay(self._plan.chance.uniform(0.1, LONGEST_STAY))
            await self._move()
        await self._finish()

    async def watch(self) -> None:
        """Check that the thread is never open in both places."""
        while True:
            before, other, after = [await place.live(self.thread) for place in (self._here, self._there, self._here)]
            if before and other and before == after:
                self._plan.wrong.append(f"{self.thread} is open in both places")
            await asyncio.sleep(2)

    async def _stay(self, seconds: float) -> None:
        """Let the thread run here; with a certain chance, act on it as its people meanwhile."""
        until, busy = time.monotonic() + seconds, self._plan.chance.random() < 0.6
        while time.monotonic() < until:
            if busy:
                await self._act()
            await asyncio.sleep(0.3)

    async def _act(self) -> None:
        actors = self._actors[self._here.name]
        try:
            await actors.log.refresh()
            await actors.person.decide()
            await actors.others.act()
        except (RPCError, HoldfastError):
            pass  # nothing is recorded yet, or the database is busy

    async def _move(self) -> None:
        """Move the thread to the other place."""
        path = self._here.folder / f"{self.thread}-{self._moves}.holdfast"
        state = await self._here.threads.state(self.thread, use_worker=False)
        await self._repeat(self._here, "move", self.thread, "-o", str(path), "--key", str(self._here.folder / "key"))
        self._plan.statuses[state["status"]] += 1
        before, self._file = self._file, await asyncio.to_thread(logs_of, path)
        await self._repeat(self._there, "import", str(path), "--signer", SIGNER)
        self._here, self._there = self._there, self._here
        path.unlink()
        here = {name: await self._here.lines(name) for name in self._file}
        self._plan.wrong += file_faults(self.thread, before, self._file, here)
        self._moves += 1
        self._plan.moved += 1

    async def _repeat(self, place: Cluster, *words: str) -> None:
        """Repeat a command until it succeeds, like a person who reads its output."""
        verb, until, output = words[0], time.monotonic() + PATIENCE, ""
        while time.monotonic() < until:
            result = await place.run(*words, "--json", kill_after=self._plan.moment(verb))
            self._plan.record(verb, result)
            if not result.code:
                if unread := json_output(result).get("unread"):
                    self._plan.wrong.append(f"{self.thread}: its file lacks logs: {unread}")
                return
            if result.code > 0:
                output = result.output
                await self._stay(1)  # its sub-agents are open, or its agent is being loaded
        raise TimeoutError(f"{' '.join(words)}: {output}")

    async def _finish(self) -> None:
        """End the thread in its current place."""
        for actors in self._actors.values():
            actors.others.ending = True
        until = time.monotonic() + PATIENCE
        await self._here.client.get_workflow_handle(self.thread).signal("say", {"message": END, "by": "dana"})
        while await self._here.live(self.thread):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.thread} has not ended: {await self._here.threads.state(self.thread)}")
            await self._act()
            await self._unblock()
            await asyncio.sleep(0.5)

    async def _unblock(self) -> None:
        """Let a thread continue that cannot end in its current place; here, each can."""

    async def audit(self) -> tuple[list[str], Counter[str], set[str]]:
        """Return the thread's faults, counts of its events, and the keys of its effects."""
        return await audit_moved(self.thread, self._here, self._effects(), [*self._actors.values()])


@dataclass
class Result:
    """The outcome of all moves."""

    plan: Plan
    lines: list[str]


async def measure(
    stacks: Sequence[tuple[Stack, Path]],
    outside: Outside,
    *,
    moves: int,
    kills: int,
    runs: int,
    seed: int,
    minutes: float = math.inf,
) -> Result:
    """Move the runs and kill processes, that often in total; then check everything."""
    plan = Plan(moves, kills, random.Random(seed), time.monotonic() + 60 * minutes)
    preload()
    (one, home), (two, other) = stacks
    with ScriptedLLM(script) as llm:
        async with (
            open_place("a", one, home, llm, outside.environ) as a,
            open_place("b", two, other, llm, outside.environ) as b,
        ):
            travellers = [Traveller(f"moved-{number}", (a, b), outside.effects, plan) for number in range(runs)]
            for traveller in travellers:
                await traveller.start()
            await drive(travellers, plan, _kill_workers(plan, (a, b)), report_progress(plan))
            audits = [await each.audit() for each in travellers]
    kinds, keys = Counter[str](), set[str]()
    for wrong, counts, own in audits:
        plan.wrong += wrong
        kinds += counts
        keys |= own
    outside.api.drain()
    effects = outside.effects()
    plan.wrong += [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]
    return Result(plan, summarize(kinds, effects, plan.statuses))


async def drive(travellers: Sequence[Traveller], plan: Plan, *others: Coroutine[Any, Any, None]) -> None:
    """Move the threads until they have ended. Meanwhile, watch them, and run the others."""
    background = [asyncio.create_task(each) for each in (*(each.watch() for each in travellers), *others)]
    try:
        ended = await asyncio.gather(*(each.travel() for each in travellers), return_exceptions=True)
        plan.wrong += [f"{type(error).__name__}: {error}" for error in ended if error]
    finally:
        for task in background:
            task.cancel()


async def _kill_workers(plan: Plan, places: Sequence[Cluster]) -> None:
    """Kill a worker at random moments, whenever a kill is due."""
    while True:
        await asyncio.sleep(plan.chance.uniform(0.2, 2))
        if plan.worker_due:
            kill_worker(plan, places)


def kill_worker(plan: Plan, places: Sequence[Cluster]) -> None:
    """Kill a random worker, if its process runs."""
    worker = plan.chance.choice([worker for place in places for worker in place.workers])
    before = worker.kills
    worker.kill()
    plan.killed["worker"] += worker.kills - before


async def report_progress(plan: Plan) -> None:
    """Print the numbers every 30 seconds."""
    while True:
        await asyncio.sleep(30)
        print(f"{plan.moved} moves, kills: {dict(plan.killed)} …", file=sys.stderr, flush=True)


def main(
    moves: Annotated[int, typer.Option(min=1)] = 200,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs: half of commands, half of workers.")] = 150,
    runs: Annotated[int, typer.Option(min=1, help="Threads that are moved at the same time.")] = 5,
    seed: int = 7,
    minutes: Annotated[float, typer.Option(help="Begin no move after so many minutes.")] = math.inf,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Move runs that often between two separate embedded stacks."""
    start = time.monotonic()
    with open_stack() as one, open_stack() as two, Api(0.1, late=LATE) as api:
        outside = Outside(api, one[1] / "outbox")
        running = measure((one, two), outside, moves=moves, kills=kills, runs=runs, seed=seed, minutes=minutes)
        result = asyncio.run(running)
    plan, minutes_taken = result.plan, (time.monotonic() - start) / 60
    cut_off = "" if plan.moved == moves else f" of {moves}"
    killed = ", ".join(f"{plan.killed[each]} of `{each}`" for each in ("move", "import")) + (
        f" and {plan.killed['worker']} of workers"
    )
    summary = (
        f"- {plan.moved}{cut_off} moves of {runs} runs, {plan.killed.total()} SIGKILLs ({killed}), in "
        f"{minutes_taken:.0f} min: "
        f"**{len(plan.wrong)} effects, decisions, events or logs lost or doubled, or accounts that do not balance**"
    )
    lines = [summary, *result.lines, *(f"- WRONG: {what}" for what in plan.wrong)]
    print("\n".join(lines))
    if write:
        within = "" if minutes == math.inf else f" --minutes {minutes:g}"
        words = f"--moves {moves} --kills {kills} --runs {runs} --seed {seed}{within}"
        about = f"`python -m bench.moves {words}`. {ABOUT}"
        document.write("moves", "\n".join(["## Runs that are moved", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(plan.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
