"""Attacks on unattended runs and on waits for trees, by somebody who reaches Temporal and has no fleet key."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.converter import WorkflowSerializationContext

from holdfast import Agent, Catalog, Policy, RunFailed, ask, tool
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.mac.starts import refusal
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.state.features import UNATTENDED
from holdfast.core.temporal.converter import sealing
from holdfast.testing import Conversation, Reply, agent, call, hang, say
from holdfast.testing.scripted_run import ScriptedRun
from tests.support.rig import PATIENCE, eventually

pytestmark = pytest.mark.usefixtures("session_server")


@tool(effect="unsafe")
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


CATALOG = Catalog(
    agents=[
        Agent(name="boss", instructions="Delegate.", tools=(), subagents=("clerk",)),
        Agent(name="clerk", instructions="Pay.", tools=("pay",), policy=Policy(rules=(ask("pay"),))),
    ],
    tools=[pay],
)


def script(conversation: Conversation) -> Reply:
    """As the boss, run a clerk, who never gets an answer; as a clerk of its own, pay."""
    if conversation.replies:
        return say("done")
    if "run_agent" in conversation.tools:
        return call("run_agent", agent="clerk", task="think")
    return call("pay", cents=1) if conversation.last_user_message == "pay" else hang()


@pytest.fixture
async def run() -> AsyncIterator[ScriptedRun]:
    """A worker, and threads that nobody has started yet."""
    async with agent(CATALOG, script) as run:
        yield run


def attacker(run: ScriptedRun) -> Client:
    """Return the server's client, whose plain calls anybody could make."""
    return run._temporal


async def test_a_run_that_claims_to_be_blocked_below_a_tree_ends_no_wait(run: ScriptedRun) -> None:
    """Anybody can start a run under an id below the tree, with the search attributes of a blocked sub-agent. The root
    does not name it, so its requests are not shown, and a wait for the tree lasts.
    """
    thread = (await run.client.start("go", agent="boss", workspace=run.workspace)).id
    run.started.append(thread)
    await eventually(run.state, lambda state: bool(state.subagents))
    fake = f"{thread}.7"
    claims: list[SearchAttributePair[Any]] = [
        SearchAttributePair(SearchAttributeKey.for_keyword("HoldfastStatus"), "blocked"),
        SearchAttributePair(SearchAttributeKey.for_int("HoldfastPending"), 3),
        SearchAttributePair(SearchAttributeKey.for_keyword("HoldfastRoot"), thread),
    ]
    begun: WorkflowHandle[Any, Any] = await attacker(run).start_workflow(
        WORKFLOW, args=[], id=fake, task_queue="nobody", search_attributes=TypedSearchAttributes(claims)
    )
    try:
        waiting = asyncio.ensure_future(run.result())
        for _ in range(3):  # several looks at the tree
            assert await run.thread.pending() == ()
            assert fake not in [each.thread for each in (await run.thread.tree()).walk()]
            await asyncio.sleep(0.3)
        assert not waiting.done()
        await run.thread.cancel()
        with pytest.raises(Exception, match="cancelled"):
            await waiting
    finally:
        await begun.terminate()


async def test_no_signal_lets_an_unattended_run_ask_or_wait(run: ScriptedRun) -> None:
    """Approvals sent ahead, `retry`, and messages change nothing: the call has ended as denied before any of them."""
    thread = f"alone-{uuid4().hex[:8]}"
    started = await run.client.start("pay", agent="clerk", thread=thread, unattended=True)
    run.started.append(started.id)
    handle = attacker(run).get_workflow_handle(thread)
    for name, payload in (
        ("approve", {"request": "1", "by": "alice"}),
        ("retry", {"by": "alice"}),
        ("say", {"message": "go on", "by": "alice"}),
    ):
        try:
            await handle.signal(name, payload)
        except Exception as error:  # it may have failed before the signal
            assert "already completed" in str(error)  # noqa: PT017
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(RunFailed) as failed:
            await started.result()
    assert failed.value.cause == "ApprovalRequired"
    assert await run.effects() == []


@pytest.mark.parametrize("claim", ["wait", "fail"])
async def test_a_plain_start_may_only_make_a_run_fail_earlier(run: ScriptedRun, claim: Any) -> None:
    """Without a fleet key, a start may set `when_blocked`; no value of it lets `pay` run."""
    thread = f"plain-{uuid4().hex[:8]}"
    run.started.append(thread)
    begin = {"task": "pay", "agent": "clerk", "when_blocked": claim}
    queue = run._threads.task_queue
    stock = await Client.connect(attacker(run).service_client.config.target_host, namespace=attacker(run).namespace)
    await stock.start_workflow(WORKFLOW, begin, id=thread, task_queue=queue)
    state = await eventually(run.state, lambda state: state.status in ("waiting_approval", "failed"))
    assert state.status == {"wait": "waiting_approval", "fail": "failed"}[claim]
    assert await run.effects() == []


@pytest.mark.parametrize("altered", [b'"wait"', b"null"])
def test_a_sealed_start_cannot_be_made_attended_in_transit(altered: bytes) -> None:
    """What a start says about it is part of what is sealed: the altered input is nobody's, and starts nothing."""
    keys = FleetKeys({"test": bytes(32)})
    converter = sealing(keys)().with_context(WorkflowSerializationContext(namespace="default", workflow_id="t"))
    begin = RunInput(task="pay", when_blocked="fail", features=UNATTENDED, start="s", issued_at=datetime.now(UTC))
    (payload,) = converter.to_payloads([begin])
    (read,) = converter.from_payloads([payload], [RunInput])
    assert (read.sealed, read.when_blocked) == (True, "fail")
    payload.data = payload.data.replace(b'"fail"', altered)
    (read,) = converter.from_payloads([payload], [RunInput])
    assert not read.sealed
    assert "sealed" in refusal(read, first_run_id="r", started_at=datetime.now(UTC))
