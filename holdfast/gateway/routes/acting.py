"""The routes that change a run, one row each: decisions, messages, other interventions, and cancellations.

Each route authenticates the caller before it reads the body.
"""

from functools import partial
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Request, Response

from holdfast.gateway import bodies
from holdfast.gateway.answers import Outcome
from holdfast.gateway.authentication import Access, Authenticator, check_scope
from holdfast.gateway.callers import Scope
from holdfast.gateway.descriptions import ON_THREAD, body_of, problems
from holdfast.gateway.routes.interventions import Actions


class Route(NamedTuple):
    """A route that changes a run: `POST /threads/{thread}/{path}`."""

    act: str
    """The name of the intervention; or `cancel`."""
    path: str
    operation: str
    """Its name in the OpenAPI description."""
    scope: Scope
    body: type[bodies.Body]
    description: str

    @property
    def needs_body(self) -> bool:
        """Whether a request must have a body."""
        return self.body not in (bodies.ReasonBody, bodies.PauseBody, bodies.WakeBody)


ROUTES = (
    Route(
        "decide",
        "decisions",
        "decide_request",
        "decide",
        bodies.DecisionBody,
        "Decide a request, in the caller's name. 202: it counts, but needs more approvals, or a worker.",
    ),
    Route(
        "say",
        "messages",
        "send_message",
        "say",
        bodies.MessageBody,
        "Send the agent a message, in the caller's name. A closed thread continues with it.",
    ),
    Route(
        "refine",
        "refinements",
        "refine_task",
        "refine",
        bodies.RefinementBody,
        "Refine the task of an open run, in the caller's name: narrow it, replace it or correct it.",
    ),
    Route(
        "reclassify",
        "reclassifications",
        "reclassify_run",
        "refine",
        bodies.ReclassificationBody,
        "Change the agent of an open run, or lower its trust level or budget, in the caller's name.",
    ),
    Route(
        "adopt_policy",
        "policy-adoptions",
        "adopt_policy",
        "refine",
        bodies.AdoptionBody,
        "Have an open run adopt a policy that its workers have, in the caller's name; its calls are judged again. Also "
        "needs the scope `decide`.",
    ),
    Route(
        "extend",
        "extensions",
        "extend_budget",
        "extend",
        bodies.ExtensionBody,
        "Extend the budget of an open run, in the caller's name. A run that is blocked by its budget resumes.",
    ),
    Route(
        "delegate_authority",
        "delegations",
        "delegate_authority",
        "delegate",
        bodies.DelegationBody,
        "Delegate the caller's approval authority within the thread.",
    ),
    Route(
        "revoke",
        "revocations",
        "revoke_authority",
        "delegate",
        bodies.RevocationBody,
        "Revoke a remembered rule, or a delegation by the caller.",
    ),
    Route(
        "lift",
        "lifts",
        "lift_constraint",
        "decide",
        bodies.LiftBody,
        "Lift a constraint: the policy judges the calls that it refuses again. A closed thread needs a message.",
    ),
    Route(
        "retry",
        "retries",
        "retry_run",
        "retry",
        bodies.ReasonBody,
        "Resume a blocked run, once its cause is fixed.",
    ),
    Route(
        "pause",
        "pause",
        "pause_run",
        "pause",
        bodies.PauseBody,
        "Pause the run: work under way ends, and nothing else starts. Repeat it to change the reason and the end.",
    ),
    Route(
        "resume",
        "resume",
        "resume_run",
        "pause",
        bodies.ReasonBody,
        "Resume a paused run. It reads messages that were sent meanwhile before anything else.",
    ),
    Route(
        "wake",
        "wake",
        "wake_run",
        "wake",
        bodies.WakeBody,
        "Send the run an event, or wake it. 202: the event is kept until a call of the agent waits for it.",
    ),
    Route(
        "cancel",
        "cancellations",
        "cancel_run",
        "cancel",
        bodies.ReasonBody,
        "Ask the run to stop. It stops its running tools, waits for them, and ends as `cancelled`.",
    ),
)


def acting_router(authenticator: Authenticator, actions: Actions) -> APIRouter:
    """Return the routes that change a run.

    Args:
        authenticator: Authenticates callers.
        actions: Sends their interventions.
    """
    routes = APIRouter()
    for row in ROUTES:
        _add(routes, row, authenticator, actions)
    return routes


def _add(routes: APIRouter, row: Route, authenticator: Authenticator, actions: Actions) -> None:
    own: dict[str, Any] = {"decide": actions.decide, "say": actions.say, "lift": actions.lift, "cancel": actions.cancel}
    act = own.get(row.act) or partial(actions.intervene, row.act)
    may = Depends(authenticator.for_thread(row.scope))

    async def route(request: Request, response: Response, access: Annotated[Access, may]) -> Outcome:
        body = bodies.read_body(await request.body() or (b"" if row.needs_body else b"{}"), row.body)
        if isinstance(body, bodies.LiftBody) and body.say:
            check_scope(access.caller, "say")
        if isinstance(body, bodies.AdoptionBody):  # another policy may allow what this one denies
            check_scope(access.caller, "decide")
        response.status_code, outcome = await act(access.thread, body, by=access.caller.name)
        return outcome

    later: dict[int | str, dict[str, Any]] = {
        202: {"model": Outcome, "description": "It counts, and has yet to take effect."}
    }
    routes.add_api_route(
        f"/threads/{{thread}}/{row.path}",
        route,
        methods=["POST"],
        name=row.operation,
        description=row.description,
        response_model=Outcome,
        responses={**later, **problems(*ON_THREAD)},
        openapi_extra=body_of(row.body, required=row.needs_body),
    )
