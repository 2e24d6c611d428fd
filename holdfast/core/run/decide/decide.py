"""Decide the next action of a run: `action = next_action(state, at=now)`. Pure; the workflow carries the action out.

1. Nothing runs without a recorded verdict (`holdfast.core.run.rules.verdicts`). The LLM's text is input and decides
   nothing.
2. Allowed calls start at once, or after a delay if they repeat (`holdfast.core.run.rules.loop_guard`). A call that
   awaits approval delays no other call.
3. The next LLM call is made when every call of the step has a result. Before it, the context is compacted if
   necessary, and then waiting messages are added.
4. Calls that sleep are polled on schedule (`holdfast.core.run.waits.polling`).
5. After the LLM's answer, the run may do closing work before it ends (`holdfast.core.run.rules.closing_work`).
6. Every LLM call fits the budget of the run, or is the last one (`holdfast.core.run.rules.budget`).
7. While a person pauses or moves the run, nothing starts (`holdfast.core.run.inputs.pause`,
   `holdfast.core.run.inputs.move`).
8. If the run adopts another policy, nothing starts before that judges the calls again
   (`holdfast.core.run.inputs.adopt_policy`).
9. If no node takes the work, the run offers it again later (`holdfast.core.run.decide.placements`).
10. While the run waits for something from outside (`awaited_input`), Temporal's Web UI shows a pending timer. A wait
    without a deadline has one, too, whose end changes nothing. It starts when the events before the wait are in the
    permanent record, so that an input which arrives sooner costs none. It is started anew when the run waits for
    something else, because its summary cannot change. So that a later release replays the same timers, this depends on
    `awaited_input` alone, and not on the words of the summary.
"""

from datetime import datetime, timedelta

from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG
from holdfast.core.run.rules.baselines import baseline_due
from holdfast.core.run.rules.budget import budget_due, short_of
from holdfast.core.run.rules.closing_work import learning_due, progress_due
from holdfast.core.run.rules.loop_guard import block_on_refusals
from holdfast.core.run.rules.unattended import next_of_failing
from holdfast.core.run.state.features import SHOWS_WAITS
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
from holdfast.core.run.waits.polling import due_polls

_FOR_NODES = LoadAgent | CallLLM | Compact | StartCalls | ResolveCalls | Poll
"""Actions that need a node: if none took the work, the run offers it again after a while."""

OPEN_WAIT = timedelta(days=365)
"""Duration of the timer of a wait without a deadline."""


def next_action(state: RunState, *, at: datetime) -> Action:
    """Return the next action. After a long pause, the run first verifies the state of the world.

    Args:
        state: The run's state.
        at: Now, which may be long after the last event.
    """
    if state.pause or (state.moving and not state.outcome):
        return Wait()
    action = _unverified_action(state, at=at)
    if state.places.until and state.places.waits_at(at) and isinstance(action, _FOR_NODES):
        return Wait()
    if not state.spec or not state.spec.verify:
        return action
    if isinstance(action, StartCalls | TakeMessages | CallLLM | Compact) and state.stale_for(at):
        return Verify(state.spec.verify)
    if isinstance(action, Wait) and baseline_due(state):
        return Verify(state.spec.verify, baseline=True)
    return action


def _unverified_action(state: RunState, *, at: datetime) -> Action:
    """Return the next action, on the assumption that the recorded state of the world still holds."""
    if state.outcome:
        return Finish()
    if state.unattended and state.blocked:
        return _failing_action(state, at=at)
    if state.policy_change and state.adopts_policy:
        return LoadPolicy()
    if state.calls.current and (action := _call_action(state, at=at)):
        return action
    if state.subagents.children and state.subagents.open and state.ends_at(at):
        return EndSubagents()
    if state.keeps_progress and progress_due(state, at=at):
        return NoteProgress()
    if state.blocked:
        return Complete() if state.ends_at(at) else Wait()
    if state.spec is None or state.next_agent:
        return LoadAgent()
    limits, steps = state.spec.limits, state.steps
    if steps.rejected_replies >= limits.max_rejected_replies:
        return Block("RepliesRejected", f"{steps.rejected_replies} replies in a row could not be used")
    if state.awaits_message and not state.compacts_now:
        return _ending(state) if state.ends_at(at) else Wait()
    if state.account.limits and (action := _budget_action(state)):
        return action
    if compaction := _compaction_due(state):
        return compaction
    if state.inbox.waiting:
        return TakeMessages()
    if state.repeats.seen and (block := block_on_refusals(state)):
        return block
    if steps.used_up:
        return Block("StepLimit", _step_limit_message(state))
    if state.account.limits and (short := short_of(state)):
        return ReportBudget(short)
    return CallLLM()


def _call_action(state: RunState, *, at: datetime) -> Action | None:
    """Return the next action for the calls of the step; None if each has its result."""
    if state.spec and (orphaned := state.calls.orphaned):
        return ResolveCalls(orphaned)
    if startable := state.calls.startable(at):
        return StartCalls(startable)
    if state.dormancy.waits and (polls := due_polls(state, at=at)):
        return Poll(polls)
    return Wait() if state.calls.waiting else None


def _failing_action(state: RunState, *, at: datetime) -> Action:
    """Return the next action of an unattended run that is blocked."""
    if state.spec and (orphaned := state.calls.orphaned):
        return ResolveCalls(orphaned)
    action = next_of_failing(state, at=at)
    notes = isinstance(action, Fail) and state.keeps_progress and progress_due(state, at=at)
    return NoteProgress() if notes else action


def _budget_action(state: RunState) -> Action | None:
    """Return the action that the budget requires; None if it requires none."""
    if state.account.is_allowance and state.account.closing == "over":
        return EndSubagents() if state.subagents.open else Complete()
    if due := budget_due(state):
        return due
    if state.account.closing:
        return _last_call(state)
    compaction = _compaction_due(state)
    if isinstance(compaction, Compact) and compaction.asking and (short := short_of(state, summary=True)):
        return ReportBudget(short)
    return None


def _last_call(state: RunState) -> Action:
    return Block("StepLimit", _step_limit_message(state)) if state.steps.used_up else CallLLM()


def _step_limit_message(state: RunState) -> str:
    assert state.spec is not None
    if state.unattended:
        return f"{state.steps.count} steps made, which is the limit of {state.spec.name} (`Limits.max_steps`)"
    return f"{state.steps.count} steps made; `retry` allows {state.spec.limits.max_steps} more"


def _ending(state: RunState) -> Action:
    """Return the next action after the LLM has answered and the wait for a message is over."""
    if learning_due(state):
        return AskForLearnings()
    return CallLLM() if state.ending.learning == "asked" else Complete()


def _compaction_due(state: RunState) -> Compact | Block | None:
    assert state.spec is not None
    context, step = state.context, state.steps.count
    if context.given:
        return Compact(asking=False, answered_only=False)
    if not context.oversized:
        if context.requested:
            return Compact(asking=True, answered_only=False)
        # The step after a compaction shows whether it helped: never compact at two steps in a row.
        due = step > context.compacted_at + 1 and context.is_full(state.spec.limits.compaction_tokens)
        return Compact(asking=True, answered_only=False) if due else None
    if context.overflows == 1 and context.compacted_at < step:
        return Compact(asking=True, answered_only=True)
    if context.overflows in (1, 2) and step:
        return Compact(asking=False, answered_only=False)
    return Block(CONTEXT_TOO_LONG, "the request does not fit the LLM, even after the furthest context compaction")


def awaited_input(state: RunState, *, at: datetime) -> str:
    """Return what a run waits for from outside; empty for nothing, and below the feature level of these timers."""
    if state.features < SHOWS_WAITS or state.outcome or state.moving:
        return ""
    if state.pause:
        return "resume"
    if state.blocked:
        return f"retry {state.blocked.cause}"
    if requests := state.authority.requests:
        return f"decide {' '.join(request.id for request in requests)}"
    if state.dormancy.waits:
        return f"wake {' '.join(str(wait.number) for wait in state.dormancy.waits)}"
    return "say" if state.status == "waiting_message" and state.idle.until and state.idle.until > at else ""
