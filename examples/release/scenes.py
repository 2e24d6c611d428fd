"""The scenes of the demo: a run is started, watched, approved, and its worker killed while nobody may lose anything."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console

from examples.release import report, repository
from examples.release.doors import Authenticator
from examples.release.git import git
from examples.release.narrator import Narrator
from examples.release.tools import publications, registry_of
from examples.stage.backstage import Backstage
from examples.stage.facts import Kill, Row
from examples.stage.folders import DemoFolder
from examples.stage.run import Run
from examples.stage.workers import DemoFailed, Workers
from holdfast.authority.approvals import ApprovalRequest
from holdfast.log.events import (
    AgentEvent,
    ApprovalRequested,
    DecisionReceived,
    ReconcileRequested,
    RunBlocked,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.runtime.client.connect import connect_stack

SETTINGS = {
    "HOLDFAST_CATALOG": "examples.release.catalog:catalog",
    "HOLDFAST_SCRIPT": "examples.release.script:script",
    # The window in which the worker is killed. Nobody waits for its end: the next attempt finds the line.
    "HOLDFAST_EXAMPLE_CONFIRM_SECONDS": "20",
}
"""Environment variables of worker and starter."""
TASK = "Release the next version of this package."
THREAD = "release-trickle"
LOOK_SECONDS = 0.1
"""How often the demo looks for news."""
PATIENCE = 60.0
"""Seconds without news after which the demo gives up; a real LLM gets ten times as long."""


TOLD_SECONDS = 10.0
"""How often the demo says what is under way where there is no news."""


class Demo(Backstage):
    """One demo, scene by scene.

    Args:
        folder: Where everything of it is.
        console: Where it is told.
        scripted: Whether the scripted LLM drives it.
    """

    def __init__(self, folder: DemoFolder, console: Console, *, scripted: bool) -> None:
        self._tell = Narrator(console, scripted=scripted)
        super().__init__(folder, Workers(folder.home, folder.logs, SETTINGS), self._tell)
        self._doors = Authenticator(folder.home, SETTINGS)
        self._scripted = scripted
        self._kills: list[Kill] = []
        self._down = False
        """The worker was killed, and nothing was heard of the run since."""
        self._unseen: deque[AgentEvent] = deque()
        """Events that were told and not acted on yet."""

    async def facts(self) -> list[Row]:
        """Play all scenes, and count what happened."""
        base = self._make_repository()
        self._start_worker()
        await self._worker_ready()
        self._run = Run(await connect_stack(self._stack()), THREAD)
        await self._start_run()
        while not isinstance(event := await self._next_event(), RunFinished):
            await self._act_on(event)
        seconds = self._tell.elapsed
        await self._run.close()
        ending = report.Ending(
            events=self._run.events,
            server=await self._run.on_server(),
            kills=self._kills,
            repository=self._folder.repository,
            base=base,
            database_url=self._stack().database_url,
            thread=THREAD,
            scripted=self._scripted,
            seconds=seconds,
        )
        return report.rows(ending)

    def _make_repository(self) -> str:
        """Make what is to be released; returns the commit the release starts from."""
        folder = repository.create(self._folder.repository)
        count = len(git(folder, "rev-list", "v0.1.0..HEAD").splitlines())
        self._tell.say("demo", f"made a git repository, {folder.name}: {count} commits since v0.1.0")
        return git(folder, "rev-parse", "HEAD")

    async def _start_run(self) -> None:
        self._tell.gap()
        arguments = ["--thread", THREAD, "--agent", "release", "--workspace", str(self._folder.repository)]
        started = await self._doors.starter("start", TASK, *arguments)
        self._tell.say("person", f'python starter.py start "{TASK}" --workspace …/{self._folder.repository.name}')
        self._tell.say("run", f"open it in the Web UI: {started.get('ui')}", whole=True)

    async def _act_on(self, event: AgentEvent) -> None:
        match event:
            case ApprovalRequested(request=request) if not self._kills:
                await self._kill_while_waiting(request)
            case ApprovalRequested(request=request) if request.tool == "publish" and len(self._kills) == 1:
                await self._kill_while_publishing(request)
            case ApprovalRequested(request=request):
                await self._approve_by_signal(request)
            case ReconcileRequested(request=request):
                raise DemoFailed(f"the run asks a person whether {request.tool} happened: {request.why}")
            case RunBlocked():
                raise DemoFailed(f"the run is blocked ({event.cause}): {event.message}. Mend it, and start again")
            case _:
                pass

    async def _kill_while_waiting(self, request: ApprovalRequest) -> None:
        """Scene: a person takes their time, the worker dies, and the decision comes while no worker is there."""
        still_open = self._open_requests()
        at = self._kill("while the run waits for a person")
        found = await self._run.on_server()
        seen = f"{found.status}, open requests: {found.open_requests}"
        self._kills.append(Kill("waiting for approval", at, seen=seen, wanted=f"RUNNING, open requests: {still_open}"))
        self._tell.say("server", f"no worker is alive; Temporal has the run: {seen}, {found.history_events} events")
        self._start_worker()
        await self._approve_by_signal(request)
        await self._go_on("Temporal offers the run to the worker that had it for a few seconds, then to any")

    async def _kill_while_publishing(self, request: ApprovalRequest) -> None:
        """Scene: the effect has happened, and the worker dies before anybody was told."""
        given = await self._doors.starter("approve", THREAD, request.id, "--by", "demo")
        self._tell.say("person", f"python starter.py approve {THREAD} {request.id}", note=str(given.get("outcome")))
        started, finished = (ToolCallStarted, request.number), (ToolCallFinished, request.number)
        await self._until(lambda: (self._published() and self._has(*started)) or self._has(*finished))
        if self._has(*finished):
            return  # it was refused without having published; the LLM was told why
        at = self._kill("after publish has happened, before its result is recorded")
        found = await self._run.on_server()
        line = registry_of(self._folder.repository).read_text().strip()
        # Beside it, the run may be writing down what it was when it paused.
        under_way = sum(activity.startswith("call_tool,") for activity in found.activities)
        seen = f"{found.status}, calls under way: {under_way}, lines published: {self._published()}"
        self._kills.append(Kill("publishing", at, seen=seen, wanted="RUNNING, calls under way: 1, lines published: 1"))
        self._tell.say(
            "server", f"no worker is alive; Temporal has the run: {found.status}, {under_way} tool call under way"
        )
        self._tell.say("registry", line)
        self._start_worker()
        await self._go_on("Temporal waits for the dead worker's heartbeat, then makes another attempt")

    def _kill(self, when: str) -> datetime:
        """Kill the worker; returns the time."""
        self.workers.kill()
        self._down = True
        return self._tell_kill(when)

    async def _go_on(self, why_it_takes: str) -> None:
        """Wait until the new worker is there, and the run goes on."""
        await self._worker_ready()
        with self._tell.waiting(why_it_takes):
            await self._until(lambda: not self._down)

    async def _approve_by_signal(self, request: ApprovalRequest) -> None:
        """Approve as the Web UI does; the server takes a signal whether or not a worker is alive."""
        self._tell.say("person", await self._doors.signal(self._stack(), THREAD, {"request": request.id, "by": "demo"}))

    async def _next_event(self) -> AgentEvent:
        """The next event to act on; waits for it."""
        await self._until(lambda: bool(self._unseen))
        return self._unseen.popleft()

    async def _until(self, condition: Callable[[], object]) -> None:
        """Tell what happens until the condition holds, or the run is over.

        Raises:
            DemoFailed: Nothing happens any more.
        """
        patience = PATIENCE * (1 if self._scripted else 10)
        since = told = time.monotonic()
        while not (condition() or self._has(RunFinished)):
            if not self.workers.alive():
                raise DemoFailed(f"worker #{self.workers.started} ended by itself; look at {self.workers.log}")
            if await self._look():
                since = told = time.monotonic()
            elif (now := time.monotonic()) > since + patience:
                raise DemoFailed(f"no news for {patience:g} s; look at {self.workers.log}")
            elif now > told + TOLD_SECONDS:
                told = now
                self._tell.say("server", "; ".join((await self._run.on_server()).activities) or "nothing under way")

    def _has(self, kind: type[AgentEvent], number: int | None = None) -> bool:
        """Whether such an event (about that call) is in the log."""
        found = (event for event in self._run.events if isinstance(event, kind))
        return any(number is None or getattr(event, "number", None) == number for event in found)

    def _open_requests(self) -> int:
        asked = sum(isinstance(event, ApprovalRequested) for event in self._run.events)
        return asked - sum(isinstance(e, DecisionReceived) and e.outcome == "accepted" for e in self._run.events)

    def _published(self) -> int:
        return len(publications(self._folder.repository))

    async def _look(self) -> bool:
        """Read what is new, and tell it; wait a moment where nothing is."""
        news = await self._run.news()
        if not news:
            await asyncio.sleep(LOOK_SECONDS)
            return False
        if self._down:
            self._down = False
            self._tell.say("run", "goes on", style="bold")
        for event in news:
            self._tell.event(event)
        self._unseen += news
        return True
