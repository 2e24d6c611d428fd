"""The route that waits for a run, and returns its result.

Each wait is bounded, and holds one of a limited number of slots: a caller repeats it until there is a result.
"""

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from holdfast.api.views import ThreadState
from holdfast.api.waiting import Until, cause_of, wait
from holdfast.client.reading.runs import UNAUTHENTICATED
from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import Threads
from holdfast.gateway.answers import ThreadResult
from holdfast.gateway.authentication import Access, Authenticator
from holdfast.gateway.descriptions import ON_THREAD, problems
from holdfast.gateway.http.pages import note
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.gateway.http.quotas import Slots

_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?=$|[,;])', re.IGNORECASE | re.ASCII)


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
        response: Response,
        access: Annotated[Access, reads],
        seconds: Annotated[int, Query(alias="wait", ge=0, le=longest, description="Seconds to wait.")] = 0,
        until: Annotated[Until, Query(description="`attention`: also when the run waits for people.")] = "end",
        prefer: Annotated[str, Header(max_length=200, description="`wait=30`, as RFC 7240 has it.")] = "",
    ) -> ThreadResult:
        """Get the result of the run. 202: none yet, after the wait that the caller prefers."""
        if not seconds and (preferred := _WAIT.search(prefer)):
            seconds = min(int(preferred[1]), longest)
            response.headers["Preference-Applied"] = f"wait={seconds}"
        state = await _state(threads, access.thread)
        if seconds and not _settled(state, until):
            with waits.slot(access.caller.name):
                state = await _wait(threads, access.thread, until, seconds)
        if state.status == UNAUTHENTICATED:
            raise HTTPProblem(409, state.warning, outcome=UNAUTHENTICATED)
        response.status_code = 200 if _settled(state, until) else 202
        failed = state.status == "failed"
        return ThreadResult(
            thread=state.thread,
            status=state.status,
            text=state.result or "",
            structured=state.structured,
            cause=await cause_of(threads, state) if failed else "",
            steps=state.step,
            usage=state.usage,
            pending=[each.model_dump(mode="json", by_alias=True) for each in state.pending],
            blocked=state.blocked.model_dump(mode="json") if state.blocked else None,
        )

    return routes


async def _state(threads: Threads, thread: str) -> ThreadState:
    return ThreadState.model_validate(await threads.state(thread, note=note))


async def _wait(threads: Threads, thread: str, until: Until, seconds: int) -> ThreadState:
    """Wait for a run; return its state at the end of the wait, or after so many seconds."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await wait(threads, thread, until=until)
    except TimeoutError:
        if not limit.expired():
            raise
    return await _state(threads, thread)


def _settled(state: ThreadState, until: Until) -> bool:
    return state.status in CLOSED or (until == "attention" and state.status != "running")
