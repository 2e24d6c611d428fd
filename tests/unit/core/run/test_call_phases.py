"""The phases of a tool call: in every phase, each event either moves the call as the table says or is rejected."""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.authority.approvals import ApprovalRequest, RequestKind
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.base.models import replace
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    AnswerRequested,
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
    ContextUpdated,
    DecisionReceived,
    DelegationRevoked,
    DormancyBegan,
    EventsLost,
    KeyRevoked,
    LearningRequested,
    LearningSkipped,
    LLMCallLost,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    MoveRequested,
    NodeAccepted,
    NodeAwaited,
    PolicyChanged,
    PolicyChangeFailed,
    PolicyChangeRequested,
    PreviewRequested,
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
    RunReclassified,
    RunReset,
    RunResumed,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    Stated,
    StateVerified,
    SubagentEnded,
    SubagentStarted,
    TaskRefined,
    ToolCallFinished,
    ToolCallPostponed,
    ToolCallRequested,
    ToolCallRerouted,
    ToolCallStarted,
    ToolStatus,
    UserMessageReceived,
    VerdictGiven,
    WaitPolled,
    WakeReceived,
)
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.nodes import Node
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.authority import Authority
from holdfast.core.run.state.calls import TRANSITIONS, Calls, CallState, Phase
from holdfast.core.run.state.context import Inbox, WaitingMessage
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.foreign_waits import QuestionPart, ServerQuestion
from holdfast.core.tools.triggers import TimeTrigger
from holdfast.errors import EventOutOfPlace
from tests.support.runs import NOW, agent_spec

PHASES: tuple[Phase, ...] = get_args(Phase)
ENDS: dict[Phase, Phase] = {phase: "finished" for phase in PHASES if phase != "finished"}
AWAITS: dict[Phase, Phase] = {"awaiting_approval": "awaiting_approval"}
DECLINES: dict[Phase, Phase] = {**AWAITS, "awaiting_answer": "awaiting_answer"}
QUESTION = ServerQuestion(server="s", parts=(QuestionPart(key="k", message="m", form={"properties": {"n": {}}}),))
UNKNOWN: dict[Phase, Phase] = {"outcome_unknown": "outcome_unknown"}
CALL = ToolCall(id="c", name="pay", arguments="{}")


def request(name: str, kind: RequestKind = "approval", number: int = 1) -> ApprovalRequest:
    """Return a request about a call."""
    return ApprovalRequest(
        id=name,
        kind=kind,
        number=number,
        tool="pay",
        arguments="{}",
        digest="d",
        why="money",
        asked_at=NOW,
        undoable=True,
        question=QUESTION if kind == "question" else None,
    )


def decision(
    kind: DecisionKind, outcome: str = "accepted", name: str = "1", result: str | None = None
) -> DecisionReceived:
    """Return a decision on a request."""
    return DecisionReceived.model_validate(
        {"request": name, "decision": kind, "by": "alice", "reason": "", "outcome": outcome, "result": result}
    )


def finished(status: ToolStatus, number: int = 1) -> ToolCallFinished:
    """Return the end of a call."""
    return ToolCallFinished(number=number, status=status, content="so")


TIMED = TimeTrigger(kind="time", until=NOW)

ABOUT_ONE: list[tuple[AgentEvent, dict[Phase, Phase]]] = [
    (ToolCallRequested(number=1, call=CALL), {}),
    (VerdictGiven(number=1, verdict="allow", rule="r"), {"requested": "allowed"}),
    (VerdictGiven(number=1, verdict="ask", rule="r"), {"requested": "requested"}),
    (VerdictGiven(number=1, verdict="deny", rule="r"), {"requested": "requested"}),
    (
        PreviewRequested(request=request("2")),
        {
            "requested": "previewing",
            "previewing": "previewing",
            "awaiting_approval": "previewing",
            "allowed": "previewing",
        },
    ),
    (
        ApprovalRequested(request=request("2")),
        {
            "requested": "awaiting_approval",
            "previewing": "awaiting_approval",
            "awaiting_approval": "awaiting_approval",
            "allowed": "awaiting_approval",
        },
    ),
    (
        ReconcileRequested(request=request("2", "reconcile")),
        {"started": "outcome_unknown", "orphaned": "outcome_unknown"},
    ),
    (AnswerRequested(request=request("2", "question")), {"started": "awaiting_answer"}),
    (decision("approve"), {"awaiting_approval": "allowed"}),
    (decision("approve", "waiting_for_quorum"), AWAITS),
    (decision("absent", "waiting_for_quorum"), UNKNOWN),
    (decision("deny"), DECLINES),
    (decision("respond"), DECLINES),
    (decision("respond", result='{"n": 1}'), {"awaiting_approval": "awaiting_approval", "awaiting_answer": "allowed"}),
    (decision("happened"), UNKNOWN),
    (decision("abandon"), UNKNOWN),
    (decision("absent"), {"outcome_unknown": "allowed"}),
    (decision("undo"), {"outcome_unknown": "allowed"}),
    (
        ApprovalExpired(request="1", decision="approve"),
        {"awaiting_approval": "allowed", "awaiting_answer": "awaiting_answer"},
    ),
    (ApprovalExpired(request="1", decision="deny"), DECLINES),
    (ToolCallPostponed(number=1, rule="later *", until=NOW), {"allowed": "allowed"}),
    (ToolCallStarted(number=1, key="k"), {"allowed": "started"}),
    (DormancyBegan(number=1, trigger=TIMED), {"started": "started"}),
    (SubagentStarted(number=1, thread="t.1", agent="a", run_id="r"), {"started": "started"}),
    (NodeAwaited(number=1, until=NOW), {"started": "allowed", "orphaned": "orphaned"}),
    (ToolCallRerouted(number=1, nodes="n", reason="r"), {"started": "allowed"}),
    *((finished(status), ENDS) for status in get_args(ToolStatus)),
]
"""Events about call 1, whose request 1 is open: phase → the phase that follows. Any other phase rejects the event."""

ABOUT_ALL: list[tuple[AgentEvent, dict[Phase, Phase]]] = [
    (
        RunStarted(thread="t", run_id="r", first_run_id="r", agent=None),
        {"started": "orphaned", "outcome_unknown": "orphaned", "orphaned": "orphaned", "finished": "finished"},
    ),
    (
        LLMReplied(message=None, transcript_length=1, usage=Usage(), finish_reason="stop", llm="x"),
        {"finished": "finished"},
    ),
]
"""Events about all calls of the step, which are rejected if any of the calls rejects them."""

UNRELATED: list[AgentEvent] = [
    NodeAccepted(node=Node(name="n")),
    NodeAwaited(until=NOW),
    RunContinued(run_id="r2"),
    RunReset(),
    RunBlocked(cause="C", message="m"),
    RunUnblocked(by="alice"),
    RunPaused(by="alice"),
    RunResumed(by="alice"),
    MoveRequested(by="alice"),
    RunFinished(outcome="failed"),
    RunFinished(outcome="moved"),
    UserMessageReceived(content="more", position=9),
    TaskRefined(refinement=1, kind="narrow", text="less", by="alice", position=8),
    MessageTaken(message=5),
    RunReclassified(by="alice", trust="web", notice="n"),
    PolicyChangeRequested(policy="p", by="alice"),
    PolicyChangeFailed(policy="p", problem="p"),
    EventsLost(events=1_000, head="h"),
    MessageAwaited(result="done"),
    LearningRequested(notice="n"),
    LearningSkipped(cause="Timeout"),
    AgentLoaded(spec=agent_spec(), spec_hash="h", workspace="/w"),
    MemoryRecalled(tiers=()),
    ReplyRejected(reason="r"),
    ContextExceeded(message="m"),
    CompactionRequested(by="alice"),
    ConstraintLifted(constraint=1, by="alice"),
    WakeReceived(outcome="buffered", event="e"),
    ContextCompacted(summary_message="m", summary="s", messages=1),
    ApprovalReminded(request="1"),
    ApprovalEscalated(request="1", by=("bob",)),
    decision("approve", "duplicate"),
    decision("approve", "judged_anew"),
    RuleRevoked(rule="1", by="alice"),
    KeyRevoked(revoked="k", by="alice"),
    AuthorityDelegated(by="alice", to="bob", until=NOW + timedelta(hours=1)),
    DelegationRevoked(by="alice", to="bob"),
    BaselineRecorded(findings=()),
    StateVerified(paused_seconds=1, findings=()),
    SignalRejected(signal="what", explanation="no such signal"),
    RefusalsCounted(count=1, sent_bytes=1, refusals_digest="d"),
]
"""Events that leave every call unchanged."""

REFUSED: list[AgentEvent] = [
    BudgetReserved(steps=1, tokens=100),
    BudgetLow(limit="steps", spent="4", allowed="5", notice="n"),
    BudgetSpent(limit="steps"),
    BudgetExtended(by="alice", more=Amounts(steps=1)),
    RunForked(thread="u", first_run_id="r", origin="x", point=ForkPoint(thread="x", position=1, head=64 * "0")),
    RunImported(run_id="r2", first_run_id="r2", point=ImportPoint(position=1, head=64 * "0", manifest=64 * "0")),
    RuleRemembered(rule="1", tool="pay", call_digest="d", by=("alice",)),
    VerdictGiven(number=77, verdict="allow", rule="r"),
    PreviewRequested(request=request("2", number=77)),
    ApprovalRequested(request=request("2", number=77)),
    ReconcileRequested(request=request("2", "reconcile", number=77)),
    AnswerRequested(request=request("2", "question", number=77)),
    decision("approve", name="77"),
    decision("approve", "waiting_for_quorum", name="77"),
    ContextUpdated(number=77, changes={"verified": True}),
    NodeAwaited(number=77, until=NOW),
    ToolCallRerouted(number=77, nodes="n", reason="r"),
    ApprovalReminded(request="77"),
    ApprovalEscalated(request="77", by=()),
    ApprovalExpired(request="77", decision="deny"),
    LLMCallLost(attempts=1, request_tokens=1),  # of a run without a budget
    ToolCallPostponed(number=77, rule="later *", until=NOW),
    ToolCallStarted(number=77, key="k"),
    finished("ok", 77),
    DormancyBegan(number=77, trigger=TIMED),
    WaitPolled(number=1, poll=1, status="ok", result="news", seen="0"),
    SubagentStarted(number=77, thread="t.77", agent="a", run_id="r"),
    SubagentEnded(number=1, thread="t.1", status="completed"),
    MessageTaken(message=77),
    PolicyChanged(policy=Policy(), spec_hash="h"),  # nobody asked for it
]
"""Events about a call, a request, a rule or a message that does not exist: rejected in every phase."""


def state_in(*phases: Phase) -> RunState:
    """Return a state with calls in these phases, an open request about the first one, and a waiting message."""
    calls = tuple(CallState(number=number, call=CALL, phase=phase) for number, phase in enumerate(phases, start=1))
    first = replace(calls[0], request="1")
    kinds: dict[Phase, RequestKind] = {"outcome_unknown": "reconcile", "awaiting_answer": "question"}
    kind = kinds.get(first.phase, "approval")
    return RunState(
        thread="t",
        spec=agent_spec(),
        calls=Calls(current=(first, *calls[1:]), count=len(phases)),
        authority=Authority(requests=(request("1", kind),), request_count=1),
        inbox=Inbox(waiting=(WaitingMessage(message=5, text="hi"),)),
    )


def phases_after(state: RunState, event: AgentEvent) -> list[Phase] | None:
    """Return the phases after the event, or None if it is rejected; the state before it never changes."""
    before = deepcopy(state)
    try:
        after = evolve(state, event.model_copy(update={"at": NOW}))
    except EventOutOfPlace:
        return None
    finally:
        assert state == before
    return [call.phase for call in after.calls.current]


some_phases = st.lists(st.sampled_from(PHASES), min_size=1, max_size=4)


@given(some_phases, st.sampled_from(ABOUT_ONE))
def test_an_event_about_a_call_moves_it_as_the_table_says(
    phases: list[Phase], case: tuple[AgentEvent, dict[Phase, Phase]]
) -> None:
    """A legal event moves only its call, as the table says; an illegal one raises and changes nothing."""
    event, legal = case
    following = legal.get(phases[0])
    assert phases_after(state_in(*phases), event) == (None if following is None else [following, *phases[1:]])


@given(some_phases, st.sampled_from(ABOUT_ALL))
def test_an_event_about_the_step_needs_every_call_to_allow_it(
    phases: list[Phase], case: tuple[AgentEvent, dict[Phase, Phase]]
) -> None:
    """A run or a step begins only if every call of the previous step can be left unchanged."""
    event, legal = case
    after = phases_after(state_in(*phases), event)
    if not all(phase in legal for phase in phases):
        assert after is None
    elif isinstance(event, LLMReplied):
        assert after == []
    else:
        assert after == [legal[phase] for phase in phases]


DRIVEN = {type(event) for event, _ in ABOUT_ONE + ABOUT_ALL} | {type(event) for event in UNRELATED + REFUSED}
BY: dict[str, Any] = {"by": "alice"}
STATED: list[Any] = [kind.model_construct(**BY) for kind in Stated.__subclasses__() if kind not in DRIVEN]
"""Other statements of people, which are not about calls."""


@given(some_phases, st.sampled_from([*UNRELATED, *STATED]))
def test_any_other_event_moves_no_call(phases: list[Phase], event: AgentEvent) -> None:
    """An event that is not about calls leaves their phases unchanged."""
    assert phases_after(state_in(*phases), event) == phases


@given(some_phases, st.sampled_from(REFUSED))
def test_an_event_with_an_unknown_reference_is_rejected(phases: list[Phase], event: AgentEvent) -> None:
    """An event that refers to an unknown call, request, rule or message creates none."""
    assert phases_after(state_in(*phases), event) is None


def test_every_type_of_event_is_covered() -> None:
    """The lists above contain every type of event, so a new one must be added to them."""
    union, *_ = get_args(AgentEvent)
    assert DRIVEN | {*map(type, STATED)} == set(get_args(union))


def test_every_phase_but_the_last_can_finish() -> None:
    """From every other phase, a call can still get a result."""
    for phase, moves in TRANSITIONS.items():
        assert ("finish" in moves) == (phase != "finished")
    assert set(TRANSITIONS) == set(PHASES)


@pytest.mark.parametrize("make", [lambda: finished("ok"), lambda: ToolCallStarted(number=1, key="k")])
def test_the_error_names_the_event_out_of_place(make: Callable[[], AgentEvent]) -> None:
    """The error names the thread, the event and the call."""
    with pytest.raises(EventOutOfPlace, match=r"of thread t, tool_call_\w+, is out of place: call 1 is finished"):
        evolve(state_in("finished"), make())
