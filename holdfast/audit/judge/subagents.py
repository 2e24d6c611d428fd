"""Judges the sub-agents in a log: each was started by a judged call, and each answer belongs to its call."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from holdfast.audit.judge.events import IllegalEvent, first_difference
from holdfast.core.budget.budget import NANO, Budget
from holdfast.core.budget.tree import SHARED, TreeCost, allowance_name
from holdfast.core.log.events import AgentEvent, BudgetReserved, SubagentEnded, SubagentStarted, ToolCallFinished
from holdfast.core.run.contracts.subagents import StartedSubagent, SubagentReport
from holdfast.core.run.state.calls import CallState
from holdfast.core.run.state.state import RunState
from holdfast.core.run.state.subagents import Child
from holdfast.core.run.waits.subagents import (
    on_report,
    on_started,
    report_text,
    text_digest,
    unavailable_text,
    unstarted_calls,
    waits_for,
)
from holdfast.core.tools.subagents import AGENT_RESULT, RUN_AGENT, SUBAGENT_TOOLS, read_agent_result

_REFUSED = "Not started: "


def is_subagent_call(state: RunState, number: int) -> bool:
    """Whether a call of the current step runs or awaits a sub-agent."""
    call = state.calls.find(number)
    return call is not None and call.call.name in SUBAGENT_TOOLS and state.carries_out(number)


def subagent_starts(state: RunState, event: SubagentStarted) -> Iterator[Sequence[AgentEvent]]:
    """Yield the events that may record the start of a sub-agent, for an allowed call that has none yet."""
    if any(call.number == event.number for call in unstarted_calls(state)):
        yield on_started(state, StartedSubagent(number=event.number, run_id=event.run_id))


def allowance_raises(
    state: RunState, event: BudgetReserved, events: Sequence[AgentEvent]
) -> Iterator[Sequence[AgentEvent]]:
    """Yield the events that may record a larger allowance of a sub-agent that was started before a reset."""
    account, number = state.account, event.call or 0
    # A fork may separate the two events.
    begun = events[1] if len(events) > 1 else SubagentStarted(number=number, thread="", agent="", run_id="?")
    if allowance_name(number) in account.reserved and isinstance(begun, SubagentStarted) and begun.number == number:
        amounts = {"steps": event.steps, "tokens": event.tokens, "usd": Decimal(event.nano_usd) / NANO}
        budget = Budget.model_validate({name: amounts[name] for name in SHARED if name in account.limits})
        yield on_started(state, StartedSubagent(number=number, run_id=begun.run_id, existing=True, budget=budget))


def subagent_ends(
    state: RunState, event: SubagentEnded, events: Sequence[AgentEvent]
) -> Iterator[Sequence[AgentEvent]]:
    """Yield the events that may record the end of a sub-agent, with the results of the calls that wait for it."""
    child = state.subagents.find(event.number)
    if child is None or not child.open:
        return
    fields: dict[str, Any] = event.model_dump(include={"number", "status", "trust", "steps"})
    report = SubagentReport(**fields, usage=event.usage, constraints=event.constraints, cost=event.cost, text="")
    waiting = [call for call in state.calls.current if waits_for(call, child)]
    if not waiting:
        expected = on_report(state, report)[:1]  # the log has only the digest of its text
        yield [each.model_copy(update={"said": event.said}) for each in expected]
        return
    if len(events) == 1:  # a fork may separate the end from the result that was recorded with it
        yield [each.model_copy(update={"said": event.said}) for each in on_report(state, report)[:1]]
    head = report_text(child, report)
    for finished in events[1:2]:
        if isinstance(finished, ToolCallFinished) and finished.number == waiting[0].number:
            text = finished.text.removeprefix(waiting[0].people_note).removeprefix(head)
            yield on_report(state, report.model_copy(update={"text": text}))


def call_results(state: RunState, event: ToolCallFinished) -> Iterator[Sequence[AgentEvent]]:
    """Yield the events that may record the end of a call itself: its sub-agent was not started, or had ended."""
    call = state.calls.find(event.number)
    if call is None or call.phase != "started":
        return
    text = event.text.removeprefix(call.people_note)
    if call.call.name == RUN_AGENT and text.startswith(_REFUSED):
        yield on_started(state, StartedSubagent(number=event.number, problem=text.removeprefix(_REFUSED)))
    child = _answering(state, call)
    if child and (not child.said or text == unavailable_text(child) or text_digest(text) == child.said):
        yield [_read_again(child, event, text)]


def reject_result(state: RunState, event: ToolCallFinished) -> None:
    """Reject a result that no sub-agent report could have produced.

    Raises:
        IllegalEvent: The call reads the answer of an ended sub-agent, and its content is not that answer.
    """
    call = state.calls.find(event.number)
    child = _answering(state, call) if call and call.phase == "started" else None
    if call is None or child is None or not child.said:
        return
    text = event.text.removeprefix(call.people_note)
    if text == unavailable_text(child) or text_digest(text) == child.said:
        return
    report = SubagentReport.model_validate(
        {"number": child.number, "status": child.status, "text": "", "steps": child.steps}
    )
    head = report_text(child, report.model_copy(update={"cost": TreeCost.model_validate({"short": child.short})}))
    if not text.startswith(head):
        raise IllegalEvent(f"its content is not what {child.thread} has said: {first_difference(text, head)}")
    actual = text_digest(text)
    raise IllegalEvent(f"its content is not what {child.thread} has said: its digest is {actual}, and not {child.said}")


def _answering(state: RunState, call: CallState) -> Child | None:
    """Return the ended sub-agent whose answer a call reads; None for any other call."""
    arguments = read_agent_result(call.call) if call.call.name == AGENT_RESULT else None
    child = state.subagents.of_thread(arguments.thread) if arguments else None
    return child if child and not child.open else None


def _read_again(child: Child, event: ToolCallFinished, text: str) -> ToolCallFinished:
    """Return the result of a call that read the answer of an ended sub-agent, or the notice that the answer is gone."""
    status, trust = ("ok" if child.status == "completed" else "failed"), child.trust
    if text == unavailable_text(child):
        status, trust = "failed", "agent"
    elif not child.said:  # from a snapshot of an earlier build
        status, trust = event.status, event.trust or "web"
    fields = {"number": event.number, "status": status, "content": event.content, "trust": trust}
    return ToolCallFinished.model_validate(fields)
