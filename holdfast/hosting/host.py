"""Holds agents in a program for a block: embedded servers if none are configured, a worker, and a client.

1. Nothing of the process is changed: no signal handler, event loop, executor, logging or exit.
2. What this starts, it stops, unless another process of the same state folder still uses it (`holdfast.devstack`).
3. If something that the agents need has failed for good, the block is cancelled and raises that error.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from holdfast.api.client import Client, make_client
from holdfast.client.connect import own_stack
from holdfast.composition.components import Components
from holdfast.composition.hardening import ROOT_NOTICE, is_root
from holdfast.composition.observers import NO_OBSERVERS, Observers
from holdfast.config.policy_file import load_policy
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack
from holdfast.config.state_folder import make_private, using
from holdfast.core.agents.advice import advice_on
from holdfast.core.agents.catalog import Catalog
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.supervisor import restart_dead_servers
from holdfast.endpoints.script import Script
from holdfast.hosting.program import read_program
from holdfast.hosting.queues import offer_of, serving_queue
from holdfast.hosting.serving import secrets_of, serving
from holdfast.mcp.pinning import lock_folder, with_pinned_tools
from holdfast.storage.pool import WORKER_CONNECTIONS
from holdfast.telemetry.metrics.exporter import metrics_runtime

CLIENT_CONNECTIONS = 4
"""Connections to the database for the program itself, beside those of its worker."""

log = logging.getLogger("holdfast")


@asynccontextmanager
async def hold(
    catalog: Catalog,
    *,
    script: Script | None = None,
    task_queue: str | None = None,
    home: Path | str | None = None,
    by: str | None = None,
    observers: Observers = NO_OBSERVERS,
) -> AsyncIterator[Client]:
    """Run a worker of a catalog for a block. See `holdfast.running`, whose arguments these are."""
    program = await asyncio.to_thread(read_program, catalog, task_queue=task_queue, home=home, by=by)
    settings = program.settings
    _say_what_is_used(settings, (*program.warnings, *advice_on(catalog)))
    governed = catalog.governed_by(load_policy(settings.policy)) if settings.policy else catalog
    if governed.mcp:
        governed = with_pinned_tools(governed, lock_folder(catalog))
    body = Body()
    with body.raising_failure():
        async with AsyncExitStack() as cleanup:
            cleanup.enter_context(using(settings.home))
            stack = await _servers(settings, body, cleanup) if program.embedded else None
            if stack is None:
                await asyncio.to_thread(make_private, settings.home, report=log.info)
            parts = Components(
                settings,
                program.environ,
                cleanup=cleanup,
                stack=stack,
                catalog=governed,
                script=script or program.script,
                connections=WORKER_CONNECTIONS + CLIENT_CONNECTIONS,
                scripted=program.embedded or script is not None,  # a server of a team gets no made-up answers
                say=log.info,
                runtime=metrics_runtime(settings, _logging()) or _runtime(),
                observers=observers,
            )
            if own := own_stack(parts.config):
                own.check(address := parts.config["target_host"])
                body.depends_on(own.until_replaced(address), cleanup)
            secrets = secrets_of(parts, governed, program.environ)
            offer = offer_of(settings, governed, program.reference)
            cleanup.enter_context(serving_queue(await parts.client(), settings.task_queue, offer))
            await cleanup.enter_async_context(serving(parts, governed, secrets, program.reference))
            yield await make_client(Client, parts, parts.settings)


@cache
def _runtime() -> Runtime:
    """Return a runtime of Temporal's SDK for all blocks of this process. Its log goes to the standard library's, as the
    default one prints on stdout, which belongs to the program.
    """
    return Runtime(telemetry=TelemetryConfig(logging=_logging()))


@cache
def _logging() -> LoggingConfig:
    forwarding = LogForwardingConfig(logging.getLogger("holdfast.temporal"))
    return LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding)


async def _servers(settings: Settings, body: "Body", cleanup: AsyncExitStack) -> Stack:
    """Start the embedded servers, or join those that another process has started."""
    servers = DevStack(settings.home, report=log.info)
    starting = asyncio.ensure_future(asyncio.to_thread(servers.start))

    async def stop() -> None:
        with suppress(Exception):
            await starting  # cancelling does not stop the thread, which would start servers that nobody stops
        await asyncio.to_thread(servers.stop)

    cleanup.push_async_callback(stop)
    stack = await asyncio.shield(starting)
    body.depends_on(restart_dead_servers(servers, stack, report=log.warning), cleanup)
    log.info("Web UI: %s", stack.ui_url)
    return stack


def _say_what_is_used(settings: Settings, warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        log.warning("%s", warning)
    if settings.default_llm == "scripted":
        log.warning("no LLM is configured (OPENAI_API_KEY, OPENAI_BASE_URL): a script answers in its place")
    else:
        log.info("LLM: %s", settings.llm)
    if is_root():
        _say_once(ROOT_NOTICE)


@cache
def _say_once(text: str) -> None:
    log.warning("%s", text)


class Body:
    """The task that runs the block."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._failure: BaseException | None = None

    def depends_on(self, needed: Coroutine[Any, Any, Any], cleanup: AsyncExitStack) -> None:
        """Run `needed` until the cleanup; cancel the block if it fails."""
        running = asyncio.create_task(needed)
        running.add_done_callback(self._ended)
        cleanup.callback(running.cancel)

    def _ended(self, needed: "asyncio.Task[Any]") -> None:
        if needed.cancelled() or (error := needed.exception()) is None or self._failure is not None:
            return
        self._failure = error
        log.error("%s", error)
        if self._task is not None:
            self._task.cancel()  # does nothing if the block is left by another task, as in a fixture

    @contextmanager
    def raising_failure(self) -> Iterator[None]:
        """Raise the failure in place of the cancellation that it caused."""
        try:
            yield
        except asyncio.CancelledError:
            if self._failure is None or self._task is None:
                raise
            self._task.uncancel()
            raise self._failure from None
