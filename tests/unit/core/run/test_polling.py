"""An agent waits for a change without an event: a judged call is polled, at paced times, until its condition is met."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.activities.builtin_tools.dormancy import dormancy_tools
from holdfast.activities.llm_calls.llm_replies import read_reply
from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import Policy, Terms, allow, ask, deny
from holdfast.core.llm.blocks import TextBlock
from holdfast.core.log.events import ApprovalRequested, VerdictGiven, WaitPolled
from holdfast.core.run.contracts.commands import Call, Sleep
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.state.dormancy import WAITS
from holdfast.core.run.waits.polling import FAILURES, NEWS
from holdfast.core.tools.decorator import tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.result_conditions import read_condition
from holdfast.core.tools.triggers import POLLED_BYTES
from tests.support.runs import ADAPTER, Thread, agent_spec, loaded_thread, tool_spec
from tests.unit.core.run.test_dormancy import audited, calling, continue_as_new, result, sleeper, wake

POLICY = Policy(rules=(ask("pay"), ask("private"), deny("hidden"), allow()))
TOOLS = (tool_spec("private"), tool_spec("hidden"), tool_spec("surf", trust="web"))
DONE = {"contains": "done"}


def poller(**changes: Any) -> AgentSpec:
    """Return an agent that can poll."""
    return sleeper(*TOOLS, **{"policy": POLICY, **changes})


def check(name: str = "look", condition: Any = None, **more: Any) -> dict[str, Any]:
    """Return the arguments of a call of `check_back`."""
    return {"tool": name, "arguments": {"at": "x"}, "condition": condition or DONE, **more}


def polling(spec: AgentSpec | None = None, **more: Any) -> Thread:
    """Return a thread whose LLM has called `check_back`."""
    thread = loaded_thread(spec or poller(), features=1)
    thread.reply(calling(check_back=check(**more)))
    return thread


def polls(thread: Thread) -> list[Call]:
    """Return the polls in progress."""
    return [
        call
        for call in thread.waiting(ToolRequest)
        if isinstance(call, Call) and isinstance(call.request, ToolRequest) and call.request.poll
    ]


def bring(thread: Thread, content: Any = "not yet", status: str = "ok", **more: Any) -> None:
    """End the poll in progress; if there is none, wait for it first."""
    while not polls(thread):
        if thread.waiting(Sleep):
            thread.wake()
        else:  # it continues as new
            thread.archive()
    (call, *_) = polls(thread)
    thread.end(call, ToolOutcome.model_validate({"status": status, "content": content, **more}))


def recorded_polls(thread: Thread) -> list[WaitPolled]:
    """Return the events of all polls."""
    return [event for event in thread.log if isinstance(event, WaitPolled)]


# Polls and conditions.


def test_the_first_poll_is_made_at_once_and_the_llm_is_not_called_until_the_condition_is_met() -> None:
    """Each poll is an ordinary activity with the judged call; the last result is the result of the call."""
    thread = polling()
    (call,) = polls(thread)
    assert isinstance(call.request, ToolRequest)
    assert (call.seconds, call.number, call.request.poll) == (0, 1, 1)
    assert (call.request.call.name, call.request.call.arguments) == ("look", '{"at":"x"}')
    assert (thread.state.status, thread.calling_llm()) == ("dormant", False)
    bring(thread)
    assert (polls(thread), thread.calling_llm()) == ([], False)
    assert thread.state.wake_at(thread.at) == thread.at + timedelta(seconds=2)
    bring(thread)
    bring(thread, "all done")
    head, text = result(thread).text.split("\n")
    assert head.startswith("Your condition was met after 5s, in 3 looks. It is now 2026-01-02T03:04:1")
    assert (text, result(thread).status, thread.calling_llm()) == ("all done", "ok", True)
    assert [(event.poll, event.result, event.again is None) for event in recorded_polls(thread)] == [
        *((1, "news", False), (2, "same", False), (3, "news", True))
    ]
    audited(thread)


@pytest.mark.parametrize(
    ("condition", "contents", "met"),
    [
        ({"contains": "done"}, ["no", "done"], 2),
        ({"lacks": "pending"}, ["pending", "gone"], 2),
        ({"changes": True}, ["a", "a", "b"], 3),
        ({"changes": True}, ["a", "b"], 2),
        ({"equals": {"state": "ok"}}, ["no json", "[]", '{"state":"bad"}', '{"state": "ok", "n": 1}'], 4),
        ({"equals": {"n": 1}}, ['{"n": true}', '{"n": "1"}', '{"n": {}}', '{"n": 1.0}'], 4),
        ({"equals": {"n": None}}, ["{}", '{"n": null}'], 2),
        ({"equals": {"n": 1}}, ['{"n": NaN}', "[" * 300, '{"n": 1}'], 3),
    ],
)
def test_a_condition_is_met_by_the_first_result_that_fulfils_it(
    condition: dict[str, Any], contents: list[str], met: int
) -> None:
    """Texts are searched, fields are compared as JSON, and a change is a difference from the first result."""
    thread = polling(condition=condition)
    for content in contents:
        bring(thread, content)
    assert result(thread).text.split("\n", 1)[1] == contents[met - 1]
    assert len(recorded_polls(thread)) == met
    audited(thread)


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (None, "exactly one of"),
        ({}, "exactly one of"),
        ({"contains": "a", "lacks": "b"}, "exactly one of"),
        ({"matches": "(a+)+$"}, "there is no 'matches'"),
        ({"contains": ""}, "1 to 500 characters"),
        ({"contains": "x" * 501}, "1 to 500 characters"),
        ({"lacks": 5}, "1 to 500 characters"),
        ({"changes": False}, '{"changes": true}'),
        ({"changes": 1}, '{"changes": true}'),
        ({"equals": {}}, "at least one field"),
        ({"equals": {"a": {"b": 1}}}, "text, a number"),
        ({"equals": {str(at): at for at in range(21)}}, "20 are the most"),
        ({"equals": "a"}, "object of field"),
        ("contains", "exactly one of"),
    ],
)
def test_a_condition_has_exactly_one_of_four_forms(condition: Any, why: str) -> None:
    """There are no expressions: any other form is a result that names the valid ones, and nothing is polled."""
    with pytest.raises(ValueError, match="condition") as raised:
        read_condition(condition)
    assert why in str(raised.value)
    thread = loaded_thread(poller(), features=1)
    thread.reply(calling(check_back={**check(), "condition": condition}))
    assert (result(thread).status, why in result(thread).text, polls(thread)) == ("invalid", True, [])
    audited(thread)


def test_the_result_keeps_its_trust_its_artifact_and_its_blocks() -> None:
    """The LLM reads the tool's result, with the level of the tool or of the result itself."""
    thread = polling(poller(policy=Policy(rules=(ask("pay", when="trust == 'web'"), allow()))), name="surf")
    bring(thread, "done … clipped", artifact="sha256:" + "0" * 64, size=9_000)
    finished = result(thread)
    assert (finished.trust, finished.size, finished.artifact[:8]) == ("web", 9_000, "sha256:0")
    assert thread.state.context.trust == "web"
    audited(thread)
    labelled = polling()
    bring(labelled, (TextBlock(text="done"), TextBlock(text="more")), trust="person")
    assert (result(labelled).trust, len(result(labelled).content)) == ("person", 3)
    audited(labelled)


@pytest.mark.parametrize("condition", [{"lacks": "pending"}, {"equals": {"a": 1}}])
def test_a_clipped_result_does_not_meet_a_condition_on_the_whole_text(condition: dict[str, Any]) -> None:
    """The text may be in the omitted part: the wait ends, and the LLM reads its options."""
    thread = polling(condition=condition)
    bring(thread, '{"a": 1}', size=9_000, artifact="sha256:" + "0" * 64)
    assert (result(thread).status, "only its beginning and its end" in result(thread).text) == ("failed", True)
    audited(thread)


# Time and pace.


def test_the_last_poll_is_made_when_the_time_is_over() -> None:
    """The last poll counts if it meets the condition; otherwise its result comes with a note that it does not."""
    for content, head in (("no", "Your condition was not met within 10s, in 5 looks."), ("done", "Your condition was")):
        thread = polling(until="10s")
        end = thread.at + timedelta(seconds=10)
        for _ in range(4):
            bring(thread, "no")
        wakes = thread.state.wake_at(thread.at)
        assert wakes is not None
        assert abs(wakes - end) < timedelta(seconds=1)
        bring(thread, content)
        assert result(thread).text.startswith(head), result(thread).text
        assert (result(thread).status, result(thread).text.endswith(f"\n{content}")) == ("ok", True)
        audited(thread)


def test_same_results_slow_down_and_news_starts_over() -> None:
    """The delays are those of the pace, with the limits of the agent."""
    thread = polling(poller(limits=Limits(poll_seconds=1, poll_ceiling=3)))
    delays = []
    for content in ("a", "a", "a", "a", "a", "b", "b"):
        bring(thread, content)
        (event,) = recorded_polls(thread)[-1:]
        assert event.again is not None
        delays.append(round((event.again - event.at).total_seconds(), 3))
    assert delays == [1, 1.5, 2.25, 3, 3, 1, 1.5]
    audited(thread)


def test_a_slow_answer_a_time_out_and_a_failure_slow_down_more() -> None:
    """No delay is shorter than the last poll took; a time-out counts as the tool's own."""
    thread = polling()
    bring(thread, "a", duration_ms=4_000)
    bring(thread, "down", "failed", duration_ms=10)
    bring(thread, "slow", "failed", duration_ms=5_000)
    kinds = [
        (event.result, round((event.again - event.at).total_seconds()))
        for event in recorded_polls(thread)
        if event.again
    ]
    assert kinds == [("news", 4), ("no_response", 12), ("timeout", 36)]
    audited(thread)


def test_results_that_always_differ_do_not_poll_faster_for_ever() -> None:
    """Only the first changes count as news, so a week has a bounded number of polls, for any results."""
    thread = polling(until="7d")
    at = 0
    while thread.state.dormancy.waits:
        at += 1
        changing = f"it is {at}" if at % 20 == 0 or at > 20 * NEWS else "the same"
        bring(thread, changing)
    assert recorded_polls(thread)[-1].again is None
    assert 2_000 < len(recorded_polls(thread)) < 2_300
    assert len(str(thread.state.dormancy)) < 1_000


def test_failed_polls_are_outcomes_and_several_in_a_row_end_the_wait() -> None:
    """A result in between resets the count; the LLM finally reads the number of failures, and the last one."""
    thread = polling()
    for _ in range(FAILURES - 1):
        bring(thread, "no route", "failed")
    bring(thread, "not yet")
    for _ in range(FAILURES):
        bring(thread, "no route to host", "failed")
    text = result(thread).text
    assert (result(thread).status, "the last 5 looks failed, of 10 looks in" in text) == ("failed", True)
    assert text.endswith("\nno route to host")
    audited(thread)


def test_a_lost_activity_is_a_failed_poll() -> None:
    """Temporal's own failure of a poll, such as a time-out, does not end the wait."""
    thread = polling()
    (call,) = polls(thread)
    thread.fail(call, "TimeoutError")
    assert (recorded_polls(thread)[-1].status, thread.state.status) == ("failed", "dormant")
    bring(thread, "done")
    audited(thread)


# Authority.


def test_a_denied_tool_is_not_polled() -> None:
    """The stricter verdict counts, whichever verdict `check_back` itself has."""
    thread = polling(name="hidden")
    assert (result(thread).status, polls(thread)) == ("denied", [])
    (verdict,) = [event for event in thread.log if isinstance(event, VerdictGiven)]
    assert verdict.verdict == "deny"
    audited(thread)


def test_a_tool_that_asks_is_polled_after_an_approval_that_shows_it() -> None:
    """The request shows the polled call; nothing is polled without an approval, and edits are judged again."""
    thread = polling(name="private")
    (asked,) = [event.request for event in thread.log if isinstance(event, ApprovalRequested)]
    assert json.loads(asked.arguments)["tool"] == "private"
    assert "calls private again and again" in asked.why
    assert (polls(thread), thread.state.status) == ([], "waiting_approval")
    assert thread.decide("1", arguments={**check("hidden"), "until": None}) == "against_policy"
    assert thread.decide("1", arguments={**check("pay"), "until": None}) == "malformed"
    assert thread.decide("1", arguments={**check("nothing"), "until": None}) == "malformed"
    assert thread.decide("1", arguments={**check("private", {"a": 1}), "until": None}) == "malformed"
    assert polls(thread) == []
    edited = {**check("private"), "arguments": {"at": "y"}, "until": None}
    assert thread.decide("1", arguments=edited) == "accepted"
    (call,) = polls(thread)
    assert isinstance(call.request, ToolRequest)
    assert call.request.call.arguments == '{"at":"y"}'
    bring(thread, "done")
    assert result(thread).text.startswith("[alice changed the arguments to ")
    audited(thread)


def test_edited_arguments_fit_the_polled_tool() -> None:
    """A person gives every parameter with the right type: no value is filled in after the verdict."""
    parameters = {
        "type": "object",
        "properties": {"at": {"type": "string"}, "n": {"type": "integer", "default": 3}},
        "required": ["at"],
    }
    spec = sleeper(tool_spec("strict", parameters=parameters), policy=Policy(rules=(ask("strict"), allow())))
    thread = polling(spec, name="strict")
    for arguments in ({"at": 5, "n": 1}, {"at": "x"}, {"n": 1}):
        values = {**check("strict"), "arguments": arguments, "until": None}
        assert thread.decide("1", arguments=values) == "malformed", arguments
    assert (
        thread.decide("1", arguments={**check("strict"), "arguments": {"at": "y", "n": 1}, "until": None}) == "accepted"
    )
    audited(thread)


def test_the_terms_of_the_stricter_rule_decide() -> None:
    """If both calls ask, the rule that asks more people counts; a denial is stronger than any."""
    rules = (ask("private", terms=Terms(by=("hr",))), ask("check_back", terms=Terms(quorum=2)), allow())
    thread = polling(poller(policy=Policy(rules=rules)), name="private")
    assert thread.state.authority.requests[0].terms.quorum == 2
    other = polling(poller(policy=Policy(rules=(ask("check_back"), *rules[:1], allow()))), name="private")
    assert other.state.authority.requests[0].terms.by == ("hr",)
    denied = polling(poller(policy=Policy(rules=(deny("check_back"), allow()))))
    assert result(denied).status == "denied"


def test_a_remembered_approval_covers_the_same_polls_and_no_others() -> None:
    """The rule covers the exact call: for another tool, or other arguments, people are asked again."""
    thread = polling(name="private")
    assert thread.decide("1", remember=True) == "accepted"
    bring(thread, "done")
    thread.reply(calling(check_back=[check("private"), check("private", {"changes": True}), check("look")]))
    assert [request.number for request in thread.state.authority.requests] == [3]
    assert [call.number for call in polls(thread)] == [2, 4]
    audited(thread)


def test_a_remembered_approval_of_the_polled_call_satisfies_its_rule() -> None:
    """A call that the LLM may make without asking may also be polled without asking."""
    thread = loaded_thread(poller(), features=1)
    thread.reply(calling(private={"at": "x"}))
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1)
    thread.reply(calling(check_back=check("private")))
    assert [call.number for call in polls(thread)] == [2]
    audited(thread)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (check("pay"), "pay is not read-only (its effect is unsafe)"),
        (check("nothing"), "there is no tool named 'nothing'"),
        (check("check_back"), "check_back sleeps itself"),
        (check("sleep_until"), "sleep_until sleeps itself"),
        ({**check(), "arguments": [1]}, "give an object"),
        ({**check(), "tool": 7}, "give the name"),
        ({**check(), "arguments": {"at": "x" * POLLED_BYTES}}, "bytes as JSON"),
        ({**check(), "until": "soon"}, "neither a time nor a duration"),
    ],
)
def test_an_impossible_poll_gets_a_result_with_the_reason(made: dict[str, Any], why: str) -> None:
    """Nobody is asked, nothing runs, and the LLM is called again."""
    thread = loaded_thread(poller(policy=Policy(rules=(ask(),))), features=1)
    thread.reply(calling(check_back=made))
    assert (result(thread).status, why in result(thread).text) == ("invalid", True), result(thread).text
    assert (thread.state.authority.requests, polls(thread), thread.calling_llm()) == ((), [], True)
    audited(thread)


def test_a_constraint_rejects_new_polls_and_ends_open_ones() -> None:
    """If another call of the tool reports a constraint, the waits end at once with the reason, and further ones are
    rejected.
    """
    thread = loaded_thread(poller(), features=1)
    thread.reply(calling(check_back=[check(), check()], look={"at": "z"}))
    first, second = polls(thread)
    thread.end(first, ToolOutcome(status="ok", content="not yet"))
    (look,) = [call for call in thread.waiting(ToolRequest) if isinstance(call, Call) and call.number == 3]
    thread.end(look, ToolOutcome(status="cannot", content="looking is over", scope="everywhere"))
    assert [result(thread, number).status for number in (1, 2)] == ["cannot", "cannot"]
    assert "looking is over" in result(thread, 1).text
    assert (polls(thread), thread.calling_llm(), second.number) == ([], True, 2)
    thread.reply(calling(check_back=check()))
    assert (result(thread, 4).status, polls(thread)) == ("cannot", [])
    audited(thread)


def test_a_poll_that_cannot_be_done_makes_a_constraint_on_the_polled_call() -> None:
    """The constraint is not on `check_back`: the same call is rejected, called or polled, and others are not."""
    thread = polling()
    bring(thread, "no such build", "cannot", scope="here")
    assert (result(thread).status, result(thread).text) == ("cannot", "no such build")
    (constraint,) = thread.state.constraints.kept
    assert (constraint.number, constraint.tool, constraint.reason) == (1, "look", "no such build")
    thread.reply(calling(look={"at": "x"}, check_back=[check(), {**check(), "arguments": {"at": "y"}}]))
    assert [result(thread, number).status for number in (2, 3)] == ["cannot", "cannot"]
    assert [call.number for call in polls(thread)] == [4]
    audited(thread)


def test_arguments_that_a_worker_rejects_end_the_wait() -> None:
    """A poll runs only with the judged arguments."""
    thread = polling()
    bring(thread, "Not called: the arguments are not in the form in which they run", "invalid")
    assert (result(thread).status, thread.calling_llm()) == ("invalid", True)
    audited(thread)


def test_the_worker_reads_the_polled_arguments_as_the_polled_tool_does() -> None:
    """The LLM's lenient spelling is judged, shown and polled with defaults, in canonical form."""

    @tool(effect="read")
    def look(at: str, n: int = 3) -> str:
        """Look."""
        return at

    (check_back,) = [each for each in dormancy_tools() if each.spec.name == "check_back"]
    spec = sleeper(policy=POLICY, tools=(check_back.spec, look.spec))

    def read(arguments: Any) -> Any:
        call = {"id": "c", "type": "function", "function": {"name": "check_back", "arguments": json.dumps(arguments)}}
        body = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
        tools = {"look": look, "check_back": check_back}
        return read_reply(json.dumps(body).encode(), adapter=ADAPTER, spec=spec, tools=tools, step_id="s")

    values = {"tool": "look", "arguments": {"at": "x", "n": "5"}, "condition": DONE}
    assert json.loads(read(values).arguments["c"])["arguments"] == {"at": "x", "n": 5}
    assert json.loads(read({**values, "arguments": {"at": "x"}}).arguments["c"])["arguments"] == {"at": "x", "n": 3}
    assert "those of look: at: " in read({**values, "arguments": {}}).problems["c"]


# Events that end or hold a wait.


@pytest.mark.parametrize("under_way", [True, False])
@pytest.mark.parametrize("what", ["say", "wake"])
def test_a_message_and_a_wake_end_the_wait(what: str, under_way: bool) -> None:
    """The LLM is called at once; the answer of a poll in progress is not recorded."""
    thread = polling()
    call = polls(thread)[0]
    if not under_way:
        bring(thread)
    before = len(recorded_polls(thread))
    if what == "say":
        thread.say("how is it?")
    else:
        assert wake(thread, by="alice") == "delivered"
    assert (result(thread).text.startswith("You were woken after "), thread.calling_llm()) == (True, True)
    assert not polls(thread)
    thread.run.ended(call.id, ToolOutcome(status="ok", content="done"))
    assert len(recorded_polls(thread)) == before
    assert not thread.waiting(Sleep)
    audited(thread)


def test_a_pause_starts_no_poll_and_resume_makes_the_due_one() -> None:
    """A poll in progress ends and is recorded; a due poll waits for the end of the pause, without a spinning timer."""
    thread = polling(until="1h")
    thread.signal("pause", {"by": "alice"})
    bring(thread)
    thread.advance(hours=2)
    assert (polls(thread), thread.state.status, len(recorded_polls(thread))) == ([], "paused", 1)
    assert not thread.waiting(Sleep)
    thread.signal("resume", {"by": "alice"})
    bring(thread, "no")
    assert result(thread).text.startswith("Your condition was not met within 2h, in 2 looks.")
    audited(thread)


def test_a_slow_poll_holds_up_no_other_timer() -> None:
    """While a poll is in progress, requests of sibling calls expire at their time, and no timer fires repeatedly."""
    rules = (ask("pay", terms=Terms(expires_after=60)), allow())
    thread = loaded_thread(poller(policy=Policy(rules=rules)), features=1)
    thread.reply(calling(check_back=check(), pay={}))
    thread.advance(seconds=61)
    assert (result(thread, 2).status, len(polls(thread))) == ("denied", 1)
    assert not thread.waiting(Sleep)
    bring(thread, "done")
    audited(thread)


def test_a_cancel_stops_the_poll_in_progress_and_waits_for_it() -> None:
    """The poll counts like any tool in progress; after it the call and the run end."""
    thread = polling()
    thread.cancel()
    assert (thread.state.outcome, len(polls(thread))) == (None, 1)
    thread.fail(polls(thread)[0], "CancelledError", cancelled=True)
    assert (result(thread).status, thread.state.outcome) == ("cancelled", "cancelled")
    audited(thread)


def test_a_run_continues_as_new_between_polls_and_waits_for_a_pending_one() -> None:
    """The pace, the first result and the number of failures travel along."""
    thread = polling(condition={"changes": True})
    bring(thread, "a")
    bring(thread, "b down", "failed")
    before = thread.state.dormancy
    continue_as_new(thread)
    thread.continue_suggested = False
    assert (thread.state.dormancy, thread.state.status) == (before, "dormant")
    while not polls(thread):
        thread.wake()
    thread.continue_suggested = True
    thread.signal("nonsense")
    assert len(thread.snapshots) == 1
    thread.end(polls(thread)[0], ToolOutcome(status="ok", content="a"))
    while len(thread.snapshots) < 2:
        thread.archive()
    thread.continue_suggested = False
    bring(thread, "b")
    assert result(thread).text.endswith("\nb")
    audited(thread)


def test_a_reset_repeats_the_poll() -> None:
    """A read may be repeated: the wait continues at the same point, and the ledger has no entry for it."""
    thread = polling()
    bring(thread)
    thread.reset()
    thread.load_effects()
    bring(thread, "done")
    assert result(thread).status == "ok"
    audited(thread)


def test_a_closed_thread_ends_the_wait() -> None:
    """If the run is closed from outside during a poll, the call is cancelled, and nobody is asked."""
    thread = polling()
    thread.reopen()
    thread.load_thread()
    thread.load(1)
    assert (result(thread).status, thread.state.dormancy.waits, polls(thread)) == ("cancelled", (), [])
    audited(thread)


def test_waits_are_bounded() -> None:
    """A call beyond the limit is rejected; each of the others has one poll in progress."""
    thread = loaded_thread(poller(), features=1)
    thread.reply(calling(check_back=[check()] * (WAITS + 2)))
    assert len(polls(thread)) == WAITS
    assert [result(thread, WAITS + more).status for more in (1, 2)] == ["failed", "failed"]


def test_polls_are_in_neither_the_transcript_nor_the_prompt() -> None:
    """The LLM gets one result of the call, for any number of polls."""
    thread = polling()
    for number in range(5):
        bring(thread, f"secret {number}")
    bring(thread, "done")
    sent = thread.sent[-1].body.decode()
    assert "secret" not in sent
    assert sent.count("Your condition was met") == 1
    audited(thread)


def test_a_poll_carries_its_agent_and_trust_level() -> None:
    """A tool that asks for its caller gets the agent and the trust level, as in a call by the LLM."""
    thread = polling(sleeper(tool_spec("ask_origin", wants_origin=True), policy=POLICY), name="ask_origin")
    (call,) = polls(thread)
    assert isinstance(call.request, ToolRequest)
    assert call.request.origin is not None
    assert call.request.origin.agent == "agent"


def test_a_poll_does_not_count_as_an_action_of_the_agent() -> None:
    """After a long wait the `verify` tools run again, before the LLM reads the result of the wait."""
    thread = polling(poller(verify=("look",), limits=Limits(stale_after=60, poll_ceiling=90)), name="surf")
    for _ in range(10):
        bring(thread)
    bring(thread, "done")
    assert result(thread).status == "ok"
    assert (thread.calling_llm(), len(thread.waiting(ToolRequest))) == (False, 1)
    thread.finish_verification("as before")
    assert thread.calling_llm()
    audited(thread)


def test_a_tool_with_an_effect_in_the_spec_is_the_only_thing_that_counts() -> None:
    """An idempotent tool has an effect, too."""
    spec = sleeper(tool_spec("put", Effect.IDEMPOTENT), policy=Policy(rules=(allow(),)))
    thread = polling(spec, name="put")
    assert (result(thread).status, polls(thread)) == ("invalid", [])


@pytest.mark.parametrize("features", [0, 1])
def test_a_users_own_tool_of_that_name_polls_nothing(features: int) -> None:
    """A user's `check_back` keeps its own arguments: they are neither read nor judged as another call."""
    spec = agent_spec(tools=(tool_spec("check_back"),), policy=Policy(rules=(deny("hidden"), allow())))
    thread = loaded_thread(spec, features=features)
    thread.reply(calling(check_back=check("hidden")))
    assert (thread.running_calls, polls(thread)) == ([1], [])
    thread.finish(1, "checked")
    assert result(thread).text == "checked"
    audited(thread)
