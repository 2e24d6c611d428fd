"""Heartbeats: sends them while an activity runs, and reads the details that earlier attempts left in theirs.

1. An activity that ends within a second sends none, unless it leaves something for the next attempt.
2. The details are sealed and bound to the one call: anybody with access to Temporal can send a heartbeat, so details
   without a valid seal are dropped.
3. Tools send none: another program's activity, used as a tool, would overwrite the details of the activity that runs
   it. From the thread of a sync tool, Temporal's SDK could not even send one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, Interceptor

from holdfast.activities.event_loop_watch import ActiveHeartbeat, loop_watch
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.tool_functions import attempt_of
from holdfast.core.mac.seals import ActivityRequest, ActivityResult, SealKeyUnknown, answers
from holdfast.core.temporal.sealed_details import ResultT, from_details, to_details

INTERVAL = 1.0
"""Seconds before the first heartbeat, and between heartbeats (the SDK forwards as many as the time-out needs)."""


log = SafeLogger(__name__)


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
    watch, heartbeat = loop_watch(), ActiveHeartbeat(details)
    if not activity.info().is_local:
        watch.active.add(heartbeat)
    try:
        yield
    finally:
        next_beat.cancel()
        watch.active.discard(heartbeat)


def earlier_details(kind: type[ResultT], request: ActivityRequest) -> ResultT | None:
    """Read the details that earlier attempts left; None if there are none, or they are not from our processes."""
    if not (details := activity.info().heartbeat_details):
        return None
    # The details stay in the heartbeat: raising for an unknown key would fail all later attempts.
    with suppress(SealKeyUnknown):
        answer = from_details(kind, details, activity.payload_converter())
        if answer and answers(answer, request):
            return answer
    match details:
        case [str(), str()]:
            log.warning("unsealed_heartbeat_dropped", thread=activity.info().workflow_id)
    return None


def sealed_details(answer: ActivityResult) -> tuple[Any, ...]:
    """Return the details that every heartbeat of this attempt repeats, for the next attempt to read."""
    return to_details(answer, activity.payload_converter())


class DropToolHeartbeats(Interceptor):
    """A worker interceptor that drops the heartbeats that tools send."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the activity."""
        return _Inbound(next)


class _Inbound(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.next.init(_Outbound(outbound))


class _Outbound(ActivityOutboundInterceptor):
    def heartbeat(self, *details: Any) -> None:
        if attempt_of.get() is None:
            self.next.heartbeat(*details)
