"""The simulated person of the kill matrix."""

import asyncio
from collections.abc import Callable, Mapping

from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.log.events import ApprovalRequested, ReconcileRequested
from holdfast.testing.kill_matrix.audit import Effects, RecordedLog


class Person:
    """Whoever is asked: approves, and looks whether an effect happened. Each decision is under a name of its own.

    Args:
        client: Of the server.
        log: The run's.
        effects: Looks at the outside world.
    """

    def __init__(self, client: Client, log: RecordedLog, effects: Callable[[], Effects]) -> None:
        self._client = client
        self.log = log
        self._effects = effects
        self._decided: set[str] = set()
        self.sent: list[str] = []
        """Names under which a decision was sent, and taken by Temporal."""

    async def decide(self) -> None:
        """Decide what is open, by signal: whether a worker lives or not."""
        for event in self.undecided():
            answer = await self.answer(event)
            signal = "reconcile" if isinstance(event, ReconcileRequested) else "approve"
            try:
                await self._client.get_workflow_handle(self.log.thread).signal(signal, answer)
            except RPCError:
                return  # the server is away; if the signal arrived, the log will show that
            self.has_sent(answer)

    def undecided(self) -> list[ApprovalRequested | ReconcileRequested]:
        """The requests that are open, and for which no decision is on its way."""
        return [event for event in self.log.open_requests if event.request.id not in self._decided]

    async def answer(self, event: ApprovalRequested | ReconcileRequested) -> dict[str, str]:
        """The decision, as the update `decide` takes it: yes; or whether the effect happened."""
        decision, request = "approve", event.request.id
        if isinstance(event, ReconcileRequested):
            effects = await asyncio.to_thread(self._effects)
            decision = "happened" if effects.get(self.log.keys[event.request.number], 0) else "absent"
        return {"decision": decision, "request": request, "by": f"{self.log.thread}-{request}"}

    def has_sent(self, answer: Mapping[str, str]) -> None:
        """From now on, the log must have this decision."""
        self._decided.add(answer["request"])
        self.sent.append(answer["by"])
