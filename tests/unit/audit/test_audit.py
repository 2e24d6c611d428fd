"""The audit of a log: a log that a run recorded passes; events without a cause do not, even in a correct chain."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from temporalio.client import WorkflowHistory
from temporalio.converter import WorkflowSerializationContext

from holdfast.audit.judge.audit import Audit, Fault
from holdfast.audit.judge.forks import first_thread
from holdfast.client.reading.histories import RecordedRun
from holdfast.core.agents.agent import SkillSpec
from holdfast.core.authority.interventions import Message
from holdfast.core.authority.policy import Approver, Gateway, Policy, Terms, ask
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import AuthorityDelegation, Decision
from holdfast.core.base.canonical import address_of
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    AuthorityDelegated,
    DecisionReceived,
    LLMReplied,
    RuleRemembered,
    RunFinished,
    RunOutcome,
    RunStarted,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.state.state import RunState
from holdfast.core.temporal.converter import SEAL, sealing
from holdfast.encryption.signing_keys import signed
from holdfast.errors import RecordUnreadable
from tests.replay.record import HISTORIES
from tests.replay.scenarios import LAUNCHER, LOOP
from tests.support.examples import examples
from tests.support.plays import SEEDS, play
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

ALICE, BOB, HOOKS, MALLORY = (encode_key(bytes([number]) * 32) for number in (1, 2, 3, 4))
PEOPLE = (Approver(name="alice", keys=(public_key(ALICE),)), Approver(name="bob", keys=(public_key(BOB),)))
GATEWAYS = (Gateway(name="hooks", keys=(public_key(HOOKS),)),)
POLICY = Policy(rules=(ask("pay", terms=Terms(quorum=2)),), approvers=PEOPLE, gateways=GATEWAYS, signatures="required")
AUTHORITY = (ToolCallRequested, VerdictGiven, ApprovalRequested, RuleRemembered, AgentLoaded, RunStarted)
RECORDED = sorted(file for file in HISTORIES.rglob("*.json") if not file.stem.startswith((LOOP, LAUNCHER)))


def recompute_chain(events: Sequence[AgentEvent]) -> list[AgentEvent]:
    """Return the events in a correct chain, as an attacker with access to the database would write them."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    return log.events


def fault(
    events: Sequence[AgentEvent], *, trusted: Policy | None = None, state: RunState | None = None
) -> Fault | None:
    """Return the first fault in a log."""
    audit = Audit("t", trusted=trusted, state=state)
    audit.take(recompute_chain(events) if state is None else events)
    return audit.fault


def without(events: Sequence[AgentEvent], *kinds: Any) -> list[AgentEvent]:
    """Return the events without those of these kinds."""
    return [event for event in events if not isinstance(event, kinds)]


def changed(events: Sequence[AgentEvent], kind: Any, change: Callable[[Any], AgentEvent]) -> list[AgentEvent]:
    """Return the events with the first one of that kind changed."""
    place = next(index for index, event in enumerate(events) if isinstance(event, kind))
    return [*events[:place], change(events[place]), *events[place + 1 :]]


# Valid logs.


@given(SEEDS)
def test_a_recorded_run_passes(seed: int) -> None:
    """Over all Temporal runs of a thread, however it ends, each event follows from those before it."""
    thread = play(seed).thread
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None
    assert audit.state == thread.state


@given(SEEDS, st.data())
def test_a_log_can_be_audited_from_any_of_its_states(seed: int, data: st.DataObject) -> None:
    """If the beginning is missing, the rest is audited from the state in a Temporal run's snapshot."""
    events = play(seed).thread.log
    begins = [event.position for event in events if event.type in ("run_continued", "run_started")]
    start = data.draw(st.sampled_from(begins))
    state = snapshot_of(events[:start]).state
    assert fault(events[start:], state=state if start else None) is None


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recorded_history_passes(file: Path) -> None:
    """Every history recorded by a release passes, starting from the snapshot of its Temporal run."""
    run = RecordedRun("", "", WorkflowHistory.from_json("", file.read_text()).events)
    begin = run.begin
    thread = first_thread(run.log, file.stem.partition(".")[0])
    audit = Audit(thread, state=begin.state if begin.position else None, head=begin.head)
    audit.take(run.log)
    assert audit.fault is None


def test_the_audit_collects_effects_and_artifacts() -> None:
    """The audit collects effects by key and epoch, and artifacts of results, replies and skill files."""
    addresses = {name: address_of(name.encode()) for name in ("skill", "reply", "result")}
    skill = SkillSpec(name="s", description="d", files={"SKILL.md": addresses["skill"]})
    thread = loaded_thread(agent_spec(skills=(skill,)))
    thread.reply(calls("look").model_copy(update={"artifact": addresses["reply"]}))
    (call,) = thread.waiting(ToolRequest)
    thread.end(call, ToolOutcome(status="ok", content="head … tail", artifact=addresses["result"], size=9))
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None
    assert set(audit.artifacts) == set(addresses.values())
    assert audit.effects == {}  # a read has no effect


# Forged logs.


@given(SEEDS, st.data())
def test_no_event_that_authorises_a_call_can_be_removed(seed: int, data: st.DataObject) -> None:
    """A log without one of its verdicts, requests, counted decisions or run starts has a fault."""
    events = play(seed).thread.log
    places = [
        index
        for index, event in enumerate(events[:-1])
        if isinstance(event, AUTHORITY) or (isinstance(event, DecisionReceived) and event.outcome == "accepted")
    ]
    place = data.draw(st.sampled_from(places))
    assert fault([*events[:place], *events[place + 1 :]]) is not None


@given(SEEDS, st.data())
def test_no_call_starts_without_a_cause(seed: int, data: st.DataObject) -> None:
    """An inserted start of any call, or one with another key, grant or number, is a fault."""
    events = play(seed).thread.log
    starts = [event for event in events if isinstance(event, ToolCallStarted)]
    assume(starts)
    start = data.draw(st.sampled_from(starts))
    place = data.draw(st.integers(1, len(events) - 1))
    assert fault([*events[:place], start, *events[place:]]) is not None
    change: dict[str, Any] = data.draw(
        st.sampled_from([{"key": "k" * 40}, {"request": "99"}, {"undo": True}, {"number": 999}])
    )
    if start.undo and "undo" in change:
        change = {"undo": False}
    other = start.model_copy(update=change)
    first_fault = fault([other if event is start else event for event in events])
    assert first_fault is not None
    assert first_fault.position == start.position


@settings(max_examples=examples(8, 20))
@given(SEEDS, st.data())
def test_the_audit_never_raises(seed: int, data: st.DataObject) -> None:
    """Events in any order, duplicated or from another thread lead to a fault or none, never to an exception."""
    events, others = play(seed).thread.log, play((seed + 1) % 60).thread.log
    for _ in range(3):
        place = data.draw(st.integers(1, len(events)))
        events = [*events[:place], data.draw(st.sampled_from([*events, *others])), *events[place:]]
        fault(events)
        fault([*events[:place], *reversed(events[place:])])


def signed_off(**more: Any) -> Thread:
    """Return a thread in which two people signed an edited payment and asked to remember it, and which made the
    payment.
    """
    thread = loaded_thread(agent_spec(policy=POLICY))
    thread.reply(calls("pay"))
    for name, key, arguments in (("alice", ALICE, {"cents": 4}), ("bob", BOB, None)):
        (request,) = thread.state.authority.requests
        payload: dict[str, Any] = {"decision": "approve", "request": "1", "by": name, "digest": request.digest}
        payload |= {"remember": True, **more} | ({"arguments": arguments} if arguments else {})
        thread.update("decide", signed(payload, Decision, thread="t", private=key))
    thread.finish(1, "paid")
    thread.reply(says("done"))
    return thread


def test_a_thread_of_signed_votes_passes() -> None:
    """Request, edit, quorum, rule and start follow from the signed statements, and each signature is verified."""
    audit = Audit("t", trusted=POLICY)
    audit.take(signed_off().log)
    assert (audit.fault, audit.signatures) == (None, 2)
    ((key, epoch),) = audit.effects
    assert (key, epoch) == (next(e.key for e in signed_off().log if isinstance(e, ToolCallStarted)), 0)


@pytest.mark.parametrize("kind", [ToolCallRequested, VerdictGiven, ApprovalRequested, DecisionReceived])
def test_a_call_needs_its_requests_verdicts_and_decisions(kind: Any) -> None:
    """A log with the call but without all requests, all verdicts or all decisions has a fault."""
    assert fault(without(signed_off().log, kind)) is not None


def test_a_call_without_requests_and_decisions_is_a_fault() -> None:
    """If all requests and decisions are removed, nothing permits the call."""
    events = without(signed_off().log, ApprovalRequested, DecisionReceived, RuleRemembered)
    first_fault = fault(events)
    assert first_fault is not None
    assert "approval_requested" in first_fault.reason
    allowed = changed(events, VerdictGiven, lambda event: event.model_copy(update={"verdict": "allow"}))
    first_fault = fault(allowed)
    assert first_fault is not None
    assert "its verdict is allow, and what came before leads to ask" in first_fault.reason


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reason": "because"}, "bad_signature"),
        ({"by": "carol"}, "bad_signature"),
        ({"digest_given": "e"}, "digest_mismatch"),
        ({"arguments": {"cents": 5}}, "bad_signature"),
        ({"signature": ""}, "unsigned"),
        ({"signature": "", "proof": "", "key": ""}, "unsigned"),
        ({"key": public_key(MALLORY)}, "its key is"),
        ({"proof": "vouched"}, "its proof is"),
        ({"outcome": "accepted"}, "waiting_for_quorum"),
        ({"right": "bob"}, "its right is"),
    ],
)
def test_a_decision_has_the_outcome_that_the_policy_gives_it(change: dict[str, Any], words: str) -> None:
    """A recorded outcome neither makes a forged key valid nor turns one of two votes into a quorum."""
    events = signed_off().log
    first_fault = fault(changed(events, DecisionReceived, lambda event: event.model_copy(update=change)))
    assert first_fault is not None
    assert first_fault.position == next(event.position for event in events if isinstance(event, DecisionReceived))
    assert words in first_fault.reason


@pytest.mark.parametrize("change", [{"quorum": 1}, {"by": ("mallory",)}, {"requester_may_decide": False}])
def test_a_request_has_the_terms_of_its_rule(change: dict[str, Any]) -> None:
    """A request with fewer or other people than the policy names does not belong to this policy."""

    def relaxed(event: ApprovalRequested) -> ApprovalRequested:
        terms = event.request.terms.model_copy(update=change)
        return ApprovalRequested.model_validate(
            {**event.model_dump(), "request": event.request.model_copy(update={"terms": terms}).model_dump()}
        )

    first_fault = fault(changed(signed_off().log, ApprovalRequested, relaxed))
    assert first_fault is not None
    assert first_fault.reason.startswith("approval_requested: its terms")


def test_a_call_with_a_result_is_not_one_that_no_node_took() -> None:
    """A forged log cannot say so to hide that the ledger lacks the effect."""
    log = signed_off().log
    begun = next(position for position, event in enumerate(log) if isinstance(event, ToolCallStarted))
    started = log[begun]
    assert isinstance(started, ToolCallStarted)
    finished = ToolCallFinished(number=started.number, status="ok", content="paid", not_called=True, at=started.at)
    assert "no node took it" in str(fault([*log[: begun + 1], finished]))


def test_an_agent_is_loaded_once_in_a_run() -> None:
    """A second agent with a permissive policy is a fault, and so are results of a replaced run."""
    events = signed_off().log
    place = next(index for index, event in enumerate(events) if isinstance(event, LLMReplied))
    lax = agent_spec(policy=Policy())
    loaded = AgentLoaded(spec=lax, spec_hash=lax.hash, policy_hash=lax.policy.hash, workspace="/w", at=events[place].at)
    first_fault = fault([*events[:place], loaded, *events[place:]])
    assert first_fault == Fault(place, "agent_loaded: nothing that came before leads to it")
    lying = changed(events, AgentLoaded, lambda event: event.model_copy(update={"spec": lax}))
    assert "its digests are not those" in str(fault(lying))
    amid = next(index for index, event in enumerate(events) if isinstance(event, ToolCallStarted)) + 1
    first_fault = fault([*events[:amid], events[0], events[1], *events[amid:]])
    assert first_fault is not None
    assert first_fault.position == amid + 2, "open effects are settled only after the agent is loaded again"


def test_a_log_belongs_to_its_thread() -> None:
    """A valid log of another thread is a fault."""
    audit = Audit("u")
    audit.take(signed_off().log)
    assert audit.fault == Fault(0, "run_started: it is the log of thread 't', and this is 'u'")
    tail = Audit("u", state=signed_off().state)
    tail.take(signed_off().log[-1:])
    assert "it belongs to thread 't'" in str(tail.fault)


def test_events_that_the_fold_rejects_are_faults() -> None:
    """Results of unknown calls and unsigned statements are reported as faults, without an exception."""
    log, at = signed_off().log, datetime(2026, 1, 2, 4, tzinfo=UTC)
    for odd in (
        ToolCallFinished(number=7, status="ok", content="", at=at),
        UserMessageReceived(content="task", task=True, at=at),
        RunFinished(outcome="completed", at=at),
        AuthorityDelegated(by="alice", to="bob", until=at + timedelta(hours=1), at=at),
    ):
        first_fault = fault([*log[:6], odd, *log[6:]])
        assert first_fault is not None
        assert first_fault.position == 6
    with pytest.raises(RecordUnreadable):
        snapshot_of([log[0], RuleRemembered(rule="1", tool="pay", call_digest="c", by=("alice",))])
    assert "begins with run_started" in str(fault(log[1:]))


@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
def test_a_run_ends_only_where_the_rules_say(outcome: RunOutcome) -> None:
    """An end inserted during an LLM call, or right after a message, does not follow."""
    thread = loaded_thread()
    first_fault = fault([*thread.log, RunFinished(outcome=outcome, at=thread.at)])
    cancelled = outcome == "cancelled"  # which can arrive from outside at any time
    assert first_fault == (None if cancelled else Fault(3, "run_finished: nothing that came before leads to it"))


def test_an_answer_that_the_run_rejected_is_ignored() -> None:
    """An unsealed result of `archive` is no evidence of the record's content."""
    file = next(file for file in RECORDED if file.stem == "plain")
    history = WorkflowHistory.from_json("", file.read_text()).events
    place = WorkflowSerializationContext(namespace="default", workflow_id="plain")
    by = sealing(FleetKeys({"ours": bytes(32)}))().with_context(place)
    assert RecordedRun("plain", "", history).archived > 0
    for event in history:
        for payload in event.activity_task_completed_event_attributes.result.payloads:
            payload.metadata.pop(SEAL, None)
    assert RecordedRun("plain", "", history, by).archived == 0


# Trusted keys from outside the log.


def test_keys_replaced_in_the_log_are_detected_by_trusted_keys() -> None:
    """A thread that Mallory forged with her own keys under others' names is valid by itself, but not against trusted
    keys.
    """
    mine = tuple(person.model_copy(update={"keys": (public_key(MALLORY),)}) for person in PEOPLE)
    thread = loaded_thread(agent_spec(policy=POLICY.model_copy(update={"approvers": mine})))
    thread.reply(calls("pay"))
    for name in ("alice", "bob"):
        (request,) = thread.state.authority.requests
        payload = {"decision": "approve", "request": "1", "by": name, "digest": request.digest}
        thread.update("decide", signed(payload, Decision, thread="t", private=MALLORY))
    assert thread.running_calls == [1]
    assert fault(thread.log) is None
    first_fault = fault(thread.log, trusted=Policy(approvers=PEOPLE))
    assert first_fault is not None
    assert f"signed with {public_key(MALLORY)}, which is no key of alice" in first_fault.reason


def test_unsigned_decisions_are_detected_by_a_policy_that_requires_signatures() -> None:
    """A recorded policy without signatures fails against a trusted one with `signatures: required`."""
    thread = loaded_thread(agent_spec(policy=Policy(rules=(ask("pay"),))))
    thread.reply(calls("pay"))
    assert thread.decide("1") == "accepted"
    assert fault(thread.log, trusted=Policy(approvers=PEOPLE)) is None
    first_fault = fault(thread.log, trusted=Policy(approvers=PEOPLE, signatures="required"))
    assert first_fault is not None
    assert "alice did not sign it" in first_fault.reason


def test_gateways_are_trusted_by_their_keys() -> None:
    """A gateway's key must be a trusted one; delegations and messages are checked, too."""
    policy = POLICY.model_copy(update={"rules": (ask("pay", terms=Terms(requester_may_decide=False)),)})
    thread = loaded_thread(agent_spec(policy=policy))
    until = (thread.at + timedelta(hours=1)).isoformat()
    statement = Message(message="more", by="carol", id="1", until=datetime.fromisoformat(until))
    message = statement.model_dump(mode="json") | {"signature": sign(HOOKS, statement.signed_bytes("t"))}
    assert thread.update("say", message)["outcome"] == "queued"
    delegation = {"by": "alice", "to": "bob", "until": until}
    assert (
        thread.update("delegate_authority", signed(delegation, AuthorityDelegation, thread="t", private=ALICE))[
            "outcome"
        ]
        == "accepted"
    )
    assert fault(thread.log, trusted=policy) is None
    assert "no key of any gateway" in str(fault(thread.log, trusted=Policy(approvers=PEOPLE)))
    assert "no key of alice" in str(fault(thread.log, trusted=Policy(gateways=GATEWAYS)))
