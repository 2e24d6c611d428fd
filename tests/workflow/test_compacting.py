"""Compaction on request, on a real server."""

import json
from pathlib import Path

import pytest
from temporalio.client import Client

from holdfast import Agent, Catalog, Limits, NotAccepted, Policy, allow
from holdfast.api.thread import Thread
from holdfast.client.threads import Threads
from holdfast.testing import Conversation, Reply, say
from tests.replay.scenarios import CATALOG, SCENARIOS, asked
from tests.support.people import KEYS, PEOPLE
from tests.support.rig import StartRig, check_thread, eventually


async def test_a_waiting_run_is_compacted_at_once_and_replays(rig: StartRig, client: Client) -> None:
    """The log names the requester; the signal that came too late is rejected; the history rebuilds the same events."""
    script, _, begin = SCENARIOS["compacted_on_request"]
    async with rig(CATALOG, script) as r:
        run = await r.start(**begin)
        await asked(run, r)
        events = await check_thread(client, run)
        compacting = [each.type for each in events if "comp" in each.type or each.type == "signal_rejected"]
        assert sorted(compacting) == ["compaction_requested", "context_compacted", "signal_rejected"]
        thread = Thread(run.id, threads=Threads(client, task_queue=r.task_queue), by="alice")
        assert (await thread.state()).warning == ""


@pytest.mark.extended
async def test_a_person_writes_the_summary_and_signs_it(rig: StartRig, client: Client, tmp_path: Path) -> None:
    """Where decisions are signed, only a signed summary replaces the conversation; the history has the same log."""
    private = tmp_path / "alice.key"
    private.write_text(KEYS["alice"])
    private.chmod(0o600)
    policy = Policy(rules=(allow(),), approvers=PEOPLE, signatures="required")
    agent = Agent(name="clerk", instructions="Chat.", policy=policy, limits=Limits(idle_limit=3_600))

    def script(conversation: Conversation) -> Reply:
        return say("two" if "was compacted" in json.dumps(conversation.messages) else "one")

    async with rig(Catalog(agents=[agent]), script) as r:
        run = await r.start()
        await eventually(lambda: run.query("state"), lambda state: state["status"] == "waiting_message")
        thread = Thread(run.id, threads=Threads(client, task_queue=r.task_queue), by="alice")
        with pytest.raises(NotAccepted, match="sign the summary"):
            await thread.compact(summary="We said one.")
        assert (await thread.compact(summary="We said one.", key=private)).outcome == "accepted"
        await thread.say("and on", key=private)
        await eventually(lambda: run.query("state"), lambda state: state["result"] == "two")
        messages = r.llm.requests[-1].json()["messages"]
        assert messages[1]["content"].endswith("## Summary, written by alice\n\nWe said one.")
        assert len(r.llm.requests) == 2
        await check_thread(client, run)
