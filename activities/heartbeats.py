"""Heartbeats: sends them while an activity runs, and reads the details that earlier attempts left in theirs.

1. An activity that ends within a second sends none, unless it leaves something for the next attempt.
2. These details are an answer, sealed and bound to the one call: anybody who reaches Temporal can send a
   heartbeat, so details without a valid seal are dropped.
3. Tools send none (`WithoutToolHeartbeats`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from temporalio import activity

from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.mac.seals import Answer, Order, SealKeyUnknown, answers
from holdfast.core.temporal.sealed_details import AnswerT, from_details, to_details

INTERVAL = 1.0
"""Seconds before the first heartbeat, and between heartbeats (the SDK forwards as many as the time-out needs)."""


log = SafeLogger(__name__)


@dataclass(frozen=True, eq=False)
class Beat:
    """The heartbeat of an activity under way; made in its task."""

    details: tuple[Any, ...]
    context: Context = field(default_factory=copy_context)

    def send(self) -> None:
        """Send the heartbeat. The SDK does so in a task of the running event loop, which may be any."""
        self.context.run(activity.heartbeat, *self.details)


_beating: WeakKeyDictionary[asyncio.AbstractEventLoop, set[Beat]] = WeakKeyDictionary()


def beating(loop: asyncio.AbstractEventLoop) -> set[Beat]:
    """Return the heartbeats of the activities under way in an event loop. While it is blocked, others can send them."""
    return _beating.setdefault(loop, set())


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

    under_way, own = beating(loop), Beat(details)
    if not activity.info().is_local:
        under_way.add(own)
    try:
        yield
    finally:
        next_beat.cancel()
        under_way.discard(own)


def earlier_details(kind: type[AnswerT], order: Order) -> AnswerT | None:
    """Read the details that earlier attempts left; None for none, and for details that none of our processes left."""
    if not (details := activity.info().heartbeat_details):
        return None
    # The details stay in the heartbeat: raising for an unknown key would fail all later attempts.
    with suppress(SealKeyUnknown):
        found = from_details(kind, details, activity.payload_converter())
        if found and answers(found, order):
            return found
    match details:
        case [str(), str()]:
            log.warning("unsealed_heartbeat_dropped", thread=activity.info().workflow_id)
    return None


def sealed_details(answer: Answer) -> tuple[Any, ...]:
    """Return the details that every heartbeat of this attempt repeats, for the next attempt to read."""
    return to_details(answer, activity.payload_converter())
