"""The route that publishes an event: it wakes every run that waits for it, of the threads that the caller may reach."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request

from holdfast.base.digests import digest
from holdfast.runtime.client.publishing import publish
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.gateway.answers import PublishedEvent, Unanswered
from holdfast.runtime.gateway.authentication import Authenticator
from holdfast.runtime.gateway.bodies import EventBody, read_body
from holdfast.runtime.gateway.callers import Caller
from holdfast.runtime.gateway.descriptions import ALWAYS, body_of, problems
from holdfast.runtime.gateway.problems import problem_of
from holdfast.runtime.gateway.starting import IdempotencyKey
from holdfast.tools.triggers import EVENT_NAME

EventName = Annotated[str, Path(pattern=rf"^{EVENT_NAME}$", examples=["deploy.finished"])]


PACED_SECONDS = 30.0
"""Seconds after which the rest follows without a wait: the response comes within `limits.ANSWER_SECONDS`."""


def event_id(caller: Caller, key: str) -> str:
    """The id of the event for a caller and an `Idempotency-Key`: no caller can use up an id of another."""
    return digest(["event-key/1", caller.name, key.strip(chr(34))])[:32] if key else ""


def publishing_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """The route that publishes events.

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
        """Wake every run that waits for this event. With an `Idempotency-Key`, a repetition reaches no run twice."""
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
