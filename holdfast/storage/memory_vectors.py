"""The vectors of semantic memory: fetched from the embedding model, stored with pgvector, one index per model."""

import asyncio
from collections.abc import Sequence

import psycopg
import structlog
from psycopg_pool import AsyncConnectionPool

from holdfast.endpoints.embeddings import BATCH, EmbeddingRejected, Embeddings, EmbeddingsUnavailable
from holdfast.storage.memory_search import by_vector, vector_text

log = structlog.get_logger(__name__)

_LOCK = 0x686F6C65
"""Advisory lock for creating tables and indexes: concurrent attempts would conflict."""

# Two conditions, because the index on `space` cannot answer `<>`.
_WITHOUT_VECTOR = """
    SELECT number, text FROM holdfast.memories
    WHERE lexemes IS NOT NULL AND (space < %(space)s OR space > %(space)s) ORDER BY number DESC LIMIT %(batch)s
"""

_KEEP = """
    INSERT INTO holdfast.memory_vectors (number, space, scope, embedding)
    SELECT number, %(space)s, scope, vector::halfvec
    FROM unnest(%(numbers)s::bigint[], %(vectors)s::text[]) AS given (number, vector)
    JOIN holdfast.memories USING (number) WHERE lexemes IS NOT NULL
    ON CONFLICT (number) DO UPDATE SET space = excluded.space, embedding = excluded.embedding
"""


class Vectors:
    """Maintains a vector for every searchable item.

    Args:
        pool: Open, to a migrated database.
        embeddings: The embedding model.
    """

    def __init__(self, pool: AsyncConnectionPool, embeddings: Embeddings) -> None:
        self._pool = pool
        self._embeddings = embeddings
        self._space: int | None = None
        self._absent = False

    async def of_query(self, query: str) -> tuple[list[float] | None, str]:
        """Fetch the vector of a query, and vectors for some items without one; None and the reason if it fails."""
        if await self._ready() is None:
            return None, ""
        _, result = await asyncio.gather(self.catch_up(), self._embed_query(query))
        return result

    async def search(
        self, connection: psycopg.AsyncConnection, vector: Sequence[float], scopes: Sequence[str] | None
    ) -> list[int]:
        """Return the numbers of the nearest items, nearest first."""
        return await by_vector(connection, vector, self._space or 0, scopes)

    async def catch_up(self) -> None:
        """Fetch vectors for some items that have none, or one from another model; newest first."""
        space = await self._ready()
        if space is None:
            return
        async with self._pool.connection() as connection:
            rows = await connection.execute(_WITHOUT_VECTOR, {"space": space, "batch": BATCH})
            texts: dict[int, str] = dict(await rows.fetchall())
        try:
            vectors = await self._vectors_of(texts) if texts else {}
        except EmbeddingsUnavailable as error:
            log.warning("embeddings_unavailable", reason=str(error))
            return
        if vectors:
            await self._keep(space, vectors)

    async def _embed_query(self, query: str) -> tuple[list[float] | None, str]:
        try:
            return (await self._embeddings.embed([query]))[0], ""
        except EmbeddingsUnavailable as error:
            return None, f"Searched by words alone, because the embedding model is unavailable: {error}"

    async def _vectors_of(self, texts: dict[int, str]) -> dict[int, list[float] | None]:
        """Fetch vectors, by number; None for a text that the model rejects, which only a search by words can find."""
        try:
            return dict(zip(texts, await self._embeddings.embed(list(texts.values())), strict=True))
        except EmbeddingRejected as error:
            if len(texts) == 1:
                log.warning("embedding_refused", reason=str(error))
                return dict.fromkeys(texts)
        vectors: dict[int, list[float] | None] = {}
        for number, text in texts.items():
            vectors |= await self._vectors_of({number: text})
        return vectors

    async def _keep(self, space: int, vectors: dict[int, list[float] | None]) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            # Lock the items, so that a forgotten one does not get a vector again.
            await connection.execute(
                "SELECT FROM holdfast.memories WHERE number = ANY(%s) ORDER BY number FOR UPDATE", [list(vectors)]
            )
            texts = {number: vector_text(vector) for number, vector in vectors.items() if vector is not None}
            values = {"space": space, "numbers": list(texts), "vectors": list(texts.values())}
            await connection.execute(_KEEP, values)
            await connection.execute(
                "UPDATE holdfast.memories SET space = %s WHERE number = ANY(%s) AND lexemes IS NOT NULL",
                [space, list(vectors)],
            )

    async def _ready(self) -> int | None:
        """Return the number of the model's space; None if the database has no pgvector. Determined once per worker."""
        if self._space is None and not self._absent:
            reason = "the database has no pgvector 0.8 or later"
            try:
                async with self._pool.connection() as connection, connection.transaction():
                    self._space = await space_of(connection, self._embeddings.model, self._embeddings.dimensions)
            except psycopg.errors.InsufficientPrivilege as error:
                reason = str(error).strip()
            if self._space is None:
                self._absent = True
                log.warning("no_vectors", reason=f"{reason}; searching by words alone")
        return self._space


async def space_of(connection: psycopg.AsyncConnection, model: str, dimensions: int) -> int | None:
    """Return the number of a model's embedding space, creating it and its index if needed; None without pgvector.

    Args:
        connection: A connection in a transaction.
        model: The embedding model.
        dimensions: The length of its vectors.
    """
    values = [model, dimensions]
    find = "SELECT space FROM holdfast.memory_spaces WHERE model = %s AND dimensions = %s"
    if not await has_vectors(connection):
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        created = await (await connection.execute("SELECT holdfast.make_memory_vectors()")).fetchone()
        if created != (True,):
            return None
    if row := await (await connection.execute(find, values)).fetchone():
        return int(row[0])
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    await connection.execute(
        "INSERT INTO holdfast.memory_spaces (model, dimensions) VALUES (%s, %s) ON CONFLICT DO NOTHING", values
    )
    row = await (await connection.execute(find, values)).fetchone()
    assert row is not None
    space = int(row[0])
    await connection.execute(
        f"CREATE INDEX IF NOT EXISTS memory_vectors_{space} ON holdfast.memory_vectors "
        f"USING hnsw ((embedding::halfvec({int(dimensions)})) halfvec_cosine_ops) WHERE space = {space}"
    )
    return space


async def has_vectors(connection: psycopg.AsyncConnection) -> bool:
    """Return whether the database has the table of vectors."""
    found = await connection.execute("SELECT to_regclass('holdfast.memory_vectors') IS NOT NULL")
    return await found.fetchone() == (True,)
