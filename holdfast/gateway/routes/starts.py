"""The routes that start threads, each once.

1. `PUT /threads/{thread}` has the thread id in the path, `POST /threads` derives it from the caller and the
   `Idempotency-Key`. Temporal rejects a second start of an id, so any number of gateways agree without a store.
2. A start of an existing id with a different task, conversation, agent, context, idle limit, `when_blocked` or caller
   is rejected. So nobody mistakes another caller's thread for their own.
3. Callers cannot choose ids of the derived form. Otherwise one could occupy the ids of another.
"""

import re
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, Request, Response

from holdfast.client.idempotent_starts import start_once
from holdfast.client.start_options import StartOptions, check_own_id, new_thread_id
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import digest
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.conversation import read_conversation
from holdfast.errors import TaskDiffers, ThreadIdInvalid, ThreadNotFound
from holdfast.gateway.answers import StartedThread
from holdfast.gateway.authentication import Authenticator, ThreadInPath, decode_thread
from holdfast.gateway.bodies import StartBody, read_body
from holdfast.gateway.callers import Caller
from holdfast.gateway.descriptions import ALWAYS, LOCATION, body_of, problems
from holdfast.gateway.http.problems import HTTPProblem

KEY = r'^(?:[!#-\[\]-~]{1,255}|"[!#-\[\]-~]{1,255}")$'
"""A key, bare or as a quoted string of RFC 9651: visible ASCII characters except quotes and backslashes."""

_DERIVED = re.compile(r".*(?:once-[0-9a-f]{32}|task-[0-9a-f]{64})", re.DOTALL)

TRACEPARENT = "traceparent"
"""The header of W3C Trace Context."""

IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=KEY,
        description="A key chosen by the caller, such as a UUID: the same key is the same thread.",
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
    ),
]


def derived_id(caller: Caller, key: str) -> str:
    """Return the thread id for a caller and an `Idempotency-Key`. It does not depend on the gateway."""
    prefix = next(iter(caller.threads), "")
    return f"{prefix}once-{digest(['idempotency-key/1', caller.name, key.strip(chr(34))])[:32]}"


def starting_router(threads: Threads, authenticator: Authenticator) -> APIRouter:
    """Return the routes that start threads.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
    """
    routes = APIRouter()
    start = Depends(authenticator.for_scope("start"))

    @routes.post(
        "/threads",
        status_code=201,
        response_model=StartedThread,
        responses={201: LOCATION, **problems(409, *ALWAYS)},
        openapi_extra=body_of(StartBody),
    )
    async def start_thread(
        request: Request, response: Response, caller: Annotated[Caller, start], key: IdempotencyKey = ""
    ) -> StartedThread:
        """Start a thread with a new id. With an `Idempotency-Key`, the same request again has the same response."""
        body = read_body(await request.body(), StartBody)
        thread = derived_id(caller, key) if key else "".join([*caller.threads[:1], new_thread_id(body.agent)])
        try:
            await start_exactly(threads, thread, body, caller, request.headers.get(TRACEPARENT, ""))
        except TaskDiffers:
            detail = "this Idempotency-Key was used for another start; repeat the request as it was, or use a new key"
            raise HTTPProblem(422, detail, outcome="key_reused") from None
        return _started_thread(response, thread, caller)

    @routes.put(
        "/threads/{thread}",
        status_code=201,
        response_model=StartedThread,
        responses={
            201: LOCATION,
            200: {"model": StartedThread, "description": "The same start has happened before.", **LOCATION},
            **problems(409, *ALWAYS),
        },
        openapi_extra=body_of(StartBody),
    )
    async def start_thread_by_id(
        request: Request, response: Response, thread: ThreadInPath, caller: Annotated[Caller, start]
    ) -> StartedThread:
        """Start a thread with this id, once. 200: the same start has happened before."""
        body, name = read_body(await request.body(), StartBody), own_id(decode_thread(thread, status=422), caller)
        try:
            new = await start_exactly(threads, name, body, caller, request.headers.get(TRACEPARENT, ""))
        except (TaskDiffers, ThreadNotFound):
            how = "with another task, agent or context, or by another caller"
            detail = f"{name!r} exists, and was started otherwise: {how}"
            raise HTTPProblem(409, f"{detail}. POST to its messages, or choose another id", outcome="exists") from None
        response.status_code = 201 if new else 200
        return _started_thread(response, name, caller)

    return routes


async def start_exactly(threads: Threads, thread: str, body: StartBody, caller: Caller, traceparent: str = "") -> bool:
    """Start a thread, once; return whether it is new.

    Args:
        threads: The threads.
        thread: The id.
        body: The start.
        caller: Whoever starts it.
        traceparent: The caller's span, to which traces link; a malformed one counts as none.

    Raises:
        TaskDiffers: There is a thread of that id that was started otherwise.
        HoldfastError: See `start_once`.
    """
    budget = Budget.model_validate(body.budget.model_dump()) if body.budget else None
    options = StartOptions(
        agent=body.agent,
        idle_limit=body.idle_limit,
        by=caller.name,
        budget=budget,
        context=body.context,
        when_blocked=body.when_blocked,
        nodes=body.nodes,
        conversation=read_conversation(body.conversation),
        traceparent=traceparent,
    )
    return await start_once(threads, body.task, thread, options, exactly=True)


def own_id(thread: str, caller: Caller) -> str:
    """Return the thread id, if the caller may start a thread with it.

    Raises:
        HTTPProblem: 422: it is not a thread id; 403: the caller may not use it.
    """
    try:
        check_own_id(thread)
    except ThreadIdInvalid as error:
        raise HTTPProblem(422, str(error)) from None
    if _DERIVED.fullmatch(thread):
        raise HTTPProblem(403, "ids that end like this are derived from the key of a request; choose another id")
    if not caller.reaches(thread):
        raise HTTPProblem(403, f"{caller.name} may only use threads that begin with {' or '.join(caller.threads)}")
    return thread


def _started_thread(response: Response, thread: str, caller: Caller) -> StartedThread:
    response.headers["Location"] = f"/threads/{quote(thread, safe='')}"
    return StartedThread(thread=thread, by=caller.name)
