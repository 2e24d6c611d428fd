"""How a run treats calls whose effects may still arrive, or would be indistinguishable later."""

from datetime import timedelta

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.authority.policy import Policy, allow
from holdfast.core.log.events import DecisionReceived, ReconcileRequested, ToolCallFinished
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.state.features import SETTLING, UNSAFE_ONCE_A_REPLY
from holdfast.core.tools.effects import Effect
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec

SPEC = agent_spec(
    tools=(tool_spec("look"), tool_spec("pay", Effect.UNSAFE, undoable=True), tool_spec("ship", Effect.VERIFIABLE)),
    policy=Policy(rules=(allow(),)),
)


def thread_with_lost_payment(*, features: int, settles_in: float | None = 60) -> Thread:
    """Return a thread that asks about a payment whose request may still arrive."""
    thread = loaded_thread(SPEC, features=features)
    thread.reply(calls("pay"))
    (call,) = thread.waiting(ToolRequest)
    outcome = ToolOutcome(status="unknown", content="TimeoutError: no answer", settles_in=settles_in)
    thread.end(call, outcome)
    return thread


def test_a_question_gives_the_last_time_the_effect_may_arrive() -> None:
    """The time is by the run's clock: the ledger's may differ."""
    (request,) = thread_with_lost_payment(features=SETTLING).state.authority.requests
    assert request.settles_at == request.asked_at + timedelta(seconds=60)
    assert request.view()["settles_at"] == request.settles_at.isoformat()


def test_a_run_of_a_lower_level_records_no_such_time() -> None:
    """An older worker that continues the run would not support it."""
    thread = loaded_thread(SPEC, features=0)
    thread.reply(calls("pay"))
    (call,) = thread.waiting(ToolRequest)
    assert isinstance(call.request, ToolRequest)  # type: ignore[union-attr]
    assert not call.request.settles  # type: ignore[union-attr]
    (request,) = thread_with_lost_payment(features=0).state.authority.requests
    assert request.settles_at is None


@pytest.mark.parametrize(("decision", "done"), [("absent", "runs"), ("undo", "is undone")])
def test_an_early_answer_says_when_it_takes_effect(decision: str, done: str) -> None:
    """The answer counts, but the next attempt waits."""
    thread = thread_with_lost_payment(features=SETTLING)
    thread.signal("reconcile", {"request": "1", "decision": decision, "by": "alice"})
    (received,) = [event for event in thread.log if isinstance(event, DecisionReceived)]
    assert received.outcome == "accepted"
    assert received.explanation.startswith(f"it {done} after 2026-01-02 03:05:05 UTC")
    (call,) = thread.waiting(ToolRequest)
    assert isinstance(call.request, ToolRequest)  # type: ignore[union-attr]
    assert call.request.epoch == 1  # type: ignore[union-attr]


def test_a_late_answer_takes_effect_at_once() -> None:
    """Nothing can arrive any more, so there is nothing to explain."""
    thread = thread_with_lost_payment(features=SETTLING)
    thread.advance(minutes=2)
    thread.signal("reconcile", {"request": "1", "decision": "absent", "by": "alice"})
    (received,) = [event for event in thread.log if isinstance(event, DecisionReceived)]
    assert (received.outcome, received.explanation) == ("accepted", "")


def test_the_same_unsafe_call_twice_in_a_reply_runs_once() -> None:
    """The two effects would be indistinguishable later: the LLM reads why, and may call again."""
    thread = loaded_thread(SPEC, features=UNSAFE_ONCE_A_REPLY)
    thread.reply(calls("pay", "pay", "look", "look", "ship", "ship"))
    assert thread.running_calls == [1, 3, 4, 5, 6]
    (ended,) = [event for event in thread.log if isinstance(event, ToolCallFinished)]
    assert (ended.number, ended.status) == (2, "invalid")
    assert "this reply has the very same call already, as call 1" in ended.text
    for number in thread.running_calls:
        thread.finish(number)
    thread.reply(calls("pay"))
    assert thread.running_calls == [7]


def test_people_read_that_they_are_asked_about_the_same_call_twice() -> None:
    """They decide about each call separately."""
    thread = loaded_thread(SPEC.model_copy(update={"policy": Policy()}), features=UNSAFE_ONCE_A_REPLY)
    thread.reply(calls("pay", "pay"))
    first, second = thread.state.authority.requests
    assert "very same call" not in first.why
    assert "this reply has the very same call as call 1" in second.why
    assert fault_of(thread) == ""
    thread.decide("1")
    thread.decide("2")
    assert thread.running_calls == [1, 2]


def test_other_unsafe_calls_of_a_reply_run() -> None:
    """Other arguments make another call."""
    thread = loaded_thread(SPEC, features=UNSAFE_ONCE_A_REPLY)
    reply = calls("pay", "pay")
    assert reply.message
    first, second = reply.message.tool_calls
    message = reply.message.model_copy(
        update={"content": (first, second.model_copy(update={"arguments": '{"cents": 5}'}))}
    )
    thread.reply(reply.model_copy(update={"message": message}))
    assert thread.running_calls == [1, 2]


def test_a_run_of_a_lower_level_runs_both() -> None:
    """Its history must replay."""
    thread = loaded_thread(SPEC, features=UNSAFE_ONCE_A_REPLY - 1)
    thread.reply(calls("pay", "pay"))
    assert thread.running_calls == [1, 2]


def fault_of(thread: Thread) -> str:
    """Return the fault that the audit finds in a thread's log, or an empty text."""
    audit = Audit(thread.name)
    audit.take(thread.log)
    return audit.fault.reason if audit.fault else ""


def test_the_audit_accepts_such_logs() -> None:
    """`verify` rebuilds the time in a question, the effect of an early answer, and a call that did not run."""
    thread = thread_with_lost_payment(features=SETTLING)
    assert fault_of(thread) == ""
    thread.signal("reconcile", {"request": "1", "decision": "absent", "by": "alice"})
    thread.finish(1)
    thread.reply(calls("pay", "pay"))
    assert fault_of(thread) == ""


def test_the_audit_finds_a_time_without_a_cause() -> None:
    """A time before the question, or in a run of a lower level, is a fault."""
    thread = thread_with_lost_payment(features=0)
    (asked,) = [event for event in thread.log if isinstance(event, ReconcileRequested)]
    request = asked.request.model_copy(update={"settles_at": asked.request.asked_at + timedelta(seconds=60)})
    audit = Audit(thread.name)
    altered = asked.model_copy(update={"request": request})
    audit.take([altered if event is asked else event for event in thread.log])
    assert audit.fault


def test_the_question_keeps_why_the_outcome_is_unknown() -> None:
    """The person reads the exception."""
    (asked,) = [
        event for event in thread_with_lost_payment(features=SETTLING).log if isinstance(event, ReconcileRequested)
    ]
    assert "TimeoutError: no answer" in asked.request.why
