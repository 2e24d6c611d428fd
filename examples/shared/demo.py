"""The base of every demo: starts and restarts its worker, and finds its stack."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime

from holdfast.config.programs import WORKER
from holdfast.config.stack_file import Stack, read_stack
from holdfast.examples.shared.facts import Row
from holdfast.examples.shared.folders import DemoFolder
from holdfast.examples.shared.progress import Progress
from holdfast.examples.shared.workers import DemoFailed, Workers

POLL_SECONDS = 0.1
"""Seconds between a demo's checks for new events."""


def longest_silence(*, scripted: bool) -> float:
    """Return the seconds without events after which a demo fails; a real LLM is slow."""
    return 60.0 if scripted else 600.0


class BaseDemo(ABC):
    """A demo with one worker at a time.

    Args:
        folder: The demo's files.
        workers: Its workers.
        progress: The output for progress.
    """

    def __init__(self, folder: DemoFolder, workers: Workers, progress: Progress) -> None:
        self.workers = workers
        self._folder = folder
        self._progress = progress

    @abstractmethod
    async def facts(self) -> list[Row]:
        """Run the demo, and collect its facts while its servers still run.

        Raises:
            DemoFailed: The demo cannot continue.
            HoldfastError: A server does not respond.
        """

    def _start_worker(self, more: Mapping[str, str] | None = None) -> None:
        """Start a worker; `more` are environment variables for this worker only."""
        self.workers.start(more)
        command = WORKER.command(*self.workers.options)
        started = f"#{self.workers.started} starts: {command} (pid {self.workers.pid})"
        self._progress.report("worker", started)

    async def _worker_ready(self) -> None:
        number = self.workers.started
        servers = "sets up Temporal and PostgreSQL" if number == 1 else "attaches to the running servers"
        with self._progress.waiting(f"worker #{number} {servers}"):
            await self.workers.ready()
        self._progress.report("worker", f"#{number} is ready", note=f"Web UI {self._stack().ui_url}")

    def _report_kill(self, when: str) -> datetime:
        """Report that the worker was killed just now; return the time."""
        at = datetime.now(UTC)
        self._progress.gap()
        self._progress.report("kill", f"SIGKILL to worker #{self.workers.started} (pid {self.workers.pid}), {when}")
        return at

    def _stack(self) -> Stack:
        stack = read_stack(self._folder.home)
        if stack is None:
            raise DemoFailed(f"there is no stack in {self._folder.home}; see {self.workers.log}")
        return stack
