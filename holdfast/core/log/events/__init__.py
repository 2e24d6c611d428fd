"""The events of an agent run: a closed union, named in the past tense. Their meanings are documented here and only
here.

1. An event is recorded once and never changes; state (`holdfast.core.run.state.state`) and transcript
   (`holdfast.core.transcript.transcript`) are folds over the events.
2. Every event carries its position, its time and the digest of the chain up to and including itself.
3. Fields are only added, with a default that never changes; anything else needs a new schema version and an
   upcaster. An event's JSON omits defaults, so adding a field changes no digest of an older event.
4. Related events share a field. `number` links the events of one tool call, `request` (or `request.id`) those of one
   approval request, `rule` those of one remembered rule, `by` and `to` those of one delegation, and `message` a message
   with the position of its `user_message_received` or `task_refined`.
5. "Followed by" names the events that come next if no input arrives. Inputs from people can arrive at any time.
"""

from typing import Annotated

from pydantic import Field, TypeAdapter

from holdfast.core.log.events.approvals import (
    AnswerRequested,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    BaselineRecorded,
    DecisionReceived,
    Finding,
    PreviewRequested,
    ReconcileRequested,
    StateVerified,
)
from holdfast.core.log.events.authority import (
    AuthorityDelegated,
    DelegationRevoked,
    KeyRevoked,
    RuleRemembered,
    RuleRevoked,
)
from holdfast.core.log.events.base import Event as Event
from holdfast.core.log.events.base import Proven as Proven
from holdfast.core.log.events.base import Stated as Stated
from holdfast.core.log.events.budget import BudgetExtended, BudgetLow, BudgetReserved, BudgetSpent
from holdfast.core.log.events.dormancy import DormancyBegan, WaitPolled, WakeReceived
from holdfast.core.log.events.dormancy import PollKind as PollKind
from holdfast.core.log.events.forks_and_moves import MoveRequested, RunForked, RunImported
from holdfast.core.log.events.llm_calls import (
    CompactionRequested,
    ContextCompacted,
    ContextExceeded,
    LearningRequested,
    LearningSkipped,
    LLMCallLost,
    LLMReplied,
    ReplyRejected,
)
from holdfast.core.log.events.losses import EventsLost
from holdfast.core.log.events.messages import (
    MessageAwaited,
    MessageTaken,
    RunReclassified,
    TaskRefined,
    UserMessageReceived,
)
from holdfast.core.log.events.nodes import NodeAccepted, NodeAwaited, ToolCallRerouted
from holdfast.core.log.events.policies import PolicyChanged, PolicyChangeFailed, PolicyChangeRequested
from holdfast.core.log.events.refusals import RefusalsCounted, SignalRejected
from holdfast.core.log.events.runs import (
    AgentLoaded,
    MemoryRecalled,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunOutcome,
    RunPaused,
    RunReset,
    RunResumed,
    RunStarted,
    RunUnblocked,
)
from holdfast.core.log.events.subagents import SubagentEnded, SubagentStarted, SubagentStatus
from holdfast.core.log.events.tool_calls import (
    CallResult,
    ConstraintLifted,
    ContextUpdated,
    ToolCallFinished,
    ToolCallPostponed,
    ToolCallRequested,
    ToolCallStarted,
    ToolStatus,
    VerdictGiven,
)

__all__ = [
    "AgentEvent",
    "AgentLoaded",
    "AnswerRequested",
    "ApprovalEscalated",
    "ApprovalExpired",
    "ApprovalReminded",
    "ApprovalRequested",
    "AuthorityDelegated",
    "BaselineRecorded",
    "BudgetExtended",
    "BudgetLow",
    "BudgetReserved",
    "BudgetSpent",
    "CallResult",
    "CompactionRequested",
    "ConstraintLifted",
    "ContextCompacted",
    "ContextExceeded",
    "ContextUpdated",
    "DecisionReceived",
    "DelegationRevoked",
    "DormancyBegan",
    "EventsLost",
    "Finding",
    "KeyRevoked",
    "LLMCallLost",
    "LLMReplied",
    "LearningRequested",
    "LearningSkipped",
    "MemoryRecalled",
    "MessageAwaited",
    "MessageTaken",
    "MoveRequested",
    "NodeAccepted",
    "NodeAwaited",
    "PolicyChangeFailed",
    "PolicyChangeRequested",
    "PolicyChanged",
    "PreviewRequested",
    "ReconcileRequested",
    "RefusalsCounted",
    "ReplyRejected",
    "RuleRemembered",
    "RuleRevoked",
    "RunBlocked",
    "RunContinued",
    "RunFinished",
    "RunForked",
    "RunImported",
    "RunOutcome",
    "RunPaused",
    "RunReclassified",
    "RunReset",
    "RunResumed",
    "RunStarted",
    "RunUnblocked",
    "SignalRejected",
    "StateVerified",
    "SubagentEnded",
    "SubagentStarted",
    "SubagentStatus",
    "TaskRefined",
    "ToolCallFinished",
    "ToolCallPostponed",
    "ToolCallRequested",
    "ToolCallRerouted",
    "ToolCallStarted",
    "ToolStatus",
    "UserMessageReceived",
    "VerdictGiven",
    "WaitPolled",
    "WakeReceived",
]

AgentEvent = Annotated[
    RunStarted
    | RunContinued
    | RunReset
    | EventsLost
    | RunForked
    | MoveRequested
    | RunImported
    | UserMessageReceived
    | TaskRefined
    | RunReclassified
    | MessageTaken
    | AgentLoaded
    | MemoryRecalled
    | LLMReplied
    | MessageAwaited
    | LearningRequested
    | LearningSkipped
    | LLMCallLost
    | ContextExceeded
    | CompactionRequested
    | ContextCompacted
    | ReplyRejected
    | ToolCallRequested
    | VerdictGiven
    | PreviewRequested
    | ApprovalRequested
    | ReconcileRequested
    | AnswerRequested
    | ApprovalReminded
    | ApprovalEscalated
    | ApprovalExpired
    | DecisionReceived
    | RuleRemembered
    | RuleRevoked
    | AuthorityDelegated
    | DelegationRevoked
    | KeyRevoked
    | PolicyChangeRequested
    | PolicyChanged
    | PolicyChangeFailed
    | BaselineRecorded
    | StateVerified
    | ToolCallPostponed
    | ToolCallStarted
    | ToolCallFinished
    | DormancyBegan
    | WaitPolled
    | WakeReceived
    | ConstraintLifted
    | ContextUpdated
    | NodeAccepted
    | NodeAwaited
    | ToolCallRerouted
    | SubagentStarted
    | SubagentEnded
    | RunBlocked
    | RunUnblocked
    | RunPaused
    | RunResumed
    | BudgetReserved
    | BudgetLow
    | BudgetSpent
    | BudgetExtended
    | SignalRejected
    | RefusalsCounted
    | RunFinished,
    Field(discriminator="type"),
]

EVENTS: TypeAdapter[list[AgentEvent]] = TypeAdapter(list[AgentEvent])
"""Decodes events, each by its type."""
