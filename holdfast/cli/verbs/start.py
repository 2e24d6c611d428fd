"""The verb that starts a run, and optionally waits for it."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.exits import FAILED, OK, WAITING
from holdfast.cli.options import (
    Blocks,
    ContextOption,
    ConversationOption,
    NodesOption,
    Verbs,
    read_content,
    read_context,
    read_conversation_file,
    read_nodes,
)
from holdfast.cli.reports import print_state
from holdfast.cli.session import Session, normalized_name
from holdfast.cli.text import visible
from holdfast.cli.verbs.budgets import read_budget
from holdfast.config.programs import CLI, WORKER
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client.threads import JSON, Started, Threads
    from holdfast.client.trees import Node

verbs = Verbs()


Until = Literal["attention", "end"]


@verbs.verb(
    'start "Publish 1.2"',
    'start "Fix the failing test" --workspace . --wait',
    "start - --wait < task.md",
    'start "Publish 1.2" --thread rel-1.2    # repeated: starts nothing, and shows the existing thread',
    'start "And now 1.3" --thread rel-1.2    # another task continues a closed thread, with its whole content',
    'start "Publish 1.2" --agent releaser --idle-limit 600 --json',
    'start "Publish 1.2" --budget usd=2,tokens=100k',
    """start "How much is left?" --context '{"customer": "4711"}'    # or --context @customer.json""",
    'start "Summarise the contracts" --nodes region=eu    # only nodes with this label execute it',
    'start "Answer the customer" --conversation chat.json    # the LLM reads it as a claim',
    'start "Write the nightly report" --unattended --wait    # exit 1 instead of waiting for a person',
    farewell="Nothing was started.",
)
async def start(
    session: Session,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="The agent's task; - reads stdin.")] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="[default: the thread's, or the catalog's first]")
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of a new thread, or of a closed one. [default: a fresh one]"),
    ] = None,
    workspace: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder on the worker's machine.")] = None,
    idle_limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Stay open for follow-up messages (`say`) for this long. [default: the agent's]",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNTS",
            help="The run's budget: usd=2,tokens=100k,steps=50,seconds=1h. [default: the agent's]",
        ),
    ] = None,
    context: ContextOption = None,
    unattended: Annotated[
        bool,
        typer.Option("--unattended", help="Nobody is there: fail, with the cause, instead of waiting for a person."),
    ] = False,
    nodes: NodesOption = None,
    conversation: ConversationOption = None,
    blocks: Blocks = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The requester: the person the task is for. [default: HOLDFAST_BY]"),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait until the run ends or waits for somebody; exit 1 if it fails, 6 if it waits."
        ),
    ] = False,
    until: Annotated[
        Until,
        typer.Option(help="With --wait: return when a person is needed, or only at the end."),
    ] = "attention",
) -> int:
    """Start a run, or continue a closed thread with another task. Repeating the same start changes nothing."""
    content = read_content(task, blocks, name="TASK")
    from holdfast.client.start_options import StartOptions, check_own_id, check_task
    from holdfast.core.budget.budget import Budget

    check_task(content)
    given, selected, earlier = read_context(context), read_nodes(nodes), read_conversation_file(conversation)
    limits = Budget(**read_budget(budget)) if budget is not None else None
    if thread is not None:
        check_own_id(thread)
    threads = await session.connect()
    from holdfast.client.idempotent_starts import start_or_continue
    from holdfast.client.threads import Started

    requester = normalized_name(by or session.settings.by or "")
    if not session.is_own(requester):
        name = visible(requester)
        session.output.note(f"You are not {name}, so the run cannot use the memory of {name}.")
    options = StartOptions(
        agent=agent,
        # The worker, which may be on another machine, checks that the folder exists.
        workspace=str(workspace.expanduser().absolute()) if workspace else None,
        idle_limit=idle_limit,
        by=requester,
        by_proven=session.is_own(requester),
        budget=limits,
        context=given,
        when_blocked="fail" if unattended else None,
        nodes=selected,
        conversation=earlier,
        traceparent=os.environ.get("TRACEPARENT", ""),
    )
    session.farewell = f"It may have been started: {CLI.command('show', thread) if thread else CLI.command('list')}"
    if thread is None:
        new: Started | None = await threads.start(content, options=options)
    else:
        new = await start_or_continue(threads, content, thread, options)
    if new is None:
        session.output.note(f"{visible(thread or '')} was started with this task before: nothing was started again.")
    started = new or Started(thread or "", (await threads.runs.describe(thread or "")).run_id)
    session.farewell = f"Not waiting any longer; the run continues: {CLI.command('watch', started.thread)}"
    state = await threads.wait_until_loaded(started.thread)
    if state is None:
        session.output.note(
            f"No worker has picked it up yet; start one with `{WORKER.command('--dev')}` "
            f"(task queue {session.settings.task_queue!r})."
        )
    if wait:
        return await _wait(session, threads, started, until, in_progress=new is None)
    return await _report(session, threads, started, state)


async def _report(session: Session, threads: "Threads", started: "Started", state: "JSON | None") -> int:
    """Print the started thread; return the exit code."""
    from rich.text import Text

    status = state["status"] if state else "running"
    link = session.link(threads, started.thread, started.run_id)
    screen = Text.assemble(
        "Continued " if started.continued else "Started ",
        (started.thread, "bold"),
        f" ({status.replace('_', ' ')})\n",
        f"  {CLI.command('watch', started.thread)}",
        f"\n  {link}" if link else "",
    )
    result = {"thread": started.thread, "run_id": started.run_id, "status": status, "ui": link}
    session.output.result(result, screen)
    if status == "failed":
        session.output.note(f"The run failed: {visible(state['result'] if state else '')}")
        return FAILED
    return OK


async def _wait(session: Session, threads: "Threads", started: "Started", until: Until, *, in_progress: bool) -> int:
    """Wait until the run ends, waits for a message or, with `attention`, needs a person; show its progress.

    Args:
        session: The invocation.
        threads: The namespace's threads.
        started: The run.
        until: The condition on which to return.
        in_progress: The run is not new: its earlier events are progress, too.
    """
    import asyncio  # here, because `--help` does not need it

    from holdfast.client.follow import follow
    from holdfast.client.showing import show_thread

    thread = started.thread
    shown: set[str] = set()

    async def progress() -> None:
        begun = in_progress
        async for event in follow(threads, thread, patient=True, note=session.output.note):
            # A closed thread has events of earlier runs; they are not progress.
            begun = begun or (event["type"] == "run_started" and event["run_id"] == started.run_id)
            if begun:
                await _show_progress(session, threads, thread, event, shown)
                if event["type"] in _PAUSING and await _is_over(threads, thread, until):
                    return

    outages = asyncio.create_task(_show_outages(session, threads, thread))
    tree = asyncio.create_task(_watch_subagents(session, threads, thread, until, shown))
    own = asyncio.create_task(progress())
    try:
        with session.output.err.status(f"{thread} is running"):
            await asyncio.wait({own, tree}, return_when=asyncio.FIRST_COMPLETED)
            if own.done():
                own.result()
    finally:
        for task in (outages, tree, own):
            task.cancel()
        await asyncio.gather(outages, tree, own, return_exceptions=True)
    below = tree.result() if not tree.cancelled() and tree.exception() is None else []
    description = await threads.runs.describe(thread)
    ended = await show_thread(threads, thread, found=description, note=session.output.note)
    state = ended.view | ({"attention": [node.view() for node in below]} if below else {})
    print_state(session, threads, state, description, last=ended.last, asking=False)  # stderr has the requests
    if state["status"] == "running" and below:
        session.output.note(f"A sub-agent waits for a person. To follow the run: {CLI.command('watch', thread)}")
        return WAITING
    if state["status"] in _ATTENTION:
        await _show_requests(session, threads, thread, shown)
        asleep = state["status"] == "dormant"
        what = "sleeps, and the run continues by itself" if asleep else "waits for a person"
        session.output.note(f"It {what}. To follow it after that: {CLI.command('watch', thread)}")
        return WAITING
    return OK if state["status"] in ("completed", "waiting_message") else FAILED


async def _watch_subagents(
    session: Session, threads: "Threads", thread: str, until: Until, shown: set[str]
) -> "list[Node]":
    """Show the requests, blocks and pauses of sub-agents; with `attention`, return those that need a person first."""
    import asyncio

    from holdfast.client.trees import TreeWatch

    watch = TreeWatch(threads, thread, every=_TREE_SECONDS)
    while True:
        with suppress(HoldfastError):  # `follow` reports a server or a worker that is unavailable
            needs = [node for node in await watch.look() if node.thread != thread]
            for node in needs:
                _show_need(session, node, shown)
            if needs and until == "attention":
                return needs
        await asyncio.sleep(_TREE_SECONDS / 2)


def _show_need(session: Session, node: "Node", shown: set[str]) -> None:
    """Show why a sub-agent needs a person, and the command that helps; each reason once."""
    from holdfast.cli.screens.request_screens import request_screen

    for request in node.pending:
        if (key := f"{node.thread} {request['request']}") not in shown:
            shown.add(key)
            session.output.note(request_screen(dict(request)))
    if not (node.blocked or node.paused):
        return
    why = f"blocked ({node.blocked['cause']}: {node.blocked['message']})" if node.blocked else "paused"
    if (text := f"Sub-agent {visible(node.thread)} is {visible(why)}") not in shown:
        shown.add(text)
        session.output.note(f"{text}: {CLI.command('retry' if node.blocked else 'resume', node.thread)}")


_TREE_SECONDS = 1.0
"""The interval at which `start --wait` looks for sub-agents that need a person, at first."""


async def _show_outages(session: Session, threads: "Threads", thread: str) -> None:
    """Report calls that fail and are retried, each reason once: the log has them only after the call has ended."""
    import asyncio

    from holdfast.cli.screens.thread_words import retry_text
    from holdfast.client.reading.runs import retrying

    reported: set[tuple[str, str]] = set()
    while True:
        await asyncio.sleep(_OUTAGE_SECONDS)
        with suppress(HoldfastError):  # `follow` reports a server that is unavailable
            for each in retrying(await threads.runs.describe(thread)):
                if (each.activity_id, each.reason) not in reported:
                    reported.add((each.activity_id, each.reason))
                    session.output.note(
                        f"{retry_text(each, now=datetime.now(UTC), thread=thread)} (retried until it answers)"
                    )


_OUTAGE_SECONDS = 3.0
"""The interval at which `start --wait` polls Temporal for calls that are being retried."""


_PAUSING = frozenset(
    {"message_awaited", "approval_requested", "reconcile_requested", "run_blocked", "run_paused", "tool_call_finished"}
    | {"dormancy_began"}
)
"""The events after which a run may wait for somebody."""


_ATTENTION = ("waiting_approval", "paused", "dormant", "blocked")


async def _is_over(threads: "Threads", thread: str, until: Until) -> bool:
    """Whether the run makes no progress until somebody acts."""
    from holdfast.client.reading.states import CLOSED

    waits = ("waiting_message", *_ATTENTION) if until == "attention" else ("waiting_message",)
    state = await threads.state(thread)
    fails = state.get("unattended") and state["blocked"] and not state["pending"]  # as soon as its tools have ended
    return not fails and state["status"] in (*waits, *CLOSED)


async def _show_progress(session: Session, threads: "Threads", thread: str, event: "JSON", shown: set[str]) -> None:
    """Show an event, and the action that it requires of people."""
    from holdfast.cli.screens.costs import more_text
    from holdfast.cli.screens.event_lines import PROGRESS, event_line

    if event["type"] in PROGRESS:
        session.output.progress(event_line(event))
    if event["type"] in ("approval_requested", "reconcile_requested"):
        await _show_requests(session, threads, thread, shown)
    if event["type"] == "run_blocked" and not (await threads.state(thread)).get("unattended"):
        then, spent = CLI.command("retry", thread), event["cause"] == "BudgetSpent"
        if spent:
            more = more_text((await threads.state(thread)).get("budget"))
            then = CLI.command("extend", thread, "--budget", more)
        session.output.note(f"Its budget has ended: {then}" if spent else f"It is blocked. Fix the cause, then: {then}")
    if event["type"] == "run_paused":
        session.output.note(f"Somebody has paused it. To resume it: {CLI.command('resume', thread)}")


async def _show_requests(session: Session, threads: "Threads", thread: str, shown: set[str]) -> None:
    """Show the open requests that have not been shown yet."""
    from holdfast.cli.screens.request_screens import request_screen

    for request in await threads.pending(thread):
        if request["request"] not in shown:
            shown.add(request["request"])
            session.output.note(request_screen(request))
