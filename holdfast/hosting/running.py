"""`holdfast.running`: agents inside a program. It imports what a worker needs only when a block begins."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from holdfast.api.client import Client
from holdfast.api.sync import Loop, SyncClient
from holdfast.composition.observers import Observers, OnEvent
from holdfast.config.extras import is_installed
from holdfast.config.programs import setup_command
from holdfast.core.agents.catalog import Catalog
from holdfast.endpoints.script import Reply, Script, steps
from holdfast.errors import CatalogError, StackError

if TYPE_CHECKING:  # optional packages: a program that passes a provider has them
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


class Running:
    """Agents inside a program, for one block: `async with` yields a `Client`, `with` a `SyncClient`.

    `holdfast.running` returns it.
    """

    def __init__(self, hold: Callable[[], AbstractAsyncContextManager[Client]], of: "_Place") -> None:
        self._hold = hold
        self._of = of
        self._entered = False
        self._block = AsyncExitStack()
        self._sync_block = ExitStack()

    async def __aenter__(self) -> Client:
        if self._entered:
            raise StackError("this block is open already: call running() again for another one")
        self._entered = True
        async with AsyncExitStack() as opening:
            opening.callback(setattr, self, "_entered", False)
            client = await opening.enter_async_context(self._hold())
            opened = _Open(asyncio.get_running_loop(), self._of, client)
            _open.append(opened)
            opening.callback(_open.remove, opened)
            self._block = opening.pop_all()
        return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._block.__aexit__(kind, error, traceback)

    def __enter__(self) -> SyncClient:
        with ExitStack() as opening:
            loop = opening.enter_context(closing(Loop()))
            client = loop.run(self.__aenter__())
            opening.callback(lambda: loop.run(self.__aexit__(None, None, None)))
            self._sync_block = opening.pop_all()
            return SyncClient(client, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sync_block.close()


def running(
    catalog: Catalog,
    *,
    script: Script | Sequence[Reply] | None = None,
    task_queue: str | None = None,
    home: Path | str | None = None,
    by: str | None = None,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
    on_event: OnEvent | None = None,
) -> Running:
    """Run agents inside this program for a block, and get a client to start and steer them.

        async with holdfast.running(catalog) as client:
            thread = await client.start("Order 77 arrived broken", thread="order-77")
            print((await thread.result()).text)

    `with` works as well, and yields a `SyncClient`. The block starts what is missing (embedded servers, if neither
    Temporal nor a database is configured, and a worker of this catalog), and stops what it started. The state stays in
    the state folder: when a program that was killed runs again, its threads resume as soon as the block begins.

    Settings come from the environment, `holdfast.toml` and `.env`, as for `holdfast worker`. A configured LLM is used;
    without one, the script answers, and the logger `holdfast` says so.

    Args:
        catalog: The agents and tools. They may be defined in the script that runs.
        script: The answers of the scripted LLM, while no LLM is configured: a function of the conversation, or replies
            in order. None for the script that the project names, or else for an answer that says how to configure one.
        task_queue: The Temporal task queue of the catalog; every program that serves a queue must offer the same
            agents. None for `HOLDFAST_TASK_QUEUE`; else, with the embedded servers, a queue for this catalog alone,
            named after its module and its first agent (`agents.support`), unless it is the catalog of the project,
            whose queue the project's worker and commands share (`holdfast`).
        home: `HOLDFAST_HOME`: the state folder. A process can use one.
        by: `HOLDFAST_BY`: the person who starts runs, decides and sends messages, unless a call names another.
        tracer_provider: OpenTelemetry's provider that gets the spans of runs; None for none.
        meter_provider: OpenTelemetry's provider that gets the metrics of the worker; None for none.
        on_event: Called with a thread's id and each event of the database's threads, soon after it is recorded: in the
            order of its thread, and at least once, after a crash, too. If it raises, the event is passed again. Of
            several processes with the same task queue, one calls it. None for none.

    Raises:
        CatalogError: `catalog` is no catalog.
        StackError: The embedded servers cannot run: a package is missing, or the state folder cannot be used.
        SettingsError: A setting cannot be used, or this process serves other agents on the task queue.
        ServerUnreachable: The configured Temporal server does not respond, or ended during the block.
        ResourceFailed: A resource of the catalog cannot be opened.
    """
    if not isinstance(catalog, Catalog):
        raise CatalogError(f"{catalog!r:.100} is not a catalog: pass Catalog(agents=[…], tools=[…])")
    replies = script if script is None or callable(script) else steps(script)

    def open_block() -> AbstractAsyncContextManager[Client]:
        if not is_installed("worker"):
            raise StackError(f"the packages that run agents are missing: {setup_command('embedded')}")
        from holdfast.hosting.host import hold

        observers = Observers(tracer_provider, meter_provider, on_event)
        return hold(catalog, script=replies, task_queue=task_queue, home=home, by=by, observers=observers)

    return Running(open_block, _Place(catalog, task_queue, None if home is None else Path(home)))


def open_client(catalog: Catalog, *, task_queue: str | None = None, home: Path | str | None = None) -> Client | None:
    """Return the client of a block that this event loop has open with these arguments; None if there is none."""
    loop, wanted = asyncio.get_running_loop(), _Place(catalog, task_queue, None if home is None else Path(home))
    return next((each.client for each in reversed(_open) if each.loop is loop and each.of == wanted), None)


class _Place(NamedTuple):
    catalog: Catalog
    task_queue: str | None
    home: Path | None


class _Open(NamedTuple):
    loop: asyncio.AbstractEventLoop
    of: _Place
    client: Client


_open: list[_Open] = []
"""The blocks that are open in this process."""
