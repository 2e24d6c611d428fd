"""Runs a worker for a block, in any process and event loop: `worker.py`, and a program that holds agents.

The caller sees to what is the process's own: servers, signals, logging.
"""

import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio.client import Client

from holdfast.client.connect import ensure_search_attributes
from holdfast.client.reading.runs import Runs
from holdfast.composition.components import Components
from holdfast.config.own_secrets import own_secrets
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.required_secrets import read_secrets
from holdfast.core.tools.secrets import Secrets
from holdfast.encryption.fleet_keys import required_seals
from holdfast.hosting.assembly import assembled, worker_of
from holdfast.hosting.queues import offer_of
from holdfast.retention.own_stores import require_own_stores
from holdfast.retention.sweep import sweeping
from holdfast.worker.construction import running
from holdfast.worker.takeover.takeover import taking_over

GRACE = timedelta(seconds=5)
"""How long running calls may take to end when the worker is stopped; then they are cancelled."""


def secrets_of(parts: Components, catalog: Catalog, environ: Mapping[str, str]) -> Secrets:
    """Collect what must not be recorded: the process's own secrets, the fleet key, and those that the catalog declares.

    Raises:
        SettingsError: A tool or a resource declares a secret that the environment lacks.
    """
    return own_secrets(parts.settings, environ) | read_secrets(catalog.secret_users, environ)


@asynccontextmanager
async def serving(parts: Components, catalog: Catalog, secrets: Secrets, reference: str) -> AsyncIterator[Client]:
    """Run a worker of a catalog for a block.

    Args:
        parts: Of the process, with a database and a fleet key.
        catalog: The agents and tools that the worker offers.
        secrets: From `secrets_of`.
        reference: Where the catalog is from, for people: `package.module:attribute`.

    Yields:
        The client of Temporal that the worker uses.

    Raises:
        HoldfastError: Something is missing or does not answer; the message says what to do.
    """
    # The SDK warns for every local activity that ends just as its time is over.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    settings = parts.settings
    parts.require_database()
    required_seals(settings, parts.config)
    await parts.endpoints_for(catalog)
    client = await parts.client()
    queue, offer = settings.task_queue, offer_of(settings, catalog, reference)
    takeover = taking_over(client, home=settings.home, task_queue=queue, enabled=settings.takeover, offer=offer)
    async with takeover as identity:
        await ensure_search_attributes(client)
        await parts.migrated_pool()
        async with pruning(parts), assembled(parts, catalog, secrets) as assembly:
            worker = worker_of(client, assembly, queue, graceful_shutdown_timeout=GRACE, identity=identity)
            async with running(worker):
                yield client


@asynccontextmanager
async def pruning(parts: Components) -> AsyncIterator[None]:
    """Prune the permanent record for a block, by the rules of the settings; without rules, do nothing.

    Raises:
        SettingsError: The catalog has stores of its own, which Holdfast cannot prune.
    """
    if (retention := parts.settings.retention) is None:
        yield
        return
    require_own_stores(await parts.stores())
    runs = Runs(await parts.client(), answer_within=parts.settings.answer_seconds)
    every, pool, seal = parts.settings.pruning_interval, await parts.migrated_pool(), await parts.seal()
    async with sweeping(runs, pool, retention, every=every, seal=seal):
        yield
