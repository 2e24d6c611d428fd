"""The judge of `bench.freezes`: what was ended of a process that lived is told, wherever it shows."""

from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure, TimeoutFailureInfo
from temporalio.api.history.v1 import HistoryEvent

from bench.storm import Claims, Storm, judge
from holdfast.runtime.takeover.takeover import WORKER_DIED

DEAD, LIVING = "hf:build-7:0123456789abcdef:4711:1", "hf:build-7:0123456789abcdef:4712:1"


def died(identity: str) -> Failure:
    """The failure that a takeover gives an attempt back with."""
    return Failure(
        message=f"the worker of attempt 1 has been killed: {identity} is gone, found by {LIVING}; it is made again",
        application_failure_info=ApplicationFailureInfo(type=WORKER_DIED),
    )


def attempt(failure: Failure) -> HistoryEvent:
    """An attempt at an activity, after another had failed so."""
    event = HistoryEvent()
    event.activity_task_started_event_attributes.last_failure.CopyFrom(failure)
    return event


def task(failure: Failure) -> HistoryEvent:
    """A workflow task that has failed so."""
    event = HistoryEvent()
    event.workflow_task_failed_event_attributes.failure.CopyFrom(failure)
    return event


def timed_out() -> HistoryEvent:
    """A workflow task that Temporal has ended."""
    event = HistoryEvent()
    event.workflow_task_timed_out_event_attributes.scheduled_event_id = 1
    return event


def wrong(*events: HistoryEvent, log: str = "", effects: dict[str, int] | None = None) -> list[str]:
    """What is wrong after a storm in which one worker was killed, and another was frozen."""
    claims = Claims()
    for event in events:
        claims.read(event)
    storm = Storm(frozen=[1.0], killed={DEAD}, logs=[log])
    return judge(storm, [claims], {}, effects or {}, seconds=1)[1]


def test_what_temporal_or_a_takeover_of_the_dead_has_ended_is_right() -> None:
    """Time-outs are Temporal's, whoever was late; the killed worker's claims are there to be ended."""
    late = attempt(Failure(message="heartbeat", timeout_failure_info=TimeoutFailureInfo()))
    taken = f"[info] taken_over [takeover] activities=1 workers=['{DEAD}'] workflows=1"
    assert wrong(attempt(died(DEAD)), task(died(DEAD)), late, timed_out(), log=taken) == []


def test_a_claim_that_was_ended_of_a_living_process_is_wrong() -> None:
    """An activity, a workflow task, or a line of the log that names it: each is told by itself."""
    assert wrong(attempt(died(LIVING))) == [f"1 claims of {LIVING} were ended although it was alive"]
    assert wrong(task(died(LIVING))) == [f"1 claims of {LIVING} were ended although it was alive"]
    taken = f"[info] taken_over [takeover] activities=1 workers=['{DEAD}', '{LIVING}'] workflows=1"
    assert wrong(log=taken) == [f"the log reports a takeover of {LIVING}, which was alive"]


def test_an_effect_that_nobody_asked_for_is_wrong() -> None:
    """Its key is in no run's log."""
    assert wrong(effects={"thread-1/7": 1}) == ["effect thread-1/7 belongs to no call of any run"]
