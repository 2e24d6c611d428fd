"""The status that `show` prints first: the current action or wait, the next one, the last error, and how the run
continues.
"""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.views import ThreadState
from holdfast.cli.screens.thread_screens import show_screen
from holdfast.client.reading.recent import ERROR_CHARS, errors_in, last_event, running_calls
from holdfast.client.showing import RECENT_EVENTS, continuation, show_thread
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.policy import Policy, Terms, allow, ask
from holdfast.core.llm.outages import LLMFailure, Outage
from holdfast.core.log.event_log import event_json
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.error_types import LLM_REJECTED
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views.status import NextStep, doing, following, run_view
from holdfast.core.run.views.web_ui import current_details
from holdfast.core.temporal.history_reader import read_events
from holdfast.errors import EventsMissing
from tests.support.examples import examples
from tests.support.people import PEOPLE
from tests.support.plays import SEEDS, play
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says
from tests.unit.core.temporal.test_history import RECORDED, recorded

ASKING = Policy(rules=(allow("look"), ask("pay", terms=Terms(expires_after=3_600))))

FIRST_RELEASE = sorted(
    {name for name in RECORDED if name.startswith("0.1.0/")}
    - {"0.1.0/continued.2", "0.1.0/reopened.2"}  # they begin at the end of another history
)


def as_json(events: list[AgentEvent]) -> list[dict[str, Any]]:
    """Return events as `log --json` prints them."""
    return [json.loads(json.dumps(event_json(event), default=str)) for event in events]


def test_a_run_names_its_wait_and_its_next_action() -> None:
    """From its start to its end, the status gives the current action, and the next one with its trigger."""
    thread = Thread(agent_spec(policy=ASKING), idle_limit=3_600)
    assert doing(thread.state) == "waits for a worker to load its agent"
    thread.load()
    assert doing(thread.state) == "calls the LLM for step 1"
    thread.reply(calls("pay", "look"))
    assert doing(thread.state) == "runs look, and waits for a decision on request 1"
    assert following(thread.state) == (
        NextStep(when="request 1 is approved", then="pay runs"),
        NextStep(when="request 1 is not decided before 2026-01-02 04:04 UTC", then="it is denied"),
        NextStep(when="every call of the step has its result", then="it calls the LLM for step 2"),
    )
    thread.finish(2)
    assert doing(thread.state) == "waits for a decision on request 1"
    thread.decide("1")
    thread.finish(1)
    thread.say("and this")
    assert doing(thread.state) == "shows a message to the LLM, after the LLM call under way if there is one"
    thread.reply(calls("look"))
    thread.finish(3)
    thread.reply(says("done"))
    assert doing(thread.state) == "waits for a message, until 2026-01-02 04:04 UTC"
    assert following(thread.state) == (
        NextStep(when="a message comes", then="it calls the LLM for step 4"),
        NextStep(when="none comes before 2026-01-02 04:04 UTC", then="it completes"),
    )
    thread.wake()
    assert (doing(thread.state), following(thread.state)) == ("has completed", ())


@pytest.mark.parametrize("signed", [False, True])
def test_a_blocked_run_names_the_signal_or_the_command_that_signs(signed: bool) -> None:
    """The Web UI can sign nothing: where signatures are required, it names the command."""
    policy = Policy(rules=(allow(),), approvers=PEOPLE, signatures="required" if signed else "optional")
    thread = loaded_thread(agent_spec(policy=policy))
    thread.refuse(LLM_REJECTED)
    details = current_details(thread.state)
    assert ("`holdfast retry t`" in details, "the signal `retry` with" in details) == (signed, not signed)


def test_a_paused_or_blocked_run_names_its_next_action() -> None:
    """The status is `nothing until a time or a person`, and then the action that was due."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    thread.signal("pause", {"by": "bob", "until": "2026-12-01T10:00:00Z"})
    assert doing(thread.state) == "waits until 2026-12-01 10:00 UTC, or for a person to resume it"
    assert following(thread.state) == (
        NextStep(
            when="2026-12-01 10:00 UTC comes, or a person resumes it", then="it waits for a decision on request 1"
        ),
    )
    thread = loaded_thread(agent_spec(limits=Limits(max_steps=1)))
    thread.reply(calls("look"))
    thread.finish(1)
    assert doing(thread.state) == "waits for a person to fix the cause (StepLimit)"
    assert following(thread.state) == (
        NextStep(when="the cause is fixed and a person sends `retry`", then="it calls the LLM for step 2"),
    )


@settings(max_examples=examples(8, 60))
@given(SEEDS)
def test_every_state_has_a_text(seed: int) -> None:
    """After any event there is one line for now, one for the next action unless the run is over, the same in the Web
    UI, and a valid view.
    """
    thread, state = play(seed).thread, RunState(thread="t")
    for event in thread.log:
        state = evolve(state, event)
        text = doing(state)
        assert text == text.strip() != ""
        assert "\n" not in text
        assert bool(following(state)) != bool(state.outcome) or text.startswith("stops because of")
        assert ThreadState.model_validate(run_view(state)).now == text
    headline = current_details(state).splitlines()[0]
    assert headline.endswith(f" · {run_view(state)['lifecycle']}") == (state.status == "running")


@pytest.mark.parametrize("name", FIRST_RELEASE)
def test_threads_recorded_by_the_first_release_have_a_text(name: str) -> None:
    """Each of its events leads to a phase and to a text, and the errors among them are found."""
    state, events = RunState(), [*read_events(recorded(name).events)]
    for event in events:
        state = evolve(state, event)
        assert run_view(state)["now"]
    last = last_event(as_json(events))
    assert last
    assert (last["position"], last["type"]) == (events[-1].position, events[-1].type)
    assert show_screen({**run_view(state), "errors": errors_in(as_json(events))}, retrying=[], ui=None).plain


def test_errors_are_named_with_their_positions() -> None:
    """The last five are listed: failed calls, unknown outcomes, rejected replies, signals and decisions, and blocks."""
    thread = loaded_thread(features=1)
    assert errors_in(as_json(thread.log)) == []
    thread.reply(calls("look", "pay"))
    thread.finish(1, "no such file", status="failed")
    thread.signal("nonsense", {"by": "eve"})
    thread.decide("1", by="bob")
    thread.finish(2, "timed out", status="unknown")
    thread.signal("approve", {"request": "9", "by": "eve"})
    thread.decide("2", "abandon")
    thread.reply(LLMReply(rejected="it is empty."))
    thread.refuse(LLM_REJECTED)
    errors = errors_in(as_json(thread.log))
    assert [(each["type"], each["what"]) for each in errors] == [
        ("reconcile_requested", "call 2 of pay: its outcome is unknown: timed out"),
        ("decision_received", "approve on request 9 by eve did not count: no request 9; open: 2"),
        ("tool_call_finished", "call 2 of pay: unknown: The outcome is unknown; alice gave up finding out"),
        ("reply_rejected", "a reply could not be used: it is empty."),
        ("run_blocked", f"blocked by {LLM_REJECTED}: no"),
    ]
    assert all(thread.log[each["position"]].type == each["type"] for each in errors)
    earlier = errors_in(as_json(thread.log[: errors[0]["position"]]))
    assert [each["what"] for each in earlier] == [
        "call 1 of look: failed: no such file",
        "nonsense by eve was refused: no such signal",
    ]


def test_an_outage_is_an_error_though_the_llm_has_answered() -> None:
    """The error gives the number of failed attempts, and the reason of the last one."""
    thread = loaded_thread()
    failure = LLMFailure(at=NOW, seconds=1, cause="InternalServerError", message="503: overloaded")
    thread.reply(says("done").model_copy(update={"outage": Outage.of(None, failure), "attempt": 2}))
    (errors,) = errors_in(as_json(thread.log))
    assert errors["what"].startswith("the LLM answered after 1 failed attempt")
    assert "503: overloaded" in errors["what"]


def test_errors_are_few_short_and_read_from_any_release() -> None:
    """The list is bounded for any number and length; an event unknown to this release is no error."""
    failed = {"type": "tool_call_finished", "number": 1, "status": "failed", "content": "x\n" * 10_000}
    many = [{"position": at, "at": NOW.isoformat(), **failed} for at in range(50)]
    errors = errors_in([*many, {"type": "run_blocked"}, {"type": "of_a_later_release", "position": 51}])
    assert [each["position"] for each in errors] == [45, 46, 47, 48, 49]
    assert max(len(each["what"]) for each in errors) <= ERROR_CHARS


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["content", "status", "outage", "request", "call", "number"]),
            st.none() | st.text() | st.integers(),
        ),
        max_size=5,
    )
)
def test_no_event_of_any_shape_breaks_the_errors(events: list[dict[str, Any]]) -> None:
    """A later release's event under one of our names is left out if it has another meaning."""
    kinds = ("tool_call_finished", "reconcile_requested", "llm_replied", "run_blocked", "decision_received")
    for kind in kinds:
        errors_in([{"type": kind, "position": 0, "at": "", **event} for event in events])


def test_calls_in_progress_have_a_start_and_no_end() -> None:
    """Started calls without an end are listed with their arguments, oldest first."""
    thread = loaded_thread()
    thread.reply(calls("look", "look", "pay"))
    thread.finish(1)
    assert running_calls(as_json(thread.log)) == ["look()"]


@pytest.mark.parametrize(
    ("status", "silent", "command"),
    [
        ("running", False, None),
        ("running", True, "worker.py"),
        ("waiting_approval", False, "pending t"),
        ("waiting_message", False, "say t MESSAGE"),
        ("paused", False, "resume t"),
        ("paused_in_temporal", True, "temporal workflow unpause -w t"),
        ("blocked", False, "retry t"),
        ("completed", False, "start TASK --thread t"),
        ("failed", False, "start TASK --thread t"),
        ("cancelled", False, "start TASK --thread t"),
    ],
)
def test_a_thread_says_by_which_command_it_continues(status: str, silent: bool, command: str | None) -> None:
    """An open thread needs no command, or the verb that ends its wait; a closed one needs a further run."""
    advice = continuation({"thread": "t", "status": status}, silent=silent, sealed=True)
    assert advice["why"]
    assert advice["command"] == command if command is None else command in advice["command"]


def test_a_thread_that_retries_a_call_points_to_the_reason() -> None:
    """Perhaps only a person can help, such as with a worker that has the tool."""
    view = {"thread": "t", "status": "running", "retrying": [{"activity": "call_tool", "attempt": 4}]}
    assert "see why it fails" in continuation(view, silent=False, sealed=True)["why"]


def test_a_thread_that_cannot_be_continued_gives_the_reason() -> None:
    """A thread needs the fleet key, and an archived branch is never continued."""
    keyless = continuation({"thread": "t", "status": "completed"}, silent=False, sealed=False)
    assert keyless["command"] is None
    assert "HOLDFAST_FLEET_KEYS" in keyless["why"]
    aside = continuation({"thread": "t~reset-1", "status": "running"}, silent=False, sealed=True)
    assert (aside["command"], "a reset of t" in aside["why"]) == (None, True)


def test_the_screen_begins_with_the_most_important_lines() -> None:
    """The screen has the current action, the next one, the last event with its age, and errors with positions; no text
    acts on the terminal.
    """
    thread = loaded_thread()
    thread.reply(calls("look"))
    thread.finish(1, "evil\x1b[2J\u202e", status="failed")
    events = as_json(thread.log)
    view = {**run_view(thread.state), "errors": errors_in(events), "last_event": last_event(events)}
    view["continue"] = continuation(view, silent=False, sealed=True)
    shown = show_screen(view, retrying=[], ui=None, last=events[-1], now=thread.log[-1].at + timedelta(minutes=3)).plain
    head, _, now, then, last, error, *_ = shown.splitlines()
    assert head.endswith(", evaluating")
    assert now.split(maxsplit=1) == ["Now", "calls the LLM for step 2"]
    assert then.startswith("Next       when the LLM has replied: ")
    assert f"{events[-1]['position']}  " in last
    assert ", 3m ago: " in last
    assert error.startswith(f"Error      {events[-1]['position']}  ")
    assert not {"\x1b", "\u202e"} & set(shown)
    assert "nothing to do: it continues by itself" in shown


class Recording:
    """Threads with one long thread, which record the reads."""

    sealed = True

    def __init__(self, view: dict[str, Any], events: list[dict[str, Any]], missing: int = 0) -> None:
        self.view, self.events, self.missing = view, events, missing
        self.read: list[int] = []
        self.asked_workers: list[bool] = []
        self.reader = self.ownership = self

    def foreign(self, thread: str) -> None:
        """Treat every run as the thread's own."""

    async def state(self, thread: str, *, found: Any, note: Any) -> dict[str, Any]:
        note("no worker answered") if self.missing < 0 else None
        return dict(self.view)

    async def lines(self, thread: str, start: int, *, use_worker: bool, **_: Any) -> AsyncIterator[bytes]:
        self.asked_workers.append(use_worker)
        if start < self.missing:
            raise EventsMissing("gone", stop=self.missing)
        for event in self.events[start:]:
            self.read.append(event["position"])
            yield json.dumps(event).encode()


def long_thread(count: int) -> list[dict[str, Any]]:
    """Return the events of a thread with that many failed calls."""
    failed = {"type": "tool_call_finished", "number": 1, "status": "failed", "content": "no", "at": NOW.isoformat()}
    return [{**failed, "position": position} for position in range(count)]


async def test_show_reads_only_the_last_events_of_a_long_thread() -> None:
    """Of ten thousand events, `show` reads two hundred, and of those as many as are still readable."""
    view = {**run_view(RunState(thread="t")), "events": 10_000}
    threads: Any = Recording(view, long_thread(10_000))
    notes: list[str] = []
    shown = await show_thread(threads, "t", note=notes.append)
    assert threads.read == list(range(10_000 - RECENT_EVENTS, 10_000))
    assert [each["position"] for each in shown.view["errors"]] == list(range(9_995, 10_000))

    threads = Recording(view, long_thread(10_000), missing=9_998)
    shown = await show_thread(threads, "t", note=notes.append)
    assert (threads.read, len(shown.view["errors"]), notes) == ([9_998, 9_999], 2, [])
    assert shown.view["unanswered"] is None

    threads = Recording(view, long_thread(0), missing=20_000)
    shown = await show_thread(threads, "t", note=notes.append)
    assert (shown.last, shown.view["errors"], notes) == (None, [], [])


async def test_an_unanswered_query_is_not_repeated() -> None:
    """The rest comes from the history, and calls without a worker are not shown as running. The view says so, for those
    who only read that.
    """
    threads: Any = Recording({**run_view(RunState(thread="t")), "events": 1}, long_thread(1), missing=-1)
    notes: list[str] = []
    shown = await show_thread(threads, "t", note=notes.append)
    assert (notes, threads.asked_workers, shown.view["running"]) == (["no worker answered"], [False], [])
    assert "worker" in shown.view["continue"]["command"]
    assert shown.view["unanswered"] == "no worker answered"
