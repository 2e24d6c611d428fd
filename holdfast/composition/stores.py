"""Chooses the stores of threads, artifacts and memories: the user's own, or else PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from holdfast.core.stores import ArtifactStore, SetsAside, ThreadStore, aside_id
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool

    from holdfast.client.reading.record import Evidence, OpenRecord
    from holdfast.core.agents.catalog import Catalog
    from holdfast.core.memory.semantic import MemoryStore
    from holdfast.endpoints.embeddings import Embeddings


@dataclass(frozen=True)
class Stores:
    """The stores of one process; None for a store that needs a database if none is known."""

    threads: ThreadStore | None
    artifacts: ArtifactStore | None
    memories: "MemoryStore | None"


def choose_stores(
    catalog: "Catalog | None",
    pool: "AsyncConnectionPool | None",
    *,
    artifacts: ArtifactStore | None = None,
    embeddings: "Embeddings | None" = None,
) -> Stores:
    """Choose each store: the catalog's own, or else PostgreSQL's.

    Args:
        catalog: Its own stores win; None for a catalog that has none.
        pool: Connections to the database; None without one.
        artifacts: A store of artifacts that takes PostgreSQL's place, such as a folder.
        embeddings: Finds memories in PostgreSQL by meaning, too; None to find them by words alone.
    """
    from holdfast.storage.artifacts import PostgresArtifacts
    from holdfast.storage.memories import PostgresMemories
    from holdfast.storage.threads import PostgresThreads

    threads, own_artifacts, memories = (
        (catalog.threads, catalog.artifacts, catalog.memories) if catalog else (None, None, None)
    )
    artifacts = artifacts if own_artifacts is None else own_artifacts
    if pool is not None:
        # Compared with None: a user's own store may be empty, and so false.
        threads = PostgresThreads(pool) if threads is None else threads
        artifacts = PostgresArtifacts(pool) if artifacts is None else artifacts
        memories = PostgresMemories(pool, embeddings) if memories is None else memories
    return Stores(threads, artifacts, memories)


def open_record(
    threads: ThreadStore,
    pool: "AsyncConnectionPool | None",
    artifacts: ArtifactStore | None,
    *,
    catalog: str,
) -> "OpenRecord":
    """Return the permanent record; with its threads in PostgreSQL, it can be pruned.

    Args:
        threads: The thread store.
        pool: Connections to the database that has the effect ledger; None without one.
        artifacts: The artifact store; None if none is known.
        catalog: The name of the catalog, for errors.
    """
    from holdfast.client.reading.record import OpenRecord
    from holdfast.storage.prune import prunable, prune
    from holdfast.storage.threads import PostgresThreads

    evidence = collect_evidence(threads, pool, artifacts)
    if pool is not None and isinstance(threads, PostgresThreads):
        return OpenRecord(threads, partial(prunable, pool), partial(prune, pool), evidence)

    async def refuse_listing(older_than: timedelta) -> NoReturn:
        raise _cannot_prune(catalog)

    async def refuse_removal(thread: str, *, last_position: int) -> NoReturn:
        raise _cannot_prune(catalog)

    return OpenRecord(threads, refuse_listing, refuse_removal, evidence)


def collect_evidence(
    threads: ThreadStore | None, pool: "AsyncConnectionPool | None", artifacts: ArtifactStore | None
) -> "Evidence":
    """Return the evidence to compare a thread's log with; `verify` reports missing parts as not checked."""
    from holdfast.client.reading.record import Evidence
    from holdfast.storage.forget import find_tombstone
    from holdfast.storage.ledger import effects_of
    from holdfast.storage.threads import PostgresThreads

    effects = None if pool is None else partial(effects_of, pool)
    asides = threads.asides if isinstance(threads, PostgresThreads) else partial(_probe_asides, threads)
    tombstone = None if pool is None else partial(find_tombstone, pool)
    return Evidence(effects, asides, artifacts, tombstone)


async def _probe_asides(threads: ThreadStore | None, thread: str) -> list[str]:
    """Return the archived branches of a thread in a user's store: their ids are numbered from 1."""
    asides: list[str] = []
    if threads is not None and isinstance(threads, SetsAside):
        while await threads.length(name := aside_id(thread, len(asides) + 1)):
            asides.append(name)
    return asides


def _cannot_prune(catalog: str) -> SettingsError:
    return SettingsError(
        f"{catalog} keeps threads in a store of its own, which Holdfast cannot prune; remove old threads in that store"
    )


class LazyThreads:
    """Reads a `ThreadStore`.

    Args:
        open: Opens the store.
    """

    def __init__(self, open: Callable[[], Awaitable[ThreadStore]]) -> None:
        self._open = open
        self._threads: ThreadStore | None = None
        self._opening = asyncio.Lock()

    async def append(self, thread: str, start: int, lines: object) -> None:
        """Raise: only workers write."""
        raise NotImplementedError

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Read a page of lines from position `start`."""
        return await (await self._opened()).read(thread, start)

    async def length(self, thread: str) -> int:
        """Return the number of stored events."""
        return await (await self._opened()).length(thread)

    async def _opened(self) -> ThreadStore:
        async with self._opening:  # a program reads several threads at once
            if self._threads is None:
                self._threads = await self._open()
        return self._threads
