"""Tests for `holdfast.core.run.inputs.decisions`: entitled people, the verification of decisions, and their effects."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import (
    Approver,
    Escalation,
    Gateway,
    Policy,
    Terms,
    ToolUse,
    allow,
    ask,
    deny,
    evaluate,
)
from holdfast.core.authority.signatures import encode_key, is_signed, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision, Revocation
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import (
    AuthorityDelegated,
    DecisionReceived,
    StateVerified,
    ToolCallFinished,
    ToolCallStarted,
)
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.tools.effects import Effect
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec

HOUR = 3_600
ALICE, BOB, HOOKS, MALLORY = (encode_key(bytes([number]) * 32) for number in range(1, 5))
AMOUNT = {
    "type": "object",
    "properties": {"cents": {"type": "integer", "minimum": 1}, "to": {"type": "string"}},
    "required": ["cents"],
    "additionalProperties": False,
}


def pays(**arguments: Any) -> LLMReply:
    """Return a reply that calls `pay`."""
    call = ToolCall(id=f"c{arguments}", name="pay", arguments=json.dumps(arguments))
    return LLMReply(message=AssistantMessage(content=(call,)), usage=Usage())


def clerk(policy: Policy | None = None, **more: Any) -> AgentSpec:
    """Return an agent that needs approval to pay."""
    pay = tool_spec("pay", Effect.UNSAFE, parameters=AMOUNT, undoable=True)
    return agent_spec(tools=(tool_spec("look"), pay), policy=policy or Policy(), **more)


def awaiting_approval(policy: Policy | None = None, *, cents: int = 5, **begin: Any) -> Thread:
    """Return a thread that waits for approval of a payment."""
    thread = loaded_thread(clerk(policy), **begin)
    thread.reply(pays(cents=cents))
    return thread


def call_starts(thread: Thread) -> list[ToolCallStarted]:
    """Return the events that started tool calls."""
    return [event for event in thread.log if isinstance(event, ToolCallStarted)]


def last_decision(thread: Thread) -> DecisionReceived:
    """Return the last decision received."""
    return [event for event in thread.log if isinstance(event, DecisionReceived)][-1]


def signed_decision(thread: Thread, key: str, **fields: Any) -> dict[str, Any]:
    """Return a signed decision on request 1."""
    (request,) = thread.state.authority.requests
    payload = {"decision": "approve", "request": "1", "by": "alice", "digest": request.digest, **fields}
    decision = Decision.model_validate(payload)
    return {**payload, "signature": sign(key, decision.signed_bytes("t"))}


PEOPLE = (
    Approver(name="alice", roles=("finance",), keys=(public_key(ALICE),)),
    Approver(name="bob", roles=("finance", "ops"), keys=(public_key(BOB),)),
    Approver(name="carol"),
)
GATES = (Gateway(name="hooks", keys=(public_key(HOOKS),)),)


# The scope of a decision.


def test_an_approval_counts_only_for_the_request_that_was_shown() -> None:
    """A decision with another digest is recorded and rejected; one with the request's own digest counts."""
    thread = awaiting_approval()
    assert thread.decide("1", digest="0" * 64) == "digest_mismatch"
    assert call_starts(thread) == []
    assert thread.decide("1", digest=thread.state.authority.requests[0].digest) == "accepted"
    assert len(call_starts(thread)) == 1


def test_a_grant_is_used_up_by_one_start() -> None:
    """The start names the request that allowed it; the same approval starts no other call."""
    thread = awaiting_approval()
    thread.decide("1")
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert [event.request for event in call_starts(thread)] == ["1"]
    assert thread.state.status == "waiting_approval"
    assert thread.decide("1") == "duplicate"
    assert len(call_starts(thread)) == 1


def test_a_decision_cannot_go_to_another_call() -> None:
    """With two open requests, a signed approval of one is rejected for the other."""
    thread = loaded_thread(clerk(Policy(approvers=PEOPLE, signatures="required")))
    reply = pays(cents=1)
    assert reply.message is not None
    two = (*reply.message.tool_calls, ToolCall(id="d", name="pay", arguments='{"cents": 2}'))
    thread.reply(LLMReply(message=AssistantMessage(content=two), usage=Usage()))
    first, second = thread.state.authority.requests
    decision = Decision(decision="approve", request="1", by="alice", digest=first.digest)
    payload = {**decision.model_dump(exclude_none=True), "signature": sign(ALICE, decision.signed_bytes("t"))}
    assert thread.update("decide", {**payload, "request": "2"})["outcome"] == "digest_mismatch"
    assert thread.update("decide", {**payload, "request": "2", "digest": second.digest})["outcome"] == "bad_signature"
    assert thread.update("decide", payload)["outcome"] == "accepted"
    assert [event.number for event in call_starts(thread)] == [1]


# Edited arguments, and answers instead of a tool call.


def test_edited_arguments_replace_those_of_the_llm() -> None:
    """The call runs with the edited arguments and its own key; the log keeps the original; the LLM sees the change."""
    thread = awaiting_approval(cents=500)
    key = thread.state.effect_key(1, thread.state.calls.get(1).call)
    assert thread.decide("1", arguments={"cents": 5}) == "accepted"
    (call,) = thread.waiting(ToolRequest)
    assert json.loads(call.request.call.arguments) == {"cents": 5}  # type: ignore[union-attr]
    assert call_starts(thread)[0].key != key
    thread.finish(1, "paid")
    assert '"cents":500' in next(event.call.arguments for event in thread.log if event.type == "tool_call_requested")
    assert thread.messages()[-1]["content"] == '[alice changed the arguments to {"cents":5}]\npaid'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"cents": "five"}, "arguments.cents"), ({}, "'cents' is a required property"), ({"cents": 1, "x": 1}, "'x' was")],
)
def test_edited_arguments_must_match_the_tools_schema(arguments: dict[str, Any], words: str) -> None:
    """Arguments that the tool would reject are rejected with the location of the error; the request stays open."""
    thread = awaiting_approval()
    answer = thread.update("decide", {"decision": "approve", "request": "1", "arguments": arguments})
    assert answer["outcome"] == "malformed"
    assert words in answer["explanation"]
    assert thread.decide("1") == "accepted"


def test_edited_arguments_must_satisfy_the_policy() -> None:
    """The policy is evaluated again for edited arguments."""
    thread = awaiting_approval(Policy(rules=(deny("pay", when="args.cents > 100"),)))
    assert thread.decide("1", arguments={"cents": 101}) == "against_policy"
    assert thread.decide("1", arguments={"cents": 100}) == "accepted"


def test_a_person_can_answer_instead_of_the_tool() -> None:
    """`respond` ends the call without running it; the LLM reads the answer and its author."""
    thread = awaiting_approval()
    assert thread.decide("1", "respond") == "malformed"
    thread.signal("respond", {"request": "1", "by": "alice", "result": "already paid in May"})
    assert call_starts(thread) == []
    assert "alice answers in its place: already paid in May" in thread.messages()[-1]["content"]
    assert [event.status for event in thread.log if isinstance(event, ToolCallFinished)] == ["answered"]


# Entitled people.


@pytest.mark.parametrize(
    ("decider", "outcome"),
    [
        ({"by": "mallory"}, "not_entitled"),
        ({"by": "carol"}, "not_entitled"),
        ({"by": "alice"}, "accepted"),
    ],
)
def test_only_approvers_named_by_the_rule_decide(decider: dict[str, Any], outcome: str) -> None:
    """A stranger and an approver without the role are rejected; an approver with the role is accepted."""
    policy = Policy(rules=(ask("pay", terms=Terms(by=("finance",))),), approvers=PEOPLE)
    thread = awaiting_approval(policy)
    assert thread.decide("1", **decider) == outcome
    assert len(call_starts(thread)) == (outcome == "accepted")


def test_an_unsigned_decision_is_rejected_if_signatures_are_required() -> None:
    """A decision that is unsigned, signed with another's key or altered after signing is recorded and rejected."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
    assert thread.decide("1") == "unsigned"
    assert thread.update("decide", signed_decision(thread, MALLORY))["outcome"] == "bad_signature"
    assert thread.update("decide", signed_decision(thread, BOB))["outcome"] == "bad_signature"
    altered = {**signed_decision(thread, ALICE), "arguments": {"cents": 1_000_000}}
    assert thread.update("decide", altered)["outcome"] == "bad_signature"
    assert (
        thread.update("decide", {**signed_decision(thread, ALICE), "signature": "x" * 86})["outcome"] == "bad_signature"
    )
    assert call_starts(thread) == []
    assert thread.update("decide", signed_decision(thread, ALICE))["outcome"] == "accepted"
    received = last_decision(thread)
    assert (received.proof, received.key) == ("signed", public_key(ALICE))
    assert received.said.signed_bytes("t") == Decision.model_validate(signed_values(received)).signed_bytes("t")


def signed_values(event: DecisionReceived) -> dict[str, Any]:
    """Return the decision's fields as they were sent."""
    return {"decision": event.decision, "request": event.request, "by": event.by, "digest": event.digest_given}


def test_a_signed_decision_needs_a_digest() -> None:
    """A signed decision must carry the digest that its signer saw."""
    thread = awaiting_approval(Policy(approvers=PEOPLE))
    decision = Decision(decision="approve", request="1", by="alice")
    payload = {"decision": "approve", "request": "1", "by": "alice"}
    payload["signature"] = sign(ALICE, decision.signed_bytes("t"))
    assert thread.update("decide", payload)["outcome"] == "digest_mismatch"


def test_a_signed_decision_is_rejected_in_another_thread() -> None:
    """The signature covers the thread's id."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
    decision = Decision(decision="approve", request="1", by="alice", digest=thread.state.authority.requests[0].digest)
    payload = {**decision.model_dump(exclude_none=True), "signature": sign(ALICE, decision.signed_bytes("another"))}
    assert thread.update("decide", payload)["outcome"] == "bad_signature"


def test_a_gateway_vouches_for_the_decider() -> None:
    """A gateway's signature vouches for the name in a decision; that person must still be entitled to decide."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, gateways=GATES, signatures="required"))
    assert thread.update("decide", signed_decision(thread, HOOKS, by="mallory"))["outcome"] == "not_entitled"
    assert thread.update("decide", signed_decision(thread, HOOKS, by="carol"))["outcome"] == "accepted"
    event = last_decision(thread)
    assert (event.by, event.proof, event.key) == ("carol", "vouched", public_key(HOOKS))


TWO = Policy(rules=(ask("pay", terms=Terms(by=("finance", "carol"), quorum=2)),), approvers=PEOPLE)


def test_a_quorum_needs_different_people() -> None:
    """With a quorum of two, one person's second approval is a duplicate; another person's lets the call run once."""
    thread = awaiting_approval(TWO)
    assert thread.decide("1", by="alice") == "waiting_for_quorum"
    assert thread.decide("1", by="alice") == "duplicate"
    assert call_starts(thread) == []
    assert thread.decide("1", by="carol") == "accepted"
    assert len(call_starts(thread)) == 1


def test_one_denial_is_enough() -> None:
    """A denial by any approver counts at once, even after an approval."""
    thread = awaiting_approval(TWO)
    thread.decide("1", by="alice")
    assert thread.decide("1", "deny", by="bob") == "accepted"
    assert call_starts(thread) == []


def test_a_veto_does_not_include_approval() -> None:
    """An approver with only a veto may deny but not approve."""
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=Terms(by=("alice",), veto=("ops",))),), approvers=PEOPLE))
    assert thread.decide("1", by="bob") == "not_entitled"
    assert thread.decide("1", "deny", by="bob") == "accepted"


def test_edited_arguments_restart_the_quorum() -> None:
    """Approvals of the old arguments, and the old digest, do not count for the new arguments."""
    thread = awaiting_approval(TWO)
    old = thread.state.authority.requests[0].digest
    assert thread.decide("1", by="alice") == "waiting_for_quorum"
    assert thread.decide("1", by="bob", arguments={"cents": 7}) == "waiting_for_quorum"
    assert thread.decide("1", by="alice", digest=old) == "digest_mismatch"
    assert thread.decide("1", by="alice", digest=thread.state.authority.requests[0].digest) == "accepted"
    (call,) = thread.waiting(ToolRequest)
    assert json.loads(call.request.call.arguments) == {"cents": 7}  # type: ignore[union-attr]


def test_requesters_do_not_approve_their_own_request() -> None:
    """If the policy says so, the senders of the task and of messages may not approve."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE)
    thread = awaiting_approval(policy, by="alice")
    thread.say("and be quick", by="bob")
    assert thread.decide("1", by="alice") == "not_entitled"
    assert thread.decide("1", by="bob") == "not_entitled"
    assert thread.decide("1", by="carol") == "accepted"


# Delegations and remembered decisions.


def test_authority_can_be_delegated_and_revoked() -> None:
    """Carol decides in Bob's place until the delegation expires or Bob revokes it; the log names whose authority she
    used.
    """
    policy = Policy(rules=(ask("pay", terms=Terms(by=("bob",))),), approvers=PEOPLE)
    thread = awaiting_approval(policy)
    delegation = {"by": "bob", "to": "carol", "seconds": HOUR}
    assert thread.update("delegate_authority", delegation)["outcome"] == "accepted"
    thread.advance(hours=2)
    assert thread.decide("1", by="carol") == "not_entitled"
    thread.update("delegate_authority", delegation)
    assert thread.update("revoke", {"by": "bob", "delegated_to": "carol"})["outcome"] == "accepted"
    assert thread.decide("1", by="carol") == "not_entitled"
    thread.update("delegate_authority", delegation)
    assert thread.decide("1", by="carol") == "accepted"
    assert (last_decision(thread).by, last_decision(thread).right) == ("carol", "bob")


def test_a_delegation_adds_no_second_vote() -> None:
    """If Alice delegates to Carol and both approve, that is one vote of two."""
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)),), approvers=PEOPLE))
    thread.update("delegate_authority", {"by": "alice", "to": "carol", "seconds": HOUR})
    assert thread.decide("1", by="carol") == "waiting_for_quorum"
    assert thread.decide("1", by="alice") == "duplicate"
    assert thread.decide("1", by="bob") == "accepted"


@pytest.mark.parametrize(
    ("delegation", "outcome"),
    [
        ({"by": "mallory", "to": "carol", "seconds": 60}, "not_entitled"),
        ({"by": "bob", "to": "mallory", "seconds": 60}, "not_entitled"),
        ({"by": "bob", "to": "bob", "seconds": 60}, "malformed"),
        ({"by": "bob", "to": "carol", "seconds": -1}, "malformed"),
        ({"by": "bob", "to": "carol"}, "malformed"),
        ({"by": "bob", "to": "carol", "until": "2020-01-01T00:00:00Z"}, "too_late"),
        ({"by": "bob", "to": "carol", "until": "2090-01-01T00:00:00Z"}, "malformed"),
        ("bob", "malformed"),
    ],
)
def test_only_an_approver_delegates_to_another_approver(delegation: Any, outcome: str) -> None:
    """Any other delegation is rejected and recorded."""
    thread = awaiting_approval(Policy(approvers=PEOPLE))
    assert thread.update("delegate_authority", delegation)["outcome"] == outcome
    assert thread.state.authority.delegations == ()
    assert thread.types()[-1] == "signal_rejected"


def test_required_signatures_cover_delegations() -> None:
    """An unsigned delegation is rejected."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
    delegation = {"by": "bob", "to": "carol", "seconds": 60}
    assert thread.update("delegate_authority", delegation)["outcome"] == "unsigned"
    forever = signed_delegation(delegation)  # `seconds` would make the signed text valid at any time
    assert thread.update("delegate_authority", forever)["outcome"] == "malformed"
    delegation = {"by": "bob", "to": "carol", "until": (thread.at + timedelta(hours=1)).isoformat()}
    assert thread.update("delegate_authority", signed_delegation(delegation))["outcome"] == "accepted"
    (event,) = [event for event in thread.log if isinstance(event, AuthorityDelegated)]
    assert is_signed(event.key, event.signature, event.said.signed_bytes("t"))


def signed_delegation(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a delegation signed by Bob."""
    return {**fields, "signature": sign(BOB, AuthorityDelegation.model_validate(fields).signed_bytes("t"))}


def test_a_signed_delegation_counts_once() -> None:
    """A replayed delegation is rejected, both after its revocation and after it has expired."""
    thread = awaiting_approval(Policy(approvers=PEOPLE, signatures="required"))
    delegation = signed_delegation({"by": "bob", "to": "carol", "until": (thread.at + timedelta(hours=1)).isoformat()})
    assert thread.update("delegate_authority", delegation)["outcome"] == "accepted"
    revocation = {"by": "bob", "delegated_to": "carol"}
    revocation["signature"] = sign(BOB, Revocation.model_validate(revocation).signed_bytes("t"))
    assert thread.update("revoke", revocation)["outcome"] == "accepted"
    assert thread.update("delegate_authority", delegation)["outcome"] == "duplicate"
    thread.advance(hours=2)
    assert thread.update("delegate_authority", delegation)["outcome"] == "too_late"
    assert thread.state.authority.delegations == ()


def test_a_remembered_decision_allows_the_same_call_until_revoked() -> None:
    """`remember` covers the same tool and arguments in this thread, appears in the verdict, and can be revoked."""
    thread = awaiting_approval()
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert thread.running_calls == [2]
    verdicts = [event.rule for event in thread.log if event.type == "verdict_given"]
    assert verdicts[-1] == "remembered 1 (by alice)"
    thread.finish(2)
    assert thread.update("revoke", {"by": "alice", "remembered": 1})["outcome"] == "accepted"
    thread.reply(pays(cents=5))
    assert thread.state.status == "waiting_approval"
    assert thread.update("revoke", {"by": "alice", "remembered": 1})["outcome"] == "unknown_request"


def test_a_remembered_decision_does_not_cover_other_arguments() -> None:
    """A remembered approval of five cents does not allow six."""
    thread = awaiting_approval()
    thread.decide("1", remember=True)
    thread.finish(1)
    thread.reply(pays(cents=6))
    assert thread.state.status == "waiting_approval"


# When a request is reminded, escalated or expires.


def test_remind_then_escalate_then_deny() -> None:
    """An undecided request is reminded, escalated to more approvers, and denied when it expires."""
    terms = Terms(
        by=("alice",),
        remind_every=HOUR,
        escalate=(Escalation(after=1.5 * HOUR, by=("bob",)),),
        expires_after=3.5 * HOUR,
    )
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    assert thread.decide("1", by="bob") == "not_entitled"
    before = len(thread.log)
    thread.advance(hours=4)
    reminded, escalated, expired = "approval_reminded", "approval_escalated", "approval_expired"
    kinds = [kind for kind in thread.types()[before:] if kind.startswith("approval")]
    assert kinds == [reminded, escalated, reminded, reminded, expired]
    assert thread.decide("1", by="alice") == "too_late"
    assert call_starts(thread) == []
    assert thread.messages()[-1]["content"] == "Denied: the request expired before it was decided."


def test_escalation_adds_approvers() -> None:
    """After an escalation, both the first group and the next may decide."""
    terms = Terms(by=("alice",), escalate=(Escalation(after=HOUR, by=("bob",)),))
    thread = awaiting_approval(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    thread.advance(hours=1.1)
    assert thread.decide("1", by="bob") == "accepted"


def test_an_approval_at_the_moment_of_expiry_is_too_late() -> None:
    """If timer and decision reach the run in one workflow task, the expiry wins although the decision comes first."""
    thread = awaiting_approval(Policy(terms=Terms(expires_after=HOUR)))
    thread.at = thread.state.authority.requests[0].expires_at  # type: ignore[assignment]
    assert thread.decide("1") == "too_late"
    assert call_starts(thread) == []


def test_the_policy_may_approve_on_expiry() -> None:
    """`on_expiry: approve` lets the call run; its start names the request."""
    thread = awaiting_approval(Policy(terms=Terms(expires_after=HOUR, on_expiry="approve")))
    thread.advance(hours=1)
    assert [event.request for event in call_starts(thread)] == ["1"]


def test_a_reconcile_request_never_expires() -> None:
    """Only a person can resolve an unknown outcome, so such a request is only reminded."""
    thread = awaiting_approval(Policy(terms=Terms(expires_after=HOUR, remind_every=HOUR)))
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.advance(days=3)
    assert thread.state.authority.requests[0].kind == "reconcile"


def test_each_occasion_is_notified_once() -> None:
    """The opening of a request, its reminders and its expiry are each notified once."""
    thread = Thread(clerk(Policy(terms=Terms(expires_after=2.5 * HOUR, remind_every=HOUR))))
    thread.notify = True
    thread.load()
    thread.reply(pays(cents=5))
    thread.advance(hours=3)
    thread.reply(calls())
    for call in thread.waiting(Notice):
        thread.deliver(call)
    occasions = [notice.occasion for notice in thread.notices]
    assert occasions[:4] == ["request_opened", "request_reminded", "request_reminded", "request_expired"]


# Unknown outcomes and long pauses.


def test_an_effect_with_an_unknown_outcome_can_be_undone() -> None:
    """`undo` is offered if the tool supports it; it runs as a call of its own, and the LLM reads its result."""
    thread = awaiting_approval()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    assert "undo" in thread.state.authority.requests[0].answers
    thread.signal("reconcile", {"request": "2", "decision": "undo", "by": "alice"})
    assert [event.undo for event in call_starts(thread)] == [False, True]
    thread.finish(1, "refunded")
    assert thread.messages()[-1]["content"] == "This happened, and was undone: refunded"


def test_a_failed_undo_asks_again() -> None:
    """After a failed undo, the outcome is still unknown and a new request opens."""
    thread = awaiting_approval()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.decide("2", "undo")
    thread.finish(1, "no refund", "failed")
    assert "could not be undone: no refund" in thread.state.authority.requests[0].why
    assert thread.decide("3", "absent") == "accepted"
    assert [event.undo for event in call_starts(thread)] == [False, True, False]


def test_state_is_verified_after_a_long_pause() -> None:
    """The `verify` tools run before the approved call; the LLM reads their findings before its next step."""
    spec = clerk(verify=("look",), limits=Limits(stale_after=HOUR))
    thread = loaded_thread(spec)
    thread.reply(pays(cents=5))
    thread.finish_verification("the price is 5")
    thread.advance(hours=26)
    thread.decide("1")
    assert thread.running_calls == []
    thread.finish_verification("the price is 5")
    assert thread.running_calls == [1]
    thread.finish(1, "paid")
    contents = [message["content"] for message in thread.messages()[-2:]]
    assert contents[0] == "paid"
    assert contents[1].startswith("This run has waited for 26.0 hours.")
    assert "## look (ok)\n\nthe price is 5" in contents[1]
    assert sum(isinstance(event, StateVerified) for event in thread.log) == 1


def test_a_short_pause_needs_no_verification() -> None:
    """Within `stale_after`, no `verify` tool runs."""
    thread = loaded_thread(clerk(verify=("look",), limits=Limits(stale_after=HOUR)))
    thread.reply(pays(cents=5))
    thread.finish_verification("as it is")
    thread.advance(minutes=30)
    thread.decide("1")
    assert thread.running_calls == [1]


# Rules of the policy.


def test_a_rule_applies_to_its_depth_only() -> None:
    """A rule for sub-agents does not bind the root run."""
    policy = Policy(rules=(deny("pay").model_copy(update={"depth": 1}), allow("pay")))
    assert awaiting_approval(policy).running_calls == [1]
    assert awaiting_approval(policy, depth=1).running_calls == []


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("args.n >", "Syntax error"),
        ("1" + "+1" * 2_000 + " > 0", "over 2,000 characters"),
        ("false && nope > 1", "no variable 'nope'"),
        ("frob(1)", "no function 'frob'"),
        ("args.a.all(x, args.b.all(y, args.c.all(z, z == x)))", "loops over lists 3 times"),
    ],
)
def test_an_unusable_condition_is_rejected_with_its_rule(condition: str, words: str) -> None:
    """Invalid CEL, expressions too long to parse, unknown names (even behind a short circuit) and deep loops are
    rejected.
    """
    with pytest.raises(ValueError, match=f"when: .*{words}"):
        deny("pay", when=condition)


def test_a_condition_may_use_names_that_it_binds() -> None:
    """Loop variables, text that looks like a name, and fields are no unknown names."""
    deny("pay", when="args.to.exists(who, who == 'mallory' || who.startsWith(\"nobody\")) && effect == 'unsafe'")


def test_a_long_list_denies_at_once() -> None:
    """A condition that would loop over too many items fails closed without delay."""
    policy = Policy(rules=(deny("look", when="args.l.all(x, args.l.exists(y, x == y))"),))
    use = ToolUse(tool="look", effect=Effect.READ, arguments={"l": list(range(301))})
    verdict = evaluate(policy, use)
    assert (verdict.verdict, "more than 300 items" in verdict.rule) == ("deny", True)
