"""The permanent record, read for people and programs: checked, and told from one that is away."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.base.text import one_line
from holdfast.errors import HoldfastError, RecordUnavailable
from holdfast.log.stored_lines import read_lines
from holdfast.stores import ArtifactStore, EffectRow, ThreadStore

_T = TypeVar("_T")


class Record:
    """Reads a `ThreadStore`.

    Args:
        store: Where the record is kept.
    """

    def __init__(self, store: ThreadStore) -> None:
        self.store = store

    async def length(self, thread: str) -> int:
        """How many events of a thread it has; 0 for an unknown one.

        Raises:
            RecordUnavailable: It does not answer.
        """
        return await answered(self.store.length(thread))

    async def parts(self, thread: str, start: int, stop: int | None = None) -> AsyncIterator[list[bytes]]:
        """The lines from position `start` up to `stop`, a page at a time, each checked.

        Raises:
            RecordUnavailable: It does not answer.
            RecordUnreadable: A line does not decode, is missing, or was altered.
        """
        head: str | None = None
        while stop is None or start < stop:
            lines = await answered(self.store.read(thread, start))
            if not lines:
                return
            lines = lines if stop is None else lines[: stop - start]
            head = read_lines(thread, start, lines, head=head)[-1].digest
            yield lines
            start += len(lines)


class Ended(Protocol):
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


class Prune(Protocol):
    """Removes a thread, if it has not grown since it was listed."""

    async def __call__(self, thread: str, *, last_position: int) -> bool: ...


@dataclass(frozen=True)
class Evidence:
    """What is kept beside the log, and has to agree with it."""

    effects: Callable[[str], Awaitable[Sequence[EffectRow]]]
    """The ledger's rows of a thread."""
    asides: Callable[[str], Awaitable[Sequence[str]]]
    """The ids under which resets have left events of a thread behind."""
    artifacts: ArtifactStore | None
    """None where they are in a store that is not known here."""


@dataclass(frozen=True)
class OpenRecord:
    """The database that the permanent record is in, connected."""

    threads: ThreadStore
    prunable: Callable[[timedelta], Awaitable[Sequence[Ended]]]
    prune: Prune
    evidence: Evidence | None = None


Opener = Callable[[str, Path | None], AbstractAsyncContextManager[OpenRecord]]
"""Connects to the database at a URL; artifacts are in it, or in a folder."""


class LazyRecord:
    """A `ThreadStore` that connects when it is first read: most verbs never need it.

    Args:
        opener: Connects.
        url: To this database.
        cleanup: Closes it.
        artifacts: The folder that has them; None for the database.
    """

    def __init__(self, opener: Opener, url: str, cleanup: AsyncExitStack, *, artifacts: Path | None = None) -> None:
        self._opener = opener
        self._artifacts = artifacts
        self._url = url
        self._cleanup = cleanup
        self._record: OpenRecord | None = None

    async def open(self) -> OpenRecord:
        """The database, connected."""
        if self._record is None:
            self._record = await self._cleanup.enter_async_context(self._opener(self._url, self._artifacts))
        return self._record

    async def append(self, thread: str, start: int, lines: object) -> None:
        """Only workers write."""
        raise NotImplementedError

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """A page of lines from position `start` on."""
        return await (await self.open()).threads.read(thread, start)

    async def length(self, thread: str) -> int:
        """How many events are kept."""
        return await (await self.open()).threads.length(thread)


async def answered(asking: Awaitable[_T]) -> _T:
    """What the record answers.

    Raises:
        RecordUnavailable: It does not.
    """
    try:
        return await asking
    except HoldfastError:
        raise
    # A store may be anything, and each has an exception of its own for being away.
    except Exception as error:
        words = one_line(str(error), 200) or type(error).__name__
        raise RecordUnavailable(f"the permanent record cannot be read ({words}).") from error
