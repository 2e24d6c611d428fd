"""Import a portable file: put its log, artifacts and ledger rows into the stores, and start the thread's workflow.

1. All of the file is checked first, and whether the thread may continue here. A refused import has changed nothing.
2. Then come the artifacts, the ledger's rows, the logs of sub-agents from the lowest up, and last the log, all of it or
   none: a log is never there without what it refers to. What is there already is found again, so a killed import is
   repeated with the same command.
3. The run refuses to begin with another log than this one (`holdfast.core.run.inputs.import_run`), so nothing can come
   between.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from psycopg_pool import AsyncConnectionPool
from temporalio.client import WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast.client.connect import seals_of
from holdfast.client.reading.runs import ENDED
from holdfast.client.start_options import check_own_id, details, issued
from holdfast.client.threads import Threads
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW, RunInput
from holdfast.core.run.inputs.import_run import refuse_state
from holdfast.core.run.state.features import MOVES
from holdfast.core.stores import ArtifactStore, ThreadStore
from holdfast.errors import (
    FleetKeyMissing,
    HistoryUnreadable,
    ImportRefused,
    SettingsError,
    ThreadExists,
    ThreadNotFound,
)
from holdfast.portable.content import Content, artifact_of, content_of, opened_for_import
from holdfast.portable.destination import refuse_destination
from holdfast.portable.format.manifest import Imported
from holdfast.portable.format.members import artifact_member
from holdfast.portable.importing_children import fitting, put_child
from holdfast.portable.reader import PortableFile
from holdfast.storage.imported_effects import conflicting, put_effects

_SUBAGENT = re.compile(r"(.+)\.[1-9]\d*", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Place:
    """The stores of this place."""

    threads: ThreadStore
    artifacts: ArtifactStore
    pool: AsyncConnectionPool
    """Connections to the database that has the ledger."""

    @classmethod
    def of(
        cls, threads: ThreadStore | None, artifacts: ArtifactStore | None, pool: AsyncConnectionPool | None
    ) -> "Place":
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
    place: Place,
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
    """Import a thread, which continues here. The same file is imported once: again, it finishes what is left to do.

    Args:
        threads: The namespace's threads.
        path: The portable file.
        place: The stores.
        trusted: People and gateways, whose signatures in the log are checked, and `signers`, one of whom has to have
            signed the file; as for `verify_file`.
        signer: The public key that has to have signed it.
        unproven: Import it although nobody who is named here has signed it: its content is trusted like the web, and
            outcomes that only its ledger has count for nothing.
        workspace: A folder on the worker; None for one of the thread's own.
        fork: Begin a new thread with its events, whose effects ask first; the original may go on elsewhere.
        override_destination: Continue a thread here that was moved to another place.
        id: With `fork`: the new thread's id; None for one that follows from the file.
        by: Who imports it.
        by_proven: The caller has authenticated that person.

    Raises:
        FileUnreadable: There is no such file, or it cannot be opened.
        ImportRefused: It does not verify, nobody who is named here has signed it, or it cannot continue here.
        ThreadExists: There is another thread of that id, or it has gone on here.
        ThreadIdInvalid: No thread can have its id here.
        FleetKeyMissing: An import needs the fleet key.
        ServerUnreachable: The server does not answer. Import it again.
    """
    seals = seals_of(threads.runs.client)
    if not seals:
        raise FleetKeyMissing("an import needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it")
    if id is not None and not fork:
        raise ImportRefused(f"a thread keeps its id: only a fork can be {id!r} (--fork --id). Nothing was imported.")
    with opened_for_import(path) as file:
        content = await content_of(file, trusted=trusted, signer=signer, unproven=unproven)
        if fork:
            return await _fork(threads, file, content, place, id=id, workspace=workspace, by=by, by_proven=by_proven)
        if refused := refuse_state(content.state, thread=content.thread):
            raise ImportRefused(refused)
        if not override_destination:
            await refuse_destination(threads.runs.client, content.state)
        if found := await _imported_before(threads, content):
            return found
        await _refuse_posing(threads, content.thread)
        if which := await conflicting(place.pool, content.thread, content.effects):
            raise ImportRefused(
                f"the ledger here has another outcome of effect {which} than {path}: find out in the effect's own "
                "system which is right, and who exported the file"
            )
        children = await fitting(threads, file, content.children, place.pool)
        for child in reversed(children):
            await _put_artifacts(file, place.artifacts, child.thread, child.artifacts)
            await put_child(file, child, place.threads, place.pool, seals=seals)
        await _put_artifacts(file, place.artifacts, content.thread, content.artifacts)
    await put_effects(place.pool, content.thread, content.effects, seals=seals)
    await place.threads.append(content.thread, 0, content.lines)
    return await _start(threads, content, workspace=workspace, by=by, by_proven=by_proven)


async def _fork(
    threads: Threads,
    file: PortableFile,
    content: Content,
    place: Place,
    *,
    id: str | None,
    workspace: str | None,
    by: str,
    by_proven: bool,
) -> Imported:
    """Begin a new thread with the events of a file, under its own id. The ledger has nothing of the original."""
    point, original = content.point, content.thread
    name = check_own_id(id or f"{original[:180]}-fork-{point.manifest[:6]}".strip())
    if name == original:
        raise ThreadExists(f"a thread cannot be forked from itself: choose another id than {name!r}")
    given = RunInput(
        by=by,
        by_proven=by_proven,
        agent=content.state.spec.name if content.state.spec else None,
        workspace=workspace,
        fork=ForkPoint(thread=original, position=point.position, head=point.head),
        imported=point,
        features=MOVES,
    )
    with suppress(ThreadNotFound):
        found = await threads.reader.find(name, loops=True)
        if found and await _given(threads, found) == point:
            return Imported(name, found.run_id, len(content.lines), point.head, point.signer, False)
        if found or not await _is_part_of(place.threads, name, content.lines):
            raise ThreadExists(f"thread {name!r} exists here, and is not this fork: choose another id with --id")
    await _refuse_posing(threads, name)
    await _put_artifacts(file, place.artifacts, name, content.artifacts)
    await place.threads.append(name, 0, content.lines)
    run_id = await _begin(threads, name, given, task=f"Fork of {original}, from a file")
    return Imported(name, run_id, len(content.lines), point.head, point.signer, True)


async def _is_part_of(store: ThreadStore, thread: str, lines: Sequence[bytes]) -> bool:
    """Whether the record of a thread has nothing but the first of these lines, as an import that was killed leaves."""
    position = 0
    while page := await store.read(thread, position):
        if page != list(lines[position : position + len(page)]):
            return False
        position += len(page)
    return True


async def _imported_before(threads: Threads, content: Content) -> Imported | None:
    """Return the import of the same file, if there is one; None where the thread may be imported.

    Raises:
        ThreadExists: The thread has other events here, or is open.
    """
    thread, point = content.thread, content.point
    try:
        found = await threads.reader.find(thread, loops=True)
    except ThreadNotFound:
        return None
    if found and found.workflow_type == LOOP_WORKFLOW:
        raise ThreadExists(f"{thread!r} is a loop here")
    position, following = 0, b""
    async for line in threads.reader.lines(thread, 0, found=found, note=None, use_worker=False):
        if position == len(content.lines):
            following = line
            break
        if line != content.lines[position]:
            raise ThreadExists(
                f"there is another thread {thread!r} here: event {position} differs. Nothing was imported."
            )
        position += 1
    begun = json.loads(following) if following else {}
    if begun.get("type") == "run_imported" and begun["point"]["manifest"] == point.manifest:
        return _done(content, run_id=begun["run_id"], new=False)
    if following:
        raise ThreadExists(
            f"thread {thread!r} has gone on here after event {point.position}, where the file ends: it is older than "
            "what is here. Nothing was imported."
        )
    if found and found.status not in ENDED:
        if (await _given(threads, found)) == point:
            return _done(content, run_id=found.run_id, new=False)
        raise ThreadExists(f"thread {thread!r} is open here. Nothing was imported.")
    return None


async def _given(threads: Threads, found: WorkflowExecutionDescription) -> ImportPoint | None:
    try:
        return (await threads.reader.history(found)).run_input.imported
    except HistoryUnreadable:
        return None


async def _refuse_posing(threads: Threads, thread: str) -> None:
    """Refuse an id that a sub-agent of another thread has here, or would have.

    Raises:
        ImportRefused: There is that other thread.
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
        ServerUnreachable: The server does not answer.
    """
    thread = content.thread
    given = RunInput(
        by=by, by_proven=by_proven, workspace=workspace, resume=True, imported=content.point, features=MOVES
    )
    try:
        run_id = await _begin(threads, thread, given, task=content.state.task)
    except ThreadExists:
        if found := await _imported_before(threads, content):
            return found
        raise
    return _done(content, run_id=run_id, new=True)


async def _begin(threads: Threads, thread: str, given: RunInput, *, task: str) -> str:
    """Start a run; return its id.

    Raises:
        ThreadExists: A run of the thread is open.
        ServerUnreachable: The server does not answer.
    """
    try:
        run = await threads.runs.client.start_workflow(
            WORKFLOW,
            issued(given),
            id=thread,
            task_queue=threads.task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            memo=memo(task),
            static_summary=summary(task),
            static_details=details(task, agent=given.agent, thread=thread, workspace=given.workspace, continued=True),
            rpc_timeout=timedelta(seconds=10),
        )
    except WorkflowAlreadyStartedError:
        raise ThreadExists(f"thread {thread!r} is open here") from None
    except RPCError as error:
        raise threads.runs.translate_error(error, thread) from error
    return run.first_execution_run_id or ""


def _done(content: Content, *, run_id: str, new: bool) -> Imported:
    point = content.point
    events, below = len(content.lines), len(content.children)
    return Imported(content.thread, run_id, events, point.head, point.signer, new, subagents=below)
