"""The parts of a process, built from its settings: each once, when it is first asked for.

Imports are inside the methods: the command line refuses most mistakes before it needs any of the parts.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.composition.observers import NO_OBSERVERS, Observers
from holdfast.config.running_stacks import is_running
from holdfast.config.settings import Settings
from holdfast.config.stack_file import Stack, read_stack
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool
    from temporalio.client import Client
    from temporalio.runtime import Runtime

    from holdfast.client.reading.record import Evidence, OpenRecord
    from holdfast.composition.stores import Stores
    from holdfast.core.agents.catalog import Catalog
    from holdfast.core.authority.signatures import SigningKey
    from holdfast.core.log.node_seals import SignRecord
    from holdfast.core.mac.seals import FleetKeys
    from holdfast.core.stores import ArtifactStore, ThreadStore
    from holdfast.encryption.codec import EncryptionCodec
    from holdfast.endpoints.embeddings import Embeddings
    from holdfast.endpoints.endpoints import Endpoints
    from holdfast.endpoints.script import Script
    from holdfast.storage.artifacts import FolderArtifacts
    from holdfast.streaming.hub import Hub
    from holdfast.streaming.transport import Transport


def load_catalog(settings: Settings, *, pinned: bool = True) -> "Catalog":
    """Load the user's catalog, under the policy that the settings name.

    Args:
        settings: They name it.
        pinned: Give it the tools of its MCP servers, from the `mcp.lock` of the current folder.

    Raises:
        LoadError: It cannot be loaded.
        PolicyError: The policy file is wrong.
        SettingsError: An MCP server is not in the lock, or the lock cannot be used.
    """
    from holdfast.config.loading import load
    from holdfast.config.policy_file import load_policy
    from holdfast.core.agents.catalog import Catalog

    catalog = load(settings.catalog, Catalog)
    governed = catalog.governed_by(load_policy(settings.policy)) if settings.policy else catalog
    if not pinned or not governed.mcp:
        return governed
    from holdfast.mcp.pinning import with_pinned_tools

    return with_pinned_tools(governed, Path.cwd())


class Components:
    """The parts of a process, opened on first use.

    Args:
        settings: From the environment.
        environ: The environment, for Temporal's own settings.
        cleanup: Closes the opened parts.
        stack: The embedded stack that this process has started; None to look for a running one.
        connected: An existing client of Temporal; None to connect one.
        catalog: An existing catalog; None to load the one that the settings name, for its stores.
        script: The answers of the scripted LLM; None for the script that the settings name.
        connections: The most connections to the database.
        scripted: Whether the scripted LLM stands in if no endpoint is configured.
        say: Called with a line if it does.
        quiet: Silence the log of Temporal's SDK.
        runtime: The SDK's runtime, for a log of its own; None for the default one, which logs on stdout.
        observers: A program's own telemetry.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        cleanup: AsyncExitStack,
        stack: Stack | None = None,
        connected: "Client | None" = None,
        catalog: "Catalog | None" = None,
        script: "Script | None" = None,
        connections: int = 2,
        scripted: bool = False,
        say: Callable[[str], None] = lambda line: None,
        quiet: bool = False,
        runtime: "Runtime | None" = None,
        observers: Observers = NO_OBSERVERS,
    ) -> None:
        self._given = settings
        self._environ = environ
        self._stack = stack
        self._connected = connected
        self._catalog = catalog
        self._script = script
        self._connections = connections
        self._scripted = scripted
        self._say = say
        self._quiet = quiet
        self._runtime = runtime
        self.observers = observers
        self.page: str | None = None
        """The address of the page that this process serves, for links to it; None for none."""
        self._client: Client | None = None
        self._pool: AsyncConnectionPool | None = None
        self._opening = asyncio.Lock()
        self._endpoints: Endpoints | None = None
        self._advised = False
        self._seal: SignRecord | None = None
        self._hub: Hub | None = None
        self.cleanup = cleanup

    # Derived from the settings.

    @cached_property
    def config(self) -> dict[str, Any]:
        """Temporal's address: keyword arguments of `Client.connect`."""
        from holdfast.client.connect import address_of, connect_config, stack_config

        if self._connected:
            return address_of(self._connected)
        return stack_config(self._stack) if self._stack else connect_config(self._environ, home=self._given.home)

    @cached_property
    def settings(self) -> Settings:
        """The settings, with the embedded stack's fleet key and anchor if that stack and its database are used."""
        from holdfast.audit.anchors.setting import with_embedded_anchor
        from holdfast.encryption.fleet_keys import with_stack_key

        settings = with_stack_key(self._given, self.config)
        embedded = self.database_url is not None and self._given.database_url is None
        return with_embedded_anchor(settings) if embedded else settings

    @cached_property
    def _stores_catalog(self) -> "Catalog | None":
        """The catalog, for its stores alone, without a policy; None for the example, which has no stores."""
        if self._catalog is not None or self._given.offers_example:
            return self._catalog
        from holdfast.config.loading import load
        from holdfast.core.agents.catalog import Catalog

        return load(self._given.catalog, Catalog)

    @cached_property
    def database_url(self) -> str | None:
        """The database; the embedded stack's is for that stack's threads alone."""
        if self._given.database_url or self._stack:
            return self._given.database_url or (self._stack.database_url if self._stack else None)
        stack = read_stack(self._given.home)
        if stack is None or not stack.postgres_pid or stack.temporal_address != self.config["target_host"]:
            return None
        return stack.database_url if is_running(self._given.home, stack) else None

    @property
    def artifacts_folder(self) -> "FolderArtifacts | None":
        """The folder for artifacts that the settings name; None for the database."""
        from holdfast.storage.artifacts import FolderArtifacts

        return FolderArtifacts(self._given.artifacts) if self._given.artifacts else None

    @property
    def codec(self) -> "EncryptionCodec":
        """Encrypts payloads to Temporal, if there are keys."""
        from holdfast.encryption.codec import EncryptionCodec

        return EncryptionCodec.of(self._given.encryption_keys)

    @cached_property
    def seals(self) -> "FleetKeys":
        """Seals and verifies with the fleet keys; empty without keys."""
        from holdfast.encryption.fleet_keys import fleet_seals

        return fleet_seals(self.settings, self.config)

    @cached_property
    def node_key(self) -> "SigningKey | None":
        """This machine's key, with which workers sign results; None if it cannot be made.

        Raises:
            SettingsError: The node's key cannot be used.
        """
        from holdfast.composition.sealing import signing_key

        return signing_key(self.settings, say=self._say)

    @property
    def ui(self) -> str | None:
        """The address of Temporal's Web UI; None if unknown."""
        from holdfast.client.ui_links import ui_base

        return ui_base(self.config, self._given)

    @cached_property
    def runtime(self) -> "Runtime | None":
        """The SDK's runtime; None for the default one, which logs each retry."""
        from temporalio.runtime import Runtime, TelemetryConfig

        return Runtime(telemetry=TelemetryConfig(logging=None)) if self._quiet else self._runtime

    @property
    def connect_options(self) -> dict[str, Any]:
        """Keyword arguments of `Client.connect`, with the runtime."""
        return {**self.config, "runtime": self.runtime}

    # Opened on first use.

    async def client(self) -> "Client":
        """A client of Temporal, connected.

        Raises:
            ServerUnreachable: Temporal does not respond.
        """
        if self._client is None and self._connected:
            from holdfast.client.connect import adapt

            self._client = adapt(self._connected, codec=self.codec, seals=self.seals)
        if self._client is None:
            from holdfast.client.unreachable import check_port

            check_port(self._environ.get("TEMPORAL_ADDRESS", "") if self._stack is None else "")
            from holdfast.client.connect import connect

            self._client = await connect(self.connect_options, codec=self.codec, seals=self.seals)
        return self._client

    def require_database(self) -> str:
        """The URL of the database that workers need.

        Raises:
            SettingsError: It is not set, and this process has started no stack.
        """
        if self._stack is None and self._given.database_url is None:
            raise SettingsError(
                "DATABASE_URL is not set, and effects are recorded in PostgreSQL. "
                "Set it (postgresql://user@host/name), or use --dev for an embedded one."
            )
        url = self.database_url
        assert url is not None  # the stack or the settings have one
        return url

    async def migrated_pool(self) -> "AsyncConnectionPool":
        """Connections to the required database. The embedded one is migrated; another one is awaited.

        Raises:
            StackError: The database cannot be used.
        """
        from holdfast.storage.pool import open_database

        if self._pool is None:
            opening = open_database(self.require_database(), size=self._connections, migrating=self._stack is not None)
            self._pool = await self.cleanup.enter_async_context(opening)
        return self._pool

    async def pool(self) -> "AsyncConnectionPool | None":
        """Connections to the database; None if none is known. Does not wait until it responds."""
        async with self._opening:  # a program exports several threads at once
            if self._pool is None and (url := self.database_url):
                import logging

                from holdfast.storage.pool import open_pool

                # The pool would log each attempt on stderr. The caller reports the outcome.
                logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
                self._pool = await self.cleanup.enter_async_context(open_pool(url, size=self._connections))
        return self._pool

    def streams(self) -> "Transport | None":
        """The transport of streams, opened on first use; None without a database, or if streams are switched off."""
        url = self._given.stream_url or self.database_url
        if not self._given.streams or url is None:
            return None
        from holdfast.streaming.postgres import PostgresStreams

        return PostgresStreams(url)

    async def hub(self) -> "Hub | None":
        """The streams that this process reads; None for none."""
        import logging

        from holdfast.streaming.hub import listening

        # It would warn on stderr, between the rows of a live view. A reader without streams still has the events.
        logging.getLogger("holdfast.streams").addHandler(logging.NullHandler())
        if self._hub is None and (transport := self.streams()):
            self._hub = await self.cleanup.enter_async_context(listening(transport))
        return self._hub

    async def stores(self, *, embeddings: "Embeddings | None" = None) -> "Stores":
        """The stores of threads, artifacts and memories: the catalog's own, or else PostgreSQL's.

        Raises:
            LoadError: The catalog cannot be loaded.
        """
        from holdfast.composition.stores import choose_stores

        folder = self.artifacts_folder
        return choose_stores(self._stores_catalog, await self.pool(), artifacts=folder, embeddings=embeddings)

    async def artifacts(self) -> "ArtifactStore | None":
        """The store of artifacts: the catalog's own, the settings' folder, or the database; None for none."""
        return (await self.stores()).artifacts

    def threads(self) -> "ThreadStore | None":
        """The permanent record, opened when it is first read; None if there is none."""
        from holdfast.composition.stores import LazyThreads

        if self.database_url is None and (self._stores_catalog is None or self._stores_catalog.threads is None):
            return None
        return LazyThreads(self._open_threads)

    async def _open_threads(self) -> "ThreadStore":
        if (own := self._stores_catalog) and own.threads is not None:
            return own.threads
        from holdfast.storage.threads import PostgresThreads

        pool = await self.pool()
        assert pool is not None  # `threads` has checked
        return PostgresThreads(pool)

    async def record(self) -> "OpenRecord":
        """The permanent record, with the operations that only PostgreSQL has.

        Raises:
            SettingsError: There is none.
        """
        from holdfast.composition.stores import open_record

        stores = await self.stores()
        if stores.threads is None:
            raise SettingsError("there is no permanent record to prune: set DATABASE_URL to the one that workers have")
        return open_record(stores.threads, await self.pool(), stores.artifacts, catalog=self._given.catalog)

    async def evidence(self) -> "Evidence":
        """The effect ledger and the artifacts, as far as this process has them."""
        from holdfast.composition.stores import collect_evidence

        stores = await self.stores()
        return collect_evidence(stores.threads, await self.pool(), stores.artifacts)

    async def seal(self) -> "SignRecord":
        """Signs checkpoints of a thread's record, to the anchors that the settings name.

        Raises:
            SettingsError: An anchor or the node's key cannot be used.
        """
        from holdfast.composition.sealing import open_sealer

        if self._seal is None:
            sealing = open_sealer(self.settings, namespace=(await self.client()).namespace, say=self._say)
            self._seal = await self.cleanup.enter_async_context(sealing)
        return self._seal

    async def endpoints(self) -> "Endpoints":
        """The LLM endpoints that the settings configure.

        Raises:
            SettingsError: A setting is wrong.
        """
        from holdfast.endpoints.endpoints import open_endpoints

        if self._endpoints is None:
            opening = open_endpoints(self._given, dev=self._scripted, say=self._say, script=self._script)
            self._endpoints = await self.cleanup.enter_async_context(opening)
        return self._endpoints

    async def endpoints_for(self, catalog: "Catalog") -> "Endpoints":
        """The LLM endpoints, after a check that they are those of a catalog's agents.

        Raises:
            SettingsError: The LLM of an agent has no endpoint, or a setting is wrong.
        """
        from holdfast.endpoints.endpoints import options_advice, require_endpoints

        endpoints = await self.endpoints()
        require_endpoints(catalog, endpoints, default_llm=self.default_llm)
        if not self._advised:
            self._advised = True
            for line in options_advice(catalog, endpoints, default_llm=self.default_llm):
                self._say(f"Warning    {line}")
        return endpoints

    @property
    def default_llm(self) -> "str | tuple[str, ...]":
        """The LLM of agents that name none, or several in order; `scripted` for the scripted one."""
        return self._given.default_llm

    async def embeddings(self) -> "Embeddings | None":
        """The embedding model; None to find memories by words alone."""
        from holdfast.endpoints.embeddings import Embeddings

        model = self._given.embedding_model
        if model is None or (self._given.scripted and not self._scripted):
            return None
        return Embeddings((await self.endpoints()).default(), model, self._given.embedding_dimensions)
