"""The total spent by a run and all runs below it, according to the run's log."""

from holdfast.client.reading.reader import Reader
from holdfast.client.reading.states import decode_lines
from holdfast.core.budget.tree import TreeCost, tree_cost
from holdfast.core.log.events import RunFinished, RunStarted
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.errors import (
    EventOutOfPlace,
    EventsMissing,
    HistoryUnreadable,
    LogBroken,
    RecordUnreadable,
    ThreadNotFound,
)


async def spent_by(reader: Reader, thread: str, *, first_run_id: str) -> TreeCost | None:
    """Return the total spent by a closed run and all runs below it; None if its log is unreadable or lacks the run.

    Calls in progress when the run was closed from outside count with their reservations. A run whose log ends before
    its agent was loaded has no account and has spent nothing.

    Args:
        reader: Reads the thread.
        thread: The thread id.
        first_run_id: The first run id of the chain of Temporal runs. Another run of the thread has another account.
    """
    state, own, cost = RunState(thread=thread), False, None
    try:
        async for event in decode_lines(reader.lines(thread, 0, found=None, note=None, use_worker=False)):
            state = evolve(state, event)
            if isinstance(event, RunStarted):
                if own:
                    break
                own = event.first_run_id == first_run_id
            if own:
                cost = tree_cost(state.account)
            if own and isinstance(event, RunFinished):
                cost = cost if state.spec else TreeCost()
                break
    except (ThreadNotFound, EventsMissing, HistoryUnreadable, LogBroken, RecordUnreadable, EventOutOfPlace):
        return None
    return cost
