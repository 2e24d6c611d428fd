"""Records metrics with bounded labels."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from temporalio.client import Client
from temporalio.common import MetricCounter, MetricGaugeFloat, MetricHistogramFloat, MetricMeter
from temporalio.runtime import Runtime

from holdfast.telemetry.metrics.names import METRICS, OTHER, Metric


def meter_of(client: Client) -> MetricMeter | None:
    """Return the meter of the SDK's runtime that a client uses; None if that exports no metrics."""
    meter = (client.service_client.config.runtime or Runtime.default()).metric_meter
    return None if meter is MetricMeter.noop else meter


class Instruments:
    """The metrics of one process.

    Args:
        made: The instrument of each metric: those of Temporal's SDK and of OpenTelemetry have the same methods.
    """

    def __init__(self, made: Mapping[Metric, Any]) -> None:
        self._made = made

    def add(self, metric: Metric, value: int = 1, /, **labels: str) -> None:
        """Add to a counter."""
        if value > 0:
            self._made[metric].add(value, _checked(metric, labels))

    def begin(self, metric: Metric, /, **labels: str) -> None:
        """Export a counter as 0, so that what reads its growth sees the first event, too."""
        self._made[metric].add(0, _checked(metric, labels))

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a gauge."""
        self._made[metric].set(value, _checked(metric, labels))

    def record(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Record a value of a histogram."""
        self._made[metric].record(max(0.0, value), _checked(metric, labels))


@cache
def instruments_of(meter: MetricMeter) -> Instruments:
    """Return the instruments of a meter of Temporal's SDK, which exports them beside its own; each is made once."""
    return Instruments({each: _instrument(meter, each) for each in METRICS})


class Names:
    """The names that a label may have; any other text counts as `other`.

    Args:
        known: The names of the catalog.
    """

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)

    def of(self, name: str) -> str:
        """Return the name, or `other`."""
        return name if name in self._known else OTHER

    def beginning(self, name: str) -> str:
        """Return the longest known name that a text begins with, as a provider completes names of LLMs."""
        if name in self._known:
            return name
        return max((each for each in self._known if each and name.startswith(each)), key=len, default=OTHER)


def _instrument(meter: MetricMeter, metric: Metric) -> MetricCounter | MetricGaugeFloat | MetricHistogramFloat:
    unit = metric.unit or None
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.description, unit)
    if metric.kind == "gauge":
        return meter.create_gauge_float(metric.name, metric.description, unit)
    return meter.create_histogram_float(metric.name, metric.description, unit)


def _checked(metric: Metric, labels: dict[str, str]) -> dict[str, str]:
    """Return the labels of a value, which are exactly those of its metric."""
    assert labels.keys() == set(metric.labels), f"{metric.name} has the labels {metric.labels}"
    return labels
