"""Return the events that follow from a task, a tool call, the passing of time, or the end of a run. Those that follow
from an LLM call are in `holdfast.core.run.decide.replies`.

Pure functions: state and fact in, events out. The fact is recorded first, then its consequences.
"""

from datetime import datetime, timedelta

from holdfast.core.authority.interventions import REFINE_TOOL
from holdfast.core.base.names import person_name
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import Content, text_of, with_heading
from holdfast.core.llm.messages import too_long, unfit
from holdfast.core.log import events as ev
from holdfast.core.run.contracts.error_types import (
    NAME_INVALID,
    START_UNPROVEN,
    TASK_EMPTY,
    TASK_MALFORMED,
    TASK_TOO_LONG,
)
from holdfast.core.run.contracts.tool_calls import NO_REASON, ToolOutcome
from holdfast.core.run.decide.placements import can_reroute, on_unfit
from holdfast.core.run.decide.results import on_result
from holdfast.core.run.inputs.decisions import on_due
from holdfast.core.run.inputs.refine import on_refine_call
from holdfast.core.run.rules.approval_requests import new_request
from holdfast.core.run.rules.authority import ask_all_policies, policies_of
from holdfast.core.run.rules.closing_work import on_complete, on_learning_time
from holdfast.core.run.rules.constraints import constraint_on, constraint_result
from holdfast.core.run.rules.hours import postpone_call
from holdfast.core.run.rules.typed_context import context_change
from holdfast.core.run.state.calls import CallState, Phase
from holdfast.core.run.state.constraints import REASON_CHARS as CONSTRAINT_CHARS
from holdfast.core.run.state.features import (
    CANCEL_REASON,
    FOREIGN_WAITS,
    HOURS,
    RESULT_NAMES_ARTIFACTS,
    SETTLING,
    SIGNED_RESULTS,
)
from holdfast.core.run.state.state import RunState
from holdfast.core.run.waits.dormancy import on_sleep
from holdfast.core.run.waits.foreign_waits import on_pending, tasks_of
from holdfast.core.run.waits.subagents import on_subagent_call
from holdfast.core.tools.effects import Effect, words_of
from holdfast.core.tools.spec import FINAL_RESULT, LONGEST_SETTLING
from holdfast.core.tools.subagents import SUBAGENT_TOOLS

Events = list[ev.AgentEvent]

CLOSED_EARLY = "The run was closed from outside before this was done."
OUTCOME_UNKNOWN = "Its outcome is unknown."
UNDONE = "This happened, and was undone: "
"""The heading of the result of a call that undid an effect."""
CANCEL_REASON_CHARS = 500
"""Maximum characters of a cancellation's reason in the log."""


def on_task(task: Content, *, by: str = "") -> Events:
    """Return the events that end a run whose task is invalid; none if the run can begin."""
    try:
        person_name(by)
    except ValueError as error:
        return [_failed(NAME_INVALID, f"{error}; start the run again with another name as `by`")]
    if not text_of(task).strip():
        return [_failed(TASK_EMPTY, "the task is empty; say what the agent is to do")]
    if why := unfit(task):
        return [_failed(TASK_MALFORMED, f"the task {why}")]
    if excess := too_long(task):
        return [_failed(TASK_TOO_LONG, f"the task {excess}; put it into a file in the workspace")]
    return []


def on_loaded(state: RunState) -> Events:
    """Return the events that end a run whose requester the policy has to identify and cannot; none if it may begin."""
    if state.origin.sealed or state.spec is None or not state.spec.policy.proves_requesters:
        return []
    why = f"the policy of {state.spec.name} does not let requesters approve, and it is not known who started this run"
    return [_failed(START_UNPROVEN, f"{why}: start it with `holdfast start`, or through a gateway")]


def on_lost_agent(cause: str, message: str) -> Events:
    """Return the events that follow when the agent cannot be loaded."""
    return [_failed(cause, message)]


def on_time(state: RunState, *, at: datetime) -> Events:
    """Return the events that are due: the end of the wait for a message, and the deadlines of open requests."""
    waits = state.awaits_message and not state.compacts_now and not state.pause
    if waits and state.idle.until and state.idle.until <= at and not state.has_closing_work:
        return [on_complete(state)]
    return [*on_due(state, at=at), *(on_learning_time(state, at=at) if state.ending.until else [])]


def on_reopen(state: RunState) -> Events:
    """Return the events that end the calls that were open when a thread was closed from outside.

    Effects that had started, or that people were asked about, stay open: the ledger or the tool's `check` may still
    resolve them.
    """
    effects = tuple(call.number for call in state.calls.current if _is_effect(state, call))
    return _ended(state, CLOSED_EARLY, but=effects)


def _is_effect(state: RunState, call: CallState) -> bool:
    """Return whether a call may have had an effect that was not recorded."""
    under_way = call.phase in ("started", "outcome_unknown") and _has_effect(state, call.number)
    return call.phase == "orphaned" or under_way


def _has_effect(state: RunState, number: int) -> bool:
    tool = state.spec.tool(state.calls.get(number).call.name) if state.spec else None
    return tool is None or tool.effect is not Effect.READ


def _ended(state: RunState, why: str, *, in_doubt: tuple[Phase, ...] = (), but: tuple[int, ...] = ()) -> Events:
    """End every open call; those of the phases `in_doubt`, and those that continue as a task with an effect, end with
    an unknown outcome.
    """
    tasks = [number for number in tasks_of(state) if _has_effect(state, number)] if in_doubt else []
    return [
        ev.ToolCallFinished(number=call.number, status="unknown", content=f"{why} {OUTCOME_UNKNOWN}")
        if call.phase in in_doubt or call.number in tasks
        else ev.ToolCallFinished(number=call.number, status="cancelled", content=words_of(why, call.past))
        for call in state.calls.current
        if call.phase != "finished" and call.number not in but
    ]


def on_start(
    state: RunState, number: int, *, at: datetime
) -> ev.ToolCallStarted | ev.ToolCallPostponed | ev.ToolCallFinished:
    """Return the event that starts an allowed call: its intent, with the key of its one effect.

    If a constraint that was added after the call was allowed rejects it, the event ends the call instead. If a policy
    lets it start in other hours only, the event postpones it.
    """
    call = state.calls.get(number)
    if state.constraints.kept and not call.undo and (constraint := constraint_on(state, call.call, at=at)):
        refused = constraint_result(number, constraint, call.past)
        return refused.model_copy(update={"content": call.feedback + refused.text})
    with_hours = [policy for policy in policies_of(state) if policy.zones] if state.features >= HOURS else []
    if with_hours and (later := postpone_call(state, call, with_hours, at=at)):
        return later
    key = state.effect_key(number, call.call)
    return ev.ToolCallStarted(number=number, key=key, request=call.grant, undo=call.undo)


def on_runtime_call(state: RunState, number: int, *, at: datetime) -> Events:
    """Return the events that follow the start of a call that the run itself carries out (`ToolSpec.kind`).

    Args:
        state: The state before the start.
        number: The call's number.
        at: Now.
    """
    name = state.calls.get(number).call.name
    if name == FINAL_RESULT:
        return on_result(state, number)
    if name == REFINE_TOOL:
        return on_refine_call(state, number)
    if name in SUBAGENT_TOOLS:
        return on_subagent_call(state, number)
    return on_sleep(state, number, at=at)


def on_outcome(state: RunState, number: int, outcome: ToolOutcome, *, at: datetime) -> Events:
    """Return the events that follow from a tool call's outcome: its result, or a request to resolve it."""
    call = state.calls.get(number)
    if (outcome.question or outcome.task) and state.features >= FOREIGN_WAITS:
        return on_pending(state, call, outcome, at=at)
    if outcome.unfit and can_reroute(call, outcome, at=at):
        return on_unfit(state, number, outcome, text_of(outcome.content)[:CONSTRAINT_CHARS])
    if call.undo and outcome.status != "ok":
        why = f"it could not be undone: {text_of(outcome.content)}"
        outcome = outcome.model_copy(update={"status": "unknown", "content": why, "signed": ""})
    ending = call.own or state.ending.learning  # a request about the run's own note would keep the run open
    asking = call.phase != "orphaned" or state.imported is not None
    if outcome.status == "unknown" and asking and not ending:
        # Resolving the outcome takes the same approvers and the same quorum as approving the call. It never expires.
        verdict = ask_all_policies(state, rule=NO_REASON, reason="")
        if call.terms:
            verdict = verdict.model_copy(update={"terms": call.terms, "requirements": call.requirements})
        request = new_request(state, "reconcile", number, call.call, verdict, why=text_of(outcome.content), at=at)
        if outcome.settles_in and state.features >= SETTLING:
            # Use the run's clock: the ledger's may differ.
            settles_at = at + timedelta(seconds=min(outcome.settles_in, LONGEST_SETTLING))
            request = request.model_copy(update={"settles_at": settles_at})
        signed = outcome.signed if state.features >= SIGNED_RESULTS else ""
        return [
            ev.ReconcileRequested(
                request=request, cause=outcome.cause, failures=outcome.failures, signed=signed, stack=outcome.stack
            )
        ]
    content, status = outcome.content, outcome.status
    if call.undo:
        content, status = with_heading(UNDONE, content), "undone"
    elif call.people_note:
        content = with_heading(call.people_note, content)
    changes = outcome.changes if outcome.status == "ok" else None
    change = context_change(state, number, changes) if changes else []
    # A signature covers the change as well, so it is kept only if that is recorded.
    signed = outcome.signed if state.features >= SIGNED_RESULTS and bool(changes) == bool(change) else ""
    return [
        *change,
        ev.ToolCallFinished(
            number=number,
            status=status,
            content=content,
            adopted=outcome.adopted,
            duration_ms=outcome.duration_ms,
            artifact=outcome.artifact,
            size=outcome.size,
            artifacts=outcome.artifacts if state.features >= RESULT_NAMES_ARTIFACTS else (),
            trust=outcome.trust,
            scope=outcome.scope if status == "cannot" else None,
            until=outcome.until if status == "cannot" else None,
            cause=outcome.cause,
            failures=outcome.failures,
            signed=signed,
            missing=outcome.missing,
            not_called=outcome.not_called,
            stack=outcome.stack,
        ),
    ]


def on_lost_call(effect: Effect, cause: str, message: str, *, cancelled: bool) -> ToolOutcome:
    """Return the outcome of a call whose activity failed: a read has failed; an effect may have happened."""
    if effect is Effect.READ:
        return ToolOutcome(status="cancelled" if cancelled else "failed", content=f"{cause}: {message}")
    return ToolOutcome(status="unknown", content=f"the call ended without an answer ({cause}: {message})")


def on_cancel(state: RunState, reason: str = "") -> Events:
    """Return the events that cancel a run: every open call ends, then the run; none if it has ended already.

    Args:
        state: The run's state.
        reason: The reason in the cancellation request; a claim, because anybody with access to Temporal can cancel.
    """
    if state.outcome:
        return []
    ended = _ended(state, "The run was cancelled.", in_doubt=("outcome_unknown", "orphaned"))
    why = one_line(reason[:CANCEL_REASON_CHARS], CANCEL_REASON_CHARS) if state.features >= CANCEL_REASON else ""
    return [*ended, ev.RunFinished(outcome="cancelled", result=f"cancelled: {why}" if why else "cancelled")]


def _failed(cause: str, message: str) -> ev.RunFinished:
    return ev.RunFinished(outcome="failed", cause=cause, result=message)
