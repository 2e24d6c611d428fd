"""A gap in a log: events that a restored backup lacks (`events_lost`)."""

from datetime import timedelta

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.core.authority.interventions import Message, Refinement
from holdfast.core.authority.policy import Approver, Policy, allow
from holdfast.core.authority.statements import AuthorityDelegation, Signed
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.inputs.losses import LostLog, lost_after, says
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.views.status import state_view
from holdfast.errors import EventOutOfPlace
from tests.support.people import PEOPLE, signed
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread
from tests.support.runs import says as answers
from tests.unit.core.authority.test_every_policy import FINANCE, child, votes

LOST = LostLog(events=60, head="f" * 64)


def restored() -> Thread:
    """Return a thread that continues after a gap; it had remembered a rule."""
    thread = loaded_thread(features=FEATURES)
    thread.reply(calls("pay"))
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    thread.reply(answers("done"))
    thread.archive()
    assert thread.state.authority.rules
    lose(thread)
    return thread


def lose(thread: Thread) -> None:
    """Continue a closed thread after a gap."""
    thread.reopen()
    gap = lost_after(thread.events[-1], LOST, at=NOW)
    thread.record.append(event_line(gap))
    thread.events.append(gap)
    thread.load_thread()


def fault(events: list[AgentEvent]) -> str:
    """Return why the audit rejects a log; empty if it does not."""
    audit = Audit("t")
    audit.take(events)
    return audit.fault.reason if audit.fault else ""


def test_what_people_have_allowed_ends_with_a_gap() -> None:
    """A lost event may have revoked it: the thread continues, and asks again."""
    thread = restored()
    thread.load(FEATURES)
    state = thread.state
    assert (state.authority.rules, state.authority.delegations) == ((), ())
    position = len(thread.events) - 1
    assert state_view(state)["lost"] == {"position": position, "events": 60 - position, "head": LOST.head}
    thread.reply(calls("pay"))
    assert [request.tool for request in thread.state.authority.requests] == ["pay"]


@pytest.mark.parametrize(("people", "outcome"), [((), "bad_signature"), (PEOPLE, "waiting_for_quorum")])
def test_a_key_counts_after_a_gap_only_if_the_agents_own_policy_lists_it(
    people: tuple[Approver, ...], outcome: str
) -> None:
    """A lost event may have revoked a key of a policy from above, which is as old as the lost events. The agent's own
    policy is loaded after the gap.
    """
    own = Policy(rules=(allow(),), approvers=people)
    thread = child(own, FINANCE, features=FEATURES)
    assert votes(thread, "alice", "bob") == ["waiting_for_quorum", "accepted"]
    thread.finish(1)
    thread.reply(answers("done"))
    thread.archive()
    lose(thread)
    thread.load(FEATURES)
    thread.reply(calls("pay"))
    assert votes(thread, "alice") == [outcome]
    assert not fault(thread.log)


def lost_thread() -> Thread:
    """Return a thread that continues after a gap, under a policy with keys."""
    thread = loaded_thread(agent_spec(policy=Policy(rules=(allow(),), approvers=PEOPLE)), features=FEATURES)
    thread.reply(answers("done"))
    thread.archive()
    lose(thread)
    thread.load(FEATURES)
    return thread


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("say", Message, {"message": "And now?"}),
        ("refine", Refinement, {"kind": "narrow", "text": "Only the notes."}),
    ],
)
def test_a_signed_statement_from_before_a_gap_does_not_count_again(
    name: str, kind: type[Signed], said: dict[str, str]
) -> None:
    """The log no longer shows that it was used. Programs sign for a day, so one that is valid for less than a day after
    the gap was made before it.
    """
    thread, by = lost_thread(), {"by": "alice", "id": "m-1"}
    before, after = (NOW + timedelta(hours=hours) for hours in (23, 25))
    old = thread.update(name, signed(kind, "t", **said, **by, until=before.isoformat()))
    assert old["outcome"] == "too_late"
    assert "were lost" in old["explanation"]
    assert thread.update(name, signed(kind, "t", **said, **by, until=after.isoformat()))["outcome"] == "queued"
    assert not fault(thread.log)


def test_a_signed_delegation_does_not_count_after_a_gap() -> None:
    """It may be one that was revoked, and nothing shows when it was made; an unsigned one is a claim, as ever."""
    thread, until = lost_thread(), (NOW + timedelta(days=30)).isoformat()
    said = {"by": "alice", "to": "bob", "until": until}
    assert thread.update("delegate_authority", signed(AuthorityDelegation, "t", **said))["outcome"] == "too_late"
    assert thread.update("delegate_authority", said)["outcome"] == "accepted"


def test_the_numbers_of_lost_calls_are_not_used_again() -> None:
    """A signed lift names a constraint by its call, and would remove another constraint of that number."""
    thread = lost_thread()
    thread.reply(calls("pay"))
    (call,) = thread.state.calls.current
    assert call.number > LOST.events - len(thread.events)


def test_the_llm_reads_that_events_are_lost() -> None:
    """Its next prompt says how many, and that effects were not undone."""
    thread = restored()
    lost = 60 - (len(thread.record) - 1)
    assert [m for m in thread.messages() if f"{lost} events of this conversation were lost" in str(m["content"])]


def test_the_audit_accepts_a_gap_that_a_start_follows() -> None:
    """The rest of the log is audited as ever."""
    thread = restored()
    thread.load(FEATURES)
    thread.reply(answers("done again"))
    thread.archive()
    thread.check_consistent()
    assert fault(thread.log) == ""


def test_the_audit_rejects_a_gap_inside_a_run() -> None:
    """Nothing but a start can follow: an outcome or a decision after a gap has no cause."""
    thread = loaded_thread(features=FEATURES)
    thread.reply(calls("pay"))
    events = thread.log
    gap = lost_after(events[-1], LOST, at=NOW)
    thread.decide("1")
    later = [event.model_copy(update={"position": event.position + 1}) for event in thread.log[len(events) :]]
    assert "no run has started" in fault([*events, gap, *later])


def test_a_gap_without_a_loss_is_out_of_place() -> None:
    """A thread that has all its events has lost none."""
    events = loaded_thread(features=FEATURES).log
    gap = lost_after(events[-1], LostLog(events=len(events), head=events[-1].digest), at=NOW)
    assert "nothing was lost" in fault([*events, gap])
    with pytest.raises(EventOutOfPlace):
        snapshot_of([*events, gap])


def test_a_gap_is_recorded_once() -> None:
    """A record says of one lost log only once that it is lost."""
    gap = lost_after(loaded_thread(features=FEATURES).log[-1], LOST, at=NOW)
    assert says(gap, LOST)
    assert not says(gap, LostLog(events=61, head=LOST.head))
    assert gap.features == FEATURES
