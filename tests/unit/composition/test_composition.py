"""The composition root: which store a process uses, and the operations that only PostgreSQL supports."""

import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, Catalog
from holdfast.client.unreachable import check_port
from holdfast.composition.components import Components
from holdfast.composition.stores import choose_stores, collect_evidence, open_record
from holdfast.config.settings import Settings
from holdfast.core.stores import aside_id
from holdfast.devstack.ports import any_free
from holdfast.errors import ServerUnreachable, SettingsError
from holdfast.storage.artifacts import FolderArtifacts
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


class Threads:
    """A user's thread store, in memory."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        """Return 0: an empty store is falsy, and still a store."""
        return 0

    async def append(self, thread: str, start: int, lines: Sequence[bytes]) -> None: ...

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        return []

    async def length(self, thread: str) -> int:
        return int(thread in self.names)


class Resettable(Threads):
    """The same store, which also keeps the branches that resets leave behind."""

    async def set_aside(self, thread: str, start: int, lines: Sequence[bytes]) -> str:
        raise NotImplementedError


def catalog(**stores: Any) -> Catalog:
    """Return a catalog with stores of its own."""
    return Catalog(agents=[Agent(name="clerk", instructions="")], **stores)


def components(tmp_path: Path, cleanup: AsyncExitStack, **environ: str) -> Components:
    """Return the parts of a process with these settings."""
    variables = {"HOLDFAST_HOME": str(tmp_path), "TEMPORAL_ADDRESS": "127.0.0.1:1", **environ}
    return Components(Settings.from_env(variables, root=tmp_path), variables, cleanup=cleanup)


def test_a_catalogs_own_store_wins(tmp_path: Path) -> None:
    """The catalog's store replaces the database's and a folder's; the database provides the others."""
    own, folder = Threads(), FolderArtifacts(tmp_path)
    pool = open_pool(NOWHERE, size=1)
    chosen = choose_stores(catalog(threads=own), pool, artifacts=folder)
    assert chosen.threads is own
    assert chosen.artifacts is folder
    assert chosen.memories is not None
    assert isinstance(choose_stores(catalog(), pool).threads, PostgresThreads)


def test_without_a_database_only_the_catalogs_stores_exist() -> None:
    """Nothing is opened for a missing store."""
    own = Threads()
    chosen = choose_stores(catalog(threads=own), None)
    assert (chosen.threads, chosen.artifacts, chosen.memories) == (own, None, None)


async def test_a_users_store_is_not_pruned() -> None:
    """A user's store is neither listed nor pruned, and the error names the catalog."""
    record = open_record(Threads(), open_pool(NOWHERE, size=1), None, catalog="mine:catalog")
    with pytest.raises(SettingsError, match="mine:catalog keeps threads in a store of its own"):
        await record.prunable(timedelta(days=1))
    with pytest.raises(SettingsError, match="mine:catalog"):
        await record.prune("t", last_position=3)


async def test_branches_that_resets_archived_are_found_in_a_users_store() -> None:
    """Logs are numbered from 1; a store that keeps none has none."""
    names = [aside_id("t", 1), aside_id("t", 2)]
    assert await collect_evidence(Resettable(*names), None, None).asides("t") == names
    assert await collect_evidence(Threads(*names), None, None).asides("t") == []
    assert collect_evidence(None, None, None).effects is None


async def test_the_example_catalog_is_not_loaded_for_stores(tmp_path: Path) -> None:
    """The example catalog has no stores, and a process without a database or a catalog of its own has no record."""
    async with AsyncExitStack() as cleanup:
        parts = components(tmp_path, cleanup)
        assert parts.threads() is None
        assert parts._stores_catalog is None
        with pytest.raises(SettingsError, match="no permanent record to prune: set DATABASE_URL"):
            await parts.record()


async def test_a_worker_needs_a_database_of_its_settings(tmp_path: Path) -> None:
    """The embedded stack of another process is not used instead."""
    async with AsyncExitStack() as cleanup:
        with pytest.raises(SettingsError, match="DATABASE_URL is not set"):
            components(tmp_path, cleanup).require_database()
        assert components(tmp_path, cleanup, DATABASE_URL=NOWHERE).require_database() == NOWHERE


def test_a_closed_port_is_rejected_and_other_faults_are_left_to_temporal() -> None:
    """Only a closed loopback port is rejected here; Temporal reports every other fault."""
    with pytest.raises(ServerUnreachable, match=r"no Temporal server answers at 127.0.0.1:\d+ \(Connection refused\)"):
        check_port(f"127.0.0.1:{any_free()}")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        check_port(f"127.0.0.1:{listening.getsockname()[1]}")
    for address in ("", "temporal.invalid:7233", "127.0.0.1", "127.0.0.1:x"):
        check_port(address)
