"""The check of `bench.freezes` reports every claim of a live process that was ended."""

from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent

from bench.storm import Claims, Storm, judge
from holdfast.runtime.takeover.takeover import WORKER_DIED

DEAD, LIVING = "hf:build-7:0123456789abcdef:4711:1", "hf:build-7:0123456789abcdef:4712:1"


def died(identity: str) -> Failure:
    """Return the failure with which a takeover ends an attempt."""
    return Failure(
        message=f"the worker of attempt 1 has been killed: {identity} is gone, found by {LIVING}; it is made again",
        application_failure_info=ApplicationFailureInfo(type=WORKER_DIED),
    )


def attempt(failure: Failure) -> HistoryEvent:
    """Return an attempt at an activity that follows such a failure."""
    event = HistoryEvent()
    event.activity_task_started_event_attributes.last_failure.CopyFrom(failure)
    return event


def task(failure: Failure) -> HistoryEvent:
    """Return a workflow task that failed in this way."""
    event = HistoryEvent()
    event.workflow_task_failed_event_attributes.failure.CopyFrom(failure)
    return event


def timed_out() -> HistoryEvent:
    """Return a workflow task that timed out."""
    event = HistoryEvent()
    event.workflow_task_timed_out_event_attributes.scheduled_event_id = 1
    return event


def wrong(*events: HistoryEvent, log: str = "", effects: dict[str, int] | None = None) -> list[str]:
    """Return the faults after a storm in which one worker was killed and another was frozen."""
    claims = Claims()
    for event in events:
        claims.read(event)
    storm = Storm(frozen=[1.0], killed={DEAD}, logs=[log])
    return judge(storm, [claims], {}, effects or {}, seconds=1)[1]


def test_timeouts_and_takeovers_of_dead_workers_are_correct() -> None:
    """Temporal's time-outs are allowed, and so is ending the claims of the killed worker."""
    late = attempt(Failure(message="heartbeat", timeout_failure_info=TimeoutFailureInfo()))
    line = f"[info] taken_over [takeover] activities=1 workers=['{DEAD}'] workflows=1"
    assert wrong(attempt(died(DEAD)), task(died(DEAD)), late, timed_out(), log=line) == []


def test_ending_a_claim_of_a_living_process_is_a_fault() -> None:
    """An activity, a workflow task or a line of the log that names a living worker is each reported."""
    assert wrong(attempt(died(LIVING))) == [f"1 claims of {LIVING} were ended although it was alive"]
    assert wrong(task(died(LIVING))) == [f"1 claims of {LIVING} were ended although it was alive"]
    line = f"[info] taken_over [takeover] activities=1 workers=['{DEAD}', '{LIVING}'] workflows=1"
    assert wrong(log=line) == [f"the log reports a takeover of {LIVING}, which was alive"]


def test_an_effect_without_a_call_is_a_fault() -> None:
    """The key of such an effect is in no run's log."""
    assert wrong(effects={"thread-1/7": 1}) == ["effect thread-1/7 belongs to no call of any run"]
