"""The gateway's routes. Each authenticates the caller first, and reads the body only then."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, TypeAlias
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Path, Request, Response
from temporalio.service import RPCError

from holdfast.errors import HoldfastError
from holdfast.runtime.client.listing import list_pending
from holdfast.runtime.client.start_options import check_thread_id
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.gateway.actions import Actions
from holdfast.runtime.gateway.authentication import Authenticator
from holdfast.runtime.gateway.bodies import (
    DecisionBody,
    Health,
    MessageBody,
    Outcome,
    PendingOf,
    PendingOfAll,
    Unanswered,
    read_body,
)
from holdfast.runtime.gateway.callers import Caller
from holdfast.runtime.gateway.problems import MEDIA_TYPE, HTTPProblem, Problem, problem_of
from holdfast.runtime.gateway.stream import EventStream, Followers
from holdfast.runtime.reading.states import CLOSED

HEALTH_SECONDS = 3.0
HEALTH_FRESH_SECONDS = 1.0

ThreadInPath: TypeAlias = Annotated[
    str, Path(description="The thread id, percent-encoded: a slash in it is %2F.", min_length=1)
]


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may respond with, for OpenAPI."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {status: {"model": Problem, "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


def _body_of(kind: type[DecisionBody] | type[MessageBody]) -> dict[str, Any]:
    """The body of a route, for OpenAPI: the route reads it itself, after it has authenticated the caller."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


_EVENT = {
    "type": "object",
    "description": "One server-sent event.",
    "properties": {
        "id": {"type": "string", "description": "The event's position."},
        "event": {"type": "string", "description": "The event's type; `end` after the last, `problem` on failure."},
        "data": {"type": "string", "description": "The event as JSON."},
    },
    "required": ["event", "data"],
}

_ALWAYS = (401, 403, 405, 408, 413, 422, 429, 500, 503)


def router(threads: Threads, authenticator: Authenticator, actions: Actions, followers: Followers) -> APIRouter:
    """The routes on threads.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        actions: Sends decisions and messages.
        followers: Counts the followers of events.
    """
    routes = APIRouter()
    decide, say, read = (Depends(authenticator.for_scope(scope)) for scope in ("decide", "say", "read"))

    @routes.post(
        "/threads/{thread}/decisions",
        response_model=Outcome,
        responses={202: {"model": Outcome}, **_problems(404, 409, *_ALWAYS)},
        openapi_extra=_body_of(DecisionBody),
    )
    async def decide_request(
        request: Request, response: Response, thread: ThreadInPath, caller: Annotated[Caller, decide]
    ) -> Outcome:
        """Decide a request, in the caller's name. 202: it counts, but needs more approvals, or a worker to start."""
        body = read_body(await request.body(), DecisionBody)
        async with _thread_in(thread) as name:
            response.status_code, outcome = await actions.decide(name, body, by=caller.name)
        return outcome

    @routes.post(
        "/threads/{thread}/messages",
        response_model=Outcome,
        responses={202: {"model": Outcome}, **_problems(404, 409, *_ALWAYS)},
        openapi_extra=_body_of(MessageBody),
    )
    async def send_message(
        request: Request, response: Response, thread: ThreadInPath, caller: Annotated[Caller, say]
    ) -> Outcome:
        """Send the agent a message, in the caller's name. A closed thread continues with it."""
        body = read_body(await request.body(), MessageBody)
        async with _thread_in(thread) as name:
            response.status_code, outcome = await actions.say(name, body, by=caller.name)
        return outcome

    @routes.get(
        "/threads/{thread}", dependencies=[read], response_model=dict[str, Any], responses=_problems(404, 409, *_ALWAYS)
    )
    async def state(thread: ThreadInPath) -> JSON:
        """The state of a thread, as `starter.py show --json` prints it."""
        async with _thread_in(thread) as name:
            return await threads.state(name)

    @routes.get(
        "/threads/{thread}/pending",
        dependencies=[read],
        response_model=PendingOf,
        responses=_problems(404, 409, *_ALWAYS),
    )
    async def pending_of(thread: ThreadInPath) -> PendingOf:
        """The open requests of a thread, each with the digest that a decision on it has to give."""
        async with _thread_in(thread) as name:
            return PendingOf(pending=await threads.pending(name))

    @routes.get("/pending", dependencies=[read], response_model=PendingOfAll, responses=_problems(*_ALWAYS))
    async def pending_of_all() -> PendingOfAll:
        """The open requests of all threads. Temporal's index of threads lags a little behind."""
        async with _thread_in("") as _:
            pending, unanswered = await list_pending(threads)
        threads_without_answer = [
            Unanswered(thread=each.thread, why=str(problem_of(each.error, each.thread))) for each in unanswered
        ]
        return PendingOfAll(pending=pending, unanswered=threads_without_answer)

    @routes.get(
        "/threads/{thread}/events",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {"schema": _EVENT}}},
            204: {"description": "The run is over, and there is nothing after that position."},
            **_problems(404, 409, *_ALWAYS),
        },
    )
    async def follow_events(
        request: Request,
        thread: ThreadInPath,
        caller: Annotated[Caller, read],
        last: Annotated[int, Header(alias="Last-Event-ID", ge=-1, le=2**53, description="A position.")] = -1,
    ) -> Response:
        """Follow a thread as server-sent events: id is the position. Ends, with the event `end`, when the run does."""
        async with _thread_in(thread) as name:
            state = await threads.state(name)
        if state["status"] in CLOSED and state["events"] <= last + 1:
            return Response(status_code=204)  # a browser does not reconnect then
        followers.enter(caller.name)
        request.state.cleanup.close()  # from here on it counts as a follower, and not as a request
        return EventStream(threads, name, after=last, followers=followers, caller=caller.name)

    return routes


def health_router(threads: Threads) -> APIRouter:
    """The health route, which needs no authentication."""
    routes = APIRouter()
    checking = asyncio.Lock()
    known: tuple[float, bool, bool | None] | None = None

    @routes.get("/health", response_model=Health, responses={503: {"model": Health}, **_problems(405, 429, 500)})
    async def health(response: Response) -> Health:
        """Whether Temporal and the permanent record answer. Checked at most once a second."""
        nonlocal known
        async with checking:
            if known is None or time.monotonic() - known[0] > HEALTH_FRESH_SECONDS:
                known = (time.monotonic(), *await asyncio.gather(_temporal(threads), _record(threads)))
        _, temporal, record = known
        response.status_code = 200 if temporal else 503
        words = {True: "ok", False: "away", None: "none"}  # part of the API
        return Health.model_validate({"temporal": words[temporal], "record": words[record]})

    return routes


async def _temporal(threads: Threads) -> bool:
    try:
        return await threads.runs.client.service_client.check_health(timeout=timedelta(seconds=HEALTH_SECONDS))
    except (RPCError, RuntimeError):
        return False


async def _record(threads: Threads) -> bool | None:
    if threads.reader.record is None:
        return None
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            await threads.reader.record.length("")
    except (HoldfastError, TimeoutError):
        return False
    return True


@asynccontextmanager
async def _thread_in(encoded: str) -> AsyncIterator[str]:
    """The thread that the path names. Our errors within the block become problems.

    Raises:
        HTTPProblem: Something failed.
    """
    try:
        thread = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        raise HTTPProblem(404, "the thread id in the path is not UTF-8; percent-encode it") from None
    try:
        yield check_thread_id(thread) if encoded else ""
    except HoldfastError as error:
        raise problem_of(error, thread) from error
