"""Exports what the settings of a worker ask for, beside its work."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.composition.components import Components
from holdfast.composition.node import host_name
from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.errors import SettingsError
from holdfast.storage.threads import PostgresThreads
from holdfast.version import __version__


@asynccontextmanager
async def exporting(parts: Components) -> AsyncIterator[None]:
    """Export traces during a block, if the settings name a collector. Imports nothing otherwise.

    Args:
        parts: Of the worker, with its database.

    Raises:
        SettingsError: The packages are missing, or the catalog keeps threads in a store of its own.
    """
    settings = parts.settings
    if settings.traces_endpoint is None:
        yield
        return
    if not is_installed("telemetry"):
        raise SettingsError(f"HOLDFAST_TRACES_ENDPOINT is set; its packages are missing: {setup_command('telemetry')}")
    threads = PostgresThreads(await parts.migrated_pool())
    if not isinstance((await parts.stores()).threads, PostgresThreads):
        raise SettingsError(
            "the catalog keeps threads in a store of its own, and traces are exported from PostgreSQL: unset "
            "HOLDFAST_TRACES_ENDPOINT"
        )
    from holdfast.telemetry.exporter import exporting_traces

    headers = {name: secret.get_secret_value() for name, secret in settings.telemetry_headers.items()}
    resource = {
        "service.name": "holdfast",
        "service.version": __version__,
        "service.namespace": (await parts.client()).namespace,
        "host.name": settings.node or host_name(),
    }
    async with exporting_traces(
        settings.traces_endpoint,
        headers=headers,
        resource=resource,
        content=settings.traces_content,
        database_url=parts.require_database(),
        threads=threads,
    ):
        yield
