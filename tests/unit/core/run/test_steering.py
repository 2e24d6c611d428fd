"""`holdfast.core.run.inputs.steering`: who may pause, resume, retry and migrate a run; the effect of revoked keys."""

from typing import Any

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.policy import Approver, Extensions, Gateway, Policy, Terms, allow, ask
from holdfast.core.authority.signatures import public_key
from holdfast.core.lineage import Lineage
from holdfast.core.log.events import KeyRevoked, RunPaused, RunResumed, RunUnblocked
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.core.run.contracts.subagents import StartSubagentsRequest
from holdfast.core.run.views.deciders import may_steer, pending_view
from holdfast.core.run.views.status import state_view
from tests.support.people import KEYS, PEOPLE, decision, signed, steering
from tests.support.plays import SUBAGENT_TOOLS
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec
from tests.unit.core.run.test_subagents import helpers

RULES = (ask("pay", terms=Terms(quorum=2)), allow())
SIGNED = Policy(rules=RULES, approvers=PEOPLE, signatures="required")
CLAIMED = Policy(rules=RULES, approvers=PEOPLE)
HOOKS = Policy(
    rules=RULES,
    approvers=PEOPLE,
    gateways=(Gateway(name="hooks", keys=(public_key(KEYS["mallory"]),)),),
    signatures="required",
)


def run(policy: Policy = SIGNED, *, features: int = 1) -> Thread:
    """Return a run that waits for two approvals of a payment."""
    thread = loaded_thread(agent_spec(policy=policy), features=features)
    thread.reply(calls("pay"))
    return thread


def blocked_run(policy: Policy = SIGNED) -> Thread:
    """Return a run that is blocked, because the provider rejects its requests."""
    thread = loaded_thread(agent_spec(policy=policy), features=1)
    thread.refuse(LLM_REJECTED)
    return thread


def steer(thread: Thread, name: str, by: str, *, sign: bool = True, **said: Any) -> str:
    """Send a statement that steers the run; return its outcome."""
    payload = {"by": by, **said}
    if sign:
        payload = steering(thread.name, state_view(thread.state), name, by, **said)
    return thread.update(name, payload)["outcome"]


def check_audit(thread: Thread) -> None:
    """Check that the log passes its audit, and that the state follows from the log."""
    audit = Audit(thread.name, trusted=thread.spec.policy)
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    thread.check_consistent()


@pytest.mark.parametrize("name", ["pause", "move"])
def test_nobody_steers_unsigned_if_signatures_are_required(name: str) -> None:
    """An unsigned `pause` or `move` is rejected under any name; so is one that is signed with another's key."""
    thread = run()
    assert steer(thread, name, "alice", sign=False) == "unsigned"
    assert steer(thread, name, "alice", key=KEYS["mallory"]) == "bad_signature"
    thread.signal(name, {"by": "alice"})
    assert (thread.state.pause, thread.state.moving) == (None, None)
    assert steer(thread, name, "alice") == "accepted"
    check_audit(thread)


def test_a_signed_pause_is_ended_by_a_signed_resume_alone() -> None:
    """Nobody ends or shortens it without a signature, even if the policy accepts unsigned decisions."""
    for policy in (SIGNED, CLAIMED):
        thread = run(policy)
        assert steer(thread, "pause", "alice") == "accepted"
        for by in ("mallory", "alice", "bob"):
            assert steer(thread, "resume", by, sign=False) == "unsigned"
            assert steer(thread, "pause", by, sign=False, seconds=1) == "unsigned"
        assert thread.state.pause is not None
        assert thread.state.pause.until is None
        assert steer(thread, "resume", "bob") == "accepted"
        assert thread.state.status == "waiting_approval"
        assert [event.proof for event in thread.log if isinstance(event, RunResumed)] == ["signed"]
        check_audit(thread)


def test_a_stranger_does_not_end_an_approvers_pause() -> None:
    """If names are taken on trust, only an approver ends an approver's pause; anybody ends anybody else's."""
    thread = run(CLAIMED)
    assert steer(thread, "pause", "Alice ", sign=False) == "accepted"
    assert steer(thread, "resume", "mallory", sign=False) == "not_entitled"
    assert steer(thread, "pause", "mallory", sign=False, seconds=1) == "not_entitled"
    assert steer(thread, "resume", "bob", sign=False) == "accepted"
    assert steer(thread, "pause", "mallory", sign=False) == "accepted"
    assert steer(thread, "resume", "eve", sign=False) == "accepted"
    check_audit(thread)


def test_a_signed_statement_ends_no_later_pause() -> None:
    """A resumption sent or rejected earlier is bound to the pause that its sender saw."""
    thread = run()
    rejected = steering("t", state_view(thread.state), "resume", "alice")
    assert thread.update("resume", rejected)["outcome"] == "not_paused"
    steer(thread, "pause", "bob")
    assert thread.update("resume", rejected)["outcome"] == "outdated"
    used = steering("t", state_view(thread.state), "resume", "alice")
    assert thread.update("resume", used)["outcome"] == "accepted"
    steer(thread, "pause", "bob")
    assert thread.update("resume", used)["outcome"] == "outdated"
    other = steering("t", {"steering": {"run": "r9", "seen": thread.state.holds}}, "resume", "alice")
    assert thread.update("resume", other)["outcome"] == "outdated", "it was signed for another run of the thread"
    assert thread.state.pause is not None


def test_a_blocked_run_is_retried_by_a_signature_where_they_are_required() -> None:
    """Only a signed statement lets the run continue, and the log has the signature."""
    thread = blocked_run()
    assert steer(thread, "retry", "alice", sign=False) == "unsigned"
    thread.signal("retry", {"by": "alice"})
    assert thread.state.blocked is not None
    assert steer(thread, "retry", "alice") == "accepted"
    (event,) = [event for event in thread.log if isinstance(event, RunUnblocked)]
    assert (event.proof, event.key) == ("signed", public_key(KEYS["alice"]))
    check_audit(thread)
    claims = blocked_run(CLAIMED)
    assert steer(claims, "retry", "anybody", sign=False) == "accepted"


def test_a_forged_resumption_is_a_fault_of_the_log() -> None:
    """A log in which a pause ended without the required signature does not follow."""
    thread = run()
    steer(thread, "pause", "alice")
    steer(thread, "resume", "bob")
    place = next(n for n, event in enumerate(thread.log) if isinstance(event, RunResumed))
    for change in ({"signature": "", "proof": "", "key": ""}, {"by": "carol"}):
        forged = [*thread.log[:place], thread.log[place].model_copy(update=change)]
        audit = Audit("t")
        audit.take(forged)
        assert audit.fault is not None
        assert audit.fault.position == place


def test_a_gateway_vouches_for_the_person_who_pauses() -> None:
    """A person without a key steers the run through a gateway that the policy lists."""
    thread = run(HOOKS)
    assert steer(thread, "pause", "operator", key=KEYS["mallory"]) == "accepted"
    (event,) = [event for event in thread.log if isinstance(event, RunPaused)]
    assert (event.by, event.proof) == ("operator", "vouched")
    assert steer(thread, "resume", "operator", key=KEYS["mallory"]) == "accepted"
    check_audit(thread)


def test_a_policy_from_above_also_decides_who_steers() -> None:
    """If the run above lets only its own people resume, a lenient sub-agent is not resumed by anybody else."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = Thread(agent_spec(policy=Policy()), lineage=lineage, features=1, depth=1, policies=(SIGNED,))
    thread.load(1)
    assert steer(thread, "pause", "anybody", sign=False) == "unsigned"
    assert steer(thread, "pause", "alice") == "accepted"
    assert steer(thread, "resume", "anybody", sign=False) == "unsigned"
    assert steer(thread, "resume", "alice") == "accepted"
    both = Thread(
        agent_spec(
            policy=Policy(
                approvers=(Approver(name="erin", keys=(public_key(KEYS["mallory"]),)),), signatures="required"
            )
        ),
        lineage=lineage,
        features=1,
        depth=1,
        policies=(SIGNED,),
    )
    both.load(1)
    assert steer(both, "pause", "erin", key=KEYS["mallory"]) == "accepted", "what stops takes one of them"
    assert steer(both, "resume", "erin", key=KEYS["mallory"]) == "bad_signature", "what lets it continue takes all"


def test_below_the_feature_level_anybody_steers() -> None:
    """A run that an earlier release began is retried as before."""
    thread = loaded_thread(agent_spec(policy=SIGNED))
    thread.refuse(LLM_REJECTED)
    thread.signal("retry", {"by": "anybody"})
    assert thread.state.blocked is None
    assert state_view(thread.state)["steering"] is None


# Keys that are revoked.


def revoke_key(thread: Thread, of: str, by: str, *, sign: bool = True, **said: Any) -> str:
    """Revoke another person's key in a person's name; return the outcome."""
    payload: dict[str, Any] = {"revoked": public_key(KEYS[of]), "by": by, **said}
    if sign:
        payload = signed(KeyRevocation, thread.name, **payload)
    return thread.update("revoke_key", payload)["outcome"]


def vote(thread: Thread, by: str, **said: Any) -> str:
    """Approve the open request with a signature; return the outcome."""
    (request,) = pending_view(thread.state)
    return thread.update("decide", decision(thread.name, request, by=by, **said))["outcome"]


@pytest.mark.parametrize("by", ["bob", "alice"])
def test_a_revoked_key_takes_its_votes_with_it(by: str) -> None:
    """Another approver revokes it, or its owner with that very key; later signatures by it do not count."""
    thread = run()
    assert vote(thread, "alice") == "waiting_for_quorum"
    assert revoke_key(thread, "alice", by) == "accepted"
    assert thread.state.authority.requests[0].votes == ()
    assert vote(thread, "alice") == "bad_signature"
    assert revoke_key(thread, "bob", "alice") == "bad_signature"
    assert revoke_key(thread, "alice", "bob") == "duplicate"
    assert [vote(thread, by) for by in ("bob", "carol")] == ["waiting_for_quorum", "accepted"]
    check_audit(thread)


def test_who_may_revoke_a_key() -> None:
    """An approver may, with a signature even if decisions need none; and only a key that a policy lists."""
    for policy in (SIGNED, CLAIMED):
        thread = run(policy)
        assert revoke_key(thread, "alice", "bob", sign=False) == "unsigned"
        assert revoke_key(thread, "alice", "mallory", sign=False) in ("unsigned", "not_entitled")
        assert revoke_key(thread, "alice", "mallory") in ("bad_signature", "not_entitled")
        assert revoke_key(thread, "mallory", "bob") == "unknown_request"
        assert thread.update("revoke_key", {"revoked": "ed25519:x", "by": "bob"})["outcome"] == "malformed"
        assert thread.state.authority.revoked_keys == ()


def test_a_call_that_a_revoked_key_approved_is_asked_about_again() -> None:
    """While the run is paused, an approved call has not started: without the key, it needs other people."""
    thread = run()
    steer(thread, "pause", "carol")
    assert [vote(thread, by) for by in ("alice", "bob")] == ["waiting_for_quorum", "accepted"]
    assert not thread.running_calls
    assert revoke_key(thread, "alice", "carol") == "accepted"
    (request,) = thread.state.authority.requests
    assert request.id == "2"
    assert "revoked a key" in request.why
    steer(thread, "resume", "carol")
    assert not thread.running_calls
    assert [vote(thread, by) for by in ("bob", "carol")] == ["waiting_for_quorum", "accepted"]
    assert thread.running_calls == [1]
    check_audit(thread)


def test_a_rule_that_a_revoked_key_made_is_gone() -> None:
    """A remembered rule counts while everyone who made it may still decide; the calls it allowed are judged again."""
    thread = run()
    assert [vote(thread, by, remember=True) for by in ("alice", "bob")] == ["waiting_for_quorum", "accepted"]
    thread.finish(1)
    assert [rule["by"] for rule in state_view(thread.state)["remembered"]] == ["alice, bob"]
    steer(thread, "pause", "carol")
    assert revoke_key(thread, "bob", "carol") == "accepted"
    assert state_view(thread.state)["remembered"] == []
    check_audit(thread)


def test_a_call_that_a_rule_allowed_is_asked_about_again_if_the_rule_falls() -> None:
    """Of a paused run, a call that a remembered rule allows has not started. Another person's key does not matter."""
    thread = run()
    assert [vote(thread, by, remember=True) for by in ("alice", "bob")] == ["waiting_for_quorum", "accepted"]
    thread.finish(1)
    steer(thread, "pause", "carol")
    thread.reply(calls("pay"))
    assert revoke_key(thread, "carol", "alice") == "accepted"
    assert not thread.state.authority.requests
    assert revoke_key(thread, "bob", "alice") == "accepted"
    assert [request.number for request in thread.state.authority.requests] == [2]
    check_audit(thread)


def test_a_later_sub_agent_rejects_the_revoked_key() -> None:
    """A key revoked in a thread is revoked in the threads that it starts."""
    tools = (tool_spec("look"), *SUBAGENT_TOOLS)
    spec = agent_spec(tools=tools, policy=SIGNED, limits=Limits()).model_copy(update={"subagents": ("helper",)})
    thread = loaded_thread(spec, features=1)
    revoke_key(thread, "alice", "bob")
    assert [event.by for event in thread.log if isinstance(event, KeyRevoked)] == ["bob"]
    thread.reply(helpers(1))
    (order,) = thread.waiting(StartSubagentsRequest)
    assert order.request.revoked_keys == (public_key(KEYS["alice"]),)  # type: ignore[union-attr]
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3, revoked_keys=(public_key(KEYS["alice"]),))
    subagent = Thread(agent_spec(policy=Policy()), lineage=lineage, features=1, depth=1, policies=(SIGNED,))
    subagent.load(1)
    assert steer(subagent, "pause", "alice") == "bad_signature"
    assert steer(subagent, "pause", "bob") == "accepted"


def test_the_state_says_what_has_to_be_signed() -> None:
    """Screens learn from the state whether a statement has to be signed, and by which keys; the run judges it alike."""
    thread = run(CLAIMED)
    names = {person.name for person in PEOPLE}
    assert may_steer(thread.state) == {
        "signed": False,
        "resume_signed": False,
        "messages_signed": False,
        "refine": sorted({*names, thread.state.origin.user} - {""}),
        "extend": sorted({*names, thread.state.origin.user} - {""}),
        "gateways": [],
        "keys": {person.name: sorted(person.keys) for person in PEOPLE if person.keys},
    }
    assert steer(thread, "pause", "alice") == "accepted"
    known = may_steer(thread.state)
    assert known is not None
    assert (known["signed"], known["resume_signed"]) == (False, True)
    assert steer(thread, "resume", "alice", sign=False) == "unsigned"
    hooks = may_steer(run(HOOKS).state)
    assert hooks is not None
    assert (hooks["signed"], hooks["gateways"]) == (True, [public_key(KEYS["mallory"])])
    assert may_steer(run(features=0).state) is None


def test_the_state_says_who_may_refine_and_extend() -> None:
    """Everybody may if no policy names people; else those whom the run would not refuse."""
    anybody = may_steer(run(Policy(rules=RULES)).state)
    assert anybody is not None
    assert (anybody["refine"], anybody["extend"]) == (None, None)
    named = CLAIMED.model_copy(update={"extensions": Extensions(by=("bob",))})
    known = may_steer(run(named).state)
    assert known is not None
    assert known["extend"] == ["bob"]
    thread = run(CLAIMED.model_copy(update={"terms": Terms(requester_may_decide=False)}))
    thread.say("hello", by="alice")
    eyes = may_steer(thread.state)
    assert eyes is not None
    assert ("alice" in eyes["refine"], "alice" in eyes["extend"], "bob" in eyes["extend"]) == (True, False, True)
