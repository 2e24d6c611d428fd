"""What every demo does behind the scenes: it starts its worker again and again, and knows its stack."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime

from examples.stage.facts import Row
from examples.stage.folders import DemoFolder
from examples.stage.narrator import Narrator
from examples.stage.workers import DemoFailed, Workers
from holdfast.runtime.config.stack_file import Stack, read_stack


class Backstage(ABC):
    """A demo with one worker at a time.

    Args:
        folder: Where everything of it is.
        workers: Its workers.
        tell: Where it is told.
    """

    def __init__(self, folder: DemoFolder, workers: Workers, tell: Narrator) -> None:
        self.workers = workers
        self._folder = folder
        self._narrator = tell

    @abstractmethod
    async def facts(self) -> list[Row]:
        """Play it, and count what happened while its servers still run.

        Raises:
            DemoFailed: It cannot go on.
            HoldfastError: A server does not answer.
        """

    def _start_worker(self) -> None:
        self.workers.start()
        started = f"#{self.workers.started} starts: python worker.py --dev (pid {self.workers.pid})"
        self._narrator.say("worker", started)

    async def _worker_ready(self) -> None:
        number = self.workers.started
        servers = "sets up Temporal and PostgreSQL" if number == 1 else "joins the servers that are running"
        with self._narrator.waiting(f"worker #{number} {servers}"):
            await self.workers.ready()
        self._narrator.say("worker", f"#{number} is ready", note=f"Web UI {self._stack().ui_url}")

    def _tell_kill(self, when: str) -> datetime:
        """Tell that the worker was killed just now; returns the time."""
        at = datetime.now(UTC)
        self._narrator.gap()
        self._narrator.say("kill", f"SIGKILL to worker #{self.workers.started} (pid {self.workers.pid}), {when}")
        return at

    def _stack(self) -> Stack:
        stack = read_stack(self._folder.home)
        if stack is None:
            raise DemoFailed(f"there is no stack in {self._folder.home}; look at {self.workers.log}")
        return stack
