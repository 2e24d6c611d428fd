"""A demo's view of an agent run: its events by the workflow's query, and its state on the Temporal server."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowFailureError
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from holdfast import AgentEvent
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import EVENTS
from holdfast.examples.shared.workers import DemoFailed

_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
_PENDING = SearchAttributeKey.for_int("HoldfastPending")
ANSWER_SECONDS = timedelta(seconds=5)
"""Time limit of a query."""
_CLOSE_SECONDS = 30.0


@dataclass(frozen=True)
class ServerView:
    """The state of the run on the Temporal server, which needs no worker."""

    status: str
    """Temporal's status: RUNNING, COMPLETED, …"""
    history_events: int
    history_bytes: int
    holdfast_status: str
    """The search attribute: `waiting_approval`, …"""
    open_requests: int
    activities: tuple[str, ...]
    """The pending activities: type, attempt, and the failure of the last attempt."""
    parent: str
    """The workflow that started the run; empty if none did."""


class Run:
    """One agent run, and its events read so far.

    Args:
        client: A client of the demo's server.
        thread: The thread's id.
    """

    def __init__(self, client: Client, thread: str) -> None:
        self._handle = client.get_workflow_handle(thread)
        self.thread = thread
        self.events: list[AgentEvent] = []

    async def news(self) -> list[AgentEvent]:
        """Return the events recorded since the last call; none if no worker responds."""
        try:
            fresh = await self._read(len(self.events))
            if first_altered([*self.events, *fresh]) is None:
                self.events += fresh
                return fresh
            # A worker that takes over a run may answer before the workflow task that records the replayed events.
            # Then the times of the last events, and so their digests, were not final.
            everything = await self._read_all()
        except RPCError:  # no worker has the run yet
            return []
        reported = [_body(event) for event in self.events]
        self.events = everything
        return [event for event in everything if _body(event) not in reported]

    async def close(self) -> None:
        """Wait until the run is closed, and read its final log.

        Raises:
            DemoFailed: The run does not close.
        """
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                with suppress(WorkflowFailureError):  # the log has the reason
                    await self._handle.result()
                self.events = await self._read_all()
        except TimeoutError:
            raise DemoFailed(f"{self.thread} has finished but does not close; inspect it in the Web UI") from None

    async def _read(self, start: int) -> list[AgentEvent]:
        lines = await self._handle.query("log", start, result_type=bytes, rpc_timeout=ANSWER_SECONDS)
        return EVENTS.validate_json(b"[" + lines.replace(b"\n", b",") + b"]")

    async def _read_all(self) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        while page := await self._read(len(events)):
            events += page
        return events

    async def on_server(self) -> ServerView:
        """Return the run's state on the server."""
        described = await self._handle.describe()
        raw = described.raw_description
        attributes = described.typed_search_attributes
        return ServerView(
            status=described.status.name if described.status else "UNKNOWN",
            history_events=described.history_length,
            history_bytes=raw.workflow_execution_info.history_size_bytes,
            holdfast_status=attributes.get(_STATUS, ""),
            open_requests=attributes.get(_PENDING, 0),
            activities=tuple(_pending(activity) for activity in raw.pending_activities),
            parent=described.parent_id or "",
        )


def _body(event: AgentEvent) -> dict[str, Any]:
    return event.model_dump(exclude={"position", "at", "digest"})


def _pending(activity: PendingActivityInfo) -> str:
    failure = f" ({activity.last_failure.message})" if activity.last_failure.message else ""
    return f"{activity.activity_type.name}, attempt {activity.attempt}{failure}"
