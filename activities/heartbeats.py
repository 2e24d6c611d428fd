"""Sends heartbeats while an activity runs; none for activities that end within a second.

`notify` and `outages` also send one themselves, to pass on what the next attempt has to know.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity

from holdfast.activities.blocked_loop import Beating, loop_watch

INTERVAL = 1.0
"""Seconds before the first heartbeat, and between heartbeats (the SDK forwards as many as the time-out needs)."""


@asynccontextmanager
async def heartbeats(*details: Any) -> AsyncIterator[None]:
    """Send heartbeats while the block runs. They are also how Temporal delivers cancellation.

    Args:
        details: Repeated in each heartbeat, for the next attempt: a heartbeat without details would erase them.
    """
    loop = asyncio.get_running_loop()
    # Not a task: most calls end before the first heartbeat, and creating and cancelling a task costs more.
    next_beat = loop.call_later(INTERVAL, lambda: beat())

    def beat() -> None:
        nonlocal next_beat
        activity.heartbeat(*details)
        next_beat = loop.call_later(INTERVAL, beat)

    # While a tool blocks the event loop, its watch sends them.
    watch, beating = loop_watch(), Beating(details)
    if not activity.info().is_local:
        watch.beating.add(beating)
    try:
        yield
    finally:
        next_beat.cancel()
        watch.beating.discard(beating)
