"""The labelled set in a store, and the share of queries whose item is among the first five results."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psycopg_pool import AsyncConnectionPool

from holdfast.core.memory.semantic import NewMemory, fuse
from holdfast.endpoints.embeddings import BATCH, Embeddings
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.memory_search import by_vector, by_words
from holdfast.storage.memory_vectors import space_of

FOLDER = Path(__file__).parent
FIRST = 5


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of one of the two files."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


async def keep(pool: AsyncConnectionPool, embeddings: Embeddings, scope: str) -> dict[int, str]:
    """Remember all items in a scope; return the label of each row number."""
    by_text, both = PostgresMemories(pool), PostgresMemories(pool, embeddings)
    labels = {}
    for count, item in enumerate(read_rows("items"), 1):
        store = by_text if count % BATCH else both  # `both` also fetches the missing vectors of earlier items
        memory = await store.remember(NewMemory(scope=scope, text=item["text"], trust="person"), key=f"{scope}/{count}")
        labels[memory.id] = item["label"]
    await both.recall("the rest", [scope])
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT number, id FROM holdfast.memories WHERE scope = %s", [scope])
        return {number: labels[id] for number, id in await rows.fetchall()}


async def recall_at_five(
    pool: AsyncConnectionPool, embeddings: Embeddings, scope: str, labels: Mapping[int, str]
) -> dict[str, dict[str, float]]:
    """Return the share of queries whose item is among the first five, by search method and by kind of query (and
    `all`).
    """
    hits: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for query in read_rows("queries"):
        (vector,) = await embeddings.embed([query["query"]])
        async with pool.connection() as connection, connection.transaction():
            space = await space_of(connection, embeddings.model, embeddings.dimensions)
            assert space is not None
            by_text = await by_words(connection, query["query"], [scope])
            near = await by_vector(connection, vector, space, [scope])
        for method, ranking in {"words": by_text, "vectors": near, "fused": fuse([by_text, near])}.items():
            hit = query["label"] in _first(ranking, labels)
            hits[method][query["kind"]].append(hit)
            hits[method]["all"].append(hit)
    return {method: {kind: sum(each) / len(each) for kind, each in kinds.items()} for method, kinds in hits.items()}


def _first(ranking: Sequence[int], labels: Mapping[int, str]) -> list[str]:
    return [labels[number] for number in ranking[:FIRST]]
