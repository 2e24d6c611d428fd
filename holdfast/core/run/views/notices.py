"""Select the events of which people are notified, and build the notices."""

from holdfast.core.log import events
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.contracts.record import Notice
from holdfast.core.run.state.features import ANSWERS_NOTIFIED
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
        case events.ApprovalRequested() | events.ReconcileRequested():
            return Notice(occasion="request_opened", position=position, agent=agent, request=event.request)
        case events.ApprovalReminded():
            request = before.authority.request(event.request)
            return Notice(occasion="request_reminded", position=position, agent=agent, request=request)
        case events.ApprovalEscalated():
            request = before.authority.request(event.request)
            return Notice(occasion="request_escalated", position=position, agent=agent, request=request)
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
