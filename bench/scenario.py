"""A scenario of `bench.kills`: one worker with its runs, killed repeatedly while people decide."""

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from holdfast.client.publishing import publish
from holdfast.client.threads import Threads
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import INTERVENTION_BOUNDARIES
from holdfast.testing.kill_matrix.audit import RecordedLog
from holdfast.testing.kill_matrix.interventions import Interventions
from holdfast.testing.kill_matrix.person import Person
from holdfast.testing.kill_matrix.plan import Plan
from holdfast.testing.kill_matrix.process import KillableWorker
from tests.support.outside import Outside

PUBLISHED = "market.opened"
"""An event that is published to all waiting runs; others are sent to one run."""

TARGETS: tuple[tuple[tuple[str, ...] | None, int], ...] = (
    (None, 0),
    ((), 60),
    (("before effect", "after effect", "after call_tool"), 6),
    (
        (
            "after approval_requested",
            "after reconcile_requested",
            "before decision_received",
            "after decision_received",
        ),
        4,
    ),
    (INTERVENTION_BOUNDARIES, 6),
)
"""The targets of kills, with equal probability: any moment, any boundary, an effect, a decision, a pause or sleep. Each
comes with the most such boundaries that the worker passes first."""


@dataclass
class Figures:
    """Counts of all scenarios."""

    boundaries: Counter[str] = field(default_factory=Counter)
    """Kills by boundary."""
    frozen: int = 0
    """Decisions sent to a frozen worker just before it was killed."""
    updates: int = 0
    """Answered decisions that were sent by the update `decide`."""
    published: int = 0
    """Deliveries of published events to runs that waited."""


class Scenario:
    """One worker and its runs.

    Args:
        name: The worker's task queue.
        client: A connected client.
        worker: The worker, started.
        outside: The systems in which effects happen.
        chance: The source of randomness.
        figures: The counts to update.
    """

    def __init__(
        self,
        name: str,
        client: Client,
        worker: KillableWorker,
        outside: Outside,
        *,
        chance: random.Random,
        figures: Figures,
    ) -> None:
        self._name, self._client, self._worker, self._outside = name, client, worker, outside
        self._chance, self._figures = chance, figures
        self._updates: set[asyncio.Task[None]] = set()
        self._publishing: asyncio.Task[None] | None = None
        self.people: dict[str, Person] = {}
        self.others: dict[str, Interventions] = {}
        self.logs: list[RecordedLog] = []

    async def start(self, runs: int) -> None:
        """Start the runs."""
        for number in range(runs):
            thread = f"{self._name}-{number}"
            run = await self._client.start_workflow(WORKFLOW, RunInput(task="go"), id=thread, task_queue=self._name)
            log = RecordedLog(self._client, thread, str(run.first_execution_run_id))
            self.logs.append(log)
            self.people[thread] = Person(self._client, log, self._outside.effects)
            self.others[thread] = Interventions(self._client, log, published={PUBLISHED})

    async def kill(self, times: int) -> None:
        """Kill the worker that many times."""
        while self._worker.kills < times:
            where, most = self._chance.choice(TARGETS)
            if where is None:
                self._worker.set_plan(None)
                moment = time.monotonic() + self._chance.uniform(0.2, 10)
                while time.monotonic() < moment:
                    await self._decide()
                before = self._worker.kills
                self._worker.kill()
                self._figures.boundaries["any moment"] += self._worker.kills - before
                continue
            self._worker.set_plan(Plan(boundaries=where, skip=self._chance.randrange(most), most=1))
            while not (stop := self._worker.stopped()):
                await self._decide()
            if (person := self.people.get(stop.place.split("/")[0])) and self._chance.random() < 0.5:
                await person.log.refresh()
                before = len(person.sent)
                await person.decide()
                await self.others[person.log.thread].act()
                self._figures.frozen += len(person.sent) - before
            self._worker.kill()
            self._figures.boundaries[stop.boundary] += 1

    async def end(self) -> None:
        """Wait until every run has ended."""
        self._worker.set_plan(None)
        for others in self.others.values():
            others.ending = True
        while not all(log.closed for log in self.logs):
            await self._decide()
            for log in self.logs:
                with suppress(RPCError):
                    description = await self._client.get_workflow_handle(log.thread).describe()
                    if description.close_time:
                        await log.refresh()

    async def _decide(self) -> None:
        """Decide the open requests of waiting runs, and intervene in others."""
        self._worker.check()
        await self._intervene()
        query = f"TaskQueue = '{self._name}' AND HoldfastStatus = 'waiting_approval' AND ExecutionStatus = 'Running'"
        async for waiting in self._client.list_workflows(query):
            person = self.people[waiting.id]
            await person.log.refresh()
            if self._chance.random() < 0.3 and (open_requests := person.undecided()):
                answer = await person.answer(open_requests[0])
                person.mark_sent(answer)
                self._updates.add(task := asyncio.create_task(self._update(waiting.id, answer)))
                task.add_done_callback(self._updates.discard)
            await person.decide()
        await asyncio.sleep(0.1)

    async def _intervene(self) -> None:
        """Act on the runs that sleep or are paused, and on one other."""
        if self._publishing is None or self._publishing.done():
            self._publishing = asyncio.create_task(self._publish())
        query = (
            f"TaskQueue = '{self._name}' AND HoldfastStatus IN ('dormant', 'paused') AND ExecutionStatus = 'Running'"
        )
        acting = {run.id async for run in self._client.list_workflows(query)}
        for thread in sorted(acting | {self._chance.choice(sorted(self.others))}):
            with suppress(RPCError):
                await self.people[thread].log.refresh()
                await self.others[thread].act()

    async def _publish(self) -> None:
        """Publish an event to the runs that wait for it."""
        await asyncio.sleep(self._chance.uniform(0, 2))
        threads = Threads(self._client, task_queue=self._name)
        publication = await publish(threads, PUBLISHED, by="exchange", prefixes=[f"{self._name}-"])
        self._figures.published += len(publication.sent)

    async def _update(self, thread: str, answer: dict[str, str]) -> None:
        """Send a decision by update and wait for its outcome; without one, send it by signal."""
        handle = self._client.get_workflow_handle(thread)
        try:
            outcome = await handle.execute_update("decide", answer, rpc_timeout=timedelta(seconds=30))
        except (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError):
            signal = "approve" if answer["decision"] == "approve" else "reconcile"
            await handle.signal(signal, answer)
            return
        self._figures.updates += outcome["outcome"] == "accepted"
