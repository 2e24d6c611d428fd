"""`python -m bench.takeover`: the time until a run resumes after a SIGKILL of its worker, or after an outage.

Workers run with and without takeover, as separate processes beside the embedded servers. The benchmark kills the worker
that has the run, according to Temporal. Times come from the events in Temporal's history, on this machine's clock.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle

from bench import document
from bench.environment import leave
from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import ScriptedLLM, call, hang, say, steps
from holdfast.worker.takeover.worker_identity import parse_identity
from tests.support.processes import WorkerProcess
from tests.support.rig import eventually, status_of

CATALOG = "tests.support.killable:catalog"
DECIDED_AFTER = 0.5
"""Seconds from the kill to the decision, if the run waits for one."""

SIBLING, RESTARTED = "another worker runs", "a new process is started"
CALLED, WAITING = "an LLM call", "wait for a decision"

OUTAGE = 60.0
"""Seconds without any worker. After it, the server holds one retry, as it would after an hour: the heartbeat time-out
(5 s) ends the attempt, and the next one is due after its back-off (1 s here, at most 30 s: `PATIENT`,
`holdfast/core/run/contracts/table.py`), and then waits for a worker. Without a worker there are no attempts, so the
back-off stays the same.
"""
OUTAGES = 3
"""The most repetitions; each takes a minute."""


class Bench:
    """Starts workers and runs, and measures the time until runs resume.

    Args:
        stack: A worker that runs the servers, with its own task queue.
        llm: The LLM, which outlives the workers.
        folder: The parent folder of workspaces.
    """

    def __init__(self, stack: WorkerProcess, llm: ScriptedLLM, folder: Path) -> None:
        self._stack = stack
        self._llm = llm
        self._folder = folder
        self._numbers = count()

    async def measure(self, *, takeover: bool, left: str, rounds: int) -> dict[str, list[float]]:
        """Return the seconds until a run resumes, by its activity when its worker was killed."""
        environ = self._environ() | {"HOLDFAST_TAKEOVER": str(takeover)}
        client = await connect_stack(self._stack.stack)
        times: dict[str, list[float]] = {CALLED: [], WAITING: []}
        with running_workers(self._stack, environ, 2 if left == SIBLING else 1) as workers:
            for _ in range(rounds):
                for what, seconds in times.items():
                    run = await self._start(client, environ["HOLDFAST_TASK_QUEUE"], waits=what == WAITING)
                    seconds.append(await self._kill(run, workers, waits=what == WAITING, restarted=left == RESTARTED))
        return times

    async def measure_outage(self, seconds: float, *, rounds: int) -> list[float]:
        """Return the seconds from the start of a new worker to the next recorded event, after an outage."""
        environ, times = self._environ(), []
        client = await connect_stack(self._stack.stack)
        with running_workers(self._stack, environ, 1) as [worker]:
            for _ in range(rounds):
                run = await self._start(client, environ["HOLDFAST_TASK_QUEUE"], waits=False)
                worker.kill()
                await asyncio.sleep(seconds)
                since = time.time()
                await asyncio.to_thread(worker.start)
                await run.result()
                times.append(await _seconds_to_resume(run, since, waits=False))
        return times

    def _environ(self) -> dict[str, str]:
        """Return the environment of workers with a new task queue."""
        queue = f"bench-{next(self._numbers)}"
        return {"HOLDFAST_CATALOG": CATALOG, "OPENAI_BASE_URL": self._llm.base_url, "HOLDFAST_TASK_QUEUE": queue}

    async def _start(self, client: Client, queue: str, *, waits: bool) -> WorkflowHandle[Any, Any]:
        """Start a run, and wait until it reaches the point at which its worker is killed."""
        number = next(self._numbers)
        workspace = self._folder / f"workspace-{number}"
        workspace.mkdir()
        self._llm.script = steps([call("ship"), say("done")]) if waits else lambda _: hang()
        requests = len(self._llm.requests)
        run_input = issued(RunInput(task="do it", workspace=str(workspace)))
        run = await client.start_workflow(WORKFLOW, run_input, id=f"run-{number}", task_queue=queue)
        if waits:
            await status_of(run, "waiting_approval")
            await eventually(lambda: _at_rest(run), bool)
        else:
            await eventually(lambda: asyncio.sleep(0, len(self._llm.requests)), lambda count: count > requests)
            await asyncio.sleep(1)  # so that the call is well under way
            self._llm.script = steps([say("done")])
        return run

    async def _kill(
        self, run: WorkflowHandle[Any, Any], workers: Sequence[WorkerProcess], *, waits: bool, restarted: bool
    ) -> float:
        victim = await _holder(run, workers)
        victim.kill()
        since = time.time()
        starting = asyncio.create_task(asyncio.to_thread(victim.start)) if restarted else None
        if waits:
            await asyncio.sleep(DECIDED_AFTER)
            since = time.time()
            await run.signal("approve", {"request": "1", "by": "alice"})
        await run.result()
        await (starting or asyncio.to_thread(victim.start))
        return await _seconds_to_resume(run, since, waits=waits)


@contextmanager
def running_workers(stack: WorkerProcess, environ: dict[str, str], number: int) -> Iterator[list[WorkerProcess]]:
    """Run that many workers beside the stack during the block."""
    workers = [WorkerProcess(stack.home, beside=stack, **environ) for _ in range(number)]
    try:
        for worker in workers:
            worker.start()
        yield workers
    finally:
        for worker in workers:
            with suppress(Exception):
                worker.stop()


async def _at_rest(run: WorkflowHandle[Any, Any]) -> bool:
    described = (await run.describe()).raw_description
    return not described.pending_activities and not described.HasField("pending_workflow_task")


async def _holder(run: WorkflowHandle[Any, Any], workers: Sequence[WorkerProcess]) -> WorkerProcess:
    """Return the worker that executes the run's call, or that executed its last workflow task."""
    pending = (await run.describe()).raw_description.pending_activities
    names = [each.last_worker_identity for each in pending]
    names += [
        event.workflow_task_completed_event_attributes.identity
        for event in reversed((await run.fetch_history()).events)
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    identity = parse_identity(names[0])
    pid = identity.pid if identity else int(names[0].partition("@")[0])
    return next(worker for worker in workers if worker.pid == pid)


async def _seconds_to_resume(run: WorkflowHandle[Any, Any], since: float, *, waits: bool) -> float:
    """Return the seconds until the call's result was recorded, or a workflow task completed."""

    def done(event: HistoryEvent) -> bool:
        return event.HasField(
            "workflow_task_completed_event_attributes" if waits else "activity_task_completed_event_attributes"
        )

    times = [event.event_time.ToMicroseconds() / 1e6 for event in (await run.fetch_history()).events if done(event)]
    return min(at for at in times if at > since) - since


def _row(what: str, left: str, how: str, seconds: Sequence[float]) -> str:
    shown = " | ".join(f"{each:.2f} s" for each in (median(seconds), min(seconds), max(seconds)))
    row = f"| {what} | {left} | {how} | {shown} |"
    print(row, flush=True)
    return row


def main(
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    outage: Annotated[float, typer.Option(min=0, help="Seconds without any worker; 0 to skip the outage.")] = OUTAGE,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Kill workers, and print the times until their runs resume."""
    rows = ["| the worker is killed in | and | | median | fastest | slowest |", "|---|---|---|--:|--:|--:|"]
    with TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as folder, ScriptedLLM() as llm:
        stack = WorkerProcess(Path(folder) / "home", beside=None)
        stack.start()
        try:
            bench = Bench(stack, llm, Path(folder))
            for left in (SIBLING, RESTARTED):
                for takeover in (False, True):
                    times = asyncio.run(bench.measure(takeover=takeover, left=left, rounds=rounds))
                    for what, seconds in times.items():
                        rows.append(_row(what, left, "takeover" if takeover else "time-outs", seconds))
            if outage:
                outage_times = asyncio.run(bench.measure_outage(outage, rounds=min(rounds, OUTAGES)))
                rows.append(_row(CALLED, f"a new process is started {outage:g} s later", "", outage_times))
        finally:
            stack.stop()
    if write:
        about = (
            f"`python -m bench.takeover --rounds {rounds}`. From the SIGKILL to the reply of the retried call; if the "
            f"run waits, from a decision, {DECIDED_AFTER:g} s after the kill, to the end of the workflow task that "
            "processes it. The LLM answers at once. A new process is started at the kill, including interpreter and "
            "imports; it is ready after that decision, and takes it from the dead worker's sticky queue. `time-outs` "
            "means `HOLDFAST_TAKEOVER=false`."
        )
        if outage:
            about += (
                " The last row is an outage: no worker runs in between, and the time is measured from the start of the "
                "new process. A longer outage makes no difference to it."
            )
        document.write("takeover", "\n".join(["## After a SIGKILL on one machine", "", about, "", *rows]))
    leave()


if __name__ == "__main__":
    typer.run(main)
