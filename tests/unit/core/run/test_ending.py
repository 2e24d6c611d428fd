"""The end of a run: its own notes in progress.txt, and the step in which the LLM reports its learnings."""

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.audit.judge.audit import Audit
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.core.agents.agent import AgentSpec, Limits, Memory
from holdfast.core.authority.policy import Policy, Terms, allow, ask, deny
from holdfast.core.llm.blocks import TextBlock, ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import (
    LearningRequested,
    LearningSkipped,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from holdfast.core.run.contracts.commands import Sleep
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.rules.closing_work import ARGUMENT_CHARS, RESULT_CHARS
from holdfast.core.run.state.features import FEATURES
from holdfast.core.run.state.progress import LEARNING_SECONDS, NOTED_CALLS
from holdfast.core.run.views.status import doing, following, run_view
from holdfast.core.tools.effects import Effect
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says, tool_spec

ANSWER = "the answer"


def keeper(*rules: Any, **changes: Any) -> AgentSpec:
    """Return an agent that keeps progress.txt and learns."""
    tools = (
        tool_spec("look", trust="agent"),
        tool_spec("web", trust="web"),
        tool_spec("pay", Effect.UNSAFE),
        tool_spec("update_progress", Effect.IDEMPOTENT, trust="agent"),
        tool_spec("remember", Effect.IDEMPOTENT, trust="agent", wants_origin=True),
        tool_spec("note_learning", Effect.IDEMPOTENT, trust="agent", wants_origin=True),
    )
    free = (allow("look"), allow("web"), allow("update_progress"), allow("remember"), allow("note_learning"))
    fields: dict[str, Any] = {"tools": tools, "policy": Policy(rules=(*rules, *free, ask("pay")))}
    return agent_spec(**{"memory": Memory(progress=True, learn=True), **fields, **changes})


def begun_thread(spec: AgentSpec | None = None, **begin: Any) -> Thread:
    """Return a thread that has noted its start in progress.txt, and asks the LLM."""
    thread = loaded_thread(spec or keeper(), features=FEATURES, **begin)
    thread.finish(1)
    return thread


def learning(spec: AgentSpec | None = None, **begin: Any) -> Thread:
    """Return a thread whose LLM has answered, and is asked what it has learnt."""
    thread = begun_thread(spec, **begin)
    thread.reply(says(ANSWER))
    assert thread.state.ending.learning == "asked"
    return thread


def notes(thread: Thread) -> list[dict[str, Any]]:
    """Return the arguments of the run's own calls."""
    own = [event for event in thread.log if isinstance(event, ToolCallRequested) and event.own]
    return [json.loads(event.call.arguments) for event in own]


def finish_notes(thread: Thread) -> None:
    """End the run's own call, and write the record."""
    for number in thread.running_calls:
        thread.finish(number)
    while thread.waiting(ArchiveRequest):
        thread.archive()


def test_a_run_notes_that_it_begins_and_ends_and_the_llm_reads_nothing_of_it() -> None:
    """The run's own calls have numbers, keys and verdicts like any other, and leave no message in the transcript."""
    thread = begun_thread(keeper(memory=Memory(progress=True)))
    thread.reply(calls("look"))
    thread.finish(2)
    thread.reply(says(ANSWER))
    assert thread.state.status == "running"
    finish_notes(thread)
    assert thread.closed
    assert [note["last_step"] for note in notes(thread)] == ["0, in progress", "2, completed"]
    assert {note["goal"] for note in notes(thread)} == {"the task"}
    assert [message["role"] for message in thread.messages()] == ["user", "assistant", "tool", "assistant"]
    assert thread.types()[-6:] == [
        *("message_awaited", "tool_call_requested", "verdict_given"),
        *("tool_call_started", "tool_call_finished", "run_finished"),
    ]
    assert thread.state.result == ANSWER


def test_a_blocked_run_notes_the_step_and_the_cause_once() -> None:
    """Progress.txt gives the blocked step; a retry that fails at the same step adds no second note."""
    thread = begun_thread()
    for _ in range(3):
        thread.refuse("LLMRejected")
        finish_notes(thread)
        assert thread.state.status == "blocked"
        thread.signal("retry", {"by": "bob"})
    assert [note["last_step"] for note in notes(thread)] == ["0, in progress", "0, blocked (LLMRejected)"]


@pytest.mark.parametrize("rule", [deny("update_progress"), ask("update_progress")])
def test_a_note_that_the_policy_does_not_allow_is_skipped_and_asks_nobody(rule: Any) -> None:
    """The run's own call is judged like any other; denied, or in need of an approval, it ends, and the run does not."""
    thread = loaded_thread(keeper(rule, memory=Memory(progress=True)), features=FEATURES)
    assert thread.calling_llm()
    thread.reply(says(ANSWER))
    assert not thread.state.authority.requests
    assert not thread.state.context.unresolved_calls
    thread.archive()
    assert thread.closed
    ended = [event.status for event in thread.log if isinstance(event, ToolCallFinished)]
    assert ended == ["denied", "denied"]


@pytest.mark.parametrize("status", ["failed", "unknown", "invalid"])
def test_a_failed_note_asks_nobody_and_ends_no_run(status: str) -> None:
    """However the run's own call ends, nobody is asked about it."""
    thread = loaded_thread(keeper(memory=Memory(progress=True)), features=FEATURES)
    thread.finish(1, status=status)
    thread.reply(says(ANSWER))
    (call,) = thread.waiting(ToolRequest)
    thread.fail(call, "Lost")
    thread.archive()
    assert thread.closed
    assert thread.state.outcome == "completed"


def test_a_thread_that_continues_notes_that() -> None:
    """The next run of a thread notes that it is in progress again, at its last step."""
    thread = begun_thread(keeper(memory=Memory(progress=True)))
    thread.reply(says(ANSWER))
    finish_notes(thread)
    thread.reopen("and now this")
    thread.load_thread()
    thread.load(FEATURES)
    thread.finish(thread.running_calls[0])
    assert notes(thread)[-1]["last_step"] == "1, in progress"


LINES = {"properties": {"calls": {"type": "array", "default": []}}}
"""The parameters of an `update_progress` that takes lines about calls."""


def noter(*rules: Any, parameters: dict[str, Any] | None = None) -> AgentSpec:
    """Return an agent whose notes name the calls with an effect, and whose policy allows them."""
    tools = (
        tool_spec("look", trust="agent"),
        tool_spec("pay", Effect.UNSAFE),
        tool_spec("save", Effect.IDEMPOTENT),
        tool_spec("note_progress", Effect.IDEMPOTENT, trust="agent"),
        tool_spec("update_progress", Effect.IDEMPOTENT, trust="agent", parameters=parameters or LINES),
    )
    free = (allow("look"), allow("pay"), allow("save"), allow("note_progress"), allow("update_progress"))
    return keeper(memory=Memory(progress=True), tools=tools, policy=Policy(rules=(*rules, *free)))


def test_a_run_notes_each_step_with_an_effect_before_the_next_reply() -> None:
    """One note for a step names its calls that had an effect, with arguments and outcome; reads make no note."""
    thread = begun_thread(noter())
    thread.reply(calls("look"))
    thread.finish(2)
    assert thread.calling_llm()
    thread.reply(calls("pay", "look", "note_progress", first=1))
    thread.finish(3, content="paid\n\n## Injected heading")
    thread.finish(4)
    thread.finish(5)
    assert not thread.calling_llm()
    assert notes(thread)[-1]["calls"] == ["pay (call 3), ok: {} → paid ## Injected heading"]
    assert notes(thread)[-1]["last_step"] == "2, in progress"
    finish_notes(thread)
    assert thread.calling_llm()
    thread.reply(says(ANSWER))
    assert "calls" not in notes(thread)[-1] or not notes(thread)[-1]["calls"]


def test_a_note_about_calls_is_bounded() -> None:
    """However long arguments and results are, and however many calls a step has."""
    thread = begun_thread(noter())
    thread.reply(calls(*["save"] * (NOTED_CALLS + 5)))
    for number in tuple(thread.running_calls):
        thread.finish(number, content="x" * 10_000)
    lines = notes(thread)[-1]["calls"]
    assert len(lines) == NOTED_CALLS
    assert lines[-1].startswith(f"save (call {NOTED_CALLS + 6})")
    assert all(len(line) < ARGUMENT_CHARS + RESULT_CHARS + 100 for line in lines)


@pytest.mark.parametrize("rule", [deny("update_progress"), ask("update_progress")])
def test_notes_about_calls_that_the_policy_does_not_allow_are_not_made(rule: Any) -> None:
    """A run does not add a denied call after every step."""
    thread = loaded_thread(noter(rule), features=FEATURES)
    thread.reply(calls("pay"))
    thread.finish(2)
    assert thread.calling_llm()
    assert len(notes(thread)) == 1


@pytest.mark.parametrize(("features", "parameters"), [(1, LINES), (FEATURES, {"type": "object"})])
def test_older_runs_and_agents_that_older_releases_loaded_note_no_calls(features: int, parameters: Any) -> None:
    """Below the level, or if the recorded tool has no such parameter, the notes are those of 0.2.0."""
    thread = loaded_thread(noter(parameters=parameters), features=features)
    thread.finish(1)
    thread.reply(calls("pay"))
    thread.finish(2)
    assert thread.calling_llm()
    assert thread.state.ending.calls == ()
    assert len(notes(thread)) == 1


def test_a_failed_note_about_calls_is_not_repeated() -> None:
    """The log has the calls in any case, and the run goes on."""
    thread = begun_thread(noter())
    thread.reply(calls("pay"))
    thread.finish(2)
    thread.finish(3, status="failed")
    assert thread.calling_llm()


def test_the_learning_step_follows_the_answer_and_does_not_change_it() -> None:
    """One more step is made, its calls are judged and run, its text is ignored, and no step follows."""
    thread = learning()
    assert thread.messages()[-1]["role"] == "user"
    tool_calls = (
        ToolCall(id="r1", name="remember", arguments='{"text":"x"}'),
        ToolCall(id="n1", name="note_learning", arguments="{}"),
    )
    thread.reply(
        LLMReply(
            message=AssistantMessage(content=(TextBlock(text="not the answer"), *tool_calls)),
            usage=Usage(prompt_tokens=1),
        )
    )
    assert thread.running_calls == [2, 3]
    thread.finish(3)
    thread.finish(2)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER
    assert thread.state.steps.count == 2
    assert thread.state.usage.prompt_tokens == 11


def test_nothing_learnt_ends_the_run() -> None:
    """A reply without calls, or an unusable one, ends the run with the answer."""
    for reply in (says("nothing"), LLMReply(rejected="it is empty.", usage=Usage())):
        thread = learning()
        thread.reply(reply)
        finish_notes(thread)
        assert thread.closed
        assert (thread.state.outcome, thread.state.result) == ("completed", ANSWER)


def test_other_tools_do_not_run_after_the_answer() -> None:
    """In the step after the answer, the LLM reaches no tool but those that remember."""
    thread = learning()
    thread.reply(calls("pay", "look", "update_progress"))
    ended = [event for event in thread.log if isinstance(event, ToolCallFinished)][1:]
    assert [event.status for event in ended] == ["invalid"] * 3
    assert "remember" in ended[0].text
    finish_notes(thread)
    assert thread.closed


def test_a_denied_learning_ends_the_run() -> None:
    """The policy's denial is recorded, and the run ends."""
    thread = learning(keeper(deny("remember", reason="no memory")))
    thread.reply(calls("remember"))
    finish_notes(thread)
    assert thread.closed
    assert any(isinstance(event, VerdictGiven) and event.verdict == "deny" for event in thread.log)


def test_a_learning_of_a_tainted_llm_needs_an_approval() -> None:
    """After web content, a person approves the memories of the last step, though the policy allows them."""
    thread = begun_thread()
    thread.reply(calls("web"))
    thread.finish(2)
    thread.reply(says(ANSWER))
    thread.reply(calls("remember", "note_learning", first=10))
    assert thread.state.status == "waiting_approval"
    assert [request.tool for request in thread.state.authority.requests] == ["remember", "note_learning"]
    assert thread.decide("1", "approve") == "accepted"
    assert thread.decide("2", "deny") == "accepted"
    thread.finish(3)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER


@pytest.mark.parametrize("terms", [Terms(), Terms(expires_after=10 * LEARNING_SECONDS)])
def test_an_undecided_learning_expires(terms: Terms) -> None:
    """The end of a run waits for an approval no longer than its limit, whichever requirements the policy has."""
    thread = learning(keeper(ask("remember", terms=terms)))
    thread.reply(calls("remember"))
    assert thread.state.authority.requests
    thread.archive()
    thread.advance(seconds=LEARNING_SECONDS + 1)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.outcome == "completed"


def test_a_learning_of_a_tainted_llm_expires() -> None:
    """The limit also holds if the policy allows the call and asks only because the run is tainted."""
    thread = begun_thread()
    thread.reply(calls("web"))
    thread.finish(2)
    thread.reply(says(ANSWER))
    thread.reply(calls("remember", first=10))
    (request,) = thread.state.authority.requests
    assert request.expires_at == request.asked_at + timedelta(seconds=LEARNING_SECONDS)
    assert request.terms.on_expiry == "deny"
    thread.archive()
    thread.advance(seconds=LEARNING_SECONDS + 1)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER


def test_an_ending_run_names_its_wait() -> None:
    """Between the answer and the end, `show` names the open request and its own call, and no wait for a message."""
    thread = learning(keeper(ask("remember")))
    thread.reply(calls("remember"))
    assert doing(thread.state) == "waits for a decision on request 1"
    asked, expires, last = following(thread.state)
    assert (asked.when, asked.then) == ("request 1 is approved", "remember runs")
    assert (expires.then, last.then) == ("it is denied", "the run ends")
    shown = show_screen({**run_view(thread.state), "continue": None}, retrying=[], ui=None).plain
    assert f"Result\n  {ANSWER}" in shown
    thread.archive()
    thread.decide("1", "deny")
    assert doing(thread.state) == "runs update_progress"
    finish_notes(thread)
    assert thread.closed


@pytest.mark.parametrize("status", ["failed", "unknown", "cancelled"])
def test_a_lost_learning_asks_nobody(status: str) -> None:
    """An item whose outcome is unknown opens no request, as it might stay unanswered for ever: the run ends."""
    thread = learning()
    thread.reply(calls("remember"))
    thread.finish(2, status=status)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER


def test_an_llm_that_cannot_be_asked_ends_the_run() -> None:
    """If the LLM call fails for good, or the request does not fit, the run ends with its answer, unblocked."""
    for cause in ("LLMRejected", "ContextTooLong"):
        thread = learning()
        thread.refuse(cause)
        finish_notes(thread)
        assert thread.closed
        assert thread.state.result == ANSWER
        assert [event.cause for event in thread.log if isinstance(event, LearningSkipped)] == [cause]


def test_an_llm_that_does_not_reply_is_not_waited_for() -> None:
    """An outage of the LLM delays the end of a run for a bounded time; a late reply is ignored."""
    thread = learning()
    (late,) = [call for call in thread.in_progress.values() if call.id and thread.calling_llm()][:1]
    thread.advance(seconds=LEARNING_SECONDS + 1)
    assert not thread.calling_llm()
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER
    assert late.id not in thread.in_progress


def test_the_step_limit_counts_and_leaves_learning_out() -> None:
    """A run that has used up its steps skips the learning step, and is not blocked for it."""
    thread = begun_thread(keeper(limits=Limits(max_steps=1)))
    thread.reply(says(ANSWER))
    finish_notes(thread)
    assert thread.closed
    assert "learning_requested" not in thread.types()


def test_an_open_run_learns_when_its_wait_is_over() -> None:
    """A run that waits for messages is asked once, at the end of the wait, and not after each answer."""
    thread = begun_thread(idle_limit=60)
    thread.reply(says("first"))
    assert thread.state.wake_at(thread.at) == thread.at + timedelta(seconds=60)
    thread.archive()
    thread.say("and?")
    thread.reply(says(ANSWER))
    thread.archive()
    thread.advance(seconds=61)
    assert thread.state.status == "running"
    thread.reply(calls("note_learning"))
    thread.finish(thread.running_calls[0])
    finish_notes(thread)
    assert thread.closed
    assert thread.types().count("learning_requested") == 1
    assert thread.state.result == ANSWER


def test_a_message_puts_the_end_off() -> None:
    """A message that arrives while the LLM is asked what it has learnt is answered, and then it is asked again."""
    thread = learning()
    thread.say("one more thing")
    thread.reply(says("nothing learnt"))
    assert thread.calling_llm()
    assert thread.state.ending.learning == ""
    thread.reply(says("the second answer"))
    thread.reply(says("nothing"))
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == "the second answer"
    assert thread.types().count("learning_requested") == 2


def test_a_pause_holds_the_end_back() -> None:
    """A paused run neither asks what was learnt nor ends; resumed, it does both."""
    thread = begun_thread()
    thread.signal("pause", {"by": "bob"})
    thread.reply(says(ANSWER))
    assert not thread.calling_llm()
    thread.archive()
    thread.signal("resume", {"by": "bob"})
    thread.reply(says("nothing"))
    finish_notes(thread)
    assert thread.closed


def test_a_cancelled_run_ends_at_once() -> None:
    """A cancellation while the LLM is asked what it has learnt asks for nothing more."""
    thread = learning()
    thread.cancel()
    thread.archive()
    assert thread.state.outcome == "cancelled"


def test_the_end_survives_continue_as_new() -> None:
    """A run that continues as new while it ends asks again for the missing reply, and completes."""
    thread = begun_thread()
    thread.continue_suggested = True
    thread.reply(says(ANSWER))
    thread.archive()
    assert thread.calling_llm()
    thread.continue_suggested = False
    thread.reply(calls("remember"))
    thread.finish(2)
    finish_notes(thread)
    assert thread.closed
    assert thread.state.result == ANSWER
    assert thread.types().count("learning_requested") == 1


def test_a_run_of_level_0_does_none_of_this() -> None:
    """A run that began under the first release ends as before, though its agent has the options."""
    thread = loaded_thread(keeper(), features=0)
    thread.reply(says(ANSWER))
    thread.archive()
    assert thread.closed
    assert {"learning_requested", "tool_call_requested"}.isdisjoint(thread.types())


@pytest.mark.parametrize("alter", ["own", "notice", "goal", "early", "answer"])
def test_a_forged_end_is_found(alter: str) -> None:
    """An audit rejects an own call without a cause, other arguments, an early question, and another answer; it accepts
    the genuine log.
    """
    thread = learning()
    thread.reply(calls("remember"))
    thread.finish(2)
    finish_notes(thread)
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None
    forged = list(thread.log)
    at = next(n for n, event in enumerate(forged) if isinstance(event, LearningRequested))
    own = next(n for n, event in enumerate(forged) if isinstance(event, ToolCallRequested) and event.own)
    match alter:
        case "own":
            stolen = ToolCall(id="own_1", name="pay", arguments="{}")
            forged[own] = forged[own].model_copy(update={"call": stolen})
        case "goal":
            other = ToolCall(id="own_1", name="update_progress", arguments='{"goal":"steal","last_step":"9, done"}')
            forged[own] = forged[own].model_copy(update={"call": other})
        case "early":
            forged.insert(own, forged[at].model_copy(update={"position": forged[own].position}))
        case "answer":
            forged[-1] = forged[-1].model_copy(update={"outcome": "failed"})
        case "notice":
            del forged[at]
    audit = Audit("t")
    audit.take(forged)
    assert audit.fault is not None


def test_a_blocked_run_ends_when_its_wait_for_a_message_is_over() -> None:
    """As without closing work, it notes its end, and does not call the LLM, which may be the cause of the block."""
    thread = begun_thread(idle_limit=60)
    thread.reply(says(ANSWER))
    thread.archive()
    thread.signal("compact", {"by": "bob"})
    thread.refuse("LLMRejected")
    finish_notes(thread)
    assert thread.state.status == "blocked"
    thread.advance(seconds=61)
    finish_notes(thread)
    assert (thread.closed, thread.state.result) == (True, ANSWER)
    assert "learning_requested" not in thread.types()
    assert [note["last_step"] for note in notes(thread)][1:] == ["1, blocked (LLMRejected)", "1, completed"]
    check_audit(thread)


def test_a_pause_in_the_learning_step_delays_no_expiry() -> None:
    """A resumed run does not wait for a message again: its requests expire when they are due."""
    thread = learning_after_a_wait(keeper(ask("remember")))
    thread.reply(calls("remember"))
    (request,) = thread.state.authority.requests
    assert doing(thread.state) == "waits for a decision on request 1"
    assert following(thread.state)[-1].then == "the run ends"
    thread.signal("pause", {"by": "bob"})
    thread.signal("resume", {"by": "bob"})
    assert thread.state.status == "waiting_approval"
    assert thread.state.wake_at(thread.at) == request.expires_at
    thread.advance(hours=2)
    finish_notes(thread)
    assert (thread.closed, thread.state.result) == (True, ANSWER)
    check_audit(thread)


@pytest.mark.parametrize("outage", ["RunContinues", "RecordRefuses"])
def test_no_timer_fires_repeatedly_while_the_end_waits(outage: str) -> None:
    """The wait for a message ends during an archive write or an LLM call; only one timer fires."""
    thread = begun_thread(idle_limit=60)
    thread.reply(says(ANSWER))
    if outage == "RunContinues":
        thread.continue_suggested = True
    else:
        thread.signal("compact", {"by": "bob"})
        thread.archive_refused("RecordConflict")
    thread.advance(seconds=61)
    assert not thread.closed
    assert not [sleep for sleep in thread.waiting(Sleep) if not (isinstance(sleep, Sleep) and sleep.open_ended)]


def learning_after_a_wait(spec: AgentSpec) -> Thread:
    """Return a thread that waited for a message in vain, and whose LLM is asked what it has learnt."""
    thread = begun_thread(spec, idle_limit=60)
    thread.reply(says(ANSWER))
    thread.advance(seconds=61)
    finish_notes(thread)
    assert thread.state.ending.learning == "asked"
    return thread


def check_audit(thread: Thread) -> None:
    """Check that the log is accepted."""
    thread.check_consistent()
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None
