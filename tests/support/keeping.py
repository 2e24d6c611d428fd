"""Databases for a single test, and threads in them, for tests of backups and of forgetting."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import RunFinished, RunForked, RunStarted, UserMessageReceived
from holdfast.core.log.fork_point import ForkPoint
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads

_MIGRATED: dict[str, str] = {}
"""Server → one of its migrated databases, to be copied: that takes less than migrating each."""


@asynccontextmanager
async def new_pool(server: str) -> AsyncIterator[tuple[str, AsyncConnectionPool]]:
    """Create a migrated database for a block, and yield its URL and connections to it."""
    name = f"keep_{uuid4().hex}"
    url = make_conninfo(server, dbname=name)
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        if server not in _MIGRATED:
            await connection.execute(f"CREATE DATABASE {name}_migrated")
            await migrate(make_conninfo(server, dbname=f"{name}_migrated"))
            _MIGRATED[server] = f"{name}_migrated"
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {_MIGRATED[server]}")
        try:
            async with open_pool(url, size=4) as pool:
                yield url, pool
        finally:
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def lines_of(thread: str, *, ended: datetime | None = None, outcome: Any = "completed") -> list[bytes]:
    """Return the events of a thread with one run that has ended."""
    at = ended or datetime.now(UTC) - timedelta(days=1)
    log = EventLog()
    log.append(RunStarted(thread=thread, run_id="r", first_run_id="r", agent=None), at=at)
    log.append(UserMessageReceived(content=f"the secret of {thread}", task=True), at=at)
    log.append(RunFinished(outcome=outcome), at=at)
    return [event_line(event) for event in log.events]


def fork_of(thread: str, fork: str) -> list[bytes]:
    """Return the events of a fork that begins with all of `lines_of(thread)` but its end."""
    log = EventLog()
    at = datetime.now(UTC) - timedelta(days=1)
    log.append(RunStarted(thread=thread, run_id="r", first_run_id="r", agent=None), at=at)
    log.append(UserMessageReceived(content=f"the secret of {thread}", task=True), at=at)
    point = ForkPoint(thread=thread, position=1, head=log.events[-1].digest)
    log.append(RunForked(thread=fork, first_run_id="f", point=point, origin=thread), at=at)
    log.append(RunStarted(thread=fork, run_id="f", first_run_id="f", agent=None), at=at)
    log.append(RunFinished(outcome="completed"), at=at)
    return [event_line(event) for event in log.events]


async def add_thread(pool: AsyncConnectionPool, thread: str, **options: Any) -> list[bytes]:
    """Record a thread with an effect, a memory of its own and an artifact; return its lines."""
    lines = lines_of(thread, **options)
    await PostgresThreads(pool).append(thread, 0, lines)
    await PostgresArtifacts(pool).put(f"content of {thread}".encode(), thread=thread)
    async with pool.connection() as connection:
        await connection.execute(
            "INSERT INTO holdfast.effects (key, epoch, thread, tool, finished_at, outcome, call, mac) "
            "VALUES (%s, 0, %s, 'pay', now(), %s, 'pay(the secret)', 'a-key:00')",
            [f"key of {thread}", thread, '{"status":"ok","content":"the secret"}'],
        )
        for scope in (f"thread:{thread}", "global"):
            await connection.execute(
                "INSERT INTO holdfast.memories (id, key, scope, text, trust, standing, kind, thread, position, by, "
                "supersedes, lexemes) VALUES (%s, %s, %s, 'the secret', 'agent', false, '', %s, 1, 'a', '', "
                "to_tsvector('secret'))",
                [f"m-{uuid4().hex[:7]}", uuid4().hex, scope, thread],
            )
    return lines
