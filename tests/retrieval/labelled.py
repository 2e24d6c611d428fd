"""The labelled set in a store, and how often the first five answers hold the right one."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psycopg_pool import AsyncConnectionPool

from holdfast.memory.semantic import NewMemory, fuse
from holdfast.runtime.llm.embeddings import BATCH, Embeddings
from holdfast.runtime.stores.memories import PostgresMemories
from holdfast.runtime.stores.memory_search import by_vector, by_words
from holdfast.runtime.stores.memory_vectors import space_of

FOLDER = Path(__file__).parent
FIRST = 5


def read(name: str) -> list[dict[str, Any]]:
    """The rows of one of the two files."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


async def keep(pool: AsyncConnectionPool, embeddings: Embeddings, scope: str) -> dict[int, str]:
    """Remember all items in a scope; returns the label of each by the number of its row."""
    words, both = PostgresMemories(pool), PostgresMemories(pool, embeddings)
    labels = {}
    for count, item in enumerate(read("items"), 1):
        store = words if count % BATCH else both  # which fetches the vectors of those before it, too
        kept = await store.remember(NewMemory(scope=scope, text=item["text"], trust="person"), key=f"{scope}/{count}")
        labels[kept.id] = item["label"]
    await both.recall("the rest", [scope])
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT number, id FROM holdfast.memories WHERE scope = %s", [scope])
        return {number: labels[id] for number, id in await rows.fetchall()}


async def recall_at_five(
    pool: AsyncConnectionPool, embeddings: Embeddings, scope: str, labels: Mapping[int, str]
) -> dict[str, dict[str, float]]:
    """The share of queries whose item is among the first five, by way of searching and by kind of query (and `all`)."""
    hits: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for asked in read("queries"):
        (vector,) = await embeddings.embed([asked["query"]])
        async with pool.connection() as connection, connection.transaction():
            space = await space_of(connection, embeddings.model, embeddings.dimensions)
            assert space is not None
            words = await by_words(connection, asked["query"], [scope])
            near = await by_vector(connection, vector, space, [scope])
        for way, ranking in {"words": words, "vectors": near, "fused": fuse([words, near])}.items():
            hit = asked["label"] in _first(ranking, labels)
            hits[way][asked["kind"]].append(hit)
            hits[way]["all"].append(hit)
    return {way: {kind: sum(each) / len(each) for kind, each in kinds.items()} for way, kinds in hits.items()}


def _first(ranking: Sequence[int], labels: Mapping[int, str]) -> list[str]:
    return [labels[number] for number in ranking[:FIRST]]
