"""Computes the gauges that need Temporal's visibility or the record, on a slow timer.

Each worker computes and exports all of them: alerts use the maximum. A worker that ends takes its gauges with it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg_pool import AsyncConnectionPool
from temporalio.api.workflowservice.v1 import ListWorkflowExecutionsRequest
from temporalio.client import Client

from holdfast.config.logs import EventLogger
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.storage.observed import observe_record
from holdfast.telemetry.metrics import names
from holdfast.telemetry.metrics.instruments import Instruments

EVERY_SECONDS = 30.0
"""Time between two observations."""

MOST_THREADS = 1_000
"""The most threads, the newest ones, whose requests and budgets are looked up in the record."""

STATUSES = ("waiting_approval", "waiting_message", "dormant", "blocked", "paused")

log = EventLogger("telemetry")


@asynccontextmanager
async def observing(instruments: Instruments, client: Client, pool: AsyncConnectionPool) -> AsyncIterator[None]:
    """Keep the gauges up to date during a block.

    Args:
        instruments: Of the process.
        client: Counts the namespace's open runs.
        pool: Open, to a migrated database.
    """
    task = asyncio.create_task(_keep_observing(instruments, client, pool))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _keep_observing(instruments: Instruments, client: Client, pool: AsyncConnectionPool) -> None:
    while True:
        try:
            await observe(instruments, client, pool)
        # The worker works without gauges; `holdfast_observed_timestamp_seconds` shows that they are old.
        except Exception as error:
            log.warning("not_observed", reason=str(error) or type(error).__name__)
        await asyncio.sleep(EVERY_SECONDS)


async def observe(instruments: Instruments, client: Client, pool: AsyncConnectionPool) -> None:
    """Compute the gauges once.

    Raises:
        RPCError: Temporal is unavailable.
        psycopg.Error: The database is unavailable.
    """
    open_runs = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running'"
    for status in STATUSES:
        found = await client.count_workflows(f"{open_runs} AND HoldfastStatus = '{status}'")
        instruments.set(names.RUNS, found.count, status=status)
    asked = await client.count_workflows(f"{open_runs} AND HoldfastPending > 0")
    instruments.set(names.REQUESTS, asked.count)
    asking = await _threads(client, f"{open_runs} AND HoldfastPending > 0")
    blocked = await _threads(client, f"{open_runs} AND HoldfastStatus = 'blocked'")
    record = await observe_record(pool, asking=asking, blocked=blocked)
    instruments.set(names.REQUEST_AGE, record.oldest_request_seconds)
    instruments.set(names.BUDGET_SPENT, record.budgets_spent)
    for feed, blocks in record.backlogs.items():
        instruments.set(names.FEED_BACKLOG, blocks, feed=feed)
    instruments.set(names.OBSERVED, time.time())


async def _threads(client: Client, query: str) -> list[str]:
    """Return the threads of some runs, the newest ones."""
    request = ListWorkflowExecutionsRequest(namespace=client.namespace, query=query, page_size=MOST_THREADS)
    found = await client.workflow_service.list_workflow_executions(request)
    return [each.execution.workflow_id for each in found.executions]
