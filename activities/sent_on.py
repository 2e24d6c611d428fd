"""The attempts at an activity that nodes have sent on (`holdfast.activities.node_gate`).

No such attempt counts as one. Their number stands in the heartbeat details, behind those of the activity itself, which
sees neither.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityOutboundInterceptor

from holdfast.activities.heartbeats import sealed_details
from holdfast.core.mac.seals import ActivityRequest, ActivityResult, SealKeyUnknown, answers
from holdfast.core.nodes import NodeRejection
from holdfast.core.temporal.sealed_details import from_details


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
