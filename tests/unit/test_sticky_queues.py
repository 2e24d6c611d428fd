"""Where a workflow task waits is read from history; what it does not say for sure is not taken from anybody."""

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.history.v1 import HistoryEvent

from holdfast.runtime.takeover.sticky_queues import LastTask, owner_of, read_last_task

DEAD, OTHER = "holdfast:build-7:0123456789abcdef:4711:1", "holdfast:build-7:0123456789abcdef:4712:1"
DEADS = f"{DEAD}-{'0' * 31}f"


def scheduled(queue: str = "") -> HistoryEvent:
    """A task was scheduled: in that sticky queue, or on the workflow's own."""
    event = HistoryEvent()
    task_queue = event.workflow_task_scheduled_event_attributes.task_queue
    task_queue.name = queue or "holdfast"
    task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_STICKY if queue else TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    return event


def started(identity: str) -> HistoryEvent:
    """A worker took it."""
    event = HistoryEvent()
    event.workflow_task_started_event_attributes.identity = identity
    return event


def completed(identity: str) -> HistoryEvent:
    """A worker completed it."""
    event = HistoryEvent()
    event.workflow_task_completed_event_attributes.identity = identity
    return event


def signaled() -> HistoryEvent:
    """Somebody decided something."""
    event = HistoryEvent()
    event.workflow_execution_signaled_event_attributes.signal_name = "approve"
    return event


def failed() -> HistoryEvent:
    """The task failed."""
    event = HistoryEvent()
    event.workflow_task_failed_event_attributes.scheduled_event_id = 1
    return event


def timed_out() -> HistoryEvent:
    """The task timed out."""
    event = HistoryEvent()
    event.workflow_task_timed_out_event_attributes.scheduled_event_id = 1
    return event


def last(*events: HistoryEvent) -> LastTask:
    """What a history says, the oldest event first, and that reading it page by page says no less."""
    found, final = read_last_task(reversed(events))
    if final:
        assert read_last_task([*reversed(events), scheduled(f"{OTHER}-{'1' * 32}"), completed(OTHER)])[0] == found
    return found


def test_a_sticky_queue_names_its_worker() -> None:
    """The SDK appends 32 hex digits to the identity; any other name is nobody's."""
    assert owner_of(DEADS) == DEAD
    assert owner_of(f"4711@build-7-{'a' * 32}") == "4711@build-7"
    for name in ("", DEAD, DEADS[:-1], DEADS + "0", DEADS.upper(), f"{DEAD}:{'0' * 32}", "-" + "0" * 32):
        assert owner_of(name) != DEAD


def test_a_task_that_was_scheduled_after_the_death_is_found() -> None:
    """By the event that says so, or, for an update's, which is in no history, by the queue of the task before it."""
    turn = (scheduled(), started(DEAD), completed(DEAD))
    assert last(*turn, signaled(), scheduled(DEADS)) == LastTask(DEAD, DEADS)
    assert last(*turn, scheduled(DEADS), signaled(), started(DEAD), completed(DEAD), signaled()) == LastTask(
        DEAD, DEADS
    )


def test_a_task_that_may_lie_elsewhere_is_left_alone() -> None:
    """On the workflow's own queue, begun, failed or timed out; or of a worker whose queue history does not name."""
    turn = (scheduled(DEADS), started(DEAD), completed(DEAD))
    assert last(scheduled(), started(DEAD), completed(DEAD)) == LastTask(DEAD)
    assert last(*turn, scheduled()) == LastTask(DEAD)
    assert last(*turn, scheduled(DEADS), started(DEAD)) == LastTask(DEAD)
    assert last(*turn, scheduled(DEADS), started(DEAD), failed()) == LastTask(DEAD)
    assert last(*turn, scheduled(DEADS), timed_out()) == LastTask(DEAD)
    assert last(*turn, scheduled(DEADS), timed_out(), scheduled(), started(OTHER)) == LastTask(OTHER)
    assert last(*turn, scheduled(DEADS), started(OTHER), completed(OTHER)) == LastTask(OTHER)
    assert last(scheduled("elsewhere"), started(DEAD), completed(DEAD)) == LastTask(DEAD)
    assert last(scheduled()) == last(signaled()) == last() == LastTask()
