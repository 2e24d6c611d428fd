"""Fuzz the gateway with schemathesis and a fixed seed, within its OpenAPI description and outside it."""

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.base.canonical import unportable
from holdfast.gateway.app import build_app
from holdfast.gateway.callers import Callers
from holdfast.gateway.http.quotas import Quota
from holdfast.testing import call, say, steps
from tests.integration.test_gateway import CALLERS, TRUSTING, bearer, catalog
from tests.support.rig import StartRig, status_of
from tests.support.servers import open_stack
from tests.support.serving import served


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return separate servers: `/pending` queries every run, and other tests leave runs without workers."""
    with open_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


class Names(NamedTuple):
    """The threads that requests are sent to."""

    waits: str
    closed: str
    over: str


FEEDS = ("/ag-ui", "/ui-messages")
SCRIPT = steps([call("pay", amount=7), say("Paid.")])


# The gateway's threads use `random` (for the jitter of a pool), which Hypothesis mistakes for a strategy.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(1, marks=pytest.mark.extended),
        pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)]),
    ],
)
async def test_every_request_is_answered_as_described(rig: StartRig, examples: int) -> None:
    """No request causes an internal error or an undocumented response, or bypasses authentication."""
    async with rig(catalog(TRUSTING), SCRIPT) as worker:
        names = Names(waits=f"waits/{examples}", closed=f"is closed {examples}", over=f"is over {examples}")
        for name in names:
            run = await worker.start(thread=name)
            await status_of(run, "waiting_approval")
            if name != names.waits:
                await run.terminate()
        threads = Threads(worker.client, task_queue=worker.task_queue)
        often = Quota(at_once=1_000, a_second=1e6, burst=1_000_000)
        app = build_app(
            threads,
            Callers(CALLERS, TRUSTING),
            followers=4,
            followers_each=4,
            each_caller=often,
            each_address=often,
            wait_seconds=1,
        )
        async with served(app) as url:
            async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
                described = (await http.get("/openapi.json")).json()
            count = await asyncio.to_thread(_fuzz, described, url, names, examples)

    assert count >= examples


def _fuzz(described: dict[str, Any], url: str, names: Names, examples: int) -> int:
    """Send requests of every kind to every path, and return how many."""
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=url)
    refusing = schema.config.checks.negative_data_rejection
    refusing.expected_statuses = [
        *refusing.expected_statuses,
        "413",
        "414",
    ]  # an invalid body, path or query can also be too long
    count = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        for mode in GenerationMode:
            strategy = operation.as_strategy(generation_mode=mode)

            @seed(1)
            @settings(
                max_examples=examples,
                database=None,
                deadline=None,
                derandomize=False,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
            )
            @given(case=strategy)
            def send(case: Any) -> None:
                nonlocal count
                # JSON Schema cannot bound the integers inside an arbitrary value; the description states it in prose.
                assume(not (isinstance(case.body, dict) and unportable(case.body)))
                count += 1
                if case.meta.generation.mode is GenerationMode.POSITIVE:
                    (case.query or {}).pop("cursor", None)  # only the gateway creates them
                    if "Idempotency-Key" in (case.headers or {}):
                        case.headers["Idempotency-Key"] = f'"{case.path}-{count}"'  # a key is bound to one body
                # Every other request uses an existing thread. A stream of an open one would not end.
                streams = case.path.endswith(("/events", *FEEDS))
                if "thread" in (case.path_parameters or {}) and (count % 2 or streams):
                    there = names.over if streams else (names.closed, names.waits)[count // 2 % 2]
                    case.path_parameters["thread"] = quote(there, safe="")
                # JSON Schema cannot define cron expressions, time zones, conversations, or ids of printable characters.
                converses = isinstance(case.body, dict) and "conversation" in case.body
                loose = case.method == "PUT" or case.path.endswith(FEEDS) or converses
                semantic = [positive_data_acceptance] if loose else []
                case.call_and_validate(headers=bearer("of-ops"), timeout=120, excluded_checks=semantic)

            # A route without input cannot get invalid input.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                send()
    return count
