"""Searches semantic memory by words and by vectors; each search returns its own ranking.

1. Every word counts, rare words more, and no word is required. PostgreSQL's statistics show how common a word is.
2. A search by words ranks about `CANDIDATES` items, regardless of the total: the rare words select the candidates, and
   common words only affect their ranking. A search by vectors uses the approximate index in large scopes.
"""

from collections.abc import Sequence

import psycopg

CANDIDATES = 1_000
"""Approximate number of items that a search by words ranks."""

EXACT = 3_000
"""The most vectors for an exact search; if the scopes have more, the approximate index is used."""

DEPTH = 50
"""The number of items in each ranking."""

MOST_WORDS = 32
"""The most words of a query that count: its rarest ones."""

QUERY_CHARS = 2_000
"""The most characters of a query that are read."""

_WORDS = "SELECT tsvector_to_array(to_tsvector('english', %s))"

_COMMON = """
    SELECT common.word, common.share
    FROM pg_stats, unnest(most_common_elems::text::text[], most_common_elem_freqs) AS common (word, share)
    WHERE schemaname = 'holdfast' AND tablename = 'memories' AND attname = 'lexemes' AND common.word = ANY(%s)
"""

_SIZE = "SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'holdfast.memories'::regclass"

# Items with all words first, then items with a rare one. Weighted as in BM25, by the number of candidates with a word.
_BY_WORDS = """
    WITH found AS MATERIALIZED (
        (SELECT number, lexemes, length(lexemes) AS size FROM holdfast.memories
         WHERE lexemes @@ %(all)s::tsquery AND (expires_at IS NULL OR expires_at > now()) LIMIT %(candidates)s)
        UNION ALL
        SELECT number, lexemes, length(lexemes) FROM (
            SELECT number, lexemes FROM holdfast.memories
            WHERE lexemes @@ %(some)s::tsquery AND (expires_at IS NULL OR expires_at > now()) LIMIT %(candidates)s
        ) AS rare WHERE NOT lexemes @@ %(all)s::tsquery
    ),
    hits AS MATERIALIZED (
        SELECT number, size, n
        FROM found JOIN unnest(%(words)s::text[]::tsquery[]) WITH ORDINALITY AS words (word, n) ON lexemes @@ word
    ),
    weights AS (
        SELECT n, ln(1 + ((SELECT count(*) FROM found) - count(*) + 0.5) / (count(*) + 0.5::float8)) AS weight
        FROM hits GROUP BY n
    )
    SELECT number FROM hits JOIN weights USING (n) GROUP BY number, size
    ORDER BY sum(weight) / (1.3 + 0.9 * size / (SELECT avg(size)::float8 FROM found)) DESC, number DESC
    LIMIT %(depth)s
"""

_COUNT = "SELECT count(*) FROM (SELECT FROM holdfast.memory_vectors WHERE {within} LIMIT %(exact)s + 1) AS counted"

_EXACT = """
    WITH within AS MATERIALIZED (SELECT number, embedding FROM holdfast.memory_vectors WHERE {within})
    SELECT number FROM within ORDER BY embedding::halfvec({size}) <=> %(vector)s::halfvec({size}) LIMIT %(depth)s
"""

_NEAREST = """
    SELECT number FROM holdfast.memory_vectors WHERE {within}
    ORDER BY embedding::halfvec({size}) <=> %(vector)s::halfvec({size}) LIMIT %(depth)s
"""


async def by_words(
    connection: psycopg.AsyncConnection, query: str, scopes: Sequence[str] | None, *, depth: int = DEPTH
) -> list[int]:
    """Return the numbers of the items that have words of `query`, best first.

    Args:
        connection: A connection in a transaction.
        query: Text in natural language.
        scopes: The scopes to search; None for all.
        depth: The most items to return.
    """
    lexemes = await (await connection.execute(_WORDS, [query[:QUERY_CHARS]])).fetchone()
    if not lexemes or not lexemes[0] or (scopes is not None and not scopes):
        return []
    words: list[str] = lexemes[0]
    scope_lexemes = [lexeme_of(scope) for scope in scopes or ()]
    common: dict[str, float] = dict(await (await connection.execute(_COMMON, [[*words, *scope_lexemes]])).fetchall())
    row = await (await connection.execute(_SIZE)).fetchone()
    words = sorted(words, key=lambda word: common.get(word, 0))[:MOST_WORDS]
    size = row[0] if row else 0
    in_scopes = size if scopes is None else size * min(1, sum(common.get(lexeme, 0) for lexeme in scope_lexemes))
    some = _rare(words, [min(in_scopes, size * common.get(word, 0)) for word in words])
    within = f"({' | '.join(map(_quote, scope_lexemes))}) & " if scopes is not None else ""
    values = {
        "all": f"{within}({' & '.join(map(_quote, words))})",
        "some": f"{within}({' | '.join(map(_quote, some))})",
        "words": [_quote(word) for word in words],
        "candidates": CANDIDATES,
        "depth": depth,
    }
    # With a LIMIT, the planner may choose a sequential scan that it expects to end early.
    await connection.execute("SET LOCAL enable_seqscan = off")
    rows = await connection.execute(_BY_WORDS, values, prepare=False)
    return [number for (number,) in await rows.fetchall()]


async def by_vector(
    connection: psycopg.AsyncConnection,
    vector: Sequence[float],
    space: int,
    scopes: Sequence[str] | None,
    *,
    depth: int = DEPTH,
) -> list[int]:
    """Return the numbers of the items with the nearest vectors, nearest first.

    Args:
        connection: A connection in a transaction.
        vector: The query's vector.
        space: The number of its embedding space.
        scopes: The scopes to search; None for all.
        depth: The most items to return.
    """
    # The index covers one space, so its number must be a literal in the statement.
    within = f"space = {int(space)}" + (" AND scope = ANY(%(scopes)s)" if scopes is not None else "")
    values = {
        "scopes": list(scopes or ()),
        "vector": vector_text(vector),
        "depth": depth,
        "exact": EXACT,
    }
    count = await (await connection.execute(_COUNT.format(within=within), values)).fetchone()
    statement = _EXACT if count and count[0] <= EXACT else _NEAREST
    if statement is _NEAREST:
        await connection.execute("SET LOCAL hnsw.iterative_scan = relaxed_order")
        await connection.execute("SET LOCAL enable_seqscan = off")
        # The other index is ruled out, too: it would sort a whole scope.
        await connection.execute("SET LOCAL enable_sort = off")
    rows = await connection.execute(statement.format(within=within, size=len(vector)), values, prepare=False)
    return [number for (number,) in await rows.fetchall()]


def lexeme_of(scope: str) -> str:
    """Return the lexeme that marks a scope. It starts with a space, which no lexeme of a text contains."""
    return f" {scope}"


def vector_text(vector: Sequence[float]) -> str:
    """Return a vector in the syntax of pgvector."""
    return f"[{','.join(map(repr, vector))}]"


def _rare(words: Sequence[str], expected: Sequence[float]) -> list[str]:
    """Return the first of `words`, rarest first, that together select about `CANDIDATES` items; at least one."""
    some, left = [words[0]], CANDIDATES - expected[0]
    for word, items in zip(words[1:], expected[1:], strict=True):
        if items > left:
            break
        some.append(word)
        left -= items
    return some


def _quote(lexeme: str) -> str:
    escaped = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
