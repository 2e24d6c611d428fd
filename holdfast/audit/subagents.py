"""Judges what a log says of sub-agents: each began for a call that was judged, and each answer belongs to its call."""

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.budget.budget import Budget
from holdfast.log.events import AgentEvent, SubagentEnded, SubagentStarted, ToolCallFinished
from holdfast.run.children import ChildReport, StartedChild
from holdfast.run.state import RunState
from holdfast.run.subagents import on_report, on_started, report_words, waits_for, wanted
from holdfast.run.substates.calls import CallState
from holdfast.tools.subagents import AGENT_RESULT, RUN_AGENT, SUBAGENT_TOOLS, read_agent_result

_REFUSED = "Not started: "


def is_subagent_call(state: RunState, number: int) -> bool:
    """Return whether a call of the current step runs or awaits a sub-agent."""
    call = state.calls.find(number)
    return call is not None and call.call.name in SUBAGENT_TOOLS and state.carries_out(number)


def beginnings(state: RunState, event: SubagentStarted) -> Iterator[Sequence[AgentEvent]]:
    """Yield what may be recorded where a child starts: a call that was allowed has started, and has none yet."""
    if any(call.number == event.number for call in wanted(state)):
        yield on_started(state, StartedChild(number=event.number, run_id=event.run_id))


def allowance(state: RunState) -> Budget | None:
    """Return what the parent has given to this run; None for a run that has none from it."""
    return state.origin.lineage.allowance if state.origin.lineage else None


def ends(state: RunState, event: SubagentEnded, events: Sequence[AgentEvent]) -> Iterator[Sequence[AgentEvent]]:
    """Yield what may be recorded where a child ends: its end, and the results of the calls that wait for it."""
    child = state.subagents.find(event.number)
    if child is None or not child.open:
        return
    given: dict[str, Any] = event.model_dump(include={"number", "status", "trust", "steps"})
    report = ChildReport(**given, usage=event.usage, constraints=event.constraints, cost=event.cost, text="")
    waiting = [call for call in state.calls.current if waits_for(call, child)]
    if not waiting:
        expected = on_report(state, report)[:1]  # its words are not in the log: only their digest
        yield [each.model_copy(update={"said": event.said}) for each in expected]
        return
    if len(events) == 1:  # a fork leaves its original between the end and the result that was recorded with it
        yield [each.model_copy(update={"said": event.said}) for each in on_report(state, report)[:1]]
    head = report_words(child, report)
    for finished in events[1:2]:
        if isinstance(finished, ToolCallFinished) and finished.number == waiting[0].number:
            text = finished.text.removeprefix(waiting[0].edit_note).removeprefix(head)
            yield on_report(state, report.model_copy(update={"text": text}))


def results(state: RunState, event: ToolCallFinished) -> Iterator[Sequence[AgentEvent]]:
    """Yield what may be recorded where such a call ends by itself: it was not started, or its child had ended."""
    call = state.calls.find(event.number)
    if call is None or call.phase != "started":
        return
    text = event.text.removeprefix(call.edit_note)
    if call.call.name == RUN_AGENT and text.startswith(_REFUSED):
        yield on_started(state, StartedChild(number=event.number, problem=text.removeprefix(_REFUSED)))
    if call.call.name == AGENT_RESULT and _answers(state, call, text):
        yield [event]


def _answers(state: RunState, call: CallState, text: str) -> bool:
    """Whether a text can be what a call reads of a child that had ended before."""
    given = read_agent_result(call.call)
    child = state.subagents.of_thread(given.thread) if given else None
    if child is None or child.open:
        return False
    return text.startswith(f"Agent {child.agent} (thread {child.thread}) ")
