"""The synchronous client for scripts and notebooks. An event loop in a background thread runs the async client.

`sync` and its variants wrap each async method as a synchronous one with the same parameters, types and docstring.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing, contextmanager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.api.client import Client
from holdfast.api.schedules import Schedules
from holdfast.api.thread import Thread

P = ParamSpec("P")
R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)


class Loop:
    """An event loop that runs in a background thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-client", daemon=True)
        self._thread.start()

    def run(self, awaitable: Awaitable[R]) -> R:
        """Run an awaitable to completion and return its result; cancel it when Ctrl-C interrupts the caller."""

        async def await_result() -> R:
            return await awaitable

        future = asyncio.run_coroutine_threadsafe(await_result(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[R]) -> Iterator[R]:
        """Yield the items of an async generator, and close it in its own loop even if the caller stops early."""
        try:
            while True:
                try:
                    yield self.run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            if close := getattr(items, "aclose", None):
                self.run(close())

    def close(self) -> None:
        """Cancel what still runs, wait for its end, and stop the loop and its thread."""
        self.run(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            if not task.cancelling():  # one that Ctrl-C has cancelled is cleaning up
                task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class _Wrapper(Generic[T_co]):
    """A synchronous wrapper around an async object."""

    def __init__(self, wrapped: T_co, loop: Loop) -> None:
        self._wrapped = wrapped
        self._loop = loop


# One function for each kind of result. Overloads of one function would depend on the parameters, too: mypy resolved
# those of a method with a parameter of type `dict[str, Any]` wrongly.
def sync(method: Callable[Concatenate[T_co, P], Awaitable[R]]) -> Callable[Concatenate[_Wrapper[T_co], P], R]:
    """Wrap an async method: call it, and wait for its result."""
    return _blocking(method)


def sync_thread(
    method: Callable[Concatenate[T_co, P], Awaitable[Thread]],
) -> Callable[Concatenate[_Wrapper[T_co], P], "SyncThread"]:
    """Wrap an async method that returns a thread."""
    return _blocking(method)


def sync_thread_if_any(
    method: Callable[Concatenate[T_co, P], Awaitable[Thread | None]],
) -> Callable[Concatenate[_Wrapper[T_co], P], "SyncThread | None"]:
    """Wrap an async method that returns a thread or None."""
    return _blocking(method)


def sync_items(
    method: Callable[Concatenate[T_co, P], AsyncIterator[R]],
) -> Callable[Concatenate[_Wrapper[T_co], P], Iterator[R]]:
    """Wrap an async generator: wait for each item."""
    return _blocking(method)


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: _Wrapper[Any], *args: Any, **kwargs: Any) -> Any:
        pending = method(self._wrapped, *args, **kwargs)
        if isinstance(pending, AsyncIterator):
            return self._loop.iterate(pending)
        result = self._loop.run(pending)
        return SyncThread(result, self._loop) if isinstance(result, Thread) else result

    return call


def _blocking_connect(
    connect: Callable[P, AbstractAsyncContextManager[Client]],
) -> Callable[P, AbstractContextManager["SyncClient"]]:
    """Turn `Client.connect` into `SyncClient.connect`, for a `with` block."""

    @wraps(connect)
    @contextmanager
    def connect_blocking(*args: P.args, **kwargs: P.kwargs) -> Iterator["SyncClient"]:
        with closing(Loop()) as loop:
            connection = connect(*args, **kwargs)
            client = loop.run(connection.__aenter__())
            try:
                yield SyncClient(client, loop)
            finally:
                loop.run(connection.__aexit__(None, None, None))

    return connect_blocking


class SyncThread(_Wrapper[Thread]):
    """`Thread` for programs without an event loop: the same methods, but blocking."""

    @property
    def id(self) -> str:
        """The thread id, which is also Temporal's workflow id."""
        return self._wrapped.id

    def __repr__(self) -> str:
        return f"SyncThread({self.id!r})"

    result = sync(Thread.result)
    state = sync(Thread.state)
    events = sync_items(Thread.events)
    stream = sync_items(Thread.stream)
    messages = sync(Thread.messages)
    export = sync(Thread.export)
    verify = sync(Thread.verify)
    move = sync(Thread.move)
    pending = sync(Thread.pending)
    tree = sync(Thread.tree)
    decide = sync(Thread.decide)
    say = sync(Thread.say)
    refine = sync(Thread.refine)
    reclassify = sync(Thread.reclassify)
    adopt_policy = sync(Thread.adopt_policy)
    extend = sync(Thread.extend)
    retry = sync(Thread.retry)
    compact = sync(Thread.compact)
    lift = sync(Thread.lift)
    pause = sync(Thread.pause)
    resume = sync(Thread.resume)
    wake = sync(Thread.wake)
    cancel = sync(Thread.cancel)
    fork = sync_thread(Thread.fork)
    restart = sync_thread(Thread.restart)


class SyncSchedules(_Wrapper[Schedules]):
    """`Schedules` for programs without an event loop: the same methods, but blocking."""

    add = sync(Schedules.add)
    list = sync(Schedules.list)
    state = sync(Schedules.state)
    pause = sync(Schedules.pause)
    resume = sync(Schedules.resume)
    delete = sync(Schedules.delete)
    trigger = sync_thread_if_any(Schedules.trigger)


class SyncClient(_Wrapper[Client]):
    """`Client` for programs without an event loop, such as scripts and notebooks: the same methods, but blocking.

        with SyncClient.connect() as client:
            print(client.start("Publish 1.2", thread="rel-1.2").result().text)

    OS threads may share it.
    """

    connect = staticmethod(_blocking_connect(Client.connect))
    start = sync_thread(Client.start)
    threads = sync(Client.threads)
    import_thread = sync(Client.import_thread)
    place = sync(Client.place)
    publish = sync(Client.publish)
    diff = sync(Client.diff)

    @property
    def task_queue(self) -> str:
        """The task queue that the workers of new runs poll."""
        return self._wrapped.task_queue

    @property
    def schedules(self) -> SyncSchedules:
        """Runs that start by cron or interval."""
        return SyncSchedules(self._wrapped.schedules, self._loop)

    def thread(self, thread: str) -> SyncThread:
        """Return a thread by its id, without checking that it exists.

        Raises:
            ThreadIdInvalid: The text cannot be a thread id.
        """
        return SyncThread(self._wrapped.thread(thread), self._loop)
