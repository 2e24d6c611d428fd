"""Votes and lent rights, whatever people do in whatever order: `holdfast.authority.votes`, `holdfast.run.rights`."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.authority.approvals import shown_digest
from holdfast.authority.follow_ups import Message
from holdfast.authority.policy import Approver, Policy, Terms, allow, ask
from holdfast.authority.signatures import encode_key, public_key, sign
from holdfast.authority.statements import AuthorityDelegation, Decision, DecisionKind, Revocation, Signed
from holdfast.base.replacing import replace
from holdfast.log.events import DecisionReceived
from holdfast.run.contracts import ToolRequest
from holdfast.run.rights import STATEMENTS
from tests.unit.runs import Thread, agent_spec, at_work, calls, says
from tests.unit.test_authority import asked, clerk, last, pays, started

NAMES = ("ann", "ben", "cid", "dot", "eve")
KEYS = {name: encode_key(bytes([number]) * 32) for number, name in enumerate(NAMES, start=40)}
PEOPLE = tuple(
    Approver(name=name, roles=("some",) if name < "d" else (), keys=(public_key(KEYS[name]),)) for name in NAMES
)
WHO = st.sampled_from(NAMES)
DO = st.one_of(
    st.tuples(st.just("vote"), WHO, st.sampled_from(["approve", "approve", "respond"]), st.booleans()),
    st.tuples(st.just("edit"), WHO, st.integers(1, 3)),
    st.tuples(st.just("lend"), WHO, WHO),
    st.tuples(st.just("revoke"), WHO, WHO),
    st.tuples(st.just("say"), WHO),
)


def signed(kind: type[Signed], by: str, **said: Any) -> dict[str, Any]:
    """A statement, signed by who says it."""
    said = {"by": by, **said}
    return {**said, "signature": sign(KEYS[by], kind.model_validate(said).signed_bytes("t"))}


@settings(max_examples=150)
@given(st.integers(2, 4), st.booleans(), st.lists(DO, min_size=4, max_size=25))
def test_nothing_is_decided_by_fewer_people_than_the_quorum(quorum: int, others: bool, done: list[Any]) -> None:
    """However rights are lent and taken back, minds changed and arguments edited: so many people with standing rights
    have given the same answer to what runs, none of whom has asked for it, where that is the rule.
    """
    terms = Terms(by=("some", "dot"), quorum=quorum, requester_may_decide=not others)
    thread = asked(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    seen: dict[str, tuple[Any, str]] = {}
    lent: set[tuple[str, str]] = set()
    requesters: set[str] = set()
    arguments: Any = {"cents": 5}
    for kind, by, *more in done:
        if kind == "lend":
            told = thread.update("delegate_authority", {"by": by, "to": more[0], "seconds": 3_600})
            lent |= {(by, more[0])} if told["outcome"] == "accepted" else set()
        elif kind == "revoke":
            if thread.update("revoke", {"by": by, "delegated_to": more[0]})["outcome"] == "accepted":
                lent.discard((by, more[0]))
                seen = {who: vote for who, vote in seen.items() if (vote[1], who) != (by, more[0])}
        elif kind == "say":
            thread.say("and?", by=by)
            requesters.add(by)
            seen = {who: vote for who, vote in seen.items() if not others or by not in (who, vote[1])}
        else:
            said = {"decision": more[0], "remember": more[1]} if kind == "vote" else {"arguments": {"cents": more[0]}}
            said |= {"result": "so"} if said.get("decision") == "respond" else {}
            outcome = thread.decide("1", by=by, **said)
            if outcome not in ("accepted", "waiting_for_quorum"):
                continue
            if "arguments" in said and said["arguments"] != arguments:
                arguments, seen = said["arguments"], {}
            right = last(thread).right or by
            assert right == by or (right, by) in lent
            assert right in ("ann", "ben", "cid", "dot")
            assert not others or not {by, right} & requesters
            seen[by] = said.get("decision", "approve"), right
            alike = [who for who, (answer, _) in seen.items() if answer == seen[by][0]]
            assert (outcome == "accepted") == (len(alike) >= quorum)
            assert len({right for _, right in seen.values()}) == len(seen)
            if outcome == "accepted":
                break
    assert len(started(thread)) == bool(thread.waiting(ToolRequest))
    thread.check_whole()


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["lend", "revoke", "variant", "wait"])), max_size=30))
def test_a_signed_delegation_lends_once_whatever_arrives(done: list[tuple[int, str]]) -> None:
    """Replayed, in other writings, before and after it was taken back, in any order: each lends once, and a right that
    was taken back is only lent again by another statement.
    """
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    ends = [(thread.at + timedelta(hours=hours)).isoformat() for hours in range(1, 4)]
    made = [signed(AuthorityDelegation, "ann", to=to, until=end) for to in ("ben", "cid") for end in ends]
    used: set[int] = set()
    standing: dict[str, int] = {}
    for number, what in done:
        lend, to = made[number], str(made[number]["to"])
        if what == "wait":
            thread.passes(minutes=10)
        elif what == "revoke":
            outcome = thread.update("revoke", signed(Revocation, "ann", delegated_to=to))["outcome"]
            assert (outcome == "accepted") == (to in standing)
            standing.pop(to, None)
        else:
            sent = lend if what == "lend" else {**lend, "by": "ANN ", "reason": " "}
            outcome = thread.update("delegate_authority", sent)["outcome"]
            late = lend["until"] <= thread.at.isoformat()
            assert outcome == ("too_late" if late else "duplicate" if number in used else "accepted")
            if outcome == "accepted":
                used.add(number)
                standing[to] = number
        standing = {
            to: each
            for to, each in standing.items()
            if to in [right.to for right in thread.state.authority.delegations]
        }
        assert {right.to for right in thread.state.authority.delegations if right.until > thread.at} <= set(standing)
    thread.check_whole()


def test_signed_statements_are_refused_and_not_forgotten_when_there_are_too_many() -> None:
    """At the bound a new one is turned away until an old one has ended; a replay is still known."""
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    end = thread.at + timedelta(hours=1)
    first = signed(AuthorityDelegation, "ann", to="ben", until=end.isoformat())
    assert thread.update("delegate_authority", first)["outcome"] == "accepted"
    for number in range(1, STATEMENTS):
        later = (end + timedelta(seconds=number)).isoformat()
        assert (
            thread.update("delegate_authority", signed(AuthorityDelegation, "ann", to="cid", until=later))["outcome"]
            == "accepted"
        )
    more = signed(AuthorityDelegation, "ann", to="cid", until=(end + timedelta(hours=1)).isoformat())
    assert thread.update("delegate_authority", more)["outcome"] == "too_many"
    assert thread.update("delegate_authority", first)["outcome"] == "duplicate"
    thread.passes(hours=1.1)
    assert thread.update("delegate_authority", more)["outcome"] == "accepted"
    assert len(thread.state.authority.used_statements) < STATEMENTS


def doubtful(quorum: int, rule: str = "ask") -> Thread:
    """A thread in which nobody knows whether a payment happened."""
    terms = Terms(by=("some",), quorum=quorum)
    own = Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE)
    lenient = Policy(rules=(allow("pay"),), approvers=PEOPLE, terms=terms)
    thread = asked(own if rule == "ask" else lenient)
    for name in ("ann", "ben")[: quorum if rule == "ask" else 0]:
        thread.decide("1", by=name)
    thread.finish(1, "lost", "unknown")
    return thread


@pytest.mark.parametrize("rule", ["ask", "allow"])
@pytest.mark.parametrize("word", ["happened", "absent", "undo", "abandon"])
def test_what_became_of_a_call_is_said_by_as_many_as_let_it_run(word: Any, rule: str) -> None:
    """The terms of the call's own rule; for a call that was allowed without asking, those of the policy."""
    thread = doubtful(2, rule)
    (request,) = thread.state.authority.requests
    assert (request.terms.quorum, request.terms.by) == (2, ("some",))
    assert thread.decide(request.id, word, by="dot") == "not_entitled"
    assert thread.decide(request.id, word, by="ann") == "waiting_for_quorum"
    assert thread.decide(request.id, word, by="ann") == "duplicate"
    other: DecisionKind = "abandon" if word != "abandon" else "happened"
    assert thread.decide(request.id, other, by="cid") == "waiting_for_quorum"
    assert thread.decide(request.id, word, by="ben") == "accepted"
    thread.check_whole()


def test_a_remembered_call_keeps_the_terms_of_the_rule_it_lifts() -> None:
    """What became of it is said by those who decide on such calls, not by anybody."""
    thread = asked(Policy(rules=(ask("pay", terms=Terms(by=("some",), quorum=2)),), approvers=PEOPLE))
    for name in ("ann", "ben"):
        thread.decide("1", by=name, remember=True)
    thread.finish(1)
    thread.reply(pays(cents=5))
    thread.finish(2, "lost", "unknown")
    assert thread.state.authority.requests[0].terms.quorum == 2


def test_each_epoch_of_an_effect_has_a_digest_of_its_own() -> None:
    """What was said of the first attempt is not said of the second."""
    thread = doubtful(1)
    first = thread.state.authority.requests[0]
    assert thread.decide(first.id, "absent", by="ann", digest=first.digest) == "accepted"
    thread.finish(1, "lost again", "unknown")
    (second,) = thread.state.authority.requests
    assert second.effect_key == first.effect_key
    assert thread.decide(second.id, "absent", by="ann", digest=first.digest) == "digest_mismatch"
    assert thread.decide(second.id, "absent", by="ann", digest=second.digest) == "accepted"


def test_a_remembered_rule_counts_while_its_approvals_do() -> None:
    """A key that is taken out of the policy, or a person who asks, takes their rule with it."""
    policy = Policy(
        rules=(ask("pay", terms=Terms(requester_may_decide=False)),), approvers=PEOPLE, signatures="required"
    )
    thread = asked(policy)
    (request,) = thread.state.authority.requests
    payload: dict[str, Any] = {"decision": "approve", "request": "1", "digest": request.digest, "remember": True}
    assert thread.update("decide", signed(Decision, "ann", **payload))["outcome"] == "accepted"
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert thread.at_tools == [2]
    thread.finish(2)
    said = signed(Message, "ann", message="again", id="1", until=(thread.at + timedelta(hours=1)).isoformat())
    assert thread.update("say", said)["outcome"] == "queued"
    thread.reply(pays(cents=5))
    assert thread.state.status == "waiting_approval"


def test_a_rule_does_not_outlive_the_key_that_made_it() -> None:
    """The thread goes on under a policy that knows another key of hers: the call asks again."""
    policy = Policy(rules=(ask("pay"),), approvers=PEOPLE, signatures="required")
    for changed, at_tools in ((False, [2]), (True, [])):
        thread = asked(policy)
        (request,) = thread.state.authority.requests
        payload: dict[str, Any] = {"decision": "approve", "request": "1", "digest": request.digest, "remember": True}
        thread.update("decide", signed(Decision, "ann", **payload))
        thread.finish(1)
        thread.reply(says("done"))
        thread.archive()
        new = Approver(name="ann", roles=("some",), keys=(public_key(encode_key(b"n" * 32)),))
        people = (new, *PEOPLE[1:]) if changed else PEOPLE
        thread.spec = clerk(policy.model_copy(update={"approvers": people}))
        thread.reopen()
        thread.load_thread()
        thread.load()
        thread.reply(pays(cents=5))
        assert thread.at_tools == at_tools


def test_a_stand_in_makes_no_rule() -> None:
    """A right is lent for a while: what is decided with it holds once."""
    thread = asked(Policy(rules=(ask("pay", terms=Terms(by=("ann",))),), approvers=PEOPLE))
    thread.update("delegate_authority", {"by": "ann", "to": "ben", "seconds": 60})
    answer = thread.update("decide", {"decision": "approve", "request": "1", "by": "ben", "remember": True})
    assert (answer["outcome"], answer["explanation"][:14]) == ("accepted", "not remembered")
    assert thread.state.authority.rules == ()


def test_what_a_request_shows_has_its_digest() -> None:
    """Whoever signs recomputes it from tool and arguments; other arguments have another."""
    thread = asked()
    (request,) = thread.state.authority.requests
    view = request.view()
    assert shown_digest(view) == request.digest
    assert shown_digest({**view, "arguments": {"cents": 6}}) != request.digest
    assert shown_digest({**view, "tool": "wipe"}) != request.digest


def test_who_asked_is_not_known_after_an_unsigned_message() -> None:
    """It came before the agent was loaded, so nobody could refuse it: nobody may approve, and everybody deny."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE, signatures="required")
    thread = Thread(clerk(policy), by="dot")
    assert thread.say("pay", by="zed") == "queued"
    thread.load()
    thread.reply(pays(cents=5))
    (request,) = thread.state.authority.requests
    payload: dict[str, Any] = {"request": "1", "digest": request.digest}
    refused = thread.update("decide", signed(Decision, "ann", decision="approve", **payload))
    assert refused["outcome"] == "not_entitled"
    assert "it is not known who asked" in refused["explanation"]
    assert thread.update("decide", signed(Decision, "ann", decision="deny", **payload))["outcome"] == "accepted"


def test_a_run_that_nobody_vouches_for_fails_where_it_matters_who_asks() -> None:
    """Started by none of our own processes, under a policy that wants to know: it fails as soon as that is known."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE, signatures="required")
    for spec, outcome in ((clerk(policy), "failed"), (clerk(), None)):
        thread = Thread(spec)
        unsealed = replace(thread.state, origin=replace(thread.state.origin, sealed=False))
        thread.run._recorder.state = unsealed
        thread.load()
        assert thread.state.outcome == outcome
        if outcome:
            assert thread.state.failure == "StartUnproven"
            assert "starter.py start" in thread.state.result


def test_a_request_is_not_decided_by_who_asks_after_they_have_voted() -> None:
    """Ann votes, and then asks for more: her vote is gone."""
    terms = Terms(quorum=2, requester_may_decide=False)
    thread = asked(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    assert thread.decide("1", by="ann") == "waiting_for_quorum"
    thread.say("and quickly", by="Ann")
    assert thread.decide("1", by="ben") == "waiting_for_quorum"
    assert thread.decide("1", by="cid") == "accepted"


def test_a_decision_by_signal_says_what_an_update_says() -> None:
    """A guard of this module: outcomes are recorded the same, whichever way a decision comes."""
    thread = at_work(agent_spec())
    thread.reply(calls("pay"))
    thread.signal("approve", {"request": "1", "by": "Alice"})
    received = [event for event in thread.log if isinstance(event, DecisionReceived)]
    assert [(event.by, event.outcome) for event in received] == [("alice", "accepted")]
