"""Makes and runs Temporal's worker, with the options that Holdfast relies on. The caller passes workflows."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import Interceptor, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast.config.logs import EventLogger
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import SettingsError
from holdfast.version import __version__
from holdfast.worker.workflow_runners import EarlyEventsGuard, TracedRuns

STICKY_TIMEOUT = timedelta(seconds=3)
"""How long a task waits for the worker that has its workflow cached before any other may take it. With the heartbeat
time-out (`holdfast/core/run/contracts/table.py`, 5 s) this is the longest pause after a SIGKILL before another worker
resumes the run; on the same machine it is shorter (`holdfast/worker/takeover/takeover.py`).
"""

HEARTBEAT_THROTTLE = timedelta(seconds=2)
"""How often the SDK forwards the heartbeats of a long call. Its default, four fifths of the time-out, leaves a busy
worker one second of grace; this leaves three."""

SHUTDOWN_SECONDS = 30.0
"""How long a worker's shutdown may take: its calls are stopped after a grace period, and then nothing is left to do."""

log = EventLogger("worker")


def new_worker(
    client: Client,
    *,
    task_queue: str,
    workflows: Sequence[type],
    activities: Sequence[Callable[..., Any]],
    interceptors: Sequence[Interceptor],
    strict: bool = False,
    **options: Any,
) -> Worker:
    """A worker, not running yet.

    Args:
        client: Connected, with the pydantic converter.
        task_queue: The task queue to poll.
        workflows: The workflow classes.
        activities: The activity functions.
        interceptors: The first is the outermost.
        strict: Run workflows in Temporal's sandbox, which detects clocks and randomness. The tests do; a worker runs
            only our own workflow code, and without the sandbox saves a tenth of a step and half of a replay.
        options: Further arguments of `temporalio.worker.Worker`.

    Raises:
        SettingsError: The client has no fleet key.
    """
    if not seals_in(client.data_converter):
        raise SettingsError("the worker's client has no fleet key: connect it with seals (HOLDFAST_FLEET_KEYS)")
    guard = EarlyEventsGuard(TracedRuns(SandboxedWorkflowRunner() if strict else UnsandboxedWorkflowRunner()))
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=workflows,
        activities=activities,
        interceptors=interceptors,
        workflow_runner=guard,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        max_workflow_task_external_storage_concurrency=1,  # none is used: with more, each payload costs a task
        build_id=__version__,  # every step's history repeats it; without one, the SDK hashes every loaded module
        **options,
    )
    guard.guard(worker)
    return worker


@asynccontextmanager
async def running(worker: Worker, *, within: float = SHUTDOWN_SECONDS) -> AsyncIterator[Worker]:
    """Run a worker for a block; abandon it if its shutdown hangs.

    The last stage of the SDK's shutdown (`finalize_shutdown`) sometimes hangs, about once in two hundred times on a
    busy machine, with nothing left to do. Such a worker is abandoned; another one takes over its open tasks.

    Args:
        worker: The worker, not started yet.
        within: The time limit of its shutdown, in seconds.
    """
    await worker.__aenter__()
    try:
        yield worker
    finally:
        try:
            async with asyncio.timeout(within):
                await worker.__aexit__(*sys.exc_info())
        except TimeoutError:
            log.warning("worker_abandoned", seconds=within)
