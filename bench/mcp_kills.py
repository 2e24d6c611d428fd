"""`python -m bench.mcp_kills`: kills the worker, an MCP server over stdio and one over HTTP, at random moments.

At the end, each call in each log is compared with the book in which both servers write their effects
(`bench.mcp_ledger`).
"""

import asyncio
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import psutil
import typer
from temporalio.client import Client
from temporalio.service import RPCError

from bench import document
from bench.environment import leave, open_stack
from bench.mcp_ledger import BOOK, PORT
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import ReconcileRequested, ToolCallFinished, ToolCallRequested
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.devstack.ports import any_free
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say, together
from holdfast.testing.kill_matrix.audit import RecordedLog, audit
from holdfast.testing.kill_matrix.person import Person
from holdfast.testing.kill_matrix.process import KillableWorker

QUEUE = "mcp-kills"
TURNS = (
    ("desk_charge", "shop_look"),
    ("shop_mail",),
    ("desk_mail", "shop_charge"),
    ("desk_look", "desk_charge", "shop_charge"),
    ("desk_mail",),
)
"""The calls of each reply; between two of them, the run sleeps."""
CATALOG = """
from bench.mcp_ledger import CLERK, make_servers
from holdfast import Catalog

catalog = Catalog(agents=[CLERK], mcp=make_servers())
"""
NAP = "4s"
LONGEST_LIFE = 3.0
"""The most seconds between two kills."""
PATIENCE = 600.0
"""Seconds for all runs to end after the last kill."""
ABOUT = (
    "A kill is a SIGKILL, at a random moment, of the worker, of its MCP server over stdio, or of one over HTTP, while "
    "all runs are open and call tools of both servers: reads, idempotent ones, and ones that must not run twice. Each "
    "effect is a line with the call's effect key in a book. At the end, each call in each log is compared with it."
)


@dataclass
class Tally:
    """What was killed, and what came of it."""

    kills: Counter[str] = field(default_factory=Counter)
    """By victim."""
    wrong: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


class Shop:
    """The server over HTTP, which is started again after each kill."""

    def __init__(self, book: Path) -> None:
        self.port = any_free()
        self._book = book
        self.start()
        while not self.answers():
            time.sleep(0.1)

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "bench.mcp_ledger", str(self._book), str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers(self) -> bool:
        """Whether it accepts connections."""
        return any(each.status == psutil.CONN_LISTEN for each in psutil.Process(self._process.pid).net_connections())

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()


def desks(book: Path) -> list[psutil.Process]:
    """Return the servers over stdio that live."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with suppress(psutil.Error):
            if (process.info["cmdline"] or [])[-1:] == [str(book)] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class Drill:
    """The runs, the people who decide about them, and the processes that are killed."""

    def __init__(self, client: Client, worker: KillableWorker, shop: Shop, book: Path, chance: random.Random) -> None:
        self._client, self._worker, self._shop, self._book, self._chance = client, worker, shop, book, chance
        self.people: list[Person] = []
        self.kills: Counter[str] = Counter()

    def effects(self) -> Counter[str]:
        """Return how often each effect has happened, by key."""
        return Counter(self._book.read_text().split())

    async def start(self, runs: int) -> None:
        """Start the runs."""
        for number in range(runs):
            thread = f"{QUEUE}-{number}"
            run = await self._client.start_workflow(WORKFLOW, RunInput(task="go"), id=thread, task_queue=QUEUE)
            log = RecordedLog(self._client, thread, str(run.first_execution_run_id))
            self.people.append(Person(self._client, log, self.effects))

    async def kill(self, times: int) -> None:
        """Kill that many times, each time one of the three, a while after all three were up."""
        while self.kills.total() < times:
            while not await asyncio.to_thread(lambda: self._shop.answers() and bool(desks(self._book))):
                await self.decide()
            moment = time.monotonic() + self._chance.uniform(0.1, LONGEST_LIFE)
            while time.monotonic() < moment:
                await self.decide()
            victim = self._chance.choice(("worker", "stdio server", "HTTP server"))
            self.kills[victim] += await asyncio.to_thread(self._kill, victim)

    def _kill(self, victim: str) -> int:
        """Kill a victim; return 0 if it was not running."""
        if victim == "worker":
            before = self._worker.kills
            self._worker.kill()
            return self._worker.kills - before
        if victim == "HTTP server":
            if not self._shop.answers():
                return 0
            self._shop.kill()
            self._shop.start()
            return 1
        for process in desks(self._book):
            with suppress(psutil.NoSuchProcess):
                process.kill()
                return 1
        return 0

    async def decide(self) -> None:
        """Decide the open requests of waiting runs."""
        self._worker.check()
        query = f"TaskQueue = '{QUEUE}' AND HoldfastStatus = 'waiting_approval' AND ExecutionStatus = 'Running'"
        waiting = {each.id async for each in self._client.list_workflows(query)}
        for person in self.people:
            if person.log.thread in waiting:
                await person.log.refresh()
                await person.decide()
        await asyncio.sleep(0.1)

    async def end(self) -> None:
        """Wait until every run has ended."""
        while not all(person.log.closed for person in self.people):
            await self.decide()
            for person in self.people:
                with suppress(RPCError):
                    if (await self._client.get_workflow_handle(person.log.thread).describe()).close_time:
                        await person.log.refresh()


def faults_of(person: Person, effects: Counter[str]) -> list[str]:
    """Return what is wrong with a run, one sentence each."""
    log = person.log
    faults = audit(log.events, effects=effects, sent=person.sent)
    for event in log.events:
        if not isinstance(event, ToolCallFinished):
            continue
        if event.status == "unknown":
            faults.append(f"nobody was asked about call {event.number}, whose outcome is unknown")
        if event.status == "failed" and effects[log.keys.get(event.number, "")]:
            faults.append(f"call {event.number} failed ({event.text[:200]}), and its effect has happened")
    return [f"{log.thread}: {fault}" for fault in faults]


def make_project(home: Path) -> Path:
    """Return the folder of the worker's catalog and of its `mcp.lock`; let the worker import from there, and from here.

    The worker has another current folder, so what it gets of `sys.path` has to be absolute.
    """
    project = home / "project"
    project.mkdir()
    (project / "clerks.py").write_text(CATALOG)
    sys.path[:] = [str(Path(each).absolute()) for each in (*sys.path, str(project))]
    return project


async def measure(stack: Stack, home: Path, *, kills: int, runs: int, seed: int) -> Tally:
    """Kill that many times, and compare the logs with the book."""
    over = False

    def script(conversation: Conversation) -> Reply:
        turn, sleeps = divmod(conversation.replies, 2)
        if sleeps:
            return call("sleep_until", until=NAP)
        return say("served") if over else together(*(call(name, order=f"{turn}") for name in TURNS[turn % len(TURNS)]))

    book = home / "book.txt"
    book.touch()
    shop = Shop(book)
    project = make_project(home)
    with ScriptedLLM(script) as llm:
        client = await connect_stack(stack)
        await ensure_search_attributes(client)
        environ = {
            "HOLDFAST_HOME": str(home),
            "HOLDFAST_CATALOG": "clerks:catalog",
            "HOLDFAST_TASK_QUEUE": QUEUE,
            "OPENAI_BASE_URL": llm.base_url,
            "DATABASE_URL": stack.database_url,
            BOOK: str(book),
            PORT: str(shop.port),
        }
        worker = KillableWorker(home / "doomed", environ=environ, project=project)
        drill = Drill(client, worker, shop, book, random.Random(seed))
        reporting = asyncio.create_task(_report(drill))
        try:
            await asyncio.to_thread(worker.start)
            await drill.start(runs)
            await drill.kill(kills)
            over = True
            with suppress(TimeoutError):  # runs that have not ended by then are reported below
                async with asyncio.timeout(PATIENCE):
                    await drill.end()
        finally:
            reporting.cancel()
            await asyncio.to_thread(worker.stop)
            await asyncio.to_thread(shop.kill)
    return judge(drill, book)


async def _report(drill: Drill) -> None:
    while True:
        await asyncio.sleep(30)
        print(f"{drill.kills.total()} kills …", file=sys.stderr, flush=True)


def judge(drill: Drill, book: Path) -> Tally:
    """Return what is wrong, and the figures."""
    effects, tally = drill.effects(), Tally(kills=drill.kills)
    tally.wrong = [fault for person in drill.people for fault in faults_of(person, effects)]
    keys = {key for person in drill.people for key in person.log.keys.values()}
    tally.wrong += [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]
    tally.wrong += [f"process {process.pid} of a server is left" for process in desks(book)]
    events = [event for person in drill.people for event in person.log.events]
    asked = sum(isinstance(event, ReconcileRequested) for event in events)
    calls = sum(isinstance(event, ToolCallRequested) and not event.own for event in events)
    failed = sum(isinstance(event, ToolCallFinished) and event.status == "failed" for event in events)
    ended = sum(person.log.closed for person in drill.people)
    tally.lines = [
        f"- {ended} of {len(drill.people)} runs ended; {calls:,} calls, of which {failed} failed before anything was "
        f"sent or without an effect; {sum(effects.values()):,} effects",
        f"- {asked} times people were asked what became of a call",
    ]
    return tally


def main(
    kills: Annotated[int, typer.Option(min=1)] = 200,
    runs: Annotated[int, typer.Option(min=1)] = 50,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill a worker and its MCP servers that many times, on a separate embedded stack."""
    began = time.monotonic()
    with open_stack() as (stack, home):
        tally = asyncio.run(measure(stack, home, kills=kills, runs=runs, seed=seed))
    minutes = (time.monotonic() - began) / 60
    victims = ", ".join(f"{count} of the {victim}" for victim, count in sorted(tally.kills.items()))
    lines = [
        f"- {tally.kills.total()} SIGKILLs ({victims}) in {minutes:.0f} min: **{len(tally.wrong)} effects doubled or "
        "lost, runs stuck, unknown outcomes that nobody was asked about, or servers left**",
        *tally.lines,
        *(f"- WRONG: {what}" for what in tally.wrong),
    ]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.mcp_kills --kills {kills} --runs {runs} --seed {seed}`. {ABOUT}"
        document.write("mcp-kills", "\n".join(["## MCP servers that are killed", "", about, "", *lines]))
    leave(bool(tally.wrong))


if __name__ == "__main__":
    typer.run(main)
