"""A forged `agent_loaded` is found: a rewritten record cannot change who is asked, or for whom the agent works."""

from typing import Any

import pytest

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.budget.account import TokenPrice
from holdfast.core.log.events import AgentEvent, AgentLoaded, RunStarted
from holdfast.core.run.state.features import FEATURES
from tests.support.runs import NOW, Thread, agent_spec, says
from tests.unit.audit.test_audit import changed, fault

SCHEMA = {"type": "object", "properties": {"number": {"type": "string"}, "limit": {"type": "number"}}}
ANN = {"number": "4711", "note": "of the parent"}


def log_of(said: WhenBlocked | None = None, agents: WhenBlocked = "wait", **start: Any) -> list[AgentEvent]:
    """Return the log of a run, which an audit accepts."""
    spec = agent_spec(when_blocked=agents, context=SCHEMA if "context" in start else None)
    begin = {"sealed": True, "issued_at": NOW, "start": "s", "features": FEATURES, "when_blocked": said, **start}
    thread = Thread(spec, **begin)
    thread.load(FEATURES)
    thread.reply(says("done"))
    assert fault(thread.log) is None
    return thread.log


def forged(events: list[AgentEvent], **fields: Any) -> str:
    """Return what an audit finds if `agent_loaded` has other fields; empty for nothing."""
    found = fault(changed(events, AgentLoaded, lambda event: event.model_copy(update=fields)))
    return found.reason if found else ""


@pytest.mark.parametrize("agents", ["wait", "fail"])
@pytest.mark.parametrize("said", [None, "wait", "fail"])
def test_the_start_or_the_agent_says_who_is_asked(said: WhenBlocked | None, agents: WhenBlocked) -> None:
    """A run is unattended if its start says so, or its agent where the start says nothing; a log with another claim
    about it is forged.
    """
    events = log_of(said, agents)
    (loaded,) = [event for event in events if isinstance(event, AgentLoaded)]
    assert loaded.unattended == ((said or agents) == "fail")
    assert "attended" in forged(events, unattended=not loaded.unattended)


def test_the_start_cannot_be_rewritten_to_match() -> None:
    """Without its `when_blocked`, a start does not lead to an unattended run."""
    events = changed(log_of("fail"), RunStarted, lambda event: event.model_copy(update={"when_blocked": None}))
    assert (found := fault(events)) is not None
    assert "attended" in found.reason


def test_a_plain_start_is_a_claim() -> None:
    """What a start without a fleet key says about it is not recorded, so both are possible."""
    plain = {"sealed": False, "start": "", "when_blocked": None}
    events = changed(log_of("fail"), RunStarted, lambda event: event.model_copy(update=plain))
    assert fault(events) is None
    assert forged(events, unattended=False) == ""


def test_the_agent_is_the_one_that_was_asked_for() -> None:
    """A log in which another agent took the task is forged."""
    spec = agent_spec(name="other")
    events = log_of(agent=agent_spec().name)
    assert "asks for the agent" in forged(events, spec=spec, spec_hash=spec.hash, policy_hash="")


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"number": "4711"}, "lacks the field 'note'"),
        ({**ANN, "note": "of somebody else"}, "has 'note'"),
        ({**ANN, "admin": True}, "has 'admin'"),
        ({**ANN, "number": 20_000 * "x"}, "larger than"),
    ],
    ids=["lost", "changed", "added", "large"],
)
def test_a_model_completes_a_context_and_takes_nothing_away(context: dict[str, Any], why: str) -> None:
    """The context of the loaded agent has all fields of the start's, and more only if its model has them."""
    events = log_of(context=ANN)
    assert forged(events, context={**ANN, "limit": 5}) == ""
    assert why in forged(events, context=context)


def test_an_agent_without_a_model_has_no_context_of_its_own() -> None:
    """A context that no model gave is forged, and so is a price without a budget of money."""
    events = log_of()
    assert "no model" in forged(events, context={"number": "4711"})
    assert "price" in forged(events, price=TokenPrice(request=1, reply=1))


def test_what_the_start_said_lasts_for_the_run() -> None:
    """A start that lets a run wait for people counts on another cluster, too, where its agent would not wait."""
    thread = Thread(agent_spec(when_blocked="fail"), when_blocked="wait", features=FEATURES, sealed=True, start="s")
    thread.load(FEATURES)
    there = thread.moved().imported(agent_spec(when_blocked="fail", instructions="There."))
    assert not there.state.unattended
    assert fault(there.log) is None
