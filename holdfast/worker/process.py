"""Runs a worker process until it is stopped: signals, logging, embedded servers, and the lines for people.

`holdfast.hosting` runs the worker itself.
"""

import asyncio
import gc
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, nullcontext
from pathlib import Path
from typing import Protocol

from temporalio.client import Client

from holdfast.client.connect import own_stack
from holdfast.composition.components import Components, load_catalog
from holdfast.composition.hardening import ROOT_NOTICE, is_root
from holdfast.composition.node import node_of
from holdfast.composition.process import say
from holdfast.composition.telemetry.logs import configure_logging
from holdfast.config.own_secrets import own_secrets
from holdfast.config.programs import CLI
from holdfast.config.settings import Settings
from holdfast.config.state_folder import make_private
from holdfast.core.agents.advice import advice_on
from holdfast.core.agents.agent import Agent
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.required_secrets import read_secrets
from holdfast.core.tools.secrets import Secrets
from holdfast.devstack.devstack import DevStack
from holdfast.devstack.supervisor import restart_dead_servers
from holdfast.mcp.pinning import trust_on_first_use, with_pinned_tools
from holdfast.mcp.tools import provider_of
from holdfast.storage.pool import WORKER_CONNECTIONS
from holdfast.telemetry.metrics.exporter import metrics_runtime

THREADS = 64
"""Threads for the worker's own work."""

Serving = Callable[[Components, Catalog, Secrets, str], AbstractAsyncContextManager[Client]]
"""Runs the worker for a block, from its parts, its catalog, what must not be recorded, and the catalog's reference."""


class Page(Protocol):
    """The page of development (`holdfast.hosting.development`)."""

    def reserve(self, settings: Settings) -> AbstractContextManager[str | None]:
        """Take a port for a block; yield the page's address for links, None for none."""

    def serve(self, parts: Components, say: Callable[[str], None]) -> AbstractAsyncContextManager[None]:
        """Serve the page for a block, from the worker's parts; print lines for people."""


async def run_worker(
    settings: Settings, environ: Mapping[str, str], *, dev: bool, skip_time: bool, serving: Serving, page: Page
) -> None:
    """Run a worker until SIGINT or SIGTERM.

    Args:
        settings: From `environ`.
        environ: The environment, completed by the project's files.
        dev: Start the embedded stack, or join the one that is running.
        skip_time: With `dev`: the stack's Temporal lets its clients skip time.
        serving: Runs the worker (`holdfast.hosting.serving`).
        page: With `dev`: a page to decide and watch on.

    Raises:
        HoldfastError: Something it needs is missing; the message says what to do.
    """
    ends = [asyncio.create_task(until_stopped())]
    # Stores work in threads; the default number of them (cores + 4) would make calls wait for each other. Sync tools
    # have their own (`activities/tool_calls/tool_threads.py`).
    executor = ThreadPoolExecutor(THREADS, thread_name_prefix="worker")
    asyncio.get_running_loop().set_default_executor(executor)
    catalog = await _catalog(settings, environ, dev=dev)
    secrets = own_secrets(settings, environ) | read_secrets(catalog.secret_users, environ)
    configure_logging(settings.log_level, settings.log_format, secrets=secrets)
    for advice in advice_on(catalog):
        say(f"Warning    {advice}")
    if settings.home.exists() and not dev:
        make_private(settings.home, report=say)
    async with AsyncExitStack() as cleanup:
        stack = None
        if dev:
            servers = DevStack(settings.home, report=say, skip_time=skip_time)
            stack = await asyncio.to_thread(servers.start)
            cleanup.push_async_callback(asyncio.to_thread, servers.stop)
            ends.append(asyncio.create_task(restart_dead_servers(servers, stack, report=say)))
            cleanup.callback(ends[-1].cancel)
            say(f"Web UI     {stack.ui_url}")
            if stack.skip_time:
                say(f"Time       every client can skip it, such as {CLI.command('skip', 'THREAD', '3w')}")
        parts = Components(
            settings,
            environ,
            cleanup=cleanup,
            stack=stack,
            connections=WORKER_CONNECTIONS,
            scripted=dev,
            say=say,
            runtime=metrics_runtime(settings),
        )
        parts.require_database()
        if own := own_stack(parts.config):
            own.check(address := parts.config["target_host"])
            ends.append(asyncio.create_task(own.until_replaced(address)))
            cleanup.callback(ends[-1].cancel)
        secrets |= own_secrets(parts.settings, environ)  # the embedded stack's fleet key, too
        configure_logging(settings.log_level, settings.log_format, secrets=secrets)
        parts.page = cleanup.enter_context(page.reserve(parts.settings)) if dev else None
        shown = page.serve(parts, say) if dev else nullcontext()
        async with serving(parts, catalog, secrets, settings.catalog), shown:
            _say_ready(settings, catalog)
            gc.freeze()  # modules and specs live as long as the process: a full collection need not scan them
            ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            say("Stopping …")
        for end in ended:
            end.result()  # raises its error


async def _catalog(settings: Settings, environ: Mapping[str, str], *, dev: bool) -> Catalog:
    """Load the catalog; in development, trust its MCP servers on first use."""
    catalog = load_catalog(settings, pinned=not dev)
    if not dev or not catalog.mcp:
        return catalog
    secrets = read_secrets([provider_of(catalog.mcp.values())], environ)
    for line in await trust_on_first_use(catalog, Path.cwd(), secrets):
        say(f"MCP        {line}")
    return with_pinned_tools(catalog, Path.cwd())


async def until_stopped() -> bool:
    """Wait for SIGINT, SIGTERM, or SIGHUP; under `nohup`, SIGHUP stays ignored."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await stop.wait()


def _say_ready(settings: Settings, catalog: Catalog) -> None:
    hashes = {name: agent.policy.hash[:12] for name, agent in catalog.agents.items()}
    if settings.policy:
        say(f"Policy     {settings.policy}, hash {next(iter(hashes.values()))}, in place of every agent's own")
    else:
        own = ", ".join(f"{name} {digest}" for name, digest in hashes.items())
        say(f"Policy     each agent's own (HOLDFAST_POLICY is not set): {own}")
    if settings.node or settings.node_labels:
        node = node_of(settings)
        say(f"Node       {node.name}" + (f" ({settings.node_labels})" if settings.node_labels else ""))
    if is_root():
        say(f"Root       {ROOT_NOTICE}")
    if settings.offers_example:
        say("Example    no catalog is set; for your agents: --catalog agents:catalog, or `catalog` in holdfast.toml")
    say(f"Worker     task queue {settings.task_queue}; agents: {', '.join(map(_shown, catalog.agents.values()))}")
    say(f'Ready.     {CLI.command("start")} "…"    (Ctrl-C stops what this command started)')


def _shown(agent: Agent) -> str:
    return f"{agent.name} ({agent.title})" if agent.title else agent.name
