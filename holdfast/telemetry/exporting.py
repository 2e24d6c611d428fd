"""Exports what the settings of a worker and its program ask for, beside its work."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from holdfast.composition.components import Components
from holdfast.composition.node import host_name
from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.errors import SettingsError
from holdfast.storage.threads import PostgresThreads
from holdfast.version import __version__


def is_traced(parts: Components) -> bool:
    """Whether the runs of a worker are exported as traces."""
    return parts.settings.traces_endpoint is not None or parts.observers.tracer_provider is not None


@asynccontextmanager
async def exporting(parts: Components) -> AsyncIterator[None]:
    """Export traces and pass events on during a block, if anybody wants them. Imports nothing otherwise.

    Args:
        parts: Of the worker, with its database.

    Raises:
        SettingsError: The packages are missing, or the catalog keeps threads in a store of its own.
    """
    if not is_traced(parts) and parts.observers.on_event is None:
        yield
        return
    async with AsyncExitStack() as block:
        await _follow(parts, block)
        yield


async def _follow(parts: Components, block: AsyncExitStack) -> None:
    settings, observers = parts.settings, parts.observers
    if settings.traces_endpoint and not is_installed("telemetry"):
        raise SettingsError(f"HOLDFAST_TRACES_ENDPOINT is set; its packages are missing: {setup_command('telemetry')}")
    threads = PostgresThreads(await parts.migrated_pool())
    if not isinstance((await parts.stores()).threads, PostgresThreads):
        raise SettingsError(
            "the catalog keeps threads in a store of its own, and traces and events are read from PostgreSQL: unset "
            "HOLDFAST_TRACES_ENDPOINT, and pass neither tracer_provider nor on_event"
        )
    from holdfast.telemetry.following import Receiver, following

    async def follow(name: str, receiver: Receiver) -> None:
        url = parts.require_database()
        await block.enter_async_context(following(name, receiver, database_url=url, threads=threads))

    if settings.traces_endpoint:
        from holdfast.telemetry.exporter import exporting_traces

        headers = {name: secret.get_secret_value() for name, secret in settings.telemetry_headers.items()}
        resource = {
            "service.name": "holdfast",
            "service.version": __version__,
            "service.namespace": (await parts.client()).namespace,
            "host.name": settings.node or host_name(),
        }
        exported = exporting_traces(
            settings.traces_endpoint,
            headers=headers,
            resource=resource,
            content=settings.traces_content,
            database_url=parts.require_database(),
            threads=threads,
        )
        await block.enter_async_context(exported)
    if observers.tracer_provider is not None:
        from holdfast.telemetry.provided import ProvidedTracer

        tracer = ProvidedTracer(observers.tracer_provider, content=settings.traces_content)
        await follow(f"tracer:{settings.task_queue}", tracer)
    if observers.on_event is not None:
        from holdfast.telemetry.hook import EventHook

        await follow(f"events:{settings.task_queue}", EventHook(observers.on_event))
