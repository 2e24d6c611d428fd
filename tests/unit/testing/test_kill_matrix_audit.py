"""The audit of the kill matrix detects each possible fault."""

from datetime import UTC, datetime

import pytest

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import Policy
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    RunFinished,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    ToolStatus,
)
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.spec import ToolSpec
from holdfast.testing.kill_matrix.audit import audit


def run_log(*, status: ToolStatus = "ok", effect: Effect = Effect.UNSAFE, end: bool = True) -> list[AgentEvent]:
    """Return the log of a run with one call `pay` with the key `k`, approved by alice."""
    tool = ToolSpec(name="pay", description="", parameters={}, effect=effect, timeout=1)
    spec = AgentSpec(name="a", instructions="", tools=(tool,), policy=Policy(), llm="l", limits=Limits())
    log = EventLog()
    events: list[AgentEvent] = [
        AgentLoaded(spec=spec, spec_hash=spec.hash, workspace="/w"),
        ToolCallRequested(number=1, call=ToolCall(id="c", name="pay", arguments="{}")),
        DecisionReceived(request="1", decision="approve", by="alice", reason="", outcome="accepted"),
        ToolCallStarted(number=1, key="k"),
        ToolCallFinished(number=1, status=status, content=""),
        RunFinished(outcome="completed"),
    ]
    return [log.append(event, at=datetime(2026, 1, 1, tzinfo=UTC)) for event in (events if end else events[:-2])]


def test_a_run_whose_effects_happened_once_has_no_faults() -> None:
    """If each effect happened once and each decision was received, there are no faults, despite other effects."""
    assert audit(run_log(), effects={"k": 1, "of another run": 2}, sent=["alice"]) == []


@pytest.mark.parametrize(
    ("effects", "sent", "expected"),
    [
        ({"k": 2}, [], "happened 2 times"),
        ({}, [], "is lost: the log says that it happened"),
        ({"k": 1}, ["alice", "bob"], "the decision of bob is lost"),
    ],
)
def test_each_fault_is_reported(effects: dict[str, int], sent: list[str], expected: str) -> None:
    """A repeated effect, a missing effect and a lost decision are reported, in one sentence each."""
    (wrong,) = audit(run_log(), effects=effects, sent=sent)
    assert expected in wrong


def test_a_call_without_a_result_is_reported() -> None:
    """A run that stops during a call did not complete, and its call has no result."""
    incomplete, call = audit(run_log(end=False), effects={})
    assert incomplete.endswith("did not complete: []")
    assert call.endswith("has no result")


def test_an_effect_that_failed_may_have_happened_or_not() -> None:
    """Only `ok` promises an effect; a read promises none."""
    assert audit(run_log(status="failed"), effects={}) == audit(run_log(status="failed"), effects={"k": 1}) == []
    assert audit(run_log(effect=Effect.READ), effects={}) == []


def test_an_altered_log_is_reported() -> None:
    """An event that was changed afterwards is named by its position."""
    events = run_log()
    events[1] = events[1].model_copy(update={"number": 2})
    assert "event 1 does not follow from the one before it" in audit(events, effects={"k": 1})
