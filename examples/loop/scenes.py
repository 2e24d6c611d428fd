"""The scenes of the demo: a loop is started, its worker killed in the midst of it, and its tasks edited by hand."""

import asyncio
import threading
import time
from pathlib import Path

from rich.console import Console

from examples.loop import report, repository
from examples.loop.jobs import HELP
from examples.loop.narrator import Narrator
from examples.loop.story import COMPLETED
from examples.loop.watch import Watch
from examples.stage.backstage import Backstage
from examples.stage.doors import Authenticator
from examples.stage.facts import Kill, Row
from examples.stage.folders import DemoFolder
from examples.stage.git import run_git
from examples.stage.workers import DemoFailed, Workers
from holdfast.memory.tasks import parse_tasks
from holdfast.runtime.client.connect import connect_stack

SETTINGS = {
    "HOLDFAST_CATALOG": "examples.loop.catalog:catalog",
    "HOLDFAST_SCRIPT": "examples.loop.script:script",
}
"""Environment variables of worker and starter."""
TASK = "Everything in features.json passes."
LOOP = "tally-loop"
PERSON = "maris"
MEDDLED = 3
"""The iteration in which the loop is paused and its worker killed: the scripted one's second attempt at a task."""
MOST_KILLS = 3
"""How often the demo tries to kill between a commit and its record: now and then the worker is faster."""
LOOK_SECONDS = 0.1
"""How often the demo looks for news."""
PATIENCE = 60.0
"""Seconds without news after which the demo gives up; a real LLM gets ten times as long."""


class Demo(Backstage):
    """One demo, scene by scene.

    Args:
        folder: Where everything of it is.
        console: Where it is told.
        scripted: Whether the scripted LLM drives it.
    """

    def __init__(self, folder: DemoFolder, console: Console, *, scripted: bool) -> None:
        self._tell = Narrator(console)
        super().__init__(folder, Workers(folder.home, folder.logs, SETTINGS), self._tell)
        self._doors = Authenticator(folder.home, SETTINGS)
        self._scripted = scripted
        self._kills: list[Kill] = []
        self._between = False
        """A worker was killed after a commit, and before the call that made it was recorded."""
        self._pausing: asyncio.Task[None] | None = None
        self._edited = False
        self._verified: dict[str, asyncio.Task[bool]] = {}
        """Thread → whether its log is intact."""
        self._renamed: tuple[str, str] | None = None
        """The task that a person has reworded: before, and after."""

    async def facts(self) -> list[Row]:
        """Play all scenes, and count what happened."""
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
        seconds = self._tell.elapsed
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
        """Make what is worked on; returns the commit that it begins with."""
        folder = repository.create(self._folder.repository)
        self._tell.say(
            "demo", f"made a git repository, {folder.name}: {len(repository.FEATURES)} features, none passes"
        )
        return run_git(folder, "rev-parse", "HEAD", author=repository.AUTHOR)

    async def _start_loop(self) -> None:
        self._tell.gap()
        started = await self._doors.starter(
            "loop", str(self._folder.repository), "--task", TASK, "--id", LOOP, "--by", PERSON
        )
        self._tell.say("person", f'python starter.py loop …/{self._folder.repository.name} --task "{TASK}"')
        self._tell.say("loop", f"open it in the Web UI: {started.get('ui')}", whole=True)

    async def _follow(self, stop: threading.Event) -> None:
        """Tell what happens until the loop is done, and meddle.

        Raises:
            DemoFailed: It cannot go on by itself, or nothing happens any more.
        """
        patience = PATIENCE * (1 if self._scripted else 10)
        since = time.monotonic()
        killing: asyncio.Task[bool] | None = None
        while (status := self._watch.status) != "completed":
            if status not in ("running", "dormant"):
                why = (self._watch.state["blocked"] or {}).get("message") or self._watch.state["result"]
                raise DemoFailed(f"the loop is {status}: {why}")
            look = asyncio.create_task(self._look())
            await asyncio.wait({look, killing} if killing else {look}, return_when=asyncio.FIRST_COMPLETED)
            if killing and killing.done():
                if killing.result():
                    await self._after_kill()
                killing, since = None, time.monotonic()
            if await look:
                since = time.monotonic()
            elif time.monotonic() > since + patience:
                raise DemoFailed(f"no news for {patience:g} s; look at {self.workers.log}")
            if self._meddles():
                self._pausing = self._pausing or asyncio.create_task(self._pause())
                killing = killing or asyncio.create_task(asyncio.to_thread(self._kill_at_commit, stop))
            if not killing and not self.workers.alive():
                raise DemoFailed(f"worker #{self.workers.started} ended by itself; look at {self.workers.log}")
            if self._pausing and self._pausing.done():
                self._pausing.result()  # whatever went wrong is told
            if self._watch.status == "dormant" and self._pausing and not self._edited:
                await self._pausing
                await self._edit_and_resume()

    async def _look(self) -> bool:
        """Read what is new, and tell it; wait a moment where nothing is."""
        news = await self._watch.news()
        self._tell.news(self._watch.iterations, news)
        for each in self._watch.iterations:
            if each["outcome"] and each["thread"] not in self._verified:
                self._verified[each["thread"]] = asyncio.create_task(self._verify(each["thread"]))
        if not news:
            await asyncio.sleep(LOOK_SECONDS)
        return bool(news)

    def _meddles(self) -> bool:
        """Whether it is time to pause the loop and to kill its worker."""
        current = self._watch.current
        due = current is not None and current["number"] >= MEDDLED
        return due and not self._between and len(self._kills) < MOST_KILLS

    async def _pause(self) -> None:
        """Scene: a person wants to look at what has been done, and to change what is to be done."""
        paused = await self._doors.starter("pause", LOOP, "--by", PERSON, "--reason", "let me look")
        self._tell.say("person", f"python starter.py pause {LOOP}", note=str(paused.get("outcome")))

    def _kill_at_commit(self, stop: threading.Event) -> bool:
        """Kill the worker the moment that a task is committed as completed; False if `stop` was set before.

        It runs in a thread: the call ends some 20 ms after its commit.
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
        """Scene: the task is committed as completed, and nobody was told."""
        at = self._tell_kill("after complete_task has committed, before its result is recorded")
        run = self._watch.runs[-1]
        found = await run.on_server()
        subject = run_git(self._folder.repository, "log", "-1", "--format=%s", author=repository.AUTHOR)
        under_way = sum(activity.startswith("call_tool,") for activity in found.activities)
        seen = f"{found.status}, calls under way: {under_way}"
        self._kills.append(Kill("completing a task", at, seen=seen, wanted="RUNNING, calls under way: 1"))
        self._between = seen == self._kills[-1].wanted
        self._tell.say("git", f"the last commit: {subject}")
        self._tell.say("server", f"no worker is alive; Temporal has {run.thread}: {seen}")
        self._start_worker()
        await self._worker_ready()
        self._tell.say("…", "Temporal waits for the dead worker's heartbeat, then makes another attempt", style="dim")

    async def _edit_and_resume(self) -> None:
        """Scene: a person rewords a task and adds another, in an editor."""
        self._edited = True
        file = self._folder.repository / "TASKS.md"
        self._renamed = await asyncio.to_thread(edit_by_hand, file)
        self._tell.gap()
        if self._renamed:
            self._tell.say("person", f"edits TASKS.md: {self._renamed[0]!r} is now {self._renamed[1]!r}")
        self._tell.say("person", f"edits TASKS.md: adds {HELP!r}")
        resumed = await self._doors.starter("resume", LOOP, "--by", PERSON)
        self._tell.say("person", f"python starter.py resume {LOOP}", note=str(resumed.get("outcome")))

    async def _verify(self, thread: str) -> bool:
        """Whether `starter.py verify` finds a thread's log intact, in Temporal's histories and in the record."""
        try:
            found = await self._doors.starter("verify", thread)
        except DemoFailed:  # it says so with its exit code
            return False
        return bool(found["ok"]) and found["from"] == ["history", "record"]


def _completions(log: Path) -> int:
    """How often HEAD has moved to a commit that completes a task."""
    return log.read_text(encoding="utf-8", errors="replace").count(f"\tcommit: {COMPLETED}")


def edit_by_hand(file: Path) -> tuple[str, str] | None:
    """Reword the first open task, and add one; returns the title before and after, None where no task is open."""
    text = file.read_text(encoding="utf-8")
    first = next((task.title for task in parse_tasks(text) if task.status == "open"), None)
    reworded = f"{first}, and README.md mentions it"
    if first is not None:
        text = text.replace(f"[ ] {first}", f"[ ] {reworded}", 1)
    file.write_text(f"{text.rstrip()}\n- [ ] {HELP}\n", encoding="utf-8")
    return (first, reworded) if first is not None else None
