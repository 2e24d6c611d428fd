"""Audits interventions by people and other systems: none is lost or counts twice, and nothing runs during a pause."""

from collections import Counter
from collections.abc import Collection, Sequence

from holdfast.core.log import events as ev
from holdfast.core.tools.triggers import EventTrigger, deadline


def audit_waits(events: Sequence[ev.AgentEvent]) -> list[str]:
    """Find faults in the waits of a run.

    Args:
        events: All events of a run that has ended.

    Returns:
        A sentence for each fault: a wait without exactly one result; one that ended early although nothing woke it; an
        event that ended no wait, or was buffered and ended several; an id that counted twice.
    """
    faults = []
    began = [event for event in events if isinstance(event, ev.DormancyBegan)]
    results = Counter(event.number for event in events if isinstance(event, ev.ToolCallFinished))
    for number, count in Counter(wait.number for wait in began).items():
        if count > 1:
            faults.append(f"call {number} began to wait {count} times")
        if results[number] != 1:
            faults.append(f"the wait of call {number} has {results[number]} results")
    received = [event for event in events if isinstance(event, ev.WakeReceived)]
    buffered = {event.position: event for event in received if event.outcome == "buffered"}
    for position, count in Counter(wait.wake for wait in began if wait.wake).items():
        if count > 1:
            faults.append(f"event {position} was kept once, and ended {count} waits")
    for wait in began:
        if wait.wake:
            wake = buffered.get(wait.wake)
            if wake is None or wait.position < wait.wake or not _matches(wait, wake):
                faults.append(f"call {wait.number} did not wait for event {wait.wake}, which ended its wait")
    ids = Counter(event.id for event in received if event.id)
    faults += [f"event {id} counted {count} times" for id, count in ids.items() if count > 1]
    return faults + _misplaced_results(events, {wait.number: wait for wait in began})


def _misplaced_results(events: Sequence[ev.AgentEvent], waits: dict[int, ev.DormancyBegan]) -> list[str]:
    """Check the cause of each result: the results of one wake follow it immediately in the log."""
    faults = []
    cause: ev.AgentEvent | None = None
    for event in events:
        wait = waits.get(event.number) if isinstance(event, ev.ToolCallFinished) else None
        if wait is None:
            if isinstance(cause, ev.WakeReceived) and cause.outcome == "delivered":
                faults.append(f"event {cause.position} was delivered, and ended no wait")
            cause = event
            continue
        assert isinstance(event, ev.ToolCallFinished)
        if isinstance(cause, ev.WakeReceived) and cause.outcome == "delivered":
            if cause.event and not _matches(wait, cause):
                faults.append(f"call {wait.number} did not wait for event {cause.position}, which ended its wait")
            # Mark that the event has ended a wait.
            cause = cause.model_copy(update={"outcome": "buffered"})
        elif not isinstance(cause, ev.WakeReceived | ev.UserMessageReceived | ev.TaskRefined) and not wait.wake:
            until = deadline(wait.trigger)
            counts = isinstance(wait.trigger, EventTrigger) and wait.trigger.counts  # perhaps kept events
            if event.status == "ok" and not counts and (until is None or event.at < until):
                faults.append(f"call {wait.number} was woken by nothing, before its time")
    return faults


def _matches(wait: ev.DormancyBegan, wake: ev.WakeReceived) -> bool:
    trigger = wait.trigger
    if not isinstance(trigger, EventTrigger):
        return False
    if trigger.counts:  # an event that does not match may show that enough can no longer match
        return trigger.event == wake.event
    return trigger.fits(wake.event, wake.data)


def audit_pauses(events: Sequence[ev.AgentEvent]) -> list[str]:
    """Find activity of a run while it was paused.

    Args:
        events: All events of the run.

    Returns:
        A sentence for each start during a pause, for a run that completed during one, for more LLM replies than the one
        call under way can have, and for a resumption of a run that was not paused.
    """
    faults = []
    pause: ev.RunPaused | None = None
    replies = 0
    for event in events:
        match event:
            case ev.RunPaused():
                replies, pause = (replies if pause else 0), event
            case ev.RunResumed():
                if pause is None:
                    faults.append(f"event {event.position} resumed a run that was not paused")
                pause = None
            case _ if pause is None:
                continue
            case ev.ToolCallStarted() | ev.MessageTaken() | ev.DormancyBegan() | ev.RunFinished(outcome="completed"):
                faults.append(f"event {event.position}, {event.type}, came while the run was paused")
            case ev.LLMReplied() | ev.ContextCompacted():
                replies += 1
                if replies > 1:
                    faults.append(f"event {event.position} is reply {replies} of the LLM while the run was paused")
    return faults


def audit_sent(events: Sequence[ev.AgentEvent], *, ids: Collection[str], refinements: Collection[str]) -> list[str]:
    """Find events and refinements that were sent to a run, and are not in its log exactly once.

    Args:
        events: All events of the run.
        ids: The ids of events that Temporal accepted.
        refinements: The ids of refinements that Temporal accepted.
    """
    woken = Counter(event.id for event in events if isinstance(event, ev.WakeReceived))
    refined = Counter(event.id for event in events if isinstance(event, ev.TaskRefined))
    late = {event.signal for event in events if isinstance(event, ev.SignalRejected) and event.outcome == "too_late"}
    faults = []
    for signal, sent, counts in (("wake", ids, woken), ("refine", refinements, refined)):
        for id in sorted(sent):
            if counts[id] > 1 or (not counts[id] and signal not in late):
                faults.append(f"{signal} {id} was sent, and is in the log {counts[id]} times")
    return faults
