"""`python -m bench.recall`: duration and accuracy of recalls among 100,000 items.

The duration includes the database and our code, but not the embedding endpoint, which computes the query's vector.
Items are synthetic sentences whose word frequencies resemble a natural language. One scope has half of the items,
`global` has a tenth, and a thousand threads and a hundred users share the rest.
"""

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path

import openai
import psycopg
from psycopg_pool import AsyncConnectionPool

from bench import document
from holdfast.core.memory.semantic import fuse
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.ports import Ports, any_free
from holdfast.endpoints.embeddings import Embeddings
from holdfast.endpoints.scripted_embeddings import hashed_embedding
from holdfast.storage.memories import PostgresMemories
from holdfast.storage.memory_search import by_vector, by_words
from holdfast.storage.memory_vectors import space_of
from holdfast.storage.pool import migrate, open_pool
from holdfast.testing import ScriptedLLM
from tests.retrieval.labelled import keep, recall_at_five

ABOUT = (
    "Searches of semantic memory in the embedded PostgreSQL, where every item has a vector of 512 dimensions. The time "
    "that an embedding endpoint needs for the vector of the query is not included. The vectors are hashes of words and "
    "parts of words, not embeddings of a model; `wordllama` is one, a small model of words that `make bench-recall` "
    "installs, and its vectors have 256 dimensions."
)
MODEL, DIMENSIONS = "scripted", 512
VOCABULARY = 30_000
TARGET_MS = 50
COMMON = ("the", "of", "is", "to", "in", "and", "release", "project", "service", "customer", "team", "build")
PLACES: dict[str, list[str] | None] = {
    "an agent's scopes": ["agent:large", "user:7", "thread:3", "global"],
    "small scopes": ["user:7", "thread:3"],
    "everywhere": None,
}

_COPY = """
    COPY holdfast.memories (id, key, scope, text, trust, standing, kind, thread, position, by, supersedes, space)
    FROM STDIN
"""
_LEXEMES = """
    UPDATE holdfast.memories
    SET lexemes = strip(to_tsvector('english', text)) || array_to_tsvector(ARRAY[' ' || scope]) WHERE lexemes IS NULL
"""
_COPY_VECTORS = "COPY holdfast.memory_vectors (number, space, scope, embedding) FROM STDIN"


class WordLlama(Embeddings):
    """The small model in the wheel of `wordllama`, without an endpoint.

    Raises:
        ImportError: `wordllama` is not installed.
    """

    def __init__(self) -> None:
        wordllama = import_module("wordllama")
        # It looks for its tokenizer in its cache alone, although that is in the wheel beside the weights.
        self._words = wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)
        self.model, self.dimensions = "wordllama", 256

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embeddings`."""
        vectors: list[list[float]] = self._words.embed(list(texts), norm=True).tolist()
        return vectors


class Sentences:
    """Generates sentences; the n-th word of the vocabulary is n times rarer than the first."""

    def __init__(self) -> None:
        chance = random.Random(1)
        sounds = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
        self._words = [*COMMON, *("".join(chance.choices(sounds, k=chance.randint(2, 4))) for _ in range(VOCABULARY))]
        self._shares = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))

    def items(self, count: int) -> Iterator[tuple[str, str]]:
        """Yield scope and text of each item, the same in every call."""
        chance = random.Random(2)
        for _ in range(count):
            yield _scope(chance), self._sentence(chance, 8, 30)

    def queries(self, count: int) -> list[str]:
        """Return queries; every tenth has only common words."""
        chance = random.Random(3)
        common = "what is the release of the project in the build"
        return [common if n % 10 == 0 else f"what of {self._sentence(chance, 3, 8)}" for n in range(count)]

    def _sentence(self, chance: random.Random, least: int, most: int) -> str:
        return " ".join(chance.choices(self._words, cum_weights=self._shares, k=chance.randint(least, most)))


def _scope(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.5:
        return "agent:large"
    if kind < 0.8:
        return f"user:{chance.randrange(100)}"
    return "global" if kind < 0.9 else f"thread:{chance.randrange(1_000)}"


async def load(url: str, items: Callable[[], Iterable[tuple[str, str]]]) -> None:
    """Load items and vectors into an empty database. The vector index is created last, which is faster."""
    async with await psycopg.AsyncConnection.connect(url) as connection, connection.cursor() as cursor:
        await connection.execute("SET maintenance_work_mem = '400MB'")
        await connection.execute("SET max_parallel_maintenance_workers = 0")  # others would need shared memory
        space = await space_of(connection, MODEL, DIMENSIONS)
        definition = await connection.execute(
            "SELECT indexdef FROM pg_indexes WHERE indexname = %s", [f"memory_vectors_{space}"]
        )
        (index,) = await definition.fetchone() or ("",)
        await connection.execute(f"DROP INDEX holdfast.memory_vectors_{space}")
        async with cursor.copy(_COPY) as copy:
            for number, (scope, text) in enumerate(items(), 1):
                await copy.write_row(
                    [f"m-{number}", str(number), scope, text, "agent", False, "", "", 0, "", "", space]
                )
        await connection.execute(_LEXEMES)
        async with cursor.copy(_COPY_VECTORS) as copy:
            for number, (scope, text) in enumerate(items(), 1):
                vector = ",".join(f"{value:.4g}" for value in hashed_embedding(text, DIMENSIONS))
                await copy.write_row([number, space, scope, f"[{vector}]"])
        await connection.execute(index)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("VACUUM ANALYZE holdfast.memories")
        await connection.execute("VACUUM ANALYZE holdfast.memory_vectors")


async def time_queries(queries: Sequence[str], recall: Callable[[str], Awaitable[object]]) -> list[float]:
    """Return the sorted durations of the queries in milliseconds, after a warm-up."""
    times = []
    for query in [*queries[:10], *queries]:
        started = time.perf_counter()
        await recall(query)
        times.append((time.perf_counter() - started) * 1_000)
    return sorted(times[10:])


async def measure(pool: AsyncConnectionPool, queries: Sequence[str]) -> list[tuple[str, str, list[float]]]:
    """Return the kind of search, the scopes, and the durations of each combination in milliseconds."""
    vectors = {query: hashed_embedding(query, DIMENSIONS) for query in queries}
    async with pool.connection() as connection, connection.transaction():
        space = await space_of(connection, MODEL, DIMENSIONS) or 0

    async def search(query: str, scopes: list[str] | None, *, words: bool, near: bool) -> list[int]:
        async with pool.connection() as connection, connection.transaction():
            rankings = [await by_words(connection, query, scopes)] if words else []
            rankings += [await by_vector(connection, vectors[query], space, scopes)] if near else []
            return fuse(rankings)

    plain = PostgresMemories(pool)
    rows = []
    for place, scopes in PLACES.items():
        for way, words, near in (("words", True, False), ("vectors", False, True), ("fused", True, True)):

            async def recall(query: str, scopes: list[str] | None = scopes, w: bool = words, n: bool = near) -> None:
                await search(query, scopes, words=w, near=n)

            rows.append((way, place, await time_queries(queries, recall)))

        async def recall_items(query: str, scopes: list[str] | None = scopes) -> None:
            await plain.recall(query, scopes)

        rows.append(("words, with the items", place, await time_queries(queries, recall_items)))
    return rows


async def run(url: str, *, count: int, queries: int) -> list[str]:
    """Load and measure; return the lines to print."""
    await migrate(url)
    sentences = Sentences()
    await load(url, lambda: sentences.items(count))
    lines = [f"| way, over {count:,} items | scopes | p50 ms | p95 ms |", "|---|---|--:|--:|"]
    async with open_pool(url, size=4) as pool:
        for way, place, times in await measure(pool, sentences.queries(queries)):
            p50, p95 = (times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
            over = "" if p95 < TARGET_MS else f" (over {TARGET_MS})"
            lines.append(f"| {way} | {place} | {p50:.1f} | {p95:.1f}{over} |")
        with ScriptedLLM() as llm:
            async with openai.AsyncOpenAI(api_key="scripted", base_url=llm.base_url, max_retries=0) as client:
                embeddings = Embeddings(client, MODEL, DIMENSIONS)
                labels = await keep(pool, embeddings, "agent:labelled")
                recalls = await recall_at_five(pool, embeddings, "agent:labelled", labels)
        recalls |= await recalls_by_wordllama(pool)
    kinds = list(next(iter(recalls.values())))
    lines += ["", f"| recall@5 of the labelled set | {' | '.join(kinds)} |", "|---" + "|--:" * len(kinds) + "|"]
    for way, shares in recalls.items():
        lines.append(f"| {way} | {' | '.join(f'{shares[kind]:.2f}' for kind in kinds)} |")
    return lines


async def recalls_by_wordllama(pool: AsyncConnectionPool) -> dict[str, dict[str, float]]:
    """Return the recalls of `recall_at_five` with vectors of wordllama; none, with a line that says so, without it."""
    try:
        words = WordLlama()
    except ImportError:
        print("Skipped: recall with wordllama, which is not installed (`make bench-recall` installs it).")
        return {}
    labels = await keep(pool, words, "agent:wordllama")
    recalls = await recall_at_five(pool, words, "agent:wordllama", labels)
    return {f"{way}, wordllama": recalls[way] for way in ("vectors", "fused")}


def main() -> None:
    """Measure in a separate database."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--no-write", action="store_true", help="leave RESULTS.md as it is")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        servers = DevStack(Path(home), usual=Ports(any_free(), any_free(), any_free()))
        try:
            lines = asyncio.run(run(servers.start().database_url, count=options.items, queries=options.queries))
        finally:
            servers.stop()
    print("\n".join(lines))
    if not options.no_write:
        about = f"`python -m bench.recall --items {options.items} --queries {options.queries}`. {ABOUT}"
        document.write("recall", "\n".join(["## Recall", "", about, "", *lines]))


if __name__ == "__main__":
    main()
