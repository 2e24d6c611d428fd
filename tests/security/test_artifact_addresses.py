"""An artifact's address grants no access: an agent reads only what its own thread or its tree refers to."""

import re
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.client import forks
from holdfast.client.threads import Threads
from holdfast.core.log.events import ToolCallFinished
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import PATIENCE, Rig, StartRig, events_of

FREE = Policy(rules=(allow(),))
REFUSED = "no event of this thread refers to the artifact"


@tool(effect="read")
def dump(secret: str) -> str:
    """Return more output than the log stores."""
    return f"{secret} " * 3_000


def script(conversation: Conversation) -> Reply:
    """Do what the last message says, and reply with the result."""
    if conversation.results:
        return say(conversation.results[0])
    order = re.search(r"(dump|read|have) (.+)", conversation.last_user_message)
    assert order, conversation.last_user_message
    match order[1]:
        case "dump":
            return call("dump", secret=order[2])
        case "read":
            return call("read_artifact", address=order[2])
        case _:
            return call("run_agent", agent="helper", task=order[2])


def catalog() -> Catalog:
    """Return an agent that stores secrets in artifacts, and one that may run it as a sub-agent."""
    return Catalog(
        agents=[
            Agent(name="lead", instructions="Work.", policy=FREE, subagents=("helper",), tools=[dump]),
            Agent(name="helper", instructions="Help.", policy=FREE, subagents=("helper",), tools=[dump]),
        ],
    )


async def reply_of(run: WorkflowHandle[Any, Any]) -> str:
    """Return the last reply of a run."""
    return str((await run.result())["result"])


async def store_secret(rig: Rig, secret: str, *, inside: str = "") -> tuple[WorkflowHandle[Any, Any], str]:
    """Make a thread, or its sub-agents, store a secret; return the thread and the secret's address."""
    run = await rig.start(f"{inside}dump {secret}")
    await run.result()
    owner = rig.client.get_workflow_handle(f"{run.id}{'.1' * inside.count('have')}")
    (dumped,) = [event for event in await events_of(owner) if isinstance(event, ToolCallFinished)]
    assert dumped.artifact
    return run, dumped.artifact


async def test_another_threads_address_reads_nothing(rig: StartRig) -> None:
    """Another thread's address, an unused one and an invalid one all fail the call, without details."""
    async with rig(catalog(), script) as r:
        secret = uuid4().hex
        _, address = await store_secret(r, secret)
        for other in (address, f"sha256:{'0' * 64}"):
            answer = await reply_of(await r.start(f"read {other}"))
            assert f"{REFUSED} {other}" in answer
            assert secret not in answer
        assert "is not an artifact address" in await reply_of(await r.start("read ../../etc/passwd"))


@pytest.mark.extended
async def test_a_threads_own_artifacts_are_readable_in_later_runs_and_forks(rig: StartRig) -> None:
    """Artifacts from before the latest run are readable, also in a fork before the record has any event of it."""
    async with rig(catalog(), script) as r:
        secret = uuid4().hex
        run, address = await store_secret(r, secret)
        threads = Threads(r.client, task_queue=r.task_queue, answer_within=PATIENCE, record=r.threads)
        forked = await forks.fork(threads, run.id, say=f"read {address}")
        assert secret in await reply_of(r.client.get_workflow_handle(forked.thread))
        started = await threads.start(f"read {address}", thread=run.id)
        assert secret in await reply_of(r.client.get_workflow_handle(started.thread))


@pytest.mark.extended
async def test_a_tree_shares_artifacts_along_its_edges(rig: StartRig) -> None:
    """A run reads artifacts of the runs below it; a sub-agent reads those of the run above that its task names."""
    async with rig(catalog(), script) as r:
        secret = uuid4().hex
        threads = Threads(r.client, task_queue=r.task_queue, answer_within=PATIENCE, record=r.threads)
        run, address = await store_secret(r, secret, inside="have have ")
        started = await threads.start(f"read {address}", thread=run.id)
        assert secret in await reply_of(r.client.get_workflow_handle(started.thread))

        own, address = await store_secret(r, secret := uuid4().hex)
        started = await threads.start(f"have read {address}", thread=own.id)
        assert secret in await reply_of(r.client.get_workflow_handle(started.thread))
        assert REFUSED in await reply_of(await r.start(f"have read {address}"))
