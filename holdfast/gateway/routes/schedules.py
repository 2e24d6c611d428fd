"""The routes of schedules.

A caller reaches those whose name begins with one of the caller's prefixes of thread ids, as their threads do.
"""

from typing import Annotated, Self

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from holdfast.client import schedules
from holdfast.client.schedule_definitions import (
    LONGEST_CATCHUP,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    Definition,
    Overlap,
    check_schedule_name,
)
from holdfast.client.schedule_states import list_schedules, schedule_state
from holdfast.client.threads import Threads
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.errors import ScheduleInvalid, ScheduleNotFound
from holdfast.gateway.answers import Schedule, SchedulesList, TriggeredRun
from holdfast.gateway.authentication import Authenticator, decode_thread
from holdfast.gateway.bodies import AGENT_NAME, NOT_BLANK, Body, BudgetBody, ReasonBody, not_blank, read_body
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import ALWAYS, ON_THREAD, body_of, problems
from holdfast.gateway.http.problems import HTTPProblem


def _text(value: object) -> object:
    """A time is text: pydantic would take a number for one."""
    if not isinstance(value, str):
        raise ValueError("it is not a time such as 2030-12-24T18:00:00Z")  # pydantic reports these alone
    return value


class ScheduleBody(Body):
    """A schedule of runs, in the name of the owner of the token or key: with `cron`, or with `every`."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": ["cron"]}, {"required": ["every"]}],
            "examples": [{"task": "Update the dependencies.", "cron": "0 7 * * 1-5", "tz": "Europe/Berlin"}],
        }
    )

    task: str = Field(min_length=1, max_length=MAX_TEXT_BYTES, json_schema_extra={"pattern": NOT_BLANK})
    """What the agent is to do."""
    cron: str | SkipJsonSchema[None] = Field(default=None, max_length=500, examples=["0 7 * * 1-5"])
    """When: minute, hour, day of the month, month, day of the week."""
    every: float | SkipJsonSchema[None] = Field(
        default=None, ge=SHORTEST_INTERVAL, le=LONGEST_INTERVAL, examples=[21_600]
    )
    """When: seconds from one run to the next, counted from 1970-01-01 in UTC."""
    tz: str = Field(default="UTC", max_length=100, examples=["Europe/Berlin"])
    """The time zone of `cron`."""
    until: Annotated[AwareDatetime, BeforeValidator(_text)] | None = Field(
        default=None, strict=False, examples=["2030-12-24T18:00:00Z"]
    )
    """No run starts after this; null for no end."""
    overlap: Overlap = "skip"
    """If the last run is still open: leave the new one out, start one afterwards, cancel the old one, or run both."""
    catchup: float | None = Field(default=None, ge=10, le=LONGEST_CATCHUP)
    """How many seconds late a run may start that was due while Temporal was down; null for the time from one run to the
    next."""
    agent: str | None = Field(default=None, pattern=AGENT_NAME, examples=["support"])
    """The agent's name; null for the catalog's first."""
    reason: str = Field(default="", max_length=2_000)
    """Why there is the schedule."""
    budget: BudgetBody | None = None
    """What each run may use, as far as the agent's own budget allows it; null for that one."""
    replace: bool = False
    """Replace another schedule of this name."""

    _of_task = field_validator("task")(not_blank)

    @model_validator(mode="after")
    def _has_times(self) -> Self:
        given = {"cron", "every"} & self.model_fields_set
        if len(given) != 1 or (self.cron is None and self.every is None):
            raise ValueError("give `cron`, or `every`")
        return self


_NAME = "The schedule's name, percent-encoded: a slash in it is %2F."
NameInPath = Annotated[str, Path(description=_NAME, min_length=1)]


def scheduling_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """The routes of schedules.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
    """
    routes = APIRouter()
    changes, reads = (Depends(authenticator.for_scope(scope)) for scope in ("schedule", "schedules"))

    @routes.get("/schedules", response_model=SchedulesList, responses=problems(*ALWAYS))
    async def list_all_schedules(caller: Annotated[Caller, reads]) -> SchedulesList:
        """List schedules by name, without their runs. Temporal's list lags a little."""
        rows = await list_schedules(threads, prefixes=caller.threads)
        return SchedulesList(schedules=[Schedule.model_validate(row) for row in rows])

    @routes.get("/schedules/{schedule}", response_model=Schedule, responses=problems(*ON_THREAD))
    async def get_schedule(schedule: NameInPath, caller: Annotated[Caller, reads]) -> Schedule:
        """What a schedule runs, when and for whom, and what became of its last runs."""
        return await _state(threads, _reached(schedule, caller))

    @routes.put(
        "/schedules/{schedule}",
        status_code=201,
        response_model=Schedule,
        responses={
            200: {"model": Schedule, "description": "There is the same schedule already."},
            **problems(*ON_THREAD),
        },
        openapi_extra=body_of(ScheduleBody),
    )
    async def put_schedule(
        request: Request, response: Response, schedule: NameInPath, caller: Annotated[Caller, changes]
    ) -> Schedule:
        """Add a schedule, whose runs are in the caller's name. 200: there is the same one already."""
        body, name = read_body(await request.body(), ScheduleBody), _named(schedule)
        if not caller.reaches(name):
            prefixes = " or ".join(caller.threads)
            raise HTTPProblem(403, f"{caller.name} may only make schedules whose name begins with {prefixes}")
        budget = Budget.model_validate(body.budget.model_dump()) if body.budget else None
        given = Definition(**body.model_dump(exclude={"replace", "budget"}), budget=budget, by=caller.name)
        new = await schedules.add_schedule(threads, name, given, replace=body.replace)
        response.status_code = 201 if new else 200
        return await _state(threads, name)

    @routes.delete("/schedules/{schedule}", status_code=204, response_class=Response, responses=problems(*ON_THREAD))
    async def delete_schedule(schedule: NameInPath, caller: Annotated[Caller, changes]) -> None:
        """Delete a schedule. Its threads stay, and open runs continue."""
        await schedules.delete_schedule(threads, _reached(schedule, caller))

    optional_reason = body_of(ReasonBody, required=False)

    @routes.post(
        "/schedules/{schedule}/pause",
        response_model=Schedule,
        responses=problems(*ON_THREAD),
        openapi_extra=optional_reason,
    )
    async def pause_schedule(request: Request, schedule: NameInPath, caller: Annotated[Caller, changes]) -> Schedule:
        """Pause a schedule: open runs continue, and no other starts. Again: change the reason."""
        name, body = _reached(schedule, caller), read_body(await request.body() or b"{}", ReasonBody)
        await schedules.pause_schedule(threads, name, by=caller.name, reason=body.reason)
        return await _state(threads, name)

    @routes.post(
        "/schedules/{schedule}/resume",
        response_model=Schedule,
        responses=problems(*ON_THREAD),
        openapi_extra=optional_reason,
    )
    async def resume_schedule(request: Request, schedule: NameInPath, caller: Annotated[Caller, changes]) -> Schedule:
        """Resume a paused schedule. What was due meanwhile does not start."""
        name, body = _reached(schedule, caller), read_body(await request.body() or b"{}", ReasonBody)
        await schedules.resume_schedule(threads, name, by=caller.name, reason=body.reason)
        return await _state(threads, name)

    @routes.post(
        "/schedules/{schedule}/trigger",
        status_code=202,
        response_model=TriggeredRun,
        responses=problems(*ON_THREAD),
    )
    async def trigger_schedule(schedule: NameInPath, caller: Annotated[Caller, changes]) -> TriggeredRun:
        """Start a run now, also beside an open one, and while the schedule is paused."""
        thread = await schedules.trigger_schedule(threads, _reached(schedule, caller))
        return TriggeredRun(thread=thread or None)

    return routes


def _named(schedule: str) -> str:
    """The name in a path.

    Raises:
        HTTPProblem: 404: it cannot be that of a schedule.
    """
    try:
        return check_schedule_name(decode_thread(schedule))
    except ScheduleInvalid as error:
        raise HTTPProblem(404, str(error)) from None


def _reached(schedule: str, caller: Caller) -> str:
    """The name in a path, if the caller may reach that schedule.

    Raises:
        HTTPProblem: 404: it cannot be that of a schedule.
        ScheduleNotFound: The same as where there is none.
    """
    name = _named(schedule)
    if not caller.reaches(name):
        raise ScheduleNotFound(name)
    return name


async def _state(threads: Threads, name: str) -> Schedule:
    return Schedule.model_validate(await schedule_state(threads, name))
