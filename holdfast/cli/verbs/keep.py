"""Verbs that keep and forget: backup, restore, forget-thread."""

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
"""How many ids and addresses a note names."""


@verbs.verb("backup -o /backups/monday", "backup -o /backups/monday --json")
async def backup(
    session: Session,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Created, or holds an earlier backup.")
    ],
) -> int:
    """Back up the record, the ledger, artifacts and memories.

    The database as of one moment, while workers go on. A later backup to the same folder reuses its artifacts; one that
    is interrupted leaves the earlier backup as it was. Exit 1 if an artifact is missing or altered.
    """
    url = _database_url(session)
    folder = session.settings.artifacts
    await _check_stores(session)
    from rich.text import Text

    from holdfast.retention.backup import back_up
    from holdfast.retention.restore import check_schema

    with _database_errors(), _file_errors(output):
        await check_schema(url)
        made = await back_up(url, output.expanduser(), artifacts=folder, report=session.output.note)
    missing = made.manifest.missing
    result = {**made.manifest.counts, "artifacts": made.manifest.artifacts, "copied": made.copied}
    words = f"{visible(str(output))}: {count(made.manifest.artifacts, 'artifact')}, {made.copied:,} of them new"
    session.output.result({**result, "folder": str(output), "missing": missing}, Text(words))
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
        bool, typer.Option("--into-existing", help="Also where the database has threads that the backup lacks.")
    ] = False,
    without_damaged: Annotated[
        bool, typer.Option("--without-damaged", help="Leave out threads whose events do not hold, and name them.")
    ] = False,
) -> int:
    """Restore a backup into a migrated database.

    Checks all of the backup first, and only adds: after an interruption, repeat it. Stop the workers before. Exit 1 if
    a damaged thread was left out.
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
        done = await restore_backup(
            source, await _pool(session), stores, into_existing=into_existing, report=session.output.note
        )
    counts = {"threads": len(done.threads), "events": done.events, "effects": done.effects}
    counts |= {"memories": done.memories, "artifacts": done.artifacts}
    words = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    result = {**counts, "forgotten": sorted(done.forgotten), "damaged": done.damaged}
    session.output.result(result, Text(f"Restored: {words}"))
    for thread in sorted(done.forgotten)[:_SHOWN]:
        session.output.note(f"{visible(thread)} was left out: this database has forgotten it.")
    for thread, why in done.damaged.items():
        session.output.note(f"{visible(thread)} is damaged in the backup, and its log was left out: {visible(why)}")
    return FAILED if done.damaged else OK


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
    remains. Prints what stays elsewhere. Repeat it after an interruption.
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
            words = f"Remove the content of {visible(thread)} for good? [y/N] "
            if session.output.err.input(words, markup=False, emoji=False).strip().lower() not in ("y", "yes"):
                session.output.note("Nothing was removed.")
                return OK
        stores = await session.parts.stores()
        found = await forget(
            threads, await _pool(session), stores, thread, by=session.person(by), reason=reason.strip()[:1_000]
        )
    return _print_forgotten(session, found)


def _print_forgotten(session: Session, found: "Report") -> int:
    from rich.text import Text

    grave, content, histories = found.content.tombstone, found.content, found.histories
    view = {
        "thread": grave.thread,
        "forgotten_at": grave.forgotten_at.isoformat(),
        "forgotten_by": grave.forgotten_by,
        "reason": grave.reason,
        "events": grave.events,
        "head": grave.head,
        "runs": len(histories.runs) - len(histories.remaining),
        "remaining_runs": histories.remaining,
        "asides": content.asides,
        "memories": content.memories,
        "shared_artifacts": content.shared_artifacts,
        "forks": content.forks,
        "files": found.files,
    }
    removed = f"{count(grave.events, 'event')}, {count(len(histories.runs), 'Temporal run')}"
    session.output.result(view, Text.assemble("forgotten  ", (visible(grave.thread), "bold"), f"  {removed}"))
    for words in _what_stays(found):
        session.output.note(visible(words))
    return FAILED if histories.remaining else OK


def _what_stays(found: "Report") -> "Iterator[str]":
    content, remaining = found.content, found.histories.remaining
    if found.unrecorded:
        yield f"The last events may have no digest in the record: {found.unrecorded}"
    if remaining:
        yield (
            f"Temporal has not removed {count(len(remaining), 'run')} yet ({remaining[0]}): it may take minutes after "
            "the end of a run. Repeat this command to make sure."
        )
    if content.shared_artifacts:
        yield f"{count(content.shared_artifacts, 'artifact')} stay: other threads refer to them."
    if found.files:
        yield (
            f"{count(len(found.files), 'artifact')} stay in a store that does not record which threads refer to them, "
            f"such as {', '.join(found.files[:_SHOWN])}: remove those that no other thread needs."
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
    """The database.

    Raises:
        SettingsError: None is known.
    """
    if url := session.parts.database_url:
        return url
    raise SettingsError("there is no database: set DATABASE_URL to the one that the workers have")


async def _pool(session: Session) -> "AsyncConnectionPool":
    pool = await session.parts.pool()
    assert pool is not None  # `_database_url` has looked
    return pool


async def _check_stores(session: Session) -> "ArtifactStore":
    """The store of artifacts, where Holdfast keeps threads and artifacts itself.

    Raises:
        SettingsError: The catalog has stores of its own.
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
