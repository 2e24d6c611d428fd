"""Calls the functions of tools: a user's code, which may raise anything, at any time.

1. A sync function runs in a thread, an async one in a separate task: a function that cancels its task, or leaks a
   cancel scope, does not end the attempt.
2. An awaitable that a function returns is awaited, and an iterator is read, within the call and its time limit: until
   then, the function may not have done anything.
3. The time limit, which is the tool's `timeout`, begins with the function, not with a wait for a thread.
"""

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from holdfast.activities.event_loop_watch import WatchedCall, loop_watch
from holdfast.activities.heartbeats import attempt_of
from holdfast.activities.tool_calls.tool_threads import NoThread, to_raisable, tool_threads
from holdfast.core.tools.decorator import Found, Labelled
from holdfast.core.tools.partial import Partial
from holdfast.core.tools.results import MOST_ITEMS, NOT_READ
from holdfast.core.tools.typed_context import ContextUpdate

T = TypeVar("T")

STOP_SECONDS = 5.0
"""Seconds that a cancelled function has to end; then it is abandoned."""

METHOD_SECONDS = 60.0
"""Seconds after which a method of a user's own class, called outside of a tool call, is regarded as hanging."""

MAX_NESTED = 10
"""The most awaitables that a call may return nested in one another."""

_COMPLETE_TYPES = (str, int, float, bool, type(None), list, dict, tuple)
"""Types of values that are neither awaited nor read. Most functions return one."""

WRAPPED = (Labelled, Found, ContextUpdate, Partial)
"""Types of values that hold the result of a call."""


class TimedOut(Exception):
    """A function exceeded its time limit, as opposed to raising a TimeoutError itself."""


async def call_function(
    function: Callable[..., Any], arguments: dict[str, Any], timeout: float, *, tool: str, key: str
) -> Any:
    """Call a sync (in a thread) or async function, for at most `timeout` seconds.

    Args:
        function: The function of a tool, or its check.
        arguments: By name.
        timeout: The time limit, in seconds.
        tool: The tool's name, for the log.
        key: The effect key of the call.

    Raises:
        TimedOut: It took longer.
        NoThread: It was not called.
        BaseException: The function's own exception; RuntimeError instead of one that would end the attempt.
    """
    is_async, threads = inspect.iscoroutinefunction(function), tool_threads()
    if not is_async:
        await threads.ready(tool)

    async def call() -> Any:
        watched = WatchedCall(key, tool, function)
        if is_async:
            with loop_watch().watching(watched):
                value = await function(**arguments)
                return value if type(value) in _COMPLETE_TYPES else await _complete(value)
        value = await threads.run(partial(_call_and_read, function, arguments), tool=tool, limit=timeout)
        if type(value) in _COMPLETE_TYPES:
            return value
        with loop_watch().watching(watched):  # the awaitables in it run on the loop
            return await _complete(value)

    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            return await in_own_task(call)
    except TimeoutError:
        if limit.expired():
            raise TimedOut from None
        raise


def _call_and_read(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a sync function, and read an iterator that it returns in the same thread, as some cursors require."""
    value = function(**arguments)
    return value if _is_awaitable(value) else _read(value)


async def _complete(value: Any) -> Any:
    """Await and read the value that a function returned until it is complete."""
    if isinstance(value, WRAPPED):
        return dataclasses.replace(value, result=await _complete(value.result))
    for _ in range(MAX_NESTED):
        if not _is_awaitable(value):
            break
        value = await (asyncio.wrap_future(value) if isinstance(value, Future) else value)
    else:
        raise TypeError(f"it returned more than {MAX_NESTED} awaitables within one another")
    if inspect.isroutine(value) or isinstance(value, partial):
        raise TypeError(f"it returned a function, and did not call it: {getattr(value, '__name__', 'a partial')}")
    if isinstance(value, AsyncIterable):
        return await _read_async(value)
    if isinstance(value, Iterator):
        try:
            return await in_thread(_read, value)  # a generator may do anything
        except NoThread as error:  # the function itself was called
            raise RuntimeError(f"what it returned was not read: {error}") from None
    return value if not isinstance(value, WRAPPED) else await _complete(value)


def _is_awaitable(value: Any) -> bool:
    return inspect.isawaitable(value) or isinstance(value, Future)


def _read(value: Any) -> Any:
    """Return the items of an iterator as a list, up to the number that is shown; return other values unchanged."""
    if isinstance(value, WRAPPED):
        return dataclasses.replace(value, result=_read(value.result))
    if not isinstance(value, Iterator) or _is_awaitable(value):
        return value
    items = list(islice(value, MOST_ITEMS + 1))
    return items if len(items) <= MOST_ITEMS else [*items[:MOST_ITEMS], NOT_READ]


async def _read_async(value: AsyncIterable[Any]) -> list[Any]:
    items: list[Any] = []
    async for each in value:
        if len(items) == MOST_ITEMS:
            items.append(NOT_READ)
            break
        items.append(each)
    if inspect.isasyncgen(value):
        await value.aclose()
    return items


async def in_own_task(function: Callable[[], Awaitable[T]]) -> T:
    """Return `await function()`, awaited in a separate task.

    Raises:
        CancelledError: The caller's own task is cancelled, and with it the function.
        BaseException: The function's own exception; RuntimeError instead of one that would end the caller's task
            (`to_raisable`).
    """
    attempt = attempt_of.get() or asyncio.current_task()
    results: list[T] = []
    errors: list[BaseException] = []

    async def run() -> None:
        attempt_of.set(attempt)
        try:
            results.append(await function())
        except BaseException as error:  # in a task's own result, SystemExit would end the event loop
            errors.append(error)

    loop = asyncio.get_running_loop()
    task, ended = loop.create_task(run()), asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    try:
        await ended.wait()  # not the task itself: its cancellation would look like the caller's
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=STOP_SECONDS)
        raise
    if results:
        return results[0]
    raise to_raisable(errors[0] if errors else asyncio.CancelledError())


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Return `function(*args)`, called in a thread: the methods of a user's values may take long, or hang.

    Raises:
        NoThread: It was not called.
        BaseException: The function's own exception; RuntimeError instead of one that would end the caller's task
            (`to_raisable`).
    """
    threads, name = tool_threads(), "the conversion of a result"
    await threads.ready(name)
    return await threads.run(partial(function, *args), tool=name, limit=METHOD_SECONDS)


def raise_if_stopped(error: BaseException) -> None:
    """Raise the error if it stops the attempt, as opposed to one that the function raised.

    Args:
        error: An exception that was caught while a function ran.
    """
    if isinstance(error, GeneratorExit):  # the attempt's coroutine is being closed
        raise error
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
