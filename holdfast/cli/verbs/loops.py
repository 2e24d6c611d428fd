"""The verb that starts a loop: loop. `show`, `retry`, `pause`, `resume` and `cancel` accept loops, too."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.exits import FAILED, OK
from holdfast.cli.options import By, ContextOption, NodesOption, Verbs, read_context, read_nodes
from holdfast.cli.reports import print_loop
from holdfast.cli.session import Session
from holdfast.config.programs import CLI, WORKER

if TYPE_CHECKING:
    from holdfast.client.threads import Started, Threads

verbs = Verbs()


@verbs.verb(
    'loop . --task "Everything in features.json works"',
    "loop ~/site --agent builder --iterations 20 --cost 5 --wait",
    farewell="Not waiting any longer; the loop continues.",
)
async def loop(
    session: Session,
    workspace: Annotated[Path, typer.Argument(metavar="DIR", help="A folder on the worker's machine.")],
    task: Annotated[
        str, typer.Option(metavar="TEXT", help="The purpose of all tasks; required if DIR has no TASKS.md.")
    ] = "",
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="The agent for the tasks. [default: the catalog's first]")
    ] = None,
    initializer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The agent that writes a missing TASKS.md. [default: the same]")
    ] = None,
    name: Annotated[str | None, typer.Option("--id", metavar="ID", help="[default: a fresh one]")] = None,
    iterations: Annotated[
        int, typer.Option(min=1, help="Block the loop after this many; `retry` allows as many again.")
    ] = 100,
    cost: Annotated[
        float | None, typer.Option(min=0.01, metavar="USD", help="The same for dollars, by list prices.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="The same for tokens of requests and replies.")] = None,
    hours: Annotated[float | None, typer.Option(min=0.001, help="The same for time since its start.")] = None,
    attempts: Annotated[int, typer.Option(min=1, help="The same for failures in a row at one task.")] = 3,
    context: ContextOption = None,
    nodes: NodesOption = None,
    unattended: Annotated[
        bool,
        typer.Option("--unattended", help="Nobody is there: it and its runs fail instead of waiting for a person."),
    ] = False,
    by: By = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is done, blocked or paused; exit 1 if it is not done.")
    ] = False,
) -> int:
    """Work through a folder's TASKS.md, task by task.

    Each task gets a fresh agent run, until all are done. People may edit the files at any time. Every step is a commit
    in the folder's git repository.
    """
    given, selected = read_context(context), read_nodes(nodes)
    threads = await session.connect(name)
    if agent or initializer:
        from holdfast.cli.checks.offered_agents import check_offered

        await check_offered(session, threads, [agent, initializer])
    from holdfast.client.loops import start_loop, wait_until_surveyed
    from holdfast.core.loop.state import LoopInput
    from holdfast.core.tools.typed_context import context_values

    person = session.person(by)
    fields = {
        "workspace": str(workspace.expanduser().absolute()),
        "task": task,
        "agent": agent,
        "initializer": initializer,
        "limits": {
            "iterations": iterations,
            "cost": cost,
            "tokens": tokens,
            "seconds": hours * 3600 if hours else None,
            "attempts": attempts,
        },
        "when_blocked": "fail" if unattended else None,
        "by": person,
        "by_proven": session.is_own(person),
        "context": context_values(given),
        "nodes": selected,
    }
    started = await start_loop(threads, LoopInput.model_validate(fields), name=name)
    if not await wait_until_surveyed(threads, started.thread):
        session.output.note(
            f"No worker has picked it up yet; start one with `{WORKER.command('--dev')}` "
            f"(task queue {session.settings.task_queue!r})."
        )
    return await _wait(session, threads, started.thread) if wait else _report(session, threads, started)


def _report(session: Session, threads: "Threads", started: "Started") -> int:
    """Print the started loop."""
    from rich.text import Text

    link = session.link(threads, started.thread, started.run_id)
    screen = Text.assemble(
        "Started ",
        (started.thread, "bold"),
        f"\n  {CLI.command('show', started.thread)}",
        f"\n  {link}" if link else "",
    )
    session.output.result({"thread": started.thread, "run_id": started.run_id, "status": "running", "ui": link}, screen)
    return OK


async def _wait(session: Session, threads: "Threads", name: str) -> int:
    """Wait until a loop is done, blocked or paused, and show each iteration."""
    from holdfast.cli.screens.loop_screens import iteration_line
    from holdfast.client.loops import follow_loop

    shown: set[tuple[int, str | None]] = set()
    state: dict[str, Any] = {}
    with session.output.err.status(f"{name} is running"):
        async for state in follow_loop(threads, name):
            for each in state["iterations"]:
                if (each["number"], each["outcome"]) not in shown:
                    shown.add((each["number"], each["outcome"]))
                    session.output.progress(iteration_line(each))
    await print_loop(session, threads, name, await threads.runs.describe(name, loops=True))
    return OK if state["status"] == "completed" else FAILED
