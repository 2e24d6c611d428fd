"""Which events people who are elsewhere are told of, and what."""

from holdfast.log.events import (
    AgentEvent,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalReminded,
    ApprovalRequested,
    ReconcileRequested,
    RunBlocked,
    RunFinished,
)
from holdfast.run.contracts import Notice, Occasion
from holdfast.run.state import RunState

TEXT_CHARS = 4_000
"""Length of a result in a notice."""


def notice_of(before: RunState, event: AgentEvent) -> Notice | None:
    """What is to be told of an event; None for nothing.

    Args:
        before: The state before the event.
        event: Just recorded.
    """
    occasion: Occasion
    match event:
        case ApprovalRequested(request=request) | ReconcileRequested(request=request):
            return _notice(before, event, "request_opened").model_copy(update={"request": request})
        case ApprovalReminded():
            occasion = "request_reminded"
        case ApprovalEscalated():
            occasion = "request_escalated"
        case ApprovalExpired():
            occasion = "request_expired"
        case RunBlocked():
            text = f"{event.cause}: {event.message}"[:TEXT_CHARS]
            return _notice(before, event, "run_blocked").model_copy(update={"status": "blocked", "text": text})
        case RunFinished():
            told = {"status": event.outcome, "text": event.result[:TEXT_CHARS]}
            return _notice(before, event, "run_finished").model_copy(update=told)
        case _:
            return None
    return _notice(before, event, occasion).model_copy(update={"request": before.request(event.request)})


def _notice(state: RunState, event: AgentEvent, occasion: Occasion) -> Notice:
    return Notice(occasion=occasion, position=event.position, agent=state.spec.name if state.spec else "")
