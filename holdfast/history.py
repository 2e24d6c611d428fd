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
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import History, HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.update.v1 import Request as UpdateRequest
from temporalio.exceptions import ActivityError, is_cancelled_exception

from holdfast.contracts import (
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
from holdfast.recorded import (
    ENDS,
    WorkflowTask,
    activity_error,
    admitted_updates,
    cancellation,
    check_history,
    completed_tasks,
    decode,
    decode_any,
    error_of,
    result_payloads,
    run_id_of,
    scheduled_by,
    unreadable,
)
from holdfast.state import RunState, evolve
from holdfast.transcript import Transcript

_AGENT, _LLM, _TOOL = "load_agent", "call_llm", "call_tool"


def read_events(history: History | Iterable[HistoryEvent]) -> list[AgentEvent]:
    """The events that the run's completed workflow tasks recorded: positions, times and digests are the workflow's.

    Args:
        history: A whole history, as Temporal's client, CLI or Web UI download it, from the first event on.

    Raises:
        HistoryUnreadable: It is none of an agent run, is cut short, or does not decode; the message names the event.
    """
    events = list(history.events if isinstance(history, History) else history)
    begin = check_history(events)
    run = _Run(begin, run_id=run_id_of(events), admitted=admitted_updates(events))
    for task in completed_tasks(events):
        run.take(task)
    return run.log.events


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
        self._input = decode(1, begin.input.payloads, RunInput)
        self._nanoseconds = 0
        self._wanted: list[tuple[str, int]] = []
        """Activities the current task asked for, by name, and a tool call's number: not yet seen scheduled."""
        self._open: dict[int, tuple[str, int]] = {}
        """Activities under way, by the id of the event that scheduled them."""
        self._shown = self._transcript.ref
        self._stopping = False
        self._over = False

    def take(self, task: WorkflowTask) -> None:
        """Record what one workflow task recorded."""
        if self._over:
            unreadable(task.event_id, "the run was over before this workflow task")
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
        ends = [event for event in task.seen if event.event_type in ENDS]
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
        if sent.signal_name in SIGNALS:
            try:
                payload = _first(event.event_id, sent.input.payloads)
            except HistoryUnreadable:
                return  # the SDK drops a signal that it cannot decode
        self._record(*on_signal(self._state, sent.signal_name, payload))

    def _update(self, event: HistoryEvent) -> None:
        accepted = event.workflow_execution_update_accepted_event_attributes
        request = self._admitted.get(accepted.protocol_instance_id, accepted.accepted_request)
        if request.input.name != "decide":
            unreadable(event.event_id, f"there is no update named {request.input.name!r}")
        payload = _first(event.event_id, request.input.args.payloads)
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
        error = error_of(event)
        if name == _TOOL:
            outcome = (
                self._lost(number, error) if error else decode(event.event_id, result_payloads(event), ToolOutcome)
            )
            self._record(*on_outcome(self._state, number, outcome, at=self._now))
        elif error is not None and is_cancelled_exception(error):
            self._stopping = True
        elif name == _AGENT:
            if error:
                self._record(*on_lost_agent(*cause_of(error)))
            else:
                loaded = decode(event.event_id, result_payloads(event), LoadedAgent)
                self._record(AgentLoaded(spec=loaded.spec, spec_hash=loaded.spec.hash, workspace=loaded.workspace))
        elif error:
            cause, message = cause_of(error)
            self._record(RunParked(cause=cause, message=message))
        else:
            reply = decode(event.event_id, result_payloads(event), LLMReply)
            self._record(*on_reply(self._state, reply, shown=self._shown.length, at=self._now))

    def _cancel(self, ends: list[HistoryEvent]) -> None:
        """Stop the loop, and the tools that have not ended."""
        self._stopping = True
        # The loop is cancelled first and never sees what it asked for; tools that ended in the same task are recorded.
        for event in ends:
            if self._open.get(scheduled_by(event), ("", 0))[0] == _TOOL:
                self._end(event)
            else:
                self._pop(event)
        # The LLM's call is given up at once; so is a call that this very task started, before the server knows of it.
        self._open = {event_id: each for event_id, each in self._open.items() if each[0] == _TOOL}
        unsent, self._wanted = self._wanted, []
        for name, number in unsent:
            if name == _TOOL:
                outcome = self._lost(number, activity_error("Activity cancelled", cancellation()))
                self._record(*on_outcome(self._state, number, outcome, at=self._now))

    def _match(self, task: WorkflowTask) -> None:
        """Find the activities that the task asked for among those that the history has."""
        for event in task.made:
            if not event.HasField("activity_task_scheduled_event_attributes"):
                continue
            scheduled = event.activity_task_scheduled_event_attributes
            name = scheduled.activity_type.name
            if not self._wanted or self._wanted[0][0] != name:
                unreadable(event.event_id, f"nothing recorded before it asks for an activity {name!r}")
            _, number = self._wanted.pop(0)
            self._open[event.event_id] = (name, number)
            if name == _LLM:
                llm = decode(event.event_id, scheduled.input.payloads, LLMRequest)
                if llm.transcript != self._shown:
                    unreadable(event.event_id, "the transcript that the LLM was shown is not the one rebuilt")
            elif name == _TOOL:
                tool = decode(event.event_id, scheduled.input.payloads, ToolRequest)
                if tool.key != self._key(number):
                    unreadable(event.event_id, f"the key of call {number} is not the one rebuilt")
        if self._wanted:
            unreadable(task.event_id, f"the history does not have the activity {self._wanted[0][0]!r} it led to")
        if task.closed != (self._state.outcome is not None):
            told = "ends the run, and what it saw does not" if task.closed else "does not end the run, as it should"
            unreadable(task.event_id, f"this workflow task {told}")
        self._over = task.closed

    def _pop(self, event: HistoryEvent) -> tuple[str, int]:
        scheduled = scheduled_by(event)
        if scheduled not in self._open:
            unreadable(event.event_id, "it ends an activity that is not under way")
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


def _first(event_id: int, payloads: Sequence[Payload]) -> Any:
    """What a message's handler takes: the first argument, None without any. All of them have to decode."""
    values = [decode_any(event_id, [payload], Any) for payload in payloads]
    return values[0] if values else None
