"""The route that waits for a run, and returns its result.

Each wait is bounded, and holds one of a limited number of slots: a caller repeats it until there is a result.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from holdfast.api.waiting import Until, Waited, cause_of, look, wait
from holdfast.client.reading.runs import UNAUTHENTICATED
from holdfast.client.threads import Threads
from holdfast.gateway.answers import ThreadResult
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, problems
from holdfast.gateway.http.limits import ended_by_stop
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots

_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=$|[,;])', re.IGNORECASE | re.ASCII)

_UNTIL = (
    "`end`: the run has ended. `attention`: also when it, or a sub-agent below it, waits for people. `answer`: also "
    "when it has answered, or itself waits for people."
)


def results_router(threads: Threads, authenticator: Authenticator, waits: Slots, *, longest: int) -> APIRouter:
    """Return the route of results.

    Args:
        threads: The threads.
        authenticator: Authenticates callers.
        waits: The waits.
        longest: The longest wait, in seconds.
    """
    routes = APIRouter()
    reads = Depends(authenticator.for_thread("read"))

    @routes.get(
        "/threads/{thread}/result",
        response_model=ThreadResult,
        responses={202: {"model": ThreadResult, "description": "There is no result yet."}, **problems(*ON_THREAD)},
    )
    async def get_result(
        request: Request,
        response: Response,
        access: Annotated[Access, reads],
        seconds: Annotated[int, Query(alias="wait", ge=0, le=longest, description="Seconds to wait.")] = 0,
        until: Annotated[Until, Query(description=_UNTIL)] = "end",
        prefer: Annotated[str, Header(max_length=200, description="`wait=30`, as RFC 7240 has it.")] = "",
    ) -> ThreadResult:
        """Get the result of the run. 202: none yet, after the wait that the caller prefers."""
        if not seconds and (preferred := _WAIT.search(prefer)):
            seconds = min(int(preferred[1]), longest)
            response.headers["Preference-Applied"] = f"wait={seconds}"
        waited = await look(threads, access.thread, note=note)
        if seconds and not _settled(waited, until):
            with waits.slot(access.caller.name):
                waited = await wait_for(threads, access.thread, until, seconds, scope=request.scope)
        state = waited.state
        if state.status == UNAUTHENTICATED:
            raise HTTPProblem(409, state.warning, outcome=UNAUTHENTICATED)
        response.status_code = 200 if _settled(waited, until) else 202
        failed = state.status == "failed"
        return ThreadResult(
            thread=state.thread,
            status=waited.status if until != "end" else state.status,
            text=state.result or "",
            structured=state.structured,
            cause=await cause_of(threads, state) if failed else "",
            steps=state.step,
            usage=state.usage,
            pending=[each.model_dump(mode="json", by_alias=True) for each in waited.pending],
            blocked=waited.blocked.model_dump(mode="json") if waited.blocked else None,
            attention=[
                {**each.model_dump(mode="json", by_alias=True), "cause": each.cause} for each in waited.attention
            ],
        )

    return routes


async def wait_for(threads: Threads, thread: str, until: Until, seconds: int, *, scope: Mapping[str, Any]) -> Waited:
    """Wait for a run; return it at the end of the wait, after so many seconds, or when the server stops.

    Args:
        threads: The threads.
        thread: The thread id.
        until: What to wait for.
        seconds: The longest wait.
        scope: The request's.
    """
    waiting = asyncio.create_task(wait(threads, thread, until=until, through_blocks=True))
    try:
        with ended_by_stop(scope, waiting.cancel):
            await asyncio.wait([waiting], timeout=seconds)
    finally:
        waiting.cancel()
    if waiting.done() and not waiting.cancelled():
        return waiting.result()
    return await look(threads, thread, note=note)


def _settled(waited: Waited, until: Until) -> bool:
    """Whether there is an answer. A run that needs a person before its end has none yet: 202, with the reason."""
    return waited.over or (until != "end" and waited.satisfies(until))
