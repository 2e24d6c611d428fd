"""Screens say who may decide a request: what they say agrees with how the run judges decisions."""

from typing import Any

import pytest

from holdfast.core.authority.policy import Approver, Gateway, Policy, Terms, allow, ask
from holdfast.core.authority.signatures import public_key
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.run.views.deciders import open_requests
from tests.support.people import KEYS, PEOPLE
from tests.support.runs import Thread, agent_spec, calls
from tests.unit.core.authority.test_every_policy import CLERKS, FINANCE, NOBODY, child

NAMES = ("alice", "bob", "carol", "dana", "erin", "mallory")


def asking(policy: Policy) -> Thread:
    """Return a run of Dana's task that asks whether it may pay."""
    thread = Thread(agent_spec(policy=policy), features=2, by="dana")
    thread.load(2)
    thread.reply(calls("pay"))
    return thread


def may(thread: Thread) -> dict[str, Any]:
    """Return who may decide the open request."""
    (request,) = open_requests(thread.state)
    found: dict[str, Any] = request["may"]
    return found


def judged(thread: Thread, name: str, decision: DecisionKind) -> bool:
    """Whether the run accepts an unsigned decision of this person."""
    (request,) = thread.state.authority.requests
    outcome = thread.decide(request.id, decision, by=name, digest=request.digest)
    return outcome in ("accepted", "waiting_for_quorum")


def test_without_approvers_everybody_decides() -> None:
    """A policy that names nobody accepts anybody, and the screens say so."""
    assert may(asking(NOBODY)) == {"decide": None, "deny": None, "signed": False, "gateways": [], "keys": {}}


def test_roles_are_people_and_those_with_a_veto_only_deny() -> None:
    """A rule's roles become the names of their approvers; people with a veto are among those who may deny."""
    terms = Terms(by=("finance",), veto=("carol",))
    found = may(asking(Policy(rules=(ask("pay", terms=terms), allow()), approvers=PEOPLE)))
    assert (found["decide"], found["deny"]) == (["alice", "bob"], ["alice", "bob", "carol"])


def test_a_requester_may_only_deny_if_the_policy_says_so() -> None:
    """If requesters may not decide, the person who gave the task is not among those who may approve."""
    people = (Approver(name="dana"), Approver(name="erin"))
    terms = Terms(requester_may_decide=False)
    found = may(asking(Policy(rules=(ask("pay", terms=terms), allow()), approvers=people)))
    assert (found["decide"], found["deny"]) == (["erin"], ["dana", "erin"])


def test_the_people_of_every_policy_that_asks_may_decide() -> None:
    """If several policies ask, a person of any of them may decide; a signature that one of them requires is required;
    a gateway suffices only if all of them list it.
    """
    key = public_key(KEYS["alice"])
    listed = FINANCE.model_copy(update={"gateways": (Gateway(name="web", keys=(key,)),)})
    found = may(child(CLERKS, listed))
    assert set(found["decide"]) == {"alice", "bob", "carol", "erin"}
    assert (found["signed"], found["gateways"]) == (True, [])
    assert may(asking(listed))["gateways"] == [key]


@pytest.mark.parametrize("decision", ["approve", "deny"])
@pytest.mark.parametrize("name", NAMES)
def test_the_screens_agree_with_the_run(name: str, decision: DecisionKind) -> None:
    """For each person, the screens offer a decision exactly if the run accepts it."""
    terms = Terms(by=("finance",), veto=("carol",), requester_may_decide=False)
    policy = Policy(rules=(ask("pay", terms=terms), allow()), approvers=(*PEOPLE, Approver(name="dana")))
    shown = may(asking(policy))["deny" if decision == "deny" else "decide"]
    assert (name in shown) == judged(asking(policy), name, decision)
