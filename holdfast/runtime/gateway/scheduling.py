"""The routes of schedules.

A caller reaches those whose name begins with one of the caller's prefixes of thread ids, as their threads do.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from holdfast.errors import ScheduleInvalid, ScheduleNotFound
from holdfast.runtime.client import schedules
from holdfast.runtime.client.schedule_definitions import Definition, check_schedule_name
from holdfast.runtime.client.schedule_states import list_schedules, schedule_state
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.gateway.answers import Schedule, SchedulesList, TriggeredRun
from holdfast.runtime.gateway.authentication import Authenticator, decode_thread
from holdfast.runtime.gateway.bodies import ReasonBody, ScheduleBody, read_body
from holdfast.runtime.gateway.callers import Caller
from holdfast.runtime.gateway.descriptions import ALWAYS, ON_THREAD, body_of, problems
from holdfast.runtime.gateway.problems import HTTPProblem

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
        given = Definition(**body.model_dump(exclude={"replace"}), by=caller.name)
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
