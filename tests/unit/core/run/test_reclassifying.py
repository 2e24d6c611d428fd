"""Reclassifications: another agent, a lower trust level, a smaller budget; and who may ask for them."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.interventions import Reclassification
from holdfast.core.authority.policy import Approver, Policy, Terms, allow, ask, deny
from holdfast.core.budget.budget import Budget
from holdfast.core.log.events import AgentLoaded, RunBlocked, RunReclassified
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.error_types import AGENT_NOT_FOUND
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.run.inputs.interventions import UPDATES
from holdfast.core.run.state.features import FEATURES
from holdfast.core.tools.effects import Effect
from tests.support.people import PEOPLE, signed
from tests.support.runs import NOW, Thread, agent_spec, calls, says, tool_spec
from tests.unit.audit.test_audit import fault

TOOLS = (tool_spec("look"), tool_spec("pay", Effect.UNSAFE), tool_spec("mail", Effect.UNSAFE))
CAREFUL = agent_spec(name="careful", tools=TOOLS, policy=Policy(rules=(deny("mail"), ask("pay"))))
BOLD = agent_spec(name="bold", tools=TOOLS, policy=Policy(rules=(allow(),)))


SEALED: dict[str, Any] = {"sealed": True, "issued_at": NOW, "start": "s", "features": FEATURES}


def loaded(spec: AgentSpec = CAREFUL, **begin: Any) -> Thread:
    """Return a thread with this agent, whose first LLM call is in progress."""
    thread = Thread(spec, **begin)
    thread.load(FEATURES)
    return thread


def reclassify(thread: Thread, by: str = "alice", **fields: Any) -> str:
    """Reclassify the run; return the outcome."""
    return thread.update("reclassify", {"by": by, **fields})["outcome"]


def load_next(thread: Thread, spec: AgentSpec) -> None:
    """Load the agent that the run was reclassified to."""
    (call,) = thread.waiting(AgentRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, AgentRequest)
    assert call.request.agent == spec.name
    thread.spec = spec
    thread.load(FEATURES)


def test_another_agent_continues_at_the_end_of_the_step_and_both_policies_judge() -> None:
    """The open step ends under its own agent; then the next one is loaded, and its policy allows nothing more."""
    thread = loaded()
    assert reclassify(thread, agent="bold", reason="in a hurry\nreally") == "queued"
    assert not thread.waiting(AgentRequest)  # the LLM call is in progress
    thread.reply(calls("look"))
    assert not thread.waiting(AgentRequest)
    thread.finish(1)
    load_next(thread, BOLD)
    assert thread.waiting(LLMRequest)
    assert "> in a hurry\n> really" in thread.messages()[-1]["content"]
    thread.reply(calls("mail", "pay", first=1))
    assert [call.phase for call in thread.state.calls.current] == ["finished", "awaiting_approval"]
    assert thread.state.spec == BOLD
    assert not fault(thread.log)
    thread.check_consistent()


def test_a_run_that_answered_reads_of_it_and_makes_a_step_with_the_new_agent() -> None:
    """A reclassification during the last LLM call is not lost with the run's end, and neither is one while it waits."""
    thread = loaded(idle_limit=600)
    thread.reply(says("done"))
    assert thread.state.status == "waiting_message"
    assert reclassify(thread, agent="bold") == "accepted"
    load_next(thread, BOLD)
    assert thread.waiting(LLMRequest)
    during = loaded()
    reclassify(during, agent="bold")
    during.reply(says("done"))
    load_next(during, BOLD)
    assert during.waiting(LLMRequest)
    for each in (thread, during):
        assert not fault(each.log)


def test_the_account_the_steps_and_the_trust_level_never_widen() -> None:
    """The next agent has a larger budget and more steps, and gets neither; its own lower limits count."""
    limits = Limits(max_steps=5)
    careful = CAREFUL.model_copy(update={"budget": Budget(tokens=50_000, steps=4), "limits": limits})
    bold = BOLD.model_copy(update={"budget": Budget(tokens=900_000, steps=3), "limits": Limits(max_steps=90)})
    thread = loaded(careful)
    assert reclassify(thread, agent="bold", trust="web", budget={"tokens": 40_000}) == "queued"
    thread.reply(calls("look"))
    thread.finish(1)
    spent = thread.state.account.spent
    load_next(thread, bold)
    assert thread.state.account.limits == {"tokens": 40_000, "steps": 3}
    assert thread.state.account.spent == spent
    assert spent.steps == 1
    assert (thread.state.steps.limit, thread.state.context.trust) == (5, "web")
    assert not fault(thread.log)
    wider = [
        event.model_copy(update={"budget": Budget(tokens=900_000, steps=3)})
        if isinstance(event, AgentLoaded) and event.spec.name == "bold"
        else event
        for event in thread.log
    ]
    assert fault(wider)


def test_a_trust_level_only_falls_and_limits_only_shrink() -> None:
    """What would widen a run is rejected, and so is a limit that it does not have."""
    thread = loaded(CAREFUL.model_copy(update={"budget": Budget(usd=Decimal("2.50"), tokens=9_000)}))
    assert [reclassify(thread, trust=level) for level in ("tool", "person", "tool")] == [
        "queued",
        "too_much",
        "too_much",
    ]
    assert reclassify(thread, budget={"tokens": 9_001}) == "too_much"
    assert reclassify(thread, budget={"steps": 1}) == "no_budget"
    assert reclassify(thread, budget={"usd": "2"}) == "queued"
    assert thread.state.account.budget == Budget(usd=2, tokens=9_000)
    assert reclassify(thread) == "malformed"
    assert reclassify(thread, agent="x" * 201) == "malformed"
    assert not fault(thread.log)


def test_the_trust_scope_stays_and_remembered_rules_end() -> None:
    """The next agent runs only where the one before could, and nothing that people allowed for that one is its own."""
    thread = loaded(CAREFUL.model_copy(update={"nodes": ("region=eu",)}), scope=(("gpu=yes",),), **SEALED)
    thread.reply(calls("pay"))
    (request,) = thread.state.authority.requests
    assert thread.decide(request.id, digest=request.digest, remember=True) == "accepted"
    thread.signal("delegate_authority", {"by": "alice", "to": "bob", "seconds": 3_600})
    assert thread.state.authority.rules
    thread.finish(1)
    reclassify(thread, agent="bold")
    thread.reply(calls("look", first=1))
    thread.finish(2)
    load_next(thread, BOLD)
    assert thread.state.scope == (("gpu=yes",), ("region=eu",))
    assert (thread.state.authority.rules, thread.state.authority.delegations) == ((), ())
    thread.reply(calls("pay", first=2))
    assert thread.state.calls.current[0].phase == "awaiting_approval"
    assert not fault(thread.log)


def test_an_agent_that_cannot_be_loaded_blocks_the_run_and_can_be_replaced() -> None:
    """A misspelt name ends nothing: another reclassification, and `retry`, go on."""
    thread = loaded()
    reclassify(thread, agent="blod")
    assert reclassify(thread, agent="bold") == "busy"
    thread.reply(says("done"))
    (call,) = thread.waiting(AgentRequest)
    thread.fail(call, AGENT_NOT_FOUND, "no agent blod")
    (blocked,) = (event for event in thread.log if isinstance(event, RunBlocked))
    assert blocked.cause == AGENT_NOT_FOUND
    assert reclassify(thread, agent="bold") == "queued"
    thread.signal("retry", {"by": "alice"})
    load_next(thread, BOLD)
    assert thread.state.status == "running"
    assert not fault(thread.log)


APPROVED = Policy(
    rules=(ask("pay"),),
    approvers=(Approver(name="alice"), Approver(name="bob")),
    terms=Terms(requester_may_decide=False),
)


@pytest.mark.parametrize(
    ("by", "change", "outcome"),
    [
        ("alice", {"agent": "bold"}, "queued"),
        ("dana", {"agent": "bold"}, "not_entitled"),  # she gave the task
        ("mallory", {"agent": "bold"}, "not_entitled"),
        ("careful", {"agent": "bold"}, "not_entitled"),
        ("dana", {"trust": "web"}, "queued"),
        ("mallory", {"trust": "web"}, "not_entitled"),
    ],
)
def test_only_approvers_change_the_agent(by: str, change: dict[str, Any], outcome: str) -> None:
    """The person who gave the task may lower the trust level, and not choose who judges its calls."""
    thread = loaded(CAREFUL.model_copy(update={"policy": APPROVED}), by="dana")
    assert reclassify(thread, by, **change) == outcome


def test_a_requester_does_not_change_the_agent_and_its_author_becomes_one() -> None:
    """If requesters may not approve, one approver cannot both change the agent and approve its calls."""
    thread = loaded(CAREFUL.model_copy(update={"policy": APPROVED}), by="dana")
    assert reclassify(thread, "alice", trust="web") == "queued"
    assert reclassify(thread, "alice", agent="bold") == "not_entitled"
    assert reclassify(thread, "bob", agent="bold") == "queued"
    assert thread.state.authority.is_requester("bob")


def test_a_policy_that_requires_signatures_requires_one_which_counts_once() -> None:
    """An unsigned reclassification changes nothing, nor does a signature for other fields; a signed one counts once."""
    policy = Policy(signatures="required", approvers=PEOPLE, rules=(ask("pay"),))
    thread = loaded(CAREFUL.model_copy(update={"policy": policy}))
    assert reclassify(thread, agent="bold") == "unsigned"
    until = (thread.at + timedelta(hours=1)).isoformat()
    change = {"trust": "web", "by": "alice", "id": "once", "until": until}
    sent = signed(Reclassification, thread.name, **change)
    assert reclassify(thread, **{**sent, "agent": "bold"}) == "bad_signature"
    assert not any(isinstance(event, RunReclassified) for event in thread.log)
    assert [reclassify(thread, **sent) for _ in range(2)] == ["queued", "duplicate"]
    assert not fault(thread.log)


def test_older_runs_do_not_have_it() -> None:
    """A run below the level records the signal as unknown, as an older release does."""
    thread = Thread(CAREFUL)
    thread.load(UPDATES["reclassify"] - 1)
    refused = thread.run.refused("reclassify", {"agent": "bold", "by": "alice"}, at=thread.at)
    assert refused is not None
    assert refused["outcome"] == "unknown_update"
    thread.signal("reclassify", {"agent": "bold", "by": "alice"})
    assert not any(isinstance(event, RunReclassified) for event in thread.log)


def test_the_next_agent_survives_continue_as_new() -> None:
    """A run that continues as new before the agent is loaded still loads it."""
    thread = loaded()
    reclassify(thread, agent="bold")
    thread.reply(calls("look"))
    thread.continue_suggested = True
    thread.finish(1)
    while not thread.snapshots:
        thread.archive(features=FEATURES)
    thread.continue_suggested = False
    load_next(thread, BOLD)
    thread.check_consistent()
    assert not fault(thread.log)


def test_what_the_start_said_about_blocks_and_context_counts_for_the_next_agent() -> None:
    """A start that lets the run wait also lets it wait under an agent that would not, before and after the run
    continues as new; its context was given for the agent before, so fields that the next one lacks are kept.
    """
    careful = CAREFUL.model_copy(update={"context": {"type": "object", "properties": {"n": {"type": "number"}}}})
    strict = BOLD.model_copy(update={"when_blocked": "fail"})
    for continues in (False, True):
        thread = loaded(careful, **SEALED, idle_limit=600, when_blocked="wait", context={"n": 1})
        if continues:
            thread.reply(calls("look"))
            thread.continue_suggested = True
            thread.finish(1)
            while not thread.snapshots:
                thread.archive(features=FEATURES)
            thread.continue_suggested = False
        assert reclassify(thread, agent="bold") == "queued"
        thread.reply(calls("look", first=1))
        thread.finish(2 if continues else 1)
        (call,) = thread.waiting(AgentRequest)
        assert isinstance(call, Call)
        assert isinstance(call.request, AgentRequest)
        assert (call.request.when_blocked, call.request.context, call.request.given) == ("wait", {"n": 1}, False)
        load_next(thread, strict)
        assert not thread.state.unattended
        assert not fault(thread.log)
