"""The client for programs: connect, start and list threads."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from temporalio.client import Client as TemporalClient

from holdfast.api.dialogue import FindAnchors, OpenEvidence, named
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
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.run.state.state import Status
from holdfast.core.run.views.diff import Comparison
from holdfast.errors import SettingsError
from holdfast.portable.format.manifest import Imported


class Client:
    """Starts threads and finds them. `Client.connect` makes it.

        async with Client.connect() as client:
            thread = await client.start("Publish 1.2", thread="rel-1.2", by="alice")
            print((await thread.result()).text)

    It may be used by any number of tasks at once.
    """

    def __init__(
        self,
        threads: Threads,
        *,
        by: str = "",
        key: Path | None = None,
        evidence: OpenEvidence | None = None,
        parts: Components | None = None,
        anchors: FindAnchors | None = None,
    ) -> None:
        self._threads = threads
        self._by = by
        self._key = key
        self._evidence = evidence
        self._parts = parts
        self._anchors = anchors
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
        """Connect to Temporal for a block. What is not given comes from the environment, not from files of a folder.

        Args:
            temporal: A client that the program has already: its connection, namespace and interceptors are used, but
                not its data converter. None to connect as Temporal's own clients do (`TEMPORAL_*`, its configuration
                file), or else to the embedded stack under `home`.
            address: `TEMPORAL_ADDRESS`: `host:port`.
            namespace: `TEMPORAL_NAMESPACE`.
            api_key: `TEMPORAL_API_KEY`.
            task_queue: `HOLDFAST_TASK_QUEUE`: where the workers of new runs are.
            fleet_keys: `HOLDFAST_FLEET_KEYS`, as the workers have them. Without one, a run must have a new thread and
                a folder of its own, and `by` is only a claim.
            encryption_keys: `HOLDFAST_ENCRYPTION_KEYS`, as the workers have them.
            database_url: `DATABASE_URL`: the permanent record, for what Temporal no longer has.
            home: `HOLDFAST_HOME`: the state folder.
            by: `HOLDFAST_BY`: who starts, decides and speaks, unless a call says otherwise.
            key: `HOLDFAST_KEY`: the file of the private key that signs decisions and messages.
            answer_seconds: `HOLDFAST_ANSWER_SECONDS`: how long a worker may take to answer.

        Raises:
            SettingsError: A setting cannot be used.
            ServerUnreachable: No server answers.
        """
        given = {
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
        environ = {**os.environ, **{name: str(value) for name, value in given.items() if value is not None}}
        settings = Settings.from_env(environ, root=base_folder())
        async with AsyncExitStack() as cleanup:
            parts = Components(settings, environ, cleanup=cleanup, connected=temporal)
            record = parts.threads()
            if parts.database_url and not find_spec("psycopg_pool"):
                raise SettingsError(f"the permanent record needs PostgreSQL's client: {setup_command('cli')}")
            threads = Threads(
                await parts.client(),
                task_queue=settings.task_queue,
                answer_within=settings.answer_seconds,
                record=record,
            )
            yield cls(
                threads,
                by=settings.by or "",
                key=settings.key,
                evidence=parts.evidence,
                parts=parts,
                anchors=partial(_anchors_here, settings),
            )

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
        """Continue a thread here that was moved away elsewhere, as `holdfast import` does. Repeat it where it fails.

        Args:
            path: The file, from `Thread.move`; or from `Thread.export`, of a closed thread.
            signer: The public key that has to have signed it.
            keys: A file with `signers`, one of whom has to have signed it, and with people and gateways.
            unproven: Import it although nobody who is named here has signed it.
            workspace: A folder on the worker; None for one of the thread's own.
            fork: Begin a new thread with its events, whose effects ask first.
            override_destination: Continue a thread here that was moved to another place, and is not imported there.
            id: With `fork`: the new thread's id; None for one that follows from the file.
            by: Who imports it; None for the client's `by`.

        Raises:
            ImportRefused: It does not verify, nobody who is named has signed it, or it cannot continue here. A refused
                import has changed nothing.
            ThreadExists: There is another thread of that id, or it has gone on here.
            FileUnreadable: There is no such file.
            FleetKeyMissing: An import needs the fleet key.
            SettingsError: There is no database, or a package is missing.
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
            by=named(by or self._by),
        )

    async def place(self) -> str:
        """Return the id of this place, for `Thread.move(to=…)` elsewhere.

        Raises:
            ServerUnreachable: No server answers.
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
    ) -> Thread:
        """Start a thread. With an id, that happens once: the same start again returns the thread that there is.

        The start is durable when this returns; the next free worker runs it. It is the same start if the task and the
        agent are the same; the state of the thread does not matter.

        Args:
            task: What the agent is to do: text, or content blocks.
            agent: The agent's name; None for the catalog's first.
            thread: The thread id, such as that of an order or a ticket; None for a new one.
            workspace: A folder on the worker's machine; None for one of the thread's own.
            idle_limit: Seconds that the run stays open for messages after the agent has answered; None for the agent's
                own limit.
            by: Who gives the task; None for the client's `by`.
            by_proven: This program has authenticated the person that it names in `by`. Otherwise the run cannot use
                their memories. The client's own `by` counts as authenticated.
            budget: What the run may use of steps, tokens, money and time, as far as the agent's own budget allows it;
                None for that one.

        Raises:
            TaskDiffers: There is a thread of that id, with another task or for another agent. `Thread.say` continues
                it.
            TaskInvalid: The task is empty, too long, or neither text nor content blocks.
            ThreadIdInvalid: The thread id cannot be used.
            FleetKeyMissing: Without a fleet key, a run must have a folder of its own.
            ServerUnreachable: The server does not answer. The start may have reached it: give an id, and start again.
        """
        options = StartOptions(
            agent=agent,
            workspace=None if workspace is None else str(workspace),
            idle_limit=idle_limit,
            by=named(self._by if by is None else by),
            by_proven=by_proven or by is None,
            budget=budget,
        )
        if thread is None:
            return self.thread((await self._threads.start(task, options=options)).thread)
        await start_once(self._threads, task, thread, options)
        return self.thread(thread)

    def thread(self, thread: str) -> Thread:
        """Return a thread by its id, without asking whether there is one.

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
            anchors=self._anchors,
        )

    async def threads(self, *, status: Status | None = None, limit: int = 100) -> list[ThreadSummary]:
        """List threads, newest first.

        Args:
            status: Only those with this status; None for all.
            limit: How many at most.

        Raises:
            ServerUnreachable: The server does not answer.
        """
        found = await list_threads(self._threads, status=status, limit=limit, loops=False)
        return [ThreadSummary.model_validate(each) for each in found]

    async def diff(
        self, first: str, second: str, *, first_at: int | None = None, second_at: int | None = None
    ) -> Comparison:
        """Compare two threads, or one at two events: messages, calls, verdicts and token counts after the first
        difference.

        Args:
            first: A thread's id.
            second: A thread's id; it may be the same.
            first_at: The position of the last event of `first` to compare; None for all.
            second_at: The same of `second`.

        Raises:
            ThreadNotFound: There is no such thread.
            PositionInvalid: There is no such event.
            EventsMissing: Some of the events can no longer be read.
        """
        places = (check_thread_id(first), first_at), (check_thread_id(second), second_at)
        return await compare_threads(self._threads, *places)

    async def publish(
        self, event: str, data: dict[str, Any] | None = None, *, id: str = "", by: str | None = None
    ) -> Publication:
        """Send an event to every run that waits for it.

        It takes about two seconds, and longer for very many runs: it is sent as fast as workers take it.

        A run that begins to wait later has missed it. `Thread.wake` sends an event to one thread, which keeps it.

        Args:
            event: The event's name.
            data: What happened: JSON, at most 16,384 bytes. Runs read it as a claim that anybody can make.
            id: The event's id, of up to 100 visible ASCII characters: the same id reaches no run twice. Empty for a new
                one.
            by: Who publishes it; None for the client's `by`.

        Raises:
            Refused: Its name, id or data cannot be used.
            ServerUnreachable: The server does not answer. Publish it again with the same id.
        """
        return await publish(self._threads, event, by=named(self._by if by is None else by), data=data, id=id)


def _anchors_here(settings: Settings) -> Sequence[Path]:
    from holdfast.audit.anchors.setting import anchor_folders  # slow

    return anchor_folders(settings)
