"""Previews of calls: computed before people are asked, bound to their decision, and computed again if it lapses."""

from collections.abc import Callable

import pytest

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.authority.previews import PREVIEW_CHARS, CallPreview
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log.events import ApprovalRequested
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolRequest
from holdfast.core.run.state.features import PREVIEWS
from holdfast.core.run.views.deciders import pending_view
from holdfast.core.run.views.status import doing
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.effects import Effect
from tests.support.people import PEOPLE
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, tool_spec
from tests.unit.audit.test_audit import changed, fault

TOOLS = (tool_spec("look"), tool_spec("pay", Effect.UNSAFE, previews=True), tool_spec("ship", Effect.UNSAFE))
ONE = Policy(rules=(ask("pay"), ask("ship"), allow()), approvers=PEOPLE)
TWO = Policy(rules=(ask("pay", terms=Terms(quorum=2)), allow()), approvers=PEOPLE)


def calling(*names: str, policy: Policy = ONE, features: int = PREVIEWS, notify: bool = False) -> Thread:
    """Return a thread whose LLM has called these tools."""
    thread = Thread(agent_spec(tools=TOOLS, policy=policy, limits=Limits(max_steps=50)))
    thread.notify = notify
    thread.load(features)
    thread.reply(calls(*names))
    return thread


def previewed(policy: Policy = ONE, **preview: str) -> Thread:
    """Return a thread with an open request to pay, which has a preview."""
    thread = calling("pay", policy=policy)
    thread.preview(**preview)
    return thread


def with_terms(terms: Terms) -> Callable[[ApprovalRequested], ApprovalRequested]:
    """Return a function that puts other terms into a request."""
    return lambda event: event.model_copy(update={"request": event.request.model_copy(update={"terms": terms})})


def base_of(thread: Thread) -> str:
    """Return the base that the tool call under way has to find."""
    (call,) = thread.waiting(ToolRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, ToolRequest)
    return call.request.base


def test_the_request_opens_with_it_and_not_before() -> None:
    """Until it is computed, nothing is open, nobody is notified and no decision counts; other calls run meanwhile."""
    thread = calling("look", "pay", notify=True)
    assert thread.running_calls == [1]
    assert pending_view(thread.state) == []
    assert thread.notices == []
    assert thread.decide("1") == "unknown_request"
    assert doing(thread.state) == "runs look and the preview of pay"
    thread.preview("- 5\n+ 6")
    (request,) = pending_view(thread.state)
    assert request["preview"] == CallPreview(text="- 5\n+ 6").model_dump()
    thread.finish(1)
    assert thread.decide("1", digest=request["digest"]) == "accepted"
    thread.finish(2, "paid")
    thread.check_consistent()
    assert thread.types().count("preview_requested") == 1


def test_a_preview_under_way_is_neither_dropped_nor_begun_again() -> None:
    """Whatever else happens meanwhile, the run waits for the same activity."""
    thread = calling("look", "pay")
    (before,) = thread.waiting(PreviewRequest)
    thread.finish(1)
    (after,) = thread.waiting(PreviewRequest)
    assert after is before


def test_a_decision_is_bound_to_it() -> None:
    """Requests that differ in the preview alone have different digests, which a signer computes from the view."""
    (one,), (other,) = (pending_view(previewed(text=text).state) for text in ("+ 5", "+ 6"))
    assert one["digest"] == shown_digest(one) != other["digest"] == shown_digest(other)
    assert shown_digest({**one, "preview": {**one["preview"], "text": "+ 1"}}) != one["digest"]
    assert previewed(text="+ 5").decide("1", digest=other["digest"]) == "digest_mismatch"


def test_a_tool_without_one_is_asked_about_at_once() -> None:
    """So is every tool of a run below the feature level, which an older worker may continue."""
    assert [request["request"] for request in pending_view(calling("ship").state)] == ["1"]
    for features in range(PREVIEWS):
        thread = calling("pay", features=features)
        assert thread.waiting(PreviewRequest) == []
        assert "preview" not in pending_view(thread.state)[0]


def test_requests_keep_the_order_of_their_calls() -> None:
    """A request has its number when its preview is ordered: none that opens earlier takes it."""
    thread = calling("pay", "ship")
    assert [request["request"] for request in pending_view(thread.state)] == ["2"]
    thread.preview()
    assert {request["request"]: request["tool"] for request in pending_view(thread.state)} == {
        "1": "pay",
        "2": "ship",
    }


def test_people_are_asked_without_it_if_it_fails() -> None:
    """The request says why; an answer of somebody else counts as a failure."""
    thread = calling("pay")
    (call,) = thread.waiting(PreviewRequest)
    thread.fail(call, "NotSealed", "the answer is empty")
    (request,) = pending_view(thread.state)
    assert request["preview"]["problem"] == "NotSealed: the answer is empty"
    assert "There is none: NotSealed" in current_details(thread.state)
    assert thread.decide("1") == "accepted"


def test_changed_arguments_get_their_own() -> None:
    """All are asked anew with the preview of the edited call, the editor too: nobody has seen it before."""
    thread = previewed(TWO)
    assert thread.decide("1", arguments={"cents": 5}) == "judged_anew"
    assert pending_view(thread.state) == []
    (call,) = thread.waiting(PreviewRequest)
    assert isinstance(call, Call)
    assert isinstance(call.request, PreviewRequest)
    assert call.request.call.arguments == '{"cents":5}'
    assert thread.decide("1", by="bob") == "too_late"
    thread.preview("+ 5")
    (request,) = pending_view(thread.state)
    assert (request["request"], request["votes"], request["edited_by"]) == ("2", [], "alice")
    assert [thread.decide("2", by=name) for name in ("alice", "bob")] == ["waiting_for_quorum", "accepted"]
    thread.finish(1)
    thread.check_consistent()


def test_the_approved_call_has_to_find_the_state_that_was_shown() -> None:
    """The base of the preview goes with the call; not with a call whose arguments the approver has changed."""
    thread = previewed(base="v1")
    thread.decide("1")
    assert base_of(thread) == "v1"
    thread = previewed(base="v1")
    thread.decide("1", arguments={"cents": 5})
    assert base_of(thread) == ""


def test_it_is_computed_again_where_it_was_lost() -> None:
    """A run that continues as new, resumes after a pause or begins elsewhere orders the preview again, once."""
    thread = calling("pay")
    thread.continue_suggested = True
    thread.signal("nothing")
    thread.archive()
    assert len(thread.waiting(PreviewRequest)) == 1
    thread.continue_suggested = False
    elsewhere = thread.moved().imported()
    assert len(elsewhere.waiting(PreviewRequest)) == 1
    elsewhere.preview()
    assert len(pending_view(elsewhere.state)) == 1
    elsewhere.check_consistent()


def test_a_paused_run_orders_none() -> None:
    """Nothing starts until the run resumes; a preview that was under way opens its request."""
    thread = calling("look")
    thread.signal("pause", {"by": "alice"})
    thread.finish(1)
    thread.signal("resume", {"by": "alice"})
    thread.reply(calls("pay"))
    thread.signal("pause", {"by": "alice"})
    thread.preview()
    assert len(pending_view(thread.state)) == 1


def test_a_cancelled_run_waits_for_none() -> None:
    """The call ends as cancelled, and a late preview opens nothing."""
    thread = calling("pay")
    thread.cancel()
    assert thread.waiting(PreviewRequest) == []
    assert thread.types()[-2:] == ["tool_call_finished", "run_finished"]


def test_the_record_of_it_can_be_judged() -> None:
    """A preview is a fact from outside; a request that was not announced so is a fault."""
    thread = previewed(base="v1")
    thread.decide("1")
    thread.finish(1)
    assert fault(thread.log) is None
    forged = changed(thread.log, ApprovalRequested, with_terms(Terms(by=("mallory",))))
    found = fault(forged)
    assert found is not None
    assert found.position == thread.types().index("approval_requested")


@pytest.mark.parametrize("count", [1, 20])
def test_snapshots_stay_small(count: int) -> None:
    """The state carries at most 8,000 characters of each open preview, and no preview of decided ones."""
    thread = calling(*["pay"] * count)
    for number in range(count):
        thread.preview("x" * PREVIEW_CHARS, base=str(number))
        thread.decide(str(number + 1), "deny")
    assert "x" * 100 not in str(thread.state)


def test_arguments_that_differ_in_form_alone_have_one_preview() -> None:
    """The preview is of the arguments that are judged and run, not of the LLM's text."""
    thread = loaded_thread(agent_spec(tools=TOOLS, policy=ONE), features=PREVIEWS)
    call = ToolCall(id="c", name="pay", arguments='{ "cents": 5 }')
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    (ordered,) = thread.waiting(PreviewRequest)
    assert isinstance(ordered, Call)
    assert isinstance(ordered.request, PreviewRequest)
    thread.preview()
    (request,) = thread.state.authority.requests
    assert ordered.request.call.arguments == request.arguments == '{"cents":5}'
