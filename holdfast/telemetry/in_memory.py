"""Follows threads in memory: whoever observes the record of a test gets each event as soon as it is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.worker import Interceptor

from holdfast.composition.observers import Observers
from holdfast.core.agents.catalog import Catalog
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.upcasters import decode_stored
from holdfast.storage.in_memory.record import InMemoryThreads
from holdfast.telemetry.following import Part, Receiver, Taken
from holdfast.telemetry.news import OF_LOOPS


class NotTaken(Exception):
    """A receiver did not take an event."""


class FollowedThreads(InMemoryThreads):
    """Threads in memory whose events go to receivers.

    Args:
        receivers: Take the events. What one of them does not take is recorded again, and delivered again.
    """

    def __init__(self, receivers: Sequence[Receiver]) -> None:
        super().__init__()
        self._receivers = receivers
        self._taken: dict[tuple[str, int], Taken] = {}

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None:
        """Store lines, and deliver those that are new."""
        await super().append(thread, start, lines)
        for number, receiver in enumerate(self._receivers):
            before = self._taken.get((thread, number), Taken(0, None))
            if events := await self._events(thread, before.position):
                part = Part(thread, events, before.carried)
                (self._taken[thread, number],) = taken = await receiver.deliver([part])
                if taken[0].again:
                    raise NotTaken(f"an event of thread {thread} was not taken")  # Temporal records it again

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        """Begin the thread anew for the receivers, as its run was reset."""
        for number in range(len(self._receivers)):
            self._taken.pop((thread, number), None)
        return await super().set_aside(thread, start, lines)

    async def _events(self, thread: str, at: int) -> list[AgentEvent]:
        events: list[AgentEvent] = []
        while lines := await self.read(thread, at):
            decoded: list[Any] = [decode_stored(line) for line in lines]
            events += [event for event in decoded if not isinstance(event, OF_LOOPS)]
            at += len(lines)
        return events


@dataclass(frozen=True)
class Observed:
    """A worker's threads in memory, and its interceptors."""

    threads: InMemoryThreads
    interceptors: tuple[Interceptor, ...]


def observing_in_memory(observers: Observers, catalog: Catalog) -> Observed:
    """Return what a worker needs so that its runs are observed.

    Args:
        observers: The program's own telemetry.
        catalog: The worker's agents and tools.
    """
    receivers: list[Receiver] = []
    interceptors: tuple[Interceptor, ...] = ()
    if observers.tracer_provider is not None:
        from holdfast.telemetry.provided import ProvidedTracer

        receivers.append(ProvidedTracer(observers.tracer_provider))
    if observers.on_event is not None:
        from holdfast.telemetry.hook import EventHook

        receivers.append(EventHook(observers.on_event))
    if observers.meter_provider is not None:
        from holdfast.telemetry.metrics.measuring import Measuring
        from holdfast.telemetry.metrics.provided import provided_instruments

        interceptors = (Measuring(provided_instruments(observers.meter_provider), catalog, ("scripted",)),)
    return Observed(FollowedThreads(receivers) if receivers else InMemoryThreads(), interceptors)
