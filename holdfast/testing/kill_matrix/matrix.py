"""The kill matrix: your agent, on a real worker and real servers, killed at every boundary there is.

    with KillMatrix(catalog="mycompany.agents:catalog", script=script, effects=count_payments, home=folder) as matrix:
        for boundary in BOUNDARIES:
            await matrix.survive(boundary)

1. A boundary is a point between two things that a worker process does. The worker is frozen there, and then killed
   with SIGKILL from outside: nothing of it runs on. So is a server, while the worker is frozen.
2. Each run is killed once at each place that the boundary has in it: three effects, three kills.
3. A simulated person approves what is asked, and answers truthfully whether an effect happened.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from uuid import uuid4

import psutil
from temporalio.service import RPCError

import holdfast
from holdfast.errors import HoldfastError
from holdfast.log.events import AgentEvent, ReconcileRequested
from holdfast.run.contracts import WORKFLOW, RunInput
from holdfast.runtime.client.connect import connect_stack, ensure_search_attributes
from holdfast.runtime.config.stack_file import Stack
from holdfast.runtime.devstack.devstack import DevStack
from holdfast.runtime.devstack.ports import Ports, is_free
from holdfast.runtime.llm.script import Script
from holdfast.runtime.llm.scripted_server import ScriptedLLM
from holdfast.testing.kill_matrix.audit import Effects, RecordedLog, audit, misplaced
from holdfast.testing.kill_matrix.person import Person
from holdfast.testing.kill_matrix.plan import Plan, Stop
from holdfast.testing.kill_matrix.process import DoomedWorker

AWAY = 1.0
"""Seconds for which a dead LLM endpoint is away; a server is away for as long as it takes to start it."""

Victim = Literal["worker", "temporal", "database", "llm"]


@dataclass(frozen=True)
class Survival:
    """How a run came through."""

    stops: tuple[Stop, ...]
    """Where it was killed; empty where the run never comes to that boundary."""
    events: tuple[AgentEvent, ...]
    decisions: int
    """How many were sent."""

    @property
    def asked(self) -> int:
        """How often a person was asked whether an effect happened."""
        return sum(isinstance(event, ReconcileRequested) for event in self.events)


class KillMatrix:
    """A worker with your catalog on a stack of its own. A context manager.

    Args:
        catalog: `package.module:attribute`, as for `worker.py`.
        script: What the LLM replies.
        effects: Looks at the outside world: how often each effect has happened, by key (`ToolContext.key`).
        home: A folder for the stack's data and the worker's log.
        task: What the run is told.
        agent: The agent; None for the catalog's first.
        environ: Further environment variables of the worker, such as where your test servers are.
        worker: The file `worker.py`; None for the one of this checkout.
        patience: Seconds that a run may take, kills included.
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
        worker: Path | None = None,
        patience: float = 300,
    ) -> None:
        ports = [port for port in random.sample(range(20_000, 30_000), 50) if is_free(port)]
        self.llm = ScriptedLLM(script, port=ports[3])
        self._catalog, self._effects, self._home = catalog, effects, home
        self._run = RunInput(task=task, agent=agent)
        self._environ = dict(environ or {})
        self._file = worker or Path(holdfast.__file__).parents[1] / "worker.py"
        self._patience = patience
        self._queue = f"kills-{uuid4().hex[:8]}"
        # Ports that nobody else wants while a server is down: neither usual ones nor those of passing connections.
        self._servers = DevStack(home / "stack", usual=Ports(*ports[:3]))
        self._stack: Stack | None = None
        self._worker: DoomedWorker | None = None
        self._cleanup = ExitStack()

    @property
    def stack(self) -> Stack:
        """Where its servers answer; outside effects may be kept in the same PostgreSQL."""
        assert self._stack, "use it in a `with` statement"
        return self._stack

    def __enter__(self) -> Self:
        if not self._file.exists():
            raise FileNotFoundError(f"there is no {self._file}; say where worker.py is: KillMatrix(worker=…)")
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
            self._worker = DoomedWorker(self._home / "worker", worker=self._file, environ=environ | self._environ)
            cleanup.callback(self._worker.stop)
            self._worker.start()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    async def survive(self, *boundaries: str, victim: Victim = "worker", most: int | None = None) -> Survival:
        """Have a run killed wherever it comes to one of the boundaries, and check everything when it has ended.

        Args:
            boundaries: Of `BOUNDARIES`, or any like them. Whether an effect happened is asked only after one broke
                off: where `reconcile_requested` is among them, the run is killed after its effects, too.
            victim: What is killed while the worker is at the boundary; a server is started again.
            most: Kill so often at the most.

        Raises:
            AssertionError: An effect happened twice or is lost, a decision is lost, the run did not complete, its log
                is altered, or it was not where it should have been when it was killed. The message names each.
        """
        assert self._worker, "use it in a `with` statement"
        if any(boundary.endswith(" reconcile_requested") for boundary in boundaries):
            boundaries = ("after effect", *boundaries)
        client = await connect_stack(self.stack)
        await ensure_search_attributes(client)
        self._worker.doom(Plan(boundaries=boundaries, most=most))
        before = dict(await asyncio.to_thread(self._effects))
        thread = f"kill-{uuid4().hex[:8]}"
        handle = await client.start_workflow(WORKFLOW, self._run, id=thread, task_queue=self._queue)
        log = RecordedLog(client, thread, str(handle.first_execution_run_id))
        person = Person(client, log, self._effects)
        stops, wrong = await self._follow(log, person, victim)
        effects = await asyncio.to_thread(self._effects)
        wrong += audit(log.events, effects=effects, sent=person.sent)
        mine = {*before.items(), *((key, effects.get(key, 0)) for key in log.keys.values())}
        wrong += [f"effect {key} is of no call" for key, count in effects.items() if (key, count) not in mine]
        assert not wrong, f"{thread}, {victim} killed {', '.join(boundaries)}: " + "; ".join(wrong)
        return Survival(tuple(stops), tuple(log.events), len(person.sent))

    async def _follow(self, log: RecordedLog, person: Person, victim: Victim) -> tuple[list[Stop], list[str]]:
        """Kill and decide until the run has ended; returns where it was stopped, and what was not as it should be."""
        assert self._worker
        stops: list[Stop] = []
        wrong: list[str] = []
        try:
            async with asyncio.timeout(self._patience):
                while not log.closed:
                    if stop := self._worker.stopped():
                        stops.append(stop)
                        await _refresh(log)
                        wrong += misplaced(log, stop)
                        await asyncio.to_thread(self._strike, victim)
                    self._worker.check()
                    await _refresh(log)
                    await person.decide()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            last = f"its last event is {log.events[-1]!r}" if log.events else "it has no event"
            told = f"{last}; the worker says:\n{self._worker.log[-4000:]}"
            wrong.append(f"the run did not end within {self._patience:g} s; {told}")
        finally:
            await asyncio.to_thread(self._let_live)
        return stops, wrong

    def _strike(self, victim: Victim) -> None:
        """Kill the victim while the worker is frozen; what is no worker lives again afterwards."""
        assert self._worker
        if victim == "worker":
            self._worker.kill()
            return
        if victim == "llm":
            self.llm.stop()
            self._worker.go_on()
            time.sleep(AWAY)
            self.llm.start()
            return
        server = psutil.Process(_known(self.stack.temporal_pid if victim == "temporal" else self.stack.postgres_pid))
        victims = [server, *server.children(recursive=True)]
        for each in victims:
            each.kill()
        psutil.wait_procs(victims, timeout=10)
        self._worker.go_on()
        self._stack = self._servers.start()

    def _let_live(self) -> None:
        assert self._worker
        while self._worker.stopped():
            self._worker.kill()
        self._worker.doom(None)


async def _refresh(log: RecordedLog) -> None:
    """Read what is new, if the server is there."""
    try:
        await log.refresh()
    except RPCError:
        return


def _known(pid: int | None) -> int:
    if pid is None:
        raise HoldfastError("the stack does not say which process its server is")
    return pid
