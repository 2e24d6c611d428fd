"""What a program passes in to observe its runs: OpenTelemetry's providers, and a function for each event."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the first two are optional, and the last is slow to import
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from holdfast.core.log.events import AgentEvent

OnEvent = Callable[[str, "AgentEvent"], Awaitable[None] | None]
"""Called with the thread's id and an event. A function that is not a coroutine function is called in a thread."""


@dataclass(frozen=True)
class Observers:
    """A program's own telemetry; without any, nothing is observed."""

    tracer_provider: "TracerProvider | None" = None
    """Gets the spans of runs."""
    meter_provider: "MeterProvider | None" = None
    """Gets the metrics of the worker."""
    on_event: OnEvent | None = None
    """Gets each event of the record."""


NO_OBSERVERS = Observers()
