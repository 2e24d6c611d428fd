"""Whoever watches a run sees what its sub-agents are writing."""

import pytest

from holdfast import Agent, Catalog, Policy, allow
from holdfast.cli.screens.subagent_drafts import following_subagents
from holdfast.client.threads import Threads
from holdfast.client.trees import read_tree
from holdfast.testing import Conversation, Reply, call, say
from tests.support.rig import StartRig, eventually
from tests.support.streamed import Seen, streamed

WORDS = "The child writes these words."
ALLOWED = Policy(rules=(allow(),))


@pytest.mark.extended
async def test_the_reply_of_a_sub_agent_is_seen_while_it_is_written(rig: StartRig) -> None:
    """All of a child's words are there before its reply is recorded, and none afterwards."""
    seen = Seen()
    child = seen.reply(say(WORDS))

    def script(conversation: Conversation) -> Reply:
        if conversation.request["messages"][0]["content"].startswith("Child"):
            return child
        return say("done") if conversation.replies else call("run_agent", agent="child", task="write")

    catalog = Catalog(
        agents=[
            Agent(name="boss", instructions="Delegate.", tools=(), subagents=("child",), policy=ALLOWED),
            Agent(name="child", instructions="Child: write.", tools=(), policy=ALLOWED, description="writes"),
        ]
    )
    async with streamed(rig, catalog, script) as (worker, hub):
        threads = Threads(worker.client, task_queue=worker.task_queue)
        async with following_subagents(threads, hub) as drafts, following_subagents(threads, None) as nothing:
            run = await worker.start()
            name = f"{run.id}.1"

            async def subagents() -> list[str]:
                return [node.thread for _, node in (await read_tree(threads, run.id)).walk()]

            async def text() -> str:
                return drafts.drafts[name].text

            await eventually(subagents, lambda found: name in found)
            drafts.follow([name])
            drafts.follow([name])
            nothing.follow([name])
            await eventually(text, lambda found: found == WORDS)
            seen.finish()
            await eventually(text, lambda found: not found)
            assert not nothing.drafts
            await run.result()
            drafts.follow([])
            assert not drafts.drafts
