"""Verbs for backup and retention: backup, restore, forget-thread."""

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import By, Thread, Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import count, visible
from holdfast.errors import RecordUnavailable, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg_pool import AsyncConnectionPool

    from holdfast.core.stores import ArtifactStore
    from holdfast.retention.forget import Report

verbs = Verbs()

_SHOWN = 5
"""The most ids and addresses that a note names."""


@verbs.verb("backup -o /backups/monday", "backup -o /backups/monday --json")
async def backup(
    session: Session,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Created, or holds an earlier backup.")
    ],
) -> int:
    """Back up the record, the ledger, artifacts and memories.

    The database is read as of one moment, while workers continue. A later backup to the same folder reuses its
    artifacts; if it is interrupted, the earlier backup stays as it was. Exit 1 if an artifact is missing or altered.
    """
    url = _database_url(session)
    folder = session.settings.artifacts
    await _check_stores(session)
    from rich.text import Text

    from holdfast.retention.backup import back_up
    from holdfast.retention.restore import check_schema

    with _database_errors(), _file_errors(output):
        await check_schema(url)
        completed = await back_up(url, output.expanduser(), artifacts=folder, report=session.output.note)
    manifest = completed.manifest
    missing = manifest.missing
    result = {**manifest.counts, "artifacts": manifest.artifacts, "copied": completed.copied}
    summary = f"{visible(str(output))}: {count(manifest.artifacts, 'artifact')}, {completed.copied:,} of them new"
    session.output.result({**result, "folder": str(output), "missing": missing}, Text(summary))
    if missing:
        names = ", ".join(f"sha256:{each}" for each in missing[:_SHOWN])
        session.output.note(
            f"{count(len(missing), 'artifact')} missing or altered in the store, and not in the backup: {names}. "
            "`verify` says which thread refers to it."
        )
    return FAILED if missing else OK


@verbs.verb(
    "restore /backups/monday", "restore /backups/monday --into-existing", "restore /backups/monday --without-damaged"
)
async def restore(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The backup.")],
    into_existing: Annotated[
        bool, typer.Option("--into-existing", help="Even if the database has threads that the backup lacks.")
    ] = False,
    without_damaged: Annotated[
        bool, typer.Option("--without-damaged", help="Leave out threads with damaged events, and name them.")
    ] = False,
) -> int:
    """Restore a backup into a migrated database.

    Checks the whole backup first, and only adds data: after an interruption, repeat it. Stop the workers before. What
    Temporal's histories have of the time since the backup is recorded again. Exit 1 if a damaged thread was left out.
    """
    url = _database_url(session)
    stores = await _check_stores(session)
    from rich.text import Text

    from holdfast.retention.restore import check_schema
    from holdfast.retention.restore import restore as restore_backup
    from holdfast.retention.source import Source

    with _database_errors(), _file_errors(folder):
        source = Source(folder.expanduser(), without_damaged=without_damaged)
        await check_schema(url)
        restored = await restore_backup(
            source, await _pool(session), stores, into_existing=into_existing, report=session.output.note
        )
        again, lost = await _record_again(session, restored.threads)
    counts = {"threads": len(restored.threads), "events": restored.events, "effects": restored.effects}
    counts |= {"memories": restored.memories, "artifacts": restored.artifacts}
    summary = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    result = {
        **counts,
        "forgotten": sorted(restored.forgotten),
        "damaged": restored.damaged,
        "recorded_again": again,
        "lost": lost,
    }
    session.output.result(result, Text(f"Restored: {summary}"))
    for thread in sorted(restored.forgotten)[:_SHOWN]:
        session.output.note(f"{visible(thread)} was left out: this database has forgotten it.")
    for thread, why in restored.damaged.items():
        session.output.note(f"{visible(thread)} is damaged in the backup, and its log was left out: {visible(why)}")
    return FAILED if restored.damaged else OK


async def _record_again(session: Session, restored: set[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Record again what Temporal has of the time since the backup; return the numbers of recorded and of lost events of
    each thread.

    Seal that the rest is gone, where an anchor has seals of it.
    """
    from holdfast.composition.witnesses import witnesses_of
    from holdfast.errors import ServerUnreachable
    from holdfast.retention.rerecord import record_losses, rerecord, seal_restored

    try:
        threads = await session.connect()
        done = await rerecord(threads, await _pool(session), seals=session.parts.seals)
        sealed = {}
        if anchors := witnesses_of(session.parts.settings):
            sealed = await seal_restored(threads, anchors, restored, await session.parts.seal())
        lost = await record_losses(threads, await _pool(session), sealed | done.lost, histories=done.lost)
    except ServerUnreachable as error:
        session.output.note(
            f"Events since the backup were not recorded again: {visible(str(error))} Repeat `restore` when it answers."
        )
        return {}, {}
    for thread, why in done.left.items():
        session.output.note(f"{visible(thread)} lacks events since the backup: {visible(why)}")
    if done.events:
        events, of = sum(done.events.values()), count(len(done.events), "thread")
        session.output.note(
            f"{count(events, 'event')} of {of} since the backup were recorded again from Temporal's histories."
        )
    for thread, number in lost.items():
        session.output.note(
            f"{visible(thread)} has lost {count(number, 'event')} since the backup, and its log says so."
        )
    return done.events, lost


@verbs.verb("forget-thread rel-1.2", 'forget-thread rel-1.2 --reason "asked to" --yes', name="forget-thread")
async def forget_thread(
    session: Session,
    thread: Thread,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; kept with the digests.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    by: By = None,
) -> int:
    """Remove the content of a closed thread for good.

    From the record, the ledger, the artifacts, its own memories, and Temporal's histories. The digest of each event
    remains. Prints which copies remain elsewhere. Repeat it after an interruption.
    """
    asking = not session.output.as_json and sys.stdin is not None and sys.stdin.isatty()
    if not (yes or asking):
        raise typer.BadParameter("there is no terminal to ask on: give --yes to remove the content of the thread")
    _database_url(session)
    threads = await session.connect(thread)
    from holdfast.retention.forget import check_forgettable
    from holdfast.retention.forget import forget_thread as forget

    with _database_errors():
        await check_forgettable(threads, thread)
        if not yes:
            question = f"Remove the content of {visible(thread)} for good? [y/N] "
            if session.output.err.input(question, markup=False, emoji=False).strip().lower() not in ("y", "yes"):
                session.output.note("Nothing was removed.")
                return OK
        stores = await session.parts.stores()
        report = await forget(
            threads, await _pool(session), stores, thread, by=session.person(by), reason=reason.strip()[:1_000]
        )
    return _print_forgotten(session, report)


def _print_forgotten(session: Session, report: "Report") -> int:
    from rich.text import Text

    tombstone, content, histories = report.content.tombstone, report.content, report.histories
    view = {
        "thread": tombstone.thread,
        "forgotten_at": tombstone.forgotten_at.isoformat(),
        "forgotten_by": tombstone.forgotten_by,
        "reason": tombstone.reason,
        "events": tombstone.events,
        "head": tombstone.head,
        "runs": len(histories.runs) - len(histories.remaining),
        "remaining_runs": histories.remaining,
        "asides": content.asides,
        "memories": content.memories,
        "shared_artifacts": content.shared_artifacts,
        "forks": content.forks,
        "files": report.files,
    }
    removed = f"{count(tombstone.events, 'event')}, {count(len(histories.runs), 'Temporal run')}"
    session.output.result(view, Text.assemble("forgotten  ", (visible(tombstone.thread), "bold"), f"  {removed}"))
    for note in _remaining_copies(report):
        session.output.note(visible(note))
    return FAILED if histories.remaining else OK


def _remaining_copies(report: "Report") -> "Iterator[str]":
    content, remaining = report.content, report.histories.remaining
    if report.unrecorded:
        yield f"The last events may have no digest in the record: {report.unrecorded}"
    if remaining:
        yield (
            f"Temporal has not removed {count(len(remaining), 'run')} yet ({remaining[0]}): it may take minutes after "
            "the end of a run. Repeat this command to make sure."
        )
    if content.shared_artifacts:
        yield f"{count(content.shared_artifacts, 'artifact')} stay: other threads refer to them."
    if report.files:
        yield (
            f"{count(len(report.files), 'artifact')} stay in a store that does not record which threads refer to them, "
            f"such as {', '.join(report.files[:_SHOWN])}: remove those that no other thread needs."
        )
    if content.forks:
        yield (
            f"{count(len(content.forks), 'fork')} of this thread begin with its events: "
            f"{', '.join(content.forks[:_SHOWN])}. Forget each, too."
        )
    if content.memories:
        yield (
            f"{count(len(content.memories), 'memory')} in wider scopes came from this thread: "
            f"{', '.join(content.memories[:_SHOWN])}. `forget` removes each."
        )
    yield "Not removed: backups, exports, the workspace, and what other threads quote. PostgreSQL frees rows by VACUUM."


def _database_url(session: Session) -> str:
    """Return the URL of the database.

    Raises:
        SettingsError: There is none.
    """
    if url := session.parts.database_url:
        return url
    raise SettingsError("there is no database: set DATABASE_URL to the one that the workers have")


async def _pool(session: Session) -> "AsyncConnectionPool":
    pool = await session.parts.pool()
    assert pool is not None  # `_database_url` has checked
    return pool


async def _check_stores(session: Session) -> "ArtifactStore":
    """Return the artifact store, if threads and artifacts are in Holdfast's own stores.

    Raises:
        SettingsError: The catalog has its own stores.
    """
    from holdfast.retention.own_stores import require_own_stores

    return require_own_stores(await session.parts.stores())


@contextmanager
def _database_errors() -> "Iterator[None]":
    import psycopg
    from temporalio.exceptions import ApplicationError

    from holdfast.core.base.text import one_line

    try:
        yield
    except (psycopg.Error, ApplicationError) as error:
        raise RecordUnavailable(
            f"the database cannot be used ({one_line(str(error), 300)}). Check DATABASE_URL."
        ) from error


@contextmanager
def _file_errors(path: Path) -> "Iterator[None]":
    from holdfast.errors import BackupInvalid

    try:
        yield
    except OSError as error:
        raise BackupInvalid(f"{path}: {error.strerror or error}") from error
