"""Heartbeats: sends them while an activity runs, and reads the details that earlier attempts left in theirs.

1. An activity that ends within a second sends none, unless it leaves something for the next attempt.
2. The details are sealed and bound to the one call: anybody with access to Temporal can send a heartbeat, so details
   without a valid seal are dropped.
3. Tools send none (`DropToolHeartbeats`).
4. An attempt that a node sent on (`holdfast.activities.node_gate`) does not count as one. The number of these stands
   behind the details of the activity itself, which sees neither.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, Interceptor

from holdfast.activities.safe_logs import SafeLogger
from holdfast.core.mac.seals import ActivityRequest, ActivityResult, SealKeyUnknown, answers
from holdfast.core.nodes import NodeRejection
from holdfast.core.temporal.sealed_details import ResultT, from_details, to_details

INTERVAL = 1.0
"""Seconds before the first heartbeat, and between heartbeats (the SDK forwards as many as the time-out needs)."""

attempt_of: ContextVar[asyncio.Task[Any] | None] = ContextVar("attempt_of", default=None)
"""In a user's function, in middleware, and in all that they call: the task of the attempt that runs them."""

log = SafeLogger(__name__)


@dataclass(frozen=True, eq=False)
class ActiveHeartbeat:
    """The heartbeat of a running activity; created in its task."""

    details: tuple[Any, ...]
    context: Context = field(default_factory=copy_context)

    def beat(self) -> None:
        """Send a heartbeat. The SDK does so in a task of the running event loop, whichever that is."""
        self.context.run(activity.heartbeat, *self.details)


_active: WeakKeyDictionary[asyncio.AbstractEventLoop, set[ActiveHeartbeat]] = WeakKeyDictionary()


def active_heartbeats(loop: asyncio.AbstractEventLoop) -> set[ActiveHeartbeat]:
    """Return the heartbeats of the activities that run in an event loop. While it is blocked, its watch sends them."""
    return _active.setdefault(loop, set())


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

    active, heartbeat = active_heartbeats(loop), ActiveHeartbeat(details)
    if not activity.info().is_local:
        active.add(heartbeat)
    try:
        yield
    finally:
        next_beat.cancel()
        active.discard(heartbeat)


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
    """Drops the heartbeats that tools send.

    Another program's activity, used as a tool, would overwrite the details of the activity that runs it. From the
    thread of a sync tool, Temporal's SDK could not even send one.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap the activity."""
        return _WithoutHeartbeats(next)


class _WithoutHeartbeats(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.next.init(_Outbound(outbound))


class _Outbound(ActivityOutboundInterceptor):
    def heartbeat(self, *details: Any) -> None:
        if attempt_of.get() is None:
            self.next.heartbeat(*details)


# Attempts that nodes have sent on.


class SentOn(ActivityResult):
    """The attempts of an activity that were sent on; in its heartbeat details, behind those of the activity itself."""

    count: int = 0
    last: int = 0
    """Temporal's number of the last one."""
    crashed: bool = False
    """A worker crashed before it, and no attempt has counted that yet."""
    rejected: tuple[NodeRejection, ...] = ()


NONE_SENT_ON = SentOn()


class HidesSentOn(ActivityOutboundInterceptor):
    """Hides the attempts that were sent on from the activity, and keeps their number in its heartbeats."""

    def __init__(self, next: ActivityOutboundInterceptor) -> None:
        super().__init__(next)
        self._hidden: SentOn | None = None

    def read_and_hide(self, request: ActivityRequest) -> SentOn:
        """Return the attempts at a request that were sent on, and hide them from here on."""
        details: Sequence[Any] = tuple(self.next.info().heartbeat_details)
        sent_on = None
        if len(details) in (2, 4):
            with suppress(SealKeyUnknown):
                sent_on = from_details(SentOn, details[-2:], activity.payload_converter())
        if sent_on is None or not answers(sent_on, request):
            return NONE_SENT_ON
        self._hidden = sent_on
        return sent_on

    def leave(self, sent_on: SentOn) -> None:
        """Leave the number of these attempts for the next one, behind the details of the activity itself."""
        details = self.info().heartbeat_details
        self._hidden = sent_on
        self.heartbeat(*details)

    def info(self) -> activity.Info:
        """Return the attempt's information as if no attempt had been sent on."""
        info, hidden = self.next.info(), self._hidden
        if hidden is None:
            return info
        attempt, details = info.attempt - hidden.count, tuple(info.heartbeat_details)[:-2]
        if attempt < 1:  # somebody reset the activity, whose attempts Temporal counts anew
            return replace(info, attempt=1, heartbeat_details=details)
        since = info.scheduled_time if attempt == 1 else info.current_attempt_scheduled_time
        return replace(info, attempt=attempt, heartbeat_details=details, current_attempt_scheduled_time=since)

    def heartbeat(self, *details: Any) -> None:
        """Send a heartbeat, with the attempts that were sent on behind its details."""
        self.next.heartbeat(*details, *(sealed_details(self._hidden) if self._hidden else ()))
