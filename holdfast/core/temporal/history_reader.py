"""Rebuilds the events of an agent run from its Temporal history, without a worker, the workflow's code or a server.

The reader goes through the history by workflow task. It passes the inputs of each task to
`holdfast.core.run.machine.machine`, in the order of the workflow:

1. Only completed tasks count. The next task repeats the inputs of a failed one, at its own time.
2. Within a task: signals and updates, then the ends of calls, then a cancel request. An update comes after the signals
   that had arrived when the server sent it: all signals of the task, unless a reset preserved the update.
3. While local activities run, inputs wait, as in the workflow. Markers record the ends of local activities.
4. The end of an abandoned call is ignored.

The reader then checks the commands of the task against the history: each scheduled activity must be the one that the
run requests, with the same values in the fields that the table of activities names
(`holdfast.core.run.contracts.table`). If a run continues as new, its input must be the same, snapshot included.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.update.v1 import Request as UpdateRequest
from temporalio.converter import PayloadConverter

from holdfast.core.base.models import argument_of
from holdfast.core.log.events import AgentEvent
from holdfast.core.mac.seals import SealKeyUnknown, is_unsealed
from holdfast.core.run.contracts.commands import Call, Failure, Sleep, Stop
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.table import activity_of
from holdfast.core.run.inputs.interventions import SIGNALS, UPDATES, leaves_no_trace, raw_texts, read_payload
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.machine.rollover import HistorySize
from holdfast.core.temporal.history import (
    ENDS,
    READING,
    LocalEnd,
    WorkflowTask,
    admitted_updates,
    check_history,
    completed_tasks,
    decode,
    decode_any,
    error_of,
    forged,
    local_end,
    local_error,
    result_payloads,
    scheduled_by,
    unreadable,
)
from holdfast.core.temporal.sealed_details import failure_of
from holdfast.errors import FeaturesUnknown, HistoryForged, HistoryUnreadable

_Input = Callable[[AgentRun], object]
"""An input that has arrived, as a function that passes it to the run."""

_NOT_COMMANDS = (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED, EventType.EVENT_TYPE_MARKER_RECORDED)
"""Events that a workflow task leads to without a command of the run."""


def read_events(history: History | Iterable[HistoryEvent], *, by: PayloadConverter = READING) -> list[AgentEvent]:
    """Rebuild the events that a run's completed workflow tasks recorded, with their positions, times and digests.

    For a run that continues from a snapshot, the result begins with the events that the permanent record of its thread
    lacked at the start.

    Args:
        history: A complete history, as Temporal's client, CLI or Web UI download it.
        by: Decodes the payloads. A converter with the fleet keys and the workflow's context checks seals, as the
            workflow did; the default checks none.

    Raises:
        HistoryUnreadable: The history does not belong to an agent run, is cut short, or does not decode. The message
            names the event.
        HistoryForged: The history continues in a way that requires a sealed value, but that value has no valid seal.
    """
    events = list(history.events if isinstance(history, History) else history)
    begin = check_history(events)
    started_at = events[0].event_time.ToNanoseconds()
    reader = _Reader(begin, started_at=started_at, admitted=admitted_updates(events), by=by)
    for task in completed_tasks(events):
        try:
            reader.read(task)
        except FeaturesUnknown as error:
            unreadable(task.event_id, str(error), error)
        except SealKeyUnknown as error:
            forged(task.event_id, str(error), error)
        except HistoryUnreadable as error:
            if reader.unsealed_result and not isinstance(error, HistoryForged):
                raise HistoryForged(str(error)) from error
            raise
    return reader.events


class _Reader:
    """Drives an `AgentRun` as the workflow does, with a history in place of Temporal."""

    def __init__(
        self,
        begin: WorkflowExecutionStartedEventAttributes,
        *,
        started_at: int,
        admitted: Mapping[str, UpdateRequest],
        by: PayloadConverter,
    ) -> None:
        self._begin = begin
        self._by = by
        self._input = decode(1, begin.input.payloads, RunInput, by)
        self._started_at = _time(started_at)
        self._admitted = admitted
        self._run: AgentRun | None = None
        self._nanoseconds = 0
        self._requested: list[Call | Sleep] = []
        """Calls and timers that the current task requested and the reader has not matched with the history yet."""
        self._unsent: list[int] = []
        """Ids of tool calls that the current task requested and stopped again, so they never reached the server."""
        self._open: dict[int, Call | Sleep] = {}
        """Calls under way, by the id of the event that scheduled them."""
        self._abandoned: set[int] = set()
        """Ids of the events that scheduled calls which the run no longer waits for."""
        self._local: dict[str, tuple[Call, _Input | None]] = {}
        """Local activities under way, by the name of their request, each with its end if it has ended."""
        self._waiting: list[_Input] = []
        """Inputs that wait until no local activity is under way."""
        self.unsealed_result = ""
        """The last result without a valid seal, for the error about a history that continues as if it were valid."""
        self._commands_may_follow = False
        """Whether the commands of the last task may be in the next one."""

    @property
    def events(self) -> list[AgentEvent]:
        """The events so far."""
        return self._run.log.events if self._run else []

    def read(self, task: WorkflowTask) -> None:
        """Repeat one workflow task, and check the commands that it led to."""
        first = self._run is None
        run = self._begin_task(task)
        if run.end:
            if not (first or self._commands_may_follow):  # a rejected start ends its run at once
                unreadable(task.event_id, "the run was over before this workflow task")
            self._match(run, task)
            return
        for event in _messages(task):
            if event.HasField("workflow_execution_signaled_event_attributes"):
                self._signal(run, event)
            else:
                self._update(run, event)
        self._collect(run)
        run.conclude()
        if task.reset and not first:
            self._pass(run, AgentRun.was_reset)
        for event in task.seen:
            if event.event_type in ENDS:
                self._end(run, event)
        for event in task.seen:
            if event.HasField("workflow_execution_cancel_requested_event_attributes"):
                reason = event.workflow_execution_cancel_requested_event_attributes.cause
                self._pass(run, partial(AgentRun.cancel, reason=reason))
        self._fail_unsent(run)
        run.conclude()
        for event in task.made:
            if event.HasField("marker_recorded_event_attributes"):
                self._end_locally(run, event)
        self._match(run, task)

    def _fail_unsent(self, run: AgentRun) -> None:
        cancelled = Failure("CancelledError", "Cancelled", cancelled=True)
        while self._unsent:
            self._pass(run, partial(AgentRun.ended, call_id=self._unsent.pop(0), end=cancelled))

    def _pass(self, run: AgentRun, arrived: _Input) -> None:
        """Pass an input to the run, now or as soon as no local activity is under way."""
        if self._local:
            self._waiting.append(arrived)
            return
        arrived(run)
        self._collect(run)

    def _end_locally(self, run: AgentRun, event: HistoryEvent) -> None:
        """Record the end of a local activity. Once all have ended, pass the run their ends, then the waiting inputs."""
        end = local_end(event)
        call, ended = self._local.get(end.activity_id, (None, None))
        if call is None or ended or _name(call) != end.activity_type:
            unreadable(event.event_id, f"it ends a local activity {end.activity_type!r} that is not under way")
        self._local[end.activity_id] = call, self._end_of(event.event_id, call, end.result, _local_failure(event, end))
        ends = [ended for _, ended in self._local.values() if ended]
        if len(ends) < len(self._local):
            return
        self._local = {}
        self._waiting[:0] = ends
        while self._waiting and not self._local:
            self._pass(run, self._waiting.pop(0))
        self._fail_unsent(run)
        run.conclude()

    def _begin_task(self, task: WorkflowTask) -> AgentRun:
        """Return the run, with its time and history size set to those that this task's worker saw."""
        # Temporal's time never runs backwards within a run, even if the server's clock does.
        self._nanoseconds = max(self._nanoseconds, task.started.event_time.ToNanoseconds())
        now = _time(self._nanoseconds)
        if self._run is None:
            begin = self._begin
            self._run = AgentRun(
                self._input,
                thread=begin.workflow_id,
                run_id=begin.original_execution_run_id,
                first_run_id=begin.first_execution_run_id,
                at=now,
                started_at=self._started_at,
            )
        if self._local:
            return self._run  # inputs that wait for local activities get the time at which those started
        seen = task.started.workflow_task_started_event_attributes
        size = HistorySize(
            events=task.started.event_id, bytes=seen.history_size_bytes, suggested=seen.suggest_continue_as_new
        )
        self._run.observe(at=now, history=size)
        return self._run

    def _signal(self, run: AgentRun, event: HistoryEvent) -> None:
        sent = event.workflow_execution_signaled_event_attributes
        name, payloads = sent.signal_name, sent.input.payloads
        if SIGNALS.get(name, 1):
            later = partial(AgentRun.signal, payload=read_payload(payloads, READING), texts=raw_texts(payloads))
            self._pass(run, partial(later, name=name))
            return
        payload = argument_of(READING.from_payloads(payloads))
        if not leaves_no_trace(run.state, payload):
            self._pass(run, partial(AgentRun.signal, name=name, payload=payload))

    def _update(self, run: AgentRun, event: HistoryEvent) -> None:
        accepted = event.workflow_execution_update_accepted_event_attributes
        request = self._admitted.get(accepted.protocol_instance_id, accepted.accepted_request)
        if request.input.name not in UPDATES:
            unreadable(event.event_id, f"there is no update named {request.input.name!r}")
        payload = argument_of(READING.from_payloads(request.input.args.payloads))
        self._pass(run, partial(AgentRun.update, name=request.input.name, payload=payload))

    def _end(self, run: AgentRun, event: HistoryEvent) -> None:
        """Pass the end of a call to the run."""
        scheduled = scheduled_by(event)
        if scheduled in self._abandoned:
            return
        if (call := self._open.pop(scheduled, None)) is None:
            unreadable(event.event_id, "it ends a call that is not under way")
        if isinstance(call, Sleep):
            ended: _Input = partial(AgentRun.ended, call_id=call.id)
        else:
            error = error_of(event)
            failure = failure_of(error, self._by) if error else None
            ended = self._end_of(event.event_id, call, result_payloads(event), failure)
        self._pass(run, ended)

    def _end_of(self, event_id: int, call: Call, result: Sequence[Payload], failure: Failure | None) -> _Input:
        """Return the end of a call as an input."""
        if failure:
            return partial(AgentRun.ended, call_id=call.id, end=failure)
        answer = activity_of(call.request).answer
        decoded = decode_any(event_id, result, answer, self._by) if result else None
        if is_unsealed(decoded):
            self.unsealed_result = f"; {decoded} (event {event_id})"
        return partial(AgentRun.ended, call_id=call.id, end=decoded)

    def _collect(self, run: AgentRun) -> None:
        """Collect the commands that the run has issued."""
        for command in run.commands():
            if isinstance(command, Stop):
                self._stop(command.id)
            elif isinstance(command, Call) and command.seconds:
                self._local[command.request.order] = command, None
            else:
                self._requested.append(command)

    def _stop(self, call_id: int) -> None:
        for call in self._requested:
            if call.id == call_id:
                self._requested.remove(call)
                if _outlives_stop(call):
                    self._unsent.append(call_id)
                return
        for scheduled, call in self._open.items():
            if call.id == call_id and not _outlives_stop(call):
                del self._open[scheduled]
                self._abandoned.add(scheduled)
                return

    def _match(self, run: AgentRun, task: WorkflowTask) -> None:
        """Match the run's commands with the history, and check whether this workflow task ended the run."""
        for event in task.made:
            if event.event_type in _NOT_COMMANDS:
                continue
            name = "timer"
            if scheduled := event.HasField("activity_task_scheduled_event_attributes"):
                name = event.activity_task_scheduled_event_attributes.activity_type.name
            # The SDK schedules activities before timers that were requested at the same time.
            call = next((each for each in self._requested if isinstance(each, Call) == scheduled), None)
            if call is None or _name(call) != name:
                unreadable(event.event_id, f"nothing recorded before it asks for {name!r}{self.unsealed_result}")
            self._requested.remove(call)
            self._open[event.event_id] = call
            if scheduled:
                assert isinstance(call, Call)
                _check_request(event, call, self._by)
        # To answer a query, the SDK may complete a task with a marker on which the workflow acts only in the next task.
        markers = [event.HasField("marker_recorded_event_attributes") for event in task.made]
        self._commands_may_follow = bool(markers) and markers[-1] and not task.closed
        if self._commands_may_follow:
            return
        if self._requested:
            unreadable(task.event_id, f"the history does not have {_name(self._requested[0])!r}, which it led to")
        self._match_end(run, task)

    def _match_end(self, run: AgentRun, task: WorkflowTask) -> None:
        """Check that the history ends as the run does, with the same input for the next Temporal run."""
        if (task.closed is not None) != (run.end is not None):
            if task.closed:
                forged(task.event_id, "this workflow task ends the run, and what it saw does not")
            unreadable(task.event_id, "this workflow task does not end the run, as it should")
        if task.closed and run.end:
            continued = task.closed.HasField("workflow_execution_continued_as_new_event_attributes")
            if continued != (run.end.next is not None):
                unreadable(task.closed.event_id, "the run does not end in the way that what it saw led to")
            if continued:
                payloads = task.closed.workflow_execution_continued_as_new_event_attributes.input.payloads
                if decode(task.closed.event_id, payloads, RunInput, self._by) != run.end.next:
                    unreadable(task.closed.event_id, "the input of the next Temporal run is not the one rebuilt")


def _messages(task: WorkflowTask) -> list[HistoryEvent]:
    """Return the signals and accepted updates of a workflow task, in the order in which the worker received them."""
    signals = [event for event in task.seen if event.HasField("workflow_execution_signaled_event_attributes")]
    updates = [event for event in task.made if event.HasField("workflow_execution_update_accepted_event_attributes")]
    return sorted([*signals, *updates], key=_sent_at)


def _sent_at(event: HistoryEvent) -> int:
    """Return the id of the event after which the server sent a signal or an update."""
    if event.HasField("workflow_execution_signaled_event_attributes"):
        return event.event_id
    accepted = event.workflow_execution_update_accepted_event_attributes
    return accepted.accepted_request_sequencing_event_id or event.event_id


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)  # rounded as the SDK rounds


def _check_request(event: HistoryEvent, call: Call, by: PayloadConverter) -> None:
    """Compare a recorded activity request with the rebuilt one, in the fields that bind the call to the events."""
    payloads = event.activity_task_scheduled_event_attributes.input.payloads
    sent = decode(event.event_id, payloads, type(call.request), by)
    for field in ("order", *activity_of(call.request).compared):
        if getattr(sent, field) != getattr(call.request, field):
            unreadable(event.event_id, f"the {field} that it sends to {_name(call)!r} is not the one rebuilt")


def _local_failure(event: HistoryEvent, end: LocalEnd) -> Failure | None:
    return Failure.of(local_error(event, end.failure)) if end.failure else None


def _name(call: Call | Sleep) -> str:
    return "timer" if isinstance(call, Sleep) else activity_of(call.request).name


def _outlives_stop(call: Call | Sleep) -> bool:
    return isinstance(call, Call) and activity_of(call.request).outlives_stop
