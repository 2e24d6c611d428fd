"""Drives a worker process: starts it, sends it runs, watches the model server, and kills the process by its id."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.environment import observation
from bench.peers.contender import OBSERVATION, Setup
from bench.peers.contenders import CONTENDERS
from bench.peers.figures import Resume, Run, answers_before_kill, cause, repeats
from bench.peers.llm import ModelServer
from bench.peers.meters import actions, settled_actions, transactions

ROOT = Path(__file__).resolve().parent.parent.parent
WARM_UP = 10
"""Steps before the first measurement, for imports, connections and the server's caches."""
STARTING = 60.0
"""Seconds for a worker process to start."""
STALL = 45.0
"""Seconds without a model call after which an undisturbed run is aborted, because its retries keep failing."""
GRACE = 40.0
"""Seconds beyond the time limit for a worker to abort a run by itself."""

Progress = Callable[[str], None]
"""Receives a description before each run."""


class WorkerDied(Exception):
    """The worker process ended unexpectedly, or does not respond."""


class WorkerProcess:
    """One contender's worker process.

    Args:
        contender: The contender's name.
        setup: The addresses of all servers.
        model: The model server.
    """

    def __init__(self, contender: str, setup: Setup, model: ModelServer) -> None:
        self.contender = contender
        self.setup = setup
        self.model = model
        self._log = Path(setup.home) / "logs" / f"peer-{contender}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        environ = os.environ | {
            OBSERVATION: observation(),
            "OPENAI_BASE_URL": setup.llm_url,
            "OPENAI_API_KEY": "bench",
            # No contender sends traces.
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "LANGCHAIN_TRACING_V2": "false",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.worker", contender, setup.dump()],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def wait_until_ready(self) -> None:
        """Wait until the worker polls.

        Raises:
            WorkerDied: The worker does not start.
        """
        try:
            answer = self._answers.get(timeout=STARTING)
        except queue.Empty:
            answer = None
        if answer is None:
            raise WorkerDied(f"{self.contender} did not start:\n{self._tail()}")

    def send(self, **command: Any) -> None:
        """Send a command to the worker."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self, *, stall: float | None) -> dict[str, Any]:
        """Wait for the answer to a run; abort the run if it takes too long.

        Args:
            stall: Abort after this many seconds without a model call; None for never.

        Raises:
            WorkerDied: The process has ended, or does not respond.
        """
        begun = progressed = time.monotonic()
        seen, stopped = len(self.model.calls), False
        while time.monotonic() - begun < self.setup.limit + GRACE:
            try:
                answer = self._answers.get(timeout=0.25)
            except queue.Empty:
                if len(self.model.calls) > seen:
                    seen, progressed = len(self.model.calls), time.monotonic()
                if stall and not stopped and time.monotonic() - progressed > stall:
                    self.send(stop=True)
                    stopped = True
                continue
            if answer is None:
                raise WorkerDied(f"the worker process ended:\n{self._tail()}")
            return answer
        raise WorkerDied("time limit: the worker process does not respond")

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the worker's input; kill the worker if it does not end."""
        if self._process.stdin:
            with suppress(OSError):  # the worker may have ended before it read its input
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


@contextmanager
def open_worker(contender: str, setup: Setup, model: ModelServer) -> Iterator[WorkerProcess]:
    """Run a worker process during the block; yields it once it is ready."""
    worker = WorkerProcess(contender, setup, model)
    try:
        worker.wait_until_ready()
        yield worker
    finally:
        worker.close()


def measure(worker: WorkerProcess, *, server: str, steps: int, name: str) -> Run:
    """Measure one run."""
    first, about, setup = len(worker.model.calls), CONTENDERS[worker.contender], worker.setup
    before = actions(setup), transactions(setup)
    try:
        worker.send(name=name, steps=steps)
        answer = worker.answer(stall=STALL)
    except (WorkerDied, BrokenPipeError) as death:
        answer = {"seconds": 0.0, "cpu_seconds": 0.0, "stored": 0, "error": str(death)}
    acted = settled_actions(setup) - before[0] if about.temporal else None
    written = transactions(setup) - before[1] if about.postgres else None
    calls = worker.model.calls[first:]
    asked = {call.step for call in calls}
    error = answer["error"]
    if not error and asked != set(range(steps + 1)):
        error = f"it made {len(asked - {0})} steps of {steps}"
    return Run(
        contender=worker.contender,
        server=server,
        steps=steps,
        seconds=answer["seconds"],
        cpu_seconds=answer["cpu_seconds"],
        stored=answer["stored"],
        actions=acted,
        transactions=written,
        reached=max(asked, default=0),
        died=cause(error) if error else "",
        words=error[:1000],
        summaries=max(0, sum(call.step == 0 for call in calls) - 1),
    )


def measure_contender(
    contender: str,
    setup: Setup,
    model: ModelServer,
    *,
    server: str,
    lengths: Sequence[int],
    repeat: int | None,
    progress: Progress,
) -> list[Run]:
    """Measure all runs of one contender in one worker process, from short to long, until one fails."""
    title, longest = CONTENDERS[contender].title, CONTENDERS[contender].longest
    runs: list[Run] = []
    progress(f"{title}: warming up")
    try:
        with open_worker(contender, setup, model) as worker:
            warm = measure(worker, server=server, steps=WARM_UP, name=f"{contender}-{server}-warm")
            if warm.died:
                return [replace(warm, steps=min(lengths))]
            for steps in [steps for steps in lengths if longest is None or steps <= longest]:
                for number in range(repeat or repeats(steps)):
                    progress(f"{title}: {steps} steps")
                    runs.append(
                        measure(worker, server=server, steps=steps, name=f"{contender}-{server}-{steps}-{number}")
                    )
                    if runs[-1].died:
                        return runs
    except WorkerDied as error:
        runs.append(Run(contender, server, min(lengths), 0.0, 0.0, 0, None, None, 0, cause(str(error))))
    return runs


def measure_resume(contender: str, setup: Setup, model: ModelServer, *, steps: int, progress: Progress) -> Resume:
    """Kill the worker at 90 % of a run and start another one at once."""
    name = f"{contender}-resume-{steps}"
    progress(f"{CONTENDERS[contender].title}: SIGKILL at 90 % of {steps} steps")
    killed = answers_before_kill(steps)
    with open_worker(contender, setup, model) as worker:
        warm = measure(worker, server="", steps=WARM_UP, name=f"{name}-warm")
        first = len(model.calls)
        worker.send(name=name, steps=steps)
        if warm.died or not model.wait_for(first + killed, timeout=setup.limit):
            return Resume(contender, steps, killed, 0.0, 0.0, 0, warm.died or "it did not get that far")
        worker.kill()
        at, before = time.monotonic(), len(model.calls)
    error = ""
    try:
        with open_worker(contender, setup, model) as successor:
            successor.send(name=name)
            error = successor.answer(stall=None)["error"]
    except (WorkerDied, BrokenPipeError) as death:
        error = str(death)
    calls = model.calls[first:]
    later = [call.arrived for call in model.calls[before:]]
    if not error and {call.step for call in calls} != set(range(steps + 1)):
        error = "steps are missing"
    return Resume(
        contender=contender,
        steps=steps,
        killed=killed,
        next_call=later[0] - at if later else 0.0,
        done=later[-1] - at if later else 0.0,
        repeated=sum(call.step > 0 for call in calls) - len({call.step for call in calls} - {0}),
        died=cause(error) if error else "",
    )
