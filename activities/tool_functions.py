"""Calls the functions of tools, which are a user's and may raise anything, at any time."""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from holdfast.activities.blocked_loop import Watched, loop_watch

T = TypeVar("T")


class TimedOut(Exception):
    """A function exceeded its time limit, as opposed to raising a TimeoutError of its own."""


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
        BaseException: What the function raises.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(function):
                with loop_watch().watching(Watched(key, tool, function)):
                    return await function(**arguments)
            value = await in_thread(partial(function, **arguments))
            # A decorator that is not async itself, such as one that counts calls, hides that a function is.
            return await value if inspect.iscoroutine(value) else value
    except TimeoutError:
        if limit.expired():
            raise TimedOut from None
        raise


async def in_thread(function: Callable[..., T], *args: Any) -> T:
    """Return `function(*args)`, called in a thread.

    Raises:
        RuntimeError: It raised StopIteration, which asyncio cannot pass on: it would wait for ever.
        BaseException: What else it raises.
    """

    def call() -> T:
        try:
            return function(*args)
        except StopIteration as error:
            raise RuntimeError("the function raised StopIteration") from error

    return await asyncio.to_thread(call)


def raise_if_stopped(error: BaseException) -> None:
    """Raise the error if it stops the attempt, as opposed to one that the function raised.

    Args:
        error: What was caught while a function ran.
    """
    if isinstance(error, GeneratorExit):  # the attempt's coroutine is being closed
        raise error
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error
