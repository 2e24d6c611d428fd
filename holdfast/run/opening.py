"""How a run of a thread opens: the events that come before everything else. Pure functions."""

from holdfast.base.names import person_name
from holdfast.log.events import RunStarted, UserMessageReceived
from holdfast.run.consequences import Events, on_reopen
from holdfast.run.contracts import RunInput
from holdfast.run.features import SCHEDULED
from holdfast.run.state import RunState


def refuse_start(begin: RunInput, past: RunState) -> str:
    """Return why this start may not open another run of the thread; empty if it may: each counts once."""
    if begin.start and begin.start in past.origin.starts:
        return f"the start {begin.start} has begun a run of this thread before; say something to the thread instead"
    return ""


def opening_events(
    begin: RunInput, past: RunState, *, agent: str | None, thread: str, run_id: str, first_run_id: str
) -> Events:
    """Return the events that open a run: what was left open by a closed one, the start, and the task.

    Args:
        begin: The run's input.
        past: Where the thread's last run ended.
        agent: The agent to load; None for the catalog's first.
        thread: The workflow id.
        run_id: Temporal's id of this run.
        first_run_id: Temporal's first execution run id.
    """
    started = RunStarted(
        thread=thread,
        run_id=run_id,
        first_run_id=first_run_id,
        sealed=begin.proven,
        start=begin.start,
        user_proven=begin.proven and begin.by_proven,
        agent=agent,
        idle_limit=begin.idle_limit,
        depth=begin.depth,
        trust=begin.trust,
        schedule=begin.schedule if begin.features >= SCHEDULED else "",
    )
    task = UserMessageReceived(content=begin.task, by=_canonical_name(begin.by), task=True)
    return [*on_reopen(past), started, task]


def _canonical_name(by: str) -> str:
    """The one spelling of who gives the task; as it was given, where the run will fail for it."""
    try:
        return person_name(by)
    except ValueError:
        return by[:2_000]
