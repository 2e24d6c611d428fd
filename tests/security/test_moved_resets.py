"""`temporal workflow reset` of a moved run ends as moved again, and nothing of it runs on the source cluster.

Anyone who reaches Temporal's port can reset a run. The copy that continues elsewhere must stay the only one.
"""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, ask, tool
from holdfast.client.forks import fork
from holdfast.config.stack_file import Stack
from holdfast.core.authority.policy import Approver
from holdfast.storage.prune import prune
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say
from tests.support.places import Site, site
from tests.support.rig import reset, runs_of, tasks_of, try_reset

PAID: Counter[str] = Counter()
"""The payments that were made, by thread."""


@tool(effect="unsafe")
async def pay(order: int, context: ToolContext) -> str:
    """Pay for an order."""
    PAID[context.thread] += 1
    return f"paid {order}"


@tool
def look() -> str:
    """Look around."""
    return "quiet"


def catalog(**limits: Any) -> Catalog:
    """Return a clerk that asks before it pays."""
    policy = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="dana"),))
    clerk = Agent(name="clerk", instructions="Pay.", tools=("pay", "look"), policy=policy, limits=Limits(**limits))
    return Catalog(agents=[clerk], tools=[pay, look])


def script(conversation: Conversation) -> Reply:
    """Look, look again, pay, and finish."""
    made = str(conversation.messages)
    if "paid 7" in made:
        return say("done")
    return call("look") if made.count("quiet") < 2 else call("pay", order=7)


async def revive(place: Site, run: WorkflowHandle[Any, Any], *, task: int, again: bool) -> bool:
    """Reset a run, approve what it asks, as an attacker's accomplice would, and check that it ends as moved.

    Returns:
        Whether it could be reset.
    """
    revived = await try_reset(place.rig, run, to=task, again=again)
    if revived is None:
        return False
    with suppress(RPCError):  # it has ended
        await revived.signal("approve", {"request": "1", "by": "dana"})
    result = await revived.result()
    assert result["moved"], result
    return True


async def before_the_move(run: WorkflowHandle[Any, Any]) -> list[int]:
    """Return the events before the request to move to which a run can be reset."""
    events = (await run.fetch_history()).events
    asked = [
        event.event_id for event in events if event.HasField("workflow_execution_update_accepted_event_attributes")
    ]
    return [task for task in await tasks_of(run) if not asked or task < asked[-1] - 1]


async def check(place: Site, thread: str, lines: list[bytes], file: bytes) -> None:
    """Check that a thread is still moved, in the record, to readers, and in a new file."""
    assert await place.lines(thread) == lines
    assert await PostgresThreads(place.pool).asides(thread) == []
    assert await place.log(thread) == lines
    assert (await place.threads.state(thread))["status"] == "moved"
    report = await place.verified(thread)
    assert report.ok, (report.where, report.position, report.reason)
    assert (await place.move(thread)).read_bytes() == file


@pytest.mark.parametrize(
    ("limit", "many"),
    [
        (None, False),
        pytest.param(None, True, marks=pytest.mark.extended),
        pytest.param(20, True, marks=pytest.mark.extended),
    ],
    ids=["one-run", "one-run-many", "continued-as-new"],
)
async def test_a_moved_run_that_is_reset_ends_as_moved_again(
    limit: int | None, many: bool, stack: Stack, tmp_path: Path
) -> None:
    """After a reset to any event, even before its agent was loaded, the payment is made once, at the destination."""
    clerk, thread = catalog(**({"history_events": limit} if limit else {})), f"reset-{limit}-{many}"
    async with site(stack, clerk, script, tmp_path / "a") as a, site(stack, clerk, script, tmp_path / "b") as b:
        run = await a.rig.start(thread=thread, workspace=None)
        await a.status(thread, "waiting_approval")
        path = await a.move(thread)
        await b.bring(path)
        lines, asked = await a.lines(thread), len(a.rig.llm.requests)
        chain = await runs_of(a.rig.client, run)
        assert len(chain) > 1 or limit is None
        for each in chain:
            tasks = await before_the_move(each)
            some = {*tasks[:2], *tasks[len(tasks) // 2 :: 3]} if many else {tasks[0], tasks[-1]}
            for number, task in enumerate(sorted(some)):
                assert await revive(a, each, task=task, again=bool(number % 2)) or number
                await check(a, thread, lines, path.read_bytes())
        assert len(a.rig.llm.requests) <= asked + 2, "at most a call that was under way there is made again"
        assert not PAID[thread]
        await b.status(thread, "waiting_approval")
        await b.run(thread).signal("approve", {"request": "1", "by": "dana"})
        await b.run(thread).result()
        assert PAID[thread] == 1


@pytest.mark.extended
async def test_a_run_that_returned_and_left_again_is_not_revived(stack: Stack, tmp_path: Path) -> None:
    """Neither the run from before its first move nor the one that the import began is revived."""
    clerk = catalog()
    async with site(stack, clerk, script, tmp_path / "a") as a, site(stack, clerk, script, tmp_path / "b") as b:
        first = await a.rig.start(thread="to-and-fro", workspace=None)
        await a.status("to-and-fro", "waiting_approval")
        await b.bring(await a.move("to-and-fro"))
        await b.status("to-and-fro", "waiting_approval")
        brought = await a.bring(await b.move("to-and-fro"))
        await a.status("to-and-fro", "waiting_approval")
        back = a.rig.client.get_workflow_handle("to-and-fro", run_id=brought.run_id)
        path = await a.move("to-and-fro")
        lines = await a.lines("to-and-fro")
        for each in (first, back):
            revived = 0
            tasks = await before_the_move(each)
            for task in dict.fromkeys((tasks[0], tasks[-1])):
                revived += await revive(a, each, task=task, again=False)
                await check(a, "to-and-fro", lines, path.read_bytes())
            assert revived
        assert not PAID["to-and-fro"]


@pytest.mark.extended
async def test_a_fork_that_was_moved_is_not_revived(stack: Stack, tmp_path: Path) -> None:
    """After a reset to its very beginning, the record rejects its first events, and the run is blocked."""
    clerk = catalog()
    async with site(stack, clerk, script, tmp_path / "a") as a:
        await a.rig.start(thread="original", workspace=None)
        await a.status("original", "waiting_approval")
        name = (await fork(a.threads, "original", by="ann", id="forked")).thread
        await a.status(name, "waiting_approval")
        run = a.rig.client.get_workflow_handle(name, run_id=(await a.run(name).describe()).run_id)
        await a.move(name)
        lines, asked = await a.lines(name), len(a.rig.llm.requests)
        for task in (await before_the_move(run))[:2]:
            await reset(a.rig, run, to=task, again=False)
            await a.status(name, "moved", "blocked")
            assert await a.lines(name) == lines
            assert await PostgresThreads(a.pool).asides(name) == []
        assert (len(a.rig.llm.requests), PAID[name]) == (asked, 0)


@pytest.mark.extended
async def test_a_run_that_was_moved_back_can_be_reset(stack: Stack, tmp_path: Path) -> None:
    """A reset takes a thread that was moved back to an earlier event, like any other thread."""
    clerk = catalog()
    async with site(stack, clerk, script, tmp_path / "a") as a, site(stack, clerk, script, tmp_path / "b") as b:
        await a.rig.start(thread="returned", workspace=None)
        await a.status("returned", "waiting_approval")
        await b.bring(await a.move("returned"))
        await b.status("returned", "waiting_approval")
        brought = await a.bring(await b.move("returned"))
        await a.status("returned", "waiting_approval")
        back = a.rig.client.get_workflow_handle("returned", run_id=brought.run_id)
        again = await reset(a.rig, back, to=(await tasks_of(back))[0])
        await a.status("returned", "waiting_approval")
        await again.signal("approve", {"request": "1", "by": "dana"})
        await again.result()
        assert PAID["returned"] == 1
        report = await a.verified("returned")
        assert report.ok, (report.where, report.position, report.reason)


@pytest.mark.extended
async def test_without_a_record_a_moved_run_that_is_reset_runs_nothing(stack: Stack, tmp_path: Path) -> None:
    """If the thread was pruned from the record, Temporal still shows that it was moved, and the run fails with that."""
    clerk = catalog()
    async with site(stack, clerk, script, tmp_path / "a") as a:
        run = await a.rig.start(thread="pruned", workspace=None)
        await a.status("pruned", "waiting_approval")
        await a.move("pruned")
        asked = len(a.rig.llm.requests)
        assert await prune(a.pool, "pruned", last_position=len(await a.lines("pruned")) - 1)
        for task in (await before_the_move(run))[::4]:
            again = await reset(a.rig, run, to=task, again=False)
            with pytest.raises(WorkflowFailureError) as failed:
                await again.result()
            assert "was moved to another place" in str(failed.value.cause)
        assert len(a.rig.llm.requests) <= asked + 2
        assert all(
            json.loads(line)["type"] not in ("tool_call_started", "llm_replied") for line in await a.lines("pruned")
        )
        assert not PAID["pruned"]
