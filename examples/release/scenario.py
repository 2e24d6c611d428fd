"""The demo's scenario: a run is started, watched and approved, and its worker is killed twice."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

from rich.console import Console

from holdfast import (
    AgentEvent,
    ApprovalRequested,
    DecisionReceived,
    ReconcileRequested,
    RunBlocked,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.client.connect import connect_stack
from holdfast.config.programs import CLI
from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.examples.release import report, repository
from holdfast.examples.release.commands import Commands
from holdfast.examples.release.git import git
from holdfast.examples.release.progress import Progress
from holdfast.examples.release.tools import publications, registry_of
from holdfast.examples.shared.demo import POLL_SECONDS, BaseDemo, longest_silence
from holdfast.examples.shared.facts import Kill, Row
from holdfast.examples.shared.folders import DemoFolder
from holdfast.examples.shared.run import Run
from holdfast.examples.shared.workers import DemoFailed, Workers

SETTINGS = {
    "HOLDFAST_CATALOG": "holdfast.examples.release.catalog:catalog",
    "HOLDFAST_SCRIPT": "holdfast.examples.release.script:script",
    # The window in which the worker is killed. The next attempt finds the published line, so nothing waits this long.
    "HOLDFAST_EXAMPLE_CONFIRM_SECONDS": "20",
}
"""Environment variables of worker and starter."""
TASK = "Release the next version of this package."
THREAD = "release-trickle"

REPORT_SECONDS = 10.0
"""Seconds between reports of pending activities while there are no events."""


class Demo(BaseDemo):
    """One run of the demo.

    Args:
        folder: The demo's files.
        console: The output.
        scripted: Whether the scripted LLM drives it.
    """

    _progress: Progress

    def __init__(self, folder: DemoFolder, console: Console, *, scripted: bool) -> None:
        progress = Progress(console, scripted=scripted)
        super().__init__(folder, Workers(folder.home, folder.logs, SETTINGS), progress)
        self._commands = Commands(folder.home, SETTINGS)
        self._scripted = scripted
        self._kills: list[Kill] = []
        self._down = False
        """True while the worker is killed, and the run has recorded no event since."""
        self._unseen: deque[AgentEvent] = deque()
        """Events that were printed but not acted on yet."""

    async def facts(self) -> list[Row]:
        """Run the scenario, and collect the facts."""
        base = self._make_repository()
        self._start_worker()
        await self._worker_ready()
        self._run = Run(await connect_stack(self._stack()), THREAD)
        await self._start_run()
        while not isinstance(event := await self._next_event(), RunFinished):
            await self._act_on(event)
        seconds = self._progress.elapsed
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
        """Create the repository to release; return the commit from which the release starts."""
        folder = repository.create(self._folder.repository)
        count = len(git(folder, "rev-list", "v0.1.0..HEAD").splitlines())
        self._progress.report("demo", f"made a git repository, {folder.name}: {count} commits since v0.1.0")
        return git(folder, "rev-parse", "HEAD")

    async def _start_run(self) -> None:
        self._progress.gap()
        arguments = ["--thread", THREAD, "--agent", "release", "--workspace", str(self._folder.repository)]
        started = await self._commands.starter("start", TASK, *arguments)
        self._progress.report("person", f'{CLI.command("start")} "{TASK}" --workspace …/{self._folder.repository.name}')
        self._progress.report("run", f"open it in the Web UI: {started.get('ui')}", whole=True)

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
                raise DemoFailed(f"the run is blocked ({event.cause}): {event.message}. Fix it, and start again")
            case _:
                pass

    async def _kill_while_waiting(self, request: ApprovalRequest) -> None:
        """Kill the worker while the run waits for a decision, and decide while no worker runs."""
        still_open = self._open_requests()
        at = self._kill("while the run waits for a person")
        view = await self._run.on_server()
        seen = f"{view.status}, open requests: {view.open_requests}"
        self._kills.append(Kill("waiting for approval", at, seen=seen, wanted=f"RUNNING, open requests: {still_open}"))
        self._progress.report(
            "server", f"no worker is alive; Temporal has the run: {seen}, {view.history_events} events"
        )
        self._start_worker()
        await self._approve_by_signal(request)
        await self._resume("Temporal waits a few seconds for the previous worker, then lets any worker take the run")

    async def _kill_while_publishing(self, request: ApprovalRequest) -> None:
        """Kill the worker after the effect has happened, before its result is recorded."""
        answer = await self._commands.starter("approve", THREAD, request.id, "--by", "demo")
        self._progress.report("person", CLI.command("approve", THREAD, request.id), note=str(answer.get("outcome")))
        started, finished = (ToolCallStarted, request.number), (ToolCallFinished, request.number)
        await self._until(lambda: (self._published() and self._has(*started)) or self._has(*finished))
        if self._has(*finished):
            return  # the tool rejected the call without publishing, and the LLM has the reason
        at = self._kill("after publish has happened, before its result is recorded")
        view = await self._run.on_server()
        line = registry_of(self._folder.repository).read_text().strip()
        # Another activity may be archiving the run's events at the same time.
        pending = sum(activity.startswith("call_tool,") for activity in view.activities)
        seen = f"{view.status}, pending calls: {pending}, lines published: {self._published()}"
        self._kills.append(Kill("publishing", at, seen=seen, wanted="RUNNING, pending calls: 1, lines published: 1"))
        self._progress.report(
            "server", f"no worker is alive; Temporal has the run: {view.status}, {pending} tool call pending"
        )
        self._progress.report("registry", line)
        self._start_worker()
        await self._resume("Temporal waits for the dead worker's heartbeat, then retries the call")

    def _kill(self, when: str) -> datetime:
        """Kill the worker; return the time."""
        self.workers.kill()
        self._down = True
        return self._report_kill(when)

    async def _resume(self, reason: str) -> None:
        """Wait until the new worker is ready and the run resumes; print `reason` meanwhile."""
        await self._worker_ready()
        with self._progress.waiting(reason):
            await self._until(lambda: not self._down)

    async def _approve_by_signal(self, request: ApprovalRequest) -> None:
        """Approve as the Web UI does; the server accepts a signal even if no worker is alive."""
        self._progress.report(
            "person", await self._commands.signal(self._stack(), THREAD, {"request": request.id, "by": "demo"})
        )

    async def _next_event(self) -> AgentEvent:
        """Wait for the next event to act on."""
        await self._until(lambda: bool(self._unseen))
        return self._unseen.popleft()

    async def _until(self, condition: Callable[[], object]) -> None:
        """Print events until the condition holds, or the run is over.

        Raises:
            DemoFailed: There are no more events.
        """
        patience = longest_silence(scripted=self._scripted)
        since = reported = time.monotonic()
        while not (condition() or self._has(RunFinished)):
            if not self.workers.alive():
                raise DemoFailed(f"worker #{self.workers.started} ended unexpectedly; see {self.workers.log}")
            if await self._poll():
                since = reported = time.monotonic()
            elif (now := time.monotonic()) > since + patience:
                raise DemoFailed(f"no events for {patience:g} s; see {self.workers.log}")
            elif now > reported + REPORT_SECONDS:
                reported = now
                self._progress.report(
                    "server", "; ".join((await self._run.on_server()).activities) or "no pending activities"
                )

    def _has(self, kind: type[AgentEvent], number: int | None = None) -> bool:
        """Return whether the log has such an event (for that call)."""
        events = (event for event in self._run.events if isinstance(event, kind))
        return any(number is None or getattr(event, "number", None) == number for event in events)

    def _open_requests(self) -> int:
        requested = sum(isinstance(event, ApprovalRequested) for event in self._run.events)
        return requested - sum(isinstance(e, DecisionReceived) and e.outcome == "accepted" for e in self._run.events)

    def _published(self) -> int:
        return len(publications(self._folder.repository))

    async def _poll(self) -> bool:
        """Read and print new events; wait a moment if there are none."""
        news = await self._run.news()
        if not news:
            await asyncio.sleep(POLL_SECONDS)
            return False
        if self._down:
            self._down = False
            self._progress.report("run", "resumes", style="bold")
        for event in news:
            self._progress.event(event)
        self._unseen += news
        return True
