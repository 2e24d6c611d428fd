"""A worker process that is killed again and again, and lives again each time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from holdfast.testing.kill_matrix.plan import Plan, Stop, read_stops, write_plan

PATIENCE = 60.0
"""Seconds for a worker to be ready, and for it to end."""


class DoomedWorker:
    """`worker.py --dev`, on the stack that runs under `home`.

    Args:
        folder: For its log and its plan; created.
        worker: The file `worker.py`.
        environ: `HOLDFAST_HOME`, `HOLDFAST_CATALOG`, … Variables of these kinds are not inherited.
    """

    def __init__(self, folder: Path, *, worker: Path, environ: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._worker = worker
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._handled = 0
        self.kills = 0

    @property
    def log(self) -> str:
        """What all its processes have printed."""
        return (self._folder / "worker.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait until the first process is ready.

        Raises:
            AssertionError: It is not; the message holds its log.
        """
        kinds = ("TEMPORAL_", "OPENAI_", "HOLDFAST_", "DATABASE_URL")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(kinds)}
        # It imports what the test can import, the user's catalog too.
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "holdfast.testing.kill_matrix.worker", str(self._folder), str(self._worker)]
        with (self._folder / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--dev"],
                env=inherited | path | dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while "Ready." not in self.log:
            self.check()
            assert time.monotonic() < deadline, f"the worker was not ready within {PATIENCE:g} s:\n{self.log}"
            time.sleep(0.02)

    def check(self) -> None:
        """Raise AssertionError if it has ended by itself."""
        assert self._process is not None, "start() it first"
        assert self._process.poll() is None, f"the worker has ended by itself:\n{self.log}"

    def doom(self, plan: Plan | None) -> None:
        """From now on, stop there."""
        write_plan(self._folder, plan)
        self._handled = 0

    def stopped(self) -> Stop | None:
        """Where it has stopped and waits for what is to come; None while it works."""
        stops = read_stops(self._folder)
        return stops[self._handled] if len(stops) > self._handled else None

    def kill(self) -> None:
        """SIGKILL the worker process, stopped or not; the next one comes at once."""
        stop = self.stopped()
        self._handled += stop is not None
        with suppress(ProcessLookupError):
            os.kill(stop.pid if stop else int((self._folder / "pid").read_text()), signal.SIGKILL)
            self.kills += 1

    def go_on(self) -> None:
        """Let the worker process live on from where it has stopped."""
        stop = self.stopped()
        assert stop, "it has not stopped"
        self._handled += 1
        os.kill(stop.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it as Ctrl-C does, or else by force."""
        if self._process is None:
            return
        self.doom(None)
        process, self._process = self._process, None
        workers = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        for worker in workers:
            worker.resume()
        process.terminate()
        try:
            process.wait(PATIENCE / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for worker in workers:
            if worker.is_running():
                worker.kill()
