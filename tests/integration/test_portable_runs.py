"""Files of forks and of sub-agents: what judged them is in the file, and what the file leaves open is said."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast import Agent, Cannot, Catalog, Policy, allow, ask, tool
from holdfast.authority.policy import Approver
from holdfast.base import constraint_names
from holdfast.log.event_log import EventLog
from holdfast.log.events import AgentEvent, RunStarted, VerdictGiven
from holdfast.log.stored_lines import read_lines, run_events
from holdfast.portable import derived
from holdfast.portable.members import CONTEXT, INTENT, KEYS, LOG, POLICIES
from holdfast.runtime.client.forks import fork
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.config.stack_file import Stack
from holdfast.runtime.portable.export import export_thread
from holdfast.runtime.portable.verify import FileVerification, verify_file
from holdfast.runtime.reading.record import Evidence
from holdfast.runtime.stores.artifacts import PostgresArtifacts
from holdfast.runtime.stores.ledger import effects_of
from holdfast.runtime.stores.pool import open_pool
from holdfast.runtime.stores.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say
from tests.portable_files import ALICE, SIGNER, Parts, log_of, parts_of, rebuilt
from tests.rig import Rig, StartRig, eventually, status_of

ABOVE = Policy(rules=(ask("refund", reason="above"), allow()), approvers=(Approver(name="dana"),))
OWN = Policy(rules=(allow(),))


@tool(effect="unsafe")
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool(effect="read")
def ship(order: int) -> Cannot:
    """Fail to ship."""
    return Cannot("the warehouse is closed", scope="everywhere")


def catalog() -> Catalog:
    """Return a desk that asks before refunds, and hands that down to a clerk who would not."""
    return Catalog(
        agents=[
            Agent(name="desk", instructions="Delegate.", tools=("ship",), subagents=("clerk",), policy=ABOVE),
            Agent(name="clerk", instructions="Refund.", tools=("refund",), policy=OWN),
        ],
        tools=[refund, ship],
    )


def script(conversation: Conversation) -> Reply:
    """As the desk, learn that nothing can be shipped, and have a clerk refund."""
    if "run_agent" not in conversation.tools:
        return say("refunded") if conversation.replies else call("refund", order=7)
    replies = [call("ship", order=7), call("run_agent", agent="clerk", task="Refund order 7.")]
    return replies[conversation.replies] if conversation.replies < len(replies) else say("done")


def refunding(conversation: Conversation) -> Reply:
    """Refund once; answer every message."""
    return say("done") if conversation.replies else call("refund", order=1)


async def exported(rig: Rig, stack: Stack, thread: str, path: Path) -> Parts:
    """Export a thread to a new file; return its members."""
    async with open_pool(stack.database_url, size=2) as pool:
        record = PostgresThreads(pool)
        evidence = Evidence(partial(effects_of, pool), record.asides, PostgresArtifacts(pool))
        await export_thread(Threads(rig.client, record=record), thread, path, evidence=evidence, private=ALICE)
    return parts_of(path.read_bytes())


async def forged(parts: Parts, events: Sequence[AgentEvent], path: Path) -> FileVerification:
    """Verify the file with another log, in a correct chain."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    changed = [(name, log_of(log.events) if name == LOG else content) for name, content in parts]
    path.write_bytes(rebuilt(changed, ALICE))
    return await verify_file(path, signer=SIGNER)


def open_questions(found: FileVerification) -> set[str]:
    """Return what a file that passes does not prove."""
    assert found.ok, (found.where, found.position, found.reason)
    return {each.what for each in found.unchecked} - {"anchors"}  # none are given


async def test_a_sub_agents_file_has_the_policies_that_judged_it(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """Those above it are in the file, with their people; without them, the verdict is named that they led to."""
    async with rig(catalog(), script) as r:
        run = await r.start()
        state = await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        child = r.client.get_workflow_handle(state["subagents"][0]["thread"])
        await status_of(child, "waiting_approval")
        await child.signal("approve", {"request": "1", "by": "dana"})
        await run.result()
        parent_parts = await exported(r, stack, run.id, parent := tmp_path / "parent.holdfast")
        parts = await exported(r, stack, child.id, path := tmp_path / "child.holdfast")
    assert open_questions(await verify_file(parent, signer=SIGNER)) == {"history", "keys", "subagents"}
    assert open_questions(await verify_file(path, signer=SIGNER)) == {"history", "keys", "parent"}
    assert "policy" in open_questions(await verify_file(path, signer=SIGNER, trusted=OWN)), "another one judged it, too"

    members = dict(parts)
    context, intent, keys = (json.loads(members[name]) for name in (CONTEXT, INTENT, KEYS))
    assert set(context["policies"]) == {ABOVE.hash, OWN.hash}
    assert {json.loads(line)["hash"] for line in members[POLICIES].splitlines()} == {ABOVE.hash, OWN.hash}
    (started,) = context["runs"]
    assert (started["policies"], started["lineage"]["path"]) == ([ABOVE.hash], [run.id])
    assert [each["name"] for each in keys["approvers"]] == ["dana"]
    assert [each["handed"]["reason"] for each in intent["constraints"]] == ["the warehouse is closed"]
    (begun,) = json.loads(dict(parent_parts)[CONTEXT])["subagents"]
    assert (begun["thread"], begun["agent"]) == (child.id, "clerk")

    events = run_events(child.id, read_lines(child.id, 0, members[LOG].splitlines()))
    verdict = next(event.position for event in events if isinstance(event, VerdictGiven))
    bare = [event.model_copy(update={"policies": ()}) if isinstance(event, RunStarted) else event for event in events]
    found = await forged(parts, bare, tmp_path / "forged.holdfast")
    assert (found.ok, found.where, found.position) == (False, LOG, verdict)


def test_constraints_that_were_handed_over_have_their_numbers_of_the_log() -> None:
    """The format counts as runs do, so that `constraint_lifted` finds them."""
    assert (derived.FIRST_HANDED, derived.HANDED) == (constraint_names.FIRST_HANDED, constraint_names.HANDED)


async def test_a_fork_is_exported_with_what_it_began_with(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """The events of its original are judged as that thread's; so it is for a fork of a fork."""
    own = Catalog(agents=[Agent(name="clerk", instructions="Refund.", policy=OWN)], tools=[refund])
    async with rig(own, refunding) as r:
        first = await r.start()
        await first.result()
        threads, names = Threads(r.client, task_queue=r.task_queue, record=r.threads), [first.id]
        for _ in range(2):
            done = await fork(threads, names[-1], by="erin", say=f"again {uuid4().hex[:4]}")
            await r.client.get_workflow_handle(done.thread).result()
            names.append(done.thread)
        files = [await exported(r, stack, name, tmp_path / f"{index}.holdfast") for index, name in enumerate(names)]
    questions: list[set[str]] = []
    for index, parts in enumerate(files):
        found = await verify_file(tmp_path / f"{index}.holdfast", signer=SIGNER)
        questions.append(open_questions(found))
        context: dict[str, Any] = json.loads(dict(parts)[CONTEXT])
        assert (context["thread"], [each["thread"] for each in context.get("forks", [])]) == (
            names[index],
            names[1 : index + 1],
        )
    assert questions == [{"history", "keys"}, *[{"history", "keys", "original"}] * 2]

    events = run_events(names[1], read_lines(names[1], 0, dict(files[1])[LOG].splitlines()))
    at = next(event.position for event in events if event.type == "run_forked")
    for change in (
        [event for event in events if event.type != "run_forked"],  # the original's events as the fork's own
        [event for event in events if event.type != "verdict_given"],
        [event for event in events if event.position != at - 1],
    ):
        assert not (await forged(files[1], change, tmp_path / "forged.holdfast")).ok
