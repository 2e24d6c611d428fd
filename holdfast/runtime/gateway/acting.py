"""The routes that change a run: decisions, messages, refinements, delegations, lifts, retries, pauses, events,
cancellations.

Each authenticates the caller first, and reads the body only then.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request, Response

from holdfast.runtime.gateway.actions import Actions
from holdfast.runtime.gateway.answers import Outcome
from holdfast.runtime.gateway.authentication import Access, Authenticator
from holdfast.runtime.gateway.bodies import (
    Body,
    DecisionBody,
    DelegationBody,
    ExtensionBody,
    LiftBody,
    MessageBody,
    PauseBody,
    ReasonBody,
    RefinementBody,
    RevocationBody,
    WakeBody,
    read_body,
)
from holdfast.runtime.gateway.callers import Scope
from holdfast.runtime.gateway.descriptions import ON_THREAD, body_of, problems

_Sent = TypeVar("_Sent", bound=Body)


def acting_router(authenticator: Authenticator, actions: Actions) -> APIRouter:
    """The routes that change a run.

    Args:
        authenticator: Authenticates callers.
        actions: What they do.
    """
    routes = APIRouter()

    def post(
        path: str,
        name: str,
        scope: Scope,
        kind: type[_Sent],
        act: Callable[..., Awaitable[tuple[int, Outcome]]],
        description: str,
    ) -> None:
        """Add the route that reads a body of this kind and does this with it."""
        may, optional = Depends(authenticator.for_thread(scope)), kind in (ReasonBody, PauseBody, WakeBody)

        async def route(request: Request, response: Response, access: Annotated[Access, may]) -> Outcome:
            body = read_body(await request.body() or (b"{}" if optional else b""), kind)
            response.status_code, outcome = await act(access.thread, body, by=access.caller.name)
            return outcome

        later: dict[int | str, dict[str, Any]] = {
            202: {"model": Outcome, "description": "It counts, and has yet to take effect."}
        }
        routes.add_api_route(
            f"/threads/{{thread}}/{path}",
            route,
            methods=["POST"],
            name=name,
            description=description,
            response_model=Outcome,
            responses={**later, **problems(*ON_THREAD)},
            openapi_extra=body_of(kind, required=not optional),
        )

    words = "Decide a request, in the caller's name. 202: it counts, but needs more approvals, or a worker to start."
    post("decisions", "decide_request", "decide", DecisionBody, actions.decide, words)
    words = "Send the agent a message, in the caller's name. A closed thread continues with it."
    post("messages", "send_message", "say", MessageBody, actions.say, words)
    words = "Refine the task of an open run, in the caller's name: narrow it, replace it or correct it."
    post("refinements", "refine_task", "refine", RefinementBody, actions.refine, words)
    words = "Extend the budget of an open run, in the caller's name. A run that its end has blocked continues."
    post("extensions", "extend_budget", "extend", ExtensionBody, actions.extend, words)
    words = "Delegate the caller's approval authority within the thread."
    post("delegations", "delegate_authority", "delegate", DelegationBody, actions.delegate, words)
    words = "Revoke a remembered rule, or a delegation by the caller."
    post("revocations", "revoke_authority", "delegate", RevocationBody, actions.revoke, words)
    words = "Lift a constraint: calls that a tool said it cannot make are judged again like any others."
    post("lifts", "lift_constraint", "decide", LiftBody, actions.lift, words)
    words = "Resume a blocked run, once its cause is fixed."
    post("retries", "retry_run", "retry", ReasonBody, actions.retry, words)
    words = "Pause the run: what is under way ends, and nothing else starts. Again: change the reason and the end."
    post("pause", "pause_run", "pause", PauseBody, actions.pause, words)
    words = "Resume a paused run. A message that was sent before is read before anything else."
    post("resume", "resume_run", "pause", ReasonBody, actions.resume, words)
    words = "Send the run an event, or wake it. 202: the event is kept until a call of the agent waits for it."
    post("wake", "wake_run", "wake", WakeBody, actions.wake, words)
    words = "Ask the run to stop. It stops its running tools, waits for them, and ends as `cancelled`."
    post("cancellations", "cancel_run", "cancel", ReasonBody, actions.cancel, words)
    return routes
