"""A Temporal history for `holdfast.core.temporal.history_reader`: completed workflow tasks and decoded payloads."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar, cast

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import ActivityFailureInfo, CanceledFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.update.v1 import Request as UpdateRequest
from temporalio.converter import PayloadConverter
from temporalio.exceptions import ActivityError, FailureError

from holdfast.core.base.models import Frozen
from holdfast.core.mac.seals import SealKeyUnknown, is_unsealed
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.temporal.converter import data_converter
from holdfast.errors import HistoryForged, HistoryUnreadable, HoldfastError

_T = TypeVar("_T", bound=Frozen)

READING = data_converter.payload_converter
"""Decodes without checking seals: enough to read values, but not to act on them."""

ENDS = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
        EventType.EVENT_TYPE_TIMER_FIRED,
    }
)
_SEEN = ENDS | {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
}
_MADE = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_TIMER_STARTED,
        EventType.EVENT_TYPE_MARKER_RECORDED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    }
)
_CLOSED = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
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

_LOCAL_ACTIVITY = "core_local_activity"
"""Name of the marker that the SDK records when a local activity ends."""

_RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
_SINGLE_BATCH = 2
"""The SDK's flag for a different order within a task (`_WorkflowLogicFlag`); no Holdfast release has set it."""


@dataclass(frozen=True)
class LocalEnd:
    """The end of a local activity. Its request is not in history."""

    activity_id: str
    activity_type: str
    result: Sequence[Payload]
    failure: Failure | None


@dataclass
class WorkflowTask:
    """A completed workflow task: the events that the workflow saw in it, and those that it led to."""

    event_id: int
    """The id of the event that records its completion."""
    started: HistoryEvent
    seen: list[HistoryEvent]
    made: list[HistoryEvent] = field(default_factory=list)
    reset: bool = False
    """Whether the task is the first after a reset: the events before it are copies from another run."""
    closed: HistoryEvent | None = None
    """The event that closed the run; None if the task did not close it."""


def check_history(events: Sequence[HistoryEvent]) -> WorkflowExecutionStartedEventAttributes:
    """Check that these are the events of an agent run, from the first one and without gaps; return its start.

    Raises:
        HistoryUnreadable: They are not.
    """
    for number, event in enumerate(events, start=1):
        if event.event_id != number:
            unreadable(number, f"it is missing; the history has {event.event_id} in its place")
        if event.event_type in _READ:
            kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
            if event.WhichOneof("attributes") != f"{kind}_event_attributes":
                unreadable(number, f"its type is {kind}, and it lacks the attributes of that type")
    if not events or not events[0].HasField("workflow_execution_started_event_attributes"):
        unreadable(1, "the history does not begin with the start of a workflow")
    begin = events[0].workflow_execution_started_event_attributes
    if begin.workflow_type.name != WORKFLOW:
        unreadable(1, f"it starts a workflow of type {begin.workflow_type.name!r}, not an agent run")
    if not begin.workflow_id or not begin.first_execution_run_id:
        unreadable(1, "it lacks the workflow's ids")
    check_time(events[0])
    return begin


def check_time(event: HistoryEvent) -> None:
    """Check that an event has a time that Python can represent.

    Raises:
        HistoryUnreadable: It has none.
    """
    if not (0 < event.event_time.seconds < _END_OF_TIME and 0 <= event.event_time.nanos < 1_000_000_000):
        unreadable(event.event_id, "it has no time, or one that cannot be")


def run_id_of(events: Sequence[HistoryEvent]) -> str:
    """Return Temporal's id of the run. A reset copies the start of another run; its own id is in a later event."""
    run_id = events[0].workflow_execution_started_event_attributes.original_execution_run_id
    for event in events:
        failed = event.workflow_task_failed_event_attributes
        if failed.cause == _RESET:
            run_id = failed.new_run_id or run_id
    return run_id


def admitted_updates(events: Sequence[HistoryEvent]) -> dict[str, UpdateRequest]:
    """Return, by id, the updates that the server recorded before the workflow accepted them, as happens in a reset."""
    requests = [event.workflow_execution_update_admitted_event_attributes.request for event in events]
    return {request.meta.update_id: request for request in requests if request.meta.update_id}


def completed_tasks(events: Sequence[HistoryEvent]) -> list[WorkflowTask]:
    """Return the completed workflow tasks, in order.

    Raises:
        HistoryUnreadable: An event is at a position where no event of its type can be.
    """
    tasks: list[WorkflowTask] = []
    waiting: list[HistoryEvent] = []
    started: tuple[int, HistoryEvent] | None = None
    reset = False
    for event in events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                check_time(event)
                started = (len(waiting), event)
            case EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED | EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
                started = None
                reset |= event.workflow_task_failed_event_attributes.cause == _RESET
            case EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
                if started is None:
                    unreadable(event.event_id, "it completes a workflow task that was not started")
                if _SINGLE_BATCH in event.workflow_task_completed_event_attributes.sdk_metadata.lang_used_flags:
                    unreadable(event.event_id, "the worker's SDK used an order within a task that is not supported")
                tasks.append(WorkflowTask(event.event_id, started[1], waiting[: started[0]], reset=reset))
                waiting, started, reset = waiting[started[0] :], None, False
            case kind if kind in _SEEN:
                waiting.append(event)
            case kind if kind in _MADE or kind in _CLOSED:
                if not tasks:
                    unreadable(event.event_id, "there is no workflow task before it that could have led to it")
                if kind in _MADE:
                    tasks[-1].made.append(event)
                else:
                    tasks[-1].closed = event
            case _:
                pass
    return tasks


def scheduled_by(event: HistoryEvent) -> int:
    """Return the id of the event that scheduled the activity or started the timer that this event ends."""
    if event.HasField("timer_fired_event_attributes"):
        return event.timer_fired_event_attributes.started_event_id
    scheduled: int = getattr(event, cast(str, event.WhichOneof("attributes"))).scheduled_event_id
    return scheduled


def local_end(event: HistoryEvent) -> LocalEnd:
    """Read the end of a local activity from its marker.

    Raises:
        HistoryUnreadable: The event is not the marker of a local activity.
    """
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != _LOCAL_ACTIVITY:
        unreadable(event.event_id, f"an agent run has no marker named {marker.marker_name!r}")
    try:
        (data,) = marker.details["data"].payloads
        ended = json.loads(data.data)
        return LocalEnd(
            activity_id=str(ended["activity_id"]),
            activity_type=str(ended["activity_type"]),
            result=marker.details["result"].payloads if "result" in marker.details else (),
            failure=marker.failure if marker.HasField("failure") else None,
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        unreadable(
            event.event_id, f"its marker does not describe the end of a local activity: {type(error).__name__}", error
        )


def result_payloads(event: HistoryEvent) -> Sequence[Payload]:
    """Return the payloads that a completed activity returned."""
    return event.activity_task_completed_event_attributes.result.payloads


def results_of(events: Iterable[HistoryEvent], activity: str) -> Iterator[tuple[int, Sequence[Payload]]]:
    """Yield the results of all activities of a type, local ones included, each with the id of its event."""
    scheduled = set()
    for event in events:
        if event.activity_task_scheduled_event_attributes.activity_type.name == activity:
            scheduled.add(event.event_id)
        elif event.HasField("activity_task_completed_event_attributes") and scheduled_by(event) in scheduled:
            yield event.event_id, result_payloads(event)
        elif event.HasField("marker_recorded_event_attributes"):
            end = local_end(event)
            if end.activity_type == activity and end.result:
                yield event.event_id, end.result


def local_error(event: HistoryEvent, failure: Failure) -> FailureError:
    """Return the exception that the SDK raises in the workflow for a local activity's failure.

    Raises:
        HistoryUnreadable: The failure does not decode.
    """
    error = _exception(failure, event.event_id)
    if not isinstance(error, FailureError):
        unreadable(event.event_id, f"its failure is a {type(error).__name__}")
    return error


def error_of(event: HistoryEvent) -> ActivityError | None:
    """Return the exception that the SDK raises in the workflow for the end of an activity; None if it completed."""
    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            failure = failed.failure if failed.HasField("failure") else None
            return activity_error("Activity task failed", failure, event.event_id)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            timed_out = event.activity_task_timed_out_event_attributes
            failure = timed_out.failure if timed_out.HasField("failure") else None
            return activity_error("Activity task timed out", failure, event.event_id)
        case EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            return activity_error("Activity cancelled", cancellation())
        case _:
            return None


def cancellation() -> Failure:
    """Return the failure that represents a cancellation."""
    return Failure(canceled_failure_info=CanceledFailureInfo())


def activity_error(message: str, cause: Failure | None, event_id: int = 0) -> ActivityError:
    """Return the error that the SDK raises in workflow code for an activity that failed.

    Raises:
        HistoryUnreadable: The failure does not decode.
    """
    error = _exception(Failure(message=message, cause=cause, activity_failure_info=ActivityFailureInfo()), event_id)
    assert isinstance(error, ActivityError)
    return error


def _exception(failure: Failure, event_id: int) -> BaseException:
    try:
        return data_converter.failure_converter.from_failure(failure, data_converter.payload_converter)
    except Exception as error:
        unreadable(event_id, f"its failure does not decode: {type(error).__name__}", error)


def decode(event_id: int, payloads: Sequence[Payload], kind: type[_T], by: PayloadConverter = READING) -> _T:
    """Decode the single payload of an event as one of our models.

    Args:
        event_id: The event's id, for errors.
        payloads: The event's payloads.
        kind: The model.
        by: Decodes the payload, and checks its seal if it has the keys.

    Raises:
        HistoryUnreadable: The payload does not decode as that model.
        HistoryForged: Its seal is missing or wrong, or was made with a key that is unknown here.
    """
    value = decode_any(event_id, payloads, kind, by)
    if is_unsealed(value):
        forged(event_id, str(value))
    if not isinstance(value, kind):
        unreadable(event_id, f"its payload is not a {kind.__name__}")
    return value


def decode_any(event_id: int, payloads: Sequence[Payload], kind: Any, by: PayloadConverter = READING) -> Any:
    """Decode the single payload of an event as a value of any type; `Unsealed` if its seal is missing or wrong.

    Raises:
        HistoryUnreadable: There is not exactly one payload, or it does not decode.
        HistoryForged: It is sealed with a key that is unknown here.
    """
    if len(payloads) != 1:
        unreadable(event_id, f"it has {len(payloads)} payloads instead of one")
    try:
        (value,) = by.from_payloads(payloads, [kind])
    except SealKeyUnknown as error:
        forged(event_id, str(error), error)
    # Untrusted bytes can be wrong in any way, and each converter raises its own exceptions.
    except Exception as error:
        expected = getattr(kind, "__name__", str(kind))
        why = str(error) if isinstance(error, HoldfastError) else type(error).__name__
        unreadable(event_id, f"its payload does not decode as {expected}: {why}", error)
    return value


def unreadable(event_id: int, why: str, cause: Exception | None = None) -> NoReturn:
    """Raise the error for a history that cannot be read, naming the event.

    Raises:
        HistoryUnreadable: Always.
    """
    raise HistoryUnreadable(f"event {event_id} of the history cannot be read: {why}") from cause


def forged(event_id: int, why: str, cause: Exception | None = None) -> NoReturn:
    """Raise the error for a history that our own processes did not make, naming the event.

    Raises:
        HistoryForged: Always.
    """
    raise HistoryForged(f"event {event_id} of the history was not made by our own processes: {why}") from cause
