"""Verbs that read threads: show, list, log, transcript, artifact, prompt, pending, watch.

Only `watch` also sends.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from holdfast.cli.exits import OK, UNREACHABLE
from holdfast.cli.options import By, Key, Thread, Verbs
from holdfast.cli.reports import print_loop, print_state
from holdfast.cli.session import Session
from holdfast.cli.text import count, visible

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from holdfast.client.threads import JSON, Threads

verbs = Verbs()


@verbs.verb("show rel-1.2", "show rel-1.2 --at 17", "show rel-1.2 --tree", "show rel-1.2 --json | jq .status")
async def show(
    session: Session,
    thread: Thread,
    at: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="As it was right after the event at position N.")
    ] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="The thread and its sub-agents, each on a line with its cost.")
    ] = False,
) -> int:
    """Show a thread's activity or waits, last error, next steps, open requests and result."""
    if tree and at is not None:
        raise typer.BadParameter("--tree shows how things are now; leave out --at")
    threads = await session.connect(thread)
    if tree:
        from holdfast.cli.screens.tree_screens import print_tree

        return await print_tree(session, threads, thread)
    from temporalio.client import WorkflowExecutionStatus

    from holdfast.client.loops import find_run, is_archived_loop
    from holdfast.core.run.contracts.runs import LOOP_WORKFLOW

    description = await find_run(threads, thread)
    is_open = description is not None and description.status is WorkflowExecutionStatus.RUNNING
    if description and description.workflow_type == LOOP_WORKFLOW:
        await print_loop(session, threads, thread, description, at=at)
    elif not is_open and await is_archived_loop(threads, thread):  # an open run's worker proves its kind
        await print_loop(session, threads, thread, None, at=at)
    elif at is not None:
        await _show_at(session, threads, thread, at)
    else:
        await _show_now(session, threads, thread)
    return OK


@verbs.verb("list", "list --status waiting_approval", "list --tree", "list --cost day --limit 10000", name="list")
async def list_threads(
    session: Session,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only threads with this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most threads: the N newest.")] = 100,
    tree: Annotated[bool, typer.Option("--tree", help="Sub-agents below the thread that started them.")] = False,
    cost: Annotated[
        Literal["agent", "day", "tenant", "tree"] | None,
        typer.Option(help="The total cost of these threads, by agent, by day, by tenant or by tree."),
    ] = None,
) -> int:
    """List threads, newest first: status, step, open requests, cost and task.

    Statuses: running, waiting_approval, waiting_message, paused, dormant (asleep until a time or an event; or a paused
    loop of 0.1.0, or one without a worker yet), blocked, completed, failed, cancelled, moved.
    """
    threads = await session.connect()
    from holdfast.cli.screens.costs import cost_rows, with_cost
    from holdfast.cli.screens.thread_screens import costs_screen, list_screen
    from holdfast.cli.screens.tree_screens import as_trees, indented_row
    from holdfast.client.listing import list_threads

    output = session.output
    rows = [with_cost(row) for row in await list_threads(threads, status=status, limit=limit)]
    listed, silent = len(rows), sum(row["unanswered"] for row in rows)
    if cost:
        if cost == "tenant" and not session.settings.tenants:
            output.note("Set HOLDFAST_TENANTS to the prefixes of the tenants' thread ids, such as acme-,globex-.")
        rows = cost_rows(rows, cost, session.settings.tenants)
    elif tree:
        rows = as_trees(rows)
    if output.as_json:
        for row in rows:
            output.result(row)
        return OK
    if cost:
        output.result(rows, costs_screen(rows, cost))
    else:
        output.result(rows, list_screen([indented_row(row) for row in rows] if tree else rows))
    if not rows:
        output.note("No threads" + (f" with status {status}." if status else " yet."))
    elif silent:
        output.note(f"No worker answered for {count(silent, 'thread')}: the rows are Temporal's index, which lags.")
    if listed == limit:
        output.note(f"There may be more than these {limit}; --limit shows more.")
    return OK


@verbs.verb("log rel-1.2", "log rel-1.2 --follow --json", "log rel-1.2 --after 40")
async def log(
    session: Session,
    thread: Thread,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the run ends.")] = False,
    after: Annotated[int, typer.Option(min=-1, metavar="N", help="Only events after position N.")] = -1,
) -> int:
    """Print the events of a thread, of all its runs, or of a loop."""
    threads = await session.connect(thread)
    from holdfast.cli.screens.event_lines import event_line
    from holdfast.client.follow import follow as follow_events
    from holdfast.core.base.canonical import canonical, unportable

    description = await _find(session, threads, thread, loops=True)
    if follow:
        events = follow_events(threads, thread, after=after, note=session.output.note, loops=True)
    else:
        events = threads.events(thread, after=after, found=description, note=session.note_silence, loops=True)
    async for event in events:
        line = None if unportable(event) else canonical(event)
        session.output.result(event, None if session.output.as_json else event_line(event), line=line)
    return OK


@verbs.verb(
    "transcript rel-1.2",
    "transcript rel-1.2 --active",
    "transcript rel-1.2 --at 17",
    "transcript rel-1.2 --json | jq -r .content",
)
async def transcript(
    session: Session,
    thread: Thread,
    active: Annotated[
        bool, typer.Option("--active", help="Only messages that the LLM gets now: since the last context compaction.")
    ] = False,
    at: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="As it was right after the event at position N.")
    ] = None,
) -> int:
    """Print a thread's messages, oldest first."""
    threads = await session.connect(thread)
    from holdfast.cli.screens.event_words import message_text

    async for message in threads.messages(thread, active=active, at=at, note=session.note_silence):
        session.output.result(message, None if session.output.as_json else message_text(message))
    return OK


@verbs.verb("artifact rel-1.2 sha256:9f86…", "artifact rel-1.2 sha256:9f86… --output build.log")
async def artifact(
    session: Session,
    thread: Thread,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As a clipped result gives it: sha256:…")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it to a new file, instead of stdout.")
    ] = None,
) -> int:
    """Print an artifact that a thread's log refers to: a long result, or a large image.

    Content whose digest differs from the address is not printed. A terminal gets only text, with control characters
    escaped; a pipe or FILE gets the bytes. --json prints size, digest and media type.
    """
    threads = await session.connect(thread)
    from holdfast.client.artifacts import TEXT, read_artifact

    store = await session.parts.artifacts()
    artifact = await read_artifact(threads, store, thread, address, note=session.note_silence)
    if output:
        try:
            with output.open("xb") as file:
                file.write(artifact.content)
        except OSError as error:
            raise typer.BadParameter(f"--output {output} cannot be written: {error.strerror}") from None
    if session.output.as_json:
        digest = address.partition(":")[2]
        size, kind = len(artifact.content), artifact.media_type
        view = {"address": address, "size": size, "digest": digest, "media_type": kind, "position": artifact.position}
        session.output.result(view)
    elif not output and not sys.stdout.isatty():
        sys.stdout.buffer.write(artifact.content)
        sys.stdout.flush()
    elif not output and artifact.media_type != TEXT:
        size, kind = len(artifact.content), artifact.media_type
        raise typer.BadParameter(f"it is {kind} of {size:,} bytes, and stdout is a terminal: use --output FILE")
    elif not output:
        print(visible(artifact.content.decode()))
    else:
        session.output.note(f"{len(artifact.content):,} bytes of {artifact.media_type} in {output}")
    return OK


@verbs.verb("prompt rel-1.2", "prompt rel-1.2 --json | jq '.tiers[] | {tier, tokens}'", "prompt rel-1.2 --raw | jq .")
async def prompt(
    session: Session,
    thread: Thread,
    raw: Annotated[bool, typer.Option("--raw", help="The request's body alone, byte for byte.")] = False,
) -> int:
    """Show the next request to the LLM, tier by tier.

    Instructions, tools, skills, strategies, standing memory, files and the transcript, each with its size and its
    share of its token budget; and the conditions before it is sent. Tokens are estimated, at four bytes a token.
    """
    threads = await session.connect(thread)
    from holdfast.cli.screens.prompt_screens import prompt_screen
    from holdfast.client.prompts import prompt_of

    description = await _find(session, threads, thread)
    next_prompt = await prompt_of(threads, thread, found=description, note=session.note_silence)
    if raw:
        # Byte for byte, except on a terminal, which would act on some of the bytes.
        body = visible(next_prompt.body.decode()).encode() if sys.stdout.isatty() else next_prompt.body
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.flush()
        return OK
    view = next_prompt.view()
    session.output.result(view, None if session.output.as_json else prompt_screen(next_prompt, view))
    return OK


@verbs.verb("pending", "pending rel-1.2 --json")
async def pending(
    session: Session,
    thread: Annotated[str | None, typer.Argument(metavar="[THREAD]", help="[default: all threads]")] = None,
) -> int:
    """Print the requests that wait for a decision; without a worker, from Temporal's history."""
    threads = await session.connect(thread)
    from holdfast.cli.screens.request_screens import request_screen
    from holdfast.client.pending import UnreachableThread, list_pending
    from holdfast.client.trees import pending_of_tree

    if thread is None:
        requests, unanswered = await list_pending(threads, note=session.note_silence)
    else:
        requests, unread = await pending_of_tree(threads, thread, note=session.note_silence)
        unanswered = [UnreachableThread(*each) for each in unread.items()]
    output = session.output
    for request in requests:
        output.result(request, None if output.as_json else request_screen(request))
    if not requests and not unanswered and not output.as_json:
        output.note("No request waits for a decision.")
    for each in unanswered:
        output.note(f"{visible(each.thread)}: {each.error}")
    return UNREACHABLE if unanswered else OK


@verbs.verb("watch rel-1.2", interrupted=OK, farewell="Left; the run continues.")
async def watch(session: Session, thread: Thread, by: By = None, key: Key = None) -> int:
    """Watch a run live, and act on it in place.

    Keys decide its requests and send messages. Without a terminal, this prints the log until the run ends.
    """
    live = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    if not live or session.output.as_json:
        return await log(session, thread, follow=True)
    private = session.private_key(key)
    threads = await session.connect(thread)
    from holdfast.cli.screens.watch import watch as watch_live

    await threads.reader.find(thread)
    name = session.person(by)
    console, hub = session.output.out, await session.parts.hub()
    if not await watch_live(threads, thread, console=console, by=name, private=private, hub=hub):
        session.output.note(f"Left {visible(thread)}; the run continues.")
        return OK
    return await show(session, thread)


async def _show_at(session: Session, threads: "Threads", thread: str, at: int) -> None:
    description = await _find(session, threads, thread)
    state = await threads.state_at(thread, at, note=session.note_silence)
    print_state(session, threads, {**state, "at": at}, description)


async def _show_now(session: Session, threads: "Threads", thread: str) -> None:
    from holdfast.client.showing import show_thread
    from holdfast.errors import ServerUnreachable

    description = await _find(session, threads, thread)
    notes: list[str] = []
    try:
        shown = await show_thread(threads, thread, found=description, note=notes.append)
        state = await _with_arguments(session, threads, thread, shown.view)
    except ServerUnreachable:
        if description:
            session.output.note(session.describe_in_temporal(threads, description))
        raise
    for note in notes:
        about = f"{session.describe_in_temporal(threads, description)}\n" if description else ""
        session.output.note(f"{about}{visible(note)}")
    print_state(session, threads, state, description, last=shown.last)


async def _find(
    session: Session, threads: "Threads", thread: str, *, loops: bool = False
) -> "WorkflowExecutionDescription | None":
    """Return Temporal's description of a thread, or of a loop if allowed.

    If only the permanent record has it, print a note and return None.
    """
    description = await threads.reader.find(thread, loops=loops)
    if description is None:
        session.note_forgotten(thread)
    return description


async def _with_arguments(session: Session, threads: "Threads", thread: str, state: "JSON") -> "JSON":
    """Return the state, with the arguments of remembered rules, which only the log has."""
    from holdfast.client.remembered import rules_with_arguments
    from holdfast.errors import HoldfastError

    if rules := state.get("remembered"):
        try:
            log = threads.events(thread, note=lambda _: None)
            return {**state, "remembered": await rules_with_arguments(rules, log)}
        except HoldfastError as error:
            session.output.note(f"Some of the log cannot be read: {visible(str(error))}")
    return state
