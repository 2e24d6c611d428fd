"""Detects async tools that block the event loop, for example with `time.sleep`; keeps the activities alive meanwhile.

While the loop is blocked, the worker does nothing: its runs make no progress, and without heartbeats Temporal would
give its activities to other workers. A thread watches the loop while async tools run:

1. It logs the tool and the line that blocks.
2. It sends the heartbeats of the running activities, for `KEEP_ALIVE_SECONDS` seconds.
3. It remembers the call. A read then fails with advice, on later attempts too: as a local activity it may have blocked
   its workflow task for longer than the task's timeout, and would do so on each attempt.

It cannot detect code that holds Python's global interpreter lock, such as a slow regular expression.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from holdfast.activities.heartbeats import ActiveHeartbeat, active_heartbeats
from holdfast.activities.safe_logs import SafeLogger

BLOCKED_AFTER = 2.0
"""Seconds without a turn of the loop after which it is regarded as blocked."""

KEEP_ALIVE_SECONDS = 30.0
"""Seconds for which the running activities are kept alive. A loop that is blocked for longer may never recover: then
other workers have to take over."""

POLL_SECONDS = 0.5
"""Seconds between two checks of the loop."""

IDLE_SECONDS = 10.0
"""Seconds without an async tool after which the thread ends; the next call starts another."""

MAX_REMEMBERED = 1_000
"""The most blocking calls to remember."""

ADVICE = "make the function sync (`def`, which runs in a thread), or await what takes time"

log = SafeLogger(__name__)


@dataclass(frozen=True)
class WatchedCall:
    """A running async function of a tool."""

    key: str
    """The effect key of the call."""
    tool: str
    function: Callable[..., Any]


class LoopWatch:
    """Watches one event loop; created in its thread."""

    def __init__(self) -> None:
        self.blocked: dict[str, str] = {}
        """By effect key: the message about a call that blocked the loop, for the LLM and the tool's developer."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._calls: dict[asyncio.Task[Any] | None, WatchedCall] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._pinged_at = self._turned_at = self._beat_at = self._reported_at = 0.0

    @contextmanager
    def watching(self, call: WatchedCall) -> Iterator[None]:
        """Watch the loop during the block, which runs the call's function in the current task."""
        task = asyncio.current_task()
        with self._lock:
            self._calls[task] = call
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            del self._calls[task]

    def _watch(self) -> None:
        last_used = time.monotonic()
        while not self._loop.is_closed():
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            if self._calls:
                last_used = now
            with self._lock:
                if not self._calls and now - last_used > IDLE_SECONDS:
                    self._thread = None
                    return
            if self._calls:
                self._check_loop(now)

    def _check_loop(self, now: float) -> None:
        if self._turned_at >= self._pinged_at:
            self._pinged_at = now
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:  # the loop has just been closed
                return
        elif now - self._pinged_at >= BLOCKED_AFTER:
            calls = list(self._calls.values())
            self._report(calls)
            if now - self._pinged_at < KEEP_ALIVE_SECONDS and now - self._beat_at >= 1:
                self._beat_at = now
                asyncio.run(_beat_all(list(active_heartbeats(self._loop))))

    def _turn(self) -> None:
        self._turned_at = time.monotonic()

    def _report(self, calls: list[WatchedCall]) -> None:
        """Log the line that blocks the loop, once per blockage, and remember the call."""
        if self._reported_at == self._pinged_at:
            return
        self._reported_at = self._pinged_at
        frame = sys._current_frames().get(self._loop_thread)
        call = self._calls.get(asyncio.current_task(self._loop))
        if call is None:  # it may be a task that a tool has started
            log.warning(
                "event_loop_blocked", at=_source_location(frame, ""), tools=[each.tool for each in calls], advice=ADVICE
            )
            return
        file = getattr(getattr(call.function, "__code__", None), "co_filename", "")
        at = _source_location(frame, file)
        log.warning("tool_blocks_event_loop", tool=call.tool, key=call.key, at=at, advice=ADVICE)
        while len(self.blocked) >= MAX_REMEMBERED:
            del self.blocked[next(iter(self.blocked))]
        line = Path(at).name
        self.blocked[call.key] = (
            f"{call.tool} blocked the worker's event loop for more than {BLOCKED_AFTER:g} s, at {line}. "
            f"Other arguments may not help; the developer of the tool can: {ADVICE}"
        )


async def _beat_all(active: list[ActiveHeartbeat]) -> None:
    for each in active:
        each.beat()
    if sending := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(sending, timeout=BLOCKED_AFTER)


def _source_location(frame: FrameType | None, file: str) -> str:
    """Return file and line of the innermost frame in this file; of the innermost frame if there is none."""
    innermost = frame
    while frame and frame.f_code.co_filename != file:
        frame = frame.f_back
    frame = frame or innermost
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "an unknown place"


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = WeakKeyDictionary()


def loop_watch() -> LoopWatch:
    """Return the watch of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _watches:
        _watches[loop] = LoopWatch()
    return _watches[loop]
