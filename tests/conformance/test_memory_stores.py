"""Semantic memory in PostgreSQL: with vectors, with words only, and without pgvector."""

from collections.abc import AsyncIterator
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError

from holdfast.core.memory.semantic import MemoryStore
from holdfast.endpoints.embeddings import Embeddings
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.pool import migrate, open_pool
from holdfast.testing import MemoryStoreConformance, ScriptedLLM
from holdfast.testing.memory_conformance import a_memory, a_scope, keep, recalled


@pytest.fixture
async def embeddings() -> AsyncIterator[Embeddings]:
    """Return the scripted LLM's embedding endpoint."""
    with ScriptedLLM() as llm:
        async with llm.client() as client:
            yield Embeddings(client, "scripted", 64)


class TestWords(MemoryStoreConformance):
    @pytest.fixture
    def store(self, pool: AsyncConnectionPool) -> MemoryStore:
        """Return a store without an embedding model."""
        return PostgresMemories(pool)


class TestWordsAndVectors(MemoryStoreConformance):
    @pytest.fixture
    def store(self, pool: AsyncConnectionPool, embeddings: Embeddings) -> MemoryStore:
        """Return a store with a model, in a database that has pgvector."""
        return PostgresMemories(pool, embeddings)


@pytest.fixture
async def bare_url(database_url: str) -> str:
    """Return a migrated database without vectors, whose user may not add extensions."""
    name = f"bare_{uuid4().hex}"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{name}'")
        await connection.execute(f"CREATE DATABASE {name} OWNER {name}")
    url = psycopg.conninfo.make_conninfo(database_url, dbname=name, user=name, password=name)
    await migrate(url)
    return url


class TestWithoutPgvector(MemoryStoreConformance):
    @pytest.fixture
    async def store(self, bare_url: str, embeddings: Embeddings) -> AsyncIterator[MemoryStore]:
        """Return a store with a model, in a database without pgvector."""
        async with open_pool(bare_url, size=4) as pool:
            yield PostgresMemories(pool, embeddings)


async def test_vectors_follow_when_pgvector_is_installed(
    database_url: str, bare_url: str, embeddings: Embeddings
) -> None:
    """Without pgvector, words are searched; a worker that starts after its installation adds the vectors."""
    scope, query = a_scope(), "termostat calibraton"
    async with open_pool(bare_url, size=2) as pool:
        item = await keep(PostgresMemories(pool, embeddings), "Thermostat calibration is due.", scope)
        assert await recalled(PostgresMemories(pool, embeddings), query, scope) == []
        name = psycopg.conninfo.conninfo_to_dict(bare_url)["dbname"]
        admin = psycopg.conninfo.make_conninfo(database_url, dbname=name)
        async with await psycopg.AsyncConnection.connect(admin) as connection:
            await connection.execute("CREATE EXTENSION vector")
        store = PostgresMemories(pool, embeddings)
        await store.recall(query, [scope])  # which adds the missing ones
        assert await recalled(store, query, scope) == [item]


async def test_without_a_database_memory_waits() -> None:
    """Every method fails with an error that Temporal retries."""
    pool = open_pool("postgresql://postgres@127.0.0.1:1/postgres", size=1)
    pool.timeout = 0.2
    store, scope = PostgresMemories(pool), a_scope()
    await pool.open()
    try:
        for call in (
            store.remember(a_memory("text", scope), key="key"),
            store.recall("text", [scope]),
            store.forget("m-1", [scope], trust="person", by="ann"),
            store.standing([scope], 100),
            store.history("m-1", [scope]),
            store.purge(),
        ):
            with pytest.raises(ApplicationError, match="no connection to the database") as raised:
                await call
            assert not raised.value.non_retryable
    finally:
        await pool.close()
