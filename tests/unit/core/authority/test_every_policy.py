"""A call that several policies judge: each that asks brings its terms, its people and its signatures."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.authority.policy import Approver, Escalation, Gateway, Policy, Requirement, Terms, allow, ask, deny
from holdfast.core.authority.statements import AuthorityDelegation
from holdfast.core.authority.votes import expires_after, on_expiry
from holdfast.core.lineage import Lineage
from holdfast.core.log.events import ApprovalRequested, DecisionReceived
from holdfast.core.run.state.features import EVERY_POLICY_ASKS
from tests.support.people import KEYS, PEOPLE, decision, lift, revocation, signed, steering
from tests.support.runs import Thread, agent_spec, calls

FINANCE = Policy(
    rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)), allow()), approvers=PEOPLE, signatures="required"
)
"""Two of finance (alice and bob), signed."""
NOBODY = Policy(rules=(ask("pay"), allow()))
"""Asks, and knows no approvers: anybody decides, unsigned."""
LAX = Policy(rules=(allow(),))
"""Asks nothing."""
CLERKS = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="carol"), Approver(name="erin")))
"""Any clerk decides, unsigned."""


def of(policy: Policy, **changes: Any) -> AgentSpec:
    """Return an agent under that policy."""
    return agent_spec(policy=policy, **changes)


def child(own: Policy, *above: Policy, features: int = 1) -> Thread:
    """Return a sub-agent under its own policy and those of the runs above, which is about to pay."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = Thread(of(own), lineage=lineage, features=1, depth=len(above), policies=above)
    thread.load(features)
    thread.reply(calls("pay"))
    return thread


def fork(own: Policy, before: Policy) -> Thread:
    """Return a fork with another agent, which the policy of the original's agent judges, too, and which pays."""
    thread = Thread(of(before), features=1)
    thread.load(1)
    there = thread.fork(task="go on", policies=(before,))
    there.spec = of(own)
    there.load(1)
    there.reply(calls("pay"))
    return there


def moved(own: Policy, before: Policy) -> Thread:
    """Return a run that was imported under another policy than the recorded one, and pays."""
    thread = Thread(of(before), features=1)
    thread.load(1)
    said = steering("t", thread.state.view(), "move", "carol") if before.signatures == "required" else None
    there = thread.moved(said).imported(of(own, instructions="Work here."))
    there.reply(calls("pay"))
    return there


def votes(thread: Thread, *people: str, sign: bool = True, **said: Any) -> list[str]:
    """Have these people decide the open request; return the outcomes."""
    outcomes = []
    for by in people:
        (request,) = thread.state.pending_view()
        payload = {"decision": "approve", "request": request["request"], "by": by, **said}
        if sign:
            payload = decision(thread.name, request, by=by, **said)
        outcomes.append(thread.update("decide", payload)["outcome"])
    return outcomes


def audited(thread: Thread, name: str = "t") -> None:
    """Check that the log follows from itself, and the state from the log."""
    audit = Audit(name)
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    thread.check_consistent()


MADE = [
    pytest.param(lambda own, above: child(own, above), id="sub-agent"),
    pytest.param(lambda own, above: child(own, LAX, above), id="sub-agent of a sub-agent"),
    pytest.param(fork, id="fork"),
    pytest.param(moved, id="import"),
]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("own", [NOBODY, LAX, CLERKS])
def test_a_verdict_from_above_brings_its_people_and_signatures(make: Any, own: Policy) -> None:
    """A policy from above that asks for two of finance, signed, gets them, whatever the run's own policy says."""
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
    """A log whose call ran with the votes that one policy asks for, and not the other, is not believed."""
    thread = child(own, FINANCE)
    votes(thread, "alice", "bob")
    if own is CLERKS:
        votes(thread, "carol", sign=False)
    assert thread.running_calls == [1]
    audited(thread)
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
    audited(thread)


def test_the_same_policy_above_asks_once() -> None:
    """Where agents share a policy, which is the usual case, a request has no more requirements than it had."""
    thread = child(CLERKS, CLERKS, CLERKS)
    (request,) = thread.state.authority.requests
    assert request.requirements == ()
    assert votes(thread, "erin", sign=False) == ["accepted"]


def test_a_request_lists_what_each_policy_requires() -> None:
    """Views say which rule asks, who decides for it, how many, and who has."""
    thread = child(CLERKS, FINANCE)
    votes(thread, "alice")
    (view,) = thread.state.pending_view()
    own, above = view["requirements"]
    assert (own["policy"], own["who"], own["quorum"], own["votes"]) == ("", [], 1, [])
    assert (above["policy"], above["who"], above["quorum"]) == (FINANCE.hash, ["finance"], 2)
    assert above["votes"] == ["alice"]


@pytest.mark.parametrize(("by", "signs", "outcome"), [("alice", True, "accepted"), ("erin", False, "accepted")])
def test_anybody_who_may_decide_for_one_policy_may_deny(by: str, signs: bool, outcome: str) -> None:
    """A single denial is enough, under whichever policy its sender is entitled."""
    thread = child(CLERKS, FINANCE)
    assert votes(thread, by, sign=signs, decision="deny") == [outcome]
    assert not thread.state.authority.requests


def test_a_stranger_cannot_deny_where_people_are_named() -> None:
    """A policy that asks for anybody adds nobody to those whom another one names."""
    thread = child(NOBODY, FINANCE)
    assert votes(thread, "mallory", sign=False, decision="deny") == ["unsigned"]
    assert len(thread.state.authority.requests) == 1


def test_requesters_are_barred_by_the_policy_that_bars_them() -> None:
    """Who gave the task decides for a policy that lets requesters decide, and not for one that does not."""
    strict = Policy(
        rules=(ask("pay"), allow()), approvers=PEOPLE, terms=Terms(requester_may_decide=False), signatures="required"
    )
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3, requesters=("carol",))
    thread = Thread(of(CLERKS), lineage=lineage, features=1, depth=1, policies=(strict,))
    thread.load(1)
    thread.reply(calls("pay"))
    assert votes(thread, "carol") == ["waiting_for_quorum"]
    assert votes(thread, "alice") == ["accepted"]


def test_delegated_authority_counts_for_the_policy_that_names_both() -> None:
    """An approver of the policy above lends their vote to another; revoking that takes it back."""
    thread = child(LAX, FINANCE)
    assert thread.update("delegate_authority", {"by": "bob", "to": "carol", "seconds": 60})["outcome"] == "unsigned"
    given = _delegation(thread, "bob", "carol")
    assert thread.update("delegate_authority", given)["outcome"] == "accepted"
    assert votes(thread, "carol") == ["waiting_for_quorum"]
    assert thread.update("revoke", {"by": "bob", "delegated_to": "carol"})["outcome"] == "unsigned"
    assert thread.update("revoke", revocation("t", "bob", delegated_to="carol"))["outcome"] == "accepted"
    (request,) = thread.state.authority.requests
    assert request.votes == ()
    assert votes(thread, "carol") == ["not_entitled"]
    assert votes(thread, "alice", "bob") == ["waiting_for_quorum", "accepted"]
    audited(thread)


def _delegation(thread: Thread, by: str, to: str) -> dict[str, Any]:
    until = (thread.at + timedelta(hours=1)).isoformat()
    return signed(AuthorityDelegation, thread.name, by=by, to=to, until=until)


def test_a_remembered_rule_has_to_satisfy_every_policy() -> None:
    """`remember` by the people of one policy lifts nothing that another one asks."""
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


def test_what_the_run_asks_by_itself_is_asked_of_all() -> None:
    """An unknown outcome is resolved by the people of every policy, not by anybody whom the child's own takes."""
    above = Policy(rules=(allow(),), approvers=PEOPLE, signatures="required", terms=Terms(by=("head",)))
    thread = child(LAX, above)
    thread.finish(1, status="unknown")
    assert votes(thread, "mallory", sign=False, decision="absent") == ["unsigned"]
    assert votes(thread, "alice", decision="absent") == ["not_entitled"]
    assert votes(thread, "dave", decision="absent") == ["accepted"]
    audited(thread)


def test_a_fork_is_lifted_by_somebody_whom_every_policy_names() -> None:
    """A fork with another agent does not let anybody take away what asks first."""
    thread = fork(NOBODY, FINANCE)
    assert thread.update("lift", {"by": "mallory", "constraint": 0})["outcome"] == "unsigned"
    assert thread.update("lift", lift("u", "alice", 0))["outcome"] == "accepted"
    with_clerks = fork(CLERKS, FINANCE)
    assert with_clerks.update("lift", lift("u", "alice", 0))["outcome"] == "not_entitled"
    assert with_clerks.update("lift", lift("u", "carol", 0))["outcome"] == "accepted"


def test_a_vouching_gateway_counts_for_the_policies_that_list_it() -> None:
    """Of two policies that require signatures, a gateway that one lists satisfies that one alone."""
    gateway = Gateway(name="hooks", keys=(FINANCE.approvers[3].keys[0],))
    listing = Policy(
        rules=(ask("pay"), allow()), approvers=(Approver(name="erin"),), gateways=(gateway,), signatures="required"
    )
    thread = child(listing, FINANCE)
    assert votes(thread, "erin", key=KEYS["dave"]) == ["waiting_for_quorum"]
    assert votes(thread, "alice", "bob") == ["waiting_for_quorum", "accepted"]
    audited(thread)


def test_the_stricter_verdict_still_counts() -> None:
    """What any policy denies is denied; what all allow runs."""
    denied = child(NOBODY, Policy(rules=(deny("pay"), allow())))
    assert not denied.state.authority.requests
    assert not denied.running_calls
    assert child(LAX, LAX, Policy(rules=(allow("pay"),))).running_calls == [1]


def test_below_the_feature_level_the_agents_own_policy_decides() -> None:
    """A run that an earlier release began keeps its course."""
    assert EVERY_POLICY_ASKS == 1
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = Thread(of(NOBODY), lineage=lineage, depth=1, policies=(FINANCE,), features=0)
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
    """The first expiry that denies counts; expiry approves only where every policy has it approve, after the last."""
    required = [Requirement(terms=Terms(expires_after=seconds, on_expiry=kind)) for seconds, kind in terms]
    assert expires_after(required) == after
    assert on_expiry(required) == then or after is None


def test_each_policy_escalates_to_its_own_people() -> None:
    """More people of one policy are asked at its time, and gain nothing under another."""
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
    audited(thread)
