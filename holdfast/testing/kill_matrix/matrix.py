"""The kill matrix: run your agent on a real worker and real servers, and kill the worker at every boundary.

    from holdfast.testing import BOUNDARIES, KillMatrix, call, say, steps
    from mycompany.testing import count_payments  # () -> {effect key: how often it happened}

    async def test_every_payment_happens_once(tmp_path):
        script = steps([call("pay", iban="DE02…", cents=100), say("Paid.")])
        with KillMatrix(
            catalog="mycompany.agents:catalog", script=script, effects=count_payments, home=tmp_path
        ) as matrix:
            for boundary in BOUNDARIES:
                await matrix.survive(boundary)

1. A boundary is a point between two actions of a worker process. The worker is frozen there and killed with SIGKILL
   from outside, so that none of its code runs afterwards. A server can be killed instead, while the worker is frozen.
2. Each run is killed once at each place of the boundary: three effects, three kills.
3. A simulated person approves every request, and answers truthfully whether an effect happened. With
   `intervene=True`, the run is also paused, resumed and refined, and gets the events that it sleeps for.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from uuid import uuid4

import psutil
from temporalio.service import RPCError

from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import AgentEvent, ReconcileRequested
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, is_free
from holdfast.endpoints.script import Script
from holdfast.endpoints.scripted_server import ScriptedLLM
from holdfast.errors import HoldfastError
from holdfast.testing.kill_matrix.audit import Effects, RecordedLog, audit, audit_stop
from holdfast.testing.kill_matrix.audit_interventions import audit_sent
from holdfast.testing.kill_matrix.interventions import Interventions
from holdfast.testing.kill_matrix.person import Person
from holdfast.testing.kill_matrix.plan import Plan, Stop
from holdfast.testing.kill_matrix.process import KillableWorker

LLM_OUTAGE_SECONDS = 1.0
"""Seconds that a killed LLM endpoint is unavailable; a killed server is unavailable until it has started again."""

Victim = Literal["worker", "temporal", "database", "llm"]


@dataclass(frozen=True)
class Survival:
    """The record of a run that survived its kills."""

    stops: tuple[Stop, ...]
    """The points at which it was killed; empty if the run never reaches the boundary."""
    events: tuple[AgentEvent, ...]
    decisions: int
    """The number of decisions that the simulated person sent."""

    @property
    def asked(self) -> int:
        """The number of questions to the simulated person whether an effect happened."""
        return sum(isinstance(event, ReconcileRequested) for event in self.events)


class KillMatrix:
    """A context manager that runs a worker with your catalog on its own Temporal server and database.

    Args:
        catalog: `package.module:attribute`, as for `holdfast worker --catalog`.
        script: The LLM's replies.
        effects: Returns the number of times that each effect has happened in the outside world, by its key
            (`ToolContext.key`).
        home: A folder for the stack's data and the worker's log.
        task: The task of each run.
        agent: The agent; None for the catalog's first.
        environ: More environment variables for the worker, such as the addresses of your test servers.
        patience: The most seconds that a run may take, including its kills.
    """

    def __init__(
        self,
        *,
        catalog: str,
        script: Script,
        effects: Callable[[], Effects],
        home: Path,
        task: str = "Go on.",
        agent: str | None = None,
        environ: Mapping[str, str] | None = None,
        patience: float = 300,
    ) -> None:
        ports = [port for port in random.sample(range(20_000, 30_000), 50) if is_free(port)]
        self.llm = ScriptedLLM(script, port=ports[3])
        self._catalog, self._effects, self._home = catalog, effects, home
        self._run = RunInput(task=task, agent=agent)
        self._environ = dict(environ or {})
        self._patience = patience
        self._queue = f"kills-{uuid4().hex[:8]}"
        # Neither well-known nor ephemeral ports, so that no other process takes one while a server is down.
        self._servers = DevStack(home / "stack", usual=Ports(*ports[:3]))
        self._stack: Stack | None = None
        self._worker: KillableWorker | None = None
        self._cleanup = ExitStack()

    @property
    def stack(self) -> Stack:
        """The addresses of its servers; your tools may store their effects in the same PostgreSQL."""
        assert self._stack, "use it in a `with` statement"
        return self._stack

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            cleanup.enter_context(self.llm)
            self._stack = self._servers.start()
            cleanup.callback(self._servers.stop)
            environ = {
                "HOLDFAST_HOME": str(self._servers.home),
                "HOLDFAST_CATALOG": self._catalog,
                "HOLDFAST_TASK_QUEUE": self._queue,
                "OPENAI_BASE_URL": self.llm.base_url,
                "DATABASE_URL": self.stack.database_url,
            }
            self._worker = KillableWorker(self._home / "worker", environ=environ | self._environ)
            cleanup.callback(self._worker.stop)
            self._worker.start()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    async def survive(
        self, *boundaries: str, victim: Victim = "worker", most: int | None = None, intervene: bool = False
    ) -> Survival:
        """Start a run, kill it at each place of the boundaries, and check its log and its effects at the end.

        Args:
            boundaries: Some of `BOUNDARIES` or `INTERVENTION_BOUNDARIES`, or others of that form.
                `reconcile_requested` occurs only after an interrupted effect, so if it is among them, the run is also
                killed after its effects.
            victim: The process to kill while the worker is at the boundary; a server is started again.
            most: The maximum number of kills; None for no limit.
            intervene: Pause, resume and refine the run, and end its sleeps with events (some early, all twice), with
                messages, and with requests to wake it.

        Returns:
            The points at which the run was killed, and its events.

        Raises:
            AssertionError: An effect happened twice or is lost, a decision, event or refinement is lost or counted
                twice, a wait ended twice or without a cause, something started while the run was paused, the run did
                not complete, its log is altered, or the worker did not stop at the boundary. The message names each
                fault.
        """
        assert self._worker, "use it in a `with` statement"
        if any(boundary.endswith(" reconcile_requested") for boundary in boundaries):
            boundaries = ("after effect", *boundaries)
        client = await connect_stack(self.stack)
        await ensure_search_attributes(client)
        self._worker.set_plan(Plan(boundaries=boundaries, most=most))
        before = dict(await asyncio.to_thread(self._effects))
        thread = f"kill-{uuid4().hex[:8]}"
        handle = await client.start_workflow(WORKFLOW, self._run, id=thread, task_queue=self._queue)
        log = RecordedLog(client, thread, str(handle.first_execution_run_id))
        person = Person(client, log, self._effects)
        interventions = Interventions(client, log)
        actions = [person.decide, interventions.act] if intervene else [person.decide]
        stops, faults = await self._run_to_end(log, actions, victim)
        effects = await asyncio.to_thread(self._effects)
        faults += audit(log.events, effects=effects, sent=person.sent)
        faults += audit_sent(log.events, ids=interventions.events, refinements=interventions.refinements)
        expected = {*before.items(), *((key, effects.get(key, 0)) for key in log.keys.values())}
        faults += [f"effect {key} belongs to no call" for key, count in effects.items() if (key, count) not in expected]
        assert not faults, f"{thread}, {victim} killed {', '.join(boundaries)}: " + "; ".join(faults)
        return Survival(tuple(stops), tuple(log.events), len(person.sent))

    async def _run_to_end(
        self, log: RecordedLog, actions: Sequence[Callable[[], Awaitable[None]]], victim: Victim
    ) -> tuple[list[Stop], list[str]]:
        """Kill the victim, and act on the run, until it has ended; return the stops, and the faults."""
        assert self._worker
        stops: list[Stop] = []
        faults: list[str] = []
        try:
            async with asyncio.timeout(self._patience):
                while not log.closed:
                    if stop := self._worker.stopped():
                        stops.append(stop)
                        await _refresh(log)
                        faults += audit_stop(log, stop)
                        await asyncio.to_thread(self._kill, victim)
                    self._worker.check()
                    await _refresh(log)
                    for act in actions:
                        await act()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            last = f"its last event is {log.events[-1]!r}" if log.events else "it has no event"
            details = f"{last}; the worker's log:\n{self._worker.log[-4000:]}"
            faults.append(f"the run did not end within {self._patience:g} s; {details}")
        finally:
            await asyncio.to_thread(self._clear_stops)
        return stops, faults

    def _kill(self, victim: Victim) -> None:
        """Kill the victim while the worker is frozen; start a server or the LLM again, and resume the worker."""
        assert self._worker
        if victim == "worker":
            self._worker.kill()
            return
        if victim == "llm":
            self.llm.stop()
            self._worker.resume()
            time.sleep(LLM_OUTAGE_SECONDS)
            self.llm.start()
            return
        server = psutil.Process(_required(self.stack.temporal_pid if victim == "temporal" else self.stack.postgres_pid))
        victims = [server, *server.children(recursive=True)]
        for each in victims:
            each.kill()
        psutil.wait_procs(victims, timeout=10)
        self._worker.resume()
        self._stack = self._servers.start()

    def _clear_stops(self) -> None:
        """Replace a worker that is still frozen, and let the next one run without stops."""
        assert self._worker
        while self._worker.stopped():
            self._worker.kill()
        self._worker.set_plan(None)


async def _refresh(log: RecordedLog) -> None:
    """Read the new events, unless the server is unavailable."""
    try:
        await log.refresh()
    except RPCError:
        return


def _required(pid: int | None) -> int:
    if pid is None:
        raise HoldfastError("the stack file does not name the server's process id")
    return pid
