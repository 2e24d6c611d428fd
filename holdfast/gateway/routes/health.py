"""The health route, for load balancers."""

import asyncio
import time
from datetime import timedelta

from fastapi import APIRouter, Response
from temporalio.service import RPCError

from holdfast.client.threads import Threads
from holdfast.errors import HoldfastError
from holdfast.gateway.answers import Health
from holdfast.gateway.descriptions import problems

HEALTH_SECONDS = 3.0
HEALTH_FRESH_SECONDS = 1.0


def health_router(threads: Threads) -> APIRouter:
    """Return the health route, which needs no authentication."""
    routes = APIRouter()
    checking = asyncio.Lock()
    cached: tuple[float, bool, bool | None] | None = None

    @routes.get("/health", response_model=Health, responses={503: {"model": Health}, **problems(405, 429, 500)})
    async def get_health(response: Response) -> Health:
        """Check that Temporal and the permanent record answer. Checked at most once a second."""
        nonlocal cached
        async with checking:
            if cached is None or time.monotonic() - cached[0] > HEALTH_FRESH_SECONDS:
                cached = (time.monotonic(), *await asyncio.gather(_temporal(threads), _record(threads)))
        _, temporal, record = cached
        response.status_code = 200 if temporal else 503
        status = {True: "ok", False: "away", None: "none"}  # part of the API
        return Health.model_validate({"temporal": status[temporal], "record": status[record]})

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
