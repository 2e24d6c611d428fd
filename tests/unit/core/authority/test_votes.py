"""Votes and delegated authority in any order of actions: `holdfast.core.authority.votes`,
`holdfast.core.run.rules.authority`.
"""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.audit.judge.audit import Audit
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.interventions import LONGEST_MESSAGE, Message
from holdfast.core.authority.policy import Approver, Policy, Requirement, Terms, Verdict, allow, ask
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision, DecisionKind, Revocation, Signed
from holdfast.core.base.models import replace
from holdfast.core.log.events import DecisionReceived
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.inputs.messages import verify_sender
from holdfast.core.run.rules.authority import STATEMENTS
from holdfast.core.run.rules.remembered_approvals import rule_for
from holdfast.core.run.state import authority
from tests.support.examples import examples
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says
from tests.unit.core.run.test_authority import awaiting_approval, call_starts, clerk, last_decision, pays

NAMES = ("ann", "ben", "cid", "dot", "eve")
KEYS = {name: encode_key(bytes([number]) * 32) for number, name in enumerate(NAMES, start=40)}
PEOPLE = tuple(
    Approver(name=name, roles=("some",) if name < "d" else (), keys=(public_key(KEYS[name]),)) for name in NAMES
)
WHO = st.sampled_from(NAMES)
DO = st.one_of(
    st.tuples(st.just("vote"), WHO, st.sampled_from(["approve", "approve", "respond"]), st.booleans()),
    st.tuples(st.just("edit"), WHO, st.integers(1, 3)),
    st.tuples(st.just("delegate"), WHO, WHO),
    st.tuples(st.just("revoke"), WHO, WHO),
    st.tuples(st.just("say"), WHO),
)


def signed(kind: type[Signed], by: str, **fields: Any) -> dict[str, Any]:
    """Return a statement signed by its author."""
    fields = {"by": by, **fields}
    return {**fields, "signature": sign(KEYS[by], kind.model_validate(fields).signed_bytes("t"))}


@settings(max_examples=examples(20, 150))
@given(st.integers(2, 4), st.booleans(), st.lists(DO, min_size=4, max_size=25))
def test_a_decision_needs_the_quorum(quorum: int, others_only: bool, actions: list[Any]) -> None:
    """Under any delegations, revocations, changed votes and edits, a decision has a quorum of equal answers, each with
    its own authority, and none from a requester if the policy forbids that.
    """
    terms = Terms(by=("some", "dot"), quorum=quorum, requester_may_decide=not others_only)
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    seen: dict[str, tuple[Any, str]] = {}
    delegated: set[tuple[str, str]] = set()
    requesters: set[str] = set()
    arguments: Any = {"cents": 5}
    for kind, by, *more in actions:
        if kind == "delegate":
            answer = thread.update("delegate_authority", {"by": by, "to": more[0], "seconds": 3_600})
            delegated |= {(by, more[0])} if answer["outcome"] == "accepted" else set()
        elif kind == "revoke":
            if thread.update("revoke", {"by": by, "delegated_to": more[0]})["outcome"] == "accepted":
                delegated.discard((by, more[0]))
                seen = {who: vote for who, vote in seen.items() if (vote[1], who) != (by, more[0])}
        elif kind == "say":
            thread.say("and?", by=by)
            requesters.add(by)
            seen = {who: vote for who, vote in seen.items() if not others_only or by not in (who, vote[1])}
        else:
            decision: dict[str, Any] = {"arguments": {"cents": more[0]}}
            if kind == "vote":
                decision = {"decision": more[0], "remember": more[1]}
            decision |= {"result": "so"} if decision.get("decision") == "respond" else {}
            outcome = thread.decide("1", by=by, **decision)
            if outcome not in ("accepted", "waiting_for_quorum"):
                continue
            if "arguments" in decision and decision["arguments"] != arguments:
                arguments, seen = decision["arguments"], {}
            right = last_decision(thread).right or by
            assert right == by or (right, by) in delegated
            assert right in ("ann", "ben", "cid", "dot")
            assert not others_only or not {by, right} & requesters
            seen[by] = decision.get("decision", "approve"), right
            alike = [who for who, (value, _) in seen.items() if value == seen[by][0]]
            assert (outcome == "accepted") == (len(alike) >= quorum)
            assert len({right for _, right in seen.values()}) == len(seen)
            if outcome == "accepted":
                break
    assert len(call_starts(thread)) == bool(thread.waiting(ToolRequest))
    thread.check_consistent()


@settings(max_examples=examples(16, 100))
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["delegate", "revoke", "variant", "wait"])), max_size=30))
def test_a_signed_delegation_applies_once_in_any_order(actions: list[tuple[int, str]]) -> None:
    """A delegation that is replayed, also in another spelling or after its revocation, applies once; after a
    revocation, only another statement delegates again.
    """
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
    ends = [(thread.at + timedelta(hours=hours)).isoformat() for hours in range(1, 4)]
    delegations = [signed(AuthorityDelegation, "ann", to=to, until=end) for to in ("ben", "cid") for end in ends]
    used: set[int] = set()
    standing: dict[str, int] = {}
    for number, action in actions:
        delegation, to = delegations[number], str(delegations[number]["to"])
        if action == "wait":
            thread.advance(minutes=10)
        elif action == "revoke":
            outcome = thread.update("revoke", signed(Revocation, "ann", delegated_to=to))["outcome"]
            assert (outcome == "accepted") == (to in standing)
            standing.pop(to, None)
        else:
            sent = delegation if action == "delegate" else {**delegation, "by": "ANN ", "reason": " "}
            outcome = thread.update("delegate_authority", sent)["outcome"]
            late = delegation["until"] <= thread.at.isoformat()
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
    thread.check_consistent()


def test_too_many_signed_statements_are_rejected() -> None:
    """At the limit, a new statement is rejected until an old one has expired; replays are still detected."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
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
    thread.advance(hours=1.1)
    assert thread.update("delegate_authority", more)["outcome"] == "accepted"
    assert len(thread.state.authority.used_statements) < STATEMENTS


def with_unknown_outcome(quorum: int, rule: str = "ask") -> Thread:
    """Return a thread with a payment whose outcome is unknown."""
    terms = Terms(by=("some",), quorum=quorum)
    own = Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE)
    lenient = Policy(rules=(allow("pay"),), approvers=PEOPLE, terms=terms)
    thread = awaiting_approval(own if rule == "ask" else lenient)
    for name in ("ann", "ben")[: quorum if rule == "ask" else 0]:
        thread.decide("1", by=name)
    thread.finish(1, "lost", "unknown")
    return thread


@pytest.mark.parametrize("rule", ["ask", "allow"])
@pytest.mark.parametrize("kind", ["happened", "absent", "undo", "abandon"])
def test_an_unknown_outcome_needs_the_same_quorum_as_the_call(kind: Any, rule: str) -> None:
    """The requirements of the call's own rule apply; for a call allowed without asking, those of the policy."""
    thread = with_unknown_outcome(2, rule)
    (request,) = thread.state.authority.requests
    assert (request.terms.quorum, request.terms.by) == (2, ("some",))
    assert thread.decide(request.id, kind, by="dot") == "not_entitled"
    assert thread.decide(request.id, kind, by="ann") == "waiting_for_quorum"
    assert thread.decide(request.id, kind, by="ann") == "duplicate"
    other: DecisionKind = "abandon" if kind != "abandon" else "happened"
    assert thread.decide(request.id, other, by="cid") == "waiting_for_quorum"
    assert thread.decide(request.id, kind, by="ben") == "accepted"
    thread.check_consistent()


def test_a_remembered_call_keeps_the_terms_of_its_rule() -> None:
    """The approvers of the original rule resolve the unknown outcome of a remembered call."""
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=Terms(by=("some",), quorum=2)),), approvers=PEOPLE))
    for name in ("ann", "ben"):
        thread.decide("1", by=name, remember=True)
    thread.finish(1)
    thread.reply(pays(cents=5))
    thread.finish(2, "lost", "unknown")
    assert thread.state.authority.requests[0].terms.quorum == 2


def test_each_epoch_of_an_effect_has_a_digest_of_its_own() -> None:
    """A decision about the first attempt does not count for the second."""
    thread = with_unknown_outcome(1)
    first = thread.state.authority.requests[0]
    assert thread.decide(first.id, "absent", by="ann", digest=first.digest) == "accepted"
    thread.finish(1, "lost again", "unknown")
    (second,) = thread.state.authority.requests
    assert second.effect_key == first.effect_key
    assert thread.decide(second.id, "absent", by="ann", digest=first.digest) == "digest_mismatch"
    assert thread.decide(second.id, "absent", by="ann", digest=second.digest) == "accepted"


def test_a_remembered_rule_ends_when_its_approver_makes_a_request() -> None:
    """If requesters may not decide, a message from the approver voids the remembered rule."""
    policy = Policy(
        rules=(ask("pay", terms=Terms(requester_may_decide=False)),), approvers=PEOPLE, signatures="required"
    )
    thread = awaiting_approval(policy)
    (request,) = thread.state.authority.requests
    payload: dict[str, Any] = {"decision": "approve", "request": "1", "digest": request.digest, "remember": True}
    assert thread.update("decide", signed(Decision, "ann", **payload))["outcome"] == "accepted"
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert thread.running_calls == [2]
    thread.finish(2)
    message = signed(Message, "ann", message="again", id="1", until=(thread.at + timedelta(hours=1)).isoformat())
    assert thread.update("say", message)["outcome"] == "queued"
    thread.reply(pays(cents=5))
    assert thread.state.status == "waiting_approval"


def test_a_signed_message_counts_before_its_end_and_once() -> None:
    """Its end is at most `LONGEST_MESSAGE` away, so that the run need not keep its digest for ever."""
    thread = awaiting_approval(Policy(rules=(ask("pay"),), approvers=PEOPLE, signatures="required"))
    moment, longest = timedelta(microseconds=1), timedelta(seconds=LONGEST_MESSAGE)
    for left, outcome in ((moment * 0, "too_late"), (moment, ""), (longest, ""), (longest + moment, "malformed")):
        fields = signed(Message, "ann", message="and?", id="1", until=(thread.at + left).isoformat())
        sender = verify_sender(thread.state, Message.model_validate(fields), required=True, at=thread.at)
        assert getattr(sender, "outcome", "") == outcome, left
    message = signed(Message, "ann", message="and?", id="1", until=(thread.at + longest).isoformat())
    assert [thread.update("say", message)["outcome"] for _ in range(2)] == ["queued", "duplicate"]


def test_a_remembered_rule_ends_with_its_key() -> None:
    """If the thread resumes under a policy with another key for the approver, the call asks again."""
    policy = Policy(rules=(ask("pay"),), approvers=PEOPLE, signatures="required")
    for changed, at_tools in ((False, [2]), (True, [])):
        thread = awaiting_approval(policy)
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
        assert thread.running_calls == at_tools


def test_the_oldest_remembered_rule_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread has at most `RULES` of them at the same time; the call of one that made room requires approval again."""
    monkeypatch.setattr(authority, "RULES", 2)
    thread = loaded_thread(clerk(Policy(rules=(ask("pay"),), approvers=PEOPLE)))
    asked = []
    for number, cents in enumerate((1, 2, 3, 2, 3, 1), 1):
        thread.reply(pays(cents=cents))
        for request in thread.state.authority.requests:
            asked.append(cents)
            thread.decide(request.id, by="ann", remember=True)
        thread.finish(number)
    assert asked == [1, 2, 3, 1]


def test_a_remembered_rule_satisfies_no_policy_that_does_not_judge_the_run() -> None:
    """Who could approve under it is unknown, so nobody can have."""
    policy = Policy(rules=(ask("pay"),), approvers=PEOPLE)
    thread = awaiting_approval(policy)
    assert thread.decide("1", by="ann", remember=True) == "accepted"
    call, terms = thread.state.calls.get(1).call, Terms()
    for above, found in (((), True), ((Requirement(policy="gone", rule="all", terms=terms),), False)):
        verdict = Verdict(verdict="ask", rule="pay", terms=terms, requirements=above)
        assert bool(rule_for(thread.state, call, verdict)) == found


def test_a_remembered_rule_needs_votes_that_asked_for_it() -> None:
    """A vote for once, a delegate's, a denial and a vote on another call never count for it."""
    thread = awaiting_approval(Policy(rules=(ask("pay"),), approvers=PEOPLE))
    assert thread.decide("1", by="ann", remember=True) == "accepted"
    state, call = thread.state, thread.state.calls.get(1).call
    verdict = Verdict(verdict="ask", rule="pay", terms=Terms())
    assert rule_for(state, call, verdict)
    (rule,) = state.authority.rules
    (vote,) = rule.votes
    for other in (
        {"said": vote.said.model_copy(update={"remember": False})},
        {"said": vote.said.model_copy(update={"decision": "deny"})},
        {"right": "ben"},
        {"seen": vote.seen.model_copy(update={"tool": "wire"})},
        {"seen": vote.seen.model_copy(update={"call_digest": "0" * 64})},
    ):
        rules = (rule.model_copy(update={"votes": (vote.model_copy(update=other),)}),)
        assert rule_for(replace(state, authority=replace(state.authority, rules=rules)), call, verdict) is None


def test_a_delegate_cannot_remember_a_decision() -> None:
    """A delegation is temporary, so a decision made with it applies once."""
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=Terms(by=("ann",))),), approvers=PEOPLE))
    thread.update("delegate_authority", {"by": "ann", "to": "ben", "seconds": 60})
    answer = thread.update("decide", {"decision": "approve", "request": "1", "by": "ben", "remember": True})
    assert (answer["outcome"], answer["explanation"][:14]) == ("accepted", "not remembered")
    assert thread.state.authority.rules == ()


def test_a_requests_view_reproduces_its_digest() -> None:
    """A signer can recompute the digest from the tool and arguments shown; other arguments give another digest."""
    thread = awaiting_approval()
    (request,) = thread.state.authority.requests
    view = request.view()
    assert shown_digest(view) == request.digest
    assert shown_digest({**view, "arguments": {"cents": 6}}) != request.digest
    assert shown_digest({**view, "tool": "wipe"}) != request.digest


def test_the_requester_is_unknown_after_an_unsigned_message() -> None:
    """Such a message, accepted before the agent was loaded, makes approval impossible; approvers may still deny."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE, signatures="required")
    thread = Thread(clerk(policy), by="dot")
    assert thread.say("pay", by="zed") == "queued"
    thread.load()
    thread.reply(pays(cents=5))
    (request,) = thread.state.authority.requests
    payload: dict[str, Any] = {"request": "1", "digest": request.digest}
    rejection = thread.update("decide", signed(Decision, "ann", decision="approve", **payload))
    assert rejection["outcome"] == "not_entitled"
    assert "it is not known who asked" in rejection["explanation"]
    assert thread.update("decide", signed(Decision, "ann", decision="deny", **payload))["outcome"] == "accepted"


def test_a_run_without_proof_of_its_origin_fails_if_the_requester_matters() -> None:
    """If the policy depends on the requester and none of Holdfast's processes started the run, it fails on loading."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE, signatures="required")
    for spec, outcome in ((clerk(policy), "failed"), (clerk(), None)):
        thread = Thread(spec)
        unsealed = replace(thread.state, origin=replace(thread.state.origin, sealed=False))
        thread.run._log.state = unsealed
        thread.load()
        assert thread.state.outcome == outcome
        if outcome:
            assert thread.state.failure == "StartUnproven"
            assert "holdfast start" in thread.state.result


def test_a_vote_is_void_once_its_voter_makes_a_request() -> None:
    """Ann's vote no longer counts after she sends a message."""
    terms = Terms(quorum=2, requester_may_decide=False)
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    assert thread.decide("1", by="ann") == "waiting_for_quorum"
    thread.say("and quickly", by="Ann")
    assert thread.decide("1", by="ben") == "waiting_for_quorum"
    assert thread.decide("1", by="cid") == "accepted"


def test_a_decision_by_signal_is_recorded_like_one_by_update() -> None:
    """The recorded outcome is the same for signals and updates."""
    thread = loaded_thread(agent_spec())
    thread.reply(calls("pay"))
    thread.signal("approve", {"request": "1", "by": "Alice"})
    received = [event for event in thread.log if isinstance(event, DecisionReceived)]
    assert [(event.by, event.outcome) for event in received] == [("alice", "accepted")]


TWO = Policy(rules=(ask("pay", terms=Terms(by=("some",), quorum=2)), allow()), approvers=PEOPLE)


def test_an_edit_within_a_vote_opens_a_request_of_its_own() -> None:
    """An id never stands for other arguments: approving the old request is rejected, with the id of the new one."""
    thread = loaded_thread(agent_spec(policy=TWO), features=1)
    thread.reply(calls("pay"))
    assert thread.decide("1", by="ann", arguments={"cents": 99_000_000}) == "judged_anew"
    (request,) = thread.state.authority.requests
    assert (request.id, request.edited_by, request.quorum) == ("2", "ann", 2)
    assert [(vote.by, vote.seen == request.seen) for vote in request.votes] == [("ann", False)]
    late = thread.update("decide", {"request": "1", "decision": "approve", "by": "ben"})
    assert (late["outcome"], "request 2" in late["explanation"]) == ("too_late", True)
    thread.signal("approve", {"request": "1", "by": "ben"})
    assert not thread.running_calls
    assert thread.decide("2", by="ben", digest=request.digest) == "accepted"
    assert thread.running_calls == [1]
    thread.check_consistent()


def test_votes_for_the_arguments_before_an_edit_do_not_count_after_it() -> None:
    """Approvers of the LLM's arguments are asked again, and so is the editor after another edit."""
    thread = loaded_thread(agent_spec(policy=TWO), features=1)
    thread.reply(calls("pay"))
    assert thread.decide("1", by="ann") == "waiting_for_quorum"
    assert thread.decide("1", by="ben", arguments={"cents": 2}) == "judged_anew"
    assert thread.decide("2", by="ann", arguments={"cents": 3}) == "judged_anew"
    (request,) = thread.state.authority.requests
    assert (request.id, [vote.by for vote in request.votes]) == ("3", ["ann"])
    assert thread.decide("3", by="ann") == "duplicate"
    assert thread.decide("3", by="ben") == "accepted"
    thread.check_consistent()


def test_a_quorum_that_one_login_fills_is_logged_as_one() -> None:
    """The decision counts, as the policy asks for two names; the log and `verify` report that one login gave both."""
    for via, names in (("ann@host", ("ann", "ben")), ("", ())):
        thread = loaded_thread(agent_spec(policy=TWO), features=1)
        thread.reply(calls("pay"))
        assert thread.decide("1", by="ann", via=via) == "waiting_for_quorum"
        answer = thread.update("decide", {"request": "1", "decision": "approve", "by": "ben", "via": via})
        assert (answer["outcome"], "one login" in answer["explanation"]) == ("accepted", bool(names))
        received = [event for event in thread.log if isinstance(event, DecisionReceived)]
        assert [event.one_login for event in received] == [(), names]
        audit = Audit("t")
        audit.take(thread.log)
        assert audit.fault is None
        assert bool(audit.one_login) is bool(names)
        thread.check_consistent()


def test_below_the_feature_level_an_edit_keeps_the_request() -> None:
    """A run that an earlier release began keeps its behaviour."""
    thread = loaded_thread(agent_spec(policy=TWO))
    thread.reply(calls("pay"))
    assert thread.decide("1", by="ann", arguments={"cents": 2}) == "waiting_for_quorum"
    assert thread.decide("1", by="ben") == "accepted"
