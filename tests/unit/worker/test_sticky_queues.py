"""The queue of a workflow task, as read from history; a task whose queue is uncertain is left alone."""

from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.history.v1 import HistoryEvent

from holdfast.worker.takeover.sticky_queues import LastTask, owner_of, read_last_task

DEAD, OTHER = "holdfast:build-7:0123456789abcdef:4711:1", "holdfast:build-7:0123456789abcdef:4712:1"
DEADS = f"{DEAD}-{'0' * 31}f"


def task_scheduled(queue: str = "") -> HistoryEvent:
    """Return a scheduled task, on a sticky queue or on the workflow's own queue."""
    event = HistoryEvent()
    task_queue = event.workflow_task_scheduled_event_attributes.task_queue
    task_queue.name = queue or "holdfast"
    task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_STICKY if queue else TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    return event


def task_started(identity: str) -> HistoryEvent:
    """Return the start of a task by a worker."""
    event = HistoryEvent()
    event.workflow_task_started_event_attributes.identity = identity
    return event


def task_completed(identity: str) -> HistoryEvent:
    """Return the completion of a task by a worker."""
    event = HistoryEvent()
    event.workflow_task_completed_event_attributes.identity = identity
    return event


def signaled() -> HistoryEvent:
    """Return a signal."""
    event = HistoryEvent()
    event.workflow_execution_signaled_event_attributes.signal_name = "approve"
    return event


def task_failed() -> HistoryEvent:
    """Return the failure of a task."""
    event = HistoryEvent()
    event.workflow_task_failed_event_attributes.scheduled_event_id = 1
    return event


def task_timed_out() -> HistoryEvent:
    """Return the time-out of a task."""
    event = HistoryEvent()
    event.workflow_task_timed_out_event_attributes.scheduled_event_id = 1
    return event


def last_task(*events: HistoryEvent) -> LastTask:
    """Return the last task of a history in order, and check that reading it page by page gives the same."""
    task, final = read_last_task(reversed(events))
    if final:
        assert (
            read_last_task([*reversed(events), task_scheduled(f"{OTHER}-{'1' * 32}"), task_completed(OTHER)])[0] == task
        )
    return task


def test_a_sticky_queue_names_its_worker() -> None:
    """The SDK appends 32 hex digits to the identity; any other name belongs to no worker."""
    assert owner_of(DEADS) == DEAD
    assert owner_of(f"4711@build-7-{'a' * 32}") == "4711@build-7"
    for name in ("", DEAD, DEADS[:-1], DEADS + "0", DEADS.upper(), f"{DEAD}:{'0' * 32}", "-" + "0" * 32):
        assert owner_of(name) != DEAD


def test_a_task_scheduled_after_the_death_is_found() -> None:
    """The task is found by its event or, for an update, which is not in history, by the queue of the previous task."""
    turn = (task_scheduled(), task_started(DEAD), task_completed(DEAD))
    assert last_task(*turn, signaled(), task_scheduled(DEADS)) == LastTask(DEAD, DEADS)
    assert last_task(
        *turn, task_scheduled(DEADS), signaled(), task_started(DEAD), task_completed(DEAD), signaled()
    ) == LastTask(DEAD, DEADS)


def test_a_task_that_may_be_elsewhere_is_left_alone() -> None:
    """The task may be on the workflow's own queue or on an unknown one, or has started, failed or timed out."""
    turn = (task_scheduled(DEADS), task_started(DEAD), task_completed(DEAD))
    assert last_task(task_scheduled(), task_started(DEAD), task_completed(DEAD)) == LastTask(DEAD)
    assert last_task(*turn, task_scheduled()) == LastTask(DEAD)
    assert last_task(*turn, task_scheduled(DEADS), task_started(DEAD)) == LastTask(DEAD)
    assert last_task(*turn, task_scheduled(DEADS), task_started(DEAD), task_failed()) == LastTask(DEAD)
    assert last_task(*turn, task_scheduled(DEADS), task_timed_out()) == LastTask(DEAD)
    assert last_task(*turn, task_scheduled(DEADS), task_timed_out(), task_scheduled(), task_started(OTHER)) == LastTask(
        OTHER
    )
    assert last_task(*turn, task_scheduled(DEADS), task_started(OTHER), task_completed(OTHER)) == LastTask(OTHER)
    assert last_task(task_scheduled("elsewhere"), task_started(DEAD), task_completed(DEAD)) == LastTask(DEAD)
    assert last_task(task_scheduled()) == last_task(signaled()) == last_task() == LastTask()
