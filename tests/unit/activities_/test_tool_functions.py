"""Calls of users' functions: every result is awaited and read, and only the attempt's own cancellation ends the
attempt.
"""

import asyncio
import functools
import itertools
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Found
from holdfast.activities.heartbeats import attempt_of
from holdfast.activities.tool_calls import tool_functions, tool_threads
from holdfast.activities.tool_calls.tool_functions import TimedOut, call_function
from holdfast.activities.tool_calls.tool_threads import NoThread
from holdfast.core.tools.decorator import Labelled
from holdfast.core.tools.results import MOST_ITEMS, NOT_READ, StandIn, error_text

done: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    done.clear()


async def called(function: Callable[..., Any], *, timeout: float = 60, tool: str = "act") -> Any:
    """Call a function as a tool."""
    return await call_function(function, {}, timeout, tool=tool, key="k")


async def hanging(tool: str, calls: int) -> None:
    """Wait until that many calls of a tool count as hanging, a moment after each has exceeded its limit."""
    while tool_threads.tool_threads()._hanging[tool] < calls:  # noqa: ASYNC110  # nothing announces it
        await asyncio.sleep(0.001)


async def send() -> str:
    """Act."""
    done.append("sent")
    return "sent"


class CustomAwaitable:
    """An awaitable that is not a coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        return (yield from send().__await__())


class Sender:
    """Calls of its instances return a coroutine."""

    def __call__(self) -> Awaitable[str]:
        return send()


def wrapped() -> Callable[[], Any]:
    """A decorated function, whose decorator hides that it is async."""

    @functools.wraps(send)
    def counted() -> Any:
        return send()

    return counted


def in_pool() -> "Future[str]":
    """Run the work in a thread pool."""

    def work() -> str:
        done.append("sent")
        return "sent"

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work)


async def as_task() -> Any:
    """Return a task instead of its result."""
    return asyncio.ensure_future(send())


async def nested() -> Any:
    """Return an awaitable, from an async function."""
    return CustomAwaitable()


@pytest.mark.parametrize(
    "function",
    [
        CustomAwaitable,
        send,
        lambda: send(),
        lambda: CustomAwaitable(),
        functools.partial(lambda: CustomAwaitable()),
        functools.partial(send),
        wrapped(),
        Sender(),
        in_pool,
        as_task,
        nested,
        lambda: nested(),
    ],
)
async def test_a_returned_awaitable_is_awaited(function: Callable[[], Any]) -> None:
    """Any awaitable is awaited within the call, because only then has the work happened."""
    assert await called(function) == "sent"
    assert done == ["sent"]


async def test_a_result_with_a_trust_level_is_awaited() -> None:
    """Awaitables inside `Labelled` and `Found` are awaited as well."""
    assert await called(lambda: Labelled(send(), "web")) == Labelled("sent", "web")
    assert await called(lambda: Found(iter([1, 2]))) == Found([1, 2])


async def test_awaitables_without_an_end_fail() -> None:
    """A value that yields awaitable after awaitable is no result."""

    class Endless:
        def __await__(self) -> Generator[Any, None, "Endless"]:
            yield from asyncio.sleep(0).__await__()
            return Endless()

    with pytest.raises(TypeError, match="more than 10 awaitables"):
        await called(Endless)


@pytest.mark.parametrize("value", [send, functools.partial(send), len, "".join])
async def test_an_uncalled_function_is_no_result(value: Any) -> None:
    """An uncalled function is a failure, because its work has not happened."""
    with pytest.raises(TypeError, match="it returned a function, and did not call it"):
        await called(lambda: value)
    assert done == []


async def each() -> AsyncIterator[int]:
    """Yield two numbers."""
    for number in (1, 2):
        yield number


def rows() -> sqlite3.Cursor:
    """Return a cursor that only the thread that opened it can use."""
    return sqlite3.connect(":memory:").execute("SELECT 1 UNION SELECT 2")


async def one_by_one() -> Iterator[int]:
    """Return an iterator, from an async function."""
    return (number for number in (1, 2))


@pytest.mark.parametrize(
    ("function", "items"),
    [
        (lambda: (number for number in (1, 2)), [1, 2]),
        (lambda: map(str, (1, 2)), ["1", "2"]),
        (lambda: filter(None, (0, 1)), [1]),
        (lambda: zip("ab", "cd", strict=True), [("a", "c"), ("b", "d")]),
        (each, [1, 2]),
        (lambda: each(), [1, 2]),
        (one_by_one, [1, 2]),
        (rows, [(1,), (2,)]),
    ],
)
async def test_an_iterator_is_read(function: Callable[[], Any], items: list[Any]) -> None:
    """An iterator is consumed within the call, in the function's own thread."""
    assert await called(function) == items


async def endless() -> AsyncIterator[int]:
    """Never end."""
    for number in itertools.count():
        yield number


@pytest.mark.parametrize("function", [itertools.count, endless, lambda: itertools.repeat("x")])
async def test_an_iterator_without_an_end_is_cut(function: Callable[[], Any]) -> None:
    """The first items are kept, and a last one says that there are more."""
    items = await called(function)
    assert len(items) == MOST_ITEMS + 1
    assert items[-1] == NOT_READ


async def cancels() -> None:
    """Cancel the current task, as a leaked cancel scope does."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def cancels_and_returns() -> None:
    """Leave a pending cancellation for the next await."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def function_that_raises(error: type[BaseException], *, is_async: bool) -> Callable[[], Any]:
    """A function that raises such an error."""

    def act() -> None:
        raise error

    async def act_async() -> None:
        raise error

    return act_async if is_async else act


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncio.CancelledError, "CancelledError: it ended so by itself"),
        (GeneratorExit, "GeneratorExit: it ended so by itself"),
        (StopIteration, "RuntimeError: "),
        (StopAsyncIteration, "RuntimeError: "),
        (SystemExit, "SystemExit: "),
        (KeyboardInterrupt, "KeyboardInterrupt: "),
    ],
)
async def test_exceptions_that_would_end_the_attempt_are_errors_of_the_function(
    error: type[BaseException], words: str, *, is_async: bool
) -> None:
    """Only the attempt's own cancellation ends the attempt; anything else that a function raises is its failure."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # any kind of error
        await called(function_that_raises(error, is_async=is_async))
    assert not isinstance(caught.value, asyncio.CancelledError | GeneratorExit)
    assert error_text(caught.value).startswith(words)


async def test_a_function_that_cancels_its_own_task_has_failed() -> None:
    """The function runs in a task of its own, so the attempt's task continues."""
    with pytest.raises(StandIn):
        await called(cancels)
    assert await called(cancels_and_returns) is None
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_the_attempts_own_cancellation_stops_the_function() -> None:
    """A cancelled attempt is cancelled, and so is the function that it runs."""
    began = asyncio.Event()

    async def act() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            done.append("stopped")

    attempt = asyncio.ensure_future(called(act))
    await began.wait()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert done == ["stopped"]


async def test_a_function_that_does_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that swallows its cancellation does not hold up its attempt."""
    monkeypatch.setattr(tool_functions, "STOP_SECONDS", 0.01)
    end = asyncio.Event()

    async def act() -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                done.append("swallowed")

    with pytest.raises(TimedOut):
        await called(act, timeout=0.01)
    assert done
    end.set()


async def test_the_wait_for_a_thread_is_not_the_functions_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waited longer than its limit for a thread still runs, with its whole limit."""
    monkeypatch.setattr(tool_threads, "MAX_THREADS", 1)
    leave = threading.Event()
    first = asyncio.ensure_future(called(leave.wait))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(called(lambda: "made", timeout=5))
    await asyncio.sleep(0.1)
    assert not second.done()
    leave.set()
    assert await first
    assert await second == "made"


async def test_a_call_that_is_cancelled_while_it_waits_lets_no_other_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turn had not come, so there is none to pass on: the next call waits for a free thread."""
    monkeypatch.setattr(tool_threads, "MAX_THREADS", 1)
    leave = threading.Event()
    first = asyncio.ensure_future(called(leave.wait))
    await asyncio.sleep(0.05)
    second, third = asyncio.ensure_future(called(lambda: "second")), asyncio.ensure_future(called(lambda: "third"))
    await asyncio.sleep(0.05)
    second.cancel()
    await asyncio.sleep(0.1)
    assert not third.done()
    leave.set()
    assert await first
    assert await third == "third"


async def test_hanging_calls_leave_threads_to_other_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool may have a bounded number of hanging calls; further calls are rejected with the reason, and other tools
    run.
    """
    monkeypatch.setattr(tool_threads, "MAX_HUNG_PER_TOOL", 3)
    leave = threading.Event()
    for _ in range(3):
        with pytest.raises(TimedOut):
            await called(leave.wait, timeout=0.01, tool="hangs")
    await hanging("hangs", 3)
    with pytest.raises(NoThread, match="hangs was not called: 3 calls of hangs hang on this worker"):
        await called(lambda: done.append("made"), tool="hangs")
    assert done == []
    assert await called(lambda: "healthy", tool="other") == "healthy"
    leave.set()
    while done != ["again"]:
        try:
            await called(lambda: done.append("again"), tool="hangs")
        except NoThread:
            await asyncio.sleep(0.01)


async def test_without_a_free_thread_a_call_names_the_tools_that_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all threads are taken, a rejected call names the tools whose calls hang."""
    monkeypatch.setattr(tool_threads, "MAX_THREADS", 1)
    monkeypatch.setattr(tool_threads, "LONGEST_WAIT", 0.05)
    leave = threading.Event()
    with pytest.raises(TimedOut):
        await called(leave.wait, timeout=0.01, tool="hangs")
    await hanging("hangs", 1)
    with pytest.raises(NoThread, match=r"act was not called: no thread was free for 0\.05 s; 1 call of hangs hang"):
        await called(lambda: done.append("made"))
    leave.set()
    assert done == []


async def test_a_function_whose_result_no_thread_can_read_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NoThread` is raised only for a call that was never made, which counts as one without an effect."""
    monkeypatch.setattr(tool_threads, "MAX_THREADS", 0)
    monkeypatch.setattr(tool_threads, "LONGEST_WAIT", 0.01)

    async def act() -> Iterator[str]:
        return iter([await send()])

    with pytest.raises(RuntimeError, match="what it returned was not read: the conversion of a result was not called"):
        await called(act)
    assert done == ["sent"]


async def test_a_call_that_is_cancelled_in_time_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose attempt ends before its limit, as a slow local activity's does, is not counted as hanging."""
    monkeypatch.setattr(tool_threads, "MAX_HUNG_PER_TOOL", 1)
    leave = threading.Event()
    attempt = asyncio.ensure_future(called(leave.wait))
    await asyncio.sleep(0.05)
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert await called(lambda: "made") == "made"
    leave.set()


async def test_context_variables_reach_the_thread() -> None:
    """A sync function sees the attempt's context, and runs outside the event loop's thread."""
    assert await called(lambda: {"attempt": attempt_of.get()}) == {"attempt": asyncio.current_task()}
    assert await called(threading.get_ident) != threading.get_ident()


async def test_many_calls_start_at_once() -> None:
    """A hundred concurrent calls get a thread each."""
    barrier = threading.Barrier(100, timeout=60)
    started = time.monotonic()
    places = await asyncio.gather(*(called(barrier.wait, timeout=60) for _ in range(100)))
    assert sorted(places) == list(range(100))
    assert time.monotonic() - started < 60
