"""The simulated person of the kill matrix."""

import asyncio
import time
from collections.abc import Callable, Mapping

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.core.log.events import ApprovalRequested, ReconcileRequested
from holdfast.testing.kill_matrix.audit import Effects, RecordedLog


class Person:
    """Approves every request, and answers whether an effect happened. Each decision has a different approver.

    The person checks an effect only after no request of the call can arrive any more, as the question demands.

    Args:
        client: A client of the server.
        log: The run's log.
        effects: Returns the number of times that each effect has happened in the outside world.
    """

    def __init__(self, client: Client, log: RecordedLog, effects: Callable[[], Effects]) -> None:
        self._client = client
        self.log = log
        self._effects = effects
        self._decided: set[str] = set()
        self.sent: list[str] = []
        """The approvers whose decisions Temporal has accepted."""

    async def decide(self) -> None:
        """Decide the open requests by signal, which needs no worker."""
        for event in self.undecided():
            answer = await self.answer(event)
            signal = "reconcile" if isinstance(event, ReconcileRequested) else "approve"
            try:
                await self._client.get_workflow_handle(self.log.thread).signal(signal, answer)
            except RPCError:
                return  # the server is unavailable; if the signal arrived, the log will show it
            self.mark_sent(answer)

    def undecided(self) -> list[ApprovalRequested | ReconcileRequested]:
        """Return the open requests that can be decided now, and for which no decision has been sent."""
        return [
            event
            for event in self.log.open_requests
            if event.request.id not in self._decided
            and not (event.request.settles_at and event.request.settles_at.timestamp() > time.time())
        ]

    async def answer(self, event: ApprovalRequested | ReconcileRequested) -> dict[str, str]:
        """Return the payload of a decision: approve, or whether the effect happened."""
        decision, request = "approve", event.request.id
        if isinstance(event, ReconcileRequested):
            effects = await asyncio.to_thread(self._effects)
            decision = "happened" if effects.get(self.log.keys[event.request.number], 0) else "absent"
        return {"decision": decision, "request": request, "by": f"{self.log.thread}-{request}"}

    def mark_sent(self, answer: Mapping[str, str]) -> None:
        """Record a decision as sent, so that the audit expects it in the log."""
        self._decided.add(answer["request"])
        self.sent.append(answer["by"])
