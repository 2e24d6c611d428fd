"""What verbs of several groups print: the state of a thread or a loop, and what became of an order."""

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
    found: "WorkflowExecutionDescription | None",
    *,
    last: "JSON | None" = None,
    asking: bool = True,
) -> None:
    """Print the state of a thread.

    Args:
        session: Where to.
        threads: For the link to the Web UI.
        state: As `Threads.state` has it.
        found: What Temporal knows of the latest run; None where it knows nothing.
        last: The thread's last event, where it is known.
        asking: The screen shows the open requests.
    """
    from holdfast.cli.screens.costs import with_cost
    from holdfast.cli.screens.thread_screens import show_screen
    from holdfast.client.reading.runs import retrying

    state = with_cost(state)
    link = session.link(threads, found.id, found.run_id) if found else None
    retries = retrying(found) if found and "at" not in state else []
    screen = show_screen(state if asking else {**state, "pending": []}, retrying=retries, ui=link, last=last)
    session.output.result({**state, "ui": link}, screen)


async def print_loop(
    session: Session,
    threads: "Threads",
    name: str,
    found: "WorkflowExecutionDescription | None",
    *,
    at: int | None = None,
) -> None:
    """Print where a loop is, or was right after one of its events.

    Args:
        session: Where to.
        threads: Reads the loop.
        name: The loop's id.
        found: What Temporal knows of it; None where only the permanent record has it.
        at: The position of the event; None for now.
    """
    from holdfast.cli.screens.loop_screens import loop_screen
    from holdfast.client.loops import loop_state, loop_state_at

    link = session.link(threads, found.id, found.run_id) if found else None
    if found and at is None:
        state = await loop_state(threads, found, note=session.note_silence)
    else:
        state = await loop_state_at(threads, name, at, found=found, note=session.note_silence)
        state |= {} if at is None else {"at": at}
    session.output.result({**state, "ui": link}, loop_screen(state, ui=link))


def report_outcome(session: Session, thread: str, decided: "UpdateResult") -> int:
    """Print what became of an order to a run or a loop."""
    from rich.text import Text

    session.output.result({"outcome": decided.outcome}, Text(f"{visible(thread)}: {decided.explanation}"))
    return OK if decided.counts else REFUSED
