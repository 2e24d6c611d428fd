"""Building blocks of the demo's scenario: follow a tree of runs, run a person's commands, and kill workers."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console
from temporalio.client import Client

from holdfast import AgentEvent, ToolCallFinished
from holdfast.config.programs import CLI
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.examples.research.progress import Progress
from holdfast.examples.research.watch import Tree
from holdfast.examples.shared.commands import Commands
from holdfast.examples.shared.demo import POLL_SECONDS, BaseDemo, longest_silence
from holdfast.examples.shared.facts import Kill
from holdfast.examples.shared.folders import DemoFolder
from holdfast.examples.shared.workers import DemoFailed, Workers

SETTINGS = {
    "HOLDFAST_CATALOG": "holdfast.examples.research.catalog:catalog",
    "HOLDFAST_SCRIPT": "holdfast.examples.research.script:script",
    "COLUMNS": "100",
}
"""Environment variables of workers and commands."""
IMPATIENT = {"HOLDFAST_ANSWER_SECONDS": "2"}
"""Environment variables of a command that runs while no worker is alive to respond."""
THREAD = "queue-1"
PERSON = "maris"


class TreeDemo(BaseDemo):
    """A demo of one tree of runs.

    Args:
        folder: The demo's files.
        console: The output.
        scripted: Whether the scripted LLM drives it.
    """

    _progress: Progress
    _client: Client
    _tree: Tree

    def __init__(self, folder: DemoFolder, console: Console, *, scripted: bool) -> None:
        workers = Workers(folder.home, folder.logs, SETTINGS, options=("--skip-time",))
        super().__init__(folder, workers, Progress(console, THREAD))
        self._commands = Commands(folder.home, SETTINGS)
        self._library = folder.repository
        self._patience = longest_silence(scripted=scripted)
        self._scripted = scripted
        self._kills: list[Kill] = []
        self._verified: dict[str, asyncio.Task[bool]] = {}
        """Whether the log of each ended sub-agent is intact, by thread."""
        self._unseen: deque[tuple[str, AgentEvent]] = deque()
        """Events that were printed but not acted on yet."""

    async def _person(self, verb: str, *words: str) -> None:
        """Run a person's command, and report its outcome."""
        by = [] if verb == "skip" else ["--by", PERSON]
        done = await self._commands.starter(verb, *words, *by)
        self._progress.report("person", CLI.command(verb, *words), note=str(done.get("outcome", "")))

    def _kill(self, when: str) -> datetime:
        self.workers.kill()
        return self._report_kill(when)

    def _events(self) -> list[AgentEvent]:
        return [event for run in self._tree.runs for event in run.events]

    def _has(self, kind: type[AgentEvent]) -> bool:
        return any(isinstance(event, kind) for event in self._tree.root.events)

    def _finished(self, thread: str, number: int) -> bool:
        runs = (run for run in self._tree.runs if run.thread == thread)
        return any(isinstance(e, ToolCallFinished) and e.number == number for run in runs for e in run.events)

    async def _until_on_server(self, status: str) -> None:
        """Wait until the server shows this status of the root. That needs no worker."""
        deadline = time.monotonic() + self._patience
        while (view := await self._tree.root.on_server()).holdfast_status != status:
            if time.monotonic() > deadline:
                raise DemoFailed(f"{THREAD} is {view.holdfast_status}, not {status}; see {self.workers.log}")
            await asyncio.sleep(POLL_SECONDS)

    async def _until(self, condition: Callable[[], object]) -> None:
        """Print events until the condition holds, or the root has ended.

        Raises:
            DemoFailed: There are no more events.
        """
        since = time.monotonic()
        while not (condition() or self._tree.ended):
            if not self.workers.alive():
                raise DemoFailed(f"worker #{self.workers.started} ended unexpectedly; see {self.workers.log}")
            if news := await self._tree.news():
                since = time.monotonic()
                for thread, event in news:
                    self._progress.event(thread, event)
                self._unseen += news
            elif time.monotonic() > since + self._patience:
                raise DemoFailed(f"no events for {self._patience:g} s; see {self.workers.log}")
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _verify(self, thread: str) -> bool:
        """Return whether `starter.py verify` finds a log intact, in Temporal's histories and the permanent record."""
        try:
            verdict = await self._commands.starter("verify", thread)
        except DemoFailed:  # a non-zero exit code means that it is not intact
            return False
        return (verdict["verdict"], verdict["from"]) == ("proven", ["history", "record"])

    async def _started(self, wanted: int) -> int:
        """Return the number of agent runs ever started by the server, whose list lags a little."""
        deadline = time.monotonic() + self._patience
        while True:
            count = (await self._client.count_workflows(f"WorkflowType = '{WORKFLOW}'")).count
            if count >= wanted or time.monotonic() > deadline:
                return count
            await asyncio.sleep(POLL_SECONDS)
