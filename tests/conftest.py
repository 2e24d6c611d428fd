"""Shared fixtures: one embedded stack for the session, and workers that each have their own task queue."""

import asyncio
import gc
import os
import shutil
import signal
import ssl
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any, cast

import httpcore2
import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client

from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.agents.catalog import Catalog
from holdfast.core.mac.seals import FleetKeys
from holdfast.devstack import shared
from holdfast.devstack.shared import Server
from holdfast.storage.pool import open_pool
from holdfast.testing import Script, Unparsed
from tests.support.containers import start_postgres
from tests.support.examples import THOROUGH
from tests.support.rig import Rig, StartRig, migrate_once, start_rig
from tests.support.servers import ended_servers, open_stack, restart_ended

# The same examples on every run, so that a failing property fails on every machine; `make test-all` has more of them.
settings.register_profile(
    "holdfast", derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(THOROUGH, settings.get_profile("holdfast"), max_examples=100)
settings.load_profile("holdfast")
# Hypothesis draws constants of the modules that are loaded, too, and which these are depends on the tests before.
pytest.MonkeyPatch().setattr(providers, "_get_local_constants", lambda: providers._local_constants)


_ROOT = "PYTEST_DEBUG_TEMPROOT"
"""The variable that names the folder in which a pytest makes its temporary folders."""


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C interrupt what tests start, and make the temporary folders in a folder of this run's own.

    A pytest that starts closes the folder that all of a user's share to other users (chmod 0700). A PostgreSQL that
    root has started under another account could neither start nor recover there: it would end, and later tests fail.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; processes of tests inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and _ROOT not in os.environ:
        os.environ[_ROOT] = tempfile.mkdtemp(prefix="tests-")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remove them after a run without a failure."""
    root = os.environ.get(_ROOT, "")
    if not hasattr(session.config, "workerinput") and Path(root).name.startswith("tests-") and exitstatus == 0:
        session.config.add_cleanup(lambda: shutil.rmtree(root, ignore_errors=True))


def pytest_collection() -> None:
    """Collect no garbage while modules are imported, and tests are made: nearly all of it lives on."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out what lives as long as the process, five thousand tests among it, whenever garbage is collected."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the shared servers that have ended in the report of a failure."""
    report = yield
    if report.failed:
        report.sections += [("A shared server has ended", each) for each in ended_servers()]
    return report


@pytest.fixture(scope="session", autouse=True)
def root_of_inner_pytests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder of their own for the pytests that tests run, for the same reason."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(_ROOT, str(tmp_path_factory.mktemp("inner")))
        yield


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """Wait longer for a worker's answer than people would: the machine may be busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Threads.__init__.__kwdefaults__ or {}, "answer_within", 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Read the machine's certificates once, not for each HTTP client: that takes 50 ms, and few of them use TLS."""
    read, kept = httpcore2.default_ssl_context, list[ssl.SSLContext]()

    def once(*, _trust_env: bool = True) -> ssl.SSLContext:
        if _trust_env and {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            return read()
        kept[:] = kept or [read(_trust_env=False)]
        return kept[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpcore2, "default_ssl_context", once)
        yield


@pytest.fixture(autouse=True)
def servers_run(request: pytest.FixtureRequest) -> None:
    """Start shared servers again that have ended: only the tests that they failed are red."""
    if "stack" in request.fixturenames:
        restart_ended()


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all state folders: pytest reads the names in its own to find the next number."""
    return tmp_path_factory.mktemp("homes")


@pytest.fixture(autouse=True)
def state_folder(state_folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder for this test alone: its approvals affect no other test and not this machine."""
    folder = Path(tempfile.mkdtemp(dir=state_folders))
    monkeypatch.setenv("HOLDFAST_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Undo how a command in this process has configured logs: it would withhold the lines of later tests."""
    before = structlog.get_config() if structlog.is_configured() else None
    yield
    if before is not None:
        structlog.configure(**before)
    elif structlog.is_configured():
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Temporal server and a migrated PostgreSQL for the session, on free ports."""
    with open_stack(tmp_path_factory.mktemp("stack")) as stack:
        asyncio.run(_prepare(stack))
        yield stack


async def _prepare(stack: Stack) -> None:
    await migrate_once(stack.database_url)
    await ensure_search_attributes(await connect_stack(stack))


@pytest.fixture
async def client(stack: Stack) -> Client:
    """A client of the session's server."""
    return await connect_stack(stack)


@pytest.fixture
def session_server(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `holdfast.testing.agent` use the session's Temporal instead of starting another one."""
    server = Server(stack.temporal_address, FleetKeys({"test": os.urandom(32)}), cast("Popen[str]", _Running()))
    monkeypatch.setattr(shared, "_running", [server])


class _Running:
    def poll(self) -> None:
        """Say that the server runs."""


@pytest.fixture
def rig(request: pytest.FixtureRequest, stack: Stack, client: Client, tmp_path: Path) -> StartRig:
    """Start a worker, an LLM and a database for one test; with the marker `sandbox`, in the strict sandbox."""
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
    """A PostgreSQL database: in a container if a Docker engine answers, otherwise the embedded one."""
    container = start_postgres()
    try:
        yield container.get_connection_url(driver=None) if container else stack.database_url
    finally:
        if container:
            container.stop()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[AsyncConnectionPool]:
    """Connections to a migrated database."""
    await migrate_once(database_url)
    async with open_pool(database_url, size=4) as pool:
        yield pool
