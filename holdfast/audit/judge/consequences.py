"""Recomputes the consequences of an event: all events that must be recorded together with it.

A fact from outside is taken as it is. Its consequences are recomputed by the functions that produced them when it was
recorded.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, assert_never

from holdfast.audit.judge.events import (
    Expected,
    IllegalEvent,
    as_outcome,
    as_poll,
    as_reply,
    as_unended_poll,
    as_unended_task_poll,
)
from holdfast.audit.judge.loading import check_loaded
from holdfast.audit.judge.subagents import (
    allowance_raises,
    call_results,
    is_subagent_call,
    reject_result,
    subagent_ends,
    subagent_starts,
)
from holdfast.core.authority.approvals import COUNTING
from holdfast.core.llm.conversation import conversation_excess
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.decide.foreign_tasks import on_cancelled_tasks, on_task_poll, task_poll_event
from holdfast.core.run.decide.placements import on_no_node
from holdfast.core.run.decide.reactions import (
    on_cancel,
    on_loaded,
    on_outcome,
    on_reopen,
    on_runtime_call,
    on_start,
    on_time,
)
from holdfast.core.run.decide.replies import on_reply
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.adopt_policy import on_policy_loaded
from holdfast.core.run.inputs.decisions import on_due
from holdfast.core.run.inputs.import_run import on_import_loaded, refuse_import
from holdfast.core.run.inputs.interventions import TAKES, react
from holdfast.core.run.inputs.move import on_moved
from holdfast.core.run.inputs.resets import on_reset
from holdfast.core.run.inputs.steering import sent_payload
from holdfast.core.run.rules.approval_requests import on_preview
from holdfast.core.run.rules.baselines import on_findings
from holdfast.core.run.rules.budget import on_budget_report, on_call
from holdfast.core.run.rules.closing_work import on_complete, on_learning_due, on_progress_due
from holdfast.core.run.rules.forks import fork_events
from holdfast.core.run.rules.unattended import on_failing
from holdfast.core.run.state import next_actions as act
from holdfast.core.run.state.dormancy import Wait
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import wake_payload
from holdfast.core.run.waits.polling import ends_unfulfilled, on_poll, poll_event, refuse_poll
from holdfast.core.run.waits.subagents import on_starts_due
from holdfast.core.tools.foreign_waits import ServerQuestion
from holdfast.core.tools.triggers import TaskTrigger
from holdfast.core.tools.typed_context import context_excess

RETURNING = ("started", "orphaned")
"""Phases of calls whose tools can still return a result."""


class PriorLog(NamedTuple):
    """The log before an event."""

    state: RunState
    thread: str
    """The id of the thread to which those events belong."""
    head: str
    """The digest of the last event."""
    last: str
    """The type of the last event."""
    forked: ev.RunForked | None
    """The last fork, until its run starts."""
    started: ev.RunStarted | None = None
    """The last start, until its agent is loaded."""


def possible_batches(
    before: PriorLog, event: ev.AgentEvent, events: Sequence[ev.AgentEvent]
) -> Iterator[Sequence[Expected]]:
    """Yield each batch of events that could have been recorded at this point, beginning with an event of this kind.

    Args:
        before: The log before the event.
        event: The first of `events`.
        events: The event, and those after it.

    Raises:
        IllegalEvent: The event cannot be recorded at this point.
    """
    state, at = before.state, event.at

    def sent(name: str, payload: dict[str, Any]) -> Sequence[ev.AgentEvent]:
        return react(state, name, payload, at=at).events

    if not state.events and not isinstance(event, ev.RunStarted):
        raise IllegalEvent("a log begins with run_started")
    if before.last == "events_lost" and not isinstance(event, ev.RunStarted | ev.RunForked | ev.RunImported):
        raise IllegalEvent("no run has started since events were lost")
    match event:
        case ev.RunForked():
            yield _forks(before, event)
        case ev.EventsLost():
            if event.events <= state.events:
                raise IllegalEvent(f"nothing was lost: it says that the thread had {event.events} events")
            yield [event]
        case ev.RunImported():
            reason = refuse_import(event.point, state, thread=before.thread, position=state.events, head=before.head)
            if reason:
                raise IllegalEvent(reason)
            yield [event]
        case ev.MoveRequested():
            yield sent("move", sent_payload(state, event))
        case ev.RunStarted():
            _check_start(before, event)
            if before.forked and not isinstance(next(iter(events[1:]), None), ev.UserMessageReceived):
                yield [event]  # a fork may start without a task
            else:
                yield [*on_reopen(state), event, *_task(events)]
        case ev.AgentLoaded() if (state.spec is None or state.next_agent) and not state.outcome:
            check_loaded(state, event, started=before.started)
            entered = evolve(state, event) if state.resumes_import else state
            yield [
                event,
                *(on_import_loaded(entered, at=at) if state.resumes_import and not on_loaded(entered) else []),
            ]
        case ev.BudgetReserved(call=int()):
            yield on_starts_due(state)
            yield from allowance_raises(state, event, events)
        case ev.BudgetReserved() if isinstance(action := next_action(state, at=at), act.CallLLM | act.Compact):
            yield on_call(state, summary=isinstance(action, act.Compact))
        case ev.BudgetLow() | ev.BudgetSpent() if isinstance(action := next_action(state, at=at), act.ReportBudget):
            yield on_budget_report(state, action)
        case ev.MemoryRecalled() if before.last in ("agent_loaded", "run_reset"):
            yield [event]
        case ev.LLMReplied() if state.spec and not state.calls.open and not state.outcome:
            yield [event, *on_reply(state, as_reply(event, events), shown=event.transcript_length, at=at)[1:]]
        case ev.DecisionReceived() if event.outcome not in (*COUNTING, "judged_anew"):
            yield [event]  # it had no effect, and its body was not kept
        case ev.CompactionRequested(summary=""):
            yield sent("compact", {"by": event.by, "reason": event.reason})
        case ev.UserMessageReceived(task=True) | ev.TaskRefined(call=int()):
            return  # only with the start of the run, or of the call that made it
        case ev.Stated():
            yield sent(TAKES[event.STATEMENT], event.said.model_dump())
        case ev.PolicyChanged():
            yield on_policy_loaded(state, event.policy, event.zones, at=at)
        case ev.PolicyChangeFailed() if state.policy_change == event.policy:
            yield [event]
        case ev.MessageTaken() if isinstance(next_action(state, at=at), act.TakeMessages):
            yield [ev.MessageTaken(message=waiting.message) for waiting in state.inbox.waiting]
        case ev.ApprovalRequested() if event.request.preview is not None:
            yield on_preview(state, event.request.id, event.request.preview, at=at)
        case ev.ApprovalReminded() | ev.ApprovalEscalated() | ev.ApprovalExpired():
            yield on_due(state, at=at)
        case ev.BaselineRecorded() | ev.StateVerified() if state.spec and _tools(event) == sorted(state.spec.verify):
            yield on_findings(state, event.findings, baseline=isinstance(event, ev.BaselineRecorded), at=at)
        case ev.RunReset():
            yield on_reset(state, event.effects, left_out=event.left_out, asking=event.asking, at=at)
        case ev.ToolCallStarted() | ev.ToolCallPostponed():
            yield from _starts(before, event)
        case ev.ToolCallFinished() | ev.ReconcileRequested() | ev.AnswerRequested() | ev.RunFinished():
            yield from _ends(before, event)
        case ev.DormancyBegan(trigger=TaskTrigger()) if _is_returning(state, event.number):
            yield [event]  # the server's word: it began a task
        case ev.ContextUpdated():
            yield from _context_updates(before, event, events)
        case ev.ToolCallRequested(own=True) if isinstance(next_action(state, at=at), act.NoteProgress):
            yield on_progress_due(state, at=at)
        case ev.LearningRequested() if isinstance(next_action(state, at=at), act.AskForLearnings):
            yield [on_learning_due(state)]
        case ev.LearningSkipped() if state.ending.learning == "asked":
            yield [event]
        case ev.RunUnblocked() if state.blocked:
            yield sent("retry", sent_payload(state, event))
        case ev.WaitPolled():
            yield from _polls(before, event, events)
        case ev.SubagentStarted():
            yield from subagent_starts(state, event)
        case ev.SubagentEnded():
            yield from subagent_ends(state, event, events)
        case ev.WakeReceived():
            yield sent("wake", wake_payload(event))
        case ev.RunPaused():
            yield sent("pause", sent_payload(state, event))
        case ev.NodeAccepted():
            if outside := event.node.missing(state.scope):
                raise IllegalEvent(f"node {event.node.name} is out of the run's trust scope: it is not {outside}")
            yield [event]
        case ev.NodeAwaited() if not event.number or _is_returning(state, event.number):
            yield on_no_node(state, event.number, event.rejected, at=event.at)
        case ev.ToolCallRerouted() if _is_returning(state, event.number):
            outcome = ToolOutcome(status="cannot", content=event.reason, until=event.until, unfit=event.nodes)
            yield on_outcome(state, event.number, outcome, at=event.at)
        case ev.RunResumed():
            yield sent("resume", sent_payload(state, event)) if event.by else on_due(state, at=at)
        case (
            ev.SignalRejected()
            | ev.RefusalsCounted()
            | ev.RunBlocked()
            | ev.RunContinued()
            | ev.ReplyRejected()
            | ev.LLMCallLost()
            | ev.ContextExceeded()
            | ev.ContextCompacted()
        ):
            yield [event]  # none of these allows anything to run
        case (
            ev.AgentLoaded()
            | ev.BudgetReserved()
            | ev.BudgetLow()
            | ev.BudgetSpent()
            | ev.MemoryRecalled()
            | ev.LLMReplied()
            | ev.LearningRequested()
            | ev.LearningSkipped()
            | ev.MessageTaken()
            | ev.BaselineRecorded()
            | ev.StateVerified()
            | ev.RunUnblocked()
            | ev.NodeAwaited()
            | ev.ToolCallRerouted()
            | ev.PolicyChangeFailed()
        ):
            return  # not possible in this state
        case (
            ev.MessageAwaited()
            | ev.ToolCallRequested()
            | ev.VerdictGiven()
            | ev.PreviewRequested()
            | ev.ApprovalRequested()
            | ev.RuleRemembered()
            | ev.DormancyBegan()
        ):
            return  # only possible as a consequence of another event
        case _:
            assert_never(event)


def _forks(before: PriorLog, event: ev.RunForked) -> Sequence[Expected]:
    """Return the beginning of a fork: it names the event before it, open calls end, and its run starts."""
    state, point = before.state, event.point
    if (event.origin, point.position, point.head) != (before.thread, state.events - 1, before.head):
        raise IllegalEvent(f"it forks {point.thread!r} after event {point.position}, which is not what comes before it")
    if event.thread in (before.thread, point.thread):
        raise IllegalEvent("it forks the thread from itself")
    forked = fork_events(
        state,
        point,
        thread=event.thread,
        first_run_id=event.first_run_id,
        by=event.by,
        level=event.features,
        imported=event.imported,
        llm=event.llm,
        policies=event.policies,
    )
    return [*forked, ev.RunStarted]


def _starts(before: PriorLog, event: ev.ToolCallStarted | ev.ToolCallPostponed) -> Iterator[Sequence[Expected]]:
    """Yield the start of a call: it was allowed, nothing must precede it, and the starter of the run is known."""
    state, action = before.state, next_action(before.state, at=event.at)
    if on_loaded(state):
        raise IllegalEvent("it is not known who started the run, and the policy requires that")
    if isinstance(action, act.StartCalls) and event.number in action.numbers:
        started = on_start(state, event.number, at=event.at)
        by_run = state.carries_out(event.number) and isinstance(started, ev.ToolCallStarted)
        yield [started, *(on_runtime_call(state, event.number, at=event.at) if by_run else [])]
    elif call := state.calls.find(event.number):
        raise IllegalEvent(
            f"call {event.number} was not allowed to run: it is {call.phase}, and what follows is {action}"
        )


def _ends(
    before: PriorLog, event: ev.ToolCallFinished | ev.ReconcileRequested | ev.AnswerRequested | ev.RunFinished
) -> Iterator[Sequence[Expected]]:
    """Yield the possible ends of calls, or of the run."""
    state = before.state
    asked = event.request.number if isinstance(event, ev.ReconcileRequested | ev.AnswerRequested) else 0
    number = asked or getattr(event, "number", 0)
    returning = _is_returning(state, number)
    if state.dormancy.is_asleep(number):
        yield on_due(state, at=event.at)
    elif isinstance(event, ev.ToolCallFinished) and is_subagent_call(state, number):
        yield from call_results(state, event)
    elif state.spec and returning:
        yield on_outcome(state, number, as_outcome(event), at=event.at)
        if isinstance(event, ev.ToolCallFinished) and event.status == "denied":  # nobody is asked in this run
            question = ServerQuestion(server="", parts=())
            yield on_outcome(state, number, ToolOutcome(status="failed", content="", question=question), at=event.at)
    action = next_action(state, at=event.at)
    if isinstance(action, act.StartCalls) and number in action.numbers:
        yield [on_start(state, number, at=event.at)]  # blocked by a constraint
    if isinstance(event, ev.RunFinished) and state.moving:
        yield [on_moved(state)]
    if state.unattended and (cancelled := on_cancelled_tasks(state, at=event.at)):
        yield cancelled
    elif isinstance(action, act.Fail):
        yield on_failing(state)
    if isinstance(event, ev.RunFinished) and isinstance(action, act.Complete):
        yield [on_complete(state)]
    if isinstance(action, act.Poll) and (wait := state.dormancy.find(number)):
        yield [rejected] if (rejected := refuse_poll(state, wait, at=event.at)) else []
    if reopened := on_reopen(state):
        yield [*reopened, ev.RunStarted]
    if not isinstance(event, ev.RunFinished):
        yield on_cancel(state)
    elif event.outcome == "cancelled":
        yield on_cancel(state, event.result.partition(": ")[2])
    if isinstance(event, ev.RunFinished) and not state.outcome:
        if event.outcome == "failed" and (state.spec is None or on_loaded(state)):
            yield [event]
        yield on_time(state, at=event.at)
    if isinstance(event, ev.ToolCallFinished) and is_subagent_call(state, number):
        reject_result(state, event)


def _is_returning(state: RunState, number: int) -> bool:
    return any(call.number == number and call.phase in RETURNING for call in state.calls.current)


def _context_updates(
    before: PriorLog, event: ev.ContextUpdated, events: Sequence[ev.AgentEvent]
) -> Iterator[Sequence[Expected]]:
    """Yield a change of the typed context, with the end of the call that makes it."""
    state, ended = before.state, events[1] if len(events) > 1 else None
    if _is_returning(state, event.number) and isinstance(ended, ev.ToolCallFinished) and ended.number == event.number:
        outcome = as_outcome(ended).model_copy(update={"changes": event.changes})
        yield on_outcome(state, event.number, outcome, at=event.at)


def _polls(before: PriorLog, event: ev.WaitPolled, events: Sequence[ev.AgentEvent]) -> Iterator[Sequence[Expected]]:
    """Yield a poll: the time of the next one, and whether the wait ends with it. The log has only the digest of a
    result that does not end the wait.
    """
    state, wait = before.state, before.state.dormancy.find(event.number)
    if wait is None or wait.polls is None or event.poll != wait.polls.count + 1 or wait.polls.again > event.at:
        return
    ended = events[1] if len(events) > 1 and event.again is None else None
    if isinstance(wait.trigger, TaskTrigger):
        yield from _task_polls(state, wait, event, ended)
        return
    if isinstance(ended, ev.ToolCallFinished) and ended.number == event.number:
        outcome = as_poll(event, ended, note=state.calls.get(event.number).people_note)
        yield on_poll(state, event.number, outcome, poll=event.poll, at=event.at)
    elif not ends_unfulfilled(wait, event.status, at=event.at):
        yield [poll_event(state, wait, as_unended_poll(event), seen=event.seen, at=event.at)]


def _task_polls(
    state: RunState, wait: Wait, event: ev.WaitPolled, ended: ev.AgentEvent | None
) -> Iterator[Sequence[Expected]]:
    """Yield a poll of a foreign task, with the end of the wait if it has ended."""
    assert isinstance(wait.trigger, TaskTrigger)
    if isinstance(ended, ev.ToolCallFinished | ev.ReconcileRequested | ev.AnswerRequested):
        outcome = as_outcome(ended)
        polled = {"duration_ms": event.duration_ms, "signed": event.signed, "task_ended": True}
        for status in dict.fromkeys((event.status, outcome.status)):
            update = {**polled, "status": status}
            batch = on_task_poll(state, wait.number, outcome.model_copy(update=update), poll=event.poll, at=event.at)
            yield [batch[0].model_copy(update={"seen": event.seen, "result": event.result}), *batch[1:]]
    elif event.again is not None:
        outcome = as_unended_task_poll(event, wait.trigger)
        yield [task_poll_event(state, wait, outcome, seen=event.seen, at=event.at)]


def _check_start(before: PriorLog, event: ev.RunStarted) -> None:
    if event.thread != before.thread:
        raise IllegalEvent(f"it is the log of thread {event.thread!r}, and this is {before.thread!r}")
    if before.forked and before.forked.first_run_id != event.first_run_id:
        raise IllegalEvent("it starts another run than the one that was forked")
    if event.context is not None and (why := context_excess(event.context)):
        raise IllegalEvent(f"its context {why}")
    if why := conversation_excess(event.conversation):
        raise IllegalEvent(f"its conversation {why}")
    if event.start and event.start in before.state.origin.starts:
        raise IllegalEvent(f"the start {event.start} began another run of this thread before")


def _tools(event: ev.BaselineRecorded | ev.StateVerified) -> list[str]:
    """Return the names of the tools that ran."""
    return [finding.tool for finding in event.findings]


def _task(events: Sequence[ev.AgentEvent]) -> Sequence[ev.AgentEvent]:
    """Return the task, which is recorded only together with the start of a run.

    Raises:
        IllegalEvent: Another event follows the start.
    """
    if len(events) > 1 and not (isinstance(events[1], ev.UserMessageReceived) and events[1].task):
        raise IllegalEvent("no task comes after it")
    return events[1:2]
