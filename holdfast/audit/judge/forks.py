"""Finds the thread of each part of a forked log: the events before a fork belong to the original."""

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
    """Return the first of these events and those that may have been recorded with it, up to a fork: a fork may separate
    two events that were recorded together.
    """
    forks = [index for index, event in enumerate(events) if index and event.type == "run_forked"]
    return events[: forks[0]] if forks else events
