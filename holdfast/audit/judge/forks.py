"""Under which id each part of a forked thread's log stands: the events before a fork are the original's."""

from collections.abc import Sequence

from holdfast.core.log.events import AgentEvent, RunForked


def first_thread(events: Sequence[AgentEvent], thread: str) -> str:
    """Return the id of the thread to which the first of these events belongs.

    Args:
        events: Consecutive events of a log.
        thread: The id of the thread to which the last of them belongs.
    """
    for event in reversed(events):
        if isinstance(event, RunForked) and event.thread == thread:
            thread = event.origin
    return thread


def together(events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
    """Return the first of these events and those that may have been recorded with it: none beyond a fork, which may
    leave its original between two events that were recorded together.
    """
    forks = [place for place, event in enumerate(events) if place and event.type == "run_forked"]
    return events[: forks[0]] if forks else events
