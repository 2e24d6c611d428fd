"""Skipped time: what an attacker gains on a stack that allows it, and that other stacks reject it."""

from typing import Any

import pytest
from temporalio.client import Client

from holdfast import Policy, Terms, ask
from holdfast.client.reading.runs import Runs
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.client.time_skipping import check_stack
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import AgentEvent, ApprovalExpired, DecisionReceived
from holdfast.devstack.temporal_server import DYNAMIC_CONFIG, SKIPPING
from holdfast.errors import Refused
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.support.people import PEOPLE, answer, clerk, decision, delegation, message, payments, pending
from tests.support.rig import StartRig, check_thread, skip, status_of

DAY = 86_400.0


def policy(**terms: Any) -> Policy:
    """Return a policy under which finance decides on payments, signed."""
    return Policy(rules=(ask("pay", terms=Terms(by=("finance",), **terms)),), approvers=PEOPLE, signatures="required")


def expired(events: list[AgentEvent]) -> int:
    """Check that no person has decided anything, and return how many requests have expired."""
    assert not [event for event in events if isinstance(event, DecisionReceived)]
    return sum(isinstance(event, ApprovalExpired) for event in events)


def test_a_stack_allows_skipping_only_if_it_was_started_with_it(stack: Stack, client: Client) -> None:
    """The option is off by default; the command rejects any other server, and a stack that is not running."""
    assert not SKIPPING.keys() & DYNAMIC_CONFIG.keys()
    runs = Runs(client, answer_within=5)
    check_stack(runs, stack)
    for other in (
        None,
        stack.stopped(),
        stack.model_copy(update={"skip_time": False}),
        stack.model_copy(update={"temporal_address": "127.0.0.1:7233"}),
    ):
        with pytest.raises(Refused, match="is not a server for skipping time"):
            check_stack(runs, other)


async def test_an_expiry_is_not_a_persons_decision(rig: StartRig, client: Client) -> None:
    """A request that is denied without an answer pays nothing; the log says that it expired, and names no person."""
    async with rig(clerk(policy(expires_after=DAY)), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        await skip(client, run, days=2)
        await run.result()
        assert expired(await check_thread(client, run)) == 1
        assert payments(r) == []


async def test_a_policys_approval_by_timeout_pays_at_once(rig: StartRig, client: Client) -> None:
    """In the worst case, such a request needs no approver any more, and the log says that it expired."""
    terms = policy(expires_after=30 * DAY, on_expiry="approve")
    async with rig(clerk(terms), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        assert payments(r) == []
        await skip(client, run, days=31)
        await run.result()
        assert expired(await check_thread(client, run)) == 1
        assert payments(r) == [5]


async def test_authority_expires_after_a_skip(rig: StartRig, client: Client) -> None:
    """After a skip, delegated authority has expired, and a signature valid for an hour is rejected."""
    async with rig(clerk(policy()), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        (request,) = await pending(run)
        until = delegation(run.id, "alice", "carol")
        assert await answer(run, "delegate_authority", until) == "accepted"
        await skip(client, run, hours=2)
        assert await answer(run, "decide", decision(run.id, request, by="carol")) == "not_entitled"
        assert await answer(run, "delegate_authority", until) == "too_late"
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "accepted"
        await run.result()
        assert payments(r) == [5]


async def test_a_signed_message_is_not_repeated_after_the_clock_went_back(rig: StartRig, client: Client) -> None:
    """A continued thread has today's time again; a message that it already received does not count twice."""

    def script(conversation: Conversation) -> Reply:
        return say(f"answer to {conversation.last_user_message}")

    async with rig(clerk(policy()), script) as r:
        run = await r.start(idle_limit=60 * DAY)
        await status_of(run, "waiting_message")
        once = message(run.id, "pay carol", by="alice")
        assert await answer(run, "say", once) == "accepted"
        await status_of(run, "waiting_message")
        await skip(client, run, days=90)
        await run.result()
        threads = Threads(client, task_queue=r.task_queue, record=r.threads)
        await threads.start("again", run.id, StartOptions(idle_limit=60 * DAY))
        again = client.get_workflow_handle(run.id)
        await status_of(again, "waiting_message")
        assert await answer(again, "say", once) == "duplicate"
        await again.cancel()
