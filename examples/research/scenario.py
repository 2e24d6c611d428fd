"""The demo's scenario: a tree of agents works, waits and sleeps; its worker is killed, and a person steers it."""

import asyncio
from datetime import timedelta

import psycopg

from holdfast import (
    AgentEvent,
    ApprovalRequested,
    BudgetExtended,
    BudgetLow,
    DormancyBegan,
    ReconcileRequested,
    RunBlocked,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
)
from holdfast.client.connect import connect_stack
from holdfast.config.programs import CLI
from holdfast.core.run.rules.budget import BUDGET_SPENT
from holdfast.core.tools.triggers import EventTrigger, TimeTrigger
from holdfast.examples.research import documents, report
from holdfast.examples.research.lines import read_lines
from holdfast.examples.research.steering import IMPATIENT, PERSON, SETTINGS, THREAD, TreeDemo
from holdfast.examples.research.tools import findings_of, reports_of
from holdfast.examples.research.watch import Tree
from holdfast.examples.shared.commands import Commands
from holdfast.examples.shared.facts import Kill, Row
from holdfast.examples.shared.workers import HOLDFAST, DemoFailed

SLOW_CONFIRMATION = {"HOLDFAST_EXAMPLE_CONFIRM_SECONDS": "600"}
"""Settings of a worker that is killed between an effect and its record. The next worker finds the effect, so nothing
waits this long."""
TASK = "Should we keep our job queue in PostgreSQL, or move it to a broker? Also compare the brokers one by one."
NARROWER = "Only PostgreSQL or a broker. Leave out the comparison of brokers."
MORE = "steps=10"
"""The amount that the person adds to the budget."""
FIRST_ROUND = 3
"""Sub-agents that the scripted lead starts in one reply."""


class Demo(TreeDemo):
    """One run of the demo."""

    async def facts(self) -> list[Row]:
        """Run the scenario, and collect the facts."""
        documents.create(self._library)
        count = len(list(self._library.iterdir()))
        self._progress.report("demo", f"made a library of {count} documents: {self._library.name}")
        self._start_worker(SLOW_CONFIRMATION)
        await self._worker_ready()
        self._client = await connect_stack(self._stack())
        self._tree = Tree(self._client, THREAD)
        await self._start_run()
        while not (self._tree.ended and not self._unseen):
            await self._until(lambda: self._unseen)
            if self._unseen:
                await self._act_on(*self._unseen.popleft())
        seconds = self._progress.elapsed
        await self._tree.close()
        return await self._count(seconds)

    async def _start_run(self) -> None:
        self._progress.gap()
        folder = ["--workspace", str(self._library)]
        started = await self._commands.starter("start", TASK, "--thread", THREAD, "--by", PERSON, *folder)
        self._progress.report(
            "person", f'{CLI.command("start")} "{TASK}" --workspace …/{self._library.name}', whole=True
        )
        self._progress.report("lead", f"open it in the Web UI: {started.get('ui')}", whole=True)

    async def _act_on(self, thread: str, event: AgentEvent) -> None:
        match event:
            case SubagentStarted() if not self._kills:
                await self._kill_while_children_work()
            case SubagentEnded() if thread == THREAD:
                self._verified[event.thread] = asyncio.create_task(self._verify(event.thread))
            case DormancyBegan(trigger=EventTrigger(event=documents.EVENT)):
                await self._send_event()
            case DormancyBegan(trigger=TimeTrigger(until=until)):
                await self._kill_while_asleep(until - event.at)
            case ApprovalRequested(request=request) if len(self._kills) == 2:
                await self._kill_while_asking(thread, request.id)
                await self._kill_while_publishing(thread, request.id, request.number)
            case ApprovalRequested(request=request):
                await self._person("approve", thread, request.id)
            case RunBlocked(cause=cause) if cause == BUDGET_SPENT:
                await self._extend()
            case RunBlocked():
                raise DemoFailed(f"{thread} is blocked ({event.cause}): {event.message}. Fix it, and start again")
            case ReconcileRequested(request=request):
                raise DemoFailed(f"{thread} asks a person whether {request.tool} happened: {request.why}")
            case _:
                pass

    async def _kill_while_children_work(self) -> None:
        """Narrow the task, show the tree, and kill the worker while each sub-agent has an unrecorded finding."""
        await self._until(self._children_file)
        if not self._unrecorded():
            return  # an LLM that files nothing; the demo waits for the next sub-agent
        self._progress.gap()
        await self._person("refine", THREAD, "--narrow", NARROWER)
        await self._until(lambda: self._has(TaskRefined))
        commands = [("show", THREAD, "--tree"), ("list", "--tree")]
        shown = await asyncio.gather(*(self._commands.run(*HOLDFAST, *words) for words in commands))
        for words, output in zip(commands, shown, strict=True):
            self._progress.report("person", CLI.command(*words))
            self._progress.text(output)
        await self._until(self._children_file)
        wanted = f"{1 + len(self._tree.children)} runs RUNNING, effects without a record: {self._unrecorded()}"
        at = self._kill("while sub-agents work: each has filed its finding, and no result is recorded")
        views = [await run.on_server() for run in self._tree.runs]
        running = sum(view.status == "RUNNING" for view in views)
        calls = sum(activity.startswith("call_tool,") for view in views for activity in view.activities)
        seen = f"{running} runs RUNNING, effects without a record: {calls}"
        self._kills.append(Kill("sub-agents at work", at, seen=seen, wanted=wanted))
        self._progress.report("server", f"no worker is alive; Temporal has the tree: {seen}")
        self._start_worker()
        await self._worker_ready()

    async def _send_event(self) -> None:
        """Deliver the awaited document, and announce it as a CI system would."""
        self._progress.gap()
        arrived = documents.deliver(self._library)
        self._progress.report("ci", f"puts {arrived.name} into the library, and sends an event")
        data = '{"topic": "queue"}'
        words = ["wake", THREAD, "--event", documents.EVENT, "--data", data, "--id", "soak-1"]
        sent = await self._commands.starter(*words, "--by", "ci")
        self._progress.report("ci", CLI.command(*words), note=str(sent.get("outcome")))

    async def _kill_while_asleep(self, left: timedelta) -> None:
        """Extend the budget while the lead sleeps, kill its worker, and let the night pass."""
        if self._has(BudgetLow) and not self._has(BudgetExtended):
            await self._extend()
        if len(self._kills) == 1:
            await self._until_on_server("dormant")
            at = self._kill("while the lead sleeps")
            view = await self._tree.root.on_server()
            seen = f"{view.status}, {view.holdfast_status}"
            self._kills.append(Kill("asleep", at, seen=seen, wanted="RUNNING, dormant"))
            self._progress.report("server", f"no worker is alive; Temporal has the run and its timer: {seen}")
            self._start_worker()
            await self._worker_ready()
        hours = f"{-(-left // timedelta(hours=1))}h"
        with self._progress.waiting("the night passes"):
            await self._person("skip", THREAD, hours)

    async def _kill_while_asking(self, thread: str, request: str) -> None:
        """Kill the worker while a request is open, and read the request without a worker."""
        await self._until_on_server("waiting_approval")
        at = self._kill("while a request is open")
        view = await self._tree.root.on_server()
        pending = await Commands(self._folder.home, {**SETTINGS, **IMPATIENT}).starter("pending", thread)
        seen = f"{view.status}, open requests: {view.open_requests}, `pending` has {pending.get('request')}"
        wanted = f"RUNNING, open requests: 1, `pending` has {request}"
        self._kills.append(Kill("waiting for approval", at, seen=seen, wanted=wanted))
        self._progress.report("server", f"no worker is alive; {view.status}, open requests: {view.open_requests}")
        self._progress.report("person", f"{CLI.command('pending', thread)} reads request {pending.get('request')}")
        self._start_worker(SLOW_CONFIRMATION)
        await self._worker_ready()

    async def _kill_while_publishing(self, thread: str, request: str, number: int) -> None:
        """Approve, and kill the worker after the report is published, but before its result is recorded."""
        await self._person("approve", thread, request, "--reason", "well founded")
        await self._until(lambda: self._reports() or self._finished(thread, number))
        if self._finished(thread, number):
            return  # the tool rejected the call without publishing, and the LLM has the reason
        at = self._kill("after publish_report has happened, before its result is recorded")
        view = await self._tree.root.on_server()
        calls = sum(activity.startswith("call_tool,") for activity in view.activities)
        seen = f"{view.status}, pending calls: {calls}, reports: {self._reports()}"
        self._kills.append(Kill("publishing", at, seen=seen, wanted="RUNNING, pending calls: 1, reports: 1"))
        self._progress.report("server", f"no worker is alive; Temporal has the run: {seen}")
        self._start_worker()
        await self._worker_ready()

    async def _extend(self) -> None:
        self._progress.gap()
        await self._person("extend", THREAD, "--budget", MORE, "--reason", "worth it")
        await self._until(lambda: self._has(BudgetExtended))

    async def _count(self, seconds: float) -> list[Row]:
        """Collect the results of the demo, and compare them with the expected ones."""
        runs = self._tree.runs
        root, shown = await asyncio.gather(self._verify(THREAD), self._commands.starter("show", THREAD))
        ending = report.Ending(
            logs={run.thread: run.events for run in runs},
            started=await self._started(len(runs)),
            verified={THREAD: root} | {thread: await verified for thread, verified in self._verified.items()},
            kills=self._kills,
            shown=shown,
            library=self._library,
            ledger=await asyncio.to_thread(self._ledger),
            scripted=self._scripted,
            seconds=seconds,
        )
        return report.rows(ending)

    def _ledger(self) -> list[bool]:
        """Return for each ledger row whether it has an outcome; the stack has no other runs than the tree's."""
        with psycopg.connect(self._stack().database_url) as database:
            rows = database.execute("SELECT outcome IS NOT NULL FROM holdfast.effects").fetchall()
        return [done for (done,) in rows]

    def _children_file(self) -> bool:
        """Return whether each sub-agent (with a real LLM: one of them) has filed an unrecorded finding."""
        expected = max(FIRST_ROUND, len(self._tree.children)) if self._scripted else 1
        return self._unrecorded() >= expected

    def _unrecorded(self) -> int:
        """Return the number of filed findings whose results are not recorded."""
        recorded = sum(
            isinstance(event, ToolCallFinished) and event.text.startswith("Filed ") for event in self._events()
        )
        return len(read_lines(findings_of(self._library))) - recorded

    def _reports(self) -> int:
        return len(read_lines(reports_of(self._library)))
