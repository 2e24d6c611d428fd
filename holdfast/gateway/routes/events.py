"""The route of a thread's events: a page of them as JSON, or a stream that follows the run."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import MAX_INTEGER
from holdfast.core.streams.chunks import Cursor
from holdfast.gateway.answers import EventsPage
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, problems
from holdfast.gateway.http.pages import PageLimit, note, take
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.stream import EventStream, event_frames
from holdfast.streaming.followers import Followers
from holdfast.streaming.hub import Hub

_EVENT = {
    "type": "object",
    "description": "One server-sent event.",
    "properties": {
        "id": {"type": "string", "description": "The event's position; for a delta, POSITION.ATTEMPT.CHUNK."},
        "event": {
            "type": "string",
            "description": "The event's type; `end` after the last, `problem` on failure. With `deltas`: `delta`, a "
            "piece of the reply that the event at POSITION will replace, and `superseded`: drop its pieces so far.",
        },
        "data": {"type": "string", "description": "The event as JSON; of a delta `kind`, `text`, `call` and `tool`."},
    },
    "required": ["event", "data"],
}


def events_router(
    threads: Threads, authenticator: Authenticator, followers: Slots, hub: Hub | None, followed: Followers
) -> APIRouter:
    """Return the route of events.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        followers: The streams.
        hub: The streams of replies; None for events alone.
        followed: The threads that this process follows.
    """
    routes = APIRouter()
    reads = Depends(authenticator.for_thread("read"))

    @routes.get(
        "/threads/{thread}/events",
        response_model=EventsPage,
        responses={
            200: {"content": {"text/event-stream": {"schema": _EVENT}}},
            204: {"description": "The run is over, and a stream from that position would be empty."},
            **problems(*ON_THREAD),
        },
    )
    async def list_events(
        request: Request,
        access: Annotated[Access, reads],
        after: Annotated[int, Query(ge=-1, le=MAX_INTEGER, description="A position: only events after it.")] = -1,
        limit: PageLimit = 100,
        last: Annotated[
            str,
            Header(
                alias="Last-Event-ID",
                pattern=r"^(-1|[0-9]{1,16}(\.[0-9]{1,9}\.[0-9]{1,9})?)$",
                description="For a stream, instead of `after`: the id of the last event or delta.",
            ),
        ] = "-1",
        deltas: Annotated[
            bool, Query(description="In a stream, also the LLM's replies while they are written. Needs `transcript`.")
        ] = False,
    ) -> Response | EventsPage:
        """With `Accept: application/json`, get a page of events; else a stream that ends with the run, after the event
        `end`. In the stream, the id is the position.
        """
        if _accepts_page(request.headers.get("Accept", "")):
            page, more = await take(threads.events(access.thread, after=after, note=note), limit=limit)
            return EventsPage(events=page, next=page[-1]["position"] if more else None)
        if deltas and "transcript" not in access.caller.scopes:
            raise HTTPProblem(403, f"deltas require the scope transcript, which {access.caller.name} does not have")
        cursor = _cursor(last)
        cursor = Cursor(after) if cursor.position < 0 else cursor
        state = await threads.state(access.thread, note=note)
        if state["status"] in CLOSED and state["events"] <= cursor.after + 1:
            return Response(status_code=204)  # so that a browser does not reconnect
        followers.acquire(access.caller.name)
        request.state.cleanup.close()  # from here on it counts as a stream, not as a request
        frames = event_frames(threads, hub if deltas else None, access.thread, cursor, followers=followed)
        return EventStream(frames, access.thread, followers=followers, caller=access.caller.name)

    return routes


def _cursor(last: str) -> Cursor:
    try:
        return Cursor.parse(last)
    except ValueError as error:
        raise HTTPProblem(422, f"Last-Event-ID: {error}") from None


def _accepts_page(accept: str) -> bool:
    return "application/json" in accept and "text/event-stream" not in accept
