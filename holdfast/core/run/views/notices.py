"""Select the events of which people are notified, and build the notices."""

from holdfast.core.authority.approvals import ApprovalRequest
from holdfast.core.log import events
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.record import Notice, Occasion
from holdfast.core.run.state.features import ANSWERS_NOTIFIED, FEEDBACK
from holdfast.core.run.state.state import RunState

TEXT_CHARS = 4_000
"""Maximum characters of a result in a notice."""


def notice_of(before: RunState, event: AgentEvent) -> Notice | None:
    """Return the notice of an event; None if people are not notified of it.

    Args:
        before: The state before the event.
        event: The event, just recorded.
    """
    agent, position = before.spec.name if before.spec else "", event.position
    match event:
        case events.ApprovalRequested() | events.ReconcileRequested() | events.AnswerRequested():
            return _about(before, event, "request_opened", event.request)
        case events.ApprovalReminded():
            return _about(before, event, "request_reminded", before.authority.request(event.request))
        case events.ApprovalEscalated():
            return _about(before, event, "request_escalated", before.authority.request(event.request))
        case events.ApprovalExpired():
            request = before.authority.request(event.request)
            return Notice(occasion="request_expired", position=position, agent=agent, request=request)
        case events.RunBlocked() if before.unattended:
            return None  # it fails, and people are notified of that
        case events.RunBlocked():
            text = f"{event.cause}: {event.message}"[:TEXT_CHARS]
            return Notice(occasion="run_blocked", position=position, agent=agent, status="blocked", text=text)
        case events.BudgetLow():
            text = f"{event.spent} of {event.allowed} {event.limit} of the budget are used"
            return Notice(occasion="budget_low", position=position, agent=agent, text=text)
        case events.BudgetSpent():
            text = f"the budget has too little left of its {event.limit} for another call"
            return Notice(occasion="budget_spent", position=position, agent=agent, text=text)
        case events.MessageAwaited() if before.features >= ANSWERS_NOTIFIED and before.idle.limit:
            text = event.result[:TEXT_CHARS]
            return Notice(
                occasion="message_awaited", position=position, agent=agent, status="waiting_message", text=text
            )
        case events.RunFinished():
            cause = f"{event.cause}: " if before.unattended and event.cause else ""
            text = f"{cause}{event.result}"[:TEXT_CHARS]
            return Notice(occasion="run_finished", position=position, agent=agent, status=event.outcome, text=text)
        case _:
            return None


def _about(state: RunState, event: AgentEvent, occasion: Occasion, request: ApprovalRequest | None) -> Notice:
    """Return a notice of an open request."""
    return Notice(
        occasion=occasion,
        position=event.position,
        agent=state.spec.name if state.spec else "",
        request=request,
        claim=state.calls.claim_about(request.number) if request else "",
        feedback=state.features >= FEEDBACK,
    )
