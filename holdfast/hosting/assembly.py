"""Puts a worker together from its client, catalog and settings.

Nothing here touches the process: no signal handler, no logging set-up, no event loop of its own.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import Client
from temporalio.worker import Worker

from holdfast.activities.assembly import Assembly, assemble
from holdfast.activities.notify import open_notifier
from holdfast.composition.components import Components
from holdfast.composition.node import node_of
from holdfast.config.policy_file import load_policy
from holdfast.core.agents.catalog import Catalog
from holdfast.core.temporal.converter import seals_in
from holdfast.core.tools.secrets import Secrets
from holdfast.streaming.publisher import Publisher, publishing
from holdfast.telemetry.exporting import exporting, is_traced
from holdfast.telemetry.metrics.instruments import Instruments, instruments_of, meter_of
from holdfast.worker.construction import new_worker
from holdfast.worker.resources import open_resources
from holdfast.workflows import WORKFLOWS

if TYPE_CHECKING:  # imported only if a worker exports metrics
    from holdfast.telemetry.metrics.measuring import Measuring

_ASSEMBLED: Final = signature(assemble).parameters.keys()
"""The arguments of `assemble`."""


@asynccontextmanager
async def assembled(parts: Components, catalog: Catalog, secrets: Secrets) -> AsyncIterator[Assembly]:
    """Open what a worker of this catalog needs, for a block: database, LLM, resources, notifier, sealer.

    Args:
        parts: Of the process, with its settings and its client of Temporal, which may be the program's own.
        catalog: The agents and tools that the worker offers.
        secrets: Those that the catalog declares, and others that must not be recorded (`secrets_of`).

    Yields:
        The activities and interceptors. The workflows are `holdfast.workflows.WORKFLOWS`.

    Raises:
        HoldfastError: Something is missing or does not answer; the message says what to do.
    """
    settings = parts.settings
    client = await parts.client()
    async with (
        open_resources(catalog, secrets) as resources,
        open_notifier(settings, ui=parts.ui) as notifier,
        _publisher(parts) as publisher,
        exporting(parts),
        _measuring(parts, catalog, client) as measuring,
    ):
        if publisher and measuring:
            publisher.on_sent = _streamed(measuring)
        yield assemble(
            catalog,
            seals_in(client.data_converter),
            llm=await parts.endpoints_for(catalog),
            default_llm=parts.default_llm,
            pool=await parts.migrated_pool(),
            database_url=parts.require_database(),
            workspaces=settings.home / "workspaces",
            artifacts=parts.artifacts_folder,
            secrets=secrets,
            resources=resources,
            notifier=notifier,
            embeddings=await parts.embeddings(),
            plain_starts=settings.plain_starts,
            seal=await parts.seal(),
            node_key=parts.node_key,
            publisher=publisher,
            node=node_of(settings),
            node_policy=load_policy(settings.policy) if settings.policy else None,
            traced=is_traced(parts),
            page=settings.gateway_url or parts.page,
            interceptors=measuring,
        )


@asynccontextmanager
async def _measuring(parts: Components, catalog: Catalog, client: Client) -> AsyncIterator[Sequence["Measuring"]]:
    """Measure what a worker does during a block, if the SDK's runtime of its client or the program exports metrics."""
    every: list[Instruments] = [instruments_of(meter)] if (meter := meter_of(client)) else []
    if (provider := parts.observers.meter_provider) is not None:
        from holdfast.telemetry.metrics.provided import provided_instruments

        every.append(provided_instruments(provider))
    if not every:
        yield ()
        return
    from holdfast.telemetry.metrics.measuring import Measuring
    from holdfast.telemetry.metrics.observing import observing

    llms = [parts.default_llm] if isinstance(parts.default_llm, str) else parts.default_llm
    async with AsyncExitStack() as block:
        for instruments in every:
            await block.enter_async_context(observing(instruments, client, await parts.migrated_pool()))
        tenants = parts.settings.tenants
        yield tuple(Measuring(instruments, catalog, llms, tenants) for instruments in every)


def _streamed(measuring: Sequence["Measuring"]) -> Callable[[float], None]:
    """Return a function that records the lag of streams."""

    def record(seconds: float) -> None:
        for each in measuring:
            each.streamed(seconds)

    return record


def _publisher(parts: Components) -> AbstractAsyncContextManager[Publisher | None]:
    """Open the publisher of streams; None if nobody could read them."""
    transport = parts.streams()
    return nullcontext() if transport is None else publishing(transport)


def build_worker(client: Client, *, task_queue: str, catalog: Catalog, **options: Any) -> Worker:
    """Build a worker of today's workflows, not running yet.

    Args:
        client: Connected, speaking pydantic, with a fleet key.
        task_queue: Where it listens.
        catalog: The agents and tools that it offers.
        options: Further arguments of `assemble` and of `holdfast.worker.construction.new_worker`.

    Raises:
        SettingsError: A tool declares a secret that the environment lacks, or the client has no fleet key.
    """
    given = {name: options.pop(name) for name in _ASSEMBLED & options.keys()}
    return worker_of(client, assemble(catalog, seals_in(client.data_converter), **given), task_queue, **options)


def worker_of(client: Client, assembly: Assembly, task_queue: str, **options: Any) -> Worker:
    """Build a worker of today's workflows with these activities and interceptors, not running yet.

    Args:
        client: Connected, speaking pydantic, with a fleet key.
        assembly: The activities and interceptors.
        task_queue: Where it listens.
        options: Further arguments of `holdfast.worker.construction.new_worker`.

    Raises:
        SettingsError: The client has no fleet key.
    """
    return new_worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=assembly.activities,
        interceptors=assembly.interceptors,
        **options,
    )
