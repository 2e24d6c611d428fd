"""An open run adopts another policy, which judges its waiting calls again and loosens nothing that people decided."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.activities.time_zones import zone_offsets
from holdfast.core.authority.hours import Hours
from holdfast.core.authority.interventions import PolicyAdoption
from holdfast.core.authority.policy import Approver, Policy, Terms, allow, ask, deny, later
from holdfast.core.log.events import (
    PolicyChanged,
    PolicyChangeFailed,
    ToolCallPostponed,
    ToolCallStarted,
)
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.loading import AgentRequest, LoadedAgent
from holdfast.core.run.inputs.adopt_policy import ASKED_BEFORE
from holdfast.core.run.inputs.interventions import on_signal
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.views.status import run_view
from holdfast.core.tools.effects import Effect
from holdfast.workflows.driver import _dormancy_of
from tests.support.people import PEOPLE, signed
from tests.support.runs import Thread, agent_spec, tool_spec
from tests.unit.audit.test_audit import fault
from tests.unit.core.run.test_dormancy import TOOLS, calling, continue_as_new, result
from tests.unit.core.run.test_repeats import last

BERLIN = Hours(begin="08:00", end="18:00", days="mon-fri", zone="Europe/Berlin")
DAY = Hours(begin="06:00", end="20:00", days="mon-sun", zone="Europe/Berlin")
NIGHT = later("deploy_web", until=BERLIN)
# The clock of these tests begins on Friday 2026-01-02 at 03:04:05 UTC.
UNTIL = "2026-01-02T04:00:00Z"
OPEN = Policy(rules=(allow(),))


def running(*rules: Any, features: int = FEATURES, unattended: bool = False, **policy: Any) -> Thread:
    """Return a thread with these rules, whose first LLM call is in progress."""
    tools = (*TOOLS, tool_spec("look"), tool_spec("deploy_web", Effect.UNSAFE))
    more: dict[str, Any] = {"when_blocked": "fail"} if unattended else {}
    thread = Thread(agent_spec(tools=tools, policy=Policy(rules=rules, **policy), **more))
    (call,) = thread.waiting(AgentRequest)
    zones = zone_offsets(thread.spec.policy.zones)
    thread.end(call, LoadedAgent(spec=thread.spec, workspace="/w", features=features, zones=zones))
    return thread


def adopt(thread: Thread, policy: Policy, by: str = "alice", **fields: Any) -> str:
    """Have the run adopt the policy; return the outcome."""
    return thread.update("adopt_policy", {"by": by, "policy": policy.hash, **fields})["outcome"]


def load(thread: Thread, policy: Policy) -> None:
    """Let a worker answer with the policy."""
    (call,) = thread.waiting(AgentRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, AgentRequest)
    spec = thread.spec.governed_by(policy)
    thread.end(call, LoadedAgent(spec=spec, workspace="", features=FEATURES, zones=zone_offsets(policy.zones)))


def adopted(thread: Thread, policy: Policy) -> None:
    """Have the run adopt the policy, and let a worker have it."""
    assert adopt(thread, policy) == "accepted"
    load(thread, policy)
    assert thread.state.spec is not None
    assert thread.state.spec.policy == policy
    assert thread.state.spec_hash == thread.state.spec.hash == last(thread, PolicyChanged).spec_hash


def checked(thread: Thread) -> None:
    """Check that each event follows from those before, and that a replay leads to the same state."""
    assert fault(thread.log) is None
    thread.check_consistent()


def test_a_postponed_call_starts_if_the_new_hours_have_begun() -> None:
    """The run sleeps until Monday's hours; a policy without them wakes it."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    assert thread.state.status == "dormant"
    adopted(thread, OPEN)
    assert thread.running_calls == [1]
    assert last(thread, ToolCallStarted).number == 1
    checked(thread)


def test_a_postponed_call_waits_for_the_new_hours() -> None:
    """Other hours postpone it again, with their own rule and the offsets of their zone."""
    thread = running(later("deploy_web", until=Hours(begin="08:00", end="09:00")), allow())
    thread.reply(calling(deploy_web={}))
    adopted(thread, Policy(rules=(later("deploy_web", until=DAY), allow())))
    assert thread.running_calls == []
    assert last(thread, ToolCallPostponed).until == datetime(2026, 1, 2, 5, tzinfo=UTC)
    continue_as_new(thread)
    thread.continue_suggested = False
    thread.wake()
    assert thread.running_calls == [1]
    thread.check_consistent()


def test_a_postponed_call_that_is_denied_now_never_runs() -> None:
    """The LLM reads the denial at once."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    adopted(thread, Policy(rules=(deny("deploy_web", reason="frozen"), allow())))
    assert result(thread).status == "denied"
    assert "frozen" in result(thread).text
    checked(thread)


def test_a_call_that_requires_approval_now_asks() -> None:
    """Nobody had to approve it before."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    adopted(thread, Policy(rules=(ask("deploy_web"),)))
    assert thread.state.status == "waiting_approval"
    thread.signal("approve", {"request": "1", "by": "alice"})
    assert thread.running_calls == [1]
    checked(thread)


@pytest.mark.parametrize("new", [OPEN, Policy(rules=(ask("deploy_web", reason="still"),))])
def test_an_approval_ends_and_people_are_asked_again_even_if_the_policy_allows(new: Policy) -> None:
    """What was approved under the old policy does not run under the new one without them."""
    thread = running(NIGHT, ask("deploy_web"))
    thread.reply(calling(deploy_web={}))
    thread.signal("approve", {"request": "1", "by": "alice", "remember": True})
    assert thread.state.status == "dormant"
    assert thread.state.authority.rules
    adopted(thread, new)
    assert thread.running_calls == []
    (request,) = thread.state.authority.requests
    assert (request.id, request.spec_hash) == ("2", thread.state.spec_hash)
    assert (request.rule == ASKED_BEFORE) == (new is OPEN)
    assert not thread.state.authority.rules
    thread.signal("approve", {"request": "1", "by": "alice"})
    assert thread.running_calls == []
    thread.signal("approve", {"request": "2", "by": "alice"})
    assert thread.running_calls == [1]
    checked(thread)


def test_an_open_request_stays_a_question_to_people() -> None:
    """A policy that would let the call run does not answer for those who were asked; a denial closes the request."""
    thread = running(ask("deploy_web", terms=Terms(expires_after=60, on_expiry="approve")))
    thread.reply(calling(deploy_web={}))
    adopted(thread, OPEN)
    (request,) = thread.state.authority.requests
    assert (request.id, request.terms.on_expiry, request.terms.quorum) == ("2", "deny", 1)
    thread.signal("deny", {"request": "2", "by": "bob", "reason": "no"})
    assert result(thread).status == "denied"
    checked(thread)
    denied = running(ask("deploy_web"))
    denied.reply(calling(deploy_web={}))
    adopted(denied, Policy(rules=(deny("deploy_web"),)))
    assert not denied.state.authority.requests
    assert result(denied).status == "denied"
    checked(denied)


def test_a_call_that_a_person_denied_stays_denied() -> None:
    """It has its result, which no policy changes."""
    thread = running(ask("deploy_web"))
    thread.reply(calling(deploy_web={}, wait_for_event={"name": "e"}))
    thread.signal("deny", {"request": "1", "by": "alice", "reason": "never"})
    adopted(thread, OPEN)
    assert result(thread, 1).status == "denied"
    assert not [event for event in thread.log if isinstance(event, ToolCallStarted) and event.number == 1]
    checked(thread)


def test_an_agent_waits_for_the_event_policy_changed() -> None:
    """The run wakes it when it has adopted another policy; another event leaves it asleep."""
    thread = running(deny("deploy_web"), allow())
    thread.reply(calling(wait_for_event={"name": "policy_changed"}))
    assert thread.state.dormancy.events == ("policy_changed",)
    adopted(thread, OPEN)
    assert result(thread).text.startswith("The policy that judges your calls has changed after ")
    assert thread.calling_llm()
    checked(thread)


def test_only_the_run_itself_sends_policy_changed() -> None:
    """A claim of that name wakes nothing, and is not kept for a later wait; nor can such events be counted."""
    thread = running(allow())
    assert thread.update("wake", {"event": "policy_changed", "id": "1"})["outcome"] == "wrong_event"
    thread.reply(calling(wait_for_event={"name": "policy_changed"}))
    for data in ({}, {"policy": OPEN.hash}):
        thread.signal("wake", {"event": "policy_changed", "data": data, "by": "ci"})
    assert thread.state.status == "dormant"
    assert not thread.state.dormancy.buffered
    counting = running(allow())
    counting.reply(calling(wait_for_event={"name": "policy_changed", "count": 2}))
    assert result(counting).status == "failed"
    older = running(allow(), features=1)
    older.reply(calling(wait_for_event={"name": "policy_changed"}))
    older.signal("wake", {"event": "policy_changed"})
    assert result(older).status == "ok"


@pytest.mark.parametrize(("rule", "status"), [(deny("look"), "denied"), (ask("look"), "cancelled")])
def test_polls_that_the_policy_does_not_allow_end(rule: Any, status: str) -> None:
    """A wait that began under the old policy is no way around the new one."""
    thread = running(allow())
    thread.reply(calling(check_back={"tool": "look", "arguments": {}, "condition": {"contains": "x"}}))
    adopted(thread, Policy(rules=(rule, allow())))
    assert result(thread).status == status
    assert not thread.state.dormancy.waits
    checked(thread)


def test_nothing_starts_before_a_tool_that_runs_has_ended() -> None:
    """The policy changes between the work: a call under way ends under the one that let it start."""
    thread = running(allow())
    thread.reply(calling(deploy_web={}, look={}))
    assert adopt(thread, Policy(rules=(deny(),))) == "accepted"
    assert not thread.waiting(AgentRequest)
    thread.finish(1)
    thread.finish(2)
    load(thread, Policy(rules=(deny(),)))
    assert thread.calling_llm()
    checked(thread)


def test_a_run_keeps_its_policy_if_no_worker_has_the_other() -> None:
    """It says so, and what was waiting waits on; neither an answer with another policy nor a lost one is adopted."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    before = thread.state.spec
    for end in ("problem", "other", "failure"):
        assert adopt(thread, OPEN) == "accepted"
        (call,) = thread.waiting(AgentRequest)
        spec = thread.spec.governed_by(Policy(rules=(allow("look"),)))
        if end == "failure":
            thread.fail(call, "AgentNotFound")
        else:
            problem = "no node took it" if end == "problem" else ""
            thread.end(call, LoadedAgent(spec=spec, workspace="", features=FEATURES, problem=problem))
        assert isinstance(thread.log[-1], PolicyChangeFailed)
        assert (thread.state.policy_change, thread.state.spec, thread.state.status) == ("", before, "dormant")
    checked(thread)


def test_repeating_it_changes_nothing_and_a_second_one_waits() -> None:
    """A run that has the policy, or is adopting it, says so: thousands of repetitions cost no activity."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    assert adopt(thread, thread.spec.policy) == "duplicate"
    assert adopt(thread, OPEN) == "accepted"
    assert f"asks its workers for the policy {OPEN.hash[:16]}" in str(run_view(thread.state))
    assert adopt(thread, OPEN) == "duplicate"
    assert adopt(thread, Policy(rules=(deny(),))) == "busy"
    load(thread, OPEN)
    assert adopt(thread, OPEN) == "duplicate"
    for policy in ("x" * 64, "0" * 100_000, None, ["a"]):
        assert thread.update("adopt_policy", {"by": "alice", "policy": policy})["outcome"] == "malformed"


def test_only_approvers_of_every_policy_may_ask_for_it() -> None:
    """Neither the agent, nor a stranger, nor a requester if requesters may not approve."""
    thread = running(NIGHT, allow(), approvers=(Approver(name="alice"),), terms=Terms(requester_may_decide=False))
    thread.reply(calling(deploy_web={}))
    assert adopt(thread, OPEN, by="mallory") == "not_entitled"
    assert adopt(thread, OPEN, by=thread.spec.name) == "not_entitled"
    thread.signal("say", {"message": "hi", "by": "alice"})
    assert adopt(thread, OPEN, by="alice") == "not_entitled"


def test_a_policy_that_requires_signatures_requires_one_and_counts_it_once() -> None:
    """The signed statement of an approver is accepted; the same bytes after a way back are not."""
    required: dict[str, Any] = {"approvers": PEOPLE, "signatures": "required"}
    thread = running(NIGHT, allow(), **required)
    thread.reply(calling(deploy_web={}))
    new = Policy(rules=(ask("deploy_web"),), **required)
    assert adopt(thread, new) == "unsigned"
    assert adopt(thread, new, signature="AAAA", id="1", until=UNTIL) == "bad_signature"
    first = signed(PolicyAdoption, thread.state.thread, by="alice", policy=new.hash, id="1", until=UNTIL)
    assert thread.update("adopt_policy", first)["outcome"] == "accepted"
    load(thread, new)
    checked(thread)
    old = thread.spec.policy
    back = signed(PolicyAdoption, thread.state.thread, by="alice", policy=old.hash, id="2", until=UNTIL)
    assert thread.update("adopt_policy", back)["outcome"] == "accepted"
    load(thread, old)
    assert thread.update("adopt_policy", first)["outcome"] == "duplicate"
    assert thread.state.spec == thread.spec
    checked(thread)


def test_older_runs_have_no_such_signal() -> None:
    """It is recorded as unknown, as before."""
    thread = running(allow(), features=1)
    reaction = on_signal(thread.state, "adopt_policy", {"policy": OPEN.hash, "by": "alice"}, at=thread.at)
    assert reaction.outcome == "unknown_signal"
    refused = thread.run.refused("adopt_policy", {"policy": OPEN.hash, "by": "alice"}, at=thread.at)
    assert refused is not None
    assert refused["outcome"] == "unknown_update"


def test_a_forged_policy_is_found() -> None:
    """An audit finds a policy that nobody asked for, and one other than was asked for."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    adopted(thread, OPEN)
    log = thread.log
    at = next(n for n, event in enumerate(log) if isinstance(event, PolicyChanged))
    assert fault([*log[: at - 1], *log[at:]]) is not None
    other = Policy(rules=(allow("deploy_web"),))
    forged = log[at].model_copy(update={"policy": other})
    assert fault([*log[:at], forged, *log[at + 1 :]]) is not None


def test_runs_that_wait_for_hours_are_found_by_the_event() -> None:
    """The search attribute names it, so that the runs that another policy may wake are found."""
    thread = running(NIGHT, allow())
    thread.reply(calling(deploy_web={}))
    found = _dormancy_of(thread.state)
    assert found is not None
    assert found[1] == ("policy_changed",)
