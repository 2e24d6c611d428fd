"""Calls a program's function with each event of the record: outside the workflow, in order, and at least once.

A function that raises holds back its own thread: the same event is passed to it again, after up to a minute, and in
every process that takes over. The events of other threads are delivered meanwhile.
"""

import asyncio
import inspect
from collections.abc import Sequence

from holdfast.composition.observers import OnEvent
from holdfast.config.logs import EventLogger
from holdfast.telemetry.following import Part, Taken

log = EventLogger("telemetry")


class EventHook:
    """Passes events on.

    Args:
        on_event: The program's function.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        call = on_event if inspect.isroutine(on_event) else getattr(on_event, "__call__", on_event)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(call)

    async def deliver(self, threads: Sequence[Part]) -> Sequence[Taken]:
        """Call the function with each event; a thread whose event it does not take is delivered again from there."""
        return [await self._pass_on(part) for part in threads]

    async def _pass_on(self, part: Part) -> Taken:
        position = part.events[0].position
        for event in part.events:
            try:
                if self._is_async:
                    returned = self._on_event(part.thread, event)
                else:
                    returned = await asyncio.to_thread(self._on_event, part.thread, event)
                if inspect.isawaitable(returned):
                    await returned
            except Exception as error:  # the program's own code may raise anything
                # Its text may hold the event, so it is not logged.
                log.warning("on_event_failed", thread=part.thread, position=position, error=type(error).__name__)
                return Taken(position, None, again=True)
            position = event.position + 1
        return Taken(position, None)
