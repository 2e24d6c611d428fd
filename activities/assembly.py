"""Builds the activities and interceptors of a worker, with the stores, caches and clients they share.

The workflows are the caller's: `holdfast.hosting.assembly` adds them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from psycopg_pool import AsyncConnectionPool
from temporalio.worker import Interceptor

from holdfast.activities.builtin_tools.offer import with_builtin_tools
from holdfast.activities.calling_run import Chains, InProcessAnswers, RequestCheck
from holdfast.activities.heartbeats import DropToolHeartbeats
from holdfast.activities.llm_calls.call_llm import LLM
from holdfast.activities.llm_calls.reply_streams import ReplyStreams
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.load_agent import Agents
from holdfast.activities.loop_iteration import Loops
from holdfast.activities.middleware import MiddlewareStack
from holdfast.activities.node_gate import NodeGate
from holdfast.activities.notify import Notifier
from holdfast.activities.record.archive import Archive
from holdfast.activities.record.load_thread import Threads
from holdfast.activities.record.loop_record import LoopRecord
from holdfast.activities.record.record import Record
from holdfast.activities.redaction import Redacting
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.signed_results import ResultSigner
from holdfast.activities.subagents import Subagents
from holdfast.activities.tool_calls.call_tool import Tools
from holdfast.activities.tool_calls.previews import Previews
from holdfast.activities.trace_context import TraceContext
from holdfast.composition.stores import choose_stores
from holdfast.core.agents.catalog import Catalog
from holdfast.core.agents.required_secrets import read_secrets
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.log.node_seals import SignRecord, unsealed
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.nodes import NO_NODE, Node
from holdfast.core.run.contracts.ledger import EffectLedger
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.decorator import NO_RESOURCES
from holdfast.core.tools.secrets import Secrets
from holdfast.endpoints.embeddings import Embeddings
from holdfast.endpoints.endpoints import Endpoints
from holdfast.storage.ledger import Ledger
from holdfast.streaming.publisher import Publisher

log = SafeLogger(__name__)


@dataclass(frozen=True)
class Assembly:
    """What a worker runs besides workflows."""

    activities: tuple[Callable[..., Any], ...]
    """One for each entry of the tables in `holdfast.core.run.contracts.table` and `holdfast.core.loop.activities`."""
    interceptors: tuple[Interceptor, ...]
    """The first is the outermost."""


def assemble(
    catalog: Catalog,
    seals: FleetKeys,
    *,
    llm: Endpoints | openai.AsyncOpenAI,
    default_llm: str | Sequence[str],
    pool: AsyncConnectionPool | None = None,
    database_url: str = "",
    workspaces: Path,
    ledger: EffectLedger | None = None,
    artifacts: ArtifactStore | None = None,
    secrets: Secrets | None = None,
    resources: Mapping[Any, Any] = NO_RESOURCES,
    notifier: Notifier | None = None,
    embeddings: Embeddings | None = None,
    plain_starts: bool = True,
    seal: SignRecord = unsealed,
    node_key: SigningKey | None = None,
    publisher: Publisher | None = None,
    node: Node = NO_NODE,
    node_policy: Policy | None = None,
    traced: bool = False,
    page: str | None = None,
    interceptors: Sequence[Interceptor] = (),
) -> Assembly:
    """Put the activities of a worker together.

    Args:
        catalog: The agents and tools that the worker offers.
        seals: The fleet keys of the worker's client.
        llm: The LLM endpoints; or the client of one, with `max_retries=0`, for any LLM that an agent names.
        default_llm: The LLM of agents that name none; several are a fallback order.
        pool: Connections to the database, open when an activity runs; None if the catalog has every store, and
            `ledger` is set.
        database_url: The same database.
        workspaces: The folder for threads without a workspace of their own.
        ledger: The effect ledger; None for the database's.
        artifacts: Stores content that is too long for the log, unless the catalog has a store; None for the database.
        secrets: The secrets that the catalog's tools declare, and others that must not be recorded; None to read the
            declared ones from the environment.
        resources: The catalog's resources by type, opened (`holdfast.worker.resources`).
        notifier: Sends notices of requests and endings; None to send none.
        embeddings: Finds memories by meaning; None to find them by words alone.
        plain_starts: Accept runs that were started without a fleet key.
        seal: Signs a checkpoint of a thread's record; the default signs nothing.
        node_key: Signs the results of LLM and tool calls; None to sign none.
        publisher: Streams replies to readers while they arrive; None if nobody can read them.
        node: The node that the worker runs on.
        node_policy: Its own policy, which judges the work of every run; None for none.
        traced: Runs are exported as traces: logs, tools and requests to LLMs get the ids of the run's trace.
        page: The address of the gateway with the page, for links to it; None for none.
        interceptors: Interceptors in addition to our own.

    Raises:
        SettingsError: A tool declares a secret that the environment lacks.
    """
    assert catalog.resources.keys() <= resources.keys(), "open the catalog's resources first"
    secrets = read_secrets(catalog.secret_users, os.environ) if secrets is None else secrets
    stores = choose_stores(catalog, pool, artifacts=artifacts, embeddings=embeddings)
    threads, memories = stores.threads, stores.memories
    assert threads is not None  # a pool provides every store that the catalog lacks
    assert memories is not None
    assert stores.artifacts is not None
    if ledger is None:
        assert pool is not None
        ledger = Ledger(pool, database_url, seals)
    artifacts = stores.artifacts
    catalog = with_builtin_tools(catalog, artifacts=artifacts, memories=memories, threads=threads, secrets=secrets)
    notifier = notifier or Notifier()
    endpoints = llm if isinstance(llm, Endpoints) else Endpoints.only(llm)
    in_process = InProcessAnswers()
    transcripts = TranscriptCache(threads, in_process=in_process)
    layers = [resources[each] if isinstance(each, type) else each for each in catalog.middleware]
    middleware = MiddlewareStack(layers) if layers else None
    chains = Chains()
    record = Record(threads, artifacts, chains=chains, seal=seal)
    streams = ReplyStreams(publisher, secrets) if publisher else None
    archive = Archive(record, ledger, forget=transcripts.forget, in_process=in_process)
    loop_record = LoopRecord(record, threads)
    loops = Loops(
        catalog,
        loop_record,
        default_llm=default_llm,
        endpoints=endpoints.names,
        notify=bool(notifier.receivers),
    )
    agents = Agents(
        catalog,
        default_llm=default_llm,
        endpoints=endpoints.names,
        workspaces=workspaces,
        artifacts=artifacts,
        memories=memories,
        notify=bool(notifier.receivers),
        threads=threads,
        ledger=ledger,
        chains=chains,
        plain_starts=plain_starts,
        resources=resources,
        secrets=secrets,
        node=node,
        page=page,
    )
    subagents = Subagents(threads, chains)
    activities: list[Callable[..., Any]] = [
        Threads(record, keep=transcripts.keep).load_thread,
        archive.load_effects,
        agents.load_agent,
        LLM(endpoints, catalog, transcripts, artifacts, secrets, middleware, streams).call_llm,
        Tools(catalog, ledger, chains, transcripts, artifacts, secrets, resources, middleware, node).call_tool,
        Previews(catalog, artifacts, secrets, resources).preview_call,
        notifier.notify,
        archive.archive,
        subagents.start_subagents,
        subagents.check_subagents,
        subagents.end_subagents,
        subagents.announce_end,
        loops.survey_workspace,
        loops.settle_iteration,
        loop_record.archive_loop,
    ]
    signer = ResultSigner(node_key, chains) if node_key else None
    gate = NodeGate(node, node_policy, catalog.tools)
    tracing = (TraceContext(chains),) if traced else ()
    redacting = (Redacting(secrets),) if secrets.forms else ()
    own = (*redacting, RequestCheck(chains, signer), *tracing, gate, in_process, DropToolHeartbeats())
    return Assembly(tuple(activities), (*own, *interceptors))
