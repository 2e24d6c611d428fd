"""A thread moves between clusters and back: open requests stay open, and nothing happens twice."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.environment import open_stack
from bench.moves import measure
from holdfast import Agent, Budget, Catalog, Policy, ToolContext, allow, ask, tool
from holdfast.client.forks import fork
from holdfast.client.listing import list_threads
from holdfast.client.messages import say as say_to
from holdfast.client.reading.runs import MOVED, status_of
from holdfast.client.trees import read_tree
from holdfast.composition.stores import Stores
from holdfast.config.stack_file import Stack
from holdfast.core.authority.policy import Approver
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.errors import AgentNotFound, ExportFailed, ImportRefused, PositionInvalid, Refused
from holdfast.portable.destination import namespace_id
from holdfast.portable.export import export_thread
from holdfast.portable.format.members import LOG, child_member
from holdfast.portable.reader import open_portable_file
from holdfast.retention.forget import forget_thread
from holdfast.testing import Conversation, Reply, call, say, together
from tests.integration.test_forks import git
from tests.security.test_imports import file_of, running
from tests.support.outside import LATE, Api, Outside
from tests.support.places import CAROL, Site, site
from tests.support.portable_files import SIGNER as ALICES
from tests.support.rig import PATIENCE, eventually

PAID: Counter[str] = Counter()
"""The payments that were made, by effect key."""

LOST: set[str] = set()
"""Threads that get no response to their payments."""

POLICY = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="dana"),))


@tool(effect="unsafe", timeout=2)
async def pay(order: int, context: ToolContext) -> str:
    """Pay for an order; the response may never come."""
    PAID[str(order)] += 1
    if context.thread in LOST:
        await asyncio.Event().wait()
    return f"paid {order}"


@tool
def look() -> str:
    """Look around."""
    return "quiet"


def catalog(policy: Policy = POLICY, **agent: Any) -> Catalog:
    """Return the clerk of a cluster."""
    clerk = Agent(name="clerk", instructions="Pay.", tools=("pay", "look"), policy=policy, **agent)
    return Catalog(agents=[clerk], tools=[pay, look])


def script(conversation: Conversation) -> Reply:
    """Look, pay, look, and finish."""
    replies = [call("look"), call("pay", order=7), call("look")]
    return replies[conversation.replies] if conversation.replies < len(replies) else say("done")


async def test_an_open_request_is_decided_on_the_destination_cluster(stack: Stack, tmp_path: Path) -> None:
    """The request keeps its id; the payment is made once, at the destination, whose log begins with the source's."""
    PAID.clear()
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-1", workspace=None)
        before = await a.status(run.id, "waiting_approval")
        path = await a.move("rel-1")
        at_source = await a.threads.state("rel-1")
        assert (at_source["status"], at_source["pending"]) == ("moved", [])
        done = await b.bring(path)
        assert (done.thread, done.new) == ("rel-1", True)
        state = await b.status("rel-1", "waiting_approval")
        assert [each["request"] for each in state["pending"]] == [each["request"] for each in before["pending"]]
        assert state["pending"][0]["digest"] == before["pending"][0]["digest"]
        await b.run("rel-1").signal("approve", {"request": "1", "by": "dana"})
        await b.status("rel-1", "completed")
        await b.run("rel-1").result()
        assert PAID == {"7": 1}
        source, here = await a.lines("rel-1"), await b.lines("rel-1")
        assert here[: len(source)] == source
        types = [json.loads(line)["type"] for line in here[len(source) - 2 :]]
        assert types[:4] == ["move_requested", "run_finished", "run_imported", "agent_loaded"]
        assert (await b.verified("rel-1")).ok
        assert (await a.verified("rel-1")).ok


@pytest.mark.extended
async def test_a_file_that_names_its_destination_is_imported_only_there(stack: Stack, tmp_path: Path) -> None:
    """Neither the file nor a later export is imported elsewhere, and the destination cannot be changed."""
    PAID.clear()
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-to", workspace=None)
        await a.status(run.id, "waiting_approval")
        here, there = await namespace_id(a.rig.client), await namespace_id(b.rig.client)
        assert here != there
        path = await a.move("rel-to", to=there)
        assert await a.move("rel-to", path, to=there) == path, "it can be repeated"
        for other in (None, path):
            with pytest.raises(ExportFailed, match=f"was moved to the place {there} before"):
                await a.move("rel-to", other, to=here)
        again = a.path()
        await export_thread(a.threads, "rel-to", again, evidence=a.evidence, private=CAROL)
        for file in (path, again):
            with pytest.raises(ImportRefused, match=f"moved to the place {there}, and this is {here}"):
                await a.bring(file)
        assert (await b.bring(path)).new
        await b.run("rel-to").signal("approve", {"request": "1", "by": "dana"})
        await b.run("rel-to").result()
        assert (await b.verified("rel-to")).ok
        assert PAID == {"7": 1}


async def test_a_planted_outcome_is_not_exported(stack: Stack, tmp_path: Path) -> None:
    """A move fails and names the row if the database's owner has planted an outcome in the ledger."""
    PAID.clear()
    LOST.add("rel-plant")
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-plant", workspace=None)
        await a.status(run.id, "waiting_approval")
        await run.signal("approve", {"request": "1", "by": "dana"})

        async def asked() -> list[str]:
            return [each["kind"] for each in await run.query("pending_approvals")]

        await eventually(asked, lambda kinds: kinds == ["reconcile"])
        async with a.pool.connection() as connection:
            plant = "UPDATE holdfast.effects SET outcome = %s, finished_at = now() WHERE thread = %s AND tool = 'pay'"
            await connection.execute(plant, [ToolOutcome(status="ok", content="honestly").model_dump_json(), run.id])
        with pytest.raises(ExportFailed, match="an outcome that is not in the log, without a MAC"):
            await a.move("rel-plant")
        assert await b.rows("rel-plant") == []


@pytest.mark.extended
async def test_a_thread_is_moved_back_to_its_source(stack: Stack, tmp_path: Path) -> None:
    """The source's record is a prefix of the file, and gets the rest; importing again changes nothing."""
    PAID.clear()
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-2", workspace=None)
        await a.status(run.id, "waiting_approval")
        first = await a.move("rel-2")
        await b.bring(first)
        await b.status("rel-2", "waiting_approval")
        second = await b.move("rel-2")
        await a.bring(second)
        assert not (await a.bring(second)).new
        assert not (await a.bring(second)).new
        await a.status("rel-2", "waiting_approval")
        await a.run("rel-2").signal("approve", {"request": "1", "by": "dana"})
        await a.run("rel-2").result()
        assert PAID == {"7": 1}
        moved, here = await b.lines("rel-2"), await a.lines("rel-2")
        assert here[: len(moved)] == moved
        report = await a.verified("rel-2")
        assert report.ok, report


@pytest.mark.extended
async def test_a_run_whose_budget_was_extended_finishes_at_its_destination(stack: Stack, tmp_path: Path) -> None:
    """The agent at the destination has its original budget, yet nobody has to extend it again."""
    PAID.clear()
    clerk = catalog(budget=Budget(steps=2))

    def late(conversation: Conversation) -> Reply:
        replies = [call("look"), say("no room"), call("pay", order=7), call("look")]
        return replies[conversation.replies] if conversation.replies < len(replies) else say("done")

    async with site(stack, clerk, late, tmp_path / "a") as a, site(stack, clerk, late, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-10", workspace=None)
        await a.status(run.id, "blocked")
        await a.run("rel-10").execute_update("extend", {"steps": 20, "by": "dana"})
        await a.status(run.id, "waiting_approval")
        await b.bring(await a.move("rel-10"))
        await b.status("rel-10", "waiting_approval")
        await b.run("rel-10").signal("approve", {"request": "1", "by": "dana"})
        await b.run("rel-10").result()
        state = await b.threads.state("rel-10")
        assert (PAID, state["budget"]["limits"][0]["allowed"]) == ({"7": 1}, "22")
        assert (await b.verified("rel-10")).ok


@pytest.mark.extended
async def test_a_fork_gets_no_folder_named_only_in_a_files_events(stack: Stack, tmp_path: Path) -> None:
    """A repository named by the events is on another machine; a local one of that name is not used."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "private.txt").write_text("not for this agent")
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "private")
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        run = await a.rig.start(thread="rel-8", workspace=str(source))
        at = (await a.status(run.id, "waiting_approval"))["events"] - 1
        await b.bring(await a.move("rel-8"))
        await b.status("rel-8", "waiting_approval")
        before, after = [(await fork(b.threads, "rel-8", at=each, by="ann")).thread for each in (at, None)]
        folders = [(await b.status(each, "waiting_approval"))["workspace"] for each in (before, after)]
        assert all(str(b.folder) in folder and not list(Path(folder).iterdir()) for folder in folders)


@pytest.mark.extended
async def test_a_live_copy_continues_as_a_fork(stack: Stack, tmp_path: Path) -> None:
    """The copy has its own id and folder, its open requests and calls end, and the original continues at its source."""
    PAID.clear()
    async with site(stack, catalog(), script, tmp_path / "a") as a, site(stack, catalog(), script, tmp_path / "b") as b:
        await a.rig.start(thread="rel-3", workspace=None)
        await a.status("rel-3", "waiting_approval")
        path = a.path()
        await export_thread(a.threads, "rel-3", path, evidence=a.evidence, private=CAROL)
        with pytest.raises(ImportRefused, match="was open where it was exported"):
            await b.bring(path)
        done = await b.bring(path, fork=True, id="rel-3-b")
        state = await b.status(done.thread, "waiting_approval")
        assert (state["fork"]["thread"], state["fork"]["effects_ask"]) == ("rel-3", True)
        assert str(b.folder) in state["workspace"]
        assert (await a.threads.state("rel-3"))["status"] == "waiting_approval"
        assert PAID == {}


async def test_an_effect_with_unknown_outcome_is_asked_about_at_the_destination(stack: Stack, tmp_path: Path) -> None:
    """A payment whose outcome is unknown is not repeated; people at the destination resolve it."""
    PAID.clear()
    policy = Policy(rules=(allow(),), approvers=(Approver(name="dana"),))
    desk = catalog(policy)
    async with site(stack, desk, script, tmp_path / "a") as a, site(stack, desk, script, tmp_path / "b") as b:
        LOST.add("rel-4")
        await a.rig.start(thread="rel-4", workspace=None)
        before = await a.status("rel-4", "waiting_approval")
        assert before["pending"][0]["kind"] == "reconcile"
        await b.bring(await a.move("rel-4"))
        state = await b.status("rel-4", "waiting_approval")
        assert state["pending"] == before["pending"]
        await b.run("rel-4").signal("reconcile", {"request": "1", "decision": "happened", "by": "dana"})
        await b.run("rel-4").result()
        assert PAID == {"7": 1}
        assert (await b.verified("rel-4")).ok


@pytest.mark.extended
async def test_an_import_without_its_agent_is_no_success(stack: Stack, tmp_path: Path) -> None:
    """Whoever imports it reads that no worker has the agent, as at a start, and can repeat the import once one has."""
    thread = running("rel-none").moved()
    path = tmp_path / "rel-none.holdfast"
    path.write_bytes(file_of(thread))
    async with site(stack, catalog(), script, tmp_path / "b") as b:
        for _ in range(2):
            imported = await b.bring(path, signer=ALICES)
            assert (imported.new, imported.events) == (True, len(thread.log))
            with pytest.raises(AgentNotFound, match=r"'rel-none' could not start: no agent named 'agent'; .* clerk"):
                await b.threads.wait_until_loaded("rel-none", within=PATIENCE, past=imported.events)
        state = await b.threads.state("rel-none")
        assert (state["status"], len(await b.lines("rel-none"))) == ("failed", len(thread.log))


@pytest.mark.extended
async def test_a_moved_thread_accepts_no_task_or_message(stack: Stack, tmp_path: Path) -> None:
    """The source lists the thread as moved; only its file continues it, also at the source."""
    async with site(stack, catalog(), script, tmp_path / "a") as a:
        await a.rig.start(thread="rel-5", workspace=None)
        await a.status("rel-5", "waiting_approval")
        path = await a.move("rel-5")
        written = path.read_bytes()
        assert await a.move("rel-5", path) == path, "a move that was killed after its last step is repeated"
        assert path.read_bytes() == written
        path.write_bytes(written[:-1])
        with pytest.raises(ExportFailed, match="exists already"):
            await a.move("rel-5", path)
        path.write_bytes(written)
        await export_thread(a.threads, "rel-5", other := a.path(), evidence=a.evidence, private=CAROL, artifacts=False)
        with pytest.raises(ExportFailed, match="exists already"):
            await a.move("rel-5", other)
        (link := a.path()).symlink_to(path)
        with pytest.raises(ExportFailed, match="exists already"):
            await a.move("rel-5", link)
        # The names of search attributes in a new namespace are unknown for a moment.
        await eventually(a.run("rel-5").describe, lambda found: status_of(found) == MOVED)
        with pytest.raises(Refused, match="was moved to another place"):
            await a.threads.start("go on", thread="rel-5")
        with pytest.raises(Refused, match="was moved to another place"):
            await say_to(a.threads, "rel-5", "go on", by="carol")
        with pytest.raises(PositionInvalid, match="was moved"):
            await fork(a.threads, "rel-5")
        rows = await eventually(lambda: list_threads(a.threads, status="moved"), bool)
        assert [row["thread"] for row in rows] == ["rel-5"]
        assert (await a.bring(path)).new
        await a.status("rel-5", "waiting_approval")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_moves_survive_kills_of_their_commands_and_workers() -> None:
    """After SIGKILL of either at random moments, every log, decision and effect exists once, on one cluster."""
    with open_stack() as one, open_stack() as two, Api(0.1, late=LATE) as api:
        outside = Outside(api, one[1] / "outbox")
        result = await measure((one, two), outside, moves=6, kills=8, runs=2, seed=3)
    assert (result.plan.moved, result.plan.wrong) == (6, [])


def house(conversation: Conversation) -> Reply:
    """Await one sub-agent, run another in the background, pay with approval, and read the other's answer."""
    if "help" in str(conversation.messages[1]["content"]):
        return say("helped")
    below = {"agent": "helper", "task": "help"}
    ahead, behind = call("run_agent", **below), call("run_agent", **below, background=True)
    replies = [together(ahead, behind), call("pay", order=9), call("agent_result", thread="rel-6.2")]
    return replies[conversation.replies] if conversation.replies < len(replies) else say(conversation.results[-1])


async def logs(site: Site) -> list[list[bytes]]:
    """Return the logs of the tree."""
    return [await site.log(name) for name in ("rel-6", "rel-6.1", "rel-6.2")]


@pytest.mark.extended
async def test_the_logs_of_sub_agents_move_along_and_back(stack: Stack, tmp_path: Path) -> None:
    """After moving there and back, the tree is read, verified and exported whole; a call reads an answer from it."""
    PAID.clear()
    helper = Agent(name="helper", instructions="Help.", description="helps", tools=(), policy=POLICY)
    clerk = Agent(name="clerk", instructions="Pay.", tools=("pay",), policy=POLICY, subagents=("helper",))
    desk = Catalog(agents=[clerk, helper], tools=[pay])
    async with site(stack, desk, house, tmp_path / "a") as a, site(stack, desk, house, tmp_path / "b") as b:
        await a.rig.start(thread="rel-6", workspace=None)
        await a.status("rel-6", "waiting_approval")
        await eventually(lambda: a.run("rel-6").query("state"), lambda state: _all_ended(state["subagents"]))
        await b.bring(first := await a.move("rel-6"))
        before = await logs(a)
        await b.status("rel-6", "waiting_approval")
        here = await logs(b)
        assert here[1:] == before[1:]
        assert here[0][: len(before[0])] == before[0]
        tree = await read_tree(b.threads, "rel-6")
        assert [(node.thread, node.status, node.error) for node in tree.children] == [
            ("rel-6.1", "completed", None),
            ("rel-6.2", "completed", None),
        ]
        assert all([(await b.verified(name)).ok for name in ("rel-6.1", "rel-6.2")])
        assert {row["thread"] for row in await list_threads(b.threads)} <= {"rel-6"}
        with pytest.raises(Refused, match="ran here"):
            await b.threads.start("go on", thread="rel-6.1")

        second = await b.move("rel-6")
        assert _children(second) == _children(first)
        await a.bring(second)
        await a.status("rel-6", "waiting_approval")
        stores = Stores(a.place.threads, a.place.artifacts, None)
        await forget_thread(a.threads, a.pool, stores, "rel-6.1", by="ann", reason="asked to")
        third = await a.move("rel-6")
        assert _children(third) == _children(first)[1:], "what was forgotten keeps nothing from being moved"
        await b.bring(third)
        await b.status("rel-6", "waiting_approval")
        await b.run("rel-6").signal("approve", {"request": "1", "by": "dana"})
        assert "helped" in (await b.run("rel-6").result())["result"]
        assert PAID == {"9": 1}
        assert (await logs(b))[1:] == before[1:]
        assert (await b.verified("rel-6")).ok


def _all_ended(children: list[dict[str, Any]]) -> bool:
    return len(children) == 2 and all(child["status"] == "completed" for child in children)


def _children(path: Path) -> list[list[bytes]]:
    with open_portable_file(path) as file:
        return [list(file.lines(child_member(LOG, place))) for place in file.subagents]
