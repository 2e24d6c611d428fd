"""Records metrics through the meter provider of a program."""

from functools import cache
from typing import Any

from opentelemetry.metrics import Meter, MeterProvider

from holdfast.telemetry.metrics.instruments import checked_labels
from holdfast.telemetry.metrics.names import BUCKETS, METRICS, Metric
from holdfast.version import __version__


class ProvidedInstruments:
    """Our metrics as instruments of OpenTelemetry.

    Args:
        provider: The program's.
    """

    def __init__(self, provider: MeterProvider) -> None:
        meter = provider.get_meter("holdfast", __version__)
        self._made: dict[Metric, Any] = {each: _instrument(meter, each) for each in METRICS}

    def add(self, metric: Metric, value: int = 1, /, **labels: str) -> None:
        """Add to a counter."""
        if value > 0:
            self._made[metric].add(value, checked_labels(metric, labels))

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._made[metric].set(value, checked_labels(metric, labels))

    def record(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Record a value of a histogram."""
        self._made[metric].record(max(0.0, value), checked_labels(metric, labels))


@cache
def provided_instruments(provider: MeterProvider) -> ProvidedInstruments:
    """Return the instruments of a provider, each made once."""
    return ProvidedInstruments(provider)


def _instrument(meter: Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.description)
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=BUCKETS
    )
