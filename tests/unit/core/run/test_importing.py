"""A run that migrated to another cluster: open calls stay open, and the policy of that cluster decides what may run."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Policy, Terms, allow, ask, deny
from holdfast.audit.judge.audit import Audit
from holdfast.core.authority.interventions import Extension
from holdfast.core.authority.policy import Approver, Extensions
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import Decision
from holdfast.core.budget.account import RAISERS, Account, Cost, Raised
from holdfast.core.budget.budget import Amounts, Budget
from holdfast.core.budget.tree import TreeCost, reserve_allowance, settle_allowance
from holdfast.core.log.event_log import has_ended
from holdfast.core.log.events import RunImported, ToolCallFinished, ToolCallStarted
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest, EffectsRequest, PastEffects
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.fold.imports import join_budget
from holdfast.core.run.views.status import state_view
from holdfast.core.tools.effects import Effect
from tests.support.people import steering
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says, tool_spec

LEVEL = 1
DANA, EVE = encode_key(b"d" * 32), encode_key(b"e" * 32)
ASKS = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="dana", keys=(public_key(DANA),)),))


def paying(policy: Policy = ASKS, **changes: Any) -> Thread:
    """Return a thread that waits for the approval of a payment."""
    thread = loaded_thread(agent_spec(policy=policy, **changes), features=LEVEL)
    thread.reply(calls("pay"))
    return thread


def other(policy: Policy, **changes: Any) -> Any:
    """Return the agent of another cluster."""
    return agent_spec(policy=policy, **changes)


def check_audit(thread: Thread) -> Thread:
    """Check the thread's log, event by event, and that state and transcript follow from it."""
    audit = Audit(thread.name)
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    thread.check_consistent()
    return thread


def test_a_request_keeps_its_id_if_the_agent_is_the_same() -> None:
    """Its digest is unchanged, too, so signatures for it count in both clusters; its effect keeps its key."""
    thread = paying()
    (before,) = thread.state.authority.requests
    there = check_audit(thread.moved().imported())
    assert there.state.authority.requests == (before,)
    assert there.decide("1", by="dana") == "accepted"
    (call,) = there.waiting(ToolRequest)
    assert call.request.key == before.effect_key  # type: ignore[union-attr]
    check_audit(there)


def test_under_another_agent_people_are_asked_again_with_its_requirements() -> None:
    """Requirements from the file, such as approval on expiry, are not part of the new request."""
    lax = Policy(rules=(ask("pay", terms=Terms(expires_after=60, on_expiry="approve")), allow()))
    there = check_audit(paying(lax).moved().imported(other(ASKS)))
    (request,) = there.state.authority.requests
    assert (request.id, request.terms.on_expiry, request.spec_hash) == ("2", "deny", there.state.spec_hash)
    there.advance(seconds=3_600)
    assert not there.running_calls
    assert there.decide("2", by="mallory") == "not_entitled"


@pytest.mark.parametrize(
    ("recorded", "local"), [("allow", "deny"), ("deny", "allow"), ("ask", "allow"), ("allow", "ask")]
)
def test_a_call_has_to_pass_the_recorded_policy_and_the_local_one(recorded: str, local: str) -> None:
    """The stricter of two verdicts on a call made there counts."""
    rules = {"allow": allow, "deny": deny, "ask": ask}
    first, second = (Policy(rules=(rules[kind]("pay"), allow())) for kind in (recorded, local))
    thread = loaded_thread(other(first), features=LEVEL)
    there = thread.moved().imported(other(second))
    there.reply(calls("pay"))
    check_audit(there)
    stricter = max(recorded, local, key=["allow", "ask", "deny"].index)
    assert bool(there.state.authority.requests) is (stricter == "ask")
    assert not there.running_calls
    back = there.moved().imported(other(first)) if stricter == "ask" else there
    assert len(back.state.origin.policies) <= 2, "moving to and fro adds no policy twice"


def test_a_call_that_the_local_policy_denies_ends() -> None:
    """A call that waited for approval elsewhere is denied here."""
    there = check_audit(paying().moved().imported(other(Policy(rules=(deny("pay"), allow())))))
    (ended,) = [event for event in there.log if isinstance(event, ToolCallFinished)]
    assert (ended.status, there.state.authority.requests) == ("denied", ())


def test_an_unused_approval_is_requested_again() -> None:
    """A file cannot import an approval: only people here let the payment run."""
    thread = paying()
    thread.update("pause", {"by": "dana"})
    assert thread.decide("1", by="dana") == "accepted"
    there = check_audit(thread.moved().imported())
    assert there.state.pause
    there.update("resume", {"by": "dana"})
    assert not there.running_calls
    assert [request.id for request in there.state.authority.requests] == ["2"]


def signed(thread: Thread, key: str, by: str, **more: Any) -> dict[str, Any]:
    """Return a decision signed with that key."""
    (request,) = thread.state.authority.requests
    statement = Decision(decision="approve", request=request.id, by=by, digest=request.digest, **more)
    signature = sign(key, statement.signed_bytes(thread.name))
    return statement.model_copy(update={"signature": signature}).model_dump(mode="json", exclude_defaults=True)


def test_only_votes_signed_with_a_key_of_this_cluster_count() -> None:
    """An unsigned vote in the file is dropped, and a signed one counts."""
    people = tuple(Approver(name=name, keys=(public_key(key),)) for name, key in (("dana", DANA), ("eve", EVE)))
    two = Policy(rules=(ask("pay", terms=Terms(quorum=2)), allow()), approvers=people)
    for vote, counts in (({"decision": "approve", "request": "1", "by": "dana"}, False), (None, True)):
        thread = paying(two)
        decision = vote or signed(thread, DANA, "dana")
        assert thread.update("decide", decision)["outcome"] == "waiting_for_quorum"
        there = check_audit(thread.moved().imported())
        (request,) = there.state.authority.requests
        assert [each.by for each in request.votes] == (["dana"] if counts else [])


def test_unsigned_rules_and_delegations_end() -> None:
    """`Always allow this` and delegated approval authority do not travel as unsigned claims."""
    thread = paying()
    thread.decide("1", by="dana", remember=True)
    thread.finish(1)
    assert thread.state.authority.rules
    there = check_audit(thread.moved().imported())
    assert there.state.authority.rules == ()
    there.reply(calls("pay"))
    assert there.state.authority.requests


def test_an_effect_in_progress_is_looked_up_and_never_repeated() -> None:
    """A started call without an outcome is resolved; if it stays unknown, a person is asked."""
    thread = loaded_thread(other(Policy(rules=(allow(),))), features=LEVEL)
    thread.reply(calls("pay"))
    started = next(event for event in thread.log if isinstance(event, ToolCallStarted))
    cut = _migrate_during_call(thread)
    there = cut.imported()
    (call,) = there.waiting(ToolRequest)
    assert (call.request.settle, call.request.key) == (True, started.key)  # type: ignore[union-attr]
    there.end(call, ToolOutcome(status="unknown", content="nobody can tell"))
    (request,) = there.state.authority.requests
    assert (request.kind, request.effect_key) == ("reconcile", started.key)
    assert there.decide(request.id, "absent", by="dana") == "accepted"
    (again,) = there.waiting(ToolRequest)
    assert (again.request.key, again.request.epoch) == (started.key, 1)  # type: ignore[union-attr]


def test_an_unknown_outcome_is_looked_up_again_under_another_agent() -> None:
    """Other people may have to answer there. Under the same agent, the request stays as it is."""
    thread = loaded_thread(other(Policy(rules=(allow(),))), features=LEVEL)
    thread.reply(calls("pay"))
    (call,) = thread.waiting(ToolRequest)
    unknown = ToolOutcome(status="unknown", content="nobody can tell")
    thread.end(call, unknown)
    (asked,) = thread.state.authority.requests
    thread.moved()
    assert check_audit(thread.imported()).state.authority.requests == (asked,)
    there = check_audit(thread.imported(other(ASKS)))
    assert not there.state.authority.requests
    (call,) = there.waiting(ToolRequest)
    assert call.request.settle  # type: ignore[union-attr]
    there.end(call, unknown)
    (request,) = check_audit(there).state.authority.requests
    assert (request.kind, request.spec_hash) == ("reconcile", there.state.spec_hash)


def _migrate_during_call(thread: Thread) -> Thread:
    """Migrate a thread whose worker is gone: its tool has not returned."""
    thread.update("move", {"by": "carol"})
    (call,) = thread.waiting(ToolRequest)
    thread.run._calls.drop(call.id)
    thread.signal("nonsense")
    while not thread.closed:
        thread.archive()
    return thread


def test_a_file_imports_neither_memory_nor_a_workspace() -> None:
    """The logged workspace is a folder of another machine, and the requester is not proven here."""
    thread = loaded_thread(features=LEVEL, by="alice", workspace="/etc")
    there = thread.moved()
    again = Thread(thread.spec, task="", by="carol", resume=True, imported=_point(there), features=LEVEL)
    again.events, again.record = there.log, there.record
    again.load_thread()
    (call,) = again.waiting(AgentRequest)
    assert (call.request.workspace, call.request.user, call.request.forked) == (None, "", None)  # type: ignore[union-attr]


def _point(thread: Thread) -> Any:
    imported = thread.imported()
    return next(event for event in imported.log if isinstance(event, RunImported)).point


def test_an_unvouched_file_is_trusted_like_the_web() -> None:
    """Its trust is lowered despite the claims in its log; if requesters must be known, such a run ends."""
    there = check_audit(loaded_thread(features=LEVEL).moved().imported(signer=""))
    assert there.state.context.trust == "web"
    assert there.state.authority.requesters_unproven
    keeps_track = agent_spec(tools=(tool_spec("pay", Effect.UNSAFE, trusted_only=True),))
    assert loaded_thread(keeps_track, features=LEVEL).moved().imported().state.context.trust != "web"


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("signer", ["k", ""])
@pytest.mark.parametrize("way", ["moved", "closed", "forked"])
def test_web_trust_survives_a_file(way: str, signer: str, tracked: bool) -> None:
    """A local rule that asks after web content also asks after an import: of a migrated run, of a closed one, and as a
    fork; also if the original agent did not keep track of trust.
    """
    tools = (tool_spec("look", trust="web"), tool_spec("pay", Effect.UNSAFE))
    asks = Policy(rules=(ask("pay", when='trust == "web"'), allow()))
    there = agent_spec(policy=asks if tracked else Policy(rules=(allow(),)), tools=tools)
    thread = loaded_thread(there, features=LEVEL)
    thread.reply(calls("look"))
    thread.finish(1)
    here = agent_spec(policy=asks, tools=tools)
    if way == "moved":
        imported_thread = thread.moved().imported(here, signer=signer)
    elif way == "closed":
        thread.reply(says("done"))
        thread.archive()
        imported_thread = thread.imported(signer=signer)
        imported_thread.archive()
        imported_thread.reopen("and on", features=LEVEL)
        imported_thread.load_thread()
        imported_thread.spec = here
        imported_thread.load(LEVEL)
    else:
        point = _point(thread.moved())
        imported_thread = thread.fork(imported=point.model_copy(update={"signer": signer}), task="and on")
        imported_thread.spec = here
        imported_thread.load(LEVEL)
    assert imported_thread.state.context.trust == "web"
    imported_thread.reply(calls("pay", first=7))
    assert [request.call().name for request in imported_thread.state.authority.requests] == ["pay"]


def test_the_tighter_budget_counts_and_spending_is_kept() -> None:
    """Neither the file nor a migration gives a run more than this cluster allows."""
    thread = loaded_thread(agent_spec(budget=Budget(steps=100)), features=LEVEL)
    thread.reply(calls("look"))
    thread.finish(1)
    there = check_audit(thread.moved().imported(agent_spec(budget=Budget(steps=5))))
    assert there.state.account.limits == {"steps": 5}
    assert there.state.account.spent.steps == 1
    limit = thread.state.steps.limit
    assert there.state.steps.limit <= limit


def extended_thread(policy: Policy | None = None, **said: Any) -> Thread:
    """Return a thread with a budget of three steps, which a person has extended by 40."""
    thread = loaded_thread(agent_spec(budget=Budget(steps=3), policy=policy or Policy()), features=LEVEL)
    extension = Extension(**{"steps": 40, "by": "dana", "id": "once", **said})
    signature = sign(DANA, extension.signed_bytes(thread.name)) if extension.until else ""
    assert (
        thread.update("extend", {**extension.model_dump(mode="json"), "signature": signature})["outcome"] == "accepted"
    )
    assert thread.state.account.limits == {"steps": 43}
    return thread


def limit_of(thread: Thread) -> int:
    """Return the number of steps that its budget allows."""
    return thread.state.account.limits["steps"]


def test_an_extension_by_a_person_migrates_with_the_run() -> None:
    """The agent's own budget does not limit the extension, in either cluster, however often the thread migrates."""
    there = check_audit(extended_thread().moved().imported())
    assert limit_of(there) == 43
    assert there.update("extend", {"steps": 5, "by": "eve"})["outcome"] == "accepted"
    assert there.update("extend", {"steps": 5, "by": "dana", "id": "once"})["outcome"] == "duplicate"
    assert limit_of(check_audit(there.moved().imported())) == 48


def test_an_agent_with_a_smaller_budget_keeps_the_extension() -> None:
    """The agent's own limit counts, plus the extension; a limit that exists only here was not extended."""
    smaller = agent_spec(budget=Budget(steps=2, tokens=1_000_000))
    there = check_audit(extended_thread().moved().imported(smaller))
    assert there.state.account.limits == {"steps": 42, "tokens": 1_000_000}
    assert limit_of(check_audit(there.moved().imported(agent_spec(budget=Budget(steps=3))))) == 42
    assert limit_of(check_audit(extended_thread().moved().imported(agent_spec(budget=Budget(steps=90))))) == 43


def test_time_that_was_added_comes_along() -> None:
    """An earlier overrun is part of it: nobody has to grant that twice."""
    thread = loaded_thread(agent_spec(budget=Budget(seconds=60)), features=LEVEL)
    thread.advance(seconds=90)
    assert thread.update("extend", {"seconds": 30, "by": "dana"})["outcome"] == "accepted"
    limits = dict(thread.state.account.limits)
    assert limits["seconds"] > 90 * 10**6
    assert check_audit(thread.moved().imported()).state.account.limits == limits


SIGNED_HERE = Policy(approvers=(Approver(name="dana", keys=(public_key(DANA),)),), signatures="required")
SIGNED_ELSEWHERE = Policy(approvers=(Approver(name="dana", keys=(public_key(EVE),)),), signatures="required")
UNTIL = NOW + timedelta(minutes=50)


@pytest.mark.parametrize(
    ("local", "signed", "signer", "limit"),
    [
        (SIGNED_HERE, True, "k", 43),
        (SIGNED_HERE, True, "", 43),
        (SIGNED_HERE, False, "k", 3),
        (SIGNED_ELSEWHERE, True, "k", 3),
        (Policy(), False, "k", 43),
        (Policy(), False, "", 3),
        (Policy(extensions=Extensions(by=("eve",))), False, "k", 3),
        (Policy(extensions=Extensions(by=("dana",))), False, "k", 43),
        (Policy(extensions=Extensions(most=Amounts(steps=39))), False, "k", 3),
        (Policy(extensions=Extensions(most=Amounts(steps=40))), False, "k", 43),
        (Policy(extensions=Extensions(most=Amounts(usd=1))), False, "k", 3),
        (Policy(approvers=(Approver(name="eve"),)), False, "k", 3),
    ],
)
def test_an_extension_made_elsewhere_counts_as_far_as_the_local_policy_allows(
    local: Policy, signed: bool, signer: str, limit: int
) -> None:
    """This cluster's policy decides who may extend, by how much, and with which key; a file cannot."""
    recorded = SIGNED_HERE if signed else Policy()
    thread = extended_thread(recorded, until=UNTIL if signed else None)
    statement = steering("t", state_view(thread.state), "move", "dana", key=DANA) if signed else None
    there = thread.moved(statement).imported(agent_spec(budget=Budget(steps=3), policy=local), signer=signer)
    assert limit_of(check_audit(there)) == limit


def test_spent_extensions_of_sub_agents_migrate_with_the_run() -> None:
    """Otherwise the run would have less left than before. An extension in a file that nobody vouches for does not
    count.
    """
    account = Account.open(Budget(tokens=1_000), None, tokens=0)
    raised = settle_allowance(reserve_allowance(account, 1, Cost(tokens=100)), 1, TreeCost(tokens=150, more_tokens=500))
    assert (raised.limits, raised.raised) == ({"tokens": 1_050}, (Raised(units={"tokens": 50}),))
    for signer, limit in (("k", 1_050), ("", 1_000)):
        state = loaded_thread(features=LEVEL).moved().imported(signer=signer).state
        assert join_budget(state, raised, account).limits == {"tokens": limit}


def test_an_account_keeps_a_bounded_number_of_extensions() -> None:
    """If no policy names people, any name is possible, and a run carries its account along."""
    account = Account.open(Budget(steps=1), None, tokens=0)
    for number in range(3 * RAISERS):
        account = account.extend(Amounts(steps=1), by=f"person {number}").extend(Amounts(steps=2), by="dana")
    assert (len(account.raised), account.limits["steps"]) == (RAISERS, 1 + 9 * RAISERS)
    assert account.raised[-1] == Raised("dana", "", {"steps": 6 * RAISERS}, {"steps": 2})


def test_a_wait_continues_after_a_migration() -> None:
    """`sleep_until` keeps its time, and waiting messages are shown."""
    sleeps = agent_spec(
        tools=(tool_spec("sleep_until", kind="runtime"), tool_spec("pay", Effect.UNSAFE)),
        policy=Policy(rules=(allow(),)),
    )
    thread = loaded_thread(sleeps, features=LEVEL)
    until = (thread.at + timedelta(hours=2)).isoformat()
    reply = calls("sleep_until")
    assert reply.message is not None
    (written,) = reply.message.tool_calls
    slept = written.model_copy(update={"arguments": f'{{"until": "{until}"}}'})
    thread.reply(reply.model_copy(update={"message": reply.message.model_copy(update={"content": (slept,)})}))
    assert thread.state.status == "dormant"
    there = check_audit(thread.moved().imported())
    assert there.state.dormancy.waits == thread.state.dormancy.waits
    there.advance(hours=3)
    assert there.calling_llm()


def test_a_message_that_waited_is_shown_there() -> None:
    """The inbox is part of the log."""
    thread = paying()
    assert thread.say("and be quick") == "queued"
    there = thread.moved().imported()
    assert there.decide("1", "deny", by="dana") == "accepted"
    assert "and be quick" in str(there.messages())
    check_audit(there)


def test_tools_in_progress_end_before_a_migration() -> None:
    """No new call starts; an LLM call is abandoned, and repeated in the other cluster."""
    thread = loaded_thread(features=LEVEL)
    thread.reply(calls("look"))
    assert thread.update("move", {"by": "carol"})["outcome"] == "accepted"
    assert thread.state.moving
    assert thread.update("move", {"by": "carol"})["outcome"] == "duplicate"
    thread.finish(1)
    while not thread.closed:
        thread.archive()
    assert not thread.waiting(LLMRequest)
    assert check_audit(thread.imported()).calling_llm()


def test_a_migrated_run_that_is_reset_ends_as_migrated_and_records_nothing() -> None:
    """The record already has the run's end: inputs since its reset are dropped."""
    thread = paying()
    log = paying().moved().log
    thread.reset()
    assert thread.decide("1", by="dana") == "accepted"
    (call,) = thread.waiting(EffectsRequest)
    thread.end(call, PastEffects(moved=snapshot_of(log)))
    thread.run.signal("approve", {"request": "1", "by": "dana"})
    assert thread.run.update("say", {"message": "go on", "by": "dana"})["outcome"] == "too_late"
    assert (thread.closed, thread.state.outcome, thread.running_calls) == (True, "moved", [])
    assert thread.run.log.events == []


def test_a_migrated_thread_is_not_continued_in_its_old_cluster() -> None:
    """Another task does not begin a second copy of the thread; only its file does."""
    thread = paying().moved()
    there = thread.imported()
    thread.reopen("go on")
    thread.load_thread()
    assert thread.run.end is not None
    assert "was moved" in str(thread.run.end.failure)
    assert there.state.status == "waiting_approval"


def test_open_requests_are_neither_decided_nor_due_after_a_migration() -> None:
    """While the last events are archived, a decision is too late, no request expires, and the run ends as migrated."""
    short = Policy(rules=(ask("pay", terms=Terms(expires_after=60)), allow()))
    thread = paying(short)
    (before,) = thread.state.authority.requests
    assert thread.update("move", {"by": "carol"})["outcome"] == "accepted"
    assert thread.waiting(ArchiveRequest)
    assert thread.decide("1", by="dana") == "too_late"
    thread.advance(hours=1)
    thread.signal("approve", {"request": "1", "by": "dana"})
    while not thread.closed:
        thread.archive()
    assert has_ended(event.type for event in reversed(thread.log))
    assert thread.state.authority.requests == (before,)
    check_audit(thread)


def test_a_closed_thread_stays_closed_and_loses_its_rules() -> None:
    """The record here has it; a run that continues it has none of the permissions that people gave elsewhere."""
    thread = paying()
    thread.decide("1", by="dana", remember=True)
    thread.finish(1)
    thread.reply(says("done"))
    while not thread.closed:
        thread.archive()
    there = thread.imported()
    while not there.closed:
        there.archive()
    check_audit(there)
    assert (there.state.status, there.state.authority.rules) == ("completed", ())


def test_a_run_rejects_any_record_but_the_imported_one() -> None:
    """Events recorded between the import and the start are not continued."""
    thread = paying().moved()
    point = _point(thread)
    there = Thread(thread.spec, task="", resume=True, imported=point.model_copy(update={"position": 3}), features=LEVEL)
    there.events, there.record = thread.log, thread.record
    there.load_thread()
    assert there.run.end is not None
    assert there.run.end.failure is not None
    assert "does not end with event 3" in there.run.end.failure.message
