"""Drives a contender's worker and a reader of its streams in two processes, and kills the worker within a reply."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.environment import observation
from bench.peers.contender import OBSERVATION, Setup
from bench.peers.contenders import CONTENDERS, STREAMED
from bench.peers.driver import ROOT, STALL, STARTING, Progress, WorkerDied, WorkerProcess, open_worker
from bench.peers.figures import cause
from bench.peers.llm import ModelServer, Pace
from bench.peers.meters import actions, settled_actions
from bench.peers.shown import Piece, Streamed, delay_after, screen_of

WARM_UP = 2
"""Steps before the first measurement."""
KILL_STEP = 3
"""The step within whose reply the worker is killed."""
PATIENCE = 120.0
"""Seconds for a stream to continue after a kill, and to end after its run."""


class Reader:
    """A process that reads the stream of a run."""

    def __init__(self, contender: str, setup: Setup, run: str) -> None:
        self.pieces: list[Piece] = []
        self._changed = threading.Condition()
        self._ready = self._ended = False
        environ = os.environ | {OBSERVATION: observation(), "OPENAI_API_KEY": "bench"}
        with (Path(setup.home) / "logs" / f"reader-{contender}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.reader", contender, setup.dump(), run],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()
        if not self.wait_for(lambda: self._ready, STARTING):
            raise WorkerDied(f"the reader of {contender} did not start")

    def begin(self) -> None:
        """Let it read: the run has been started."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def wait_for(self, met: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition of its pieces is met; return False after the time-out or the end of the stream."""
        with self._changed:
            return self._changed.wait_for(lambda: met() or self._ended, timeout) and met()

    def wait(self, timeout: float) -> bool:
        """Wait until the stream has ended."""
        return self.wait_for(lambda: self._ended, timeout)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                if fields := json.loads(line):
                    self.pieces.append(Piece(**fields))
                self._ready = True
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@contextmanager
def reading(contender: str, setup: Setup, run: str) -> Iterator[Reader]:
    """Run a reader during the block."""
    reader = Reader(contender, setup, run)
    try:
        yield reader
    finally:
        reader.close()


def measure_streams(
    contender: str, setup: Setup, model: ModelServer, pace: Pace, *, steps: int, progress: Progress
) -> Streamed:
    """Measure one contender without streams, with a reader, and with a kill within a reply."""
    title, streaming = CONTENDERS[contender].title, STREAMED[contender]
    try:
        progress(f"{title}: {steps} steps without streams")
        with open_worker(contender, setup, model) as worker:
            _run(worker, f"{contender}-whole-warm", WARM_UP)
            plain = _run(worker, f"{contender}-whole", steps)
        progress(f"{title}: {steps} steps, streamed")
        with open_worker(streaming, setup, model) as worker:
            _read_run(worker, f"{contender}-read-warm", WARM_UP)
            streamed, pieces = _read_run(worker, f"{contender}-read", steps)
        progress(f"{title}: SIGKILL within a streamed reply")
        killed = _kill(streaming, setup, model, pace, f"{contender}-killed")
    except (WorkerDied, BrokenPipeError) as death:
        return Streamed(contender, died=cause(str(death)))
    screen, after = screen_of(pieces), screen_of(killed.pieces)
    return Streamed(
        contender=contender,
        plain_bytes=plain.stored / steps,
        bytes=streamed.stored / steps,
        plain_actions=plain.actions / steps,
        actions=streamed.actions / steps,
        first=tuple(screen.first.values()),
        lost=screen.lost(steps, pace.tokens) + after.lost(KILL_STEP + 1, pace.tokens),
        shown=killed.shown,
        twice=after.twice,
        restarts=after.restarts,
        resumed=delay_after(killed.pieces, killed.at),
    )


@dataclass(frozen=True)
class _Cost:
    stored: int
    actions: int


@dataclass(frozen=True)
class _Killed:
    pieces: list[Piece]
    at: float
    """The time of the kill."""
    shown: int
    """The characters of the reply that the reader had shown then."""


def _run(worker: WorkerProcess, name: str, steps: int) -> _Cost:
    before = actions(worker.setup)
    worker.send(name=name, steps=steps)
    return _finish(worker, before)


def _finish(worker: WorkerProcess, before: int) -> _Cost:
    answer = worker.answer(stall=STALL)
    if answer["error"]:
        raise WorkerDied(answer["error"])
    return _Cost(answer["stored"], settled_actions(worker.setup) - before)


def _read_run(worker: WorkerProcess, name: str, steps: int) -> tuple[_Cost, list[Piece]]:
    with reading(worker.contender, worker.setup, name) as reader:
        before = actions(worker.setup)
        worker.send(name=name, steps=steps)
        reader.begin()
        cost = _finish(worker, before)
        if not reader.wait(PATIENCE):
            raise WorkerDied("the stream did not end with its run")
        return cost, reader.pieces


def _kill(contender: str, setup: Setup, model: ModelServer, pace: Pace, name: str) -> _Killed:
    """Kill the worker when the reader has half of the tokens of a reply, and start another one at once."""

    def halfway() -> bool:
        numbers = [number for step, number in screen_of(reader.pieces).tokens if step == KILL_STEP]
        return len(numbers) >= pace.tokens // 2

    with reading(contender, setup, name) as reader:
        with open_worker(contender, setup, model) as worker:
            worker.send(name=name, steps=KILL_STEP + 1)
            reader.begin()
            if not reader.wait_for(halfway, setup.limit):
                raise WorkerDied("the stream did not get that far")
            worker.kill()
            at = time.monotonic()
        time.sleep(0.5)  # what is on its way is shown; the successor's first token is not
        shown = len(screen_of(reader.pieces).draft_of(KILL_STEP))
        with open_worker(contender, setup, model) as successor:
            successor.send(name=name)
            if error := successor.answer(stall=None)["error"]:
                raise WorkerDied(error)
            if not reader.wait(PATIENCE):
                raise WorkerDied("the stream did not end with its run")
        return _Killed(reader.pieces, at, shown)
