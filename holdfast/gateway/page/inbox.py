"""The open requests and the blocked runs of all threads, for everybody's inbox.

1. Reading them asks every run that waits. So one reading is shared by all who look, for `FRESH_SECONDS`, and an older
   one is shown while the next is under way: it says its time.
2. An old reading is safe to decide on: each decision names the digest of what was shown, and the run compares it.
3. A thread that has just been decided on is left out of readings from before the decision.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from holdfast.client.listing import list_page, list_pending
from holdfast.client.threads import JSON, Threads
from holdfast.errors import HoldfastError

FRESH_SECONDS = 5.0
"""How old a reading may be before the next one begins."""
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


class Inbox:
    """Reads open requests and blocked runs.

    Args:
        threads: The threads.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._reading: Reading | None = None
        self._read_at = float("-inf")
        self._task: asyncio.Task[Reading] | None = None
        self._decided: dict[tuple[str, str], float] = {}

    async def look(self) -> Reading:
        """Return the latest reading; wait only for the first one.

        Raises:
            HoldfastError: There is no reading yet, and none can be made.
        """
        if self._task is None and (self._reading is None or time.monotonic() - self._read_at > FRESH_SECONDS):
            self._task = asyncio.create_task(self._read())
            self._task.add_done_callback(self._done)
        if self._reading is None:
            assert self._task is not None
            return await asyncio.shield(self._task)
        left_out = self._decided.keys()
        requests = tuple(each for each in self._reading.requests if (each["thread"], each["request"]) not in left_out)
        return Reading(self._reading.at, requests, self._reading.unread, self._reading.blocked)

    def forget(self, thread: str, request: str) -> None:
        """Leave out a request that was decided, until a reading that began later."""
        self._decided[thread, request] = time.monotonic()

    async def _read(self) -> Reading:
        began = time.monotonic()
        requests, unread = await list_pending(self._threads)
        reading = Reading(
            datetime.now(UTC), tuple(requests), tuple(each.thread for each in unread), tuple(await self._blocked())
        )
        self._decided = {key: at for key, at in self._decided.items() if at > began}
        self._reading, self._read_at = reading, time.monotonic()
        return reading

    async def _blocked(self) -> Sequence[JSON]:
        rows, _ = await list_page(self._threads, status="blocked", limit=BLOCKED)
        states = await asyncio.gather(*(self._state(row) for row in rows))
        return [state for state in states if state.get("blocked")]

    async def _state(self, row: JSON) -> JSON:
        try:
            return await self._threads.state(row["thread"])
        except HoldfastError as error:
            why = {"cause": "not read", "message": f"its state could not be read: {type(error).__name__}"}
            return {**row, "blocked": why}

    def _done(self, task: "asyncio.Task[Reading]") -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()):
            self._read_at = time.monotonic()  # not at once again
            log.warning("inbox_unread", error=type(error).__name__)
