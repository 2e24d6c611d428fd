"""`python -m bench.freezes`: freezes workers repeatedly, with takeover on, while all their runs are active.

A stopped process looks dead to Temporal but is alive, so only Temporal's time-outs may end its claims. Some workers are
killed in between, including frozen ones, so that others sweep while a worker is frozen. A claim ended by a takeover has
the failure `WorkerDied`, which names the process reported as dead.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client
from temporalio.service import RPCError

from bench import document
from bench.environment import leave
from bench.storm import Storm, claims_of, judge
from bench.takeover import running_workers
from holdfast.client.connect import connect_stack
from holdfast.client.start_options import issued
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import Conversation, Reply, ScriptedLLM, call, say, slow, together
from holdfast.testing.kill_matrix.audit import RecordedLog
from holdfast.testing.kill_matrix.person import Person
from holdfast.worker.takeover.liveness import this_process
from tests.support.outside import Api, Outside
from tests.support.processes import WorkerProcess
from tests.unit.worker.test_liveness import identity_of

QUEUE = "freezes"
CATALOG = "tests.support.outside:catalog"
TURNS = (("charge", "look"), ("mail",), ("ship",), ("transfer",), ("charge", "mail", "transfer", "ship"))
"""The tools that the LLM calls, repeatedly, until the storm is over."""
LLM_SECONDS, API_SECONDS = 1.0, 1.0
"""The response times of LLM and API; effects happen before the response."""
LONGEST = 30.0
"""Seconds of the longest freeze. The shortest takes one second, and half of them less than five and a half."""
BETWEEN = (1.0, 8.0)
"""Seconds without a freeze before each one, and before a running worker is killed."""
PATIENCE = 180.0
"""Seconds for all runs to end after the storm."""
ABOUT = (
    "Each freeze is a SIGSTOP of a worker's process for 1 to 30 s, then a SIGCONT. Workers are frozen independently, "
    "so several are often frozen at the same time. After every tenth freeze the worker is killed, so that takeovers "
    "happen in the meantime. The runs ask for effects of all classes and for decisions until the storm is over."
)


async def freeze(client: Client, worker: WorkerProcess, storm: Storm, *, times: int, chance: random.Random) -> None:
    """Freeze a worker that many times; kill it after every tenth freeze, alternately running and still frozen."""
    me = this_process()
    assert me is not None
    for number in range(1, times + 1):
        await asyncio.sleep(chance.uniform(*BETWEEN))
        identity, seconds = str(identity_of(worker.pid, me)), LONGEST ** chance.random()
        os.kill(worker.pid, signal.SIGSTOP)
        began = time.monotonic()
        async for kind in running_activities(client, identity):
            storm.activities[kind] += 1
        await asyncio.sleep(max(0.0, seconds - (time.monotonic() - began)))
        storm.frozen.append(time.monotonic() - began)
        if number % 20 != 5:
            os.kill(worker.pid, signal.SIGCONT)
        if number % 20 == 15:
            await asyncio.sleep(chance.uniform(*BETWEEN))
        if number % 10 == 5:
            storm.killed.add(identity)  # before the kill, which no takeover can precede
            worker.kill()
            storm.logs.append(worker.log)
            await asyncio.to_thread(worker.start)


async def running_activities(client: Client, identity: str) -> AsyncIterator[str]:
    """Yield the types of a worker's running activities."""
    async for run in client.list_workflows(f"TaskQueue = '{QUEUE}' AND ExecutionStatus = 'Running'"):
        with suppress(RPCError):  # the run has ended in the meantime
            described = await client.get_workflow_handle(run.id, run_id=run.run_id).describe()
            for activity in described.raw_description.pending_activities:
                started = activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
                if started and activity.last_worker_identity == identity:
                    yield activity.activity_type.name


async def decide(client: Client, people: dict[str, Person], chance: random.Random) -> None:
    """Act as the approvers: check for requests every second, and answer some of them."""
    waiting = f"TaskQueue = '{QUEUE}' AND HoldfastStatus = 'waiting_approval' AND ExecutionStatus = 'Running'"
    while True:
        async for run in client.list_workflows(waiting):
            if chance.random() < 0.4:
                await people[run.id].log.refresh()
                await people[run.id].decide()
        await asyncio.sleep(1)


async def measure(
    stack: WorkerProcess, outside: Outside, *, freezes: int, runs: int, workers: int, seed: int
) -> tuple[list[str], list[str]]:
    """Freeze the workers; return the figures and the problems, one sentence each."""
    began, over = time.monotonic(), False

    def script(conversation: Conversation) -> Reply:
        if over:
            return say("served")
        order = str(conversation.replies)
        turn = TURNS[conversation.replies % len(TURNS)]
        return slow(together(*(call(name, order=order) for name in turn)), LLM_SECONDS)

    client, storm, first = await connect_stack(stack.stack), Storm(), {}
    people: dict[str, Person] = {}
    with ScriptedLLM(script) as llm:
        environ = {"HOLDFAST_CATALOG": CATALOG, "HOLDFAST_TASK_QUEUE": QUEUE, "OPENAI_BASE_URL": llm.base_url}
        with running_workers(stack, environ | outside.environ, workers) as doomed:
            for number in range(runs):
                thread = f"thread-{number}"
                run_input = issued(RunInput(task="go"))
                run = await client.start_workflow(WORKFLOW, run_input, id=thread, task_queue=QUEUE)
                first[thread] = str(run.first_execution_run_id)
                people[thread] = Person(client, RecordedLog(client, thread, first[thread]), outside.effects)
            deciding = asyncio.create_task(decide(client, people, random.Random(seed)))
            share = [freezes // workers + (number < freezes % workers) for number in range(workers)]
            await asyncio.gather(
                *(
                    freeze(client, worker, storm, times=times, chance=random.Random(seed + number))
                    for number, (worker, times) in enumerate(zip(doomed, share, strict=True), start=1)
                )
            )
            over = True
            with suppress(TimeoutError):  # runs that have not ended by then are reported below
                async with asyncio.timeout(PATIENCE):
                    for person in people.values():
                        while not person.log.closed:
                            await asyncio.sleep(0.5)
                            await person.log.refresh()
            deciding.cancel()
            storm.logs += [worker.log for worker in doomed]
    claims = [await claims_of(client, thread, run_id) for thread, run_id in first.items()]
    return judge(storm, claims, people, outside.effects(), seconds=time.monotonic() - began)


def main(
    freezes: Annotated[int, typer.Option(min=1)] = 100,
    runs: Annotated[int, typer.Option(min=1)] = 20,
    workers: Annotated[int, typer.Option(min=2, help="Concurrent workers on one task queue.")] = 6,
    seed: int = 7,
    write: Annotated[bool, typer.Option(help="Write the figures to RESULTS.md.")] = True,
) -> None:
    """Freeze workers that many times, and check that no takeover treats them as dead."""
    with TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as folder, Api(API_SECONDS) as api:
        stack = WorkerProcess(Path(folder) / "home", beside=None)
        stack.start()
        try:
            outside = Outside(api, Path(folder) / "outbox")
            outside.prepare(stack.stack.database_url)
            lines, wrong = asyncio.run(measure(stack, outside, freezes=freezes, runs=runs, workers=workers, seed=seed))
        finally:
            stack.stop()
    lines += [f"- WRONG: {what}" for what in wrong]
    print("\n".join(lines))
    if write:
        about = (
            f"`python -m bench.freezes --freezes {freezes} --runs {runs} --workers {workers} --seed {seed}`. {ABOUT}"
        )
        document.write("freezes", "\n".join(["## Freezes", "", about, "", *lines]))
    leave(1 if wrong else 0)


if __name__ == "__main__":
    typer.run(main)
