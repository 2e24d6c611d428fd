"""Runs that no worker answers for never break a list of the others."""

from typing import Any
from uuid import uuid4

import pytest
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from holdfast.client import pending
from holdfast.client.listing import list_threads
from holdfast.client.pending import list_pending
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.testing import call, say, steps
from tests.security.test_hostile_messages import POLICY
from tests.support.attacker import reach
from tests.support.people import clerk
from tests.support.rig import StartRig, eventually, status_of

CLAIMED = TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_int("HoldfastPending"), 7)])


@pytest.mark.extended
async def test_unresponsive_fakes_are_named_beside_the_open_requests(
    rig: StartRig, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fake runs that claim open requests, more than are asked at once, are listed as unanswered; the real request is
    listed in time.
    """
    monkeypatch.setattr(pending, "PENDING_AT_ONCE", 5)
    stranger = await reach(stack)
    prefix = f"listed-{uuid4().hex[:8]}-"
    async with rig(clerk(POLICY), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start(thread=f"{prefix}real")
        await status_of(run, "waiting_approval")
        fakes = [f"{prefix}{number}" for number in range(12)]
        for fake in fakes:
            await stranger.start_workflow(
                WORKFLOW, "anything", id=fake, task_queue="nobody's", search_attributes=CLAIMED
            )
        threads = Threads(r.client, task_queue=r.task_queue, answer_within=60.0)
        listed: list[Any] = []

        async def names() -> set[str]:
            requests, unanswered = await list_pending(threads, prefixes=[prefix], within=5)
            listed[:] = [request["thread"] for request in requests]
            return {*listed, *(each.thread for each in unanswered)}

        await eventually(names, lambda found: len(found) == 13)
        assert listed == [run.id]
        rows = await list_threads(threads, limit=200)
        assert {*fakes, run.id} <= {row["thread"] for row in rows}
        for fake in fakes:
            await stranger.get_workflow_handle(fake).terminate()
