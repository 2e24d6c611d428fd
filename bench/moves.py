"""`python -m bench.moves`: moves runs between two places at random moments, and kills what takes part in it.

Each place has a Temporal, a database and a worker of its own; files go from one to the other by the command line alone.
A killed command is repeated, as a person would. At the end, the logs are compared with the outside world, with the
files, and with what was sent (`bench.move_audit`).
"""

import asyncio
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from temporalio.service import RPCError

from bench import document
from bench.environment import open_stack
from bench.move_audit import Logs, Told, audit_moved, file_faults, logs_of, summarize
from bench.move_places import MovedLog, Place, Ran, answer_of, open_place, preload
from holdfast import Budget
from holdfast.client.start_options import StartOptions
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.errors import HoldfastError
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.interventions import Interventions
from holdfast.testing.kill_matrix.person import Person
from tests.support.moved import END, script
from tests.support.outside import LATE, Api, Outside

ABOUT = (
    "Runs with effects of all classes, waits, requests, sub-agents and a budget are moved back and forth between two "
    "places, each with a Temporal, a database and a worker of its own, by `holdfast move` and `holdfast import`. Half "
    "of the kills (SIGKILL) hit these commands, which are then repeated, and half the workers. Meanwhile the runs are "
    "paused, refined and sent events. At the end, every effect in the logs must have happened once; every decision, "
    "event and refinement be in the log, no id twice; every file have continued the one before, with the logs of all "
    "sub-agents; no thread have been open in both places; every account balance; and every thread be verified."
)
KEY = encode_key(b"moves" * 6 + b"xx")
SIGNER = public_key(KEY)
PATIENCE = 600.0
"""Seconds for a thread to do what is expected of it."""
LONGEST_STAY = 3.0
"""Seconds between an import and the next move, at most."""


@dataclass
class Plan:
    """How many moves and kills there are to be, and how many there were: a quarter of the kills each hits a command."""

    moves: int
    kills: int
    chance: random.Random
    until: float = math.inf
    """When the last move may begin, by the monotonic clock."""
    begun: int = 0
    moved: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    """What was killed."""
    found: Counter[str] = field(default_factory=Counter)
    """In which status the runs were when they were moved."""
    wrong: list[str] = field(default_factory=list)
    _took: dict[str, float] = field(default_factory=dict)

    def moment(self, verb: str) -> float | None:
        """Return after how many seconds to kill a command; None to let it end."""
        if self.killed[verb] >= self.kills / 4 * (self.moved + 1) / self.moves:
            return None
        return self.chance.uniform(0.1, 1.1 * self._took.get(verb, 1.0))

    def ended(self, verb: str, ran: Ran) -> None:
        """Note how a command has ended."""
        self.killed[verb] += ran.code < 0
        if not ran.code:
            self._took[verb] = ran.seconds

    @property
    def worker_due(self) -> bool:
        """Whether it is time to kill a worker."""
        return self.killed["worker"] < self.kills / 2 * min(1, self.moved / self.moves)


class Traveller:
    """A thread that is moved back and forth, and the people who act on it.

    Args:
        thread: Its id.
        places: The two places; it begins in the first one.
        outside: Where its effects happen.
        plan: What is to happen to it.
    """

    def __init__(self, thread: str, places: Sequence[Place], outside: Outside, plan: Plan) -> None:
        self.thread, self._plan = thread, plan
        self._here, self._there = places
        self._people = {
            place.name: Told(
                log := MovedLog(place, thread),
                Person(place.client, log, outside.effects),
                Interventions(place.client, log),
            )
            for place in places
        }
        self._moves = 0
        self._file: Logs = {}
        """The logs in the last file."""

    async def start(self) -> None:
        """Start its run."""
        budget = Budget(steps=50_000, tokens=500_000_000)
        await self._here.threads.start("Serve.", self.thread, StartOptions(agent="shop", budget=budget, by="dana"))

    async def travel(self) -> None:
        """Move it until there have been enough moves."""
        while self._plan.begun < self._plan.moves and time.monotonic() < self._plan.until:
            self._plan.begun += 1
            await self._stay(self._plan.chance.uniform(0.1, LONGEST_STAY))
            await self._move()
        await self._finish()

    async def watch(self) -> None:
        """Check that it is never open in both places."""
        while True:
            before, other, after = [await place.live(self.thread) for place in (self._here, self._there, self._here)]
            if before and other and before == after:
                self._plan.wrong.append(f"{self.thread} is open in both places")
            await asyncio.sleep(2)

    async def _stay(self, seconds: float) -> None:
        """Let it run, and decide and do what is due, or leave that for the other place."""
        until, busy = time.monotonic() + seconds, self._plan.chance.random() < 0.6
        while time.monotonic() < until:
            if busy:
                await self._act()
            await asyncio.sleep(0.3)

    async def _act(self) -> None:
        told = self._people[self._here.name]
        try:
            await told.log.refresh()
            await told.person.decide()
            await told.others.act()
        except (RPCError, HoldfastError):
            pass  # nothing is recorded yet, or the database is busy

    async def _move(self) -> None:
        """Move it to the other place."""
        path = self._here.folder / f"{self.thread}-{self._moves}.holdfast"
        state = await self._here.threads.state(self.thread, use_worker=False)
        await self._repeat(self._here, "move", self.thread, "-o", str(path), "--key", str(self._here.folder / "key"))
        self._plan.found[state["status"]] += 1
        before, self._file = self._file, await asyncio.to_thread(logs_of, path)
        await self._repeat(self._there, "import", str(path), "--signer", SIGNER)
        self._here, self._there = self._there, self._here
        path.unlink()
        here = {name: await self._here.lines(name) for name in self._file}
        self._plan.wrong += file_faults(self.thread, before, self._file, here)
        self._moves += 1
        self._plan.moved += 1

    async def _repeat(self, place: Place, *words: str) -> None:
        """Run a command until it has succeeded, as a person would who reads what it says."""
        verb, until, said = words[0], time.monotonic() + PATIENCE, ""
        while time.monotonic() < until:
            ran = await place.run(*words, "--json", kill_after=self._plan.moment(verb))
            self._plan.ended(verb, ran)
            if not ran.code:
                if unread := answer_of(ran).get("unread"):
                    self._plan.wrong.append(f"{self.thread}: its file lacks logs: {unread}")
                return
            if ran.code > 0:
                said = ran.output
                await self._stay(1)  # its sub-agents are open, or its agent is being loaded
        raise TimeoutError(f"{' '.join(words)}: {said}")

    async def _finish(self) -> None:
        """Have it end where it is."""
        for told in self._people.values():
            told.others.ending = True
        until = time.monotonic() + PATIENCE
        await self._here.client.get_workflow_handle(self.thread).signal("say", {"message": END, "by": "dana"})
        while await self._here.live(self.thread):
            if time.monotonic() > until:
                raise TimeoutError(f"{self.thread} has not ended: {await self._here.threads.state(self.thread)}")
            await self._act()
            await asyncio.sleep(0.5)

    async def audit(self, outside: Outside) -> tuple[list[str], Counter[str], set[str]]:
        """Return what is wrong with it, counts of its events, and the keys of its effects."""
        return await audit_moved(self.thread, self._here, outside.effects(), [*self._people.values()])


@dataclass
class Result:
    """The outcome."""

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
    """Move that many runs so often in all, kill so often in all, then check everything."""
    plan = Plan(moves, kills, random.Random(seed), time.monotonic() + 60 * minutes)
    preload()
    (one, home), (two, other) = stacks
    with ScriptedLLM(script) as llm:
        async with open_place("a", one, home, llm, outside) as a, open_place("b", two, other, llm, outside) as b:
            for place in (a, b):
                (place.folder / "key").write_text(KEY)
                (place.folder / "key").chmod(0o600)
            travellers = [Traveller(f"moved-{number}", (a, b), outside, plan) for number in range(runs)]
            for traveller in travellers:
                await traveller.start()
            beside = [asyncio.create_task(each.watch()) for each in travellers]
            beside += [asyncio.create_task(_kill_workers(plan, (a, b))), asyncio.create_task(_report_progress(plan))]
            try:
                ended = await asyncio.gather(*(each.travel() for each in travellers), return_exceptions=True)
                plan.wrong += [f"{type(error).__name__}: {error}" for error in ended if error]
            finally:
                for task in beside:
                    task.cancel()
            audits = [await each.audit(outside) for each in travellers]
    kinds, keys = Counter[str](), set[str]()
    for wrong, counts, own in audits:
        plan.wrong += wrong
        kinds += counts
        keys |= own
    outside.api.drain()
    effects = outside.effects()
    plan.wrong += [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]
    return Result(plan, summarize(kinds, effects, plan.found))


async def _kill_workers(plan: Plan, places: Sequence[Place]) -> None:
    """Kill a worker whenever that is due, at a random moment."""
    while True:
        await asyncio.sleep(plan.chance.uniform(0.2, 2))
        if plan.worker_due:
            worker = plan.chance.choice(places).worker
            before = worker.kills
            worker.kill()
            plan.killed["worker"] += worker.kills - before


async def _report_progress(plan: Plan) -> None:
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
    began = time.monotonic()
    with open_stack() as one, open_stack() as two, Api(0.1, late=LATE) as api:
        outside = Outside(api, one[1] / "outbox")
        running = measure((one, two), outside, moves=moves, kills=kills, runs=runs, seed=seed, minutes=minutes)
        result = asyncio.run(running)
    plan, took = result.plan, (time.monotonic() - began) / 60
    cut_off = "" if plan.moved == moves else f" of {moves}"
    killed = ", ".join(f"{plan.killed[each]} of `{each}`" for each in ("move", "import")) + (
        f" and {plan.killed['worker']} of workers"
    )
    summary = (
        f"- {plan.moved}{cut_off} moves of {runs} runs, {plan.killed.total()} SIGKILLs ({killed}), in {took:.0f} min: "
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
