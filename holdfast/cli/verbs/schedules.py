"""Verbs for schedules: schedule add, list, show, pause, resume, trigger, delete."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.exits import OK
from holdfast.cli.options import Blocks, By, ContextOption, NodesOption, Verbs, read_content, read_context, read_nodes
from holdfast.cli.session import Session
from holdfast.cli.text import visible
from holdfast.cli.verbs.budgets import read_budget
from holdfast.config.programs import CLI

if TYPE_CHECKING:
    from holdfast.client.threads import Threads

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name, as `schedule list` shows it.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; `schedule show` shows it.")]

verbs = Verbs(under="schedule", help="Start runs by schedule.")


@verbs.verb(
    'schedule add nightly "Update the dependencies" --cron "0 7 * * 1-5" --tz Europe/Berlin',
    'schedule add inbox "Sort the inbox" --every 6h --agent sorter --overlap queue',
    'schedule add nightly "Update the dependencies" --cron "0 6 * * *" --replace',
)
async def add(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, the prefix of the ids of its threads.")],
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="The task of each run; - reads stdin.")] = None,
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="When: minute, hour, day of the month, month, day of the week."),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="When: every 15m, 6h or 7d, counted from 1970-01-01 UTC.")
    ] = None,
    tz: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin.")] = "UTC",
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="[default: the catalog's first]")] = None,
    workspace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder on the worker's machine. [default: one for each run]")
    ] = None,
    overlap: Annotated[
        Literal["skip", "queue", "cancel", "allow"],
        typer.Option(
            help="If the last run is open: leave out the new one, start it afterwards, cancel the old one, or run both."
        ),
    ] = "skip",
    catchup: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start runs missed while Temporal was down. [default: only the last one]"),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="The end: 2026-12-24T18:00, or in 30d. [default: none]")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="AMOUNTS", help="The budget of each run: usd=2,tokens=100k. [default: the agent's]"),
    ] = None,
    context: ContextOption = None,
    nodes: NodesOption = None,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Nobody is there: runs fail instead of waiting for a person.")
    ] = False,
    blocks: Blocks = None,
    by: By = None,
    reason: Reason = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace the schedule of that name.")] = False,
) -> int:
    """Add a schedule that starts runs by cron or interval.

    Each run is a new thread NAME-TIME. Adding the same schedule again changes nothing.
    """
    content = read_content(task, blocks, name="TASK")
    from holdfast.config.durations import read_time

    try:
        end = read_time(until, now=datetime.now(UTC)) if until else None
    except ValueError as error:
        raise typer.BadParameter(f"--until: {error}") from None
    limits = read_budget(budget) if budget is not None else None
    given, selected = read_context(context), read_nodes(nodes)
    seconds, late = _seconds("--every", every), _seconds("--catchup", catchup)
    threads = await session.connect()
    if agent:
        from holdfast.cli.checks.offered_agents import check_offered

        await check_offered(session, threads, [agent])
    from holdfast.client.schedule_definitions import Definition
    from holdfast.client.schedules import add_schedule
    from holdfast.core.budget.budget import Budget
    from holdfast.core.tools.typed_context import context_values

    person = session.person(by)
    if not session.is_own(person):
        session.output.note(f"You are not {visible(person)}, so its runs cannot use that person's memory.")
    definition = Definition(
        task=content,
        cron=cron,
        every=seconds,
        tz=tz,
        until=end,
        overlap=overlap,
        catchup=late,
        agent=agent,
        workspace=str(workspace.expanduser().absolute()) if workspace else None,
        by=person,
        by_proven=session.is_own(person),
        reason=reason,
        budget=Budget(**limits) if limits else None,
        context=context_values(given),
        nodes=selected,
        when_blocked="fail" if unattended else None,
    )
    new = await add_schedule(threads, name, definition, replace=replace)
    if not new:
        session.output.note(f"There is the same schedule {visible(name)} already; nothing has changed.")
    return await _show(session, threads, name)


@verbs.verb("schedule list", "schedule list --json | jq -r 'select(.paused) | .schedule'", name="list")
async def list_(session: Session) -> int:
    """List schedules, by name."""
    threads = await session.connect()
    from holdfast.cli.screens.schedule_screens import schedules_screen
    from holdfast.client.schedule_states import list_schedules

    rows = await list_schedules(threads)
    if session.output.as_json:
        for row in rows:
            session.output.result(row)
        return OK
    session.output.result(rows, schedules_screen(rows))
    if not rows:
        session.output.note(f"There are no schedules. Add one with `{CLI.command('schedule', 'add')}`.")
    return OK


@verbs.verb("schedule show nightly", "schedule show nightly --json | jq -r .runs[0].thread")
async def show(session: Session, name: Name) -> int:
    """Show a schedule: its task, times, requester, and last runs with their outcomes."""
    return await _show(session, await session.connect(), name)


@verbs.verb('schedule pause nightly --reason "the release is frozen"')
async def pause(session: Session, name: Name, by: By = None, reason: Reason = "") -> int:
    """Pause a schedule: open runs continue, and no other starts. Repeat it to change the reason."""
    threads = await session.connect()
    from holdfast.client.schedules import pause_schedule

    await pause_schedule(threads, name, by=session.person(by), reason=reason)
    return await _show(session, threads, name)


@verbs.verb("schedule resume nightly")
async def resume(session: Session, name: Name, by: By = None, reason: Reason = "") -> int:
    """Resume a paused schedule. Runs that were due meanwhile do not start."""
    threads = await session.connect()
    from holdfast.client.schedules import resume_schedule

    await resume_schedule(threads, name, by=session.person(by), reason=reason)
    return await _show(session, threads, name)


@verbs.verb("schedule trigger nightly", "schedule trigger nightly --json | jq -r .thread")
async def trigger(session: Session, name: Name) -> int:
    """Start a run now, even if another one is open or the schedule is paused."""
    threads = await session.connect()
    from rich.text import Text

    from holdfast.client.schedules import trigger_schedule

    thread = await trigger_schedule(threads, name)
    if not thread:
        session.output.note(
            f"Temporal has not started the run yet; `{CLI.command('schedule', 'show', name)}` shows it."
        )
    screen = Text.assemble("Started ", (thread, "bold"), f"\n  {CLI.command('watch', thread)}") if thread else None
    session.output.result({"schedule": name, "thread": thread or None}, screen)
    return OK


@verbs.verb("schedule delete nightly")
async def delete(session: Session, name: Name) -> int:
    """Delete a schedule. Its threads stay, and open runs continue."""
    threads = await session.connect()
    from rich.text import Text

    from holdfast.client.schedules import delete_schedule

    await delete_schedule(threads, name)
    session.output.result({"schedule": name, "outcome": "deleted"}, Text(f"Deleted {visible(name)}"))
    return OK


async def _show(session: Session, threads: "Threads", name: str) -> int:
    from holdfast.cli.screens.schedule_screens import schedule_screen
    from holdfast.client.schedule_states import schedule_state

    state = await schedule_state(threads, name)
    session.output.result(state, schedule_screen(state))
    return OK


def _seconds(option: str, text: str | None) -> float | None:
    from holdfast.core.base.durations import read_seconds

    try:
        return read_seconds(text) if text is not None else None
    except ValueError as error:
        raise typer.BadParameter(f"{option}: {error}") from None
