"""Records metrics through the meter provider of a program."""

from functools import cache
from typing import Any

from opentelemetry.metrics import Meter, MeterProvider

from holdfast.telemetry.metrics.instruments import Instruments
from holdfast.telemetry.metrics.names import BUCKETS, METRICS, Metric
from holdfast.version import __version__


@cache
def provided_instruments(provider: MeterProvider) -> Instruments:
    """Return the instruments of a provider, each made once."""
    meter = provider.get_meter("holdfast", __version__)
    return Instruments({each: _instrument(meter, each) for each in METRICS})


def _instrument(meter: Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, metric.unit, metric.description)
    if metric.kind == "gauge":
        return meter.create_gauge(metric.name, metric.unit, metric.description)
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=BUCKETS
    )
