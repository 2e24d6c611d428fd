"""Finds async tools that block the event loop, such as with `time.sleep`, and keeps the worker's activities meanwhile.

While the loop does not turn, the worker does nothing: no run on it makes progress, and no heartbeat is sent, so that
Temporal would give its activities to other workers. A thread watches the loop while async tools run:

1. It names the tool and the line in which it blocks, in the worker's log.
2. It sends the heartbeats of the activities that are under way, for `KEPT` seconds.
3. It remembers the call. A read then fails with advice, also when it is attempted again: as a local activity it may
   have blocked its workflow task for longer than that may take, and would do so on each attempt.

It cannot see code that holds Python's global lock, such as a slow regular expression.
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

from holdfast.activities.heartbeats import Beat, beating
from holdfast.activities.safe_logs import SafeLogger

BLOCKED_AFTER = 2.0
"""Seconds without a turn of the loop after which it counts as blocked."""

KEPT = 30.0
"""Seconds for which the activities under way are kept. A loop that is blocked for longer may never turn again: then
other workers have to take them."""

PAUSE = 0.5
"""Seconds between two looks at the loop."""

IDLE = 10.0
"""Seconds without an async tool after which the thread ends; the next call starts another."""

REMEMBERED = 1_000
"""Calls that blocked the loop and are remembered."""

ADVICE = "make the function sync (`def`, which runs in a thread), or await what takes time"

log = SafeLogger(__name__)


@dataclass(frozen=True)
class Watched:
    """An async function of a tool, under way."""

    key: str
    """The effect key of the call."""
    tool: str
    function: Callable[..., Any]


class LoopWatch:
    """Watches one event loop; made in its thread."""

    def __init__(self) -> None:
        self.blocked: dict[str, str] = {}
        """Effect keys of calls that blocked the loop, and how, for the LLM and its developer."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._calls: dict[asyncio.Task[Any] | None, Watched] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._asked = self._turned = self._beaten = self._reported = 0.0

    @contextmanager
    def watching(self, call: Watched) -> Iterator[None]:
        """Watch the loop while the block, which runs the call's function in the current task, is under way."""
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
        used = time.monotonic()
        while not self._loop.is_closed():
            time.sleep(PAUSE)
            now = time.monotonic()
            if self._calls:
                used = now
            with self._lock:
                if not self._calls and now - used > IDLE:
                    self._thread = None
                    return
            if self._calls:
                self._look(now)

    def _look(self, now: float) -> None:
        if self._turned >= self._asked:
            self._asked = now
            try:
                self._loop.call_soon_threadsafe(self._turn)
            except RuntimeError:  # the loop has just been closed
                return
        elif now - self._asked >= BLOCKED_AFTER:
            calls = list(self._calls.values())
            self._report(calls)
            if now - self._asked < KEPT and now - self._beaten >= 1:
                self._beaten = now
                asyncio.run(_beat_all(list(beating(self._loop))))

    def _turn(self) -> None:
        self._turned = time.monotonic()

    def _report(self, calls: list[Watched]) -> None:
        """Log where the loop is blocked, once each time, and remember the call that does it."""
        if self._reported == self._asked:
            return
        self._reported = self._asked
        frame = sys._current_frames().get(self._loop_thread)
        call = self._calls.get(asyncio.current_task(self._loop))
        if call is None:  # it may be a task that a tool has started
            log.warning("event_loop_blocked", at=_place(frame, ""), tools=[each.tool for each in calls], advice=ADVICE)
            return
        file = getattr(getattr(call.function, "__code__", None), "co_filename", "")
        at = _place(frame, file)
        log.warning("tool_blocks_event_loop", tool=call.tool, key=call.key, at=at, advice=ADVICE)
        while len(self.blocked) >= REMEMBERED:
            del self.blocked[next(iter(self.blocked))]
        where = Path(at).name
        self.blocked[call.key] = (
            f"{call.tool} blocked the worker's event loop for more than {BLOCKED_AFTER:g} s, at {where}. "
            f"Other arguments may not help; the developer of the tool can: {ADVICE}"
        )


async def _beat_all(beats: list[Beat]) -> None:
    for each in beats:
        each.send()
    if sending := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(sending, timeout=BLOCKED_AFTER)


def _place(frame: FrameType | None, file: str) -> str:
    """Return file and line of the innermost frame in this file; of the innermost frame if there is none."""
    innermost = frame
    while frame and frame.f_code.co_filename != file:
        frame = frame.f_back
    found = frame or innermost
    return f"{found.f_code.co_filename}:{found.f_lineno}" if found else "an unknown place"


_watches: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWatch] = WeakKeyDictionary()


def loop_watch() -> LoopWatch:
    """Return the watch of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _watches:
        _watches[loop] = LoopWatch()
    return _watches[loop]
