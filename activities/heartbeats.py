"""Heartbeats for calls that take long, and none for those that do not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

QUIET = 1.0
"""Seconds before the first heartbeat, and between heartbeats (the SDK passes on as many as the time-out needs)."""


@asynccontextmanager
async def heartbeats(*details: Any) -> AsyncIterator[None]:
    """Tell the server that the call is alive, as long as the block runs. Cancellation arrives the same way.

    Args:
        details: What each heartbeat says to the next attempt: one that said nothing would erase what there is.
    """
    loop = asyncio.get_running_loop()
    # Not a task: most calls end before the first heartbeat, and would pay for one that is made and cancelled.
    next_beat = loop.call_later(QUIET, lambda: beat())

    def beat() -> None:
        nonlocal next_beat
        activity.heartbeat(*details)
        next_beat = loop.call_later(QUIET, beat)

    try:
        yield
    finally:
        next_beat.cancel()
