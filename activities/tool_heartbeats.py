"""Drops the heartbeats that tools send themselves, such as an activity of another program that became a tool.

The activity around the tool sends heartbeats, whose details are for the next attempt: a tool's own would replace those.
In the thread of a sync tool, Temporal's SDK could not even send one.
"""

from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, Interceptor

from holdfast.activities.tool_functions import attempt_of


class WithoutToolHeartbeats(Interceptor):
    """Lets only our own code send heartbeats."""

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
