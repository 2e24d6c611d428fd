"""Record the events that follow from the end of a call: its answer, or a failure that no retry can fix.

`holdfast.core.run.machine.start` handles the thread's past, which arrives before any other answer, and
`holdfast.core.run.machine.subagents` the ends of calls about sub-agents.
"""

from typing import Any, assert_never

from holdfast.core.agents.agent import shared
from holdfast.core.authority.previews import PROBLEM_CHARS, CallPreview
from holdfast.core.base.page_paths import linkable
from holdfast.core.base.text import one_line
from holdfast.core.llm.outages import Outage
from holdfast.core.log.events import AgentLoaded, LearningSkipped, MemoryRecalled, RunBlocked
from holdfast.core.mac.seals import answers
from holdfast.core.run.contracts.commands import Call, Failure, OwnRequest
from holdfast.core.run.contracts.error_types import (
    AGENT_FUNCTION_FAILED,
    BUDGET_UNSUPPORTED,
    CONTEXT_TOO_LONG,
    LLM_LOST,
    LLM_REJECTED,
    NOT_SEALED,
    NOT_SETTLED,
    UNATTENDED_UNSUPPORTED,
)
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import (
    AgentRequest,
    EffectsRequest,
    LoadedAgent,
    LoadedThread,
    PastEffects,
    ThreadRequest,
)
from holdfast.core.run.contracts.record import ArchiveRequest, Notice
from holdfast.core.run.contracts.requests import effect_of
from holdfast.core.run.contracts.snapshot import RunSnapshot
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.decide.foreign_tasks import on_task_poll
from holdfast.core.run.decide.placements import could_not, in_full, on_accepted, on_no_node
from holdfast.core.run.decide.reactions import on_loaded, on_lost_agent, on_lost_call, on_outcome
from holdfast.core.run.decide.replies import on_lost_attempts, on_lost_llm, on_reply, on_summary
from holdfast.core.run.inputs.adopt_policy import on_policy_loaded, on_policy_missing
from holdfast.core.run.inputs.interventions import react
from holdfast.core.run.inputs.resets import on_reset
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.machine.run_log import RunLog
from holdfast.core.run.rules.approval_requests import on_preview
from holdfast.core.run.rules.baselines import on_findings
from holdfast.core.run.rules.budget import short_of
from holdfast.core.run.state.features import BUDGETS, PAGE_LINKS, UNATTENDED
from holdfast.core.run.waits.polling import on_poll


def moved_snapshot(answer: object) -> RunSnapshot | None:
    """Return the thread's snapshot after its move, if an answer shows that this run moved it and was then reset."""
    match answer:
        case LoadedThread(moved=True):
            return answer.snapshot
        case PastEffects(moved=moved) | LoadedAgent(past=PastEffects(moved=moved)):
            return moved
        case _:
            return None


def on_answer(call: Call, request: OwnRequest, answer: Any, *, log: RunLog, calls: OpenCalls) -> None:
    """Handle the answer to a call.

    Args:
        call: The call, which is no longer open.
        request: Its request.
        answer: The answer, of the type that the table of activities names.
        log: Records the events.
        calls: The open calls.
    """
    placement = getattr(answer, "placement", None)
    if placement:
        placement = in_full(placement, call.places, now=log.state.places)
    if isinstance(request, AgentRequest) and request.policy:
        _on_policy(answer, log)
        return
    if placement and placement.node is None and _offers_again(call, request, answer, log):
        log.record(*on_no_node(log.state, call.number, placement.rejected, at=log.at))
        return
    if placement:
        log.record(*on_accepted(log.state, call.number, placement))
    match request:
        case EffectsRequest():
            _on_effects(answer, log, calls)
        case AgentRequest():
            on_agent(request, answer, log=log, calls=calls)
        case LLMRequest():
            _on_reply(request, answer, log)
        case ToolRequest():
            _on_outcome(call, request, answer, log, calls)
        case PreviewRequest():
            log.record(*on_preview(log.state, request.request, answer.preview, at=log.at))
        case ArchiveRequest():
            log.on_archived(answer)
        case ThreadRequest() | Notice():
            pass
        case _:
            assert_never(request)


def _offers_again(call: Call, request: OwnRequest, answer: Any, log: RunLog) -> bool:
    """Return whether the run offers work again that no node took. Polls, `verify` tools and the run's own notes have
    failed instead, and a call that one of the run's nodes could not make has its result.
    """
    if isinstance(request, ToolRequest):
        own = log.state.calls.find(call.number)
        noted = own is not None and own.own
        return call.number > 0 and not (request.poll or noted or could_not(answer))
    return True


def on_failure(call: Call, request: OwnRequest, failure: Failure, *, log: RunLog, calls: OpenCalls) -> Failure | None:
    """Handle a call that failed for good, or whose answer was rejected.

    Args:
        call: The call, which is no longer open.
        request: Its request.
        failure: Why it failed.
        log: Records the events.
        calls: The open calls.

    Returns:
        The failure, if it ends the run; else None.
    """
    cause, message = failure.cause, failure.message
    match request:
        case EffectsRequest() if cause == NOT_SEALED:
            calls.call(request, log.state)
        case ThreadRequest() | EffectsRequest():
            return failure
        case AgentRequest() if request.policy:
            log.record(*on_policy_missing(log.state, f"{cause}: {message}"))
        case AgentRequest() if not log.loaded:
            return failure  # the import has recorded nothing yet
        case AgentRequest() if log.state.next_agent:
            then = "reclassify the run again, or `retry` once a worker has the agent"
            log.record(RunBlocked(cause=cause, message=f"{message}; {then}"))
        case AgentRequest():
            log.record(*on_lost_agent(cause, message))
        case LLMRequest():
            _on_lost_llm(request, failure, log)
        case ToolRequest() if request.poll and request.resumed:
            _on_outcome(call, request, ToolOutcome(status="failed", content=f"{cause}: {message}"), log, calls)
        case ToolRequest() if call.number:
            lost = on_lost_call(effect_of(log.state, call.number), cause, message, cancelled=failure.cancelled)
            _on_outcome(call, request, lost, log, calls)
        case ToolRequest():
            _on_outcome(call, request, ToolOutcome(status="failed", content=f"{cause}: {message}"), log, calls)
        case PreviewRequest():
            failed = CallPreview(problem=one_line(f"{cause}: {message}", PROBLEM_CHARS))
            log.record(*on_preview(log.state, request.request, failed, at=log.at))
        case Notice():
            pass  # the log has the event that the receivers miss
        case ArchiveRequest() if cause in (NOT_SETTLED, NOT_SEALED):
            log.on_archive_failed()
        case ArchiveRequest():
            log.archive_refuses = True
            if not log.state.outcome:
                log.record(RunBlocked(cause=cause, message=message))
        case _:
            assert_never(request)
    return None


def _on_effects(past: PastEffects, log: RunLog, calls: OpenCalls) -> None:
    """Record the events that follow from the ledger's answer; none without a reset if the log has all effects."""
    state = log.state
    known = {effect.key for effect in state.calls.past}
    known |= {state.effect_key(call.number, call.call) for call in state.calls.current if call.begun or call.past}
    effects = tuple(effect for effect in past.effects if effect.key not in known)
    reset, calls.reset = calls.reset, False
    if (effects or reset) and not state.outcome:
        asking = bool(calls.under_way(LLMRequest))
        log.record(*on_reset(state, effects, left_out=past.left_out, asking=asking, at=log.at))


def _on_policy(loaded: LoadedAgent, log: RunLog) -> None:
    """Handle the policy that a worker has loaded, or that none has."""
    if loaded.problem:
        log.record(*on_policy_missing(log.state, loaded.problem))
    else:
        log.record(*on_policy_loaded(log.state, loaded.spec.policy, loaded.zones, at=log.at))


def on_agent(request: AgentRequest, loaded: LoadedAgent, *, log: RunLog, calls: OpenCalls) -> None:
    """Handle the agent that a worker has loaded, with its policy and budget."""
    if loaded.problem:
        log.record(RunBlocked(cause=AGENT_FUNCTION_FAILED, message=loaded.problem))
        return
    spec = shared(loaded.spec)
    budget = spec.budget.narrowed(request.budget) if spec.budget else request.budget
    if budget and max(loaded.features, log.state.features) < BUDGETS:
        why = "the worker that loaded the agent is of a release without budgets: upgrade it, and start the run again"
        log.record(*on_lost_agent(BUDGET_UNSUPPORTED, why))
        return
    unattended = (request.when_blocked or spec.when_blocked) == "fail"
    if unattended and max(loaded.features, log.state.features) < UNATTENDED:
        why = "the worker that loaded the agent is of a release without unattended runs: upgrade it, and start again"
        log.record(*on_lost_agent(UNATTENDED_UNSUPPORTED, why))
        return
    lift = log.state.lift
    log.record(
        AgentLoaded(
            spec=spec,
            spec_hash=spec.hash,
            policy_hash=spec.policy.hash,
            workspace=loaded.workspace,
            notify=loaded.notify,
            features=loaded.features,
            budget=budget,
            price=loaded.price if budget and budget.usd is not None else None,
            context=loaded.context,
            unattended=unattended,
            zones=loaded.zones,
            page=_page(loaded, max(loaded.features, log.state.features)),
        )
    )
    if lift:
        log.record(*react(log.state, "lift", lift.model_dump(mode="json"), at=log.at).events)
    if loaded.past:
        _on_effects(loaded.past, log, calls)
    if loaded.recalled:
        log.record(MemoryRecalled(tiers=loaded.recalled))
    log.record(*on_loaded(log.state))


def _page(loaded: LoadedAgent, level: int) -> str:
    """Return the address of the gateway with the page; empty if the worker named none."""
    return linkable(loaded.page) if loaded.page and level >= PAGE_LINKS else ""


def _on_reply(request: LLMRequest, reply: LLMReply, log: RunLog) -> None:
    shown = request.transcript.length
    if request.compacting:
        kept = log.transcript.unanswered if shown < log.transcript.length else 0
        originals = log.transcript.originals
        log.record(*on_summary(log.state, reply, compacted=shown, kept=kept, originals=originals))
    else:
        log.record(*on_reply(log.state, reply, shown=shown, at=log.at))


def _on_outcome(call: Call, request: ToolRequest, outcome: ToolOutcome, log: RunLog, calls: OpenCalls) -> None:
    if request.cancels:
        return  # the run is about to end, whatever became of its task
    if request.poll and request.resumed:
        log.record(*on_task_poll(log.state, call.number, outcome, poll=request.poll, at=log.at))
        return
    if request.poll:
        log.record(*on_poll(log.state, call.number, outcome, poll=request.poll, at=log.at))
        return
    if call.number:
        log.record(*on_outcome(log.state, call.number, outcome, at=log.at))
        return
    if findings := calls.add_finding(request.call.name, outcome):
        log.record(*on_findings(log.state, findings, baseline=calls.baseline, at=log.at))


def _on_lost_llm(request: LLMRequest, failure: Failure, log: RunLog) -> None:
    """Handle an LLM call that failed for good. For a run with a budget, the failure needs proof: a rejected request
    costs nothing, and anybody with access to Temporal can fail the activity. Without proof, the call counts as lost.
    """
    cause, message, proof = failure.cause, failure.message, failure.proof
    if proof and (not answers(proof, request) or proof.cause != cause):
        proof = None
    if proof and proof.lost:
        log.record(on_lost_attempts(log.state, proof))
    learning = log.state.ending.learning == "asked" and not request.compacting
    if proof and proof.lost and cause == LLM_LOST and not (learning and short_of(log.state)):
        return  # the call is due again
    if learning:
        log.record(LearningSkipped(cause=cause, message=message))
    elif proof:
        log.record(*on_lost_llm(log.state, cause, message, proof.outage))
    elif request.budgeted and cause in (LLM_REJECTED, CONTEXT_TOO_LONG, LLM_LOST):
        why = f"the end of the LLM call does not come from our own processes ({cause}: {message})"
        log.record(*on_lost_llm(log.state, NOT_SEALED, why))
    else:
        log.record(*on_lost_llm(log.state, cause, message, Outage.from_details(failure.details)))
