"""`python -m bench.trees`: kill the worker of several trees of sub-agents repeatedly, at random moments.

New trees begin as others end, until all kills are done. Then the logs of every tree are compared with each other, with
the requests to the LLM and with the effects in the outside world (`bench.tree_audit`), and every thread is verified.
"""

import asyncio
import json
import math
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from temporalio.client import Client

from bench import document
from bench.environment import open_stack
from bench.tree_audit import Run, audit_tree
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.reading.record import Evidence
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import BudgetSpent, LLMCallLost, SubagentEnded, SubagentStarted
from holdfast.endpoints.scripted_server import Request
from holdfast.portable.export import export_thread
from holdfast.portable.verify import verify_file
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import ScriptedLLM
from holdfast.testing.kill_matrix.audit import Effects, RecordedLog
from holdfast.testing.kill_matrix.person import Person
from holdfast.testing.kill_matrix.plan import Plan
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.outside import LATE, Api, Outside
from tests.support.treed import Member, budget_of, member_of, plan, script, task_of

ABOUT = (
    "Trees of up to 15 agent runs, three levels below the root and up to five sub-agents of a run, in the foreground "
    "and in the background, with effects and with a budget at the root, every third one too small for its tree. Their "
    "worker is killed (SIGKILL), half of the times at a random moment, half at a boundary of starts, ends and "
    "reservations. At the end, every sub-agent must have been started once and its answer read unchanged, every effect "
    "must have happened once, every account must be the exact sum of its LLM calls and its sub-agents' settlements, no "
    "tree may have spent more than its budget, and every thread and every tree as one file must verify."
)
QUEUE = "trees"
LONGEST_LIFE = 5.0
"""The longest time in seconds between two kills at random moments."""
PATIENCE = 600.0
"""Seconds for all trees to end after the last kill."""
BOUNDARIES = (
    "start_subagents",
    "subagent_started",
    "check_subagents",
    "subagent_ended",
    "end_subagents",
    "announce_end",
    "budget_reserved",
    "call_llm",
    "run_finished",
    "continue_as_new",
)
"""The other kills come before or after one of these."""


class CountingLLM(ScriptedLLM):
    """The scripted LLM, with a count of the tokens that it receives from each run."""

    def __init__(self) -> None:
        super().__init__(script)
        self.tokens: Counter[str] = Counter()
        """Tokens of requests received so far, by run."""

    def record(self, request: Request) -> None:
        """Count a request, with or without a reply."""
        self.tokens[member_of(json.loads(request.body)["messages"]).name] += len(request.body) // 4


@dataclass
class Tree:
    """A tree of runs."""

    member: Member
    log: RecordedLog
    """The log of its root."""
    runs: dict[str, Run] = field(default_factory=dict)


class Forest:
    """The trees of one worker.

    Args:
        client: A connected client.
        worker: The worker, started.
        chance: The source of randomness.
        at_once: The number of concurrent trees.
        effects: Returns the number of times that each effect happened.
        boundaries: The boundaries of all kills, in turn; empty for half of the kills at random moments, half at random
            boundaries.
    """

    def __init__(
        self,
        client: Client,
        worker: KillableWorker,
        *,
        chance: random.Random,
        at_once: int,
        effects: Callable[[], Effects],
        boundaries: Sequence[str] = (),
    ) -> None:
        self._client, self._worker, self._chance, self._at_once = client, worker, chance, at_once
        self._effects, self._boundaries = effects, boundaries
        self._people: dict[str, Person] = {}
        self._threads = Threads(client, task_queue=QUEUE)
        self.trees: list[Tree] = []
        self.where: Counter[str] = Counter()
        """Kills by place."""

    async def kill(self, times: int) -> None:
        """Kill the worker that many times, and start a new tree whenever one has ended."""
        while self._worker.kills < times:
            await self._tend(fresh=True)
            if self._boundaries:
                await self._kill_at(self._boundaries[self._worker.kills % len(self._boundaries)], within=math.inf)
            elif self._chance.random() < 0.5:
                await asyncio.sleep(self._chance.uniform(0.1, LONGEST_LIFE))
                self._kill("any moment")
            else:
                moment = self._chance.choice(("before", "after"))
                await self._kill_at(f"{moment} {self._chance.choice(BOUNDARIES)}", within=2 * LONGEST_LIFE)

    async def _kill_at(self, boundary: str, *, within: float) -> None:
        """Kill the worker at a boundary, or at the end of the time limit if it does not reach the boundary."""
        self._worker.set_plan(Plan(boundaries=(boundary,), skip=self._chance.randrange(4), most=1))
        deadline = time.monotonic() + within
        while not (stop := self._worker.stopped()) and time.monotonic() < deadline:
            await self._tend(fresh=within == math.inf)
            await asyncio.sleep(0.05)
        self._kill(boundary if stop else "any moment")
        self._worker.set_plan(None)

    def _kill(self, where: str) -> None:
        self._worker.check()
        before = self._worker.kills
        self._worker.kill()
        self.where[where] += self._worker.kills - before

    async def end(self) -> None:
        """Wait until every run of every tree has ended.

        Raises:
            TimeoutError: Some have not ended in time.
        """
        async with asyncio.timeout(PATIENCE):
            while await self._tend(fresh=False) or (await self._client.count_workflows(_OPEN)).count:
                self._worker.check()
                await asyncio.sleep(0.2)

    async def _tend(self, *, fresh: bool) -> int:
        """Decide requests, extend budgets of blocked runs, start missing trees, and return the number of open trees."""
        extra = {"usd": "5", "steps": 100, "tokens": 1_000_000, "by": "dana"}
        async for waiting in self._client.list_workflows(f"{_OPEN} AND HoldfastStatus = 'waiting_approval'"):
            person = await self._person(waiting.id)
            await person.log.refresh()
            await person.decide()
        async for blocked in self._client.list_workflows(f"{_OPEN} AND HoldfastStatus = 'blocked'"):
            await self._client.get_workflow_handle(blocked.id).signal("extend", extra)
        for tree in self.trees:
            if not tree.log.closed:
                description = await self._client.get_workflow_handle(tree.log.thread).describe()
                if description.close_time:
                    await tree.log.refresh()
        count = sum(not tree.log.closed for tree in self.trees)
        while fresh and count < self._at_once:
            number = len(self.trees)
            member = plan(f"tree-{number}", self._chance)
            budget = budget_of(member, tight=number % 3 == 2)
            begun = await self._threads.start(task_of(member), member.name, StartOptions(budget=budget, by="dana"))
            self.trees.append(Tree(member, RecordedLog(self._client, begun.thread, begun.run_id)))
            count += 1
        return count

    async def _person(self, thread: str) -> Person:
        """Return the person who answers a thread's requests."""
        if thread not in self._people:
            run = await self._client.get_workflow_handle(thread).describe()
            log = RecordedLog(self._client, thread, run.raw_info.first_run_id or run.run_id)
            self._people[thread] = Person(self._client, log, self._effects)
        return self._people[thread]

    async def read(self, tokens: Counter[str]) -> None:
        """Read the logs of all trees. `tokens` are those of requests to the LLM, by run."""
        executions: Counter[str] = Counter()
        async for row in self._client.list_workflows(f"TaskQueue = '{QUEUE}'"):
            executions[row.id] += 1
        for tree in self.trees:
            await self._read(tree, tree.log, tree.member, executions, tokens, dropped=False)
        named = {thread for tree in self.trees for thread in tree.runs}
        for thread in sorted(executions.keys() - named):
            self.trees[0].runs[thread] = Run(thread, (), chains=0)  # no log names it: reported as started 0 times

    async def _read(
        self,
        tree: Tree,
        log: RecordedLog,
        member: Member,
        executions: Counter[str],
        tokens: Counter[str],
        *,
        dropped: bool,
    ) -> None:
        await log.refresh()
        chains = executions[log.thread] - log.continuations
        tree.runs[log.thread] = Run(log.thread, log.events, chains, dropped, tokens[member.name])
        calls = {e.number: e.call for e in log.events if e.type == "tool_call_requested"}
        abandoned = {each.name for each in member.dropped}
        for event in log.events:
            if isinstance(event, SubagentStarted):
                below = Member.model_validate_json(json.loads(calls[event.number].arguments)["task"])
                child = RecordedLog(self._client, event.thread, event.run_id)
                loose = dropped or below.name in abandoned or _budget_ended(log)
                await self._read(tree, child, below, executions, tokens, dropped=loose)


_OPEN = f"TaskQueue = '{QUEUE}' AND ExecutionStatus = 'Running'"


def _budget_ended(log: RecordedLog) -> bool:
    """Return whether the run's budget has ended, after which it may not have read all answers."""
    return any(isinstance(event, BudgetSpent) for event in log.events)


@dataclass
class Result:
    """The outcome of all kills."""

    kills: int
    wrong: list[str]
    lines: list[str]
    where: Counter[str]
    """Kills by place."""


async def measure(
    stack: Stack,
    home: Path,
    outside: Outside,
    *,
    kills: int,
    at_once: int,
    seed: int,
    boundaries: Sequence[str] = (),
) -> Result:
    """Kill the worker that many times; return the faults. The other arguments are those of `Forest`."""
    with CountingLLM() as llm:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        environ = {
            "HOLDFAST_HOME": str(home),
            "HOLDFAST_CATALOG": "tests.support.treed:catalog",
            "HOLDFAST_TASK_QUEUE": QUEUE,
            "OPENAI_BASE_URL": llm.base_url,
            "DATABASE_URL": stack.database_url,
        }
        worker = KillableWorker(home / QUEUE, environ=environ | outside.environ)
        await asyncio.to_thread(worker.start)
        chance = random.Random(seed)
        forest = Forest(client, worker, chance=chance, at_once=at_once, effects=outside.effects, boundaries=boundaries)
        reporting = asyncio.create_task(_report_progress(worker, forest))
        wrong = []
        try:
            await forest.kill(kills)
            try:
                await forest.end()
            except TimeoutError:
                stuck = [row.id async for row in client.list_workflows(_OPEN)]
                wrong.append(f"not ended within {PATIENCE:g} s: {', '.join(sorted(stuck))}")
            await forest.read(llm.tokens)
            async with open_pool(stack.database_url, size=4) as pool:
                wrong += await _verification_faults(client, pool, forest)
        finally:
            reporting.cancel()
            await asyncio.to_thread(worker.stop)
    outside.api.drain()
    effects = outside.effects()
    for tree in forest.trees:
        wrong += audit_tree(tree.runs, effects=effects)
    return Result(worker.kills, wrong, summarize(forest, outside), forest.where)


async def _verification_faults(client: Client, pool: object, forest: Forest) -> list[str]:
    """Verify every thread, several at a time, and every tree as one file; return the faults."""
    record = PostgresThreads(pool)  # type: ignore[arg-type]  # a pool
    evidence = Evidence(partial(effects_of, pool), record.asides, PostgresArtifacts(pool))  # type: ignore[arg-type]
    threads, slots = Threads(client, record=record, task_queue=QUEUE), asyncio.Semaphore(4)

    async def one(thread: str) -> str:
        async with slots:
            result = await verify(threads, thread, evidence=evidence)
        return "" if result.ok else f"{thread}: {result.where} {result.position}: {result.reason}"

    async def whole(tree: Tree, folder: Path) -> str:
        root = next(iter(tree.runs))
        async with slots:
            exported = await export_thread(threads, root, path := folder / f"{root}.holdfast", evidence=evidence)
            result = await verify_file(path)
        path.unlink()
        if result.ok and result.subagents + 1 != len(tree.runs):
            return f"{root}: its file has {result.subagents} of {len(tree.runs) - 1} sub-agents: {exported.unread}"
        return "" if result.ok else f"{root} as a file: {result.where} {result.position}: {result.reason}"

    names = [thread for tree in forest.trees for thread in tree.runs]
    with TemporaryDirectory() as folder:
        files = (whole(tree, Path(folder)) for tree in forest.trees)
        return [what for what in await asyncio.gather(*map(one, names), *files) if what]


async def _report_progress(worker: KillableWorker, forest: Forest) -> None:
    """Print the number of kills every 30 seconds."""
    while True:
        await asyncio.sleep(30)
        print(f"{worker.kills} kills, {len(forest.trees)} trees …", file=sys.stderr, flush=True)


def summarize(forest: Forest, outside: Outside) -> list[str]:
    """Return the figures, one sentence each."""
    runs = [run for tree in forest.trees for run in tree.runs.values()]
    events = [event for run in runs for event in run.events]
    ends = Counter(event.status for event in events if isinstance(event, SubagentEnded))
    again = sum(event.attempts for event in events if isinstance(event, LLMCallLost))
    kinds = Counter(event.type for event in events)
    effects = outside.effects()
    ended, extended = kinds["budget_spent"], kinds["budget_extended"]
    return [
        f"- {len(forest.trees)} trees of {len(runs)} runs, {kinds['subagent_started']} sub-agents: "
        + ", ".join(f"{count} {status}" for status, count in ends.most_common()),
        f"- {len(effects):,} external effects, {sum(count > 1 for count in effects.values())} of them more than once",
        f"- {ended} budgets ended in a run, {extended} were extended; {again:,} attempts at LLM calls were "
        f"lost, and {kinds['llm_replied']:,} had a reply; {kinds['run_continued']} runs continued as new",
        "- where the kills hit: " + ", ".join(f"{what} {count}" for what, count in forest.where.most_common()),
    ]


def main(
    kills: Annotated[int, typer.Option(min=1)] = 500,
    trees: Annotated[int, typer.Option(min=1, help="Trees at the same time.")] = 3,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill the worker that many times, on a separate embedded stack."""
    began = time.monotonic()
    with open_stack() as (stack, home), Api(late=LATE) as api:
        outside = Outside(api, home / "outbox")
        outside.prepare(stack.database_url)
        result = asyncio.run(measure(stack, home, outside, kills=kills, at_once=trees, seed=seed))
    minutes = (time.monotonic() - began) / 60
    summary = (
        f"- {result.kills} SIGKILLs of the worker of {trees} trees at a time, in {minutes:.0f} min: "
        f"**{len(result.wrong)} sub-agents, results or effects lost or doubled, or accounts that do not balance**"
    )
    lines = [summary, *result.lines, *(f"- WRONG: {what}" for what in result.wrong)]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.trees --kills {kills} --trees {trees} --seed {seed}`. {ABOUT}"
        document.write("trees", "\n".join(["## Trees whose worker is killed", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(result.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
