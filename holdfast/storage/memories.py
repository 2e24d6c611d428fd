"""Semantic memory in PostgreSQL: full-text search always; vectors too, with pgvector and an embedding model.

1. An item is stored before its vector: while the embedding endpoint is unavailable, items are found by words. Later
   calls fetch vectors for a few items at a time that have none, or one from another model.
2. Items that are superseded or forgotten have no lexemes and no vector, so no search can find them by mistake.
3. `HOLDFAST_ENCRYPTION_KEYS` does not cover these rows: a database cannot search encrypted text. PostgreSQL also keeps
   removed rows until it vacuums, and in its backups.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from holdfast.core.memory.semantic import (
    ItemNotFound,
    ItemRefused,
    MemoryItem,
    NewMemory,
    Recalled,
    check_may_replace,
    checked,
    clean,
    fuse,
    one_line,
    within,
)
from holdfast.core.trust import Trust
from holdfast.endpoints.embeddings import Embeddings
from holdfast.storage.memory_search import by_words, lexeme_of
from holdfast.storage.memory_vectors import Vectors, has_vectors
from holdfast.storage.pool import retried_by_temporal

EXPIRED_AT_ONCE = 20
"""The most expired items that a write removes."""

MOST_STANDING = 200
"""The most standing items that are read."""

_ID_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Excludes characters that look alike."""

_COLUMNS = """id, scope, coalesce(text, '') AS text, trust, standing, kind, thread, position, by, created_at,
    expires_at, supersedes, superseded_by, forgotten_at, forgotten_by, forgotten_why"""

_LIVE = "lexemes IS NOT NULL AND (expires_at IS NULL OR expires_at > now())"

_INSERT = f"""
    INSERT INTO holdfast.memories
        (id, key, scope, text, trust, standing, kind, thread, position, by, expires_at, supersedes, lexemes)
    VALUES (%(id)s, %(key)s, %(scope)s, %(text)s, %(trust)s, %(standing)s, %(kind)s, %(thread)s, %(position)s, %(by)s,
        %(expires_at)s, %(supersedes)s,
        strip(to_tsvector('english', %(text)s)) || array_to_tsvector(ARRAY[%(lexeme)s::text]))
    ON CONFLICT DO NOTHING RETURNING {_COLUMNS}
"""

_VERSIONS = """
    WITH RECURSIVE versions AS (
        SELECT number, id, supersedes FROM holdfast.memories WHERE {first}
        UNION
        SELECT older.number, older.id, older.supersedes
        FROM holdfast.memories AS older JOIN versions ON older.id = versions.supersedes
    )
"""

_FORGET = (
    _VERSIONS.format(first="id = %(id)s")
    + """
    UPDATE holdfast.memories SET text = NULL, kind = '', lexemes = NULL, space = 0, expires_at = NULL,
        forgotten_at = now(), forgotten_by = %(by)s, forgotten_why = %(why)s
    WHERE number IN (SELECT number FROM versions) AND forgotten_at IS NULL RETURNING number
"""
)

_HISTORY = (
    _VERSIONS.format(first="id = %s")
    + f"SELECT {_COLUMNS} FROM holdfast.memories WHERE number IN (SELECT number FROM versions) ORDER BY number DESC"
)

_PURGE = (
    _VERSIONS.format(
        first="number IN (SELECT number FROM holdfast.memories WHERE expires_at <= now() "
        "ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED)"
    )
    + "DELETE FROM holdfast.memories WHERE number IN (SELECT number FROM versions)"
)


class PostgresMemories:
    """A `holdfast.core.memory.semantic.MemoryStore` in PostgreSQL.

    While the database is unavailable, its methods raise an error that Temporal retries.

    Args:
        pool: Open, to a migrated database.
        embeddings: The embedding model; None to search by words only.
    """

    def __init__(self, pool: AsyncConnectionPool, embeddings: Embeddings | None = None) -> None:
        self._pool = pool
        self._vectors = Vectors(pool, embeddings) if embeddings else None

    async def remember(self, new: NewMemory, *, key: str) -> MemoryItem:
        """Store an item, replacing the one that it supersedes. Idempotent by key."""
        new = checked(new)
        with retried_by_temporal("semantic memory"):
            async with self._pool.connection() as connection:
                async with connection.transaction():
                    item = await _insert(connection, new, key)
                await connection.execute(_PURGE, [EXPIRED_AT_ONCE])
            if self._vectors:
                await self._vectors.catch_up()
        return item

    async def recall(self, query: str, scopes: Sequence[str] | None, *, limit: int = 5) -> Recalled:
        """Return the items that match `query` best; without a query, the newest."""
        query = clean(query).strip()
        with retried_by_temporal("semantic memory"):
            if not query:
                return Recalled(items=tuple(await self._newest(scopes, limit)))
            vector, note = await self._vectors.of_query(query) if self._vectors else (None, "")
            async with self._pool.connection() as connection, connection.transaction():
                rankings = [await by_words(connection, query, scopes)]
                if self._vectors and vector is not None:
                    rankings.append(await self._vectors.search(connection, vector, scopes))
                best = fuse(rankings)
                # Some of the best may have expired or been forgotten meanwhile.
                where = f"number = ANY(%s) AND {_LIVE} ORDER BY array_position(%s::bigint[], number) LIMIT %s"
                items = await _items(connection, where, [best, best, limit])
        return Recalled(items=tuple(items), note=note)

    async def forget(
        self, id: str, scopes: Sequence[str] | None, *, trust: Trust, by: str, why: str = ""
    ) -> MemoryItem:
        """Remove the text of an item and of its earlier versions; return the item without its text."""
        with retried_by_temporal("semantic memory"):
            async with self._pool.connection() as connection, connection.transaction():
                item = await _item(connection, id, scopes, lock=True)
                if item.forgotten_at is not None:
                    return item
                check_may_replace(item, trust)
                values = {"id": item.id, "by": one_line(clean(by))[:200], "why": one_line(clean(why))[:500]}
                forgotten = await (await connection.execute(_FORGET, values)).fetchall()
                await _remove_vectors(connection, [number for (number,) in forgotten])
                return await _item(connection, id, scopes)

    async def standing(self, scopes: Sequence[str], chars: int) -> list[MemoryItem]:
        """Return the newest standing items, as many as `standing_text` fits into `chars` characters."""
        where = f"{_LIVE} AND standing AND scope = ANY(%s) ORDER BY number DESC LIMIT %s"
        with retried_by_temporal("semantic memory"):
            async with self._pool.connection() as connection:
                return within(await _items(connection, where, [list(scopes), MOST_STANDING]), chars)

    async def history(self, id: str, scopes: Sequence[str] | None) -> list[MemoryItem]:
        """Return an item and its earlier versions, newest first."""
        with retried_by_temporal("semantic memory"):
            async with self._pool.connection() as connection:
                await _item(connection, id, scopes)
                cursor = connection.cursor(row_factory=dict_row)
                return [MemoryItem(**row) for row in await (await cursor.execute(_HISTORY, [id])).fetchall()]

    async def purge(self, limit: int = 100) -> int:
        """Remove expired items and their earlier versions; return the number of removed rows."""
        with retried_by_temporal("semantic memory"):
            async with self._pool.connection() as connection:
                return (await connection.execute(_PURGE, [limit])).rowcount

    async def _newest(self, scopes: Sequence[str] | None, limit: int) -> list[MemoryItem]:
        where, values = _LIVE, list[Any]()
        if scopes is not None:
            where, values = f"{_LIVE} AND scope = ANY(%s)", [list(scopes)]
        async with self._pool.connection() as connection:
            return await _items(connection, f"{where} ORDER BY number DESC LIMIT %s", [*values, limit])


async def _insert(connection: psycopg.AsyncConnection, new: NewMemory, key: str) -> MemoryItem:
    """Insert an item, unless its key exists, and supersede the one that it replaces."""
    while True:
        id = "m-" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(7))
        values = {**new.model_dump(), "id": id, "key": key, "lexeme": lexeme_of(new.scope)}
        cursor = connection.cursor(row_factory=dict_row)
        if row := await (await cursor.execute(_INSERT, values)).fetchone():
            break
        if stored := await _items(connection, "key = %s", [key]):
            return stored[0]
        # Another item has this id: try again with a new id.
    item = MemoryItem(**row)
    if new.supersedes:
        await _supersede(connection, item)
    return item


async def _supersede(connection: psycopg.AsyncConnection, item: MemoryItem) -> None:
    old = await _item(connection, item.supersedes, [item.scope], lock=True)
    check_may_replace(old, item.trust)
    if old.superseded_by or old.forgotten_at:
        what = f"superseded by {old.superseded_by}; supersede that one" if old.superseded_by else "forgotten"
        raise ItemRefused(f"{old.id} was {what}")
    cursor = await connection.execute(
        "UPDATE holdfast.memories SET superseded_by = %s, lexemes = NULL, space = 0 WHERE id = %s RETURNING number",
        [item.id, old.id],
    )
    await _remove_vectors(connection, [number for (number,) in await cursor.fetchall()])


async def _remove_vectors(connection: psycopg.AsyncConnection, numbers: list[int]) -> None:
    if await has_vectors(connection):
        await connection.execute("DELETE FROM holdfast.memory_vectors WHERE number = ANY(%s)", [numbers])


async def _item(
    connection: psycopg.AsyncConnection, id: str, scopes: Sequence[str] | None, *, lock: bool = False
) -> MemoryItem:
    """Return the item with this id.

    Raises:
        ItemNotFound: These scopes have no such item.
    """
    found = await _items(connection, "id = %s" + " FOR UPDATE" * lock, [clean(id)])
    if not found or (scopes is not None and found[0].scope not in scopes):
        where = "" if scopes is None else f" in {', '.join(scopes)}"
        raise ItemNotFound(f"there is no item {id[:40]!a}{where}; `recall` shows the ids")
    return found[0]


async def _items(connection: psycopg.AsyncConnection, where: str, values: list[Any]) -> list[MemoryItem]:
    cursor = connection.cursor(row_factory=dict_row)
    await cursor.execute(f"SELECT {_COLUMNS} FROM holdfast.memories WHERE {where}", values)
    return [MemoryItem(**row) for row in await cursor.fetchall()]
