"""The permanent record, read for people and programs: checked, and told from one that is away."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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

    effects: Callable[[str], Awaitable[Sequence[EffectRow]]] | None
    """The ledger's rows of a thread; None where no ledger is known here."""
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
