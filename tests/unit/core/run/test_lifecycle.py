"""The lifecycle of a run: the kinds of its actions, and the phases that its events lead to."""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from holdfast.activities.builtin_tools.offer import subagent_tools
from holdfast.core.agents.agent import Limits
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.subagents import (
    CheckSubagentsRequest,
    EndSubagentsRequest,
    StartedSubagent,
    StartedSubagents,
    StartSubagentsRequest,
    SubagentReport,
    SubagentReports,
)
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.next_actions import (
    Action,
    AskForLearnings,
    Block,
    CallLLM,
    Compact,
    Complete,
    EndSubagents,
    Fail,
    Finish,
    LoadAgent,
    LoadPolicy,
    NoteProgress,
    Poll,
    ReportBudget,
    ResolveCalls,
    StartCalls,
    TakeMessages,
    Verify,
    Wait,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.views import lifecycle
from holdfast.core.run.views.lifecycle import PHASES, Kind, Phase, kind_of, phase_of
from tests.support.plays import ELSEWHERE, PLAYS, SEEDS, play
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says, tool_spec

ACTIONS: tuple[Action, ...] = (
    LoadAgent(),
    CallLLM(),
    LoadPolicy(),
    Compact(asking=True, answered_only=False),
    TakeMessages(),
    Verify(("look",)),
    ResolveCalls((1,)),
    StartCalls((1,)),
    NoteProgress(),
    Poll((1,)),
    AskForLearnings(),
    EndSubagents(),
    ReportBudget(),
    Complete(),
    Block("c", "m"),
    Wait(),
    Fail(),
    Finish(),
)

DOCS = Path(__file__).parents[4] / "docs"

LISTED: Mapping[str, frozenset[str]] = {
    before: frozenset(after.split(", "))
    for before, after in re.findall(r"^    ([\w-]+) → (.*)$", lifecycle.__doc__ or "", re.MULTILINE)
}
"""Phase → the phases that the module's docstring lists after it."""


def test_every_action_is_of_one_of_the_six_kinds() -> None:
    """No member of the union lacks a kind, and each kind leads to a phase."""
    assert {type(action) for action in ACTIONS} == set(get_args(Action))
    assert {kind_of(action) for action in ACTIONS} == set(get_args(Kind))
    assert set(PHASES) == set(get_args(Kind))


def test_the_docstring_states_each_phase_and_its_way_out() -> None:
    """Every phase is described; each that an action leads to has transitions, and no phase leads to itself."""
    described = re.findall(r"^- ([\w-]+): ", lifecycle.__doc__ or "", re.MULTILINE)
    assert tuple(described) == get_args(Phase)
    assert set(LISTED) == set(get_args(Phase))
    for before, after in LISTED.items():
        assert after, before
        assert before not in after
        assert after <= set(LISTED)


def test_the_documentation_lists_the_same_transitions() -> None:
    """The page that explains the lifecycle has the docstring's phases, in its order, each with its next phases."""
    page = (DOCS / "explanation/lifecycle.md").read_text().partition("## Eight phases")[2].partition("## ")[0]
    rows = re.findall(r"^\| ([\w-]+) \| [^|]+ \| ?(.*?) ?\|$", page, re.MULTILINE)[1:]
    assert [phase for phase, _ in rows] == list(get_args(Phase))
    assert {phase: frozenset(after.split(", ")) for phase, after in rows if after} == LISTED


def states(events: list[AgentEvent]) -> Iterator[RunState]:
    """Return the state before the first event, and after each."""
    state = RunState(thread="t")
    yield state
    for event in events:
        state = evolve(state, event)
        yield state


def transitions(thread: Thread) -> set[tuple[Phase, Phase]]:
    """Return the changes of phase of a thread, event by event."""
    phases = [phase_of(state) for state in states(thread.log)]
    return {(before, after) for before, after in pairwise(phases) if before != after}


@cache
def of_play(seed: int) -> set[tuple[Phase, Phase]]:
    """Return the changes of phase of a play."""
    return transitions(play(seed).thread)


@given(SEEDS)
def test_events_change_the_phase_as_the_docstring_lists(seed: int) -> None:
    """An event leads from a phase only to one that is listed after it."""
    for before, after in of_play(seed):
        assert after in LISTED[before], (before, after)


def test_each_listed_transition_happens() -> None:
    """Every listed transition occurs in some run, so every phase but the last has a way out."""
    listed = {(before, after) for before, afters in LISTED.items() for after in afters}
    seen = transitions(late_message()) | transitions(closed_during_cancellation()) | transitions(late_llm_reply())
    seen |= (
        transitions(long_wait_for_subagent()) | transitions(cancelled_at_once()) | transitions(closed_during_effect())
    )
    for seed in range(PLAYS):
        if listed <= seen:
            break
        seen |= of_play(seed)
    assert seen == listed


def cancelled_at_once() -> Thread:
    """Return a thread that is cancelled before its agent is loaded."""
    thread = Thread()
    thread.cancel()
    return thread


def closed_during_effect() -> Thread:
    """Return a thread closed from outside during an approved payment, and begun again."""
    thread = loaded_thread()
    thread.reply(calls("pay"))
    thread.decide("1")
    thread.reopen()
    thread.load_thread()
    return thread


def closed_during_cancellation() -> Thread:
    """Return a thread closed from outside while it cancels a sub-agent in the background, and begun again."""
    tools = tuple(each.spec for each in subagent_tools())
    thread = loaded_thread(agent_spec(tools=tools, subagents=("helper",)), features=1)
    call = ToolCall(id="a", name="run_agent", arguments='{"agent":"helper","task":"x","background":true}')
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    (start,) = thread.waiting(StartSubagentsRequest)
    thread.end(start, StartedSubagents(children=(StartedSubagent(number=1, run_id="c"),)))
    thread.reply(says("done"))
    assert thread.waiting(EndSubagentsRequest)
    thread.reopen()
    thread.load_thread()
    return thread


def long_wait_for_subagent() -> Thread:
    """Return a thread whose wait for a sub-agent is so long that it verifies the world before it calls its LLM."""
    tools = (*(each.spec for each in subagent_tools()), tool_spec("look"))
    limits = Limits(stale_after=60)
    thread = loaded_thread(agent_spec(tools=tools, subagents=("helper",), verify=("look",), limits=limits), features=1)
    call = ToolCall(id="a", name="run_agent", arguments='{"agent":"helper","task":"x"}')
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    (start,) = thread.waiting(StartSubagentsRequest)
    thread.end(start, StartedSubagents(children=(StartedSubagent(number=1, run_id="c"),)))
    assert phase_of(thread.state) == "delegating"
    thread.at += timedelta(minutes=2)
    thread.signal("subagent_ended", {"thread": "t.1"})
    (look,) = thread.waiting(CheckSubagentsRequest)
    thread.end(look, SubagentReports(reports=(SubagentReport(number=1, status="completed", text="done"),)))
    return thread


def late_llm_reply() -> Thread:
    """Return a thread that completes after a long LLM call, while a sub-agent works in the background."""
    tools = (*(each.spec for each in subagent_tools()), tool_spec("look"))
    limits = Limits(stale_after=60)
    thread = loaded_thread(agent_spec(tools=tools, subagents=("helper",), verify=("look",), limits=limits), features=1)
    call = ToolCall(id="a", name="run_agent", arguments='{"agent":"helper","task":"x","background":true}')
    thread.reply(LLMReply(message=AssistantMessage(content=(call,))))
    (start,) = thread.waiting(StartSubagentsRequest)
    thread.end(start, StartedSubagents(children=(StartedSubagent(number=1, run_id="c"),)))
    thread.at += timedelta(minutes=2)
    thread.reply(says("done"))
    assert thread.waiting(EndSubagentsRequest)
    return thread


def late_message() -> Thread:
    """Return a thread with a message waiting for the LLM when the agent's picture of the world becomes stale."""
    thread = loaded_thread(agent_spec(verify=("look",), limits=Limits(stale_after=60)))
    thread.reply(calls("look"))
    thread.finish(1)
    thread.say("one more thing")
    assert phase_of(thread.state) == "mutating"
    thread.at += timedelta(hours=1)
    thread.signal("nonsense")
    assert phase_of(thread.state) == "re-entering"
    return thread


@given(SEEDS)
def test_every_event_leads_to_a_next_action_and_a_phase(seed: int) -> None:
    """After each event, immediately and at any later time, there is a next action; an input can end every wait."""
    for state in states(play(seed).thread.log):
        for later in (timedelta(0), timedelta(days=400)):
            action = next_action(state, at=state.updated_at + later)
            assert kind_of(action) in PHASES
        assert phase_of(state) in get_args(Phase)
        assert (phase_of(state) == "terminated") == bool(state.outcome)


def test_the_plays_have_every_kind_of_event() -> None:
    """As a control, the plays cover all kinds of events."""
    seen = {event.type for seed in range(PLAYS) for event in play(seed).thread.log}
    assert seen | ELSEWHERE == {kind.model_fields["type"].default for kind in get_args(get_args(AgentEvent)[0])}


@given(SEEDS)
def test_only_an_event_changes_the_phase(seed: int) -> None:
    """The run's own state, after snapshots and continue-as-new, has the phase that its events alone lead to."""
    thread = play(seed).thread
    assert phase_of(thread.state) == phase_of(list(states(thread.log))[-1])


def test_time_alone_changes_no_phase() -> None:
    """If nothing is recorded, the phase stays, however long."""
    thread = loaded_thread(features=1)
    thread.reply(calls("pay"))
    for _ in range(3):
        before, phase = len(thread.log), phase_of(thread.state)
        thread.advance(days=30)
        assert (len(thread.log), phase_of(thread.state)) == (before, phase)


def test_the_phases_of_a_run_from_its_start_to_its_end() -> None:
    """A task, a call that asks, a message and an answer each show the expected phase."""
    thread = Thread(features=0, idle_limit=60)
    phases = [phase_of(thread.state)]

    def note() -> None:
        phases.append(phase_of(thread.state))

    thread.load()
    note()
    thread.reply(calls("pay", "look"))
    note()
    thread.finish(2)
    note()
    thread.decide("1")
    note()
    thread.finish(1)
    note()
    thread.say("and this")
    note()
    thread.reply(calls("look"))
    thread.finish(3)
    thread.reply(says("done"))
    note()
    thread.wake()
    note()
    assert phases == [
        "instantiated",
        "evaluating",
        "executing",
        "dormant",
        "executing",
        "evaluating",
        "mutating",
        "dormant",
        "terminated",
    ]


@pytest.mark.parametrize(
    ("signal", "status"), [("pause", "paused"), (None, "waiting_approval")], ids=["paused", "waiting"]
)
def test_the_status_of_a_dormant_run_names_its_wait(signal: str | None, status: str) -> None:
    """All waits share one phase; the status distinguishes them. A call in progress runs to its end, even if paused."""
    thread = loaded_thread(features=1)
    thread.reply(calls("look", "pay"))
    if signal:
        thread.signal(signal, {"by": "bob"})
    assert phase_of(thread.state) == "executing"
    thread.finish(1)
    assert (phase_of(thread.state), thread.state.status) == ("dormant", status)
    thread.check_consistent()
