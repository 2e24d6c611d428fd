"""What tests share: one embedded stack for the whole session, and workers on task queues of their own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client

from holdfast.agents.catalog import Catalog
from holdfast.runtime.client.connect import connect_stack, ensure_search_attributes
from holdfast.runtime.config.stack_file import Stack
from holdfast.runtime.stores.pool import migrate, open_pool
from holdfast.testing import Script, Unparsed
from tests.containers import start_postgres
from tests.rig import Rig, StartRig, open_stack, start_rig

# The same examples on every run: a property that fails, fails for everybody.
settings.register_profile(
    "holdfast", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("holdfast")


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own: what it approves counts for no other, nor on this machine."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOLDFAST_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Temporal server and a PostgreSQL of the session's own, on free ports."""
    with open_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture
async def client(stack: Stack) -> Client:
    """A client of the session's server."""
    client = await connect_stack(stack)
    await ensure_search_attributes(client)
    return client


@pytest.fixture
def rig(request: pytest.FixtureRequest, stack: Stack, client: Client, tmp_path: Path) -> StartRig:
    """Worker, LLM and database of a test's own. Marked `sandbox`, a test has the strict one."""
    strict = request.node.get_closest_marker("sandbox") is not None

    @asynccontextmanager
    async def start(catalog: Catalog, script: Script | Unparsed, **options: Any) -> AsyncIterator[Rig]:
        async with start_rig(
            client,
            catalog,
            script,
            worker_client=await connect_stack(stack),
            database_url=stack.database_url,
            folder=tmp_path,
            strict=strict,
            **options,
        ) as rig:
            yield rig

    return start


@pytest.fixture(scope="session")
def database_url(stack: Stack) -> Iterator[str]:
    """A PostgreSQL database: of a container where a Docker engine answers, else the embedded one."""
    container = start_postgres()
    try:
        yield container.get_connection_url(driver=None) if container else stack.database_url
    finally:
        if container:
            container.stop()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[AsyncConnectionPool]:
    """Connections to a migrated database."""
    await migrate(database_url)
    async with open_pool(database_url, size=4) as pool:
        yield pool
