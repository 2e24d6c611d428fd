"""The sync face: the same client for scripts and notebooks. An event loop in a thread of its own runs the async one.

A method of the sync face is made from the async one, with its parameters, types and docstring: `Call(Thread.result)`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from holdfast.runtime.api.client import Client
from holdfast.runtime.api.schedules import Schedules
from holdfast.runtime.api.thread import Thread

P = ParamSpec("P")
R = TypeVar("R")
FaceT = TypeVar("FaceT")


class Loop:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-client", daemon=True)
        self._thread.start()

    def run(self, made: Awaitable[R]) -> R:
        """Run something to its end and return what it returns; stop it when Ctrl-C interrupts the caller."""

        async def awaited() -> R:
            return await made

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Face(Generic[FaceT]):
    """What stands before an async object."""

    def __init__(self, behind: FaceT, loop: Loop) -> None:
        self._behind = behind
        self._loop = loop


class _Made:
    """A method made from an async one: it has its name and its docstring."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        update_wrapper(self, method)  # type: ignore[arg-type]  # typeshed wants a callable


class Call(_Made, Generic[FaceT, P, R]):
    """An async method, called and waited for."""

    def __init__(self, method: Callable[Concatenate[FaceT, P], Awaitable[R]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: _Face[FaceT], owner: type) -> Callable[P, R]: ...
    def __get__(self, face: _Face[FaceT] | None, owner: type) -> Self | Callable[P, R]:
        """Bind the method to an object."""
        if face is None:
            return self
        behind, loop = face._behind, face._loop

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            made: Awaitable[R] = self._method(behind, *args, **kwargs)
            return loop.run(made)

        return update_wrapper(call, self._method)


class Each(_Made, Generic[FaceT, P, R]):
    """An async generator, as an iterator."""

    def __init__(self, method: Callable[Concatenate[FaceT, P], AsyncIterator[R]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: _Face[FaceT], owner: type) -> Callable[P, Iterator[R]]: ...
    def __get__(self, face: _Face[FaceT] | None, owner: type) -> Self | Callable[P, Iterator[R]]:
        """Bind the method to an object."""
        if face is None:
            return self
        behind, loop = face._behind, face._loop

        def each(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            found: AsyncIterator[R] = self._method(behind, *args, **kwargs)
            with _closing(found, loop):
                while True:
                    try:
                        yield loop.run(anext(found))
                    except StopAsyncIteration:
                        return

        return update_wrapper(each, self._method)


@contextmanager
def _closing(found: AsyncIterator[Any], loop: Loop) -> Iterator[None]:
    """Close an async generator in its loop, also where its reader stops early."""
    try:
        yield
    finally:
        if close := getattr(found, "aclose", None):
            loop.run(close())


class Another(_Made, Generic[P]):
    """A method of `Thread` that returns another thread."""

    def __init__(self, method: Callable[Concatenate[Thread, P], Awaitable[Thread]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: _Face[Thread], owner: type) -> Callable[P, "SyncThread"]: ...
    def __get__(self, face: _Face[Thread] | None, owner: type) -> "Self | Callable[P, SyncThread]":
        """Bind the method to an object."""
        if face is None:
            return self
        behind, loop = face._behind, face._loop

        def another(*args: P.args, **kwargs: P.kwargs) -> SyncThread:
            made: Awaitable[Thread] = self._method(behind, *args, **kwargs)
            return SyncThread(loop.run(made), loop)

        return update_wrapper(another, self._method)


class SyncThread(_Face[Thread]):
    """`Thread` for programs without an event loop: the same methods, which wait."""

    @property
    def id(self) -> str:
        """The thread id, which is Temporal's workflow id."""
        return self._behind.id

    def __repr__(self) -> str:
        return f"SyncThread({self.id!r})"

    result = Call(Thread.result)
    state = Call(Thread.state)
    events = Each(Thread.events)
    messages = Call(Thread.messages)
    export = Call(Thread.export)
    verify = Call(Thread.verify)
    move = Call(Thread.move)
    pending = Call(Thread.pending)
    decide = Call(Thread.decide)
    say = Call(Thread.say)
    refine = Call(Thread.refine)
    extend = Call(Thread.extend)
    retry = Call(Thread.retry)
    compact = Call(Thread.compact)
    lift = Call(Thread.lift)
    pause = Call(Thread.pause)
    resume = Call(Thread.resume)
    wake = Call(Thread.wake)
    cancel = Call(Thread.cancel)
    fork = Another(Thread.fork)
    restart = Another(Thread.restart)


class SyncSchedules(_Face[Schedules]):
    """`Schedules` for programs without an event loop: the same methods, which wait."""

    add = Call(Schedules.add)
    list = Call(Schedules.list)
    state = Call(Schedules.state)
    pause = Call(Schedules.pause)
    resume = Call(Schedules.resume)
    delete = Call(Schedules.delete)

    def trigger(self, name: str) -> SyncThread | None:
        """Start a run now, as `Schedules.trigger` does; return its thread."""
        thread = self._loop.run(self._behind.trigger(name))
        return SyncThread(thread, self._loop) if thread else None


class Start(_Made, Generic[P]):
    """A method of `Client` that returns a thread."""

    def __init__(self, method: Callable[Concatenate[Client, P], Awaitable[Thread]]) -> None:
        super().__init__(method)

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: _Face[Client], owner: type) -> Callable[P, SyncThread]: ...
    def __get__(self, face: _Face[Client] | None, owner: type) -> Self | Callable[P, SyncThread]:
        """Bind the method to an object."""
        if face is None:
            return self
        behind, loop = face._behind, face._loop

        def start(*args: P.args, **kwargs: P.kwargs) -> SyncThread:
            made: Awaitable[Thread] = self._method(behind, *args, **kwargs)
            return SyncThread(loop.run(made), loop)

        return update_wrapper(start, self._method)


class Connect(_Made, Generic[P]):
    """`Client.connect`, for a `with` block."""

    def __init__(self, method: Callable[P, AbstractAsyncContextManager[Client]]) -> None:
        super().__init__(method)

    def __get__(self, face: object, owner: type) -> Callable[P, AbstractContextManager["SyncClient"]]:
        """Bind the method to nothing: it makes the client."""

        @contextmanager
        def connect(*args: P.args, **kwargs: P.kwargs) -> Iterator[SyncClient]:
            loop = Loop()
            try:
                connecting: AbstractAsyncContextManager[Client] = self._method(*args, **kwargs)
                client = loop.run(connecting.__aenter__())
                try:
                    yield SyncClient(client, loop)
                finally:
                    loop.run(connecting.__aexit__(None, None, None))
            finally:
                loop.close()

        return update_wrapper(connect, self._method)


class SyncClient(_Face[Client]):
    """`Client` for programs without an event loop, such as scripts and notebooks. Threads may share it.

    with SyncClient.connect() as client:
        print(client.start("Publish 1.2", thread="rel-1.2").result().text)
    """

    connect = Connect(Client.connect)
    start = Start(Client.start)
    threads = Call(Client.threads)
    import_thread = Call(Client.import_thread)
    place = Call(Client.place)
    publish = Call(Client.publish)
    diff = Call(Client.diff)

    @property
    def schedules(self) -> SyncSchedules:
        """Runs that start by cron or interval."""
        return SyncSchedules(self._behind.schedules, self._loop)

    def thread(self, thread: str) -> SyncThread:
        """Return a thread by its id, without asking whether there is one.

        Raises:
            ThreadIdInvalid: The text cannot be a thread id.
        """
        return SyncThread(self._behind.thread(thread), self._loop)
