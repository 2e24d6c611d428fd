"""Which events people who are elsewhere are notified of, and what the notice says."""

from typing import assert_never

from holdfast.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    AuthorityDelegated,
    BaselineRecorded,
    ContextCompacted,
    ContextExceeded,
    DecisionReceived,
    DelegationRevoked,
    LLMReplied,
    MemoryRecalled,
    MessageAwaited,
    MessageTaken,
    ReconcileRequested,
    RefusalsCounted,
    ReplyRejected,
    RuleRemembered,
    RuleRevoked,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunReset,
    RunStarted,
    RunUnblocked,
    SignalRejected,
    StateVerified,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageReceived,
    VerdictGiven,
)
from holdfast.run.contracts import Notice
from holdfast.run.state import RunState

TEXT_CHARS = 4_000
"""Characters of a result in a notice."""


def notice_of(before: RunState, event: AgentEvent) -> Notice | None:
    """Return the notice of an event; None where people are not notified.

    Args:
        before: The state before the event.
        event: Just recorded.
    """
    agent, position = before.spec.name if before.spec else "", event.position
    match event:
        case ApprovalRequested() | ReconcileRequested():
            return Notice(occasion="request_opened", position=position, agent=agent, request=event.request)
        case ApprovalReminded():
            request = before.authority.request(event.request)
            return Notice(occasion="request_reminded", position=position, agent=agent, request=request)
        case ApprovalEscalated():
            request = before.authority.request(event.request)
            return Notice(occasion="request_escalated", position=position, agent=agent, request=request)
        case ApprovalExpired():
            request = before.authority.request(event.request)
            return Notice(occasion="request_expired", position=position, agent=agent, request=request)
        case RunBlocked():
            text = f"{event.cause}: {event.message}"[:TEXT_CHARS]
            return Notice(occasion="run_blocked", position=position, agent=agent, status="blocked", text=text)
        case RunFinished():
            text = event.result[:TEXT_CHARS]
            return Notice(occasion="run_finished", position=position, agent=agent, status=event.outcome, text=text)
        case (
            RunStarted()
            | RunContinued()
            | RunReset()
            | RunUnblocked()
            | UserMessageReceived()
            | MessageTaken()
            | MessageAwaited()
            | AgentLoaded()
            | MemoryRecalled()
            | LLMReplied()
            | ReplyRejected()
            | ContextExceeded()
            | ContextCompacted()
            | ToolCallRequested()
            | VerdictGiven()
            | ToolCallStarted()
            | ToolCallFinished()
            | DecisionReceived()
            | RuleRemembered()
            | RuleRevoked()
            | AuthorityDelegated()
            | DelegationRevoked()
            | BaselineRecorded()
            | StateVerified()
            | SignalRejected()
            | RefusalsCounted()
        ):
            return None
        case _:
            assert_never(event)
