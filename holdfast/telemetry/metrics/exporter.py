"""The runtime of Temporal's SDK that exports metrics, its own and ours, as the settings of a worker say."""

from collections.abc import Mapping
from datetime import timedelta

from pydantic import SecretStr
from temporalio.runtime import (
    LoggingConfig,
    OpenTelemetryConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
)

from holdfast.config.settings import Settings
from holdfast.errors import SettingsError
from holdfast.telemetry.metrics.names import BUCKETS, METRICS

PUSH_SECONDS = 15
"""Time between two exports to a collector."""

_Headers = tuple[tuple[str, str], ...]

_runtimes: dict[tuple[str | None, str | None, _Headers], Runtime] = {}
"""The runtimes of this process: a second one could not listen at the same address."""

_OVERRIDES = {each.name: BUCKETS for each in METRICS if each.kind == "histogram"}


def metrics_runtime(settings: Settings, logging: LoggingConfig | None = LoggingConfig.default) -> Runtime | None:
    """Return the runtime that exports metrics, one for each process; None if the settings name no exporter.

    Args:
        settings: Of the worker.
        logging: Where the SDK logs.

    Raises:
        SettingsError: The address is taken, or the settings name two exporters.
    """
    if settings.metrics_listen is None and settings.metrics_endpoint is None:
        return None
    headers = _plain(settings.telemetry_headers)
    wanted = (settings.metrics_listen, settings.metrics_endpoint, headers)
    if wanted not in _runtimes:
        _runtimes[wanted] = _runtime(*wanted, logging)
    return _runtimes[wanted]


def _runtime(listen: str | None, endpoint: str | None, headers: _Headers, logging: LoggingConfig | None) -> Runtime:
    metrics: PrometheusConfig | OpenTelemetryConfig
    if listen is not None:
        metrics = PrometheusConfig(listen, durations_as_seconds=True, histogram_bucket_overrides=_OVERRIDES)
    else:
        assert endpoint is not None
        metrics = OpenTelemetryConfig(
            endpoint,
            headers=dict(headers),
            http=True,
            metric_periodicity=timedelta(seconds=PUSH_SECONDS),
            durations_as_seconds=True,
            histogram_bucket_overrides=_OVERRIDES,
        )
    try:
        return Runtime(telemetry=TelemetryConfig(logging=logging, metrics=metrics))
    except (RuntimeError, ValueError) as error:
        where = f"HOLDFAST_METRICS_LISTEN={listen}" if listen else "HOLDFAST_METRICS_ENDPOINT"
        raise SettingsError(f"{where} cannot be used: {error}. Two workers of a machine need two addresses.") from None


def _plain(headers: Mapping[str, SecretStr]) -> _Headers:
    return tuple((name, secret.get_secret_value()) for name, secret in headers.items())
