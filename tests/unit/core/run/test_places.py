"""The nodes of a run: its trust scope, the wait for a node, and calls that a tool cannot make on one."""

from datetime import timedelta
from typing import TypeVar

import pytest

from holdfast import Cannot
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.budget.budget import Budget
from holdfast.core.log.events import AgentEvent, NodeAccepted, ToolCallFinished, ToolCallRerouted, ToolCallStarted
from holdfast.core.nodes import (
    MAX_LAYERS,
    Node,
    NodeRejection,
    Placement,
    RejectionKind,
    TrustScope,
    check_selector,
    placement_digest,
    read_labels,
)
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import AgentRequest
from holdfast.core.run.contracts.subagents import StartSubagentsRequest, SubagentStart, child_input
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.decide.placements import LONGEST_PAUSE, MAX_REROUTES
from holdfast.core.run.state.features import PLACES
from holdfast.core.run.views.status import doing
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.audit.test_audit import fault

EventT = TypeVar("EventT")

EU = (("region=eu",),)
BERLIN = Node(name="berlin-1", labels={"region": "eu"}, key="k" * 40)
OUTSIDE = NodeRejection(node="paris-1", kind="scope", reason="it is not region=eu")


def scoped(spec: AgentSpec | None = None) -> Thread:
    """Return a thread whose runs only nodes in the EU may execute, with its agent loaded."""
    thread = Thread(spec, scope=EU, features=PLACES)
    thread.load(PLACES)
    return thread


def refusal_of(thread: Thread) -> str:
    """Return why the run failed."""
    end = thread.run.end
    assert end is not None
    assert end.failure is not None
    return end.failure.message


def rejected(kind: RejectionKind = "scope", node: str = "paris-1", reason: str = "no") -> Placement:
    """Return the answer's placement if no node took the work."""
    return Placement(rejected=(NodeRejection(node=node, kind=kind, reason=reason),))


def llm_request(thread: Thread) -> LLMRequest:
    """Return the request of the LLM call under way."""
    (call,) = thread.waiting(LLMRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, LLMRequest)
    return call.request


def tool_request(thread: Thread) -> ToolRequest:
    """Return the request of the tool call under way."""
    (call,) = thread.waiting(ToolRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, ToolRequest)
    return call.request


def scope_of(request: AgentRequest | LLMRequest | ToolRequest) -> TrustScope:
    """Return the scope in a request."""
    assert request.nodes is not None
    return request.nodes.scope


def unfit_in(thread: Thread) -> list[str]:
    """Return the nodes that the tool call under way leaves out."""
    terms = tool_request(thread).nodes
    assert terms is not None
    return [each.nodes for each in terms.unfit]


def end_call(thread: Thread, number: int, outcome: ToolOutcome) -> None:
    """End a tool call."""
    thread.end(next(c for c in thread.waiting(ToolRequest) if getattr(c, "number", 0) == number), outcome)


def end_llm(thread: Thread, reply: LLMReply) -> None:
    """End the LLM call."""
    (call,) = thread.waiting(LLMRequest)
    thread.end(call, reply)


def of_type(thread: Thread, kind: type[EventT]) -> list[EventT]:
    """Return the events of a type."""
    return [event for event in thread.log if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("berlin-1", True),
        ("region=eu", True),
        ("region=eu,berlin-1", True),
        (f"key:{'k' * 40}", True),
        ("region=us", False),
        ("region=eu,gpu=yes", False),
        ("berlin", False),
        (f"key:{'l' * 40}", False),
        ("region=eu or paris", False),
        ("", False),
        ("key:", False),
    ],
)
def test_a_selector_fits_a_node_with_all_of_its_terms(selector: str, fits: bool) -> None:
    """By name, label or key; one that cannot be read fits no node, not even one without a name."""
    assert BERLIN.fits(selector) is fits
    assert Node().fits(selector) is False


@pytest.mark.parametrize("text", ["", ",", "a,,b", "region=", "=eu", "key:short", "a b", "é", "x" * 1_001, "a\nb", "*"])
def test_what_selects_no_node_is_rejected(text: str) -> None:
    """A start with such a selector would wait for ever."""
    with pytest.raises(ValueError, match="selects no node"):
        check_selector(text)


@pytest.mark.parametrize("text", ["eu", "a=b,a=c", "a=", ",".join(f"l{n}=x" for n in range(21))])
def test_labels_are_distinct_pairs(text: str) -> None:
    """A node cannot have two regions."""
    with pytest.raises(ValueError, match="label"):
        read_labels(text)


def test_every_request_of_a_scoped_run_carries_its_scope() -> None:
    """From the loading of the agent on, through LLM and tool calls, narrowed by the agent and by later starts."""
    thread = Thread(agent_spec(nodes=("gpu=yes",)), scope=EU, features=PLACES)
    (loading,) = thread.waiting(AgentRequest)
    assert isinstance(loading, Call)
    assert isinstance(loading.request, AgentRequest)
    assert scope_of(loading.request) == EU
    thread.load(PLACES)
    assert scope_of(llm_request(thread)) == (*EU, ("gpu=yes",))
    thread.reply(calls("look"))
    assert scope_of(tool_request(thread)) == (*EU, ("gpu=yes",))
    thread.finish(1)
    thread.reply(says("done"))
    thread.archive()
    thread.reopen(scope=(("berlin-1",),), features=PLACES)
    thread.load_thread()
    assert thread.state.places.scope == (*EU, ("berlin-1",))


def test_an_answer_that_names_the_recorded_node_means_the_one_of_its_request() -> None:
    """The log names the node of each of two calls at once, although another node was recorded between their ends."""
    thread, paris = scoped(), Node(name="paris-1", labels={"region": "eu"})
    first = Placement(node=BERLIN, policy="p", rule="allow *")
    end_llm(thread, calls("look", "look").model_copy(update={"placement": first}))
    for call in thread.waiting(ToolRequest):
        assert isinstance(call, Call)
        assert isinstance(call.request, ToolRequest)
        terms = call.request.nodes
        assert terms is not None
        assert terms.recorded == placement_digest(BERLIN, "p")
        assert "placed" not in terms.model_dump(mode="json")
    end_call(thread, 1, ToolOutcome(status="ok", content="seen", placement=Placement(node=paris)))
    end_call(thread, 2, ToolOutcome(status="ok", content="seen", placement=Placement(same=True, rule="allow look")))
    accepted = [(each.number, each.node, each.policy, each.rule) for each in of_type(thread, NodeAccepted)]
    assert accepted == [(0, BERLIN, "p", "allow *"), (1, paris, "", ""), (2, BERLIN, "p", "allow look")]
    terms = llm_request(thread).nodes
    assert terms is not None
    assert terms.recorded == placement_digest(BERLIN, "p")
    end_llm(thread, says("done").model_copy(update={"placement": Placement(same=True)}))
    assert len(of_type(thread, NodeAccepted)) == 3
    assert fault(thread.log) is None
    thread.check_consistent()


def test_a_run_of_an_older_level_has_no_terms() -> None:
    """Its requests are as they were."""
    thread = loaded_thread(features=1)
    assert llm_request(thread).nodes is None


def test_a_scope_needs_its_level_and_a_bounded_number_of_layers() -> None:
    """A start that an older worker would take without its scope is rejected, and so is one layer too many."""
    thread = Thread(scope=EU)
    assert "feature level" in refusal_of(thread)
    thread = Thread(scope=tuple((f"n{n}",) for n in range(MAX_LAYERS + 1)), features=PLACES)
    assert "layers" in refusal_of(thread)


def test_a_run_waits_while_no_node_takes_its_work_and_offers_it_again() -> None:
    """The wait is an event with the nodes that were asked; each further one is longer; nothing else is under way."""
    thread = scoped()
    for seconds in (15, 30, 60, 120, 120):
        end_llm(thread, LLMReply(placement=Placement(rejected=(OUTSIDE,))))
        assert thread.state.places.until == thread.at + timedelta(seconds=seconds)
        assert not thread.waiting(LLMRequest)
        assert "for a node that fits region=eu (paris-1: it is not region=eu)" in doing(thread.state)
        thread.wake()
    assert thread.state.places.tries == 5
    end_llm(thread, says("done").model_copy(update={"placement": Placement(node=BERLIN, rejected=(OUTSIDE,))}))
    assert thread.state.outcome == "completed"
    (accepted,) = of_type(thread, NodeAccepted)
    assert (accepted.node, accepted.rejected) == (BERLIN, (OUTSIDE,))
    assert LONGEST_PAUSE == 120
    assert fault(thread.log) is None
    thread.check_consistent()


def test_a_call_that_no_node_took_keeps_its_approval_and_its_key() -> None:
    """It starts again under the same request, and nobody is asked twice."""
    thread = scoped()
    thread.reply(calls("pay"))
    thread.decide("1")
    end_call(thread, 1, ToolOutcome(status="failed", content="no node", placement=rejected()))
    assert thread.state.calls.get(1).phase == "allowed"
    thread.wake()
    end_call(thread, 1, ToolOutcome(status="ok", content="paid"))
    starts = of_type(thread, ToolCallStarted)
    assert [(event.request, event.key) for event in starts] == [("1", starts[0].key)] * 2
    assert [event.status for event in of_type(thread, ToolCallFinished)] == ["ok"]
    assert fault(thread.log) is None
    thread.check_consistent()


def test_a_waiting_run_can_be_paused_moved_and_cancelled() -> None:
    """Its call is not under way, so nothing keeps a person waiting; while it is paused, no call starts."""
    for act in ("pause", "move", "cancel"):
        thread = scoped()
        thread.reply(calls("look"))
        end_call(thread, 1, ToolOutcome(status="failed", content="no node", placement=rejected()))
        if act == "cancel":
            thread.cancel()
            assert thread.state.outcome == "cancelled"
        elif act == "move":
            thread.update("move", {"by": "bob"})
            assert thread.state.outcome == "moved"
        else:
            thread.update("pause", {"by": "bob"})
            thread.advance(hours=1)
            assert not thread.waiting(ToolRequest)
            thread.update("resume", {"by": "bob"})
            assert thread.running_calls == [1]


def test_a_node_that_could_not_is_left_out_until_the_constraint_ends_or_is_lifted() -> None:
    """The call is made again at once, in a new epoch; later calls of the tool leave out the nodes that cannot."""
    thread = scoped()
    thread.reply(calls("look"))
    end_call(thread, 1, ToolOutcome(status="cannot", content="no GPU", unfit="berlin-1", until=NOW + timedelta(days=1)))
    assert unfit_in(thread) == ["berlin-1"]
    assert (tool_request(thread).epoch, thread.state.constraints.kept[0].nodes) == (1, "berlin-1")
    end_call(thread, 1, ToolOutcome(status="ok", content="seen"))
    thread.reply(calls("look"))
    assert unfit_in(thread) == ["berlin-1"]
    assert fault(thread.log) is None
    assert thread.update("lift", {"constraint": 1, "by": "bob"})["outcome"] == "accepted"
    assert not thread.state.constraints.kept
    thread.check_consistent()


def test_a_tool_cannot_send_its_call_round_without_end() -> None:
    """A constraint that ends at once, or one more each time, ends the call as `cannot`."""
    thread = scoped()
    thread.reply(calls("look"))
    end_call(thread, 1, ToolOutcome(status="cannot", content="no", unfit="berlin-1", until=NOW))
    assert [event.status for event in thread.log if isinstance(event, ToolCallFinished)] == ["cannot"]
    thread.reply(calls("look"))
    while not thread.waiting(LLMRequest):
        number = len(of_type(thread, ToolCallRerouted))
        end_call(thread, 2, ToolOutcome(status="cannot", content="no", unfit=f"node-{number}"))
    assert len(of_type(thread, ToolCallRerouted)) == MAX_REROUTES
    assert fault(thread.log) is None


@pytest.mark.parametrize("unattended", [False, True])
def test_people_are_asked_what_a_node_asks_about_and_an_unattended_run_fails(unattended: bool) -> None:
    """The request has the node's reason; with the approval, the node takes the call; nobody approves for nobody."""
    thread = Thread(scope=EU, features=PLACES, when_blocked="fail" if unattended else None)
    thread.load(PLACES)
    thread.reply(calls("look"))
    asks = rejected("approval", "berlin-1", "approval required by its policy (ask look)")
    end_call(thread, 1, ToolOutcome(status="failed", content="no", placement=asks))
    if unattended:
        assert (thread.state.outcome, thread.state.failure) == ("failed", "ApprovalRequired")
    else:
        assert "its policy (ask look)" in thread.state.authority.requests[0].why
        thread.decide("1")
        terms = tool_request(thread).nodes
        assert terms is not None
        assert terms.approved
    assert fault(thread.log) is None


def test_the_llm_reads_that_no_node_could() -> None:
    """If no other node takes the call, its result is `cannot`, with each node's reason; no call of it is left over."""
    thread = scoped()
    thread.reply(calls("look"))
    end_call(thread, 1, ToolOutcome(status="cannot", content="no GPU", unfit="berlin-1"))
    placement = rejected("constraint", "berlin-1", "constraint 1: no GPU")
    end_call(thread, 1, ToolOutcome(status="cannot", content="Not called: berlin-1: no GPU", placement=placement))
    assert [(event.status, event.scope) for event in of_type(thread, ToolCallFinished)] == [("cannot", None)]
    assert thread.waiting(LLMRequest)
    assert fault(thread.log) is None


def test_an_imported_run_keeps_its_scope_and_tries_again_what_only_the_old_nodes_could_not() -> None:
    """Constraints on nodes end with the move; those on calls stay; the agent's own nodes become part of the scope."""
    thread = scoped(agent_spec(nodes=("gpu=yes",)))
    thread.reply(calls("look"))
    end_call(thread, 1, ToolOutcome(status="cannot", content="no GPU", unfit="berlin-1"))
    moved = thread.moved()
    there = moved.imported(agent_spec())
    assert there.state.scope == (*EU, ("gpu=yes",))
    assert not there.state.constraints.kept
    assert there.state.places.node is None


def test_sub_agents_and_forks_keep_the_scope() -> None:
    """A child's input has the whole scope of its parent, with the agent's; a fork's state has that of its original."""
    thread = scoped()
    request = StartSubagentsRequest(
        children=(SubagentStart(number=1, key="k", agent="a", task="t"),),
        path=("t",),
        depth=1,
        deepest=2,
        workspace="/w",
        trust="agent",
        scope=thread.state.scope,
        features=PLACES,
    )
    assert child_input(request, request.children[0]).scope == EU
    assert thread.fork().state.scope == EU


def test_a_budget_reserves_nothing_while_the_run_waits_for_a_node() -> None:
    """A call that no node took costs nothing."""
    thread = loaded_thread(agent_spec(budget=Budget(steps=5)), features=PLACES)
    end_llm(thread, LLMReply(placement=rejected()))
    assert not thread.state.account.reserved
    thread.wake()
    thread.reply(says("done"))
    assert thread.state.outcome == "completed"
    assert fault(thread.log) is None


def test_an_audit_rejects_a_node_out_of_scope() -> None:
    """A log in which a node of another region ran the work was altered, or its worker broke the rule."""
    thread = scoped()
    end_llm(thread, says("done").model_copy(update={"placement": Placement(node=BERLIN)}))
    log = thread.log
    assert fault(log) is None
    outside = [replace_node(event) for event in log]
    assert "trust scope" in str(fault(outside))


def replace_node(event: AgentEvent) -> AgentEvent:
    """Return the event with a node of another region."""
    return event.model_copy(update={"node": Node(name="paris-1")}) if isinstance(event, NodeAccepted) else event


@pytest.mark.parametrize("scope", ["call", "tool", "here", "everywhere", "node", "label:region"])
def test_cannot_has_scopes_of_calls_and_of_nodes(scope: str) -> None:
    """A scope about nodes names the node, or its value of the label; a node without the label speaks for itself."""
    about = Cannot("no", scope=scope)
    assert about.recorded_scope == ("everywhere" if scope in ("tool", "everywhere") else "here")
    wanted = {"node": "berlin-1", "label:region": "region=eu"}.get(scope, "")
    assert about.unfit(BERLIN) == wanted
    assert about.unfit(Node(name="x")) == ("x" if wanted else "")
    for wrong in ("nodes", "label:", "label:a b", "", "region"):
        with pytest.raises(ValueError, match=r"Cannot|is not 1 to 64"):
            Cannot("no", scope=wrong)
