"""Verbs for semantic memory. What a person writes here is a person's word."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from rich.text import Text

from holdfast.base.text import one_line
from holdfast.errors import HoldfastError, ServerUnreachable
from holdfast.memory.semantic import MemoryItem, MemoryStore, NewMemory, check_scope, provenance
from holdfast.runtime.cli.exits import OK
from holdfast.runtime.cli.text import clock, indented, visible
from holdfast.runtime.cli.verbs.invocation import Invocation
from holdfast.runtime.config.settings import Settings

OpenMemories = Callable[[str, Settings], AbstractAsyncContextManager[MemoryStore]]
"""Opens the memories in the database at a URL."""


class MemoriesUnavailable(ServerUnreachable):
    """The database that the memories are in does not answer, or has none."""


class Remembering(Invocation):
    """Keeps what outlives a run."""

    async def remember(
        self,
        memories: OpenMemories,
        text: str,
        scope: str,
        *,
        standing: bool,
        seconds: float | None,
        supersedes: str,
        by: str | None,
    ) -> int:
        """Remember something."""
        new = NewMemory(
            scope=scope,
            text=text,
            trust="person",
            standing=standing,
            by=self._name(by),
            expires_at=None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds),
            supersedes=supersedes,
        )
        async with self._memories(memories) as store:
            self._item(await store.remember(new, key=f"cli/{uuid4().hex}"))
        return OK

    async def recall(self, memories: OpenMemories, query: str, scopes: Sequence[str] | None, *, limit: int) -> int:
        """What answers a query, or what is newest.

        Raises:
            ItemRefused: A scope is none.
        """
        for scope in scopes or ():
            check_scope(scope)
        async with self._memories(memories) as store:
            found = await store.recall(query, scopes, limit=limit)
        for item in found.items:
            self._item(item)
        if found.note:
            self._output.note(visible(found.note))
        if not found.items:
            self._output.note("Nothing is remembered about that." if query.strip() else "Nothing is remembered yet.")
        return OK

    async def history(self, memories: OpenMemories, id: str, scopes: Sequence[str] | None) -> int:
        """An item and all that it superseded."""
        async with self._memories(memories) as store:
            for item in await store.history(id, scopes):
                self._item(item)
        return OK

    async def forget(self, memories: OpenMemories, id: str, *, reason: str, by: str | None) -> int:
        """Remove an item."""
        async with self._memories(memories) as store:
            self._item(await store.forget(id, None, trust="person", by=self._name(by), why=reason))
        return OK

    @asynccontextmanager
    async def _memories(self, memories: OpenMemories) -> AsyncIterator[MemoryStore]:
        """The memories, open.

        Raises:
            MemoriesUnavailable: There is no database, it does not answer, or it has no memories.
        """
        url = self._database_url()
        if url is None:
            raise MemoriesUnavailable(
                "there is no database to remember in: set DATABASE_URL to the one that the workers have, or start "
                "`python worker.py --dev`"
            )
        try:
            async with memories(url, self._settings) as store:
                yield store
        except HoldfastError:
            raise
        # A store may be anything, and each has an exception of its own for being away.
        except Exception as error:
            words = one_line(str(error), 200) or type(error).__name__
            raise MemoriesUnavailable(
                f"the memories cannot be had ({words}). Check DATABASE_URL; a worker of this release prepares a "
                "database that is new."
            ) from error

    def _item(self, item: MemoryItem) -> None:
        self._output.result(item.model_dump(mode="json"), _screen(item))


def _screen(item: MemoryItem) -> Text:
    """An item for people."""
    until = f", until {clock(item.expires_at.isoformat())}" if item.expires_at else ""
    head = Text.assemble(
        (item.id, "bold"),
        f"  {visible(item.scope)}  trust: {item.trust}",
        f"  {visible(item.kind)}" if item.kind else "",
        "  standing" if item.standing else "",
        (f"  {clock(item.created_at.isoformat())}{until}  {visible(provenance(item))}", "dim"),
    )
    return Text("\n").join([head, *(Text(indented(line)) for line in _lines(item))])


def _lines(item: MemoryItem) -> list[str]:
    said: list[Any] = [visible(item.text)] if item.text else []
    if item.superseded_by:
        said.append(f"(superseded by {item.superseded_by})")
    if item.forgotten_at:
        why = f": {visible(item.forgotten_why)}" if item.forgotten_why else ""
        said.append(f"(forgotten {clock(item.forgotten_at.isoformat())} by {visible(item.forgotten_by)}{why})")
    return said
