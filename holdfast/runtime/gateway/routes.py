"""The gateway's paths. Each finds out who asks first, and reads the body only then."""

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
from holdfast.runtime.gateway.actions import Acting
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
from holdfast.runtime.gateway.problems import MEDIA_TYPE, Problem, Trouble, trouble_of
from holdfast.runtime.gateway.stream import EventStream, Followers
from holdfast.runtime.reading.states import CLOSED

HEALTH_SECONDS = 3.0
HEALTH_FRESH_SECONDS = 1.0

ThreadInPath: TypeAlias = Annotated[
    str, Path(description="The thread id, percent-encoded: a slash in it is %2F.", min_length=1)
]


def _troubles(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a path may answer besides, for OpenAPI."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {status: {"model": Problem, "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


def _body_of(kind: type[DecisionBody] | type[MessageBody]) -> dict[str, Any]:
    """The body that a path takes, for OpenAPI: the path reads it itself, after it knows who asks."""
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


def router(threads: Threads, doors: Authenticator, acting: Acting, followers: Followers) -> APIRouter:
    """The paths about threads.

    Args:
        threads: Which.
        doors: Finds out who asks.
        acting: Carries decisions and messages out.
        followers: Counts those who follow.
    """
    routes = APIRouter()
    decide, say, read = (Depends(doors.for_scope(scope)) for scope in ("decide", "say", "read"))

    @routes.post(
        "/threads/{thread}/decisions",
        response_model=Outcome,
        responses={202: {"model": Outcome}, **_troubles(404, 409, *_ALWAYS)},
        openapi_extra=_body_of(DecisionBody),
    )
    async def decide_request(
        request: Request, response: Response, thread: ThreadInPath, caller: Annotated[Caller, decide]
    ) -> Outcome:
        """Decide a request, in the caller's name. 202: it counts, and more have to approve, or a worker to come up."""
        body = read_body(await request.body(), DecisionBody)
        async with _in(thread) as name:
            response.status_code, outcome = await acting.decide(name, body, by=caller.name)
        return outcome

    @routes.post(
        "/threads/{thread}/messages",
        response_model=Outcome,
        responses={202: {"model": Outcome}, **_troubles(404, 409, *_ALWAYS)},
        openapi_extra=_body_of(MessageBody),
    )
    async def say_something(
        request: Request, response: Response, thread: ThreadInPath, caller: Annotated[Caller, say]
    ) -> Outcome:
        """Say something to the agent, in the caller's name. A closed thread goes on with it."""
        body = read_body(await request.body(), MessageBody)
        async with _in(thread) as name:
            response.status_code, outcome = await acting.say(name, body, by=caller.name)
        return outcome

    @routes.get(
        "/threads/{thread}", dependencies=[read], response_model=dict[str, Any], responses=_troubles(404, 409, *_ALWAYS)
    )
    async def state(thread: ThreadInPath) -> JSON:
        """The state of a thread, as `starter.py show --json` prints it."""
        async with _in(thread) as name:
            return await threads.state(name)

    @routes.get(
        "/threads/{thread}/pending",
        dependencies=[read],
        response_model=PendingOf,
        responses=_troubles(404, 409, *_ALWAYS),
    )
    async def pending_of(thread: ThreadInPath) -> PendingOf:
        """The open requests of a thread, each with the digest that a decision on it has to give."""
        async with _in(thread) as name:
            return PendingOf(pending=await threads.pending(name))

    @routes.get("/pending", dependencies=[read], response_model=PendingOfAll, responses=_troubles(*_ALWAYS))
    async def pending_of_all() -> PendingOfAll:
        """The open requests of all threads. Temporal finds the threads, and lags a little behind."""
        async with _in("") as _:
            pending, silent = await list_pending(threads)
        why = [Unanswered(thread=each.thread, why=str(trouble_of(each.error, each.thread))) for each in silent]
        return PendingOfAll(pending=pending, unanswered=why)

    @routes.get(
        "/threads/{thread}/events",
        response_class=Response,
        responses={
            200: {"content": {"text/event-stream": {"schema": _EVENT}}},
            204: {"description": "The run is over, and there is nothing after that position."},
            **_troubles(404, 409, *_ALWAYS),
        },
    )
    async def follow_events(
        request: Request,
        thread: ThreadInPath,
        caller: Annotated[Caller, read],
        last: Annotated[int, Header(alias="Last-Event-ID", ge=-1, le=2**53, description="A position.")] = -1,
    ) -> Response:
        """Follow a thread as server-sent events: id is the position. Ends, with the event `end`, when the run does."""
        async with _in(thread) as name:
            state = await threads.state(name)
        if state["status"] in CLOSED and state["events"] <= last + 1:
            return Response(status_code=204)  # tells a browser not to come back
        followers.enter(caller.name)
        request.state.leaving.close()  # from here on it counts as a follower, and not as a request
        return EventStream(threads, name, after=last, followers=followers, caller=caller.name)

    return routes


def health_router(threads: Threads) -> APIRouter:
    """The path that tells whether the gateway can work; it asks nobody who they are."""
    routes = APIRouter()
    asking = asyncio.Lock()
    known: tuple[float, bool, bool | None] | None = None

    @routes.get("/health", response_model=Health, responses={503: {"model": Health}, **_troubles(405, 429, 500)})
    async def health(response: Response) -> Health:
        """Whether Temporal answers, and the permanent record. Found out once a second, however many ask."""
        nonlocal known
        async with asking:
            if known is None or time.monotonic() - known[0] > HEALTH_FRESH_SECONDS:
                known = (time.monotonic(), *await asyncio.gather(_temporal(threads), _record(threads)))
        _, temporal, record = known
        response.status_code = 200 if temporal else 503
        words = {True: "ok", False: "away", None: "none"}
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
async def _in(encoded: str) -> AsyncIterator[str]:
    """The thread that the path names; errors of ours become what the caller is told.

    Raises:
        Trouble: Something went wrong.
    """
    try:
        thread = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        raise Trouble(404, "the thread id in the path is not UTF-8; percent-encode it") from None
    try:
        yield check_thread_id(thread) if encoded else ""
    except HoldfastError as error:
        raise trouble_of(error, thread) from error
