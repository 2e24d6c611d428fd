"""Threads for users' sync functions, which may hang for ever: a thread cannot be stopped.

1. There are more threads than concurrent calls, so a call starts at once, and with it its time limit.
2. A call that exceeds its limit hangs: it keeps its thread until it returns. At most `MAX_HUNG_PER_TOOL` calls of one
   tool may hang; further ones fail without being made, and leave the threads to other tools.
3. If all threads are taken nevertheless, a call waits for one, and then fails without being made.
4. Only these calls use the threads, so a call that hangs does not block the worker's own work. The process can end
   without them.
"""

import asyncio
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

from holdfast.core.tools.results import StandIn

MAX_THREADS = 512
"""Threads of one worker. Temporal gives it at most 200 activities at a time, so the others are for calls that hang."""

MAX_HUNG_PER_TOOL = 64
"""The most calls of one tool that may hang at a time."""

LONGEST_WAIT = 20.0
"""The most seconds that a call waits for a thread: fewer than Temporal's time-out adds to the tool's own time limit."""

IDLE_SECONDS = 30.0
"""Seconds after which an idle thread checks whether its event loop still exists."""

T = TypeVar("T")


class NoThread(Exception):
    """No thread was free, so the function was not called."""


@dataclass(eq=False)
class _Call:
    """One call under way in a thread."""

    tool: str
    ends_by: float
    """When it exceeds its limit, by the loop's clock."""
    result: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    hangs: bool = False
    ended: bool = False


_Jobs = queue.SimpleQueue[Callable[[], None]]


class ToolThreads:
    """The threads of one event loop."""

    def __init__(self) -> None:
        self._idle: list[_Jobs] = []
        self._busy = 0
        self._hanging: Counter[str] = Counter()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def ready(self, tool: str) -> None:
        """Wait until a call of the tool may start.

        Raises:
            NoThread: No thread was free; the message says which calls hang.
        """
        if self._hanging[tool] >= MAX_HUNG_PER_TOOL:
            raise NoThread(f"{tool} was not called: {self._hanging_text(tool)}; its developer has to find out why")
        if self._busy < MAX_THREADS:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._wake()  # pass this call's turn to the next one
            if not isinstance(error, TimeoutError):
                raise
            hanging = "; ".join(
                self._hanging_text(name) for name, _ in self._hanging.most_common(3) if self._hanging[name]
            )
            message = f"{tool} was not called: no thread was free for {LONGEST_WAIT:g} s"
            raise NoThread(f"{message}; {hanging}" if hanging else f"{message}, all {MAX_THREADS} are in use") from None

    async def run(self, function: Callable[[], T], *, tool: str, limit: float) -> T:
        """Return `function()`, called in a thread; `ready` comes first.

        Args:
            function: The function to call.
            tool: The name under which calls that hang are counted.
            limit: Seconds after which the call counts as hanging, if its caller no longer waits for it.

        Raises:
            NoThread: It was not called.
            BaseException: The function's own exception, as `to_raisable` converts it.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        call = _Call(tool, loop.time() + limit, cast("asyncio.Future[Any]", result), loop)
        jobs = self._idle.pop() if self._idle else _new_thread(tool, loop)
        self._busy += 1
        jobs.put(partial(self._work, call, jobs, partial(copy_context().run, function)))
        try:
            return await result
        finally:
            if not call.ended:
                loop.call_at(call.ends_by, self._mark_hanging, call)

    def _work(self, call: _Call, jobs: _Jobs, function: Callable[[], Any]) -> None:
        """Make one call, in its thread."""
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # raised further, it would end the thread, and the caller would wait for ever
            error = raised
        try:
            call.loop.call_soon_threadsafe(self._finish, call, jobs, value, error)
        except RuntimeError:  # the loop has been closed: no caller waits any more
            return

    def _finish(self, call: _Call, jobs: _Jobs, value: Any, error: BaseException | None) -> None:
        call.ended = True
        self._busy -= 1
        self._idle.append(jobs)
        if call.hangs:
            self._hanging[call.tool] -= 1
        self._wake()
        if call.result.done():
            return
        if error is None:
            call.result.set_result(value)
        else:
            call.result.set_exception(to_raisable(error))

    def _wake(self) -> None:
        """Give its turn to the call that has waited longest."""
        while self._waiting:
            if not (turn := self._waiting.popleft()).done():
                turn.set_result(None)
                return

    def _mark_hanging(self, call: _Call) -> None:
        if not call.ended:
            call.hangs = True
            self._hanging[call.tool] += 1

    def _hanging_text(self, tool: str) -> str:
        count = self._hanging[tool]
        return f"{count} {'call' if count == 1 else 'calls'} of {tool} hang on this worker, beyond their time limit"


def to_raisable(error: BaseException) -> BaseException:
    """Convert an error so that a future or a coroutine can raise it without ending its waiter.

    StopIteration would look like a coroutine's end, CancelledError and GeneratorExit like the end of the attempt.
    """
    passed: BaseException
    match error:
        case StopIteration() | StopAsyncIteration():
            passed = RuntimeError(f"the function raised {type(error).__name__}")
        case asyncio.CancelledError() | GeneratorExit():
            passed = StandIn("it ended so by itself: nobody has cancelled the call")
        case _:
            return error
    passed.__cause__ = error
    return passed


def _new_thread(tool: str, loop: asyncio.AbstractEventLoop) -> _Jobs:
    """Return the queue of a new thread."""
    jobs: _Jobs = queue.SimpleQueue()
    # A daemon: the process can end while a call hangs.
    thread = threading.Thread(target=_serve, args=(jobs, loop), name="tool", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system's limit of threads is reached
        raise NoThread(f"{tool} was not called: {error}") from None
    return jobs


def _serve(jobs: _Jobs, loop: asyncio.AbstractEventLoop) -> None:
    while not loop.is_closed():
        try:
            job = jobs.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            continue
        job()


_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, ToolThreads] = WeakKeyDictionary()


def tool_threads() -> ToolThreads:
    """Return the threads of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _threads:
        _threads[loop] = ToolThreads()
    return _threads[loop]
