"""Runs under the id of a sub-agent whose log was imported, started without the client, which would reject them."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import Agent, Catalog, Policy, allow
from holdfast.client.start_options import issued
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.state.features import MOVES
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.places import Site, site
from tests.support.rig import eventually

HELPER = Agent(name="helper", instructions="Help.", description="helps", tools=(), policy=Policy(rules=(allow(),)))
LEAD = Agent(name="lead", instructions="Lead.", tools=(), policy=Policy(rules=(allow(),)), subagents=("helper",))


def script(conversation: Conversation) -> Reply:
    """Run a sub-agent, then nothing: the run waits for a message."""
    if "help" in str(conversation.messages[1]["content"]):
        return say("helped")
    return together(call("run_agent", agent="helper", task="help")) if not conversation.replies else say("done")


async def refused(place: Site, start: Any, words: str) -> None:
    """Start a run under the sub-agent's id, and check that it ends without having done or recorded anything."""
    before, asked = await place.lines("tree.1"), len(place.rig.llm.requests)
    run = await place.rig.client.start_workflow(WORKFLOW, start, id="tree.1", task_queue=place.rig.task_queue)
    with pytest.raises(WorkflowFailureError) as failed:
        await run.result()
    assert words in str(failed.value.cause)
    assert (await place.lines("tree.1"), len(place.rig.llm.requests)) == (before, asked)


async def test_an_imported_sub_agent_is_not_continued(stack: Stack, tmp_path: Path) -> None:
    """No caller of Temporal, and no client that skips the check, continues it, even before its import has a run.

    On the source cluster it can be continued, even after the thread above it was moved.
    """
    catalog = Catalog(agents=[LEAD, HELPER], tools=[])
    resumed = RunInput(task="go on", by="mallory", resume=True, features=MOVES)
    async with site(stack, catalog, script, tmp_path / "a") as a, site(stack, catalog, script, tmp_path / "b") as b:
        await a.rig.start(thread="tree", workspace=None, idle_limit=600)
        await a.status("tree", "waiting_message")
        path = await a.move("tree")

        for thread in ("tree.1", "tree"):  # as a killed import leaves it
            await b.place.threads.append(thread, 0, await a.lines(thread))
        await refused(b, issued(resumed), "nothing here shows that sub-agent tree.1 ran here")

        await b.bring(path)
        await b.status("tree", "waiting_message")
        await refused(b, issued(resumed), "nothing here shows that sub-agent tree.1 ran here")
        await refused(b, {"task": "go on"}, "thread tree.1 exists already")
        await refused(b, {"task": "go on", "resume": True}, "a plain start may set")

        continued = await a.threads.start("help again", thread="tree.1")
        await eventually(lambda: a.run(continued.thread).query("state"), lambda state: state["status"] == "completed")
