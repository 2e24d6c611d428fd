"""An audit judges every event of a log anew, with the functions that decided it when it was recorded.

A chain of digests shows that nothing was altered after it was written. It does not show who wrote it: anyone who can
write to the database can compute a chain. So the audit folds the log, and each event has to follow from those before:

1. A fact from outside (a reply, an outcome, a statement, the time) is taken as it stands. What follows from it is
   computed again, including verdicts, requests, outcomes of decisions and quorum, and has to be what was recorded.
2. A call starts where it was allowed to, once, with the key of its own effect.
3. A signature that counted is verified with the recorded policy's keys, and with those of `trusted` if it is given.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from holdfast.audit.events import Expected, Wrong, as_outcome, as_poll, as_reply, difference, same
from holdfast.audit.forks import together
from holdfast.audit.subagents import beginnings, ends, is_subagent_call, raisings, refuse_words, results
from holdfast.audit.trees import Family
from holdfast.authority.approvals import COUNTING
from holdfast.authority.policy import Policy
from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    BudgetExtended,
    BudgetLow,
    BudgetReserved,
    BudgetSpent,
    CompactionRequested,
    ConstraintLifted,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    DormancyBegan,
    LearningRequested,
    LearningSkipped,
    LLMCallLost,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    MoveRequested,
    Proven,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunForked,
    RunImported,
    RunPaused,
    RunReset,
    RunResumed,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
    WaitPolled,
    WakeReceived,
)
from holdfast.log.references import artifacts_of
from holdfast.run.baseline import on_findings
from holdfast.run.budgeting import on_call, on_report
from holdfast.run.call_words import describe_call
from holdfast.run.consequences import (
    on_cancel,
    on_loaded,
    on_outcome,
    on_reopen,
    on_reply,
    on_start,
    on_time,
)
from holdfast.run.constraints import on_lift
from holdfast.run.decide import next_action
from holdfast.run.decisions import on_decision, on_due
from holdfast.run.dormancy import on_wake, wake_payload
from holdfast.run.ending import on_complete, on_learning_due, on_progress_due
from holdfast.run.evolve import evolve
from holdfast.run.evolve_import import arrives
from holdfast.run.extending import on_extension
from holdfast.run.features import RESULT_NAMES_ARTIFACTS
from holdfast.run.forking import forked_events
from holdfast.run.importing import on_entered, refuse_import
from holdfast.run.inputs import on_compact, on_message
from holdfast.run.moving import on_move, on_moved
from holdfast.run.next_actions import (
    AskForLearnings,
    CallLLM,
    Compact,
    Complete,
    NoteProgress,
    Poll,
    ReportBudget,
    StartCalls,
    TakeMessages,
)
from holdfast.run.pausing import on_pause, on_resume
from holdfast.run.polling import ends_unfulfilled, on_poll, poll_event, refuse_poll
from holdfast.run.refining import on_refinement
from holdfast.run.repeats import told
from holdfast.run.resets import on_reset
from holdfast.run.rights import on_delegation, on_revocation
from holdfast.run.runtime_calls import on_runtime_call
from holdfast.run.state import RunState
from holdfast.run.subagents import on_starts_due
from holdfast.tools.effects import Effect, PastEffect


@dataclass(frozen=True)
class Fault:
    """An event that does not follow."""

    position: int
    reason: str


@dataclass(frozen=True)
class Begun:
    """An effect that a call has begun."""

    number: int
    tool: str
    position: int
    """Of its `tool_call_started`."""
    edited: bool
    """A person changed the arguments."""
    effect: PastEffect
    """The effect, as the ledger identifies it."""
    finished: ToolCallFinished | None = None
    """What its tool returned; None if it returned nothing, or people said what became of it."""


_RETURNING = ("started", "orphaned")
"""Phases of calls whose tools can still return a result."""

Effects = dict[tuple[str, int], Begun]
"""By key and epoch: each has a row in the ledger."""


class Audit:
    """Judges a log from its beginning, or from a state that it had.

    Args:
        thread: The id of the thread that the log has to belong to; of a fork, that of the original where it begins
            (`holdfast.audit.forks.first_thread`).
        state: The state before the first event that is judged; None for the beginning of the log.
        trusted: People, gateways and their keys, from outside the log; None to trust the log's own.
        head: The digest of the event before the first one that is judged.
    """

    def __init__(
        self, thread: str, *, state: RunState | None = None, trusted: Policy | None = None, head: str = ""
    ) -> None:
        self.state = state or RunState()
        self.fault: Fault | None = None
        """The first event that does not follow; nothing after it was judged."""
        self.signatures = 0
        """How many signatures were verified."""
        self.effects: Effects = {}
        """All effects that were begun."""
        self.past: dict[str, PastEffect] = {}
        """Key → effect of branches that a reset abandoned, as the log has them."""
        self.artifacts: dict[str, int] = {}
        """Address → position of the first event that refers to it."""
        self.policies: set[str] = set()
        """Digests of the policies that have been in force."""
        self.family = Family()
        """How its runs began and ended, and those of its sub-agents as the log has them."""
        self._thread = thread
        self._trusted = trusted
        self._under_way: dict[int, tuple[str, int]] = {}
        """Number of a call → its effect, until the call has a result."""
        self._last = ""
        """The type of the last event."""
        self._head = head
        self._forked: RunForked | None = None
        """The fork whose start has yet to come."""

    @property
    def thread(self) -> str:
        """The id of the thread to which the last event belongs that was judged."""
        return self._thread

    def take(self, events: Sequence[AgentEvent], *, more: bool = False) -> int:
        """Judge events that follow those before, up to the first fault; return how many were judged.

        Args:
            events: The events.
            more: More will follow them. The last ones are then left for the next time: what is recorded together is
                judged together.
        """
        index = 0
        while index < len(events) and self.fault is None:
            try:
                reach = self._reach(events[index])
                if more and index + reach > len(events):
                    break
                index += self._judge(together(events[index : index + reach]))
            # A forged log can hold anything, in any order, and the fold can fail on it in as many ways.
            except Exception as error:
                why = str(error) if isinstance(error, Wrong) else f"nothing that came before leads to it ({error!r})"
                self.fault = Fault(events[index].position, f"{events[index].type}: {why}")
        return index

    def _reach(self, event: AgentEvent) -> int:
        """The most events that can be recorded together with this one."""
        state, calls = self.state, event.message.tool_calls if isinstance(event, LLMReplied) and event.message else ()
        return 10 + 4 * max(
            len(calls), len(state.calls.current), len(state.authority.requests), len(state.inbox.waiting)
        )

    def _judge(self, events: Sequence[AgentEvent]) -> int:
        """Judge the first of `events` and all that follows from it; returns how many those are.

        Raises:
            Wrong: The first does not follow.
        """
        first, nearest = events[0], None
        if self.state.thread not in ("", self._thread):
            raise Wrong(f"it belongs to thread {self.state.thread!r}, and this is {self._thread!r}")
        for expected in filter(None, self._leads_to(first, events)):
            differs = next((n for n, pair in enumerate(zip(expected, events, strict=False)) if not same(*pair)), None)
            if differs is None:
                own = [event for event, wanted in zip(events, expected, strict=False) if not isinstance(wanted, type)]
                for event in own:
                    self._fold(event)
                return len(own)
            if nearest is None or differs > nearest[0]:
                nearest = differs, expected[differs]
        if nearest is None:
            raise Wrong("nothing that came before leads to it")
        place, wanted = nearest
        self.fault = Fault(events[place].position, f"{events[place].type}: {difference(wanted, events[place])}")
        return 1

    def _fold(self, event: AgentEvent) -> None:
        if isinstance(event, Proven):
            self._check_proof(event)
        if isinstance(event, AgentLoaded):
            self.policies.add(event.spec.policy.hash)
        if isinstance(event, RunStarted | RunForked):
            self.policies.update(policy.hash for policy in event.policies)
        if isinstance(event, RunReset):
            self.past.update({effect.key: effect for effect in event.effects})
        if isinstance(event, RunForked):  # what came before is the original's, and so are its effects
            self._thread, self.effects, self.past, self._under_way = event.thread, {}, {}, {}
            self._forked = event
        if isinstance(event, ToolCallStarted):
            self._begun(event)
        if isinstance(event, ToolCallFinished):
            if told(self.state, event) != event.repeats:
                raise Wrong(f"call {event.number} has not ended like this {event.repeats} times in a row")
            self._finished(event)
        for address in artifacts_of(event, named=self.state.features >= RESULT_NAMES_ARTIFACTS):
            self.artifacts.setdefault(address, event.position)
        before, self.state = self.state, evolve(self.state, event)
        self.family.take(before, event, self.state)
        self._head, self._last = event.digest, event.type
        if isinstance(event, RunStarted):
            self._forked = None

    # What leads to what.

    def _leads_to(self, event: AgentEvent, events: Sequence[AgentEvent]) -> Iterator[Sequence[Expected]]:
        """What may be recorded where this event stands: the event, and all that is recorded together with it.

        Args:
            event: The first of `events`.
            events: The event, and what comes after it.
        """
        state, at = self.state, event.at
        if not state.events and not isinstance(event, RunStarted):
            raise Wrong("a log begins with run_started")
        match event:
            case RunForked():
                yield self._forks(event)
            case RunImported():
                refused = refuse_import(event.point, state, thread=self._thread, position=state.events, head=self._head)
                if refused:
                    raise Wrong(refused)
                yield [event]
            case MoveRequested():
                yield on_move(state, {"by": event.by, "reason": event.reason})[2]
            case RunStarted():
                self._check_start(event)
                if self._forked and not isinstance(next(iter(events[1:]), None), UserMessageReceived):
                    yield [event]  # a fork may have nothing new to say
                else:
                    yield [*on_reopen(state), event, *_task(events)]
            case AgentLoaded() if state.spec is None and not state.outcome:
                policy = event.spec.policy
                if event.spec_hash != event.spec.hash or event.policy_hash not in ("", policy.hash):
                    raise Wrong("its digests are not those of the agent and of the policy that it holds")
                if (own := event.spec.budget) and event.budget != own.narrowed(event.budget):
                    raise Wrong(f"its budget allows more than the agent's own ({own.words})")
                if (given := state.origin.handed) and event.budget != given.narrowed(event.budget):
                    raise Wrong(f"its budget allows more than its parent gave it ({given.words})")
                entered = evolve(state, event) if arrives(state) else state
                yield [event, *(on_entered(entered, at=at) if arrives(state) and not on_loaded(entered) else [])]
            case BudgetReserved(call=int()):
                yield on_starts_due(state)
                yield from raisings(state, event, events)
            case BudgetReserved() if isinstance(action := next_action(state, at=at), CallLLM | Compact):
                yield on_call(state, summary=isinstance(action, Compact))
            case BudgetLow() | BudgetSpent() if isinstance(action := next_action(state, at=at), ReportBudget):
                yield on_report(state, action)
            case BudgetExtended():
                yield on_extension(state, event.said.model_dump(), at=at)[2]
            case MemoryRecalled() if self._last in ("agent_loaded", "run_reset"):
                yield [event]
            case LLMReplied() if state.spec and not state.calls.open and not state.outcome:
                yield [event, *on_reply(state, as_reply(event, events), shown=event.transcript_length, at=at)[1:]]
            case DecisionReceived():
                if event.outcome not in (*COUNTING, "judged_anew"):
                    yield [event]  # it changed nothing, and its body was not kept
                else:
                    received, follows = on_decision(state, event.said, at=at)
                    yield [received, *follows]
            case AuthorityDelegated():
                yield on_delegation(state, event.said, at=at)[1]
            case RuleRevoked() | DelegationRevoked():
                yield on_revocation(state, event.said)[1]
            case ConstraintLifted():
                yield on_lift(state, event.said, at=at)[1]
            case UserMessageReceived(task=False):
                yield on_message(state, event.said.model_dump(), name="say", at=at)[2]
            case TaskRefined(call=None):
                yield on_refinement(state, event.said.model_dump(), at=at)[2]
            case MessageTaken() if isinstance(next_action(state, at=at), TakeMessages):
                yield [MessageTaken(message=waiting.message) for waiting in state.inbox.waiting]
            case ApprovalReminded() | ApprovalEscalated() | ApprovalExpired():
                yield on_due(state, at=at)
            case BaselineRecorded() | StateVerified() if state.spec and _tools(event) == sorted(state.spec.verify):
                yield on_findings(state, event.findings, baseline=isinstance(event, BaselineRecorded), at=at)
            case RunReset():
                yield on_reset(state, event.effects, left_out=event.left_out, asking=event.asking, at=at)
            case ToolCallStarted():
                yield from self._starts(event)
            case ToolCallFinished() | ReconcileRequested() | RunFinished():
                yield from self._ends(event)
            case ToolCallRequested(own=True) if isinstance(next_action(state, at=at), NoteProgress):
                yield on_progress_due(state, at=at)
            case LearningRequested() if isinstance(next_action(state, at=at), AskForLearnings):
                yield [on_learning_due(state)]
            case LearningSkipped() if state.ending.learning == "asked":
                yield [event]
            case RunUnblocked() if state.blocked:
                yield [event]
            case CompactionRequested():
                yield on_compact(state, {"by": event.by, "reason": event.reason})[2]
            case WaitPolled():
                yield from self._polls(event, events)
            case SubagentStarted():
                yield from beginnings(state, event)
            case SubagentEnded():
                yield from ends(state, event, events)
            case WakeReceived():
                yield on_wake(state, wake_payload(event), at=at)[2]
            case RunPaused():
                yield on_pause(state, event.model_dump(include={"by", "reason", "until"}), at=at)[2]
            case RunResumed():
                by_person = {"by": event.by, "reason": event.reason}
                yield on_resume(state, by_person)[2] if event.by else on_due(state, at=at)
            case (
                SignalRejected()
                | RefusalsCounted()
                | RunBlocked()
                | RunContinued()
                | ReplyRejected()
                | LLMCallLost()
                | ContextExceeded()
                | ContextCompacted()
            ):
                yield [event]  # none of these lets anything run
            case (
                AgentLoaded()
                | BudgetReserved()
                | BudgetLow()
                | BudgetSpent()
                | MemoryRecalled()
                | LLMReplied()
                | LearningRequested()
                | LearningSkipped()
                | UserMessageReceived()
                | MessageTaken()
                | BaselineRecorded()
                | StateVerified()
                | RunUnblocked()
            ):
                return  # not where it stands
            case (
                MessageAwaited()
                | ToolCallRequested()
                | VerdictGiven()
                | ApprovalRequested()
                | RuleRemembered()
                | TaskRefined()
                | DormancyBegan()
            ):
                return  # only together with the event that it follows from
            case _:
                assert_never(event)

    def _forks(self, event: RunForked) -> Sequence[Expected]:
        """The beginning of a fork: what it names is what comes before, and what was open ends; then it starts."""
        state, point = self.state, event.point
        if (event.origin, point.position, point.head) != (self._thread, state.events - 1, self._head):
            raise Wrong(f"it forks {point.thread!r} after event {point.position}, which is not what comes before it")
        if event.thread in (self._thread, point.thread):
            raise Wrong("it forks the thread from itself")
        forked = forked_events(
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
        return [*forked, RunStarted]

    def _starts(self, event: ToolCallStarted) -> Iterator[Sequence[Expected]]:
        """The start of a call: it was allowed, nothing has to come before it, and it is known who started the run."""
        state, action = self.state, next_action(self.state, at=event.at)
        if on_loaded(state):
            raise Wrong("it is not known who started the run, and the policy requires that")
        if isinstance(action, StartCalls) and event.number in action.numbers:
            started = on_start(state, event.number, at=event.at)
            by_run = state.carries_out(event.number)
            yield [started, *(on_runtime_call(state, event.number, at=event.at) if by_run else [])]
        elif call := state.calls.find(event.number):
            raise Wrong(f"call {event.number} was not allowed to run: it is {call.phase}, and what follows is {action}")

    def _ends(self, event: ToolCallFinished | ReconcileRequested | RunFinished) -> Iterator[Sequence[Expected]]:
        """The end of calls, or of the run."""
        state = self.state
        number = event.request.number if isinstance(event, ReconcileRequested) else getattr(event, "number", 0)
        returning = any(call.number == number and call.phase in _RETURNING for call in state.calls.current)
        if state.dormancy.waits_of(number):
            yield on_due(state, at=event.at)
        elif isinstance(event, ToolCallFinished) and is_subagent_call(state, number):
            yield from results(state, event)
        elif state.spec and returning:
            yield on_outcome(state, number, as_outcome(event), at=event.at)
        action = next_action(state, at=event.at)
        if isinstance(action, StartCalls) and number in action.numbers:
            yield [on_start(state, number, at=event.at)]  # refused, by a constraint
        if isinstance(event, RunFinished) and state.moving:
            yield [on_moved(state)]
        if isinstance(event, RunFinished) and isinstance(action, Complete):
            yield [on_complete(state)]
        if isinstance(action, Poll) and (wait := state.dormancy.find(number)):
            yield [refused] if (refused := refuse_poll(state, wait, at=event.at)) else []
        if reopened := on_reopen(state):
            yield [*reopened, RunStarted]
        if not isinstance(event, RunFinished) or event.outcome == "cancelled":
            yield on_cancel(state)
        if isinstance(event, RunFinished) and not state.outcome:
            if event.outcome == "failed" and (state.spec is None or on_loaded(state)):
                yield [event]
            yield on_time(state, at=event.at)
        if isinstance(event, ToolCallFinished) and is_subagent_call(state, number):
            refuse_words(state, event)

    def _polls(self, event: WaitPolled, events: Sequence[AgentEvent]) -> Iterator[Sequence[Expected]]:
        """A poll: the time of the next one, and whether the wait ends with it. A result that does not end it is not in
        the log, only its digest.
        """
        state, wait = self.state, self.state.dormancy.find(event.number)
        if wait is None or wait.polls is None or event.poll != wait.polls.count + 1 or wait.polls.again > event.at:
            return
        ended = events[1] if len(events) > 1 and event.again is None else None
        if isinstance(ended, ToolCallFinished) and ended.number == event.number:
            outcome = as_poll(event, ended, note=state.calls.get(event.number).edit_note)
            yield on_poll(state, event.number, outcome, poll=event.poll, at=event.at)
        elif not ends_unfulfilled(wait, event.status, at=event.at):
            yield [poll_event(state, wait, event.status, seen=event.seen, duration_ms=event.duration_ms, at=event.at)]

    def _check_start(self, event: RunStarted) -> None:
        if event.thread != self._thread:
            raise Wrong(f"it is the log of thread {event.thread!r}, and this is {self._thread!r}")
        if self._forked and self._forked.first_run_id != event.first_run_id:
            raise Wrong("it starts another run than the one that was forked")
        if event.start and event.start in self.state.origin.starts:
            raise Wrong(f"the start {event.start} began another run of this thread before")

    # Signatures and effects.

    def _check_proof(self, event: Proven) -> None:
        """Check that a signature that counted was made with a key that is trusted."""
        trusted, by = self._trusted, getattr(event, "by", "")
        if not event.proof:
            counts = getattr(event, "outcome", "accepted") in (*COUNTING, "judged_anew")
            if trusted and trusted.signatures == "required" and counts and not isinstance(event, UserMessageReceived):
                raise Wrong(f"it counted, {by} did not sign it, and the given policy requires signed decisions")
            return
        self.signatures += 1
        if trusted is None:
            return
        approver = trusted.approver(by)
        keys = approver.keys if approver else ()
        if event.proof == "vouched":
            keys = tuple(key for gateway in trusted.gateways for key in gateway.keys)
        if event.key not in keys:
            whose = by if event.proof == "signed" else "any gateway"
            raise Wrong(f"it was signed with {event.key}, which is no key of {whose} among the given keys")

    def _begun(self, event: ToolCallStarted) -> None:
        call = self.state.calls.get(event.number)
        tool = self.state.spec.tool(call.call.name) if self.state.spec else None
        if tool and tool.effect is not Effect.READ and not event.undo:
            past = call.past
            effect = PastEffect(
                number=past.number if past else event.number,
                first_run_id=past.first_run_id if past else self.state.origin.first_run_id,
                tool=call.call.name,
                call_digest=call.call.digest,
                key=event.key,
                epoch=call.epoch,
                call=describe_call(call.call),
            )
            begun = Begun(event.number, call.call.name, event.position, bool(call.edited_by), effect)
            self.effects[event.key, call.epoch] = begun
            self._under_way[event.number] = event.key, call.epoch

    def _finished(self, event: ToolCallFinished) -> None:
        effect = self._under_way.pop(event.number, None)
        returned = any(call.number == event.number and call.phase in _RETURNING for call in self.state.calls.current)
        if effect and returned and event.status in ("ok", "failed", "cannot"):
            self.effects[effect] = replace(self.effects[effect], finished=event)


def _tools(event: BaselineRecorded | StateVerified) -> list[str]:
    """The tools that have run."""
    return [finding.tool for finding in event.findings]


def _task(events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
    """The task, which is recorded with the start of a run and nowhere else.

    Raises:
        Wrong: Something else comes after the start.
    """
    if len(events) > 1 and not (isinstance(events[1], UserMessageReceived) and events[1].task):
        raise Wrong("no task comes after it")
    return events[1:2]
