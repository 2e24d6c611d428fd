"""The events of an agent run, rebuilt from its Temporal history: without a worker, the workflow's code or a server.

The history is read workflow task by workflow task, and what each task saw goes to the very functions that the
workflow calls (`holdfast.decide`), in the workflow's order:

1. Only completed tasks count. What a failed one saw is seen again by the next, at the next one's time.
2. Within a task: signals, then updates, then the run goes on; then the ends of activities, and the run goes on again.
3. A cancel request stops the run where it waits. Calls under way are waited for; the last events end the log.

What a task led to is checked against what the history holds: each activity that was scheduled must be the one that
the rebuilt events ask for, down to the digest of the transcript and the keys of effects.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ActivityFailureInfo, CanceledFailureInfo, Failure
from temporalio.api.history.v1 import History, HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.update.v1 import Request as UpdateRequest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.contracts import (
    WORKFLOW,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    RunInput,
    ToolOutcome,
    ToolRequest,
    cause_of,
)
from holdfast.decide import (
    SIGNALS,
    CallLLM,
    LoadAgent,
    Park,
    StartCalls,
    next_action,
    on_cancel,
    on_lost_agent,
    on_lost_call,
    on_outcome,
    on_payload,
    on_reply,
    on_signal,
    on_task,
)
from holdfast.effects import effect_key
from holdfast.errors import HistoryUnreadable
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    EventLog,
    RunParked,
    RunStarted,
    ToolCallStarted,
    UserMessageReceived,
)
from holdfast.model import Frozen
from holdfast.state import RunState, evolve
from holdfast.transcript import Transcript

_T = TypeVar("_T", bound=Frozen)

_ENDS = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
    }
)
_SEEN = _ENDS | {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
}
_MADE = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    }
)
_CLOSED = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    }
)
_READ = (
    _SEEN
    | _MADE
    | _CLOSED
    | {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
    }
)

_AGENT, _LLM, _TOOL = "load_agent", "call_llm", "call_tool"
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_SINGLE_BATCH = 2
"""The SDK's flag for another order within a task (`_WorkflowLogicFlag`), which no release of ours has switched on."""


def read_events(history: History | Iterable[HistoryEvent]) -> list[AgentEvent]:
    """The events that the run's completed workflow tasks recorded: positions, times and digests are the workflow's.

    Args:
        history: A whole history, as Temporal's client, CLI or Web UI download it, from the first event on.

    Raises:
        HistoryUnreadable: It is none of an agent run, is cut short, or does not decode; the message names the event.
    """
    events = list(history.events if isinstance(history, History) else history)
    begin = _check(events)
    run = _Run(begin, run_id=_run_id(events), admitted=_admitted(events))
    for task in _tasks(events):
        run.take(task)
    return run.log.events


@dataclass
class _Task:
    """A completed workflow task: what it saw, and what came of it."""

    event_id: int
    """Of its completion."""
    nanoseconds: int
    seen: list[HistoryEvent]
    made: list[HistoryEvent] = field(default_factory=list)
    closed: bool = False


def _check(events: Sequence[HistoryEvent]) -> WorkflowExecutionStartedEventAttributes:
    for number, event in enumerate(events, start=1):
        if event.event_id != number:
            _unreadable(number, f"it is missing; the history has {event.event_id} in its place")
        if event.event_type in _READ:
            kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
            if event.WhichOneof("attributes") != f"{kind}_event_attributes":
                _unreadable(number, f"it says that it is a {kind}, and has no attributes of one")
    if not events or not events[0].HasField("workflow_execution_started_event_attributes"):
        _unreadable(1, "a history begins with the start of its workflow")
    begin = events[0].workflow_execution_started_event_attributes
    if begin.workflow_type.name != WORKFLOW:
        _unreadable(1, f"it starts a workflow of type {begin.workflow_type.name!r}, and not an agent run")
    if not begin.workflow_id or not begin.first_execution_run_id:
        _unreadable(1, "it does not tell the workflow's ids")
    return begin


def _run_id(events: Sequence[HistoryEvent]) -> str:
    """The run's id. A reset copies the start of another run, and leaves the new id where it broke off."""
    run_id = events[0].workflow_execution_started_event_attributes.original_execution_run_id
    for event in events:
        failed = event.workflow_task_failed_event_attributes
        if failed.cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW:
            run_id = failed.new_run_id or run_id
    return run_id


def _admitted(events: Sequence[HistoryEvent]) -> dict[str, UpdateRequest]:
    """Requests of updates that the server keeps in history before they are accepted, as it does after a reset."""
    requests = [event.workflow_execution_update_admitted_event_attributes.request for event in events]
    return {request.meta.update_id: request for request in requests if request.meta.update_id}


def _tasks(events: Sequence[HistoryEvent]) -> list[_Task]:
    tasks: list[_Task] = []
    waiting: list[HistoryEvent] = []
    started: tuple[int, int] | None = None
    for event in events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                if not 0 < event.event_time.seconds < _END_OF_TIME:
                    _unreadable(event.event_id, "it has no time")
                started = (len(waiting), event.event_time.ToNanoseconds())
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED | EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                started = None
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                if started is None:
                    _unreadable(event.event_id, "a workflow task is completed that was not started")
                if _SINGLE_BATCH in event.workflow_task_completed_event_attributes.sdk_metadata.lang_used_flags:
                    _unreadable(event.event_id, "the worker's SDK ordered what happens at once in a way not known here")
                tasks.append(_Task(event.event_id, started[1], waiting[: started[0]]))
                waiting, started = waiting[started[0] :], None
            case kind if kind in _SEEN:
                waiting.append(event)
            case kind if kind in _MADE or kind in _CLOSED:
                if not tasks:
                    _unreadable(event.event_id, "no workflow task before it could have led to it")
                if kind in _MADE:
                    tasks[-1].made.append(event)
                tasks[-1].closed |= kind in _CLOSED
            case _:
                pass
    return tasks


class _Run:
    """The workflow's shell, without the workflow."""

    def __init__(
        self,
        begin: WorkflowExecutionStartedEventAttributes,
        *,
        run_id: str,
        admitted: Mapping[str, UpdateRequest],
    ) -> None:
        self.log = EventLog()
        self._state = RunState()
        self._transcript = Transcript()
        self._thread = begin.workflow_id
        self._run_id = run_id
        self._admitted = admitted
        self._first_run_id = begin.first_execution_run_id
        self._input = _decode(1, begin.input.payloads, RunInput)
        self._nanoseconds = 0
        self._wanted: list[tuple[str, int]] = []
        """Activities the current task asked for, by name, and a tool call's number: not yet seen scheduled."""
        self._open: dict[int, tuple[str, int]] = {}
        """Activities under way, by the id of the event that scheduled them."""
        self._shown = self._transcript.ref
        self._stopping = False
        self._over = False

    def take(self, task: _Task) -> None:
        """Record what one workflow task recorded."""
        if self._over:
            _unreadable(task.event_id, "the run was over before this workflow task")
        # Temporal's time never runs backwards within a run, whatever the server's clock does.
        self._nanoseconds = max(self._nanoseconds, task.nanoseconds)
        if not self.log.events:
            self._record(RunStarted(thread=self._thread, run_id=self._run_id, agent=self._input.agent))
            self._record(UserMessageReceived(content=self._input.task))
        for event in task.seen:
            if event.HasField("workflow_execution_signaled_event_attributes"):
                self._signal(event)
        for event in task.made:
            if event.HasField("workflow_execution_update_accepted_event_attributes"):
                self._update(event)
        self._go_on()
        ends = [event for event in task.seen if event.event_type in _ENDS]
        if any(event.HasField("workflow_execution_cancel_requested_event_attributes") for event in task.seen):
            self._cancel(ends)
        else:
            for event in ends:
                self._end(event)
        if self._stopping and not self._tools_under_way():
            self._record(*on_cancel(self._state))
            self._over = True
        self._go_on()
        self._match(task)

    def _signal(self, event: HistoryEvent) -> None:
        sent = event.workflow_execution_signaled_event_attributes
        payload: Any = None
        if sent.signal_name in SIGNALS and sent.input.payloads:
            try:
                payload = _from_payloads(event.event_id, sent.input.payloads, Any)
            except HistoryUnreadable:
                return  # the SDK drops a signal that it cannot decode
        self._record(*on_signal(self._state, sent.signal_name, payload))

    def _update(self, event: HistoryEvent) -> None:
        accepted = event.workflow_execution_update_accepted_event_attributes
        request = self._admitted.get(accepted.protocol_instance_id, accepted.accepted_request)
        if request.input.name != "decide":
            _unreadable(event.event_id, f"there is no update named {request.input.name!r}")
        payload = _from_payloads(event.event_id, request.input.args.payloads, Any)
        self._record(*on_payload(self._state, "decide", payload))

    def _go_on(self) -> None:
        """Do what the workflow's loop does until it waits."""
        while not self._stopping and not self._asking():
            match next_action(self._state):
                case LoadAgent():
                    if refused := on_task(self._input.task):
                        self._record(*refused)
                    else:
                        self._wanted.append((_AGENT, 0))
                case CallLLM():
                    self._shown = self._transcript.ref
                    self._wanted.append((_LLM, 0))
                case StartCalls(numbers=numbers):
                    for number in numbers:
                        self._record(ToolCallStarted(number=number, key=self._key(number)))
                        self._wanted.append((_TOOL, number))
                case Park(cause=cause, message=message):
                    self._record(RunParked(cause=cause, message=message))
                case _:
                    return

    def _asking(self) -> bool:
        """Whether the loop itself waits for an activity."""
        return any(name in (_AGENT, _LLM) for name, _ in [*self._wanted, *self._open.values()])

    def _tools_under_way(self) -> bool:
        return any(name == _TOOL for name, _ in self._open.values())

    def _end(self, event: HistoryEvent) -> None:
        """Record what the end of an activity leads to."""
        name, number = self._pop(event)
        error = _error(event)
        if name == _TOOL:
            outcome = (
                self._lost(number, error) if error else _decode(event.event_id, _result_payloads(event), ToolOutcome)
            )
            self._record(*on_outcome(self._state, number, outcome, at=self._now))
        elif error is not None and is_cancelled_exception(error):
            self._stopping = True
        elif name == _AGENT:
            if error:
                self._record(*on_lost_agent(*cause_of(error)))
            else:
                loaded = _decode(event.event_id, _result_payloads(event), LoadedAgent)
                self._record(AgentLoaded(spec=loaded.spec, spec_hash=loaded.spec.hash, workspace=loaded.workspace))
        elif error:
            cause, message = cause_of(error)
            self._record(RunParked(cause=cause, message=message))
        else:
            reply = _decode(event.event_id, _result_payloads(event), LLMReply)
            self._record(*on_reply(self._state, reply, shown=self._shown.length, at=self._now))

    def _cancel(self, ends: list[HistoryEvent]) -> None:
        """Stop the loop, and the tools that have not ended."""
        self._stopping = True
        # The loop is cancelled first and never sees what it asked for; tools that ended in the same task are recorded.
        for event in ends:
            if self._open.get(_scheduled(event), ("", 0))[0] == _TOOL:
                self._end(event)
            else:
                self._pop(event)
        # The LLM's call is given up at once; so is a call that this very task started, before the server knows of it.
        self._open = {event_id: each for event_id, each in self._open.items() if each[0] == _TOOL}
        unsent, self._wanted = self._wanted, []
        for name, number in unsent:
            if name == _TOOL:
                outcome = self._lost(number, _activity_error("Activity cancelled", _cancellation()))
                self._record(*on_outcome(self._state, number, outcome, at=self._now))

    def _match(self, task: _Task) -> None:
        """Find the activities that the task asked for among those that the history has."""
        for event in task.made:
            if not event.HasField("activity_task_scheduled_event_attributes"):
                continue
            scheduled = event.activity_task_scheduled_event_attributes
            name = scheduled.activity_type.name
            if not self._wanted or self._wanted[0][0] != name:
                _unreadable(event.event_id, f"nothing recorded before it asks for an activity {name!r}")
            _, number = self._wanted.pop(0)
            self._open[event.event_id] = (name, number)
            if name == _LLM:
                llm = _decode(event.event_id, scheduled.input.payloads, LLMRequest)
                if llm.transcript != self._shown:
                    _unreadable(event.event_id, "the transcript that the LLM was shown is not the one rebuilt")
            elif name == _TOOL:
                tool = _decode(event.event_id, scheduled.input.payloads, ToolRequest)
                if tool.key != self._key(number):
                    _unreadable(event.event_id, f"the key of call {number} is not the one rebuilt")
        if self._wanted:
            _unreadable(task.event_id, f"the history does not have the activity {self._wanted[0][0]!r} it led to")
        if task.closed != (self._state.outcome is not None):
            told = "ends the run, and what it saw does not" if task.closed else "does not end the run, as it should"
            _unreadable(task.event_id, f"this workflow task {told}")
        self._over = task.closed

    def _pop(self, event: HistoryEvent) -> tuple[str, int]:
        scheduled = _scheduled(event)
        if scheduled not in self._open:
            _unreadable(event.event_id, "it ends an activity that is not under way")
        return self._open.pop(scheduled)

    def _key(self, number: int) -> str:
        call_digest = self._state.call(number).call.digest
        return effect_key(thread=self._thread, first_run_id=self._first_run_id, number=number, call_digest=call_digest)

    def _lost(self, number: int, error: ActivityError) -> ToolOutcome:
        spec = self._state.spec
        tool = spec.tool(self._state.call(number).call.name) if spec else None
        assert tool is not None, "a call of an unknown tool never gets a verdict"
        return on_lost_call(tool.effect, *cause_of(error), cancelled=is_cancelled_exception(error))

    @property
    def _now(self) -> datetime:
        """The workflow's clock, with the SDK's way of rounding."""
        return datetime.fromtimestamp(self._nanoseconds / 1e9, UTC)

    def _record(self, *events: AgentEvent) -> None:
        for event in events:
            stamped = self.log.append(event, at=self._now)
            self._state = evolve(self._state, stamped)
            self._transcript.add(stamped)


def _scheduled(event: HistoryEvent) -> int:
    """The id of the event that scheduled the activity which this event ends."""
    scheduled: int = getattr(event, cast(str, event.WhichOneof("attributes"))).scheduled_event_id
    return scheduled


def _result_payloads(event: HistoryEvent) -> Sequence[Payload]:
    return event.activity_task_completed_event_attributes.result.payloads


def _error(event: HistoryEvent) -> ActivityError | None:
    """The exception that the SDK raises in the workflow; None for an activity that completed."""
    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            failure = failed.failure if failed.HasField("failure") else None
            return _activity_error("Activity task failed", failure, event.event_id)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            late = event.activity_task_timed_out_event_attributes
            failure = late.failure if late.HasField("failure") else None
            return _activity_error("Activity task timed out", failure, event.event_id)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            return _activity_error("Activity cancelled", _cancellation())
        case _:
            return None


def _cancellation() -> Failure:
    return Failure(canceled_failure_info=CanceledFailureInfo())


def _activity_error(message: str, cause: Failure | None, event_id: int = 0) -> ActivityError:
    failure = Failure(message=message, cause=cause, activity_failure_info=ActivityFailureInfo())
    converter = pydantic_data_converter
    try:
        error = converter.failure_converter.from_failure(failure, converter.payload_converter)
    except Exception as cannot:
        _unreadable(event_id, f"its failure does not decode: {type(cannot).__name__}", cannot)
    assert isinstance(error, ActivityError)
    return error


def _decode(event_id: int, payloads: Sequence[Payload], kind: type[_T]) -> _T:
    value = _from_payloads(event_id, payloads, kind)
    if not isinstance(value, kind):
        _unreadable(event_id, f"what it holds is no {kind.__name__}")
    return value


def _from_payloads(event_id: int, payloads: Sequence[Payload], kind: Any) -> Any:
    if len(payloads) != 1:
        _unreadable(event_id, f"it holds {len(payloads)} payloads, and not one")
    try:
        (value,) = pydantic_data_converter.payload_converter.from_payloads(payloads, [kind])
    # Anything can be wrong with bytes from elsewhere, and each converter has exceptions of its own.
    except Exception as error:
        wanted = getattr(kind, "__name__", str(kind))
        _unreadable(event_id, f"its payload does not decode as {wanted}: {type(error).__name__}", error)
    return value


def _unreadable(event_id: int, why: str, cause: Exception | None = None) -> NoReturn:
    raise HistoryUnreadable(f"event {event_id} of the history cannot be read: {why}") from cause
