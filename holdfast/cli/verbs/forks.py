"""Verbs that return to an earlier event of a thread, or compare: fork, restart, diff."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import ContextOption, Thread, Verbs, read_content, read_context
from holdfast.cli.session import Session, normalized_name
from holdfast.cli.text import brief, visible
from holdfast.config.programs import CLI, WORKER

if TYPE_CHECKING:
    from holdfast.client.threads import Threads
    from holdfast.core.authority.policy import Policy

verbs = Verbs()

NewId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="The new thread's id. [default: the thread's, with an addition]"),
]
AgentName = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Another agent, with its LLM and policy.")
]
Workspace = Annotated[
    Path | None, typer.Option("--workspace", metavar="DIR", help="A folder on the worker's machine. [default: its own]")
]
ByName = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Who you are. [default: HOLDFAST_BY]")]


@verbs.verb(
    "fork rel-1.2 --at 40",
    'fork rel-1.2 --at 40 --say "Try the other branch" --id rel-1.2-b',
    'fork rel-1.2 --edit-message "Only the notes"   # in place of the last message',
    "fork rel-1.2 --at 40 --agent cautious --json",
    "fork rel-1.2 --at 40 --llm gpt-5-mini --policy stricter.yaml",
)
async def fork(
    session: Session,
    thread: Thread,
    at: Annotated[
        int | None,
        typer.Option("--at", min=1, metavar="N", help="The last event that the fork has. [default: the thread's last]"),
    ] = None,
    id: NewId = None,
    say: Annotated[
        str | None, typer.Option("--say", metavar="MESSAGE", help="The fork's first message; - reads stdin.")
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            "--edit-message",
            metavar="MESSAGE",
            help="Replace the last message up to N, and leave out everything after it; - reads stdin.",
        ),
    ] = None,
    agent: AgentName = None,
    llm: Annotated[
        str, typer.Option("--llm", metavar="NAME", help="Another LLM for its agents, at the worker's endpoint.")
    ] = "",
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", metavar="FILE", help="Judge its calls by this policy, too: the strictest verdict counts."
        ),
    ] = None,
    workspace: Workspace = None,
    context: ContextOption = None,
    by: ByName = None,
) -> int:
    """Fork a thread: a new thread that begins with the same events, byte for byte. The old one does not change.

    Nothing that happened before N happens again. Effects after N need approval until an approver lifts that
    (`lift FORK 0`). The fork has its own folder: if the old thread works in a repository, a git work tree at the
    commit of that time.
    """
    from rich.text import Text

    from holdfast.client import forks
    from holdfast.client.reading.states import CLOSED

    message = None if say is None else read_content(say, None, name="--say")
    edited = None if edit is None else read_content(edit, None, name="--edit-message")
    if say is not None and edit is not None:
        raise typer.BadParameter("give --say or --edit-message, not both")
    given = read_context(context)
    policies: tuple[Policy, ...] = ()
    if policy is not None:
        from holdfast.config.policy_file import load_policy

        policies = (load_policy(policy.expanduser()),)
    threads = await session.connect(thread)
    author = normalized_name(by or session.settings.by or "")
    forked = await forks.fork(
        threads,
        thread,
        at=at,
        id=id,
        say=message,
        edit=edited,
        agent=agent,
        llm=llm,
        policies=policies,
        workspace=_path(workspace),
        by=author,
        by_proven=session.is_own(author),
        context=given,
    )
    state = await _wait_until_loaded(session, threads, forked.thread)
    verb = "Forked" if forked.new else "This fork exists:"
    screen = Text.assemble(
        f"{verb} {brief(thread)} after event {forked.point.position}: ",
        (brief(forked.thread), "bold"),
        f"\n  {CLI.command('watch', forked.thread)}",
    )
    status = state["status"] if state else "running"
    if status not in CLOSED:
        screen.append("\n  Its effects ask first; to let the policy decide again:")
        screen.append(f"\n  {CLI.command('lift', forked.thread, '0')}")
    session.output.result({**forks.fork_view(forked), "status": status}, screen)
    return _report_failure(session, status, state["result"] if state else "")


@verbs.verb("restart rel-1.2", 'restart rel-1.2 --task "Publish 1.3 instead" --id rel-1.3', "restart rel-1.2 --json")
async def restart(
    session: Session,
    thread: Thread,
    id: NewId = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Another task; - reads stdin.")] = None,
    agent: AgentName = None,
    workspace: Workspace = None,
    context: ContextOption = None,
    by: ByName = None,
) -> int:
    """Start a thread's task again in a new thread, with a clean slate. The old thread keeps its record.

    The new one has the same task, agent, context, requester and idle limit. It has its own folder unless --workspace
    names one.
    """
    from rich.text import Text

    from holdfast.client.restarts import restart as begin_again
    from holdfast.client.start_options import StartOptions

    content = None if task is None else read_content(task, None, name="--task")
    given = read_context(context)
    threads = await session.connect(thread)
    name = by or session.settings.by
    author = normalized_name(name) if name else ""
    options = StartOptions(
        agent=agent,
        workspace=_path(workspace),
        by=author,
        by_proven=bool(author) and session.is_own(author),
        context=given,
    )
    started = await begin_again(threads, thread, options, id=id, task=content)
    state = await _wait_until_loaded(session, threads, started.thread)
    status = state["status"] if state else "running"
    screen = Text.assemble(
        f"Started {brief(thread)} again: ",
        (brief(started.thread), "bold"),
        f"\n  {CLI.command('watch', started.thread)}",
    )
    result = {"thread": started.thread, "run_id": started.run_id, "restarted_from": thread, "status": status}
    session.output.result(result, screen)
    return _report_failure(session, status, state["result"] if state else "")


@verbs.verb("diff rel-1.2 rel-1.2-b", "diff rel-1.2@40 rel-1.2", "diff rel-1.2 rel-1.2-b --json | jq .common")
async def diff(
    session: Session,
    first: Annotated[str, typer.Argument(metavar="A", help="A thread, or THREAD@N for its events up to N.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same, of another thread or up to another event.")],
) -> int:
    """Compare two threads, or one at two events: common events, then messages, calls, verdicts and cost."""
    from holdfast.cli.screens.diff_screens import diff_screen, diff_view
    from holdfast.client.showing import compare_threads, parse_place

    places = parse_place(first), parse_place(second)
    threads = await session.connect(places[0][0])
    comparison = await compare_threads(threads, *places, note=session.note_silence)
    names = first, second
    if session.output.as_json:
        session.output.result(diff_view(comparison, names))
    else:
        session.output.out.print(diff_screen(comparison, names), soft_wrap=False)
    return OK


def _path(folder: Path | None) -> str | None:
    return str(folder.expanduser().absolute()) if folder else None


async def _wait_until_loaded(session: Session, threads: "Threads", thread: str) -> dict[str, object] | None:
    """Wait until a worker has loaded the new thread's agent; if none does in time, print a note and return None."""
    state = await threads.wait_until_loaded(thread)
    if state is None:
        session.output.note(
            f"No worker has picked it up yet; start one with `{WORKER.command('--dev')}` "
            f"(task queue {session.settings.task_queue!r})."
        )
    return state


def _report_failure(session: Session, status: object, result: object) -> int:
    if status == "failed":
        session.output.note(f"The run failed: {visible(str(result))}")
        return FAILED
    return OK
