"""Compares a run's log with the outside world: no effect happened twice or is lost, and no decision is lost."""

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from holdfast.core.log import events as ev
from holdfast.core.log.event_log import first_altered
from holdfast.core.temporal.history_reader import read_events
from holdfast.core.tools.effects import Effect
from holdfast.errors import HistoryUnreadable
from holdfast.testing.kill_matrix.audit_interventions import audit_pauses, audit_waits
from holdfast.testing.kill_matrix.plan import Stop

_CLOSED = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
)

Effects = Mapping[str, int]
"""Effect key (`ToolContext.key`) → the number of times that the effect has happened in the outside world."""


class RecordedLog:
    """A thread's events, read from Temporal's histories without a worker.

    Args:
        client: A client of the server.
        thread: The thread id, which is the workflow id.
        run_id: Temporal's id of the thread's first run.
    """

    def __init__(self, client: Client, thread: str, run_id: str) -> None:
        self._client = client
        self.thread = thread
        self.run_id = run_id
        self.events: list[ev.AgentEvent] = []
        self.closed = False
        self.continuations = 0
        """The number of times that the run has continued as new."""

    async def refresh(self) -> None:
        """Read the new events.

        Raises:
            RPCError: The server does not answer.
            HistoryUnreadable: A history cannot be read. A note names a file in the temporary directory that has it.
        """
        while not self.closed:
            handle = self._client.get_workflow_handle(self.thread, run_id=self.run_id)
            fetched = await handle.fetch_history()
            history = fetched.events
            try:
                own = read_events(history)
            except HistoryUnreadable as error:
                file = Path(tempfile.gettempdir(), f"unreadable-{self.thread}-{self.run_id}.json")
                await asyncio.to_thread(file.write_text, fetched.to_json())
                error.add_note(f"the history is in {file}")
                raise
            if own:
                self.events = self.events[: own[0].position] + own
            last = history[-1]
            if not last.HasField("workflow_execution_continued_as_new_event_attributes"):
                self.closed = last.event_type in _CLOSED
                return
            self.run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            self.continuations += 1

    @property
    def open_requests(self) -> list[ev.ApprovalRequested | ev.ReconcileRequested]:
        """The requests without an accepted decision."""
        decided = {e.request for e in self.events if isinstance(e, ev.DecisionReceived) and e.outcome == "accepted"}
        requests = [e for e in self.events if isinstance(e, ev.ApprovalRequested | ev.ReconcileRequested)]
        return [event for event in requests if event.request.id not in decided]

    @property
    def keys(self) -> dict[int, str]:
        """The effect key of each started call, by the call's number."""
        return {event.number: event.key for event in self.events if isinstance(event, ev.ToolCallStarted)}


def audit(events: Sequence[ev.AgentEvent], *, effects: Effects, sent: Iterable[str] = ()) -> list[str]:
    """Find the faults of a run that has ended.

    Args:
        events: All events of the run.
        effects: The effects in the outside world; they may include those of other runs.
        sent: The approver of each decision that was sent; each decision has a different one.

    Returns:
        A sentence for each fault; empty for none. Faults are: an effect that happened twice, or never although the log
        says so; a call without a result; a lost decision; a wait that ended twice or without a cause; something that
        started while the run was paused; an altered log; a run that did not complete.
    """
    faults = []
    if (altered := first_altered(list(events))) is not None:
        faults.append(f"event {altered} does not follow from the one before it")
    # A moved run continues in another place.
    ends = [event for event in events if isinstance(event, ev.RunFinished) and event.outcome != "moved"]
    if [end.outcome for end in ends] != ["completed"]:
        faults.append(f"the run did not complete: {[(end.outcome, end.result) for end in ends]}")
    received = {event.by for event in events if isinstance(event, ev.DecisionReceived)}
    faults += [f"the decision of {by} is lost" for by in sent if by not in received]
    specs = [event.spec for event in events if isinstance(event, ev.AgentLoaded)]
    names = {event.number: event.call.name for event in events if isinstance(event, ev.ToolCallRequested)}
    started = {event.number: event.key for event in events if isinstance(event, ev.ToolCallStarted)}
    finished = {event.number: event for event in events if isinstance(event, ev.ToolCallFinished)}
    for number, key in started.items():
        name = names.get(number, "an unknown tool")
        tool = next((tool for spec in specs if (tool := spec.tool(name))), None)
        what = f"call {number} of {name} ({key})"
        count = effects.get(key, 0)
        end = finished.get(number)
        if end is None:
            faults.append(f"{what} has no result")
        if count > 1:
            faults.append(f"{what} happened {count} times")
        if end and end.status == "ok" and not count and tool and tool.effect is not Effect.READ:
            faults.append(f"{what} is lost: the log says that it happened, but it did not")
    return faults + audit_waits(events) + audit_pauses(events)


def audit_stop(log: RecordedLog, stop: Stop) -> list[str]:
    """Find a stop at the wrong point: an event must not be recorded before its boundary, and must be after it."""
    moment, _, what = stop.boundary.partition(" ")
    place, _, position = stop.place.rpartition("/")
    if place != log.thread:
        return []  # the stop is not at an event, or in another run
    recorded = int(position) < len(log.events)
    if recorded == (moment == "after"):
        return []
    return [f"the worker stopped {moment} {what}, but event {position} was {'' if recorded else 'not '}recorded"]
