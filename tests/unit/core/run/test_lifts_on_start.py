"""A lift of a constraint that comes with the start which continues a closed thread."""

from typing import Any

import pytest

from holdfast.core.authority.policy import Approver, Policy, allow
from holdfast.core.authority.statements import Lift
from holdfast.core.log.events import AgentLoaded, ConstraintLifted, SignalRejected
from holdfast.core.run.contracts.error_types import START_REFUSED
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.state.features import FEATURES
from holdfast.core.tools.effects import Effect
from tests.support.people import PEOPLE, signed
from tests.support.runs import NOW, Thread, agent_spec, calls, says, tool_spec
from tests.unit.audit.test_audit import fault

TOOLS = (tool_spec("pay", Effect.IDEMPOTENT),)


def closed(policy: Policy) -> Thread:
    """Return a closed thread whose tool has said that the call cannot be made."""
    thread = Thread(agent_spec(tools=TOOLS, policy=policy), **start("s1"))
    thread.load(FEATURES)
    thread.reply(calls("pay"))
    thread.end(
        thread.waiting(ToolRequest)[0], ToolOutcome(status="cannot", content="the invoice is locked", scope="here")
    )
    thread.reply(says("It is locked."))
    while not thread.closed:
        thread.archive(features=FEATURES)
    assert [each.number for each in thread.state.constraints.kept] == [1]
    return thread


def start(name: str, **more: Any) -> dict[str, Any]:
    """Return the fields of a sealed start."""
    return {"sealed": True, "issued_at": NOW, "start": name, "features": FEATURES, **more}


def continued(thread: Thread, lift: Lift, **more: Any) -> Thread:
    """Continue the thread with a lift, load the agent, and have it make the call again."""
    thread.reopen("try again", **{**start("s2", lift=lift), "issued_at": thread.at, **more})
    thread.load_thread()
    thread.load(FEATURES)
    thread.reply(calls("pay", first=1))
    return thread


def test_the_lift_is_recorded_when_the_agent_is_loaded_and_the_call_runs() -> None:
    """Before the LLM reads the message, the constraint is gone; the record says who lifted it."""
    thread = continued(closed(Policy(rules=(allow(),))), Lift(constraint=1, by="alice", reason="the audit is over"))
    (lifted,) = (event for event in thread.log if isinstance(event, ConstraintLifted))
    loaded = [event for event in thread.log if isinstance(event, AgentLoaded)][-1]
    assert lifted.position == loaded.position + 1
    assert (lifted.by, lifted.reason) == ("alice", "the audit is over")
    assert thread.running_calls
    assert thread.state.lift is None
    assert not fault(thread.log)
    thread.check_consistent()


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (Policy(rules=(allow(),), approvers=(Approver(name="bob"),)), "not_entitled"),
        (Policy(rules=(allow(),), approvers=PEOPLE, signatures="required"), "unsigned"),
    ],
)
def test_the_policy_judges_it_and_a_rejected_one_lifts_nothing(policy: Policy, outcome: str) -> None:
    """Whoever can start a run has no right to lift for that."""
    thread = continued(closed(policy), Lift(constraint=1, by="alice"))
    (rejected,) = (event for event in thread.log if isinstance(event, SignalRejected))
    assert (rejected.signal, rejected.outcome) == ("lift", outcome)
    assert [each.number for each in thread.state.constraints.kept] == [1]
    assert not thread.running_calls
    assert not fault(thread.log)


def test_a_signed_lift_counts() -> None:
    """The signature is verified with the policy's keys once the policy is loaded."""
    thread = closed(Policy(rules=(allow(),), approvers=PEOPLE, signatures="required"))
    continued(thread, Lift(**signed(Lift, thread.name, constraint=1, by="alice")))
    (lifted,) = (event for event in thread.log if isinstance(event, ConstraintLifted))
    assert lifted.proof == "signed"
    assert not fault(thread.log)


def test_only_our_own_processes_give_one_with_its_level() -> None:
    """A plain start has none, and an older worker would ignore it."""
    assert "lift" not in RunInput.PLAIN
    thread = closed(Policy(rules=(allow(),)))
    old = {**start("s2", lift=Lift(constraint=1, by="alice")), "issued_at": thread.at, "features": 1}
    thread.reopen("again", **old)
    thread.load_thread()
    end = thread.run.end
    assert end is not None
    assert end.failure is not None
    assert end.failure.cause == START_REFUSED
