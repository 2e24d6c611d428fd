"""The client for programs: connect, start and list threads."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel
from temporalio.client import Client as TemporalClient

from holdfast.api.dialogue import OpenEvidence, checked_name
from holdfast.api.schedules import Schedules
from holdfast.api.thread import Thread
from holdfast.api.views import ThreadSummary
from holdfast.client.idempotent_starts import start_once
from holdfast.client.listing import list_threads
from holdfast.client.publishing import Publication, publish
from holdfast.client.showing import compare_threads
from holdfast.client.start_options import StartOptions, check_thread_id
from holdfast.client.threads import Threads
from holdfast.composition.components import Components
from holdfast.config.programs import base_folder, setup_command
from holdfast.config.settings import Settings, variables
from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.base.trace_context import ambient_traceparent
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.conversation import read_conversation
from holdfast.core.nodes import selected_nodes
from holdfast.core.run.contracts.runs import check_when_blocked
from holdfast.core.run.state.state import Status
from holdfast.core.run.views.diff import Comparison
from holdfast.core.tools.typed_context import context_values
from holdfast.errors import SettingsError
from holdfast.portable.format.manifest import Imported

ClientT = TypeVar("ClientT", bound="Client")


class Client:
    """Starts, finds and lists threads. `Client.connect` creates it.

        async with Client.connect() as client:
            thread = await client.start("Publish 1.2", thread="rel-1.2", by="alice")
            print((await thread.result()).text)

    Any number of tasks may share one client.
    """

    def __init__(
        self,
        threads: Threads,
        *,
        by: str = "",
        key: Path | None = None,
        evidence: OpenEvidence | None = None,
        parts: Components | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._threads = threads
        self._by = by
        self._key = key
        self._evidence = evidence
        self._parts = parts
        self._settings = settings
        self.schedules = Schedules(threads, self._open, by=by)
        """Runs that start by cron or interval."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        temporal: TemporalClient | None = None,
        *,
        address: str | None = None,
        namespace: str | None = None,
        api_key: str | None = None,
        task_queue: str | None = None,
        fleet_keys: str | None = None,
        encryption_keys: str | None = None,
        database_url: str | None = None,
        home: Path | str | None = None,
        by: str | None = None,
        key: Path | str | None = None,
        answer_seconds: float | None = None,
    ) -> AsyncIterator[Self]:
        """Connect to Temporal for a block. Omitted arguments come from the environment, not from project files.

        Args:
            temporal: An existing client: its connection, namespace and interceptors are used, but not its data
                converter. None to connect as Temporal's own clients do (`TEMPORAL_*`, its configuration file), or else
                to the embedded stack under `home`.
            address: `TEMPORAL_ADDRESS`: `host:port`.
            namespace: `TEMPORAL_NAMESPACE`.
            api_key: `TEMPORAL_API_KEY`.
            task_queue: `HOLDFAST_TASK_QUEUE`: the task queue that the workers of new runs poll.
            fleet_keys: `HOLDFAST_FLEET_KEYS`, the same as the workers have. Without one, a run must have a new thread
                and its own folder, and `by` is unauthenticated.
            encryption_keys: `HOLDFAST_ENCRYPTION_KEYS`, the same as the workers have.
            database_url: `DATABASE_URL`: the permanent record, for events that Temporal has deleted.
            home: `HOLDFAST_HOME`: the state folder.
            by: `HOLDFAST_BY`: the person who starts runs, decides and sends messages, unless a call names another.
            key: `HOLDFAST_KEY`: the file of the private key that signs decisions and messages.
            answer_seconds: `HOLDFAST_ANSWER_SECONDS`: the time a worker may take to answer, in seconds.

        Raises:
            SettingsError: A setting cannot be used.
            ServerUnreachable: No server responds.
        """
        arguments = {
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_NAMESPACE": namespace,
            "TEMPORAL_API_KEY": api_key,
            **{
                variables()[name]: value
                for name, value in {
                    "task_queue": task_queue,
                    "fleet_keys": fleet_keys,
                    "encryption_keys": encryption_keys,
                    "database_url": database_url,
                    "home": home,
                    "by": by,
                    "key": key,
                    "answer_seconds": answer_seconds,
                }.items()
            },
        }
        environ = {**os.environ, **{name: str(value) for name, value in arguments.items() if value is not None}}
        settings = Settings.from_env(environ, root=base_folder())
        async with AsyncExitStack() as cleanup:
            parts = Components(settings, environ, cleanup=cleanup, connected=temporal)
            yield await make_client(cls, parts, settings)

    @property
    def task_queue(self) -> str:
        """The task queue that the workers of new runs poll."""
        return self._threads.task_queue

    async def import_thread(
        self,
        path: Path | str,
        *,
        signer: str | None = None,
        keys: Path | str | None = None,
        unproven: bool = False,
        workspace: str | Path | None = None,
        fork: bool = False,
        override_destination: bool = False,
        id: str | None = None,
        by: str | None = None,
    ) -> Imported:
        """Resume a thread that was moved from another namespace, as `holdfast import` does. If it fails, repeat it.

        Args:
            path: The file from `Thread.move`, or from `Thread.export` of a closed thread.
            signer: The public key that must have signed the file.
            keys: A file with `signers`, one of whom must have signed the file, and with people and gateways.
            unproven: Import the file even though none of these signers has signed it.
            workspace: A folder on the worker; None for the thread's own folder.
            fork: Begin a new thread with the file's events; its effects require approval.
            override_destination: Accept a thread that was moved to another namespace, and was not imported there.
            id: With `fork`: the new thread's id; None to derive it from the file.
            by: The person who imports it; None for the client's `by`.

        Raises:
            ImportRefused: The file does not verify, no expected signer has signed it, or it cannot continue here.
                Nothing was changed.
            ThreadExists: Another thread has this id, or this thread already continued here.
            FileUnreadable: The file does not exist, or cannot be opened.
            FleetKeyMissing: An import needs the fleet key.
            SettingsError: No database is set, or a package is missing.
        """
        if self._parts is None or not (find_spec("psycopg") and find_spec("securesystemslib")):
            raise SettingsError(f"an import needs packages of the command line: {setup_command('cli')}")
        from holdfast.config.policy_file import load_policy
        from holdfast.portable.importing import ImportStores, import_thread

        stores = await self._parts.stores()
        return await import_thread(
            self._threads,
            Path(path),
            ImportStores.of(stores.threads, stores.artifacts, await self._parts.pool()),
            trusted=load_policy(Path(keys)) if keys else None,
            signer=signer,
            unproven=unproven,
            workspace=str(workspace) if workspace else None,
            fork=fork,
            override_destination=override_destination,
            id=id,
            by=checked_name(by or self._by),
        )

    async def place(self) -> str:
        """Return the id of this Temporal namespace: the `to` of a `Thread.move` that sends a thread here.

        Raises:
            ServerUnreachable: No server responds.
        """
        from holdfast.portable.destination import namespace_id

        return await namespace_id(self._threads.runs.client)

    async def start(
        self,
        task: Content,
        *,
        agent: str | None = None,
        thread: str | None = None,
        workspace: str | Path | None = None,
        idle_limit: float | None = None,
        by: str | None = None,
        by_proven: bool = False,
        budget: Budget | None = None,
        context: BaseModel | Mapping[str, object] | None = None,
        unattended: bool = False,
        when_blocked: WhenBlocked | None = None,
        nodes: Sequence[str] = (),
        conversation: Sequence[BaseModel | Mapping[str, object]] = (),
        traceparent: str | None = None,
    ) -> Thread:
        """Start a thread. With a thread id, it starts at most once: repeating the start returns the existing thread.

        The start is durable when this returns; the next free worker runs it. Two starts are the same if the task, the
        agent, the context, the nodes and the conversation are the same; the state of the thread does not matter.

        Args:
            task: The task for the agent: text, or content blocks.
            agent: The agent's name; None for the catalog's first.
            thread: The thread id, such as an order or ticket number; None for a new id.
            workspace: A folder on the worker's machine; None for the thread's own folder.
            idle_limit: Seconds that the run stays open for messages after the agent has answered; None for the agent's
                own limit.
            by: The person who gives the task; None for the client's `by`.
            by_proven: Whether this program has authenticated the person in `by`. Otherwise the run cannot use that
                person's memories. The client's own `by` counts as authenticated.
            budget: The steps, tokens, money and time that the run may use, within the agent's own budget; None for the
                agent's budget.
            context: The run's typed context: an instance of the model in `Agent(context=…)`, or its fields as JSON. The
                worker validates it. None for no context.
            unattended: Whether the run fails instead of waiting for a person: `when_blocked="fail"`.
            when_blocked: What the run does if it cannot continue without a person. `fail`: it and its sub-agents fail,
                and the `cause` of `RunFailed` is `ApprovalRequired`, `StepLimit`, `LLMRejected`, … Only effects whose
                outcome is unknown are kept for a person. `wait`: it waits. None for the agent's own.
            nodes: The nodes that may execute the run and its sub-agents, by name (`berlin-1`), label (`region=eu`) or
                key (`key:BASE64`); any of them is enough, and commas join what one node must have. Within those of the
                agent. Empty for the agent's own.
            conversation: A conversation from elsewhere, for the LLM to read as a claim: at most 200 messages and
                100,000 bytes, as in Chat Completions or from `Thread.messages`. Its calls are only text, nothing in it
                counts as approved, and the run has the trust level `web`. Empty for none.
            traceparent: The span to which the run's traces link, as a W3C `traceparent`; a malformed one counts as
                none. None for OpenTelemetry's current span, if the program uses that; empty for none.

        Raises:
            TaskDiffers: A thread with this id has another task, agent, context or conversation, or other nodes.
                `Thread.say` continues it.
            ContextInvalid: The context is no such instance, too large, or holds the value of a secret.
            TaskInvalid: The task is empty, too long, or neither text nor content blocks; or the conversation is too
                large, or no list of messages.
            ThreadIdInvalid: The thread id cannot be used.
            FleetKeyMissing: Without a fleet key, a run must have its own folder, no context and no conversation.
            SettingsError: `unattended` contradicts `when_blocked`.
            ServerUnreachable: The server does not respond. It may have received the start: pass an id, and start again.
        """
        options = StartOptions(
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            idle_limit=idle_limit,
            by=checked_name(self._by if by is None else by),
            by_proven=by_proven or by is None,
            budget=budget,
            context=None if context is None else context_values(context),
            when_blocked=check_when_blocked(when_blocked, unattended=unattended)
            if when_blocked or unattended
            else None,
            nodes=selected_nodes(nodes) if nodes else (),
            conversation=read_conversation(conversation) if conversation else (),
            traceparent=ambient_traceparent() if traceparent is None else traceparent,
        )
        if thread is None:
            return self.thread((await self._threads.start(task, options=options)).thread)
        await start_once(self._threads, task, thread, options)
        return self.thread(thread)

    def thread(self, thread: str) -> Thread:
        """Return a thread by its id, without checking that it exists.

        Raises:
            ThreadIdInvalid: The text cannot be a thread id.
        """
        return self._open(check_thread_id(thread))

    def _open(self, thread: str) -> Thread:
        return Thread(
            thread,
            threads=self._threads,
            by=self._by,
            key=self._key,
            evidence=self._evidence,
            settings=self._settings,
            streams=self._parts.hub if self._parts else None,
        )

    async def threads(self, *, status: Status | None = None, limit: int = 100) -> list[ThreadSummary]:
        """List threads, newest first.

        Args:
            status: List only threads with this status; None for all.
            limit: The maximum number of threads.

        Raises:
            ServerUnreachable: The server does not respond.
        """
        summaries = await list_threads(self._threads, status=status, limit=limit, loops=False)
        return [ThreadSummary.model_validate(each) for each in summaries]

    async def diff(
        self, first: str, second: str, *, first_at: int | None = None, second_at: int | None = None
    ) -> Comparison:
        """Compare two threads, or one thread at two positions, from the first difference on.

        The comparison covers messages, calls, verdicts and token counts.

        Args:
            first: The id of a thread.
            second: The id of a thread; it may be the same one.
            first_at: The position of the last event of `first` to compare; None for all.
            second_at: The position of the last event of `second` to compare; None for all.

        Raises:
            ThreadNotFound: There is no such thread.
            PositionInvalid: There is no such event.
            EventsMissing: Some of the events can no longer be read.
        """
        sides = (check_thread_id(first), first_at), (check_thread_id(second), second_at)
        return await compare_threads(self._threads, *sides)

    async def publish(
        self, event: str, data: dict[str, Any] | None = None, *, id: str = "", by: str | None = None
    ) -> Publication:
        """Send an event to every run that waits for it.

        It takes about two seconds, and longer for many runs: delivery is as fast as workers accept it.

        A run that begins to wait later misses the event. `Thread.wake` sends an event to one thread, which buffers it.

        Args:
            event: The event's name.
            data: The event's data: JSON, at most 16,384 bytes. Runs treat it as untrusted: anybody can send it.
            id: The event's id, of up to 100 visible ASCII characters. A run receives each id at most once. Empty for a
                new id.
            by: The person who publishes it; None for the client's `by`.

        Raises:
            Refused: The name, id or data cannot be used.
            ServerUnreachable: The server does not respond. Publish the event again with the same id.
        """
        return await publish(self._threads, event, by=checked_name(self._by if by is None else by), data=data, id=id)


async def make_client(kind: type[ClientT], parts: Components, settings: Settings) -> ClientT:
    """Make the client of a process, from the components that it has.

    Raises:
        SettingsError: A package is missing.
        ServerUnreachable: No server responds.
    """
    record = parts.threads()
    if parts.database_url and not find_spec("psycopg_pool"):
        raise SettingsError(f"the permanent record needs PostgreSQL's client: {setup_command('cli')}")
    threads = Threads(
        await parts.client(),
        task_queue=settings.task_queue,
        answer_within=settings.answer_seconds,
        record=record,
    )
    return kind(
        threads,
        by=settings.by or "",
        key=settings.key,
        evidence=parts.evidence,
        parts=parts,
        settings=parts.settings,
    )
