"""`python -m bench.programs`: kills a program that is servers, worker and client in one process, and runs it again.

Every fifth kill also hits the servers that the program started. Finally, the logs are compared with the outside world,
as in `bench.kills`.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated

import psutil
import typer

import holdfast
from bench import document
from bench.program import OPENED, SERVED, TASKS, catalog, script
from holdfast.config.stack_file import read_stack
from holdfast.testing.kill_matrix.audit import audit
from tests.support.outside import Api, Outside
from tests.support.processes import reserve_ports

ROOT = Path(__file__).resolve().parents[1]
ABOUT = (
    f"A program runs {TASKS} tasks at a time with `holdfast.run`, in a block of `holdfast.running`: embedded servers, "
    "worker and client of one process, and a person who decides. A kill is a SIGKILL of that process at a random "
    "moment, its start and its end included; every fifth also kills its servers. The program is then run again, until "
    "it has done its tasks. Each call in each log is compared with an HTTP server that counts and a file that grows."
)
STARTING = 0.25
"""The share of kills at any moment since the start of the process; the others come after its agents run."""
WITHIN = 6.0
"""Seconds within which a program is killed, after either."""


@dataclass
class Tally:
    """What happened."""

    kills: int = 0
    with_servers: int = 0
    rounds: int = 0
    logs: int = 0
    effects: int = 0
    effects_amid: int = 0
    """Those that happened before the last kill of their round."""
    asked: int = 0
    wrong: list[str] = field(default_factory=list)


class Programs:
    """Starts the program again and again.

    Args:
        folder: For its results, and its log.
        home: Its state folder.
        environ: More environment variables.
    """

    def __init__(self, folder: Path, home: Path, environ: dict[str, str]) -> None:
        self._home = home
        self._results = folder / "results"
        self._results.mkdir()
        self.opened = self._results / OPENED
        foreign = ("TEMPORAL_", "OPENAI_", "HOLDFAST_", "DATABASE_URL")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
        self.log = folder / "program.log"
        with self.log.open("wb") as output:
            self._forks = subprocess.Popen(
                [sys.executable, "-m", "bench.program", str(self._results)],
                cwd=ROOT,
                env={**kept, "HOLDFAST_HOME": str(home), **environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

    def start(self, turn: str) -> psutil.Process:
        """Run the program for a round."""
        self.opened.unlink(missing_ok=True)
        _pipe(self._forks.stdin).write(f"{turn}\n")
        _pipe(self._forks.stdin).flush()
        line = _pipe(self._forks.stdout).readline()
        assert line, self.log.read_text()
        return psutil.Process(int(line))

    def wait(self) -> int:
        """Wait for the end of the program; return its exit code."""
        return int(_pipe(self._forks.stdout).readline())

    def results(self, turn: str) -> dict[str, str] | None:
        """Return the result of each thread of a round; None while there are none."""
        path = self._results / f"{turn}.json"
        return dict(json.loads(path.read_text())) if path.exists() else None

    def kill_servers(self) -> None:
        """Kill the servers of the state folder, with their children."""
        if (stack := read_stack(self._home)) is None:
            return
        for pid in (stack.temporal_pid, stack.postgres_pid, stack.web_ui_pid):
            with suppress(psutil.Error, TypeError):
                server = psutil.Process(pid)
                if str(self._home) in " ".join(server.cmdline()):
                    for victim in (server, *server.children(recursive=True)):
                        victim.kill()

    def stop(self) -> None:
        """End the process that forks."""
        self._forks.communicate()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def measure(folder: Path, outside: Outside, *, kills: int, a_round: int, seed: int) -> Tally:
    """Kill the program that many times, at random moments, and check everything that it did."""
    chance, tally, home = random.Random(seed), Tally(), folder / "home"
    reserve_ports(home)
    programs = Programs(folder, home, outside.environ)
    rounds: list[str] = []
    try:
        while tally.kills < kills:
            rounds.append(turn := f"{seed}-{len(rounds)}")
            last, done = min(kills, tally.kills + a_round), sum(outside.effects().values())
            amid = done
            while programs.results(turn) is None:
                program = programs.start(turn)
                if tally.kills < last and _kill(program, programs.opened, chance):
                    tally.kills += 1
                    amid = sum(outside.effects().values())
                if (code := programs.wait()) > 0:
                    printed = programs.log.read_text()[-6000:]
                    tally.wrong.append(f"the program of round {turn} ended with {code}: {printed}")
                    return tally
                if code < 0 and tally.kills % 5 == 0:
                    programs.kill_servers()
                    tally.with_servers += 1
                print(f"{tally.kills} kills, round {turn}, {amid} effects …", file=sys.stderr, flush=True)
            tally.effects_amid += amid - done
    finally:
        programs.stop()
    tally.rounds = len(rounds)
    for turn in rounds:
        texts = programs.results(turn) or {}
        if sorted(texts.values()) != [SERVED] * TASKS:
            tally.wrong.append(f"round {turn} ended with {texts}")
    _judge(home, [thread for turn in rounds for thread in programs.results(turn) or {}], outside, tally)
    return tally


def _kill(program: psutil.Process, opened: Path, chance: random.Random) -> bool:
    """Kill a program at a random moment; return whether it was still running."""
    if chance.random() > STARTING:
        while not opened.exists() and _runs(program):
            time.sleep(0.005)
    moment = time.monotonic() + chance.uniform(0, WITHIN)
    while time.monotonic() < moment and _runs(program):
        time.sleep(0.005)
    if not _runs(program):
        return False
    with suppress(psutil.NoSuchProcess):  # it has ended this moment
        program.kill()
    return True


def _runs(program: psutil.Process) -> bool:
    """Whether a program runs: the process that forked it waits for it, and may have done so."""
    with suppress(psutil.NoSuchProcess):
        return program.status() != psutil.STATUS_ZOMBIE
    return False


def _judge(home: Path, threads: list[str], outside: Outside, tally: Tally) -> None:
    """Compare every log with the outside world."""
    outside.api.drain()
    effects, keys = outside.effects(), set[str]()

    async def read() -> None:
        async with holdfast.running(catalog, script=script, home=home) as client:
            for summary in await client.threads(limit=10_000):
                events = [event async for event in client.thread(summary.thread).events()]
                tally.logs += 1
                tally.asked += sum(event.type == "reconcile_requested" for event in events)
                tally.wrong.extend(f"{summary.thread}: {fault}" for fault in audit(events, effects=effects))
                keys.update(event.key for event in events if event.type == "tool_call_started")
                if summary.thread not in threads:
                    tally.wrong.append(f"{summary.thread} belongs to no task of a round")

    asyncio.run(read())
    tally.effects = sum(effects.values())
    tally.wrong += [f"effect {key} belongs to no call of any run" for key in effects if key not in keys]


def main(
    kills: Annotated[int, typer.Option(min=1)] = 200,
    a_round: Annotated[int, typer.Option(min=1, help="The most kills of a round, which is then left to end.")] = 20,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill a program that holds its agents itself that many times, at random moments."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as folder, Api() as api:
        tally = measure(
            Path(folder).resolve(), Outside(api, Path(folder) / "outbox"), kills=kills, a_round=a_round, seed=seed
        )
    minutes = (time.monotonic() - began) / 60
    lines = [
        f"- {tally.kills} SIGKILLs of one process ({tally.with_servers} with its servers), over {tally.rounds} rounds"
        f" of {TASKS} tasks, in {minutes:.0f} min: **{len(tally.wrong)} duplicates, lost effects or tasks without a"
        " result**",
        f"- {tally.logs} threads, one for each task; {tally.effects:,} external effects, {tally.effects_amid:,} of them"
        f" amid the kills; {tally.asked} times a person"
        " was asked whether an effect had happened",
        *(f"- WRONG: {fault}" for fault in tally.wrong),
    ]
    print("\n".join(lines))
    if write:
        about = f"`python -m bench.programs --kills {kills} --a-round {a_round} --seed {seed}`. {ABOUT}"
        document.write("programs", "\n".join(["## Programs", "", about, "", *lines]))
    sys.stdout.flush()
    os._exit(bool(tally.wrong))  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    typer.run(main)
