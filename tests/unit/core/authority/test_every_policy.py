"""A call under several policies: each that asks adds its requirements, its approvers and its signatures."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import Approver, Escalation, Gateway, Policy, Requirement, Terms, allow, ask, deny
from holdfast.core.authority.statements import AuthorityDelegation
from holdfast.core.authority.votes import expires_after, on_expiry
from holdfast.core.budget.budget import Budget
from holdfast.core.lineage import Lineage
from holdfast.core.log.events import ApprovalRequested, DecisionReceived
from holdfast.core.run.state.features import EVERY_POLICY_ASKS
from holdfast.core.run.views.deciders import pending_view
from holdfast.core.run.views.status import state_view
from tests.support.people import KEYS, PEOPLE, decision, lift, revocation, signed, steering
from tests.support.runs import Thread, agent_spec, calls

FINANCE = Policy(
    rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)), allow()), approvers=PEOPLE, signatures="required"
)
"""A policy that asks for two of finance (alice and bob), signed."""
NOBODY = Policy(rules=(ask("pay"), allow()))
"""A policy that asks and names no approvers: anybody decides, unsigned."""
LAX = Policy(rules=(allow(),))
"""A policy that asks nothing."""
CLERKS = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="carol"), Approver(name="erin")))
"""A policy under which any clerk decides, unsigned."""


def agent_under(policy: Policy, **changes: Any) -> AgentSpec:
    """Return an agent under that policy."""
    return agent_spec(policy=policy, **changes)


def child(own: Policy, *above: Policy, features: int = 1) -> Thread:
    """Return a sub-agent that is about to pay, under its own policy and those of the runs above."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = Thread(agent_under(own), lineage=lineage, features=1, depth=len(above), policies=above)
    thread.load(features)
    thread.reply(calls("pay"))
    return thread


def fork(own: Policy, before: Policy) -> Thread:
    """Return a fork with another agent that pays; the policy of the original's agent judges it, too."""
    thread = Thread(agent_under(before), features=1)
    thread.load(1)
    there = thread.fork(task="go on", policies=(before,))
    there.spec = agent_under(own)
    there.load(1)
    there.reply(calls("pay"))
    return there


def moved(own: Policy, before: Policy) -> Thread:
    """Return an imported run that pays under another policy than the recorded one."""
    thread = Thread(agent_under(before), features=1)
    thread.load(1)
    signed_move = steering("t", state_view(thread.state), "move", "carol") if before.signatures == "required" else None
    there = thread.moved(signed_move).imported(agent_under(own, instructions="Work here."))
    there.reply(calls("pay"))
    return there


def votes(thread: Thread, *people: str, sign: bool = True, **said: Any) -> list[str]:
    """Make these people decide the open request; return the outcomes."""
    outcomes = []
    for by in people:
        (request,) = pending_view(thread.state)
        payload = {"decision": "approve", "request": request["request"], "by": by, **said}
        if sign:
            payload = decision(thread.name, request, by=by, **said)
        outcomes.append(thread.update("decide", payload)["outcome"])
    return outcomes


def check_audit(thread: Thread, name: str = "t") -> None:
    """Check that the log passes its audit, and that the state follows from the log."""
    audit = Audit(name)
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    thread.check_consistent()


def test_a_sub_agents_budget_is_extended_by_people_of_every_policy() -> None:
    """The policies above count as well, even if the budget is the sub-agent's own."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    own = agent_under(LAX, budget=Budget(steps=20))
    thread = Thread(own, lineage=lineage, features=1, depth=1, policies=(FINANCE,))
    thread.load(1)
    assert thread.update("extend", {"by": "alice", "steps": 5})["outcome"] == "unsigned"
    check_audit(thread)


MADE = [
    pytest.param(lambda own, above: child(own, above), id="sub-agent"),
    pytest.param(lambda own, above: child(own, LAX, above), id="sub-agent of a sub-agent"),
    pytest.param(fork, id="fork"),
    pytest.param(moved, id="import"),
]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("own", [NOBODY, LAX, CLERKS])
def test_a_verdict_from_above_brings_its_people_and_signatures(make: Any, own: Policy) -> None:
    """A policy from above that asks for two signed approvals gets them, under any policy of the run's own."""
    thread = make(own, FINANCE)
    assert votes(thread, "mallory", "eve", sign=False) == ["unsigned", "unsigned"] or own is CLERKS
    assert votes(thread, "alice", sign=False) in (["unsigned"], ["not_entitled"])
    assert not thread.running_calls
    assert votes(thread, "alice") == ["waiting_for_quorum"]
    if own is CLERKS:
        assert votes(thread, "bob") == ["waiting_for_quorum"], "no clerk has agreed yet"
        assert not thread.running_calls
        assert votes(thread, "erin", sign=False) == ["accepted"]
    else:
        assert votes(thread, "bob") == ["accepted"]
    assert thread.running_calls == [1 if thread.name == "t" else thread.state.calls.count]


@pytest.mark.parametrize("own", [NOBODY, LAX, CLERKS])
def test_an_audit_judges_the_votes_for_each_policy_again(own: Policy) -> None:
    """A log whose call ran with the votes of only one of two asking policies fails the audit."""
    thread = child(own, FINANCE)
    votes(thread, "alice", "bob")
    if own is CLERKS:
        votes(thread, "carol", sign=False)
    assert thread.running_calls == [1]
    check_audit(thread)
    received = [event for event in thread.log if isinstance(event, DecisionReceived)]
    forged = [event.model_copy(update={"standings": ()}) if event is received[0] else event for event in thread.log]
    audit = Audit("t")
    audit.take(forged)
    assert audit.fault is not None
    assert "standings" in audit.fault.reason


def test_one_person_of_both_policies_decides_once_for_both() -> None:
    """A decision counts for every policy under which its sender may decide."""
    thread = child(CLERKS, Policy(rules=(ask("pay"), allow()), approvers=PEOPLE, signatures="required"))
    assert votes(thread, "carol") == ["accepted"]
    check_audit(thread)


def test_the_same_policy_above_asks_once() -> None:
    """If agents share a policy, as they usually do, a request gains no requirements."""
    thread = child(CLERKS, CLERKS, CLERKS)
    (request,) = thread.state.authority.requests
    assert request.requirements == ()
    assert votes(thread, "erin", sign=False) == ["accepted"]


def test_a_request_lists_what_each_policy_requires() -> None:
    """Views show which rule asks, who decides for it, how many are needed, and who has decided."""
    thread = child(CLERKS, FINANCE)
    votes(thread, "alice")
    (view,) = pending_view(thread.state)
    own, above = view["requirements"]
    assert (own["policy"], own["who"], own["quorum"], own["votes"]) == ("", [], 1, [])
    assert (above["policy"], above["who"], above["quorum"]) == (FINANCE.hash, ["finance"], 2)
    assert above["votes"] == ["alice"]


@pytest.mark.parametrize(("by", "signs", "outcome"), [("alice", True, "accepted"), ("erin", False, "accepted")])
def test_anybody_who_may_decide_for_one_policy_may_deny(by: str, signs: bool, outcome: str) -> None:
    """A single denial is enough, under any policy that entitles its sender."""
    thread = child(CLERKS, FINANCE)
    assert votes(thread, by, sign=signs, decision="deny") == [outcome]
    assert not thread.state.authority.requests


def test_a_stranger_cannot_deny_if_people_are_named() -> None:
    """A policy under which anybody decides adds nobody to the people that another one names."""
    thread = child(NOBODY, FINANCE)
    assert votes(thread, "mallory", sign=False, decision="deny") == ["unsigned"]
    assert len(thread.state.authority.requests) == 1


def test_requesters_are_barred_by_the_policy_that_bars_them() -> None:
    """The requester decides under a policy that lets requesters decide, and not under one that does not."""
    strict = Policy(
        rules=(ask("pay"), allow()), approvers=PEOPLE, terms=Terms(requester_may_decide=False), signatures="required"
    )
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3, requesters=("carol",))
    thread = Thread(agent_under(CLERKS), lineage=lineage, features=1, depth=1, policies=(strict,))
    thread.load(1)
    thread.reply(calls("pay"))
    assert votes(thread, "carol") == ["waiting_for_quorum"]
    assert votes(thread, "alice") == ["accepted"]


def test_delegated_authority_counts_for_the_policy_that_names_both() -> None:
    """An approver of the policy above delegates to another approver; a revocation ends that."""
    thread = child(LAX, FINANCE)
    assert thread.update("delegate_authority", {"by": "bob", "to": "carol", "seconds": 60})["outcome"] == "unsigned"
    delegation = _delegation(thread, "bob", "carol")
    assert thread.update("delegate_authority", delegation)["outcome"] == "accepted"
    assert votes(thread, "carol") == ["waiting_for_quorum"]
    assert thread.update("revoke", {"by": "bob", "delegated_to": "carol"})["outcome"] == "unsigned"
    assert thread.update("revoke", revocation("t", "bob", delegated_to="carol"))["outcome"] == "accepted"
    (request,) = thread.state.authority.requests
    assert request.votes == ()
    assert votes(thread, "carol") == ["not_entitled"]
    assert votes(thread, "alice", "bob") == ["waiting_for_quorum", "accepted"]
    check_audit(thread)


def _delegation(thread: Thread, by: str, to: str) -> dict[str, Any]:
    until = (thread.at + timedelta(hours=1)).isoformat()
    return signed(AuthorityDelegation, thread.name, by=by, to=to, until=until)


def test_a_remembered_rule_has_to_satisfy_every_policy() -> None:
    """A `remember` by one policy's people removes no requirement of another policy."""
    thread = child(NOBODY, FINANCE)
    votes(thread, "alice", "bob", remember=True)
    thread.finish(1)
    assert len(thread.state.authority.rules) == 1
    thread.reply(calls("pay", first=1))
    assert thread.running_calls == [2], "both have said so, and both policies are satisfied"
    other = child(CLERKS, FINANCE)
    votes(other, "alice", "bob", remember=True)
    votes(other, "erin", sign=False)
    other.finish(1)
    assert other.state.authority.rules == (), "erin has not asked for it"


def test_the_runs_own_questions_go_to_the_people_of_every_policy() -> None:
    """An unknown outcome is resolved by the people of every policy, not by anybody whom the sub-agent's own policy
    accepts.
    """
    above = Policy(rules=(allow(),), approvers=PEOPLE, signatures="required", terms=Terms(by=("head",)))
    thread = child(LAX, above)
    thread.finish(1, status="unknown")
    assert votes(thread, "mallory", sign=False, decision="absent") == ["unsigned"]
    assert votes(thread, "alice", decision="absent") == ["not_entitled"]
    assert votes(thread, "dave", decision="absent") == ["accepted"]
    check_audit(thread)


def test_only_a_person_of_every_policy_unlocks_a_fork() -> None:
    """Removing the constraint of a fork with another agent takes a person whom every policy names."""
    thread = fork(NOBODY, FINANCE)
    assert thread.update("lift", {"by": "mallory", "constraint": 0})["outcome"] == "unsigned"
    assert thread.update("lift", lift("u", "alice", 0))["outcome"] == "accepted"
    with_clerks = fork(CLERKS, FINANCE)
    assert with_clerks.update("lift", lift("u", "alice", 0))["outcome"] == "not_entitled"
    assert with_clerks.update("lift", lift("u", "carol", 0))["outcome"] == "accepted"


def test_a_vouching_gateway_counts_for_the_policies_that_list_it() -> None:
    """If two policies require signatures, a gateway that one lists satisfies only that one."""
    gateway = Gateway(name="hooks", keys=(FINANCE.approvers[3].keys[0],))
    listing = Policy(
        rules=(ask("pay"), allow()), approvers=(Approver(name="erin"),), gateways=(gateway,), signatures="required"
    )
    thread = child(listing, FINANCE)
    assert votes(thread, "erin", key=KEYS["dave"]) == ["waiting_for_quorum"]
    assert votes(thread, "alice", "bob") == ["waiting_for_quorum", "accepted"]
    check_audit(thread)


def test_the_stricter_verdict_still_counts() -> None:
    """A call that any policy denies is denied; one that all policies allow runs."""
    denied = child(NOBODY, Policy(rules=(deny("pay"), allow())))
    assert not denied.state.authority.requests
    assert not denied.running_calls
    assert child(LAX, LAX, Policy(rules=(allow("pay"),))).running_calls == [1]


def test_below_the_feature_level_the_agents_own_policy_decides() -> None:
    """A run that an earlier release began keeps its behaviour."""
    assert EVERY_POLICY_ASKS == 1
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = Thread(agent_under(NOBODY), lineage=lineage, depth=1, policies=(FINANCE,), features=0)
    thread.load(0)
    thread.reply(calls("pay"))
    (request,) = [event.request for event in thread.log if isinstance(event, ApprovalRequested)]
    assert request.requirements == ()


A, D = "approve", "deny"


@pytest.mark.parametrize(
    ("terms", "after", "then"),
    [
        ([(60, D), (3_600, D)], 60, D),
        ([(60, D), (None, D)], 60, D),
        ([(None, D), (None, D)], None, D),
        ([(60, A), (3_600, D)], 3_600, D),
        ([(60, A), (None, D)], None, D),
        ([(60, A), (3_600, A)], 3_600, A),
        ([(60, A), (None, A)], None, A),
        ([(60, A)], 60, A),
        ([(60, D)], 60, D),
    ],
)
def test_time_takes_nothing_from_the_people_of_any_policy(
    terms: list[tuple[float | None, Any]], after: float | None, then: str
) -> None:
    """The first expiry that denies counts; expiry approves only if every policy says so, after the last one."""
    required = [Requirement(terms=Terms(expires_after=seconds, on_expiry=kind)) for seconds, kind in terms]
    assert expires_after(required) == after
    assert on_expiry(required) == then or after is None


def test_each_policy_escalates_to_its_own_people() -> None:
    """At its time, each policy asks more of its own people, who gain no vote under another policy."""
    above = Policy(
        rules=(
            ask("pay", terms=Terms(by=("finance",), escalate=(Escalation(after=60, by=("head",)),))),
            allow(),
        ),
        approvers=PEOPLE,
        signatures="required",
    )
    own = Policy(
        rules=(ask("pay", terms=Terms(by=("erin",), escalate=(Escalation(after=120, by=("carol",)),))), allow()),
        approvers=CLERKS.approvers,
    )
    thread = child(own, above)
    assert votes(thread, "dave") == ["not_entitled"]
    thread.advance(seconds=61)
    assert votes(thread, "carol", sign=False) == ["not_entitled"], "her policy's time has not come"
    assert votes(thread, "dave") == ["waiting_for_quorum"]
    thread.advance(seconds=60)
    assert votes(thread, "carol", sign=False) == ["accepted"]
    check_audit(thread)
