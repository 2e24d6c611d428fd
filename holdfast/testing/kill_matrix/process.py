"""A worker process that can be frozen and killed at boundaries, and restarts after each kill."""

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

PATIENCE = 180.0
"""The most seconds that a worker may take to be ready, and twice what it may take to end; a busy machine is slow."""


class KillableWorker:
    """Runs a worker with `--dev` on a stack that is already running.

    Args:
        folder: A folder for its log and its plan; created.
        environ: Variables such as `HOLDFAST_HOME` and `HOLDFAST_CATALOG`, which are not inherited.
        project: Its current folder; None for that of this process.
    """

    def __init__(self, folder: Path, *, environ: Mapping[str, str], project: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._project = project
        self._folder = folder
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._handled = 0
        self.kills = 0

    @property
    def log(self) -> str:
        """The output of all its processes."""
        return (self._folder / "worker.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the worker, and wait until its first process is ready.

        Raises:
            AssertionError: It did not become ready; the message holds its log.
        """
        kinds = ("TEMPORAL_", "OPENAI_", "HOLDFAST_", "DATABASE_URL")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(kinds)}
        # The worker must be able to import all that the test can, such as the user's catalog.
        path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "holdfast.testing.kill_matrix.worker", str(self._folder)]
        with (self._folder / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--dev"],
                env=inherited | path | dict(self._environ),
                cwd=self._project,
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
        """Check that the worker is running.

        Raises:
            AssertionError: It has ended by itself.
        """
        assert self._process is not None, "call start() first"
        assert self._process.poll() is None, f"the worker has ended by itself:\n{self.log}"

    def set_plan(self, plan: Plan | None) -> None:
        """Set the worker's future stops; None for none."""
        write_plan(self._folder, plan)
        self._handled = 0

    def stopped(self) -> Stop | None:
        """Return the stop at which the worker is frozen; None while it runs."""
        stops = read_stops(self._folder)
        return stops[self._handled] if len(stops) > self._handled else None

    def kill(self) -> None:
        """Send SIGKILL to the worker process, frozen or not; the next one starts at once."""
        stop = self.stopped()
        self._handled += stop is not None
        with suppress(ProcessLookupError):
            os.kill(stop.pid if stop else int((self._folder / "pid").read_text()), signal.SIGKILL)
            self.kills += 1

    def resume(self) -> None:
        """Resume the frozen worker process."""
        stop = self.stopped()
        assert stop, "the worker is not stopped"
        self._handled += 1
        os.kill(stop.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop the worker as Ctrl-C does, or by force if it does not end in time."""
        if self._process is None:
            return
        self.set_plan(None)
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
