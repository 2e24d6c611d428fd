"""Open runs on a real server adopt another policy, while workers with the old and the new one share a task queue."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from holdfast import Agent, Catalog, Hours, Policy, allow, deny, later, tool
from holdfast.client.adopting import adopt_where_waiting
from holdfast.client.threads import Threads
from holdfast.core.log.events import PolicyChanged, PolicyChangeFailed, ToolCallFinished
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import StartRig, answer_of, check_thread, eventually, status_of

FREE = Policy(rules=(allow(),))


def closed_now() -> Policy:
    """Return a policy whose hours begin in about half a day."""
    hour = (datetime.now(UTC).hour + 12) % 24
    return Policy(rules=(later("deploy", until=Hours(begin=f"{hour:02}:00", end=f"{hour:02}:30")), allow()))


def ops(policy: Policy) -> Catalog:
    """Return the catalog of a worker with this policy."""

    @tool(effect="unsafe")
    def deploy() -> str:
        """Deploy."""
        return "deployed"

    agent = Agent(name="ops", instructions="Deploy.", policy=policy, tools=[deploy], dormancy=True)
    return Catalog(agents=[agent], tools=[deploy])


def script(conversation: Conversation) -> Reply:
    """Deploy; if that is denied, wait for another policy, and deploy again."""
    last = str(conversation.messages[-1]["content"])
    if "deployed" in last:
        return say("done")
    return call("wait_for_event", name="policy_changed") if "Denied" in last else call("deploy")


async def adopt(run: Any, policy: Policy) -> dict[str, str]:
    """Have the run adopt the policy; return the answer."""
    return await answer_of(run.execute_update("adopt_policy", {"policy": policy.hash, "by": "alice"}))


@pytest.mark.extended
async def test_the_worker_that_has_the_policy_answers_for_both(rig: StartRig, client: Client) -> None:
    """Two versions share the queue: runs adopt the policy that was asked for, all that wait, and none flaps back."""
    async with rig(ops(closed_now()), script) as before:
        hours = await before.start()
        await status_of(hours, "dormant")
        assert (await adopt(hours, FREE))["outcome"] == "accepted"
        await eventually(lambda: _types(client, hours), lambda types: "policy_change_failed" in types)
        async with rig(ops(FREE), script, task_queue=before.task_queue) as after:
            threads = Threads(client, task_queue=after.task_queue)
            found = await eventually(
                lambda: adopt_where_waiting(threads, FREE.hash, by="alice"), lambda done: hours.id in done.answers
            )
            assert found.answers[hours.id].outcome == "accepted"
            assert (await hours.result())["result"] == "done"
            events = await check_thread(client, hours)
    changes = [event for event in events if isinstance(event, PolicyChanged | PolicyChangeFailed)]
    assert isinstance(changes[0], PolicyChangeFailed)
    assert "its policy for the agent ops is" in changes[0].problem
    assert [event.policy for event in changes[1:] if isinstance(event, PolicyChanged)] == [FREE]


@pytest.mark.extended
async def test_an_agent_waits_for_another_policy_after_a_denial(rig: StartRig, client: Client) -> None:
    """The denied call stays denied; the agent wakes, and the call that it makes anew runs."""
    frozen, queue = Policy(rules=(deny("deploy"), allow())), f"adopting-{uuid4().hex[:8]}"
    async with rig(ops(frozen), script, task_queue=queue) as before:
        run = await before.start()
        await status_of(run, "dormant")
        forged = await answer_of(run.execute_update("wake", {"event": "policy_changed", "by": "ci"}))
        assert forged["outcome"] == "wrong_event"
    async with rig(ops(FREE), script, task_queue=queue):
        assert (await adopt(run, FREE))["outcome"] == "accepted"
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
    ends = [event for event in events if isinstance(event, ToolCallFinished)]
    assert [(event.number, event.status) for event in ends] == [(1, "denied"), (2, "ok"), (3, "ok")]


async def _types(client: Client, run: Any) -> list[str]:
    return [event.type for event in await check_thread(client, run)]
