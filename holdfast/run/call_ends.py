"""What follows from the end of a call: from an answer, or from a failure that no further attempt can help."""

from collections.abc import Callable
from typing import Any, assert_never

from holdfast.agents.agent import shared
from holdfast.llm.outages import Outage
from holdfast.log.events import AgentLoaded, LearningSkipped, MemoryRecalled, RunBlocked
from holdfast.run.archiving import Archiving
from holdfast.run.baseline import on_findings
from holdfast.run.budgeting import short_of
from holdfast.run.children import AnnounceEnd, EndChildren, LookAtChildren, StartChildren
from holdfast.run.commands import Call, Failure
from holdfast.run.consequences import on_loaded, on_lost_agent, on_lost_call, on_outcome
from holdfast.run.contracts import (
    BUDGET_UNSUPPORTED,
    CONTEXT_TOO_LONG,
    LLM_LOST,
    LLM_REJECTED,
    NOT_SEALED,
    NOT_SETTLED,
    AgentRequest,
    ArchiveRequest,
    EffectsRequest,
    LLMReply,
    LLMRequest,
    LoadedAgent,
    LoadedThread,
    Notice,
    ThreadRequest,
    ToolOutcome,
    ToolRequest,
)
from holdfast.run.features import BUDGETS
from holdfast.run.lookback import Lookback
from holdfast.run.open_calls import OpenCalls
from holdfast.run.polling import on_poll
from holdfast.run.recorder import Recorder
from holdfast.run.replies import on_lost_attempts, on_lost_llm, on_reply, on_summary
from holdfast.run.requests import effect_of
from holdfast.run.snapshot import RunSnapshot
from holdfast.run.subagent_watch import SubagentWatch
from holdfast.run.verification import Verification
from holdfast.seals.orders import answers


class CallEnds:
    """Turns the ends of calls into events.

    Args:
        run: Records the events.
        calls: The open calls, without the one that has ended.
        lookback: Takes what the ledger answers.
        archiving: Where the permanent record stands.
        verification: Collects what `verify` tools find.
        subagents: Takes what becomes of sub-agents.
        on_thread: Takes the thread's past.
        on_moved: Takes where the thread stands that this run has moved, before it was reset.
    """

    def __init__(
        self,
        run: Recorder,
        calls: OpenCalls,
        lookback: Lookback,
        archiving: Archiving,
        verification: Verification,
        subagents: SubagentWatch,
        *,
        on_thread: Callable[[LoadedThread], None],
        on_moved: Callable[[RunSnapshot], None],
    ) -> None:
        self._run = run
        self._calls = calls
        self._lookback = lookback
        self._archiving = archiving
        self._verification = verification
        self._subagents = subagents
        self._on_thread = on_thread
        self._on_moved = on_moved

    def on_answer(self, call: Call, answer: Any) -> None:
        """Take in an answer, which is of the type that the table of activities names."""
        request = call.request
        match request:
            case ThreadRequest():
                self._on_thread(answer)
            case EffectsRequest() if answer.moved:
                self._on_moved(answer.moved)
            case EffectsRequest():
                self._lookback.finish(answer)
            case AgentRequest():
                self._on_agent(request, answer)
            case LLMRequest():
                self._on_reply(request, answer)
            case ToolRequest():
                self._on_outcome(call, request, answer)
            case Notice() | AnnounceEnd():
                pass
            case StartChildren():
                self._subagents.on_started(answer)
            case LookAtChildren():
                self._subagents.on_looked(request, answer)
            case EndChildren():
                self._subagents.on_ended(request, answer)
            case ArchiveRequest():
                self._archiving.on_written(answer)
            case _:
                assert_never(request)

    def on_failure(self, call: Call, failure: Failure) -> Failure | None:
        """Take in that a call failed for good, or that its answer does not count.

        Returns:
            The failure, if it ends the run; else None.
        """
        run, request, cause, message = self._run, call.request, failure.cause, failure.message
        match request:
            case EffectsRequest() if cause == NOT_SEALED:
                self._calls.call(request, run.state)
            case ThreadRequest() | EffectsRequest():
                return failure
            case AgentRequest() if not run.loaded:
                return failure  # nothing of the import is recorded
            case AgentRequest():
                run.record(*on_lost_agent(cause, message))
            case LLMRequest():
                self._on_lost_llm(request, failure)
            case ToolRequest() if call.number:
                effect = effect_of(run.state, call.number)
                outcome = on_lost_call(effect, cause, message, cancelled=failure.cancelled)
                self._on_outcome(call, request, outcome)
            case ToolRequest():
                self._on_outcome(call, request, ToolOutcome(status="failed", content=f"{cause}: {message}"))
            case Notice():
                pass  # the receivers miss it; the log has the event
            case AnnounceEnd():
                pass  # the parent looks from time to time
            case StartChildren():
                self._subagents.on_not_started(request)
            case LookAtChildren():
                self._subagents.on_not_looked(request)
            case EndChildren():
                self._subagents.on_not_ended(request)
            case ArchiveRequest() if cause in (NOT_SETTLED, NOT_SEALED):
                self._archiving.on_unsettled()
            case ArchiveRequest():
                self._archiving.refused = True
                if not run.state.outcome:
                    run.record(RunBlocked(cause=cause, message=message))
            case _:
                assert_never(request)
        return None

    def _on_agent(self, request: AgentRequest, loaded: LoadedAgent) -> None:
        if loaded.past and loaded.past.moved:
            self._on_moved(loaded.past.moved)
            return
        run, spec = self._run, shared(loaded.spec)
        budget = spec.budget.narrowed(request.budget) if spec.budget else request.budget
        if budget and max(loaded.features, run.state.features) < BUDGETS:
            why = (
                "the worker that loaded the agent is of a release without budgets: upgrade it, and start the run again"
            )
            run.record(*on_lost_agent(BUDGET_UNSUPPORTED, why))
            return
        run.record(
            AgentLoaded(
                spec=spec,
                spec_hash=spec.hash,
                policy_hash=spec.policy.hash,
                workspace=loaded.workspace,
                notify=loaded.notify,
                features=loaded.features,
                budget=budget,
                price=loaded.price if budget and budget.usd is not None else None,
            )
        )
        if loaded.past:
            self._lookback.finish(loaded.past)
        if loaded.recalled:
            run.record(MemoryRecalled(tiers=loaded.recalled))
        run.record(*on_loaded(run.state))

    def _on_reply(self, request: LLMRequest, reply: LLMReply) -> None:
        run, shown = self._run, request.transcript.length
        if request.compacting:
            kept = run.transcript.unanswered if shown < run.transcript.length else 0
            originals = run.transcript.originals
            run.record(*on_summary(run.state, reply, compacted=shown, kept=kept, originals=originals))
        else:
            run.record(*on_reply(run.state, reply, shown=shown, at=run.at))

    def _on_outcome(self, call: Call, request: ToolRequest, outcome: ToolOutcome) -> None:
        run = self._run
        if request.poll:
            run.record(*on_poll(run.state, call.number, outcome, poll=request.poll, at=run.at))
            return
        if call.number:
            run.record(*on_outcome(run.state, call.number, outcome, at=run.at))
            return
        self._verification.add(request.call.name, outcome)
        if not self._calls.verifying:
            baseline = self._verification.baseline
            run.record(*on_findings(run.state, self._verification.take(), baseline=baseline, at=run.at))

    def _on_lost_llm(self, request: LLMRequest, failure: Failure) -> None:
        """Take in that an LLM call failed for good. For a run with a budget, the end of a call needs proof: a refusal
        costs nothing, and anybody who reaches Temporal can fail the activity. Without proof, the call counts as lost.
        """
        run, cause, message, proof = self._run, failure.cause, failure.message, failure.proof
        if proof and (not answers(proof, request) or proof.cause != cause):
            proof = None
        if proof and proof.lost:
            run.record(on_lost_attempts(run.state, proof))
        learning = run.state.ending.learning == "asked" and not request.compacting
        if proof and proof.lost and cause == LLM_LOST and not (learning and short_of(run.state)):
            return  # the call is due again
        if learning:
            run.record(LearningSkipped(cause=cause, message=message))
        elif proof:
            run.record(*on_lost_llm(run.state, cause, message, proof.outage))
        elif request.budgeted and cause in (LLM_REJECTED, CONTEXT_TOO_LONG, LLM_LOST):
            why = f"the end of the LLM call does not come from our own processes ({cause}: {message})"
            run.record(*on_lost_llm(run.state, NOT_SEALED, why))
        else:
            run.record(*on_lost_llm(run.state, cause, message, Outage.from_details(failure.details)))
