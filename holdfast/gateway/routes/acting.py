"""The routes that change a run, one row each: decisions, messages, other interventions, and cancellations. The bodies
of requests to these routes alone are here, too.

Each route authenticates the caller before it reads the body.
"""

from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from holdfast.core.authority.statements import LONGEST_DELEGATION
from holdfast.core.tools.triggers import EVENT_NAME
from holdfast.gateway.answers import Outcome
from holdfast.gateway.authentication import Access, Authenticator, check_scope
from holdfast.gateway.bodies import (
    AGENT_NAME,
    PERSON_NAME,
    Body,
    BudgetBody,
    DecisionBody,
    ExtensionBody,
    LiftBody,
    MessageBody,
    PauseBody,
    ReasonBody,
    RefinementBody,
    read_body,
    until_of,
    whole,
)
from holdfast.gateway.callers import Scope
from holdfast.gateway.descriptions import ON_THREAD, body_of, problems
from holdfast.gateway.routes.interventions import Actions


class ReclassificationBody(Body):
    """A change of a run's agent, trust level or budget, in the name of the owner of the token or key."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [name]} for name in ("agent", "trust", "budget")],
            "examples": [{"agent": "auditor", "trust": "web", "reason": "needs an auditor"}],
        }
    )

    agent: str | None = Field(default=None, pattern=AGENT_NAME, examples=["auditor"])
    """The agent that continues the run from the end of the step on."""
    trust: Literal["agent", "tool", "web"] | None = None
    """The lower trust level."""
    budget: BudgetBody | None = None
    """The lower limits."""
    reason: str = Field(default="", max_length=2_000)
    """The reason, which the LLM reads."""
    id: str = Field(default="", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._:-]*$", examples=["audit-1"])
    """The caller's id for it: a reclassification that is sent again with the same id counts once."""

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.agent or self.trust or self.budget):
            raise ValueError("give at least one of agent, trust and budget")
        return self


class AdoptionBody(Body):
    """The adoption of another policy by an open run, in the name of the owner of the token or key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"policy": "0" * 64, "reason": "deploys on Sundays"}]})

    policy: str = Field(pattern=r"^[0-9a-f]{64}$", examples=["0" * 64])
    """The digest of the policy, as `policy check` prints it. The policy itself comes from a worker."""
    reason: str = Field(default="", max_length=2_000)
    """The reason, for the log."""
    id: str = Field(default="", min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._:-]*$", examples=["night-1"])
    """The caller's id for it, if it is signed: a statement that is sent again with the same id counts once."""


class WakeBody(ReasonBody):
    """An event for a run, or the reason to wake it now."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"event": "deploy.finished", "id": "4711", "data": {"service": "web"}}]}
    )

    event: str = Field(default="", pattern=rf"^({EVENT_NAME})?$", examples=["deploy.finished"])
    """The event's name; empty to end all waits of the agent now."""
    id: str = Field(default="", pattern=r"^[!-~]{0,100}$", examples=["4711"])
    """The sender's id for the event, which counts once; empty for a new one."""
    data: dict[str, Any] = {}
    """The event's data: at most 16,384 bytes of JSON. Only with `event`."""
    call: Annotated[int, BeforeValidator(whole)] | None = Field(default=None, ge=1, le=1_000_000_000)
    """The number of the only call that it is for; null for all calls that wait."""


class DelegationBody(ReasonBody):
    """A delegation of the caller's approval authority within the thread."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "bob", "seconds": 3_600}]})

    to: str = Field(pattern=PERSON_NAME, examples=["bob"])
    """Another approver."""
    seconds: float = Field(ge=1, le=LONGEST_DELEGATION, examples=[3_600])
    """The duration."""

    def payload(self) -> dict[str, Any]:
        return until_of(super().payload())


class RevocationBody(ReasonBody):
    """A revocation of a remembered rule, or of a delegation: exactly one of them."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["remembered"]}, {"required": ["delegated_to"]}],
            "examples": [{"remembered": "1"}],
        }
    )

    remembered: str = Field(default="", pattern=r"^[0-9]{1,15}$", examples=["1"])
    """The id of a remembered rule, as the thread's state lists it."""
    delegated_to: str = Field(default="", pattern=PERSON_NAME, examples=["bob"])
    """The approver to whom the caller's authority was delegated."""

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if len({"remembered", "delegated_to"} & self.model_fields_set) != 1:
            raise ValueError("give `remembered`, or `delegated_to`")
        return self


class Route(NamedTuple):
    """A route that changes a run: `POST /threads/{thread}/{path}`."""

    act: str
    """The name of the intervention; or `cancel`."""
    path: str
    operation: str
    """Its name in the OpenAPI description."""
    scope: Scope
    body: type[Body]
    description: str

    @property
    def needs_body(self) -> bool:
        """Whether a request must have a body."""
        return self.body not in (ReasonBody, PauseBody, WakeBody)


ROUTES = (
    Route(
        "decide",
        "decisions",
        "decide_request",
        "decide",
        DecisionBody,
        "Decide a request, in the caller's name. 202: it counts, but needs more approvals, or a worker.",
    ),
    Route(
        "say",
        "messages",
        "send_message",
        "say",
        MessageBody,
        "Send the agent a message, in the caller's name. A closed thread continues with it.",
    ),
    Route(
        "refine",
        "refinements",
        "refine_task",
        "refine",
        RefinementBody,
        "Refine the task of an open run, in the caller's name: narrow it, replace it or correct it.",
    ),
    Route(
        "reclassify",
        "reclassifications",
        "reclassify_run",
        "refine",
        ReclassificationBody,
        "Change the agent of an open run, or lower its trust level or budget, in the caller's name.",
    ),
    Route(
        "adopt_policy",
        "policy-adoptions",
        "adopt_policy",
        "refine",
        AdoptionBody,
        "Have an open run adopt a policy that its workers have, in the caller's name; its calls are judged again. Also "
        "needs the scope `decide`.",
    ),
    Route(
        "extend",
        "extensions",
        "extend_budget",
        "extend",
        ExtensionBody,
        "Extend the budget of an open run, in the caller's name. A run that is blocked by its budget resumes.",
    ),
    Route(
        "delegate_authority",
        "delegations",
        "delegate_authority",
        "delegate",
        DelegationBody,
        "Delegate the caller's approval authority within the thread.",
    ),
    Route(
        "revoke",
        "revocations",
        "revoke_authority",
        "delegate",
        RevocationBody,
        "Revoke a remembered rule, or a delegation by the caller.",
    ),
    Route(
        "lift",
        "lifts",
        "lift_constraint",
        "decide",
        LiftBody,
        "Remove a constraint. The policy then judges the calls that it rejected like any other call. A closed thread "
        "needs a message.",
    ),
    Route(
        "retry",
        "retries",
        "retry_run",
        "retry",
        ReasonBody,
        "Resume a blocked run, once its cause is fixed.",
    ),
    Route(
        "pause",
        "pause",
        "pause_run",
        "pause",
        PauseBody,
        "Pause the run: work under way ends, and nothing else starts. Repeat it to change the reason and the end.",
    ),
    Route(
        "resume",
        "resume",
        "resume_run",
        "pause",
        ReasonBody,
        "Resume a paused run. It reads messages that were sent meanwhile before anything else.",
    ),
    Route(
        "wake",
        "wake",
        "wake_run",
        "wake",
        WakeBody,
        "Send the run an event, or wake it. 202: the event is kept until a call of the agent waits for it.",
    ),
    Route(
        "cancel",
        "cancellations",
        "cancel_run",
        "cancel",
        ReasonBody,
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
        body = read_body(await request.body() or (b"" if row.needs_body else b"{}"), row.body)
        if isinstance(body, LiftBody) and body.say:
            check_scope(access.caller, "say")
        if isinstance(body, AdoptionBody):  # another policy may allow what this one denies
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
