"""The audit of the kill matrix detects each fault in waits, pauses and inputs of a run."""

from datetime import UTC, datetime, timedelta

from holdfast.core.llm.messages import Usage
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import (
    AgentEvent,
    DormancyBegan,
    LLMReplied,
    RunFinished,
    RunPaused,
    RunResumed,
    SignalRejected,
    TaskRefined,
    ToolCallFinished,
    ToolCallStarted,
    WakeReceived,
)
from holdfast.core.tools.triggers import EventTrigger, TimeTrigger
from holdfast.testing.kill_matrix.audit_interventions import audit_pauses, audit_sent, audit_waits

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
PAID = EventTrigger(kind="event", event="paid")
HOUR = TimeTrigger(kind="time", until=BEGAN + timedelta(hours=1))
END = RunFinished(outcome="completed")


def log_of(*events: AgentEvent, minutes: int = 1) -> list[AgentEvent]:
    """Stamp the events, with that many minutes between them."""
    log = EventLog()
    return [log.append(event, at=BEGAN + timedelta(minutes=minutes * number)) for number, event in enumerate(events)]


def sleep_started(number: int, trigger: EventTrigger | TimeTrigger = PAID, *, wake: int = 0) -> DormancyBegan:
    """Return the start of a sleeping call."""
    return DormancyBegan(number=number, trigger=trigger, wake=wake)


def event_received(outcome: str = "delivered", *, event: str = "paid", id: str = "a") -> WakeReceived:
    """Return an event."""
    return WakeReceived.model_validate({"outcome": outcome, "event": event, "id": id, "data": "{}"})


def call_result(number: int) -> ToolCallFinished:
    """Return the result of a call."""
    return ToolCallFinished(number=number, status="ok", content="")


def reply() -> LLMReplied:
    """Return a reply of the LLM."""
    return LLMReplied(message=None, transcript_length=0, usage=Usage(), finish_reason="stop", llm="l")


def test_waits_that_ended_once_have_no_faults() -> None:
    """One event ends two waits; a buffered one ends the next wait for it; a sleep ends by time or by a person."""
    assert (
        audit_waits(log_of(sleep_started(1), sleep_started(2), event_received(), call_result(1), call_result(2), END))
        == []
    )
    assert (
        audit_waits(
            log_of(
                ToolCallStarted(number=1, key="k"), event_received("buffered"), sleep_started(2, wake=1), call_result(2)
            )
        )
        == []
    )
    assert audit_waits(log_of(sleep_started(1, HOUR), call_result(1), minutes=61)) == []
    refined = TaskRefined(refinement=1, kind="narrow", text="t", by="alice")
    assert audit_waits(log_of(sleep_started(1, HOUR), refined, call_result(1))) == []


def test_a_wait_without_one_result_is_reported() -> None:
    """A timer that wakes twice, a wait that never ends, and a call that begins to wait twice are reported."""
    assert "the wait of call 1 has 2 results" in audit_waits(
        log_of(sleep_started(1), event_received(), call_result(1), call_result(1))
    )
    assert audit_waits(log_of(sleep_started(1), END)) == ["the wait of call 1 has 0 results"]
    assert "call 1 began to wait 2 times" in audit_waits(
        log_of(sleep_started(1), sleep_started(1), event_received(), call_result(1))
    )


def test_a_wait_that_ended_too_early_is_reported() -> None:
    """Neither its time nor an entry in the log has ended the wait."""
    early = "call 1 was woken by nothing, before its time"
    assert (
        audit_waits(log_of(sleep_started(1, HOUR), call_result(1)))
        == audit_waits(log_of(sleep_started(1), call_result(1)))
        == [early]
    )


def test_an_event_that_counts_twice_is_reported() -> None:
    """An id accepted twice, and a buffered event that ended two waits, are reported."""
    assert audit_waits(log_of(sleep_started(1), event_received(), call_result(1), event_received("buffered"))) == [
        "event a counted 2 times"
    ]
    twice = log_of(
        END,
        event_received("buffered"),
        sleep_started(1, wake=1),
        call_result(1),
        sleep_started(2, wake=1),
        call_result(2),
    )
    assert audit_waits(twice) == ["event 1 was kept once, and ended 2 waits"]


def test_an_event_for_another_wait_is_reported() -> None:
    """The event has another name but ended a wait, at once or buffered, or it was delivered and ended none."""
    (wrong,) = audit_waits(log_of(sleep_started(1), event_received(event="sent"), call_result(1)))
    assert wrong == "call 1 did not wait for event 1, which ended its wait"
    (kept,) = audit_waits(
        log_of(END, event_received("buffered", event="sent"), sleep_started(1, wake=1), call_result(1))
    )
    assert kept == "call 1 did not wait for event 1, which ended its wait"
    assert audit_waits(log_of(END, event_received(), END)) == ["event 1 was delivered, and ended no wait"]


def test_a_start_during_a_pause_is_reported() -> None:
    """A call, the end of the run and a second LLM reply are reported; one reply may have been in progress."""
    paused, resumed = RunPaused(by="alice"), RunResumed(by="alice")
    assert audit_pauses(log_of(paused, reply(), call_result(1), resumed, ToolCallStarted(number=2, key="k"), END)) == []
    started, finished = audit_pauses(log_of(paused, ToolCallStarted(number=1, key="k"), END))
    assert started == "event 1, tool_call_started, came while the run was paused"
    assert finished == "event 2, run_finished, came while the run was paused"
    assert audit_pauses(log_of(paused, reply(), paused, reply(), resumed)) == [
        "event 3 is reply 2 of the LLM while the run was paused"
    ]
    assert audit_pauses(log_of(paused, resumed, resumed)) == ["event 2 resumed a run that was not paused"]


def test_a_lost_input_is_reported() -> None:
    """An event and a refinement are in the log once, unless they came too late for the run."""
    refined = TaskRefined(refinement=1, kind="narrow", text="t", by="alice", id="r")
    assert audit_sent([event_received(), refined], ids={"a"}, refinements={"r"}) == []
    assert audit_sent([], ids={"a"}, refinements={"r"}) == [
        "wake a was sent, and is in the log 0 times",
        "refine r was sent, and is in the log 0 times",
    ]
    late = SignalRejected(signal="wake", explanation="", outcome="too_late")
    assert audit_sent([late], ids={"a"}, refinements=()) == []
    assert audit_sent([refined, refined], ids=(), refinements={"r"}) == ["refine r was sent, and is in the log 2 times"]
