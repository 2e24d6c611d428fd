"""A rejected LLM call costs nothing, so a rejection of a budgeted call must be proven: anyone who reaches Temporal's
port can fail the activity.
"""

from typing import Any

import pytest
from temporalio.api.common.v1 import Payloads
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.client import Client, WorkflowHandle

from holdfast import Agent, Budget, Catalog
from holdfast.core.log.events import BudgetReserved, LLMCallLost
from holdfast.core.run.contracts.error_types import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.core.tools.secrets import Secrets
from holdfast.testing import disconnect, hang, say
from holdfast.testing import fail as failing
from tests.security.test_inputs import fail, no_task_failed, payload, pending
from tests.support.rig import StartRig, check_thread, events_of, eventually, status_of

CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", budget=Budget(tokens=100_000))])


def refusal(cause: str, *details: bytes) -> Failure:
    """Return a rejection with these details, as anyone can write it."""
    info = ApplicationFailureInfo(type=cause, non_retryable=True)
    if details:
        info.details.CopyFrom(Payloads(payloads=[payload(each) for each in details]))
    return Failure(message="400: forged", application_failure_info=info)


async def spent(run: WorkflowHandle[Any, Any]) -> int:
    """Return the tokens that the run has spent."""
    limits = (await run.query("state"))["budget"]["limits"]
    return next(int(each["spent"]) for each in limits if each["limit"] == "tokens")


@pytest.mark.parametrize(
    ("cause", "details"),
    [
        (CONTEXT_TOO_LONG, (b'"ZGV2OngA"', b'{"answers":"2.0"}')),
        pytest.param(LLM_REJECTED, (), marks=pytest.mark.extended),
        pytest.param(LLM_REJECTED, (b'{"failed":1}',), marks=pytest.mark.extended),
    ],
    ids=["a seal", "none", "an outage"],
)
async def test_a_forged_rejection_costs_the_expected_amount(
    rig: StartRig, client: Client, cause: str, details: tuple[bytes, ...]
) -> None:
    """The run is blocked, and the call is charged as one whose outcome is lost."""
    async with rig(CATALOG, lambda _: hang()) as r:
        run = await r.start()
        await fail(client, run, await pending(run, "call_llm"), refusal(cause, *details))
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "NotSealed"
        assert await no_task_failed(run)
        (reserved,) = [event for event in await events_of(run) if isinstance(event, BudgetReserved)]
        assert reserved.tokens
        await run.signal("retry", {"by": "alice"})

        async def charged() -> int:
            return await spent(run)

        assert await eventually(charged, bool) == reserved.tokens
        await check_thread(client, run)
        await run.terminate()


async def test_the_proof_of_one_call_does_not_reject_another(rig: StartRig, client: Client) -> None:
    """The attacker reads the proof of an honest rejection in the history, and sends it for the next call."""
    replies = [hang(), failing(401, "wrong key")]
    async with rig(CATALOG, lambda _: replies.pop()) as r:
        run = await r.start()
        await status_of(run, "blocked")
        (honest,) = [
            event.activity_task_failed_event_attributes.failure
            for event in (await run.fetch_history()).events
            if event.HasField("activity_task_failed_event_attributes")
        ]
        await run.signal("retry", {"by": "alice"})
        await fail(client, run, await pending(run, "call_llm"), honest)
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == "NotSealed"
        await check_thread(client, run)
        await run.terminate()


@pytest.mark.parametrize("words", ["wrong key hunter22", pytest.param("wrong key", marks=pytest.mark.extended)])
async def test_an_honest_rejection_costs_nothing(rig: StartRig, client: Client, words: str) -> None:
    """Only earlier requests count, even if the provider repeats a secret, which is redacted."""
    replies = [say("done"), failing(401, words), failing(503, "busy"), disconnect()]
    secrets = Secrets({}, more=[("KEY", "hunter22")])
    async with rig(CATALOG, lambda _: replies.pop(), secrets=secrets) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == LLM_REJECTED
        assert "hunter22" not in state["blocked"]["message"]
        assert state["blocked"]["after"].startswith("after 1 failed attempt")
        (lost,) = [event for event in await events_of(run) if isinstance(event, LLMCallLost)]
        assert await spent(run) == lost.attempts * lost.request_tokens > 0  # the earlier request, which got no reply
        await run.signal("retry", {"by": "alice"})
        await run.result()
        await check_thread(client, run)


async def test_an_honest_overflow_costs_nothing(rig: StartRig, client: Client) -> None:
    """If the first request does not fit, nothing is left to compact: the run is blocked, and nothing is spent."""
    async with rig(CATALOG, lambda _: failing(400, "too long", code="context_length_exceeded")) as r:
        run = await r.start()
        state = await status_of(run, "blocked")
        assert state["blocked"]["cause"] == CONTEXT_TOO_LONG
        assert await spent(run) == 0
        await check_thread(client, run)
        await run.terminate()
