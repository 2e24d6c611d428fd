"""The route that publishes an event: it wakes every run that waits for it and that the caller may access."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from holdfast.client.publishing import publish
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import digest
from holdfast.core.tools.triggers import EVENT_NAME
from holdfast.gateway.answers import PublishedEvent, Unanswered
from holdfast.gateway.authentication import Authenticator
from holdfast.gateway.bodies import EventBody, read_body
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import ALWAYS, body_of, problems
from holdfast.gateway.http.problems import problem_of
from holdfast.gateway.routes.starts import IdempotencyKey

EventName = Annotated[str, Path(pattern=rf"^{EVENT_NAME}$", examples=["deploy.finished"])]


PACED_SECONDS = 30.0
"""Seconds after which sending is no longer paced, so that the response comes within `limits.ANSWER_SECONDS`."""


def event_id(caller: Caller, key: str) -> str:
    """Return the event id for a caller and an `Idempotency-Key`; no caller can use up the id of another."""
    return digest(["event-key/1", caller.name, key.strip(chr(34))])[:32] if key else ""


def publishing_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """Return the route that publishes events.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
    """
    routes = APIRouter()
    may = Depends(authenticator.for_scope("publish"))

    @routes.post(
        "/events/{event:path}",
        status_code=202,
        response_model=PublishedEvent,
        responses=problems(*ALWAYS),
        openapi_extra=body_of(EventBody, required=False),
    )
    async def publish_event(
        request: Request, event: EventName, caller: Annotated[Caller, may], key: IdempotencyKey = ""
    ) -> PublishedEvent:
        """Wake every run that waits for this event. With an `Idempotency-Key`, a repetition wakes no run twice."""
        body = read_body(await request.body() or b"{}", EventBody)
        published = await publish(
            threads,
            event,
            by=caller.name,
            data=body.data,
            id=event_id(caller, key),
            prefixes=caller.threads,
            paced_seconds=PACED_SECONDS,
        )
        return PublishedEvent(
            event=published.event,
            id=published.id,
            sent=list(published.sent),
            unreached=[
                Unanswered(thread=thread, why=str(problem_of(error, thread)))
                for thread, error in published.unreached.items()
            ],
            by=caller.name,
        )

    return routes
