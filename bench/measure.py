"""Runs the schedule one sample at a time, and measures it from outside."""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistoryEventFilterType

from bench.environment import Contender, open_contenders
from bench.figures import CONTENDERS, Load, Sample, schedule
from bench.llm import serve_llm
from holdfast.config.stack_file import Stack

WARM_UP = 20
"""Steps of each contender before the first sample, for imports, connections and the server's caches."""

Progress = Callable[[str], None]
"""Receives a description before each run, and never during one."""


class MeasurementError(Exception):
    """A run made a different number of steps than requested."""


async def measure_all(
    stack: Stack, home: Path, *, loads: Sequence[Load], repeat: int | None, progress: Progress
) -> tuple[list[Sample], str]:
    """Measure all samples.

    Returns:
        The samples in order, and the version of the Temporal server.
    """
    names = (f"bench-{number}" for number in itertools.count(1))
    samples = []
    with serve_llm() as llm_url:
        async with open_contenders(stack, home, llm_url) as (client, contenders):
            for warm in CONTENDERS:
                progress(f"warming up: {warm}")
                await measure(client, contenders[warm], Load(WARM_UP), name=next(names))
            for contender, load in schedule(loads, repeat):
                progress(f"{contender}, {load}")
                samples.append(await measure(client, contenders[contender], load, name=next(names)))
            about = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    return samples, about.server_version


async def measure(client: Client, contender: Contender, load: Load, *, name: str) -> Sample:
    """Measure one run, or several concurrent ones, from the first start to the last result.

    Raises:
        MeasurementError: A run made a different number of steps.
        WorkflowFailureError: A run failed, or took too long.
    """
    gc.collect()  # so that garbage of an earlier run is not measured
    cpu, wall = time.process_time(), time.perf_counter()
    handles = await asyncio.gather(*(contender.start(load.steps, f"{name}-{run}") for run in range(load.runs)))
    results = await asyncio.gather(*(handle.result() for handle in handles))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    wrong = [calls for calls in map(contender.calls_made, results) if calls != load.steps + 1]
    if wrong:
        raise MeasurementError(f"{contender.name} made {wrong[0]} LLM calls for {load.steps} steps, expected one more")
    size = events = 0
    for handle in handles:
        assert handle.first_execution_run_id is not None
        run_size, run_events = await _history(client, handle.id, handle.first_execution_run_id)
        size, events = size + run_size, events + run_events
    return Sample(contender.name, load, wall, cpu, size, events)


async def _history(client: Client, name: str, run_id: str) -> tuple[int, int]:
    """Return bytes and events of a run's history, across continue-as-new."""
    size = events = 0
    while True:
        handle = client.get_workflow_handle(name, run_id=run_id)
        description = await handle.describe()
        size += description.raw_description.workflow_execution_info.history_size_bytes
        events += description.history_length
        if description.status != WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return size, events
        closing = WorkflowHistoryEventFilterType.CLOSE_EVENT
        async for event in handle.fetch_history_events(event_filter_type=closing):
            assert event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
            run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
