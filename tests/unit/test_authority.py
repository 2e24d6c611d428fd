"""Who may decide, how that is known, and what a decision leads to: every rule of `holdfast.run.decisions`."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.agents.agent import AgentSpec, Limits
from holdfast.authority.policy import Approver, Escalation, Gateway, Policy, Terms, ToolUse, allow, ask, deny, evaluate
from holdfast.authority.signatures import encode_key, is_signed, public_key, sign
from holdfast.authority.statements import AuthorityDelegation, Decision, Revocation
from holdfast.llm.messages import AssistantMessage, ToolCall, Usage
from holdfast.log.events import AuthorityDelegated, DecisionReceived, StateVerified, ToolCallFinished, ToolCallStarted
from holdfast.run.contracts import LLMReply, Notice, ToolRequest
from holdfast.tools.effects import Effect
from tests.unit.runs import Thread, agent_spec, at_work, calls, tool_spec

HOUR = 3_600
ALICE, BOB, HOOKS, MALLORY = (encode_key(bytes([number]) * 32) for number in range(1, 5))
AMOUNT = {
    "type": "object",
    "properties": {"cents": {"type": "integer", "minimum": 1}, "to": {"type": "string"}},
    "required": ["cents"],
    "additionalProperties": False,
}


def pays(**arguments: Any) -> LLMReply:
    """A reply that pays."""
    call = ToolCall(id=f"c{arguments}", name="pay", arguments=json.dumps(arguments))
    return LLMReply(message=AssistantMessage(tool_calls=(call,)), usage=Usage())


def clerk(policy: Policy | None = None, **more: Any) -> AgentSpec:
    """An agent that may pay, with leave."""
    pay = tool_spec("pay", Effect.UNSAFE, parameters=AMOUNT, undoable=True)
    return agent_spec(tools=(tool_spec("look"), pay), policy=policy or Policy(), **more)


def asked(policy: Policy | None = None, *, cents: int = 5, **begin: Any) -> Thread:
    """A thread that waits for leave to pay."""
    thread = at_work(clerk(policy), **begin)
    thread.reply(pays(cents=cents))
    return thread


def started(thread: Thread) -> list[ToolCallStarted]:
    """The starts of tool calls."""
    return [event for event in thread.log if isinstance(event, ToolCallStarted)]


def last(thread: Thread) -> DecisionReceived:
    """The decision that was received last."""
    return [event for event in thread.log if isinstance(event, DecisionReceived)][-1]


def signed(thread: Thread, key: str, **said: Any) -> dict[str, Any]:
    """A decision on request 1, signed."""
    (request,) = thread.state.authority.requests
    values = {"decision": "approve", "request": "1", "by": "alice", "digest": request.digest, **said}
    decision = Decision.model_validate(values)
    return {**values, "signature": sign(key, decision.signed_bytes("t"))}


PEOPLE = (
    Approver(name="alice", roles=("finance",), keys=(public_key(ALICE),)),
    Approver(name="bob", roles=("finance", "ops"), keys=(public_key(BOB),)),
    Approver(name="carol"),
)
GATES = (Gateway(name="hooks", keys=(public_key(HOOKS),)),)


# What a decision is bound to.


def test_an_approval_counts_only_for_what_was_seen() -> None:
    """A decision with another digest is recorded and refused; with the request's own, it counts."""
    thread = asked()
    assert thread.decide("1", digest="0" * 64) == "digest_mismatch"
    assert started(thread) == []
    assert thread.decide("1", digest=thread.state.authority.requests[0].digest) == "accepted"
    assert len(started(thread)) == 1


def test_a_grant_is_used_up_by_one_start() -> None:
    """The start names the request that let it run; nothing runs on it again."""
    thread = asked()
    thread.decide("1")
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert [event.request for event in started(thread)] == ["1"]
    assert thread.state.status == "waiting_approval"
    assert thread.decide("1") == "duplicate"
    assert len(started(thread)) == 1


def test_a_decision_cannot_go_to_another_call() -> None:
    """Two requests are open: a signed approval of one is worth nothing for the other."""
    thread = at_work(clerk(Policy(approvers=PEOPLE, signatures="required")))
    reply = pays(cents=1)
    assert reply.message is not None
    two = (*reply.message.tool_calls, ToolCall(id="d", name="pay", arguments='{"cents": 2}'))
    thread.reply(LLMReply(message=AssistantMessage(tool_calls=two), usage=Usage()))
    first, second = thread.state.authority.requests
    decision = Decision(decision="approve", request="1", by="alice", digest=first.digest)
    payload = {**decision.model_dump(exclude_none=True), "signature": sign(ALICE, decision.signed_bytes("t"))}
    assert thread.update("decide", {**payload, "request": "2"})["outcome"] == "digest_mismatch"
    assert thread.update("decide", {**payload, "request": "2", "digest": second.digest})["outcome"] == "bad_signature"
    assert thread.update("decide", payload)["outcome"] == "accepted"
    assert [event.number for event in started(thread)] == [1]


# Edits, and answers in the tool's place.


def test_edited_arguments_run_in_place_of_the_llms() -> None:
    """The call runs with the edited arguments, under a key of its own; the log has the original; the LLM is told."""
    thread = asked(cents=500)
    key = thread.state.effect_key(1, thread.state.calls.get(1).call)
    assert thread.decide("1", arguments={"cents": 5}) == "accepted"
    (call,) = thread.waiting(ToolRequest)
    assert json.loads(call.request.call.arguments) == {"cents": 5}  # type: ignore[union-attr]
    assert started(thread)[0].key != key
    thread.finish(1, "paid")
    assert '"cents":500' in next(event.call.arguments for event in thread.log if event.type == "tool_call_requested")
    assert thread.messages()[-1]["content"] == '[alice changed the arguments to {"cents":5}]\npaid'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"cents": "five"}, "arguments.cents"), ({}, "'cents' is a required property"), ({"cents": 1, "x": 1}, "'x' was")],
)
def test_edited_arguments_have_to_fit_the_tool(arguments: dict[str, Any], words: str) -> None:
    """What the tool would refuse is refused to the person, with the place; the request stays open."""
    thread = asked()
    answer = thread.update("decide", {"decision": "approve", "request": "1", "arguments": arguments})
    assert answer["outcome"] == "malformed"
    assert words in answer["explanation"]
    assert thread.decide("1") == "accepted"


def test_nobody_can_edit_a_call_into_what_the_policy_denies() -> None:
    """The policy judges edited arguments, too."""
    thread = asked(Policy(rules=(deny("pay", when="args.cents > 100"),)))
    assert thread.decide("1", arguments={"cents": 101}) == "against_policy"
    assert thread.decide("1", arguments={"cents": 100}) == "accepted"


def test_a_person_can_answer_in_the_tools_place() -> None:
    """`respond` ends the call without running it; the LLM reads the answer and who gave it."""
    thread = asked()
    assert thread.decide("1", "respond") == "malformed"
    thread.signal("respond", {"request": "1", "by": "alice", "result": "already paid in May"})
    assert started(thread) == []
    assert "alice answers in its place: already paid in May" in thread.messages()[-1]["content"]
    assert [event.status for event in thread.log if isinstance(event, ToolCallFinished)] == ["answered"]


# Who.


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ({"by": "mallory"}, "not_entitled"),
        ({"by": "carol"}, "not_entitled"),
        ({"by": "alice"}, "accepted"),
    ],
)
def test_only_those_whom_the_rule_names_decide(said: dict[str, Any], outcome: str) -> None:
    """Neither a stranger nor an approver without the role; an approver with it."""
    policy = Policy(rules=(ask("pay", terms=Terms(by=("finance",))),), approvers=PEOPLE)
    thread = asked(policy)
    assert thread.decide("1", **said) == outcome
    assert len(started(thread)) == (outcome == "accepted")


def test_where_signatures_are_required_an_unsigned_decision_is_worth_nothing() -> None:
    """Unsigned, signed by another's key, or altered after signing: recorded, refused, nothing runs."""
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    assert thread.decide("1") == "unsigned"
    assert thread.update("decide", signed(thread, MALLORY))["outcome"] == "bad_signature"
    assert thread.update("decide", signed(thread, BOB))["outcome"] == "bad_signature"
    altered = {**signed(thread, ALICE), "arguments": {"cents": 1_000_000}}
    assert thread.update("decide", altered)["outcome"] == "bad_signature"
    assert thread.update("decide", {**signed(thread, ALICE), "signature": "x" * 86})["outcome"] == "bad_signature"
    assert started(thread) == []
    assert thread.update("decide", signed(thread, ALICE))["outcome"] == "accepted"
    received = last(thread)
    assert (received.proof, received.key) == ("signed", public_key(ALICE))
    assert received.said.signed_bytes("t") == Decision.model_validate(signed_values(received)).signed_bytes("t")


def signed_values(event: DecisionReceived) -> dict[str, Any]:
    """What was sent, from what the event holds."""
    return {"decision": event.decision, "request": event.request, "by": event.by, "digest": event.digest_given}


def test_a_signature_without_a_digest_covers_nothing() -> None:
    """Whoever signs has to say what they saw."""
    thread = asked(Policy(approvers=PEOPLE))
    decision = Decision(decision="approve", request="1", by="alice")
    payload = {"decision": "approve", "request": "1", "by": "alice"}
    payload["signature"] = sign(ALICE, decision.signed_bytes("t"))
    assert thread.update("decide", payload)["outcome"] == "digest_mismatch"


def test_a_signed_decision_is_worth_nothing_in_another_thread() -> None:
    """The thread is under the signature."""
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    decision = Decision(decision="approve", request="1", by="alice", digest=thread.state.authority.requests[0].digest)
    payload = {**decision.model_dump(exclude_none=True), "signature": sign(ALICE, decision.signed_bytes("another"))}
    assert thread.update("decide", payload)["outcome"] == "bad_signature"


def test_a_gateway_vouches_for_who_decides() -> None:
    """A gateway's signature stands for the name under the decision; that name has to be entitled all the same."""
    thread = asked(Policy(approvers=PEOPLE, gateways=GATES, signatures="required"))
    assert thread.update("decide", signed(thread, HOOKS, by="mallory"))["outcome"] == "not_entitled"
    assert thread.update("decide", signed(thread, HOOKS, by="carol"))["outcome"] == "accepted"
    assert (last(thread).by, last(thread).proof, last(thread).key) == ("carol", "vouched", public_key(HOOKS))


TWO = Policy(rules=(ask("pay", terms=Terms(by=("finance", "carol"), quorum=2)),), approvers=PEOPLE)


def test_a_quorum_is_of_different_people() -> None:
    """The first approval of two waits; the same person's second is a duplicate; another's lets the call run, once."""
    thread = asked(TWO)
    assert thread.decide("1", by="alice") == "waiting_for_quorum"
    assert thread.decide("1", by="alice") == "duplicate"
    assert started(thread) == []
    assert thread.decide("1", by="carol") == "accepted"
    assert len(started(thread)) == 1


def test_one_denial_is_enough() -> None:
    """Whoever may approve may deny, whatever the others said."""
    thread = asked(TWO)
    thread.decide("1", by="alice")
    assert thread.decide("1", "deny", by="bob") == "accepted"
    assert started(thread) == []


def test_a_veto_is_only_a_veto() -> None:
    """Somebody with a veto may deny, and not approve."""
    thread = asked(Policy(rules=(ask("pay", terms=Terms(by=("alice",), veto=("ops",))),), approvers=PEOPLE))
    assert thread.decide("1", by="bob") == "not_entitled"
    assert thread.decide("1", "deny", by="bob") == "accepted"


def test_changed_arguments_are_a_new_question_to_a_quorum() -> None:
    """Approvals of the old arguments do not count for the new ones, nor the old digest."""
    thread = asked(TWO)
    old = thread.state.authority.requests[0].digest
    assert thread.decide("1", by="alice") == "waiting_for_quorum"
    assert thread.decide("1", by="bob", arguments={"cents": 7}) == "waiting_for_quorum"
    assert thread.decide("1", by="alice", digest=old) == "digest_mismatch"
    assert thread.decide("1", by="alice", digest=thread.state.authority.requests[0].digest) == "accepted"
    (call,) = thread.waiting(ToolRequest)
    assert json.loads(call.request.call.arguments) == {"cents": 7}  # type: ignore[union-attr]


def test_who_asks_for_it_does_not_approve_it() -> None:
    """Where the policy says so, neither who gave the task nor who gave a message may approve; they may deny."""
    policy = Policy(terms=Terms(requester_may_decide=False), approvers=PEOPLE)
    thread = asked(policy, by="alice")
    thread.say("and be quick", by="bob")
    assert thread.decide("1", by="alice") == "not_entitled"
    assert thread.decide("1", by="bob") == "not_entitled"
    assert thread.decide("1", by="carol") == "accepted"


# Lending, remembering.


def test_a_right_can_be_lent_and_taken_back() -> None:
    """Carol decides in Bob's place until the time is over, or Bob takes it back; the log says whose right it was."""
    policy = Policy(rules=(ask("pay", terms=Terms(by=("bob",))),), approvers=PEOPLE)
    thread = asked(policy)
    lend = {"by": "bob", "to": "carol", "seconds": HOUR}
    assert thread.update("delegate_authority", lend)["outcome"] == "accepted"
    thread.passes(hours=2)
    assert thread.decide("1", by="carol") == "not_entitled"
    thread.update("delegate_authority", lend)
    assert thread.update("revoke", {"by": "bob", "delegated_to": "carol"})["outcome"] == "accepted"
    assert thread.decide("1", by="carol") == "not_entitled"
    thread.update("delegate_authority", lend)
    assert thread.decide("1", by="carol") == "accepted"
    assert (last(thread).by, last(thread).right) == ("carol", "bob")


def test_a_lent_right_makes_no_second_vote() -> None:
    """Alice lends her right to Carol and approves herself: that is one of two."""
    thread = asked(Policy(rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)),), approvers=PEOPLE))
    thread.update("delegate_authority", {"by": "alice", "to": "carol", "seconds": HOUR})
    assert thread.decide("1", by="carol") == "waiting_for_quorum"
    assert thread.decide("1", by="alice") == "duplicate"
    assert thread.decide("1", by="bob") == "accepted"


@pytest.mark.parametrize(
    ("lend", "outcome"),
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
def test_only_an_approver_lends_and_only_to_another(lend: Any, outcome: str) -> None:
    """Anything else is refused, and recorded."""
    thread = asked(Policy(approvers=PEOPLE))
    assert thread.update("delegate_authority", lend)["outcome"] == outcome
    assert thread.state.authority.delegations == ()
    assert thread.types()[-1] == "signal_rejected"


def test_where_signatures_are_required_lending_is_signed_too() -> None:
    """A right is not lent by a name alone."""
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    lend = {"by": "bob", "to": "carol", "seconds": 60}
    assert thread.update("delegate_authority", lend)["outcome"] == "unsigned"
    assert thread.update("delegate_authority", lent(lend))["outcome"] == "malformed"  # it would be good for ever
    lend = {"by": "bob", "to": "carol", "until": (thread.at + timedelta(hours=1)).isoformat()}
    assert thread.update("delegate_authority", lent(lend))["outcome"] == "accepted"
    (event,) = [event for event in thread.log if isinstance(event, AuthorityDelegated)]
    assert is_signed(event.key, event.signature, event.said.signed_bytes("t"))


def lent(said: dict[str, Any]) -> dict[str, Any]:
    """A delegation, signed by Bob."""
    return {**said, "signature": sign(BOB, AuthorityDelegation.model_validate(said).signed_bytes("t"))}


def test_a_signed_delegation_counts_once() -> None:
    """Whoever has seen it cannot lend the right again: neither after it was taken back, nor when its time is over."""
    thread = asked(Policy(approvers=PEOPLE, signatures="required"))
    lend = lent({"by": "bob", "to": "carol", "until": (thread.at + timedelta(hours=1)).isoformat()})
    assert thread.update("delegate_authority", lend)["outcome"] == "accepted"
    back = {"by": "bob", "delegated_to": "carol"}
    back["signature"] = sign(BOB, Revocation.model_validate(back).signed_bytes("t"))
    assert thread.update("revoke", back)["outcome"] == "accepted"
    assert thread.update("delegate_authority", lend)["outcome"] == "duplicate"
    thread.passes(hours=2)
    assert thread.update("delegate_authority", lend)["outcome"] == "too_late"
    assert thread.state.authority.delegations == ()


def test_the_same_call_is_allowed_once_it_is_remembered_until_that_is_revoked() -> None:
    """`remember` holds for the same tool and arguments in this thread, is named by the verdict, and can be revoked."""
    thread = asked()
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    thread.reply(pays(cents=5))
    assert thread.at_tools == [2]
    verdicts = [event.rule for event in thread.log if event.type == "verdict_given"]
    assert verdicts[-1] == "remembered 1 (by alice)"
    thread.finish(2)
    assert thread.update("revoke", {"by": "alice", "remembered": 1})["outcome"] == "accepted"
    thread.reply(pays(cents=5))
    assert thread.state.status == "waiting_approval"
    assert thread.update("revoke", {"by": "alice", "remembered": 1})["outcome"] == "unknown_request"


def test_other_arguments_are_not_remembered() -> None:
    """What was allowed for five cents is not for six."""
    thread = asked()
    thread.decide("1", remember=True)
    thread.finish(1)
    thread.reply(pays(cents=6))
    assert thread.state.status == "waiting_approval"


# When.


def test_remind_then_escalate_then_deny() -> None:
    """Nobody decides: those who may are reminded, more are asked, and at last the policy denies."""
    terms = Terms(
        by=("alice",),
        remind_every=HOUR,
        escalate=(Escalation(after=1.5 * HOUR, by=("bob",)),),
        expires_after=3.5 * HOUR,
    )
    thread = asked(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    assert thread.decide("1", by="bob") == "not_entitled"
    before = len(thread.log)
    thread.passes(hours=4)
    reminded, escalated, expired = "approval_reminded", "approval_escalated", "approval_expired"
    told = [kind for kind in thread.types()[before:] if kind.startswith("approval")]
    assert told == [reminded, escalated, reminded, reminded, expired]
    assert thread.decide("1", by="alice") == "too_late"
    assert started(thread) == []
    assert thread.messages()[-1]["content"] == "Denied: the request expired before it was decided."


def test_whom_it_was_escalated_to_may_decide() -> None:
    """After the escalation both the first group and the next may."""
    terms = Terms(by=("alice",), escalate=(Escalation(after=HOUR, by=("bob",)),))
    thread = asked(Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE))
    thread.passes(hours=1.1)
    assert thread.decide("1", by="bob") == "accepted"


def test_an_approval_that_comes_with_the_end_of_time_is_too_late() -> None:
    """The timer and the decision reach the run in one workflow task, the decision first: time wins."""
    thread = asked(Policy(terms=Terms(expires_after=HOUR)))
    thread.at = thread.state.authority.requests[0].expires_at  # type: ignore[assignment]
    assert thread.decide("1") == "too_late"
    assert started(thread) == []


def test_the_policy_may_approve_by_default() -> None:
    """`on_expiry: approve` lets the call run; its start names the request."""
    thread = asked(Policy(terms=Terms(expires_after=HOUR, on_expiry="approve")))
    thread.passes(hours=1)
    assert [event.request for event in started(thread)] == ["1"]


def test_a_question_whether_something_happened_never_expires() -> None:
    """Nobody but a person can tell; the others are only reminded."""
    thread = asked(Policy(terms=Terms(expires_after=HOUR, remind_every=HOUR)))
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.passes(days=3)
    assert thread.state.authority.requests[0].kind == "reconcile"


def test_people_elsewhere_are_told_once_of_each_thing() -> None:
    """Of a request, its reminders and its expiry, and of the end, before the run closes."""
    thread = Thread(clerk(Policy(terms=Terms(expires_after=2.5 * HOUR, remind_every=HOUR))))
    thread.notify = True
    thread.load()
    thread.reply(pays(cents=5))
    thread.passes(hours=3)
    thread.reply(calls())
    for call in thread.waiting(Notice):
        thread.tell(call)
    occasions = [notice.occasion for notice in thread.notices]
    assert occasions[:4] == ["request_opened", "request_reminded", "request_reminded", "request_expired"]


# Effects that nobody can tell of, and long pauses.


def test_an_effect_in_doubt_can_be_taken_back() -> None:
    """`undo` is offered where the tool has one; it runs as a call of its own, and the LLM is told what came of it."""
    thread = asked()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    assert "undo" in thread.state.authority.requests[0].answers
    thread.signal("reconcile", {"request": "2", "decision": "undo", "by": "alice"})
    assert [event.undo for event in started(thread)] == [False, True]
    thread.finish(1, "refunded")
    assert thread.messages()[-1]["content"] == "This happened, and was undone: refunded"


def test_an_undo_that_fails_asks_again() -> None:
    """What could not be taken back is still in doubt."""
    thread = asked()
    thread.decide("1")
    thread.finish(1, "lost", "unknown")
    thread.decide("2", "undo")
    thread.finish(1, "no refund", "failed")
    assert "could not be undone: no refund" in thread.state.authority.requests[0].why
    assert thread.decide("3", "absent") == "accepted"
    assert [event.undo for event in started(thread)] == [False, True, False]


def test_after_a_long_pause_the_world_is_looked_at_first() -> None:
    """The `verify` tools run before the approved call; the LLM reads what they found before its next step."""
    spec = clerk(verify=("look",), limits=Limits(stale_after=HOUR))
    thread = at_work(spec)
    thread.reply(pays(cents=5))
    thread.verified("the price is 5")
    thread.passes(hours=26)
    thread.decide("1")
    assert thread.at_tools == []
    thread.verified("the price is 5")
    assert thread.at_tools == [1]
    thread.finish(1, "paid")
    said = [message["content"] for message in thread.messages()[-2:]]
    assert said[0] == "paid"
    assert said[1].startswith("This run has waited for 26.0 hours.")
    assert "## look (ok)\n\nthe price is 5" in said[1]
    assert sum(isinstance(event, StateVerified) for event in thread.log) == 1


def test_a_short_pause_is_none() -> None:
    """Within `stale_after` nothing is looked up."""
    thread = at_work(clerk(verify=("look",), limits=Limits(stale_after=HOUR)))
    thread.reply(pays(cents=5))
    thread.verified("as it is")
    thread.passes(minutes=30)
    thread.decide("1")
    assert thread.at_tools == [1]


# Rules.


def test_a_rule_counts_for_its_agent_and_depth() -> None:
    """A rule for delegated runs does not bind the run at the root."""
    policy = Policy(rules=(deny("pay").model_copy(update={"depth": 1}), allow("pay")))
    assert asked(policy).at_tools == [1]
    assert asked(policy, depth=1).at_tools == []


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
def test_a_condition_that_cannot_do_is_refused_with_its_rule(condition: str, words: str) -> None:
    """No CEL, too long for the library's recursion, unknown names also behind a short circuit, too many loops."""
    with pytest.raises(ValueError, match=f"when: .*{words}"):
        deny("pay", when=condition)


def test_a_condition_may_name_what_it_binds_itself() -> None:
    """The variable of a loop, text that looks like a name, a field."""
    deny("pay", when="args.to.exists(who, who == 'mallory' || who.startsWith(\"nobody\")) && effect == 'unsafe'")


def test_a_long_list_does_not_hold_up_the_run() -> None:
    """Where a condition loops, more items than it may look at are no answer: it fails closed, at once."""
    policy = Policy(rules=(deny("look", when="args.l.all(x, args.l.exists(y, x == y))"),))
    use = ToolUse(tool="look", effect=Effect.READ, arguments={"l": list(range(301))})
    verdict = evaluate(policy, use)
    assert (verdict.verdict, "more than 300 items" in verdict.rule) == ("deny", True)
