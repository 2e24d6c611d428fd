"""The worker: runs agents. Load the catalog, connect, register, run until signalled. The only place that knows
workflows and activities both.
"""

import asyncio
import os
import signal
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, NoReturn

import openai
import psycopg
import structlog
import typer
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities.archive import Record
from activities.builtin_tools.read_artifact import read_artifact_tool
from activities.builtin_tools.read_skill import read_skill_tool
from activities.builtin_tools.remember import semantic_tools
from activities.call_llm import LLM
from activities.call_tool import Tools
from activities.load_agent import Agents
from activities.loop_iteration import Loops
from activities.notify import Notifier
from activities.notify_formats import Links
from activities.orders import Chains, CheckedOrders
from activities.transcript_cache import TranscriptCache
from holdfast import __version__
from holdfast.agents.catalog import Catalog
from holdfast.agents.required_secrets import read_secrets
from holdfast.errors import HoldfastError, ServerUnreachable, SettingsError, StackError
from holdfast.memory.semantic import MemoryStore
from holdfast.runtime.client.connect import connect, connect_config, ensure_search_attributes, seals_of, stack_config
from holdfast.runtime.client.ui_links import ui_base
from holdfast.runtime.config.loading import load
from holdfast.runtime.config.own_secrets import own_secrets
from holdfast.runtime.config.policy_file import load_policy
from holdfast.runtime.config.settings import Settings
from holdfast.runtime.config.stack_file import Stack
from holdfast.runtime.config.state_folder import make_private
from holdfast.runtime.config.webhooks import read_receivers
from holdfast.runtime.devstack.devstack import DevStack
from holdfast.runtime.encryption.codec import EncryptionCodec
from holdfast.runtime.encryption.fleet_keys import knowing_fleet_keys, required_seals
from holdfast.runtime.hardening import ROOT_NOTICE, close_to_others, is_root
from holdfast.runtime.llm.client import llm_client
from holdfast.runtime.llm.embeddings import Embeddings
from holdfast.runtime.stores.artifacts import FolderArtifacts, PostgresArtifacts
from holdfast.runtime.stores.ledger import Ledger
from holdfast.runtime.stores.memories import PostgresMemories
from holdfast.runtime.stores.pool import migrate, open_pool
from holdfast.runtime.stores.threads import PostgresThreads
from holdfast.runtime.takeover.takeover import taking_over
from holdfast.runtime.telemetry.logs import configure_logging
from holdfast.runtime.worker.graceful import at_work
from holdfast.runtime.worker.redaction import Redacting
from holdfast.stores import ArtifactStore
from holdfast.tools.secrets import Secrets
from workflows import WORKFLOWS

ROOT = Path(__file__).resolve().parent

STICKY_TIMEOUT = timedelta(seconds=3)
"""How long a task waits for the worker that has its workflow cached before any other may take it. With the heartbeat
time-out (`workflows/calls.py`, 5 s) this is what a SIGKILL costs at the most before somebody else goes on; on the same
machine less (`holdfast/runtime/takeover/takeover.py`)."""

HEARTBEAT_INTERVAL = timedelta(seconds=2)
"""How often a long call tells that it is alive. The SDK's default, four fifths of the time-out, leaves a busy worker
one second of grace; this leaves three."""

EFFECTS_AT_ONCE = 32
"""Tool calls with effects that one worker runs at the same time: each holds a database connection."""

THREADS = 64
"""Sync tools that one worker runs at the same time."""

log = structlog.get_logger("worker")


def build_worker(
    client: Client,
    *,
    task_queue: str,
    catalog: Catalog,
    llm: openai.AsyncOpenAI,
    default_llm: str,
    pool: AsyncConnectionPool,
    database_url: str,
    workspaces: Path,
    artifacts: ArtifactStore | None = None,
    secrets: Secrets | None = None,
    notifier: Notifier | None = None,
    embeddings: Embeddings | None = None,
    plain_starts: bool = True,
    strict: bool = False,
    **options: Any,
) -> Worker:
    """Put a worker together.

    Args:
        client: Connected, speaking pydantic.
        task_queue: Where it listens.
        catalog: The agents and tools it offers.
        llm: Client of the LLM endpoint, with `max_retries=0`.
        default_llm: The LLM of agents that name none.
        pool: Open connections to the database.
        database_url: The same database.
        workspaces: The folder for threads without a workspace of their own.
        artifacts: Where what is too long for the log is kept, unless the catalog says; None for the database.
        secrets: Those that the catalog's tools declare, and others that must not be recorded; None to read from the
            environment what tools declare.
        notifier: Tells those who are elsewhere of requests and endings; None for nobody.
        embeddings: Finds what is remembered by meaning; None for words alone.
        plain_starts: Take runs that were started without a fleet key.
        strict: Run workflows in Temporal's sandbox, which finds clocks and randomness. The tests do; a worker need
            not, for it runs no workflow code but ours, and saves a tenth of a step and half of a replay.
        options: Further arguments of `temporalio.worker.Worker`.

    Raises:
        SettingsError: A tool declares a secret that the environment lacks, or the client has no fleet key.
    """
    if not seals_of(client):
        raise SettingsError("the worker's client has no fleet key: connect it with seals (HOLDFAST_FLEET_KEYS)")
    secrets = read_secrets(catalog.tools.values(), os.environ) if secrets is None else secrets
    threads = catalog.threads or PostgresThreads(pool)
    artifacts = catalog.artifacts or artifacts or PostgresArtifacts(pool)
    memories = catalog.memories or PostgresMemories(pool, embeddings)
    catalog = _with_our_tools(catalog, artifacts, memories, secrets)
    notifier = notifier or Notifier()
    transcripts = TranscriptCache(threads)
    chains = Chains()
    ledger = Ledger(pool, database_url)
    record = Record(threads, ledger, chains=chains, forget=transcripts.forget)
    loops = Loops(catalog, default_llm=default_llm, notify=bool(notifier.receivers))
    return Worker(
        client,
        task_queue=task_queue,
        workflows=WORKFLOWS,
        activities=[
            record.load_thread,
            record.load_effects,
            Agents(
                catalog,
                default_llm=default_llm,
                workspaces=workspaces,
                artifacts=artifacts,
                memories=memories,
                notify=bool(notifier.receivers),
                threads=threads,
                ledger=ledger,
                chains=chains,
                plain_starts=plain_starts,
            ).load_agent,
            LLM(llm, catalog, transcripts, artifacts, secrets).call_llm,
            Tools(catalog, ledger, chains, transcripts, artifacts, secrets).call_tool,
            notifier.notify,
            record.archive,
            loops.survey_workspace,
            loops.settle_iteration,
        ],
        workflow_runner=SandboxedWorkflowRunner() if strict else UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_heartbeat_throttle_interval=HEARTBEAT_INTERVAL,
        build_id=__version__,  # every step's history repeats it; without one, the SDK hashes every module there is
        interceptors=[Redacting(secrets), CheckedOrders(chains), *options.pop("interceptors", ())],
        **options,
    )


def _with_our_tools(catalog: Catalog, artifacts: ArtifactStore, memories: MemoryStore, secrets: Secrets) -> Catalog:
    """The catalog with the tools that need a store, for the agents that want them."""
    catalog = catalog.offering(
        read_skill_tool(artifacts, catalog.skills.values()),
        to=lambda agent: agent.memory.workspace_skills or bool(catalog.skills_of(agent.name)),
    )
    for each in semantic_tools(memories, secrets):
        catalog = catalog.offering(each, to=lambda agent: agent.memory.semantic)
    return catalog.offering(read_artifact_tool(artifacts))  # last: for whoever has any tool by now


async def run(settings: Settings, *, dev: bool) -> None:
    """Run a worker until SIGINT or SIGTERM.

    Args:
        settings: From the environment.
        dev: Start the embedded stack, or join the one that is running.

    Raises:
        HoldfastError: Something it needs is missing; the message says what to do.
    """
    # The SDK's, for every local activity that ends just as its time is over.
    warnings.filterwarnings("ignore", message="Cannot find activity to cancel", category=UserWarning)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    ends: list[asyncio.Task[bool]] = [asyncio.create_task(stop.wait())]
    # Sync tools run in threads; the default number of them (cores + 4) would make calls wait for each other.
    loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="tool"))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    catalog = load(settings.catalog, Catalog)
    policy = load_policy(settings.policy) if settings.policy else None
    if policy:
        catalog = catalog.governed_by(policy)
    secrets = own_secrets(settings) | read_secrets(catalog.tools.values(), os.environ)
    configure_logging(settings.log_level, settings.log_format, secrets=secrets)
    if settings.home.exists() and not dev:
        make_private(settings.home, say=_say)
    async with AsyncExitStack() as cleanup:
        if dev:
            servers = DevStack(settings.home, say=_say)
            stack = await asyncio.to_thread(servers.start)
            cleanup.push_async_callback(asyncio.to_thread, servers.stop)
            ends.append(asyncio.create_task(_keep_up(servers, stack)))
            cleanup.callback(ends[-1].cancel)
            _say(f"Web UI     {stack.ui_url}")
            config, database_url = stack_config(stack), settings.database_url or stack.database_url
        else:
            config, database_url = connect_config(os.environ, home=settings.home), _required_database(settings)
        settings = knowing_fleet_keys(settings, config)
        seals = required_seals(settings, config)
        secrets |= own_secrets(settings)
        configure_logging(settings.log_level, settings.log_format, secrets=secrets)
        llm = cleanup.enter_context(llm_client(settings, dev=dev, say=_say))
        client = await connect(config, codec=EncryptionCodec.of(settings.encryption_keys), seals=seals)
        identity = await cleanup.enter_async_context(
            taking_over(client, home=settings.home, task_queue=settings.task_queue, wanted=settings.takeover)
        )
        await ensure_search_attributes(client)
        pool = await _open_database(database_url, cleanup)
        notifier = await cleanup.enter_async_context(_notifier(settings, config))
        worker = build_worker(
            client,
            task_queue=settings.task_queue,
            catalog=catalog,
            llm=llm,
            default_llm="scripted" if settings.scripted else settings.llm,
            pool=pool,
            database_url=database_url,
            workspaces=settings.home / "workspaces",
            artifacts=FolderArtifacts(settings.artifacts) if settings.artifacts else None,
            secrets=secrets,
            notifier=notifier,
            embeddings=_embeddings(llm, settings),
            plain_starts=settings.plain_starts,
            graceful_shutdown_timeout=timedelta(seconds=5),
            identity=identity,
        )
        async with at_work(worker):
            if policy:
                _say(f"Policy     {settings.policy}, hash {policy.hash[:12]}, in place of every agent's own")
            else:
                _say("Policy     each agent's own (HOLDFAST_POLICY is not set): " + _policies(catalog))
            if is_root():
                _say(f"Root       {ROOT_NOTICE}")
            _say(f"Worker     task queue {settings.task_queue}; agents: {', '.join(catalog.agents)}")
            _say('Ready.     python starter.py start "…"    (Ctrl-C stops what this command started)')
            ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            _say("Stopping …")
        for end in ended:
            end.result()  # raises what made it end


def _policies(catalog: Catalog) -> str:
    return ", ".join(f"{name} {agent.policy.hash[:12]}" for name, agent in catalog.agents.items())


def _embeddings(llm: openai.AsyncOpenAI, settings: Settings) -> Embeddings | None:
    model = settings.embedding_model
    return Embeddings(llm, model, settings.embedding_dimensions) if model else None


def _notifier(settings: Settings, config: Mapping[str, Any]) -> Notifier:
    secret, webhooks = settings.webhook_secret, settings.webhooks
    receivers = (
        read_receivers(webhooks.get_secret_value(), insecure=settings.webhooks_insecure) if webhooks is not None else ()
    )
    links = Links(ui=ui_base(config, settings), gateway=settings.gateway_url)
    return Notifier(receivers, secret=secret.get_secret_value() if secret else None, links=links)


async def _keep_up(servers: DevStack, stack: Stack) -> bool:
    """Start a server again that has died. Only its owner does: two must not.

    Raises:
        StackError: Temporal came back elsewhere. Whoever took its port may be a Temporal server, too, and this
            worker would do that one's work.
    """
    while True:
        await asyncio.sleep(1)
        if servers.owned and not await asyncio.to_thread(servers.running):
            _say("A server has died; starting it again …")
            try:
                again = await asyncio.to_thread(servers.start)
            except StackError as error:
                log.error("server_not_started", reason=str(error))
                continue
            if again.temporal_address != stack.temporal_address:
                raise StackError(f"Temporal's port was taken; it is at {again.temporal_address} now. Start this again.")


def _required_database(settings: Settings) -> str:
    if settings.database_url is None:
        raise SettingsError(
            "DATABASE_URL is not set, and effects are written down in PostgreSQL. "
            "Set it (postgresql://user@host/name), or use --dev for an embedded one."
        )
    return settings.database_url


async def _open_database(url: str, cleanup: AsyncExitStack) -> AsyncConnectionPool:
    try:
        for name in await migrate(url):
            log.info("migrated", migration=name)
    except psycopg.Error as error:
        raise StackError(f"the database cannot be used: {str(error).strip()}. Check DATABASE_URL.") from None
    return await cleanup.enter_async_context(open_pool(url, size=EFFECTS_AT_ONCE))


def _say(line: str) -> None:
    print(line, flush=True)


def main(
    dev: Annotated[bool, typer.Option("--dev", help="Start Temporal, PostgreSQL and, without a key, an LLM.")] = False,
    catalog: Annotated[str | None, typer.Option(help="Agents and tools: package.module:attribute.")] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A policy in place of every agent's own, as YAML.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Run agents until Ctrl-C.

    Examples:
        python worker.py --dev
        python worker.py --dev --catalog mycompany.agents:catalog
        TEMPORAL_ADDRESS=temporal:7233 DATABASE_URL=postgresql://… python worker.py
    """
    try:
        given = {"HOLDFAST_CATALOG": catalog, "HOLDFAST_POLICY": str(policy) if policy else None}
        environ = os.environ | {name: value for name, value in given.items() if value}
        settings = Settings.from_env(environ, root=ROOT)
        os.environ["HOLDFAST_HOME"] = str(settings.home)  # where tools, too, find what this machine keeps
        configure_logging(settings.log_level, settings.log_format, secrets=own_secrets(settings))
        close_to_others()
        asyncio.run(_run_and_exit(settings, dev=dev))
    except HoldfastError as error:
        if debug:
            raise
        print(f"worker.py: {error}", file=sys.stderr)
        _exit(4 if isinstance(error, ServerUnreachable) else 2)


async def _run_and_exit(settings: Settings, *, dev: bool) -> None:
    await run(settings, dev=dev)
    _exit(0)  # from within the loop: closing it waits for threads, and a tool may never come back


def _exit(code: int) -> NoReturn:
    """End at once: temporalio can crash the interpreter at exit, and the exit code must not lie."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    typer.run(main)
