"""Carry out an action that concerns the run alone: make calls, and record events."""

from typing import assert_never

from holdfast.core.log.events import MessageTaken, RunBlocked, ToolCallStarted
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.requests import (
    agent_request,
    node_terms,
    origin_of,
    policy_request,
    poll_request,
    tool_request,
    verify_request,
)
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.decide.foreign_tasks import on_cancelled_tasks
from holdfast.core.run.decide.reactions import (
    CLOSED_EARLY,
    OUTCOME_UNKNOWN,
    on_outcome,
    on_runtime_call,
    on_start,
    on_task,
)
from holdfast.core.run.decide.replies import on_compaction
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.rules.budget import on_budget_report, on_call
from holdfast.core.run.rules.closing_work import on_complete, on_learning_due, on_progress_due
from holdfast.core.run.rules.unattended import on_failing
from holdfast.core.run.state import next_actions as act
from holdfast.core.run.state.features import RECORDS_COSTS, SIZED_REQUESTS
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.polling import refuse_poll
from holdfast.core.transcript.transcript import TranscriptRef

STARTS = (
    act.Verify
    | act.ResolveCalls
    | act.StartCalls
    | act.Poll
    | act.LoadAgent
    | act.LoadPolicy
    | act.CallLLM
    | act.Compact
)
"""Actions that start work: a run that is about to continue as new leaves them to the next Temporal run."""


def carry_out(action: act.OwnAction, begin: RunInput, *, log: RunLog, calls: OpenCalls) -> bool:
    """Carry out one action; return False if nothing follows until an input arrives.

    Args:
        action: The action.
        begin: The run's input.
        log: Records the events.
        calls: Makes the calls.
    """
    match action:
        case act.LoadAgent():
            _load_agent(begin, log, calls)
        case act.LoadPolicy():
            calls.call(policy_request(log.state), log.state)
        case act.CallLLM():
            if log.state.account.limits:
                log.record(*on_call(log.state))
            calls.call(_llm_request(log.state, log.transcript.ref(log.state.spec_hash)), log.state)
        case act.ReportBudget():
            log.record(*on_budget_report(log.state, action))
        case act.Compact():
            _compact(action, log, calls)
        case act.TakeMessages():
            log.record(*(MessageTaken(message=each.message) for each in log.state.inbox.waiting))
        case act.ResolveCalls(numbers=numbers):
            return _resolve_all(numbers, log, calls)
        case act.StartCalls(numbers=numbers):
            for number in numbers:
                _start_call(number, log, calls)
        case act.NoteProgress():
            log.record(*on_progress_due(log.state, at=log.at))
        case act.AskForLearnings():
            log.record(on_learning_due(log.state))
        case act.Complete():
            log.record(on_complete(log.state))
        case act.Fail():
            log.record(*(on_cancelled_tasks(log.state, at=log.at) or on_failing(log.state)))
        case act.Poll(numbers=numbers):
            return _poll_all(numbers, log, calls)
        case act.Block(cause=cause, message=message):
            log.record(RunBlocked(cause=cause, message=message))
        case act.Verify(tools=tools, baseline=baseline):
            calls.baseline = baseline
            for tool in tools:
                calls.call(verify_request(log.state, tool), log.state)
        case act.Wait() | act.Finish():
            return False
        case _:
            assert_never(action)
    return True


def _load_agent(begin: RunInput, log: RunLog, calls: OpenCalls) -> None:
    if successor := log.state.next_agent:
        calls.call(agent_request(begin, log.state, agent=successor, recorded=log.archived.position), log.state)
        return
    silent = begin.fork is not None and not begin.task  # a fork needs no new task
    if not begin.snapshot and not silent and (refused := on_task(begin.task, by=begin.by)):
        log.record(*refused)
        return
    recorded = log.archived.position
    calls.call(agent_request(begin, log.state, agent=begin.agent, recorded=recorded), log.state)


def _llm_request(state: RunState, transcript: TranscriptRef, *, compacting: bool = False) -> LLMRequest:
    account = state.account
    budgeted = bool(account.limits)
    return LLMRequest(
        transcript=transcript,
        compacting=compacting,
        priced=(budgeted and account.priced) or state.features >= RECORDS_COSTS,
        budgeted=budgeted,
        lost=account.lost,
        sized=state.features >= SIZED_REQUESTS,
        nodes=node_terms(state),
    )


def _compact(action: act.Compact, log: RunLog, calls: OpenCalls) -> None:
    state, transcript = log.state, log.transcript
    if action.asking:
        if state.account.limits:
            log.record(*on_call(state, summary=True))
        ref = transcript.ref(state.spec_hash, shown=action.answered_only)
        calls.call(_llm_request(state, ref, compacting=True), log.state)
    else:
        summary, originals = state.context.given or state.context.summary, transcript.originals
        # The author of a summary has not read the results of the last step, and neither has the LLM.
        kept = transcript.unanswered if state.context.given and not state.awaits_message else 0
        length = transcript.length - kept
        log.record(on_compaction(state, summary, compacted=length, kept=kept, originals=originals))


def _start_call(number: int, log: RunLog, calls: OpenCalls) -> None:
    before, position = log.state, log.events.length
    call = before.calls.get(number)
    origin = origin_of(before, number, call.call.name, position=position)
    started = on_start(before, number, at=log.at)
    log.record(started)
    if not isinstance(started, ToolCallStarted):
        return
    if before.carries_out(number):
        log.record(*on_runtime_call(before, number, at=log.at))
        return
    request = tool_request(log.state, call.call, number=number, epoch=call.epoch, undo=call.undo, origin=origin)
    calls.call(request, log.state, number=number)


def _poll_all(numbers: tuple[int, ...], log: RunLog, calls: OpenCalls) -> bool:
    """Start the polls that are due and not under way; return whether a constraint has ended a wait instead."""
    under_way = {call.number for call in calls.under_way(ToolRequest)}
    ended = False
    for wait in [wait for wait in log.state.dormancy.waits if wait.number in numbers]:
        if refused := refuse_poll(log.state, wait, at=log.at):
            log.record(refused)
            ended = True
        elif wait.number not in under_way:
            calls.call(poll_request(log.state, wait, position=log.events.length), log.state, number=wait.number)
    return ended


def _resolve_all(numbers: tuple[int, ...], log: RunLog, calls: OpenCalls) -> bool:
    """Resolve effects that were under way when the thread's last run was closed.

    Returns:
        False if all of these resolutions were already under way.
    """
    under_way = {call.number for call in calls.under_way(ToolRequest)}
    for number in numbers:
        if number not in under_way:
            _resolve(number, log, calls)
    return not under_way >= set(numbers)


def _resolve(number: int, log: RunLog, calls: OpenCalls) -> None:
    state = log.state
    orphan = state.calls.get(number)
    call = orphan.call
    if state.spec and state.spec.tool(call.name):
        request = tool_request(state, call, number=number, epoch=orphan.epoch, undo=orphan.undo, settle=True)
        calls.call(request, state, number=number)
    else:
        why = f"{CLOSED_EARLY} The agent has no {call.name} any more to find out with. {OUTCOME_UNKNOWN}"
        log.record(*on_outcome(state, number, ToolOutcome(status="unknown", content=why), at=log.at))
