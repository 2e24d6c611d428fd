"""What a run's log says, held against the world: no effect twice, none lost, no decision lost."""

from collections.abc import Iterable, Mapping, Sequence

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from holdfast.log.event_log import first_altered
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    ReconcileRequested,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
)
from holdfast.temporal.history_reader import read_events
from holdfast.testing.kill_matrix.plan import Stop
from holdfast.tools.effects import Effect

_CLOSED = (
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
)

Effects = Mapping[str, int]
"""How often each effect has happened, by its key (`ToolContext.key`)."""


class RecordedLog:
    """A thread's events as Temporal's histories have them: no worker is asked.

    Args:
        client: Of the server.
        thread: The workflow id.
        run_id: Temporal's first run of the thread.
    """

    def __init__(self, client: Client, thread: str, run_id: str) -> None:
        self._client = client
        self.thread = thread
        self.run_id = run_id
        self.events: list[AgentEvent] = []
        self.closed = False
        self.moves = 0
        """How often it has gone on in a new Temporal run."""

    async def refresh(self) -> None:
        """Read what is new.

        Raises:
            RPCError: The server does not answer.
        """
        while not self.closed:
            handle = self._client.get_workflow_handle(self.thread, run_id=self.run_id)
            history = (await handle.fetch_history()).events
            if own := read_events(history):
                self.events = self.events[: own[0].position] + own
            last = history[-1]
            if not last.HasField("workflow_execution_continued_as_new_event_attributes"):
                self.closed = last.event_type in _CLOSED
                return
            self.run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            self.moves += 1

    @property
    def open_requests(self) -> list[ApprovalRequested | ReconcileRequested]:
        """The requests that nobody has decided."""
        decided = {e.request for e in self.events if isinstance(e, DecisionReceived) and e.outcome == "accepted"}
        asked = [e for e in self.events if isinstance(e, ApprovalRequested | ReconcileRequested)]
        return [event for event in asked if event.request.id not in decided]

    @property
    def keys(self) -> dict[int, str]:
        """The key of each call that was started, by its number."""
        return {event.number: event.key for event in self.events if isinstance(event, ToolCallStarted)}


def audit(events: Sequence[AgentEvent], *, effects: Effects, sent: Iterable[str] = ()) -> list[str]:
    """What is wrong with a run that has ended; nothing, if all is well.

    Args:
        events: All of its events.
        effects: What has happened in the world; other runs' effects may be among it.
        sent: Who decided: each decision was sent under a name of its own.

    Returns:
        A sentence for each: an effect that happened twice, or never though the log says so; a call that came to
        no end; a decision that never arrived; a log that is altered; a run that did not complete.
    """
    wrong = []
    if (altered := first_altered(list(events))) is not None:
        wrong.append(f"event {altered} does not follow from the one before it")
    ends = [event for event in events if isinstance(event, RunFinished)]
    if [end.outcome for end in ends] != ["completed"]:
        wrong.append(f"the run did not complete: {[(end.outcome, end.result) for end in ends]}")
    received = {event.by for event in events if isinstance(event, DecisionReceived)}
    wrong += [f"the decision of {by} is lost" for by in sent if by not in received]
    specs = [event.spec for event in events if isinstance(event, AgentLoaded)]
    names = {event.number: event.call.name for event in events if isinstance(event, ToolCallRequested)}
    started = {event.number: event.key for event in events if isinstance(event, ToolCallStarted)}
    finished = {event.number: event for event in events if isinstance(event, ToolCallFinished)}
    for number, key in started.items():
        name = names.get(number, "an unknown tool")
        tool = next((tool for spec in specs if (tool := spec.tool(name))), None)
        what = f"call {number} of {name} ({key})"
        count = effects.get(key, 0)
        end = finished.get(number)
        if end is None:
            wrong.append(f"{what} came to no end")
        if count > 1:
            wrong.append(f"{what} happened {count} times")
        if end and end.status == "ok" and not count and tool and tool.effect is not Effect.READ:
            wrong.append(f"{what} is lost: the log says that it happened, and it did not")
    return wrong


def misplaced(log: RecordedLog, stop: Stop) -> list[str]:
    """What is wrong with where a worker has stopped: its event must be recorded after it, and not before."""
    moment, _, what = stop.boundary.partition(" ")
    place, _, position = stop.place.rpartition("/")
    if place != log.thread:
        return []  # not an event, or of another run
    recorded = int(position) < len(log.events)
    if recorded == (moment == "after"):
        return []
    return [f"it was stopped {moment} {what}, and event {position} was {'' if recorded else 'not '}recorded"]
