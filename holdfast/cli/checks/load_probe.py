"""Measures for `doctor --load`, for a few seconds. It starts no run, and changes nothing."""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import psutil
import psycopg
from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkflowExecutionRequest,
    GetSystemInfoRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client

from holdfast.cli.checks.load import Load
from holdfast.cli.checks.offered_agents import fresh_workers
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.worker.takeover.liveness import this_process
from holdfast.worker.takeover.worker_identity import parse_identity

MOST_RUNS = 50
"""The most open runs to look at."""

ANSWERS = 10
"""Requests whose median counts."""

_LIMIT = timedelta(seconds=5)
_QUEUES = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
_DATABASE = """
    SELECT count(*), current_setting('max_connections')::int, count(*) FILTER (WHERE wait_event_type = 'Lock')
    FROM pg_stat_activity WHERE backend_type = 'client backend'
"""


async def measure(
    client: Client, task_queue: str, *, stack: Stack | None, database_url: str | None, seconds: float
) -> Load:
    """Measure the load of a task queue and of what it depends on.

    Args:
        client: Connected.
        task_queue: The workers' queue.
        stack: The embedded stack that the client uses; None for servers of your own.
        database_url: The workers' database; None if it is not known here.
        seconds: How long CPU is measured.

    Raises:
        RPCError: Temporal is unavailable.
    """
    identities = await fresh_workers(client, task_queue)
    processes = [found for each in identities if (found := _own_process(each))]
    server = _process(stack.temporal_pid) if stack else None
    watched = [*processes, *([server] if server else [])]
    began, before = time.monotonic(), list(map(_cpu, watched))
    psutil.cpu_percent()
    await asyncio.sleep(seconds)
    machine, took = psutil.cpu_percent() / 100, time.monotonic() - began
    used = [max(0.0, _cpu(each) - at) / took for each, at in zip(watched, before, strict=True)]
    backlog, age = await _backlog(client, task_queue)
    runs, calls, retrying = await _calls(client)
    database = await _database(database_url) if database_url else None
    service = client.workflow_service
    return Load(
        seconds=seconds,
        cores=psutil.cpu_count() or 1,
        machine=machine,
        workers=len(identities),
        worker_cpu=tuple(used[: len(processes)]),
        server_ms=await _median(lambda: service.get_system_info(GetSystemInfoRequest(), timeout=_LIMIT)),
        server_cpu=used[-1] if server else None,
        backlog=backlog,
        backlog_seconds=age,
        runs=runs,
        calls=calls,
        retrying=retrying,
        database_ms=database[0] if database else None,
        connections=database[1] if database else (0, 0),
        lock_waits=database[2] if database else 0,
    )


async def _median(ask: Callable[[], Awaitable[object]]) -> float:
    """Return the median time of a request, in milliseconds."""
    times = []
    for _ in range(ANSWERS):
        began = time.monotonic()
        await ask()
        times.append(time.monotonic() - began)
    return 1_000 * statistics.median(times)


async def _backlog(client: Client, task_queue: str) -> tuple[int, float]:
    """Return the tasks that wait for a worker, and the age of the oldest in seconds."""
    backlog, age = 0, 0.0
    for kind in _QUEUES:
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind, report_stats=True
        )
        stats = (await client.workflow_service.describe_task_queue(request, timeout=_LIMIT)).stats
        backlog += stats.approximate_backlog_count
        age = max(age, stats.approximate_backlog_age.ToTimedelta().total_seconds())
    return backlog, age


async def _calls(client: Client) -> tuple[int, Counter[str], int]:
    """Return how many open runs were looked at, their activities under way by type, and LLM calls that are repeated."""
    query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND HoldfastStatus = 'running'"
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, query=query, page_size=MOST_RUNS)
    found = await client.workflow_service.list_workflow_executions(request, timeout=_LIMIT)
    calls: Counter[str] = Counter()
    retrying = 0
    for run in found.executions:
        asked = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=run.execution)
        described = await client.workflow_service.describe_workflow_execution(asked, timeout=_LIMIT)
        for each in described.pending_activities:
            if each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
                calls[each.activity_type.name] += 1
            retrying += each.attempt > 1 and each.activity_type.name == "call_llm"
    return len(found.executions), calls, retrying


async def _database(url: str) -> tuple[float, tuple[int, int], int] | None:
    """Return the median answer in milliseconds, connections and their limit, and waits for locks; None if down."""
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, connect_timeout=3) as connection:
            answers = await _median(lambda: connection.execute("SELECT 1"))
            row = await (await connection.execute(_DATABASE)).fetchone()
    except psycopg.Error:
        return None
    assert row is not None
    return answers, (row[0], row[1]), row[2]


def _own_process(identity: str) -> psutil.Process | None:
    """Return the process of a worker, if it runs on this machine."""
    known, own = parse_identity(identity), this_process()
    if known is None or own is None or known.scope != own.scope:
        return None
    return _process(known.pid)


def _process(pid: int | None) -> psutil.Process | None:
    try:
        return psutil.Process(pid) if pid else None
    except psutil.Error:
        return None


def _cpu(process: psutil.Process) -> float:
    """Return the CPU seconds that a process has used; 0 if it has ended."""
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(used.user + used.system)
