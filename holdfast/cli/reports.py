"""Output that several groups of verbs share: the state of a thread or a loop, and the outcome of a command."""

from typing import TYPE_CHECKING

from holdfast.cli.exits import OK, REFUSED
from holdfast.cli.session import Session
from holdfast.cli.text import visible

if TYPE_CHECKING:
    from temporalio.client import WorkflowExecutionDescription

    from holdfast.client.sending import UpdateResult
    from holdfast.client.threads import JSON, Threads


def print_state(
    session: Session,
    threads: "Threads",
    state: "JSON",
    description: "WorkflowExecutionDescription | None",
    *,
    last: "JSON | None" = None,
    asking: bool = True,
) -> None:
    """Print the state of a thread.

    Args:
        session: Has the output.
        threads: The namespace's threads, for the link to the Web UI.
        state: The view that `Threads.state` returns.
        description: Temporal's description of the latest run; None if Temporal has none.
        last: The thread's last event, if known.
        asking: Show the open requests on the screen.
    """
    from holdfast.cli.screens.costs import with_cost
    from holdfast.cli.screens.thread_screens import show_screen
    from holdfast.client.reading.runs import retrying

    state = with_cost(state)
    link = session.link(threads, description.id, description.run_id) if description else None
    retries = retrying(description) if description and "at" not in state else []
    screen = show_screen(state if asking else {**state, "pending": []}, retrying=retries, ui=link, last=last)
    session.output.result({**state, "ui": link}, screen)


async def print_loop(
    session: Session,
    threads: "Threads",
    name: str,
    description: "WorkflowExecutionDescription | None",
    *,
    at: int | None = None,
) -> None:
    """Print the state of a loop, now or right after one of its events.

    Args:
        session: Has the output.
        threads: The namespace's threads, to read the loop.
        name: The loop's id.
        description: Temporal's description of the loop; None if only the permanent record has it.
        at: The position of the event; None for now.
    """
    from holdfast.cli.screens.loop_screens import loop_screen
    from holdfast.client.loops import loop_state, loop_state_at

    link = session.link(threads, description.id, description.run_id) if description else None
    if description and at is None:
        state = await loop_state(threads, description, note=session.note_silence)
    else:
        state = await loop_state_at(threads, name, at, found=description, note=session.note_silence)
        state |= {} if at is None else {"at": at}
    session.output.result({**state, "ui": link}, loop_screen(state, ui=link))


def report_outcome(session: Session, thread: str, result: "UpdateResult") -> int:
    """Print the outcome of an intervention in a run or a loop; return the exit code."""
    from rich.text import Text

    session.output.result({"outcome": result.outcome}, Text(f"{visible(thread)}: {result.explanation}"))
    return OK if result.counts else REFUSED
