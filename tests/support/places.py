"""Two clusters for tests of migrations: each has a Temporal namespace, a database, a worker and an LLM of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from google.protobuf.duration_pb2 import Duration
from psycopg_pool import AsyncConnectionPool
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import WorkflowHandle

from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect_stack, ensure_search_attributes
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.composition.stores import collect_evidence
from holdfast.config.stack_file import Stack
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.event_log import event_line
from holdfast.core.stores import EffectRow
from holdfast.portable.format.manifest import Imported
from holdfast.portable.importing import Place, import_thread
from holdfast.portable.moving import move_thread
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Script
from tests.support.keeping import new_pool
from tests.support.rig import PATIENCE, Rig, start_rig, status_of

CAROL = encode_key(b"c" * 32)
"""The key that signs the files."""
SIGNER = public_key(CAROL)


@dataclass
class Site:
    """A cluster, and the actions of a person there."""

    rig: Rig
    threads: Threads
    pool: AsyncConnectionPool
    folder: Path

    @property
    def place(self) -> Place:
        """Return the stores."""
        return Place(PostgresThreads(self.pool), PostgresArtifacts(self.pool), self.pool)

    @property
    def evidence(self) -> Evidence:
        """Return ledger and artifacts."""
        return collect_evidence(self.place.threads, self.pool, self.place.artifacts)

    def run(self, thread: str) -> WorkflowHandle[Any, Any]:
        """Return the latest run of a thread."""
        return self.rig.client.get_workflow_handle(thread)

    def path(self) -> Path:
        """Return a name for a new file."""
        return self.folder / f"{uuid4().hex[:8]}.holdfast"

    async def move(self, thread: str, path: Path | None = None, **options: Any) -> Path:
        """Migrate a thread away; return its file."""
        path = path or self.path()
        await move_thread(self.threads, thread, path, by="carol", evidence=self.evidence, private=CAROL, **options)
        return path

    async def bring(self, path: Path, **options: Any) -> Imported:
        """Import a file that the person trusts."""
        arguments = {"signer": SIGNER, "by": "carol", **options}
        return await import_thread(self.threads, path, self.place, **arguments)

    async def lines(self, thread: str) -> list[bytes]:
        """Return the lines in the permanent record."""
        lines: list[bytes] = []
        while page := await self.place.threads.read(thread, len(lines)):
            lines += page
        return lines

    async def log(self, thread: str) -> list[bytes]:
        """Return the lines of a thread, as far as they are recorded."""
        return [event_line(event) for event in await self.threads.recorded_events(thread)]

    async def rows(self, thread: str) -> list[EffectRow]:
        """Return the ledger's rows."""
        return await effects_of(self.pool, thread)

    async def status(self, thread: str, *wanted: str) -> dict[str, Any]:
        """Wait until a thread has one of these statuses; return its state."""
        return await status_of(self.run(thread), *wanted)

    async def verified(self, thread: str) -> Verification:
        """Verify the thread here."""
        return await verify(self.threads, thread, evidence=self.evidence)


@asynccontextmanager
async def site(stack: Stack, catalog: Catalog, script: Script, folder: Path, **options: Any) -> AsyncIterator[Site]:
    """Open a cluster for a block: it shares nothing with another one but the server processes."""
    folder.mkdir()
    name = f"place-{uuid4().hex[:8]}"
    service = (await connect_stack(stack)).workflow_service
    kept = Duration(seconds=86_400)
    await service.register_namespace(RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=kept))
    here = stack.model_copy(update={"namespace": name})
    client = await connect_stack(here)
    await ensure_search_attributes(client)
    async with (
        new_pool(stack.database_url) as (url, pool),
        start_rig(
            client,
            catalog,
            script,
            worker_client=await connect_stack(here),
            database_url=url,
            folder=folder,
            **options,
        ) as rig,
    ):
        threads = Threads(client, task_queue=rig.task_queue, answer_within=PATIENCE, record=PostgresThreads(pool))
        yield Site(rig, threads, pool, folder)
