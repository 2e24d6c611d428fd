"""Read the permanent record page by page: every line is checked, and an unavailable database has its own error."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from holdfast.config.programs import CLI
from holdfast.core.base.text import one_line
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.tombstones import Tombstone
from holdfast.core.stores import ArtifactStore, EffectRow, ThreadStore
from holdfast.errors import HoldfastError, RecordUnavailable

_T = TypeVar("_T")


class Record:
    """Reads a `ThreadStore`.

    Args:
        store: The store that keeps the record.
    """

    def __init__(self, store: ThreadStore) -> None:
        self.store = store

    async def length(self, thread: str) -> int:
        """Return the number of a thread's events in the record; 0 for an unknown thread.

        Raises:
            RecordUnavailable: The store does not answer.
        """
        return await call_store(self.store.length(thread))

    async def pages(self, thread: str, start: int, stop: int | None = None) -> AsyncIterator[list[bytes]]:
        """Yield the lines from position `start` up to `stop`, a page at a time, and check each.

        Raises:
            RecordUnavailable: The store does not answer.
            RecordUnreadable: A line does not decode, is missing, or was altered.
        """
        head: str | None = None
        while stop is None or start < stop:
            lines = await call_store(self.store.read(thread, start))
            if not lines:
                return
            lines = lines if stop is None else lines[: stop - start]
            head = read_lines(thread, start, lines, head=head)[-1].digest
            yield lines
            start += len(lines)


class EndedThread(Protocol):
    """A thread that ended long enough ago to be pruned."""

    @property
    def thread(self) -> str: ...
    @property
    def events(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_at(self) -> datetime: ...
    @property
    def last_position(self) -> int: ...
    @property
    def outcome(self) -> str: ...


class Prune(Protocol):
    """Deletes a thread, unless it has grown since it was listed."""

    async def __call__(self, thread: str, *, last_position: int) -> bool: ...


@dataclass(frozen=True)
class Evidence:
    """The stores beside the log, whose content must agree with it."""

    effects: Callable[[str], Awaitable[Sequence[EffectRow]]] | None
    """Returns the ledger's rows of a thread; None if this client has no ledger."""
    asides: Callable[[str], Awaitable[Sequence[str]]]
    """Lists the ids of the logs that resets of a thread have archived."""
    artifacts: ArtifactStore | None
    """None if this client does not have the artifact store."""
    tombstone: Callable[[str], Awaitable[Tombstone | None]] | None = None
    """Returns the tombstone of a forgotten thread; None if this client has no database."""


@dataclass(frozen=True)
class OpenRecord:
    """A connection to the database with the permanent record."""

    threads: ThreadStore
    prunable: Callable[[timedelta], Awaitable[Sequence[EndedThread]]]
    prune: Prune
    evidence: Evidence | None = None


async def call_store(call: Awaitable[_T]) -> _T:
    """Await a call of the record's store, and translate the store's own errors.

    Raises:
        RecordUnavailable: The store does not answer.
    """
    try:
        return await call
    except HoldfastError:
        raise
    # Each kind of store has its own exceptions for being unavailable.
    except Exception as error:
        if type(error).__name__ in ("UndefinedTable", "UndefinedColumn", "UndefinedFunction"):
            raise RecordUnavailable(
                f"the database lacks tables of this release: run `{CLI.command('migrate')}`"
            ) from error
        words = one_line(str(error), 200) or type(error).__name__
        raise RecordUnavailable(f"the permanent record cannot be read ({words}).") from error
