"""The route of a thread's events: a page of them as JSON, or a stream that follows the run."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import MAX_INTEGER
from holdfast.gateway.answers import EventsPage
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, problems
from holdfast.gateway.http.pages import PageLimit, note, take
from holdfast.gateway.http.quotas import Slots
from holdfast.gateway.stream import EventStream

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


def events_router(threads: Threads, authenticator: Authenticator, followers: Slots) -> APIRouter:
    """Return the route of events.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        followers: The streams.
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
            int,
            Header(alias="Last-Event-ID", ge=-1, le=MAX_INTEGER, description="For a stream, instead of `after`."),
        ] = -1,
    ) -> Response | EventsPage:
        """With `Accept: application/json`, get a page of events; else a stream that ends with the run, after the event
        `end`. In the stream, the id is the position.
        """
        if _accepts_page(request.headers.get("Accept", "")):
            page, more = await take(threads.events(access.thread, after=after, note=note), limit=limit)
            return EventsPage(events=page, next=page[-1]["position"] if more else None)
        position = last if last >= 0 else after
        state = await threads.state(access.thread, note=note)
        if state["status"] in CLOSED and state["events"] <= position + 1:
            return Response(status_code=204)  # so that a browser does not reconnect
        followers.acquire(access.caller.name)
        request.state.cleanup.close()  # from here on it counts as a stream, not as a request
        return EventStream(threads, access.thread, after=position, followers=followers, caller=access.caller.name)

    return routes


def _accepts_page(accept: str) -> bool:
    return "application/json" in accept and "text/event-stream" not in accept
