"""Files of forks and sub-agents contain the policies that judged them, and report what they leave unproven."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Agent, Cannot, Catalog, Limits, Policy, allow, ask, tool
from holdfast.client.forks import fork
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.composition.stores import Stores
from holdfast.config.stack_file import Stack
from holdfast.core.authority.policy import Approver
from holdfast.core.base import constraint_names
from holdfast.core.log.event_log import EventLog
from holdfast.core.log.events import AgentEvent, RunStarted, VerdictGiven
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.portable.export import export_thread
from holdfast.portable.format import derived
from holdfast.portable.format.manifest import Exported
from holdfast.portable.format.members import CONTEXT, INTENT, KEYS, LOG, POLICIES, child_member, is_log, path_of
from holdfast.portable.verify import FileVerification, verify_file
from holdfast.retention.forget import forget_thread
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say, together
from tests.support.portable_files import ALICE, SIGNER, Parts, log_of, parts_of, rebuilt
from tests.support.rig import Rig, StartRig, eventually, status_of

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
    """Return a desk that asks before refunds, and passes that rule down to a clerk who would not ask."""
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


async def exported(rig: Rig, stack: Stack, thread: str, path: Path, **options: Any) -> Parts:
    """Export a thread to a new file; return its members."""
    await export(rig, stack, thread, path, **options)
    return parts_of(path.read_bytes())


async def export(rig: Rig, stack: Stack, thread: str, path: Path, **options: Any) -> Exported:
    """Export a thread to a new file; return the export."""
    async with open_pool(stack.database_url, size=2) as pool:
        record = PostgresThreads(pool)
        evidence = Evidence(partial(effects_of, pool), record.asides, PostgresArtifacts(pool))
        threads = Threads(rig.client, record=record)
        return await export_thread(threads, thread, path, evidence=evidence, private=ALICE, **options)


async def forged(parts: Parts, events: Sequence[AgentEvent], path: Path) -> FileVerification:
    """Verify the file with another log in a correct chain."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    changed = [(name, log_of(log.events) if name == LOG else content) for name, content in parts]
    path.write_bytes(rebuilt(changed, ALICE))
    return await verify_file(path, signer=SIGNER)


def open_questions(report: FileVerification) -> set[str]:
    """Return what a file that passes leaves unproven."""
    assert report.ok, (report.where, report.position, report.reason)
    return {each.what for each in report.unchecked} - {"anchors"}  # none are given


@pytest.mark.extended
async def test_a_sub_agents_file_has_the_policies_that_judged_it(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """The file contains the policies above, with their approvers; without them, it names the verdict they led to."""
    async with rig(catalog(), script) as r:
        run = await r.start()
        state = await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        child = r.client.get_workflow_handle(state["subagents"][0]["thread"])
        await status_of(child, "waiting_approval")
        await child.signal("approve", {"request": "1", "by": "dana"})
        await run.result()
        parent_parts = await exported(r, stack, run.id, parent := tmp_path / "parent.holdfast")
        parts = await exported(r, stack, child.id, path := tmp_path / "child.holdfast")
    whole = await verify_file(parent, signer=SIGNER)
    assert (open_questions(whole), whole.subagents) == ({"history", "keys"}, 1)
    assert dict(parent_parts)[child_member(LOG, child.id.rpartition(".")[2])] == dict(parts)[LOG]
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
    report = await forged(parts, bare, tmp_path / "forged.holdfast")
    assert (report.ok, report.where, report.position) == (False, LOG, verdict)


@pytest.mark.extended
async def test_a_tree_is_exported_whole(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """A tree is exported with all levels of sub-agents, open or ended; their long answers are clipped.

    Artifacts are shared; each log has its ledger. A forgotten sub-agent is named, and the rest is exported.
    """
    async with rig(tree_catalog(), tree_script) as r:
        run = await r.start("2")
        await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        early = await export(r, stack, run.id, began := tmp_path / "began.holdfast", note=lambda _: None)
        await run.result()
        made = await export(r, stack, run.id, path := tmp_path / "whole.holdfast")
        alone = await export(r, stack, run.id, bare := tmp_path / "alone.holdfast", subagents=False)
        redacted = await export(r, stack, run.id, shared := tmp_path / "redacted.holdfast", redact=True)
        async with open_pool(stack.database_url, size=2) as pool:
            record, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
            threads = Threads(r.client, task_queue=r.task_queue, record=record)
            deepest = max(names_of(path), key=len)
            forgotten = f"{run.id}.{path_of(deepest)}"
            stores = Stores(record, artifacts, None)
            await forget_thread(threads, pool, stores, forgotten, by="ann", reason="asked to")
        less = await export(r, stack, run.id, lacking := tmp_path / "lacking.holdfast")
    assert open_questions(await verify_file(began, signer=SIGNER)) >= {"history", "keys", "end"}
    assert early.subagents <= made.subagents
    assert (made.subagents, made.left_out, made.unread) == (6, (), {})
    report = await verify_file(path, signer=SIGNER)
    assert (open_questions(report), report.subagents) == ({"history", "keys"}, 6)
    assert sum(name.startswith("memory/artifacts/") for name, _ in parts_of(path.read_bytes())) == 1
    assert (alone.subagents, alone.left_out) == (0, ("subagents",))
    assert "subagents" in open_questions(await verify_file(bare, signer=SIGNER))
    assert (redacted.subagents, (await verify_file(shared, signer=SIGNER)).ok) == (6, True)
    assert b"Agent helper" not in shared.read_bytes()
    assert (less.subagents, less.left_out, list(less.unread)) == (5, ("subagents",), [forgotten])
    assert forgotten in str((await verify_file(lacking, signer=SIGNER)).unchecked)


def names_of(path: Path) -> list[str]:
    """Return the names of the sub-agents' logs in a file."""
    return [name for name, _ in parts_of(path.read_bytes()) if path_of(name) and is_log(name)]


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return "0123456789" * 5_000


def tree_catalog() -> Catalog:
    """Return an agent that runs others like it."""
    limits = Limits(max_depth=3, tool_result_chars=300)
    agent = Agent(
        name="helper",
        instructions="Help.",
        description="helps",
        tools=("dump", "refund"),
        subagents=("helper",),
        limits=limits,
        policy=OWN,
    )
    return Catalog(agents=[agent], tools=[dump, refund])


def tree_script(conversation: Conversation) -> Reply:
    """Run two helpers until the task's levels are used up; answer at length."""
    levels = int(conversation.messages[1]["content"])
    if conversation.replies:
        return say("an answer that is longer than what its reader reads " * 20)
    if not levels:
        return together(call("dump"), call("refund", order=1))
    below = {"agent": "helper", "task": str(levels - 1)}
    return together(call("run_agent", **below), call("run_agent", **below), call("refund", order=2))


def test_inherited_constraints_keep_their_numbers_in_the_log() -> None:
    """The format counts as runs do, so that `constraint_lifted` finds them."""
    assert (derived.FIRST_PROPAGATED, derived.MAX_PROPAGATED) == (
        constraint_names.FIRST_PROPAGATED,
        constraint_names.MAX_PROPAGATED,
    )


@pytest.mark.extended
async def test_a_fork_is_exported_with_its_inherited_events(rig: StartRig, stack: Stack, tmp_path: Path) -> None:
    """The original's events are judged as the original thread's, also in a fork of a fork."""
    own = Catalog(agents=[Agent(name="clerk", instructions="Refund.", policy=OWN, tools=[refund])])
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
        report = await verify_file(tmp_path / f"{index}.holdfast", signer=SIGNER)
        questions.append(open_questions(report))
        context: dict[str, Any] = json.loads(dict(parts)[CONTEXT])
        assert (context["thread"], [each["thread"] for each in context.get("forks", [])]) == (
            names[index],
            names[1 : index + 1],
        )
    assert questions == [{"history", "keys"}, *[{"history", "keys", "original"}] * 2]

    events = run_events(names[1], read_lines(names[1], 0, dict(files[1])[LOG].splitlines()))
    at = next(event.position for event in events if event.type == "run_forked")
    for change in (
        [event for event in events if event.type != "run_forked"],  # the original's events presented as the fork's own
        [event for event in events if event.type != "verdict_given"],
        [event for event in events if event.position != at - 1],
    ):
        assert not (await forged(files[1], change, tmp_path / "forged.holdfast")).ok
