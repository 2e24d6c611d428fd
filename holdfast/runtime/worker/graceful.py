"""A worker at work for the length of a block, and gone at its end whatever the SDK thinks of that."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from temporalio.worker import Worker

LEAVE_SECONDS = 30.0
"""How long a worker may take to end: its calls are stopped after their grace, and then it has nothing more to do."""

log = structlog.get_logger("worker")


@asynccontextmanager
async def at_work(worker: Worker, *, leave_within: float = LEAVE_SECONDS) -> AsyncIterator[Worker]:
    """Have a worker at work.

    The SDK's last stage of a shutdown (`finalize_shutdown`) sometimes never ends, about once in two hundred times on a
    busy machine, with nothing left to do. Such a worker is left behind: what it had not finished, another one will.

    Args:
        worker: To be run, and ended with the block.
        leave_within: Seconds that its end may take.
    """
    await worker.__aenter__()
    try:
        yield worker
    finally:
        try:
            async with asyncio.timeout(leave_within):
                await worker.__aexit__(*sys.exc_info())
        except TimeoutError:
            log.warning("worker_left_behind", seconds=leave_within)
