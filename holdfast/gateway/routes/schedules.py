"""The routes of schedules.

A caller may access those whose name, and so whose thread ids, begin with one of the caller's prefixes.
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
from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.messages import MAX_TEXT_BYTES
from holdfast.errors import ScheduleInvalid, ScheduleNotFound
from holdfast.gateway.answers import Schedule, SchedulesList, TriggeredRun
from holdfast.gateway.authentication import Authenticator, decode_thread
from holdfast.gateway.bodies import (
    AGENT_NAME,
    NOT_BLANK,
    Body,
    BudgetBody,
    ContextBody,
    ReasonBody,
    not_blank,
    read_body,
)
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import ALWAYS, ON_THREAD, body_of, problems
from holdfast.gateway.http.problems import HTTPProblem


def _text(value: object) -> object:
    """Accept only text as a time: pydantic would also accept a number."""
    if not isinstance(value, str):
        raise ValueError("it is not a time such as 2030-12-24T18:00:00Z")  # pydantic reports only a `ValueError`
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
    """The agent's task."""
    cron: str | SkipJsonSchema[None] = Field(default=None, max_length=500, examples=["0 7 * * 1-5"])
    """The times: minute, hour, day of the month, month, day of the week."""
    every: float | SkipJsonSchema[None] = Field(
        default=None, ge=SHORTEST_INTERVAL, le=LONGEST_INTERVAL, examples=[21_600]
    )
    """Seconds from one run to the next, counted from 1970-01-01 in UTC."""
    tz: str = Field(default="UTC", max_length=100, examples=["Europe/Berlin"])
    """The time zone of `cron`."""
    until: Annotated[AwareDatetime, BeforeValidator(_text)] | None = Field(
        default=None, strict=False, examples=["2030-12-24T18:00:00Z"]
    )
    """No run starts after this; null for no end."""
    overlap: Overlap = "skip"
    """If the last run is still open: skip the new one, start one afterwards, cancel the old one, or run both."""
    catchup: float | None = Field(default=None, ge=10, le=LONGEST_CATCHUP)
    """The most seconds by which a run that was due while Temporal was down may be late; null for the time from one run
    to the next."""
    agent: str | None = Field(default=None, pattern=AGENT_NAME, examples=["support"])
    """The agent's name; null for the catalog's first."""
    reason: str = Field(default="", max_length=2_000)
    """The purpose of the schedule."""
    budget: BudgetBody | None = None
    """The budget of each run, within the agent's own; null for the agent's own."""
    context: ContextBody = None
    """The typed context of each run; null for no context."""
    when_blocked: WhenBlocked | None = None
    """If a run cannot continue without a person: `fail` with the cause, or `wait`; null for the agent's own."""
    replace: bool = False
    """Replace another schedule of this name."""

    _task_is_not_blank = field_validator("task")(not_blank)

    @model_validator(mode="after")
    def _has_times(self) -> Self:
        fields = {"cron", "every"} & self.model_fields_set
        if len(fields) != 1 or (self.cron is None and self.every is None):
            raise ValueError("give `cron`, or `every`")
        return self


_NAME = "The schedule's name, percent-encoded: a slash in it is %2F."
NameInPath = Annotated[str, Path(description=_NAME, min_length=1)]


def scheduling_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """Return the routes of schedules.

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
        """Get a schedule: its task, times and requester, and the outcomes of its last runs."""
        return await _state(threads, _accessible(schedule, caller))

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
        """Add a schedule with runs in the caller's name. 200: there is an identical one already."""
        body, name = read_body(await request.body(), ScheduleBody), _schedule_name(schedule)
        if not caller.reaches(name):
            prefixes = " or ".join(caller.threads)
            raise HTTPProblem(403, f"{caller.name} may only make schedules whose name begins with {prefixes}")
        budget = Budget.model_validate(body.budget.model_dump()) if body.budget else None
        definition = Definition(**body.model_dump(exclude={"replace", "budget"}), budget=budget, by=caller.name)
        new = await schedules.add_schedule(threads, name, definition, replace=body.replace)
        response.status_code = 201 if new else 200
        return await _state(threads, name)

    @routes.delete("/schedules/{schedule}", status_code=204, response_class=Response, responses=problems(*ON_THREAD))
    async def delete_schedule(schedule: NameInPath, caller: Annotated[Caller, changes]) -> None:
        """Delete a schedule. Its threads stay, and open runs continue."""
        await schedules.delete_schedule(threads, _accessible(schedule, caller))

    optional_reason = body_of(ReasonBody, required=False)

    @routes.post(
        "/schedules/{schedule}/pause",
        response_model=Schedule,
        responses=problems(*ON_THREAD),
        openapi_extra=optional_reason,
    )
    async def pause_schedule(request: Request, schedule: NameInPath, caller: Annotated[Caller, changes]) -> Schedule:
        """Pause a schedule: open runs continue, and no other starts. Repeat it to change the reason."""
        name, body = _accessible(schedule, caller), read_body(await request.body() or b"{}", ReasonBody)
        await schedules.pause_schedule(threads, name, by=caller.name, reason=body.reason)
        return await _state(threads, name)

    @routes.post(
        "/schedules/{schedule}/resume",
        response_model=Schedule,
        responses=problems(*ON_THREAD),
        openapi_extra=optional_reason,
    )
    async def resume_schedule(request: Request, schedule: NameInPath, caller: Annotated[Caller, changes]) -> Schedule:
        """Resume a paused schedule. Runs that were due meanwhile do not start."""
        name, body = _accessible(schedule, caller), read_body(await request.body() or b"{}", ReasonBody)
        await schedules.resume_schedule(threads, name, by=caller.name, reason=body.reason)
        return await _state(threads, name)

    @routes.post(
        "/schedules/{schedule}/trigger",
        status_code=202,
        response_model=TriggeredRun,
        responses=problems(*ON_THREAD),
    )
    async def trigger_schedule(schedule: NameInPath, caller: Annotated[Caller, changes]) -> TriggeredRun:
        """Start a run now, even if another one is open or the schedule is paused."""
        thread = await schedules.trigger_schedule(threads, _accessible(schedule, caller))
        return TriggeredRun(thread=thread or None)

    return routes


def _schedule_name(schedule: str) -> str:
    """Decode the schedule's name in a path.

    Raises:
        HTTPProblem: 404: it cannot be the name of a schedule.
    """
    try:
        return check_schedule_name(decode_thread(schedule))
    except ScheduleInvalid as error:
        raise HTTPProblem(404, str(error)) from None


def _accessible(schedule: str, caller: Caller) -> str:
    """Decode the schedule's name in a path, if the caller may access that schedule.

    Raises:
        HTTPProblem: 404: it cannot be the name of a schedule.
        ScheduleNotFound: The caller may not; the error is the same as for a schedule that does not exist.
    """
    name = _schedule_name(schedule)
    if not caller.reaches(name):
        raise ScheduleNotFound(name)
    return name


async def _state(threads: Threads, name: str) -> Schedule:
    return Schedule.model_validate(await schedule_state(threads, name))
