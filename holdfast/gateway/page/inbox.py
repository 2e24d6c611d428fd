"""The open requests and the blocked runs of all threads, for everybody's inbox.

1. One reading is shared by all who look, for `FRESH_SECONDS`, and what an older one has found is shown while the next
   is under way; if nobody has looked for `OLD_SECONDS`, the next one is waited for. Nobody waits long for the first:
   the page says how many runs have not been read yet, and loads them as they come.
2. Temporal's visibility store names the runs that wait, in one call. A run is asked when it appears there, when its row
   changes, and else once in `ROUNDS` readings: two changes within one reading can leave a row as it was.
3. What is old is safe to decide on: each decision names the digest of what was shown, and the run compares it.
4. A request that was just decided here is left out until its run has been asked again.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import structlog

from holdfast.client.listing import list_page, read_each
from holdfast.client.pending import PENDING_SECONDS, RowVersion, list_waiting
from holdfast.client.threads import JSON, Threads
from holdfast.errors import HoldfastError

FRESH_SECONDS = 5.0
"""How old a reading may be before the next one begins."""
OLD_SECONDS = 20.0
"""How old a reading may be before those who look wait a moment for the next one: a page that stays open looks every ten
seconds."""
FIRST_SECONDS = 2.0
"""How long the first who look wait for the first reading, on a page that shows it as it is then."""
BRIEF_SECONDS = 0.3
"""The same on a page that shows what there is, and loads the rest by itself: nobody waits once any run has answered."""
ROUNDS, ROUND = 12, 20
"""A reading asks a twelfth of the runs again that seem unchanged, and at least so many."""
AT_ONCE = 16
"""The most runs that are asked at once: more would delay the answers to people."""
BLOCKED = 50
"""The most blocked runs that are read."""

log = structlog.get_logger("gateway")


@dataclass(frozen=True)
class Reading:
    """The requests and blocked runs at a time."""

    at: datetime
    requests: tuple[JSON, ...]
    unread: tuple[str, ...]
    """Threads with requests that could not be read."""
    blocked: tuple[JSON, ...]
    """The states of blocked runs: `thread`, `agent` and `blocked`."""
    missing: tuple[str, ...] | None
    """Threads with requests that have not been read yet; None if not even these are known yet."""


class _Answer(NamedTuple):
    """What a run has said."""

    version: RowVersion | None
    """Its row when it was asked; None if it has to be asked again."""
    asked_at: float
    requests: Sequence[JSON] | None
    """None if it could not be read."""


class Inbox:
    """Reads open requests and blocked runs.

    Args:
        threads: The threads.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._waiting: Mapping[str, RowVersion] | None = None
        """The threads with open requests, by Temporal's visibility store; None before it has named them."""
        self._failure: BaseException | None = None
        """Why the last reading failed; None if it did not."""
        self._answers: dict[str, _Answer] = {}
        self._blocked: Sequence[JSON] = ()
        self._at = datetime.now(UTC)
        self._read_at: float | None = None
        """When the last reading ended; None before the first one has."""
        self._task: asyncio.Task[None] | None = None
        self._decided: dict[tuple[str, str], float] = {}

    async def look(self, *, brief: bool = False) -> Reading:
        """Return what is known; wait only for the first reading, or if what is known is old, and not long.

        Args:
            brief: The page loads by itself what is missing.

        Raises:
            HoldfastError: Nothing is known yet, because the first reading failed.
        """
        age = float("inf") if self._read_at is None else time.monotonic() - self._read_at
        if self._task is None and age > FRESH_SECONDS:
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(self._done)
        loads = brief and self._read_at is None and bool(self._answers)
        if self._task and age > OLD_SECONDS and not loads:
            await asyncio.wait({self._task}, timeout=BRIEF_SECONDS if brief else FIRST_SECONDS)
        if self._waiting is None and self._failure:
            raise self._failure
        known = [(thread, self._answers.get(thread)) for thread in self._waiting or ()]
        return Reading(
            self._at,
            tuple(
                each
                for thread, answer in known
                for each in (answer.requests if answer else None) or ()
                if (thread, each["request"]) not in self._decided
            ),
            tuple(thread for thread, answer in known if answer and answer.requests is None),
            tuple(self._blocked),
            None if self._waiting is None else tuple(thread for thread, answer in known if answer is None),
        )

    def forget(self, thread: str, request: str) -> None:
        """Leave out a request that was decided, until its run has been asked again."""
        self._decided[thread, request] = time.monotonic()
        if answer := self._answers.get(thread):
            self._answers[thread] = answer._replace(version=None)

    async def _read(self) -> None:
        rows = await list_waiting(self._threads)
        self._waiting, self._at, self._failure = rows, datetime.now(UTC), None
        self._answers = {thread: answer for thread, answer in self._answers.items() if thread in rows}
        self._decided = {key: at for key, at in self._decided.items() if key[0] in rows}
        await read_each(self._due(rows), self._ask, within=PENDING_SECONDS, at_once=AT_ONCE)
        for thread in rows.keys() - self._answers.keys():  # not in time
            self._answers[thread] = _Answer(rows[thread], time.monotonic(), None)
        self._blocked = await self._blocked_states()
        self._read_at = time.monotonic()

    def _due(self, rows: Mapping[str, RowVersion]) -> list[str]:
        """Return the threads to ask: what is new or has changed, then some of the others, and of those that have not
        answered. Anybody with access to Temporal can start runs that never do, so these come last.
        """
        share = max(ROUND, len(rows) // ROUNDS)
        known = sorted(self._answers.items(), key=lambda item: item[1].asked_at)
        same = [(thread, answer) for thread, answer in known if answer.version == rows[thread]]
        changed = rows.keys() - {thread for thread, _ in same}
        answered = [thread for thread, answer in same if answer.requests is not None]
        silent = [thread for thread, answer in same if answer.requests is None]
        return [*(thread for thread in rows if thread in changed), *answered[:share], *silent[:share]]

    async def _ask(self, thread: str) -> None:
        """Ask a run for its open requests, and keep the answer."""
        began, row = time.monotonic(), (self._waiting or {}).get(thread)
        requests: Sequence[JSON] | None = None
        try:
            requests = await self._threads.pending(thread)
        finally:
            decided = [key for key in self._decided if key[0] == thread]
            for key in decided:
                if self._decided[key] <= began:
                    del self._decided[key]
            stale = any(key in self._decided for key in decided)
            self._answers[thread] = _Answer(None if stale else row, began, requests)

    async def _blocked_states(self) -> Sequence[JSON]:
        rows, _ = await list_page(self._threads, status="blocked", limit=BLOCKED, asked=False)
        states: dict[str, Any] = await read_each([row["thread"] for row in rows], self._threads.state, within=None)
        return [state for row in rows if (state := _state(row, states[row["thread"]])).get("blocked")]

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()):
            self._failure = error
            if self._read_at is not None:
                self._read_at = time.monotonic()  # not at once again
            log.warning("inbox_unread", error=type(error).__name__)


def _state(row: JSON, answer: Any) -> JSON:
    """Return the state of a run that may be blocked, or why it could not be read."""
    if not isinstance(answer, HoldfastError):
        return dict(answer)
    why = {"cause": "not read", "message": f"its state could not be read: {type(answer).__name__}"}
    return {**row, "blocked": why}
