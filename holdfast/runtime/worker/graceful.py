"""Runs a worker for the length of a block; abandons it if its shutdown hangs."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from temporalio.worker import Worker

SHUTDOWN_SECONDS = 30.0
"""How long a worker's shutdown may take: its calls are stopped after their grace, and then nothing is left to do."""

log = structlog.get_logger("worker")


@asynccontextmanager
async def running(worker: Worker, *, within: float = SHUTDOWN_SECONDS) -> AsyncIterator[Worker]:
    """Run a worker for the length of the block.

    The last stage of the SDK's shutdown (`finalize_shutdown`) sometimes hangs, about once in two hundred times on a
    busy machine, with nothing left to do. Such a worker is abandoned; another one finishes what it has not finished.

    Args:
        worker: The worker, not started yet.
        within: Seconds that its shutdown may take.
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
