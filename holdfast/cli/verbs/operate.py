"""Verbs that operate Holdfast: replay, prune, migrate, doctor, skip."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import FAILED, OK, USAGE
from holdfast.cli.options import Thread, Verbs
from holdfast.cli.session import Session
from holdfast.cli.text import count, visible
from holdfast.config.programs import CLI
from holdfast.errors import SettingsError

if TYPE_CHECKING:
    from holdfast.client.reading.record import EndedThread
    from holdfast.core.base.retention import Retention

SKIP_SECONDS = 60.0
"""The most seconds that `skip` may take."""

LOAD_SECONDS = 5.0
"""How long `doctor --load` measures."""

verbs = Verbs()


@verbs.verb("replay rel-1.2", "replay history.json", "replay --last 50 --json", "replay --file a.json --file b.json")
async def replay(
    session: Session,
    thread: Annotated[
        str | None, typer.Argument(metavar="[THREAD|FILE]", help="All runs of a thread; or a history as JSON.")
    ] = None,
    file: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A history as JSON; may be given again.")
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="The N runs that began last.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Also find clocks and randomness; slower.")] = False,
) -> int:
    """Replay runs through today's code.

    Exit 1 if one diverges.
    """
    if thread is not None and not file and Path(thread).is_file():  # noqa: ASYNC240  # before anything runs
        file, thread = [Path(thread)], None
    if (thread is not None) + bool(file) + (last is not None) != 1:
        raise typer.BadParameter("say one of THREAD, --file and --last")
    threads = None if file else await session.connect(thread)
    from holdfast.audit.evidence.replay import latest_runs, runs_of
    from holdfast.cli.replay import from_files, replay_all

    if threads is None:
        runs = from_files(file or (), session.parts.codec)
    elif thread is not None:
        runs = runs_of(threads, thread)
    else:
        runs = latest_runs(threads, last or 0)
    return await replay_all(
        runs, session.workflows(), output=session.output, strict=strict, runtime=session.parts.runtime
    )


@verbs.verb(
    "prune --older-than 90d --dry-run",
    "prune --rule finished=90d --rule failed=1y",
    "prune --older-than 90d --yes --json",
)
async def prune(
    session: Session,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="How long ago a thread must have ended: 48h, 30d, 8w or 1y.")
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(metavar="END=AGE", help="By its end: finished, completed, failed, cancelled. May be given again."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Remove old threads from the record.

    A thread that ended so long ago is removed from the permanent record for good: events, effects, artifacts. A thread
    with an open run stays. HOLDFAST_PRUNE has the workers do so on a schedule.
    """
    retention = _retention(older_than, rule)
    asking = not session.output.as_json and sys.stdin is not None and sys.stdin.isatty()
    if not (yes or dry_run or asking):
        raise typer.BadParameter("there is no terminal to ask on: give --yes to remove them, or --dry-run to list them")
    # Before the connection: without a record, no server is needed to refuse.
    record = await session.parts.record()
    threads = await session.connect()
    from holdfast.client.prune import list_prunable
    from holdfast.client.prune import prune as prune_threads
    from holdfast.client.reading.record import call_store

    prunable = await call_store(list_prunable(threads.runs, record, retention=retention))
    if dry_run or not yes:
        for one in prunable:
            _print_pruned(session, one, removed=False)
    if not prunable:
        session.output.note("No thread ended that long ago.")
    elif dry_run:
        session.output.note(f"{count(len(prunable), 'thread')} would be removed.")
    elif yes or _confirm(session, len(prunable)):
        seal = await session.parts.seal()
        async for one, removed in prune_threads(threads.runs, record, prunable, seal=seal):
            if removed and yes:
                _print_pruned(session, one, removed=True)
            if not removed:
                session.output.note(f"{visible(one.thread)} stays: it was continued meanwhile, or is gone.")
    return OK


@verbs.verb("migrate", "migrate --check")
async def migrate(
    session: Session,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if there is something to do.")] = False,
) -> int:
    """Bring the database's schema up to date, before the workers of a new release start.

    Safe to repeat, and to run twice at once. Workers, gateways and this command line need no right to change tables.
    """
    from rich.text import Text

    from holdfast.composition.migrating import bring_up_to_date

    schema = await bring_up_to_date(session.parts.database_url, check=check)
    rows = f"; {count(schema.rows, 'row')} added for SQL" if schema.rows else ""
    summary = f"The schema is up to date: {schema.after}{rows}"
    if schema.applied:
        summary = f"Migrated from {schema.before or 'nothing'} to {schema.after}{rows}"
    view = {"from": schema.before, "to": schema.after, "applied": schema.applied, "rows": schema.rows}
    session.output.result({**view, "missing": schema.missing}, None if schema.missing else Text(summary))
    if schema.advice:
        session.output.note(f"{CLI.name}: {schema.advice}")
    return FAILED if schema.missing else OK


@verbs.verb("doctor", "doctor --hardened", "doctor --load")
async def doctor(
    session: Session,
    hardened: Annotated[
        bool, typer.Option("--hardened", help="Fail if something is below the hardening profile.")
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Say what limits the throughput now, from measurements of some seconds.")
    ] = False,
) -> int:
    """Check the requirements of Holdfast, and the hardening profile; or, with --load, find the bottleneck.

    docs/how-to/harden.md explains the profile, docs/how-to/size-a-deployment.md the load.
    """
    if load:
        return await _load(session)
    import asyncio

    from holdfast.cli.checks.report import exit_code, report
    from holdfast.doctor.check import Check
    from holdfast.doctor.examine import examine, examine_endpoints
    from holdfast.doctor.limited import Limited

    try:
        options = session.parts.connect_options  # first: it may find the stack of another folder
        settings, limited = session.settings, Limited()
        checks, probes = await asyncio.gather(
            examine(settings, options, session.project, limited=limited), examine_endpoints(settings, limited=limited)
        )
        checks += probes
        code = exit_code(checks, hardened=hardened)
    except SettingsError as error:
        checks, code = [Check("settings", "missing", str(error), "correct it; docs/reference/settings.md")], USAGE
    rows = [{"name": each.name, "status": each.status, "detail": each.detail, "fix": each.fix} for each in checks]
    session.output.result({"ok": code == OK, "checks": rows}, report(checks))
    return code


async def _load(session: Session) -> int:
    """Print what limits the throughput."""
    from dataclasses import asdict

    from holdfast.cli.checks.load import limit_of, report, rows_of
    from holdfast.cli.checks.load_probe import measure
    from holdfast.config.stack_file import read_stack

    threads = await session.connect()
    stack, url = read_stack(session.settings.home), session.parts.database_url
    embedded = stack if stack and stack.temporal_address == session.parts.config["target_host"] else None
    session.output.note(f"Measuring for {LOAD_SECONDS:g} s …")
    found = await measure(
        threads.runs.client, session.settings.task_queue, stack=embedded, database_url=url, seconds=LOAD_SECONDS
    )
    rows = rows_of(found)
    result = {"limit": limit_of(rows), "rows": [asdict(row) for row in rows], "measured": asdict(found)}
    session.output.result(result, report(rows))
    return OK


@verbs.verb("skip rel-1.2 3w", farewell="No more time is skipped.")
async def skip(
    session: Session,
    thread: Thread,
    span: Annotated[str, typer.Argument(metavar="TIME", help="How much: 90 (seconds), 15m, 4h, 7d or 3w.")],
) -> int:
    """Skip time for a run or a loop, to try what happens later.

    Only on the stack of a worker with --dev --skip-time. docs/how-to/skip-time.md says what to expect.
    """
    from holdfast.core.base.durations import read_seconds

    try:
        duration = timedelta(seconds=read_seconds(span))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"TIME: {error}") from None
    threads = await session.connect(thread)
    from rich.text import Text

    from holdfast.client.time_skipping import check_stack, skip_time
    from holdfast.config.stack_file import read_stack

    check_stack(threads.runs, read_stack(session.settings.home))
    now = await skip_time(threads.runs, thread, duration, within=SKIP_SECONDS)
    status = f"it is {now:%Y-%m-%d %H:%M:%S} UTC for this run" if now else "it has ended"
    session.output.result({"time": now.isoformat() if now else None}, Text(f"{visible(thread)}: {status}"))
    return OK


def _retention(older_than: str | None, rules: list[str] | None) -> "Retention":
    from holdfast.core.base.retention import read_rules

    if (older_than is None) == (not rules):
        raise typer.BadParameter("say one of --older-than AGE and --rule END=AGE")
    try:
        return read_rules(rules or [f"finished={older_than}"])
    except ValueError as error:
        raise typer.BadParameter(f"{'--rule' if rules else '--older-than'}: {error}") from None


def _print_pruned(session: Session, one: "EndedThread", *, removed: bool) -> None:
    from holdfast.cli.screens.record_screens import prunable_line

    row = {
        "thread": one.thread,
        "events": one.events,
        "bytes": one.bytes,
        "last_at": one.last_at.isoformat(),
        "outcome": one.outcome,
    }
    session.output.result({**row, "removed": removed}, prunable_line(one))


def _confirm(session: Session, number: int) -> bool:
    what = "this thread" if number == 1 else f"these {number:,} threads"
    question = f"Remove {what} for good: events, effects, artifacts? [y/N] "
    answer = session.output.err.input(question, markup=False, emoji=False)
    agreed = answer.strip().lower() in ("y", "yes")
    if not agreed:
        session.output.note("Nothing was removed.")
    return agreed
