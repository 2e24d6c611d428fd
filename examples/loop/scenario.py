"""The demo's scenario: a loop is started, its worker is killed, and its tasks are edited by hand."""

import asyncio
import threading
import time
from pathlib import Path

from rich.console import Console

from holdfast.client.connect import connect_stack
from holdfast.config.programs import CLI
from holdfast.core.memory.tasks import parse_tasks
from holdfast.examples.loop import report, repository
from holdfast.examples.loop.commits import COMPLETED
from holdfast.examples.loop.jobs import HELP
from holdfast.examples.loop.progress import Progress
from holdfast.examples.loop.watch import Watch
from holdfast.examples.shared.commands import Commands
from holdfast.examples.shared.demo import POLL_SECONDS, BaseDemo, longest_silence
from holdfast.examples.shared.facts import Kill, Row
from holdfast.examples.shared.folders import DemoFolder
from holdfast.examples.shared.git import run_git
from holdfast.examples.shared.workers import DemoFailed, Workers

SETTINGS = {
    "HOLDFAST_CATALOG": "holdfast.examples.loop.catalog:catalog",
    "HOLDFAST_SCRIPT": "holdfast.examples.loop.script:script",
}
"""Environment variables of worker and starter."""
TASK = "Everything in features.json passes."
LOOP = "tally-loop"
PERSON = "maris"
DISRUPTED = 3
"""The iteration in which the loop is paused and its worker killed: the scripted LLM's second attempt at a task."""
MOST_KILLS = 3
"""The most attempts to kill between a commit and its record: sometimes the worker is faster."""


class Demo(BaseDemo):
    """One run of the demo.

    Args:
        folder: The demo's files.
        console: The output.
        scripted: Whether the scripted LLM drives it.
    """

    _progress: Progress

    def __init__(self, folder: DemoFolder, console: Console, *, scripted: bool) -> None:
        super().__init__(folder, Workers(folder.home, folder.logs, SETTINGS), Progress(console))
        self._commands = Commands(folder.home, SETTINGS)
        self._scripted = scripted
        self._kills: list[Kill] = []
        self._killed_in_time = False
        """True once a worker was killed after a commit, but before the result of its call was recorded."""
        self._pausing: asyncio.Task[None] | None = None
        self._edited = False
        self._verified: dict[str, asyncio.Task[bool]] = {}
        """Whether the log is intact, by thread."""
        self._renamed: tuple[str, str] | None = None
        """The title of the reworded task, before and after."""

    async def facts(self) -> list[Row]:
        """Run the scenario, and collect the facts."""
        base = self._make_repository()
        self._start_worker()
        await self._worker_ready()
        self._watch = Watch(await connect_stack(self._stack()), LOOP)
        await self._start_loop()
        stop = threading.Event()
        try:
            await self._follow(stop)
        finally:
            stop.set()
        seconds = self._progress.elapsed
        await self._watch.close()
        ending = report.Ending(
            state=self._watch.state,
            runs=self._watch.runs,
            parents={run.thread: (await run.on_server()).parent for run in self._watch.runs},
            verified={thread: await verified for thread, verified in self._verified.items()},
            kills=self._kills,
            repository=self._folder.repository,
            base=base,
            renamed=self._renamed,
            scripted=self._scripted,
            seconds=seconds,
        )
        return await asyncio.to_thread(report.rows, ending)

    def _make_repository(self) -> str:
        """Create the repository; return its first commit."""
        folder = repository.create(self._folder.repository)
        self._progress.report(
            "demo", f"made a git repository, {folder.name}: {len(repository.FEATURES)} features, none passes"
        )
        return run_git(folder, "rev-parse", "HEAD", author=repository.AUTHOR)

    async def _start_loop(self) -> None:
        self._progress.gap()
        started = await self._commands.starter(
            "loop", str(self._folder.repository), "--task", TASK, "--id", LOOP, "--by", PERSON
        )
        self._progress.report("person", f'{CLI.command("loop")} …/{self._folder.repository.name} --task "{TASK}"')
        self._progress.report("loop", f"open it in the Web UI: {started.get('ui')}", whole=True)

    async def _follow(self, stop: threading.Event) -> None:
        """Print events until the loop is done; pause it, kill its worker and edit its tasks in between.

        Raises:
            DemoFailed: The loop is blocked or has failed, or there are no more events.
        """
        patience = longest_silence(scripted=self._scripted)
        since = time.monotonic()
        killing: asyncio.Task[bool] | None = None
        while (status := self._watch.status) != "completed":
            if status not in ("running", "paused"):
                why = (self._watch.state["blocked"] or {}).get("message") or self._watch.state["result"]
                raise DemoFailed(f"the loop is {status}: {why}")
            poll = asyncio.create_task(self._poll())
            await asyncio.wait({poll, killing} if killing else {poll}, return_when=asyncio.FIRST_COMPLETED)
            if killing and killing.done():
                if killing.result():
                    await self._after_kill()
                killing, since = None, time.monotonic()
            if await poll:
                since = time.monotonic()
            elif time.monotonic() > since + patience:
                raise DemoFailed(f"no events for {patience:g} s; see {self.workers.log}")
            if self._should_disrupt():
                self._pausing = self._pausing or asyncio.create_task(self._pause())
                killing = killing or asyncio.create_task(asyncio.to_thread(self._kill_at_commit, stop))
            if not killing and not self.workers.alive():
                raise DemoFailed(f"worker #{self.workers.started} ended unexpectedly; see {self.workers.log}")
            if self._pausing and self._pausing.done():
                self._pausing.result()  # raises its error, if any
            if self._watch.status == "paused" and self._pausing and not self._edited:
                await self._pausing
                await self._edit_and_resume()

    async def _poll(self) -> bool:
        """Read and print new events; wait a moment if there are none."""
        news = await self._watch.news()
        self._progress.news(self._watch.iterations, news)
        for each in self._watch.iterations:
            if each["outcome"] and each["thread"] not in self._verified:
                self._verified[each["thread"]] = asyncio.create_task(self._verify(each["thread"]))
        if not news:
            await asyncio.sleep(POLL_SECONDS)
        return bool(news)

    def _should_disrupt(self) -> bool:
        """Return whether to pause the loop and kill its worker now."""
        current = self._watch.current
        due = current is not None and current["number"] >= DISRUPTED
        return due and not self._killed_in_time and len(self._kills) < MOST_KILLS

    async def _pause(self) -> None:
        """Pause the loop, like a person who wants to review the work and change the tasks."""
        paused = await self._commands.starter("pause", LOOP, "--by", PERSON, "--reason", "let me look")
        self._progress.report("person", CLI.command("pause", LOOP), note=str(paused.get("outcome")))

    def _kill_at_commit(self, stop: threading.Event) -> bool:
        """Kill the worker as soon as a task is committed as completed; return False if `stop` was set before.

        Runs in a thread, because the call ends about 20 ms after its commit.
        """
        log = self._folder.repository / ".git" / "logs" / "HEAD"
        before = _completions(log)
        while not stop.is_set():
            if _completions(log) > before:
                self.workers.kill()
                return True
            time.sleep(0.001)
        return False

    async def _after_kill(self) -> None:
        """Check the state after a kill between commit and record, and start a new worker."""
        at = self._report_kill("after complete_task has committed, before its result is recorded")
        run = self._watch.runs[-1]
        view = await run.on_server()
        subject = run_git(self._folder.repository, "log", "-1", "--format=%s", author=repository.AUTHOR)
        pending = sum(activity.startswith("call_tool,") for activity in view.activities)
        seen = f"{view.status}, pending calls: {pending}"
        self._kills.append(Kill("completing a task", at, seen=seen, wanted="RUNNING, pending calls: 1"))
        self._killed_in_time = seen == self._kills[-1].wanted
        self._progress.report("git", f"the last commit: {subject}")
        self._progress.report("server", f"no worker is alive; Temporal has {run.thread}: {seen}")
        self._start_worker()
        await self._worker_ready()
        self._progress.report("…", "Temporal waits for the dead worker's heartbeat, then retries the call", style="dim")

    async def _edit_and_resume(self) -> None:
        """Reword a task and add another, like a person in an editor, and resume the loop."""
        self._edited = True
        file = self._folder.repository / "TASKS.md"
        self._renamed = await asyncio.to_thread(edit_by_hand, file)
        self._progress.gap()
        if self._renamed:
            self._progress.report("person", f"edits TASKS.md: {self._renamed[0]!r} is now {self._renamed[1]!r}")
        self._progress.report("person", f"edits TASKS.md: adds {HELP!r}")
        resumed = await self._commands.starter("resume", LOOP, "--by", PERSON)
        self._progress.report("person", CLI.command("resume", LOOP), note=str(resumed.get("outcome")))

    async def _verify(self, thread: str) -> bool:
        """Return whether `starter.py verify` finds a log intact, in Temporal's histories and the permanent record."""
        try:
            verdict = await self._commands.starter("verify", thread)
        except DemoFailed:  # a non-zero exit code means that it is not intact
            return False
        return (verdict["verdict"], verdict["from"]) == ("proven", ["history", "record"])


def _completions(log: Path) -> int:
    """Count the moves of HEAD to a commit that completes a task."""
    return log.read_text(encoding="utf-8", errors="replace").count(f"\tcommit: {COMPLETED}")


def edit_by_hand(file: Path) -> tuple[str, str] | None:
    """Reword the first open task and add one; return its title before and after, or None if no task is open."""
    text = file.read_text(encoding="utf-8")
    first = next((task.title for task in parse_tasks(text) if task.status == "open"), None)
    reworded = f"{first}, and README.md mentions it"
    if first is not None:
        text = text.replace(f"[ ] {first}", f"[ ] {reworded}", 1)
    file.write_text(f"{text.rstrip()}\n- [ ] {HELP}\n", encoding="utf-8")
    return (first, reworded) if first is not None else None
