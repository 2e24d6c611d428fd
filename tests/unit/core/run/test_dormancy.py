"""An agent that puts itself to sleep: its wake trigger wakes it once, and no event is lost."""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.activities.builtin_tools.dormancy import dormancy_tools
from holdfast.audit.judge.audit import Audit
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.core.agents.agent import Agent, AgentSpec, Limits
from holdfast.core.agents.catalog import Catalog
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log.events import DormancyBegan, RunFinished, ToolCallFinished, WakeReceived
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.refusals import RECORDED
from holdfast.core.run.state.dormancy import BUFFERED, BUFFERED_BYTES, SEEN, WAITS
from holdfast.core.run.views.status import run_view, state_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.run.waits.dormancy import DATA_BYTES
from holdfast.core.tools.decorator import tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.triggers import LONGEST_SLEEP, RUNTIME_TOOLS, TimeTrigger, read_trigger
from holdfast.errors import CatalogError, EventOutOfPlace
from tests.support.runs import NOW, Thread, agent_spec, loaded_thread, says, tool_spec

TOOLS = tuple(each.spec for each in dormancy_tools())


def sleeper(*tools: Any, **changes: Any) -> AgentSpec:
    """Return an agent that can sleep."""
    others = (tool_spec("look"), tool_spec("pay", Effect.UNSAFE))
    policy = Policy(rules=(ask("pay"), allow("look"), allow("sleep_until"), allow("wait_for_event")))
    return agent_spec(**({"tools": (*TOOLS, *others, *tools), "policy": policy} | changes))


def calling(**made: Any) -> LLMReply:
    """Return a reply that calls tools: name → arguments, or a list of them."""
    each = [(name, one) for name, value in made.items() for one in (value if isinstance(value, list) else [value])]
    calls = tuple(ToolCall(id=f"c{at}", name=name, arguments=json.dumps(one)) for at, (name, one) in enumerate(each))
    return LLMReply(message=AssistantMessage(content=calls), usage=Usage(prompt_tokens=10, completion_tokens=1))


def thread_that(spec: AgentSpec | None = None, **made: Any) -> Thread:
    """Return a thread at the level that has dormancy, whose LLM has made these calls."""
    thread = loaded_thread(spec or sleeper(), features=1)
    thread.reply(calling(**made))
    return thread


def wake(thread: Thread, **payload: Any) -> str:
    """Send an event, or wake the run; return the outcome."""
    return thread.update("wake", payload)["outcome"]


def result(thread: Thread, number: int = 1) -> ToolCallFinished:
    """Return the result of a call."""
    (finished,) = [event for event in thread.log if isinstance(event, ToolCallFinished) and event.number == number]
    return finished


def continue_as_new(thread: Thread) -> None:
    """Make the run continue as new."""
    before, thread.continue_suggested = len(thread.snapshots), True
    thread.signal("nonsense")
    while len(thread.snapshots) == before:
        thread.archive()
    thread.continue_suggested = False  # the history of the next run is short


def audited(thread: Thread) -> Thread:
    """Check that every event follows from those before, and that a replay leads to the same state."""
    thread.check_consistent()
    audit = Audit("t")
    audit.take(thread.log)
    assert audit.fault is None, audit.fault
    return thread


# Time.


def test_a_run_sleeps_until_a_time_without_an_activity() -> None:
    """Only one timer is open; when it fires, the LLM reads the duration of the sleep and the current time."""
    thread = thread_that(sleep_until={"until": "3h"})
    assert (thread.state.status, thread.running_calls, thread.calling_llm()) == ("dormant", [], False)
    assert thread.state.wake_at(thread.at) == thread.at + timedelta(hours=3)
    thread.wake()
    assert result(thread).text == f"You slept for 3h. It is now {thread.at:%Y-%m-%dT%H:%M:%SZ}."
    assert (result(thread).status, thread.calling_llm()) == ("ok", True)
    audited(thread)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("90s", NOW + timedelta(seconds=90)),
        ("20d", NOW + timedelta(days=20)),
        ("2026-05-06T07:08:09Z", datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)),
        ("2026-05-06T07:08+02:00", datetime(2026, 5, 6, 5, 8, tzinfo=UTC)),
        (" 2026-05-06 07:08z ", datetime(2026, 5, 6, 7, 8, tzinfo=UTC)),
    ],
)
def test_a_time_or_a_duration_is_read(text: str, until: datetime) -> None:
    """A duration counts from now on, and a time has an offset."""
    assert read_trigger("sleep_until", {"until": text}, at=NOW) == TimeTrigger(kind="time", until=until)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tomorrow", "neither a time nor a duration"),
        ("", "neither a time nor a duration"),
        ("2026-05-06T07:08", "no offset"),
        ("2026-02-30T07:08Z", "neither"),
        ("9999-12-31T23:59:59-23:59", "neither a time"),
        ("2999-01-01T00:00Z", "more than 10 years"),
        ("999999999d", "more than 10 years"),
        (f"{LONGEST_SLEEP + 1}s", "more than 10 years"),
        ("-3h", "neither"),
        ("\uff12d", "neither"),
        ("2026-W10-1T00:00Z", "neither"),
        (7, "missing"),
        (None, "missing"),
    ],
)
def test_a_bad_time_is_explained_in_the_result(text: Any, why: str) -> None:
    """No argument of the LLM raises; the call fails at once with a sentence, and the LLM is called again."""
    assert why in str(read_trigger("sleep_until", {"until": text}, at=NOW))
    thread = thread_that(sleep_until={"until": text})
    assert (result(thread).status, why in result(thread).text, thread.calling_llm()) == ("failed", True, True)
    audited(thread)


def test_a_time_that_has_passed_ends_the_call_at_once() -> None:
    """A sleep that was approved too late does not begin, and the result says so."""
    spec = sleeper(policy=Policy(rules=(ask("sleep_until"),)))
    thread = thread_that(spec, sleep_until={"until": "2026-01-02T04:00:00Z"})
    assert thread.state.status == "waiting_approval"
    thread.advance(days=2)
    assert thread.decide("1") == "accepted"
    assert result(thread).text.startswith("You did not sleep: 2026-01-02T04:00:00Z has passed. It is now 2026-01-04T")
    audited(thread)


def test_a_duration_counts_from_the_start_of_the_call() -> None:
    """An approval that took a day does not shorten the sleep; arguments edited by a person count."""
    spec = sleeper(policy=Policy(rules=(ask("sleep_until"),)))
    thread = thread_that(spec, sleep_until={"until": "3h"})
    thread.advance(days=1)
    assert thread.decide("1", arguments={"until": "5h"}) == "accepted"
    assert thread.state.dormancy.until == thread.at + timedelta(hours=5)
    thread.wake()
    assert result(thread).text.startswith('[alice changed the arguments to {"until":"5h"}]\nYou slept for 5h.')
    audited(thread)


# Events.


def test_an_event_wakes_the_call_that_waits_for_it() -> None:
    """The result has the event's data, its sender and the time; its trust level is that of web content."""
    thread = thread_that(wait_for_event={"name": "deploy.finished", "match": {"service": "web"}})
    assert (thread.state.status, thread.state.wake_at(thread.at)) == ("dormant", None)
    thread.advance(hours=2)
    assert wake(thread, event="deploy.finished", id="7", data={"service": "web", "ok": True}, by="ci") == "delivered"
    text, line = result(thread).text.split("\n")
    assert text.startswith("Event deploy.finished arrived after 2h. It is now ")
    data = {"service": "web", "ok": True}
    assert json.loads(line) == {"event": "deploy.finished", "id": "7", "by": "ci", "data": data}
    assert (result(thread).trust, thread.calling_llm(), thread.state.dormancy.waits) == ("web", True, ())
    audited(thread)


@pytest.mark.parametrize(
    ("match", "data", "fits"),
    [
        ({}, {}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": ""}, {"a": {}}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
    ],
)
def test_match_compares_fields_with_their_types(match: dict[str, Any], data: dict[str, Any], fits: bool) -> None:
    """Every field must be present with a value that is equal as JSON; the data may have other fields."""
    thread = thread_that(wait_for_event={"name": "e", "match": match})
    assert wake(thread, event="e", data=data) == ("delivered" if fits else "buffered")
    audited(thread)


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "no spaces"},
        {"name": ""},
        {"name": "x" * 101},
        {"name": "e\n"},
        {"name": "ė"},
        {},
        {"name": "e", "match": []},
        {"name": "e", "match": {"a": {"b": 1}}},
        {"name": "e", "match": {str(at): at for at in range(21)}},
        {"name": "e", "match": {"a": "x" * 2_000}},
        {"name": "e", "match": {"a": 2**60 + 1}},
        {"name": "e", "until": "never"},
        {"name": "e", "until": 5},
    ],
)
def test_a_bad_wait_is_a_result(arguments: dict[str, Any]) -> None:
    """Names and matches are bounded; the result names the fault, and nothing waits."""
    thread = thread_that(wait_for_event=arguments)
    assert (result(thread).status, thread.state.dormancy.waits, thread.calling_llm()) == ("failed", (), True)
    audited(thread)


def test_the_time_of_a_wait_runs_out() -> None:
    """The LLM reads that nothing arrived; a later event is kept."""
    thread = thread_that(wait_for_event={"name": "e", "until": "15m"})
    thread.wake()
    assert result(thread).text.startswith("No such event arrived within 15m. It is now ")
    assert wake(thread, event="e") == "buffered"
    audited(thread)


def test_an_event_before_the_wait_is_kept_and_ends_it_at_once() -> None:
    """The first call that waits for such an event consumes the oldest one; no other call gets it."""
    thread = loaded_thread(sleeper(), features=1)
    assert [wake(thread, event="e", data={"n": n}) for n in (1, 2)] == ["buffered", "buffered"]
    thread.advance(minutes=5)
    thread.reply(calling(wait_for_event=[{"name": "e"}, {"name": "e"}, {"name": "e"}]))
    assert [json.loads(result(thread, n).text.split("\n")[1])["data"] for n in (1, 2)] == [{"n": 1}, {"n": 2}]
    assert result(thread).text.startswith("Event e arrived 5m before you waited for it.")
    assert (result(thread).trust, thread.state.dormancy.buffered) == ("web", ())
    assert [wait.number for wait in thread.state.dormancy.waits] == [3]
    began = [event for event in thread.log if isinstance(event, DormancyBegan)]
    received = [event.position for event in thread.log if isinstance(event, WakeReceived)]
    assert [event.wake for event in began] == [*received, 0]
    audited(thread)


def test_one_event_wakes_every_open_wait_that_fits() -> None:
    """Sibling calls with the same wait are woken together, and the event is not kept for a later wait."""
    waits = [{"name": "e"}, {"name": "e", "match": {"a": 1}}, {"name": "e", "match": {"a": 2}}]
    thread = thread_that(wait_for_event=waits)
    assert wake(thread, event="e", data={"a": 1}) == "delivered"
    assert [wait.number for wait in thread.state.dormancy.waits] == [3]
    assert (thread.state.dormancy.buffered, thread.state.status) == ((), "dormant")
    audited(thread)


def test_an_event_of_the_same_id_counts_once() -> None:
    """A sender may repeat an event when in doubt; ids are remembered within a bounded window, also across runs."""
    thread = thread_that(wait_for_event={"name": "e", "match": {"n": 1}})
    assert [wake(thread, event="e", id="a"), wake(thread, event="e", id="a")] == ["buffered", "duplicate"]
    assert wake(thread, event="e", id="b", data={"n": 1}) == "delivered"
    assert wake(thread, event="f", id="b") == "duplicate"
    thread.reply(calling(sleep_until={"until": "1h"}))
    continue_as_new(thread)
    assert wake(thread, event="e", id="a") == "duplicate"
    audited(thread)


def test_an_event_sent_to_one_call_wakes_that_call_only() -> None:
    """If that call waits for another event, or does not sleep, the outcome says so."""
    thread = thread_that(wait_for_event=[{"name": "e"}, {"name": "e"}], sleep_until={"until": "1h"})
    assert wake(thread, event="f", call=1) == "wrong_event"
    assert wake(thread, event="e", call=3) == "wrong_event"
    assert wake(thread, event="e", call=4) == "not_waiting"
    assert wake(thread, event="e", call=2) == "delivered"
    assert wake(thread, call=3, reason="now") == "delivered"
    assert [wait.number for wait in thread.state.dormancy.waits] == [1]
    audited(thread)


def test_a_bad_name_of_an_event_is_explained_in_words() -> None:
    """A mistyped name gets the rule in words, without a regular expression."""
    rejected = thread_that(sleep_until={"until": "3h"}).update("wake", {"event": "two words"})
    assert rejected["outcome"] == "malformed"
    assert rejected["explanation"].startswith("event: an event's name begins with a letter or digit, and has")


def test_the_shown_event_is_the_one_that_the_run_waits_for() -> None:
    """The command of `show` and the JSON in the Web UI have the fields of `match`, and no value can add a line."""
    match = {"service": "it's ``` \x1b[2J\u202e\n```", "build": 5}
    thread = thread_that(wait_for_event={"name": "deploy.finished", "match": match})
    details = current_details(thread.state)
    blocks = [json.loads(block) for block in re.findall(r"^```json\n(.*?)\n```$", details, re.MULTILINE | re.DOTALL)]
    payload = next(block for block in blocks if "event" in block)
    assert payload == {"event": "deploy.finished", "id": "", "data": match, "by": "your name"}
    shown = show_screen({**run_view(thread.state), "continue": None}, retrying=[], ui=None).plain
    assert not {"\x1b", "\u202e"} & set(shown)
    (command,) = [line for line in shown.splitlines() if "--event" in line]
    arguments = shlex.split(command)
    assert arguments[-4:-1] == ["--event", "deploy.finished", "--data"]
    assert json.loads(arguments[-1]) == match
    assert wake(thread, **payload) == "delivered"


def test_somebody_wakes_a_run_without_an_event() -> None:
    """All waits end early, with the person and the reason; if nothing sleeps, nothing happens."""
    thread = thread_that(sleep_until={"until": "20d"}, wait_for_event={"name": "e"})
    thread.advance(days=3)
    assert wake(thread, by="alice", reason="it is done\n\nYou may pay.") == "delivered"
    for number in (1, 2):
        head, line = result(thread, number).text.split("\n")
        assert head.startswith("You were woken after 3d, before what you waited for. It is now ")
        assert json.loads(line) == {"by": "alice", "reason": "it is done You may pay."}
    assert wake(thread) == "not_waiting"
    audited(thread)


def test_rejected_events_give_the_reason_and_are_recorded() -> None:
    """Each outcome has its reason; the log has the rejected event without its body."""
    thread = thread_that(sleep_until={"until": "1h"})
    for payload in (7, [1, 2], "what?", {"event": "no spaces"}, {"event": 5}, {"data": {"a": 1}}, {"id": "x"}):
        assert thread.update("wake", payload)["outcome"] == "malformed", payload
    assert wake(thread, event="e", data={"a": "x" * (DATA_BYTES - len('{"a":""}') + 1)}) == "malformed"
    assert wake(thread, event="e", id="x" * 101) == "malformed"
    assert wake(thread, event="e", call=0) == "malformed"
    rejected = [event for event in thread.log if event.type == "signal_rejected"]
    assert len(rejected) == 10
    assert wake(thread, event="e", data={"a": "x" * (DATA_BYTES - len('{"a":""}'))}) == "buffered"
    assert thread.state.status == "dormant"
    thread.cancel()
    assert wake(thread, event="e") == "too_late"
    awake = loaded_thread(features=1)
    assert wake(awake, event="e") == "not_waiting"
    older = loaded_thread(sleeper())
    assert older.run.refused("wake", {}, at=older.at) is not None
    audited(thread)


def test_a_run_of_an_older_level_does_not_sleep() -> None:
    """Below the level, `wake` is a signal of an unknown name."""
    thread = loaded_thread(sleeper())
    thread.signal("wake", {"event": "e"})
    assert thread.log[-1].type == "signal_rejected"
    assert thread.state.dormancy.buffered == ()


# Messages, pauses, cancellations, siblings.


@pytest.mark.parametrize("when_busy", ["queue", "interrupt", "reject"])
def test_a_message_wakes_a_run(when_busy: str) -> None:
    """The waits end early, then the LLM reads the message; it may sleep again."""
    thread = thread_that(sleep_until={"until": "20d"}, wait_for_event={"name": "e"})
    thread.advance(days=2)
    assert thread.say("how is it?", when_busy=when_busy) == "accepted"
    assert result(thread).text.startswith("You were woken after 2d by a message, which follows. It is now ")
    assert result(thread).trust is None
    assert [message["content"] for message in thread.messages()[-1:]] == ["how is it?"]
    thread.reply(calling(sleep_until={"until": "18d"}))
    assert thread.state.status == "dormant"
    audited(thread)


def test_a_run_with_a_waiting_message_does_not_fall_asleep() -> None:
    """A message that arrived while the LLM was deciding to sleep is read first."""
    thread = loaded_thread(sleeper(), features=1)
    assert thread.say("wait!") == "queued"
    thread.reply(calling(sleep_until={"until": "20d"}))
    assert result(thread).text.startswith("You did not sleep: a message has arrived, and follows.")
    assert thread.messages()[-1]["content"] == "wait!"
    audited(thread)


def test_a_pause_holds_a_sleeping_run() -> None:
    """Waits end while it is paused, by time and by events, and nothing follows before it resumes."""
    thread = thread_that(sleep_until={"until": "1h"}, wait_for_event={"name": "e"})
    paused = thread.update("pause", {"by": "alice"})
    assert paused == {"outcome": "accepted", "explanation": "the run is paused until somebody resumes it"}
    thread.advance(hours=2)
    assert wake(thread, event="e") == "delivered"
    assert (thread.state.status, thread.state.dormancy.waits, thread.calling_llm()) == ("paused", (), False)
    thread.update("resume", {"by": "alice"})
    assert thread.calling_llm()
    audited(thread)


def test_a_cancellation_ends_a_sleeping_run_at_once() -> None:
    """The call ends as cancelled, and so does the run."""
    thread = thread_that(sleep_until={"until": "20d"})
    thread.cancel()
    assert (result(thread).status, thread.state.status) == ("cancelled", "cancelled")
    assert isinstance(thread.log[-1], RunFinished)
    assert state_view(thread.state)["dormancy"] is None
    audited(thread)


def test_siblings_run_on_and_the_step_ends_when_all_have_results() -> None:
    """With a tool in progress the run is running; with a request open it waits for approval; then it is dormant."""
    thread = thread_that(sleep_until={"until": "1h"}, look={}, pay={})
    assert (thread.state.status, thread.running_calls) == ("running", [2])
    thread.finish(2)
    assert thread.state.status == "waiting_approval"
    assert thread.decide("1", "deny") == "accepted"
    assert (thread.state.status, thread.calling_llm()) == ("dormant", False)
    thread.wake()
    assert thread.calling_llm()
    audited(thread)


def test_an_approval_request_expires_while_the_run_sleeps() -> None:
    """One timer serves both and fires at the earlier time."""
    spec = sleeper(policy=Policy(rules=(ask("pay", terms=Terms(expires_after=60)), allow("sleep_until"))))
    thread = thread_that(spec, sleep_until={"until": "1h"}, pay={})
    thread.wake()
    assert (result(thread, 2).status, thread.state.status) == ("denied", "dormant")
    thread.wake()
    assert result(thread).text.startswith("You slept for 1h")
    audited(thread)


def test_no_event_ends_a_wait_that_does_not_sleep() -> None:
    """A forged event that puts an unstarted call to sleep is out of place."""
    thread = thread_that(sleep_until={"until": "1h"})
    trigger = TimeTrigger(kind="time", until=thread.at)
    for number in (1, 2):
        with pytest.raises(EventOutOfPlace):
            evolve(thread.state, DormancyBegan(number=number, trigger=trigger, position=99, at=thread.at))


# Long lives.


def test_a_wait_survives_continue_as_new() -> None:
    """The next Temporal run sleeps until the same time, and has the buffered events."""
    thread = thread_that(sleep_until={"until": "20d"}, wait_for_event={"name": "e", "match": {"a": 1.5, "b": True}})
    until = thread.state.dormancy.until
    assert wake(thread, event="f", data={"n": 2**70}) == "buffered"
    before = thread.state.dormancy
    continue_as_new(thread)
    assert (thread.state.dormancy, thread.state.wake_at(thread.at), thread.state.status) == (before, until, "dormant")
    assert wake(thread, event="e", data={"a": 1.5, "b": True}) == "delivered"
    audited(thread)


def test_a_wait_that_was_open_when_the_run_was_closed_ends_as_cancelled() -> None:
    """The thread's next run reads the cancellation; buffered events and their ids stay."""
    thread = thread_that(sleep_until={"until": "20d"})
    assert wake(thread, event="e", id="x") == "buffered"
    thread.reopen()
    thread.load_thread()
    thread.load(1)
    assert (result(thread).status, thread.state.dormancy.waits) == ("cancelled", ())
    assert result(thread).text == "The run was closed from outside before this was done."
    assert [event.event for event in thread.state.dormancy.buffered] == ["e"]
    assert wake(thread, event="e", id="x") == "duplicate"


def test_verify_tools_run_after_a_long_sleep() -> None:
    """The LLM reads the changes before it acts, even if events made the run look busy meanwhile."""
    spec = sleeper(verify=("look",), limits=Limits(stale_after=3_600))
    thread = thread_that(spec, wait_for_event=[{"name": "e"}, {"name": "f"}])
    thread.advance(minutes=40)
    assert wake(thread, event="e") == "delivered"
    thread.advance(minutes=40)
    assert wake(thread, event="f") == "delivered"
    assert not thread.calling_llm()
    thread.finish_verification("changed")
    assert "waited for 1.3 hours" in thread.messages()[-1]["content"]
    audited(thread)


def test_the_record_is_written_when_the_run_falls_asleep() -> None:
    """The run archives once when it waits for people, and again when it sleeps after that in the same step."""
    thread = thread_that(sleep_until={"until": "20d"}, pay={})
    thread.archive()
    thread.decide("1", "deny")
    thread.archive()
    assert (thread.state.status, len(thread.record)) == ("dormant", len(thread.log))


def test_a_result_is_cut_to_the_agents_limit() -> None:
    """The log has all of the data; the LLM reads its head and tail."""
    spec = sleeper(limits=Limits(tool_result_chars=1_000))
    thread = thread_that(spec, wait_for_event={"name": "e"})
    assert wake(thread, event="e", data={"text": "x" * 10_000}) == "delivered"
    assert len(result(thread).text) < 1_200
    assert "characters left out" in result(thread).text
    (received,) = [event for event in thread.log if isinstance(event, WakeReceived)]
    assert len(received.data) > 10_000
    audited(thread)


# Bounds.


def test_floods_of_events_leave_the_state_bounded() -> None:
    """Buffered events are bounded in number and bytes, ids in number, rejections in the log by their count."""
    thread = thread_that(sleep_until={"until": "20d"})
    outcomes = [wake(thread, event="e", id=str(n)) for n in range(BUFFERED + RECORDED + 5)]
    assert outcomes == ["buffered"] * BUFFERED + ["too_many"] * (RECORDED + 5)
    assert len(thread.log) < BUFFERED + RECORDED + 20
    big = thread_that(sleep_until={"until": "20d"})
    assert [wake(big, event="e", data={"a": "x" * 16_000}) for _ in range(20)].count("buffered") == 12
    full = big.state.dormancy
    event = full.buffered[0].model_copy(update={"data": ""})
    left = BUFFERED_BYTES - sum(len(each.model_dump_json()) for each in (*full.buffered, event))
    assert full.has_room(event.model_copy(update={"data": "x" * left}))
    assert not full.has_room(event.model_copy(update={"data": "x" * (left + 1)}))
    many = thread_that(wait_for_event=[{"name": "e"}] * (WAITS + 2))
    assert len(many.state.dormancy.waits) == WAITS
    assert "the limit" in result(many, WAITS + 1).text
    dormancy = many.state.dormancy
    for n in range(SEEN + 5):
        dormancy = dormancy.record_id(str(n))
    assert len(dormancy.seen) == SEEN
    audited(thread)


# The catalog.


def test_an_agent_has_the_tools_only_on_request() -> None:
    """The spec, prompt and hash of existing agents stay unchanged."""
    from holdfast.activities.builtin_tools.offer import with_builtin_tools
    from holdfast.core.tools.secrets import NO_SECRETS
    from holdfast.storage.in_memory.memories import InMemoryMemories
    from holdfast.storage.in_memory.record import InMemoryArtifacts, InMemoryThreads

    agents = [Agent(name="a", instructions="x"), Agent(name="b", instructions="x", dormancy=True)]
    stores = {"artifacts": InMemoryArtifacts(), "memories": InMemoryMemories(), "threads": InMemoryThreads()}
    stores |= {"secrets": NO_SECRETS}
    catalog = with_builtin_tools(Catalog(agents=agents), **stores)  # type: ignore[arg-type]
    assert "sleep_until" not in [each.name for each in catalog.spec("a", default_llm="x").tools]
    tools = {each.name: each.kind for each in catalog.spec("b", default_llm="x").tools}
    assert {name: tools[name] for name in RUNTIME_TOOLS} == dict.fromkeys(RUNTIME_TOOLS, "runtime")
    assert "kind" not in tool_spec("look").model_dump(exclude_defaults=True)


def test_another_tool_of_that_name_is_rejected() -> None:
    """A worker does not start with an agent whose `sleep_until` is a user's own tool."""

    @tool(effect="read")
    def sleep_until(until: str) -> str:
        """Sleep."""
        return until

    with pytest.raises(CatalogError, match="'sleep_until' has the name of another one"):
        Catalog(agents=[Agent(name="a", instructions="x", dormancy=True, tools=[sleep_until])])
    Catalog(agents=[Agent(name="a", instructions="x", tools=[sleep_until])])


def test_the_tools_functions_describe_the_wait() -> None:
    """Called as Python functions, they parse their arguments as the run does, and wait for nothing."""
    from pathlib import Path

    from holdfast.core.tools.decorator import ToolContext

    context = ToolContext(thread="t", workspace=Path(), key="k", attempt=1, at=NOW)
    sleep, wait, check, run = dormancy_tools()
    assert sleep("3h", context=context) == TimeTrigger(kind="time", until=NOW + timedelta(hours=3))
    assert getattr(wait("e", context=context), "event", "") == "e"
    polls = check("look", {"changes": True}, {"at": "x"}, context=context)
    assert getattr(polls, "words", "") == 'a result of look({"at":"x"}) that changes'
    assert getattr(run("t-2", context=context), "words", "") == 'the end of the run of {"thread":"t-2"}'


def test_final_answers_are_not_affected() -> None:
    """As a control, an agent that can sleep but does not ends like any other."""
    thread = loaded_thread(sleeper(), features=1)
    thread.reply(says("done"))
    thread.archive()
    assert thread.state.outcome == "completed"
