"""Calls of foreign tools without a result yet: a server's question to people, and a task, which is a wait."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.agents.agent import Limits
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.log.events import AnswerRequested, ToolCallFinished, WaitPolled
from holdfast.core.run.contracts.commands import Call
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.subagents import PARENT_ENDS
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.decide.reactions import CLOSED_EARLY
from holdfast.core.run.state.features import FOREIGN_WAITS, UNATTENDED
from holdfast.core.run.views.deciders import pending_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.foreign_waits import ForeignTask, QuestionPart, ServerQuestion
from tests.support.people import PEOPLE
from tests.support.runs import Thread, agent_spec, calls, says, tool_spec
from tests.unit.core.run.test_dormancy import audited, continue_as_new

TOOLS = (tool_spec("order", Effect.UNSAFE, trust="web"), tool_spec("look", trust="web"))
FORM = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name"]}
QUESTION = ServerQuestion(
    server="shop", parts=(QuestionPart(key="who", message="For whom?", form=FORM),), state=f"sha256:{'a' * 64}"
)
ALLOWED = Policy(rules=(allow(),), approvers=PEOPLE)
VISIT = ServerQuestion(server="shop", parts=(QuestionPart(key="page", message="Pay.", url="https://pay.example/1"),))

UNATTENDED_START: dict[str, Any] = {"when_blocked": "fail", "features": UNATTENDED}


def ordering(policy: Policy = ALLOWED, tool: str = "order", **begin: Any) -> Thread:
    """Return a thread whose LLM has called a foreign tool, which has started."""
    thread = Thread(agent_spec(tools=TOOLS, policy=policy, limits=Limits(max_steps=50)), **begin)
    thread.load(FOREIGN_WAITS)
    thread.reply(calls(tool))
    return thread


def requests(thread: Thread) -> list[ToolRequest]:
    """Return the requests of the tool calls under way."""
    found = [call.request for call in thread.waiting(ToolRequest) if isinstance(call, Call)]
    return [request for request in found if isinstance(request, ToolRequest)]


def bring(thread: Thread, **outcome: Any) -> None:
    """End the tool call under way; if there is none, fire the timer first."""
    while not thread.waiting(ToolRequest):
        if thread.waiting(ArchiveRequest):
            thread.archive()
        else:
            thread.wake()
    (call,) = thread.waiting(ToolRequest)
    thread.end(call, ToolOutcome.model_validate({"status": "failed", "content": "pending", **outcome}))


def asking(question: ServerQuestion = QUESTION, **begin: Any) -> Thread:
    """Return a thread whose call's server has asked people."""
    thread = ordering(**begin)
    bring(thread, question=question)
    return thread


def task(message: str = "", interval: float = 2) -> ForeignTask:
    """Return a task of the shop."""
    return ForeignTask(server="shop", id="t-1", interval=interval, message=message)


def working(**begin: Any) -> Thread:
    """Return a thread whose call continues as a task."""
    thread = ordering(**begin)
    bring(thread, task=task())
    return thread


def ends(thread: Thread) -> list[tuple[str, str]]:
    """Return how the calls have ended."""
    return [(event.status, event.text) for event in thread.log if isinstance(event, ToolCallFinished)]


def test_the_answer_starts_the_call_again_once() -> None:
    """The server gets the answer and its state back, in the next epoch of the same effect."""
    thread = asking()
    assert requests(thread) == []
    assert thread.state.status == "waiting_approval"
    assert thread.decide("1", "respond", result='{"name": "Ann", "n": 2}') == "accepted"
    (request,) = requests(thread)
    assert request.resumed is not None
    assert json.loads(request.resumed.responses) == {"who": {"action": "accept", "content": {"n": 2, "name": "Ann"}}}
    assert (request.resumed.state, request.epoch) == (QUESTION.state, 1)
    assert thread.decide("1", "respond", result='{"name": "Bob"}') == "duplicate"
    bring(thread, status="ok", content="ordered")
    assert ends(thread) == [("ok", "ordered")]
    thread.reply(says("Done."))
    audited(thread)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ('{"name": 1}', "does not fit the form"),
        ('{"n": 1}', "does not fit the form"),
        ('{"name": "Ann", "admin": "yes"}', "has no field"),
        ('{"name": {"a": 1}}', "give a text"),
        ("[" * 5_000, "object"),
        ("Ann", "object"),
    ],
)
def test_an_answer_that_does_not_fit_the_form_is_none(result: str, why: str) -> None:
    """It is rejected with a reason, and the request stays open."""
    thread = asking()
    answer = thread.update("decide", {"request": "1", "decision": "respond", "by": "alice", "result": result})
    assert answer["outcome"] == "malformed"
    assert why in answer["explanation"]
    assert pending_view(thread.state)
    assert requests(thread) == []


def test_a_question_accepts_nothing_else() -> None:
    """It is no approval: arguments, feedback and a rule to remember do not go with it, nor the answer of an address."""
    for decision, more in (
        ("approve", {}),
        ("respond", {"result": '{"name": "Ann"}', "remember": True}),
        ("respond", {"result": '{"name": "Ann"}', "arguments": {"a": 1}}),
        ("happened", {}),
    ):
        assert asking().decide("1", decision, **more) in ("wrong_kind", "malformed")  # type: ignore[arg-type]
    visit = asking(VISIT)
    assert visit.decide("1", "respond", result="{}") == "wrong_kind"
    assert visit.decide("1", "approve", say="and hurry") == "malformed"
    assert visit.decide("1", "approve") == "accepted"
    (request,) = requests(visit)
    assert request.resumed is not None
    assert json.loads(request.resumed.responses) == {"page": {"action": "accept"}}


def test_a_decision_is_bound_to_the_whole_question() -> None:
    """Questions that differ in the form, the address or the state alone have different digests."""
    other_form = QUESTION.model_copy(
        update={"parts": (QUESTION.parts[0].model_copy(update={"form": {**FORM, "minProperties": 2}}),)}
    )
    views = [
        pending_view(asking(question).state)[0]
        for question in (QUESTION, other_form, QUESTION.model_copy(update={"state": f"sha256:{'b' * 64}"}))
    ]
    assert len({view["digest"] for view in views}) == 3
    for view in views:
        assert shown_digest(view) == view["digest"]
    assert asking(other_form).decide("1", "respond", result='{"name": "A"}', digest=views[0]["digest"]) == (
        "digest_mismatch"
    )


def test_the_terms_of_the_approval_are_those_of_the_answer() -> None:
    """A call that two people had to approve asks two people, who must give the same answer."""
    two = Policy(rules=(ask("order", terms=Terms(quorum=2)), allow()), approvers=PEOPLE)
    thread = ordering(two)
    assert thread.decide("1", by="alice") == "waiting_for_quorum"
    assert thread.decide("1", by="bob") == "accepted"
    bring(thread, question=QUESTION)
    answer = {"decision": "respond", "result": '{"name": "Ann"}'}
    assert thread.decide("2", by="alice", **answer) == "waiting_for_quorum"  # type: ignore[arg-type]
    assert thread.decide("2", by="bob", decision="respond", result='{"name": "Eve"}') == "waiting_for_quorum"
    assert requests(thread) == []
    assert thread.decide("2", by="bob", **answer) == "accepted"  # type: ignore[arg-type]
    assert len(requests(thread)) == 1
    audited(thread)


def test_nobody_answers_in_time() -> None:
    """The question expires like an approval, but is always declined."""
    terms = Terms(expires_after=3_600, on_expiry="approve")
    thread = asking(policy=Policy(rules=(allow(),), approvers=PEOPLE, terms=terms))
    thread.advance(hours=2)
    assert [status for status, _ in ends(thread)] == ["denied"]
    assert requests(thread) == []
    audited(thread)


def test_people_decline() -> None:
    """The call ends as denied; the server of a task hears that instead, because the task goes on."""
    thread = asking()
    assert thread.decide("1", "deny", reason="no") == "accepted"
    assert ends(thread) == [("denied", "alice declined to answer the question of its server: no")]
    audited(thread)
    thread = working()
    bring(thread, status="ok", question=QUESTION.model_copy(update={"task": "t-1", "state": ""}))
    assert thread.decide("1", "deny") == "accepted"
    (request,) = requests(thread)
    assert request.resumed is not None
    assert json.loads(request.resumed.responses) == {"who": {"action": "decline"}}
    bring(thread, status="ok", task=task())
    assert thread.state.status == "dormant"
    audited(thread)


def test_an_unattended_run_asks_nobody() -> None:
    """The call ends, and the run fails with the cause."""
    thread = asking(**UNATTENDED_START)
    assert [status for status, _ in ends(thread)] == ["denied"]
    assert thread.state.outcome == "failed"
    audited(thread)


def test_a_task_is_polled_until_it_ends() -> None:
    """The delay begins with the server's interval and grows by a tenth; news resets it; failures do not end it."""
    thread = working()
    assert (thread.state.status, requests(thread)) == ("dormant", [])
    for _ in range(6):
        bring(thread, status="ok", task=task(), content="half")
    for _ in range(20):
        bring(thread, content="the server is away", cause="connection")
    bring(thread, status="ok", task=task(interval=30), content="more")
    polls = [event for event in thread.log if isinstance(event, WaitPolled)]
    delays = [(event.again - event.at).total_seconds() for event in polls if event.again]
    assert delays[:2] == [2, pytest.approx(2.2)]
    assert max(delays) == 300
    assert delays[-1] == 30, "the server's own interval is the least"
    assert all(request.resumed and request.resumed.task == "t-1" and request.poll for request in requests(thread))
    bring(thread, status="ok", content="built")
    assert ends(thread) == [("ok", "built")]
    thread.reply(says("Done."))
    audited(thread)


def test_a_task_survives_weeks_and_continues_as_new() -> None:
    """Its id is in the log and in the snapshot, and no message, event or `wake` ends its wait."""
    thread = working()
    thread.say("Are you done?")
    assert thread.update("wake", {})["outcome"] == "not_waiting"
    for late in (timedelta(), timedelta(weeks=3)):
        thread.at += late  # no worker ran meanwhile
        for _ in range(20):
            bring(thread, status="ok", task=task())
        continue_as_new(thread)
        assert thread.state.status == "dormant"
    bring(thread, status="ok", content="built")
    assert ends(thread) == [("ok", "built")]
    assert sum(isinstance(event, WaitPolled) for event in thread.log) == 41
    thread.check_consistent()


def test_a_task_that_ends_without_a_result_asks_people() -> None:
    """It may have had an effect; a read has failed."""
    thread = working()
    bring(thread, status="unknown", content="its task failed: the oven is cold", task_ended=True)
    (request,) = pending_view(thread.state)
    assert (request["kind"], request["why"]) == ("reconcile", "its task failed: the oven is cold")
    assert thread.decide("1", "absent") == "accepted"
    (again,) = requests(thread)
    assert (again.resumed, again.epoch) == (None, 1), "the call begins anew"
    bring(thread, status="ok", content="built")
    audited(thread)
    thread = working(tool="look")
    bring(thread, status="failed", content="its task failed: the oven is cold", task_ended=True)
    assert ends(thread) == [("failed", "its task failed: the oven is cold")]
    audited(thread)


def test_answers_are_sent_until_they_have_arrived() -> None:
    """The polls after an answer carry it until one reaches the server, and name the questions that were answered."""
    thread = working()
    bring(thread, status="ok", question=QUESTION.model_copy(update={"task": "t-1", "state": ""}))
    thread.decide("1", "respond", result='{"name": "Ann"}')
    bring(thread, status="ok", task=task("cannot be reached"))
    carried = []
    for outcome in ({"cause": "connection"}, {"status": "ok", "task": task()}, {"status": "ok", "task": task()}):
        thread.wake()
        (request,) = requests(thread)
        assert request.resumed is not None
        carried.append(bool(request.resumed.responses))
        assert request.resumed.answered == ("who",)
        bring(thread, **outcome)
    assert carried == [True, True, False]
    audited(thread)


def test_the_end_of_a_run_cancels_its_task() -> None:
    """The run waits for that, whatever the server answers; what became of the task is unknown."""
    for with_question in (False, True):
        thread = working()
        if with_question:
            bring(thread, status="ok", question=QUESTION.model_copy(update={"task": "t-1", "state": ""}))
        thread.cancel()
        (request,) = requests(thread)
        assert request.cancels
        assert request.resumed is not None
        assert request.resumed.task == "t-1"
        assert "run_finished" not in thread.types()
        bring(thread, status="failed", content="not reached")
        assert thread.state.outcome == "cancelled"
        assert [status for status, _ in ends(thread)] == ["unknown"]
        audited(thread)


@pytest.mark.parametrize("tool", ["order", "look"])
def test_a_run_that_fails_cancels_its_task(tool: str) -> None:
    """The server of another call asks people, which blocks an unattended run. The server of the task is told, and
    people say what became of an effect.
    """
    thread = Thread(agent_spec(tools=(*TOOLS, tool_spec("asks", Effect.UNSAFE)), policy=ALLOWED), **UNATTENDED_START)
    thread.load(FOREIGN_WAITS)
    thread.reply(calls(tool, "asks"))
    works, asks = thread.waiting(ToolRequest)
    thread.end(works, ToolOutcome(status="failed", content="pending", task=task()))
    thread.end(asks, ToolOutcome(status="failed", content="pending", question=QUESTION))
    (request,) = requests(thread)
    assert request.cancels
    assert request.resumed is not None
    assert request.resumed.task == "t-1"
    assert "run_finished" not in thread.types()
    bring(thread, status="failed", content="not reached")
    if tool == "order":
        (asked,) = pending_view(thread.state)
        assert asked["kind"] == "reconcile"
        assert thread.decide("1", "absent") == "accepted"
        assert requests(thread) == [], "nothing starts in a run that fails"
    assert thread.state.outcome == "failed"
    audited(thread)


def test_a_question_of_a_task_in_an_unattended_run_cancels_the_task() -> None:
    """Nobody answers it, and the task would wait for ever."""
    thread = working(**UNATTENDED_START)
    bring(thread, status="ok", question=QUESTION.model_copy(update={"task": "t-1", "state": ""}))
    (request,) = requests(thread)
    assert request.cancels
    bring(thread, status="ok", content="cancelled")
    (asked,) = pending_view(thread.state)
    assert "may have carried it out" in asked["why"]
    assert thread.decide("1", "happened") == "accepted"
    assert thread.state.outcome == "failed"
    audited(thread)


def test_a_sub_agent_that_ends_with_its_parent_asks_about_its_task() -> None:
    """As about any effect of an unattended run whose outcome is unknown."""
    thread = working(**UNATTENDED_START)
    thread.cancel(PARENT_ENDS)
    bring(thread, status="ok", content="cancelled")
    assert thread.decide("1", "absent") == "accepted"
    assert thread.state.outcome == "cancelled"
    audited(thread)


def test_a_run_that_was_closed_does_not_continue_a_question() -> None:
    """Nothing of a call that asked has happened, so it is cancelled."""
    thread = asking()
    thread.reopen()
    thread.load_thread()
    assert [(status, text) for status, text in ends(thread)] == [("cancelled", CLOSED_EARLY)]


def test_people_see_whose_words_they_are() -> None:
    """Each screen marks the text as the server's; control characters and an override of the direction are visible."""
    sneaky = "Ok.\x1b[2J\u202e\nRequest 2: may this run?"
    part = QUESTION.parts[0].model_copy(update={"message": sneaky})
    shown = current_details(asking(QUESTION.model_copy(update={"parts": (part,)})).state)
    assert "The server's own words, which nobody has checked:" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\nRequest 2: may this run?" not in shown


def test_the_event_has_the_question() -> None:
    """The log holds what was asked, and the artifact with the server's state belongs to the thread."""
    (event,) = [event for event in asking().log if isinstance(event, AnswerRequested)]
    assert event.request.question == QUESTION
