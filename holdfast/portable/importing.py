"""Import a portable file: put its log, artifacts and ledger rows into the stores, and start the thread's workflow.

1. The whole file is checked first, and whether the thread may continue here. A rejected import changes nothing.
2. Then come the artifacts, the ledger's rows, the logs of sub-agents from the lowest up, and last the log, all of it or
   none: a log is never stored before the data that it refers to. Steps that are already done are skipped, so a killed
   import is repeated with the same command.
3. The run refuses to begin with any other log (`holdfast.core.run.inputs.import_run`), so no event can come between.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg_pool import AsyncConnectionPool
from temporalio.client import WorkflowExecutionDescription
from temporalio.exceptions import WorkflowAlreadyStartedError

from holdfast.client.reading.runs import ENDED
from holdfast.client.start_options import check_own_id, details, issued
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Policy
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, RunInput
from holdfast.core.run.inputs.import_run import refuse_state
from holdfast.core.run.state.features import KEEPS_TRACE, MOVES
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import (
    FleetKeyMissing,
    HistoryUnreadable,
    ImportRefused,
    SettingsError,
    ThreadExists,
    ThreadNotFound,
)
from holdfast.portable.content import Content, artifact_of, content_of, open_for_import
from holdfast.portable.destination import refuse_destination
from holdfast.portable.format.manifest import Imported
from holdfast.portable.format.members import artifact_member
from holdfast.portable.importing_children import importable_children, put_child
from holdfast.portable.reader import PortableFile
from holdfast.storage.imported_effects import conflicting, put_effects

_SUBAGENT = re.compile(r"(.+)\.[1-9]\d*", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class ImportStores:
    """The stores that an import writes to."""

    threads: ThreadStore
    artifacts: ArtifactStore
    pool: AsyncConnectionPool
    """Connections to the database that has the ledger."""

    @classmethod
    def of(
        cls, threads: ThreadStore | None, artifacts: ArtifactStore | None, pool: AsyncConnectionPool | None
    ) -> "ImportStores":
        """Return the stores, all of which an import needs.

        Raises:
            SettingsError: There is no database.
        """
        if threads is None or artifacts is None or pool is None:
            raise SettingsError("an import needs the database: set DATABASE_URL to the one that the workers have")
        return cls(threads, artifacts, pool)


async def import_thread(
    threads: Threads,
    path: Path,
    stores: ImportStores,
    *,
    trusted: Policy | None = None,
    signer: str | None = None,
    unproven: bool = False,
    workspace: str | None = None,
    fork: bool = False,
    override_destination: bool = False,
    id: str | None = None,
    by: str = "",
    by_proven: bool = True,
) -> Imported:
    """Import a thread, and continue it here. Importing the same file again completes an interrupted import.

    Args:
        threads: The namespace's threads.
        path: The portable file.
        stores: The stores.
        trusted: People and gateways, whose signatures in the log are checked, and `signers`, one of whom must have
            signed the file; as for `verify_file`.
        signer: The public key that must have signed the file.
        unproven: Import the file without a trusted signature: its content gets the trust level of the web, and
            outcomes that only its ledger has do not count.
        workspace: A folder on the worker; None for the thread's default folder.
        fork: Begin a new thread with its events, whose effects require approval; the original may continue elsewhere.
        override_destination: Continue a thread here that was moved to another cluster.
        id: With `fork`: the new thread's id; None for one derived from the file.
        by: The person who imports it.
        by_proven: The caller has authenticated that person.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        ImportRefused: The file does not verify, has no trusted signature, or the thread cannot continue here.
        ThreadExists: There is another thread with that id, or the thread has continued here.
        ThreadIdInvalid: No thread can have this id here.
        FleetKeyMissing: An import needs the fleet key.
        ServerUnreachable: The server is unreachable. Import the file again.
    """
    seals = seals_in(threads.runs.client.data_converter)
    if not seals:
        raise FleetKeyMissing("an import needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it")
    if id is not None and not fork:
        raise ImportRefused(f"a thread keeps its id: only a fork can be {id!r} (--fork --id). Nothing was imported.")
    with open_for_import(path) as file:
        content = await content_of(file, trusted=trusted, signer=signer, unproven=unproven)
        if fork:
            return await _fork(threads, file, content, stores, id=id, workspace=workspace, by=by, by_proven=by_proven)
        if reason := refuse_state(content.state, thread=content.thread):
            raise ImportRefused(reason)
        if not override_destination:
            await refuse_destination(threads.runs.client, content.state)
        if earlier := await _imported_before(threads, content):
            return earlier
        await _reject_subagent_id(threads, content.thread)
        if effect := await conflicting(stores.pool, content.thread, content.effects):
            raise ImportRefused(
                f"the ledger here has another outcome of effect {effect} than {path}: find out in the effect's own "
                "system which is right, and who exported the file"
            )
        children = await importable_children(threads, file, content.children, stores.pool)
        for child in reversed(children):
            await _put_artifacts(file, stores.artifacts, child.thread, child.artifacts)
            await put_child(file, child, stores.threads, stores.pool, seals=seals)
        await _put_artifacts(file, stores.artifacts, content.thread, content.artifacts)
    await put_effects(stores.pool, content.thread, content.effects, seals=seals)
    await stores.threads.append(content.thread, 0, content.lines)
    return await _start(threads, content, workspace=workspace, by=by, by_proven=by_proven)


async def _fork(
    threads: Threads,
    file: PortableFile,
    content: Content,
    stores: ImportStores,
    *,
    id: str | None,
    workspace: str | None,
    by: str,
    by_proven: bool,
) -> Imported:
    """Begin a new thread with the events of a file, under a new id. The ledger gets none of the original's effects."""
    point, original = content.point, content.thread
    name = check_own_id(id or f"{original[:180]}-fork-{point.manifest[:6]}".strip())
    if name == original:
        raise ThreadExists(f"a thread cannot be forked from itself: choose another id than {name!r}")
    start = RunInput(
        by=by,
        by_proven=by_proven,
        agent=content.state.spec.name if content.state.spec else None,
        workspace=workspace,
        fork=ForkPoint(thread=original, position=point.position, head=point.head),
        imported=point,
        features=max(MOVES, content.state.features),
    )
    with suppress(ThreadNotFound):
        execution = await threads.reader.find(name, loops=True)
        if execution and await _import_point(threads, execution) == point:
            return Imported(name, execution.run_id, len(content.lines), point.head, point.signer, False)
        if execution or not await _is_part_of(stores.threads, name, content.lines):
            raise ThreadExists(f"thread {name!r} exists here, and is not this fork: choose another id with --id")
    await _reject_subagent_id(threads, name)
    await _put_artifacts(file, stores.artifacts, name, content.artifacts)
    await stores.threads.append(name, 0, content.lines)
    run_id = await _begin(threads, name, start, task=f"Fork of {original}, from a file")
    return Imported(name, run_id, len(content.lines), point.head, point.signer, True)


async def _is_part_of(store: ThreadStore, thread: str, lines: Sequence[bytes]) -> bool:
    """Whether the record of a thread has only the first of these lines, as after a killed import."""
    position = 0
    while page := await store.read(thread, position):
        if page != list(lines[position : position + len(page)]):
            return False
        position += len(page)
    return True


async def _imported_before(threads: Threads, content: Content) -> Imported | None:
    """Return the earlier import of the same file, if there is one; None if the thread may be imported.

    Raises:
        ThreadExists: The thread has other events here, or is open.
    """
    thread, point = content.thread, content.point
    try:
        execution = await threads.reader.find(thread, loops=True)
    except ThreadNotFound:
        return None
    if execution and execution.workflow_type == LOOP_WORKFLOW:
        raise ThreadExists(f"{thread!r} is a loop here")
    position, following = 0, b""
    async for line in threads.reader.lines(thread, 0, found=execution, note=None, use_worker=False):
        if position == len(content.lines):
            following = line
            break
        if line != content.lines[position]:
            raise ThreadExists(
                f"there is another thread {thread!r} here: event {position} differs. Nothing was imported."
            )
        position += 1
    first = json.loads(following) if following else {}
    if first.get("type") == "run_imported" and first["point"]["manifest"] == point.manifest:
        return _result(content, run_id=first["run_id"], new=False)
    if following:
        raise ThreadExists(
            f"thread {thread!r} has gone on here after event {point.position}, where the file ends: it is older than "
            "what is here. Nothing was imported."
        )
    if execution and execution.status not in ENDED:
        if (await _import_point(threads, execution)) == point:
            return _result(content, run_id=execution.run_id, new=False)
        raise ThreadExists(f"thread {thread!r} is open here. Nothing was imported.")
    return None


async def _import_point(threads: Threads, execution: WorkflowExecutionDescription) -> ImportPoint | None:
    try:
        return (await threads.reader.history(execution)).run_input.imported
    except HistoryUnreadable:
        return None


async def _reject_subagent_id(threads: Threads, thread: str) -> None:
    """Reject an id that a sub-agent of another thread has or could get here.

    Raises:
        ImportRefused: That other thread exists.
    """
    above = thread
    while match := _SUBAGENT.fullmatch(above):
        above = match[1]
        with suppress(ThreadNotFound):
            await threads.reader.find(above, loops=True)
            raise ImportRefused(f"{thread!r} is the id of a sub-agent under {above!r}, which is a thread here")


async def _put_artifacts(file: PortableFile, store: ArtifactStore, thread: str, addresses: Iterable[str]) -> None:
    for name in map(artifact_member, addresses):
        await store.put(await asyncio.to_thread(artifact_of, file, name), thread=thread)


async def _start(threads: Threads, content: Content, *, workspace: str | None, by: str, by_proven: bool) -> Imported:
    """Start the run that continues the thread, once.

    Raises:
        ThreadExists: A run of the thread is open.
        ServerUnreachable: The server is unreachable.
    """
    thread = content.thread
    start = RunInput(
        by=by, by_proven=by_proven, workspace=workspace, resume=True, imported=content.point, features=KEEPS_TRACE
    )
    try:
        run_id = await _begin(threads, thread, start, task=content.state.task)
    except ThreadExists:
        if earlier := await _imported_before(threads, content):
            return earlier
        raise
    return _result(content, run_id=run_id, new=True)


async def _begin(threads: Threads, thread: str, start: RunInput, *, task: str) -> str:
    """Start a run; return its id.

    Raises:
        ThreadExists: A run of the thread is open.
        ServerUnreachable: The server is unreachable.
    """
    shown = details(task, agent=start.agent, thread=thread, workspace=start.workspace, continued=True)
    try:
        return await threads.begin(thread, issued(start), title=task, details=shown)
    except WorkflowAlreadyStartedError:
        raise ThreadExists(f"thread {thread!r} is open here") from None


def _result(content: Content, *, run_id: str, new: bool) -> Imported:
    point = content.point
    events, below = len(content.lines), len(content.children)
    return Imported(content.thread, run_id, events, point.head, point.signer, new, subagents=below)
