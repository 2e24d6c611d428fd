"""The interface of a contender's module: `open_contender(setup)`, an async context manager."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import psycopg

OBSERVATION = "BENCH_OBSERVATION"
"""The environment variable with the tool's result: some contenders define their tools at import."""

_SIZE = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""


@dataclass(frozen=True)
class Setup:
    """The addresses of all servers, passed to the worker process as JSON."""

    stack: dict[str, Any]
    """The fields of `holdfast.config.stack_file.Stack`."""
    home: str
    llm_url: str
    limit: float
    """Seconds after which a run is aborted."""
    temporal_log: str
    """The file of the Temporal server's output."""

    @property
    def address(self) -> str:
        """The address of the Temporal server."""
        return str(self.stack["temporal_address"])

    def database_url(self, name: str) -> str:
        """Return the URL of the database `name` on the embedded PostgreSQL."""
        return urlunsplit(urlsplit(str(self.stack["database_url"]))._replace(path=f"/{name}"))

    def dump(self) -> str:
        """Encode as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> "Setup":
        """Decode from JSON."""
        return cls(**json.loads(text))


class Contender(Protocol):
    """One contender with its worker running."""

    async def run(self, name: str, steps: int) -> None:
        """Start the run `name` and wait until it ends; raise the error of a failed run."""

    async def resume(self, name: str) -> None:
        """Wait until the run `name` of a killed worker ends."""

    async def stored(self, name: str) -> int:
        """Return the bytes stored now, of the run `name` or of all; only the growth during a run counts."""

    async def diagnose(self, name: str) -> str:
        """End a run that failed or hangs, and return the cause according to its server; empty if unknown."""


def observation() -> str:
    """Return the tool's result."""
    return os.environ[OBSERVATION]


async def create_database(setup: Setup, name: str) -> str:
    """Create the database `name` unless it exists; return its URL."""
    async with await psycopg.AsyncConnection.connect(setup.database_url("postgres"), autocommit=True) as connection:
        found = await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if await found.fetchone() is None:
            await connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return setup.database_url(name)


async def table_bytes(url: str) -> int:
    """Return the bytes on disk of all tables of a database, with indexes and TOAST."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute(_SIZE)).fetchone()
    return int(row[0]) if row else 0
