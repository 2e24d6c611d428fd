"""Nodes on a real server: a trust scope, the policies of nodes, and tools that cannot run on one."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio.client import Client, WorkflowFailureError

from holdfast import Agent, Cannot, Catalog, Effect, Policy, allow, ask, deny, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.idempotent_starts import start_once
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.composition.stores import collect_evidence
from holdfast.core.log.events import NodeAccepted, NodeAwaited, ToolCallFinished, ToolCallRerouted, ToolCallStarted
from holdfast.core.nodes import Node
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.state.features import PLACES
from holdfast.errors import TaskDiffers
from holdfast.gateway.bodies import StartBody, read_body
from holdfast.gateway.http.problems import HTTPProblem
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, check_thread, eventually, skip, status_of

US = Node(name="paris-1", labels={"region": "us"})
EU = Node(name="berlin-1", labels={"region": "eu"})


@pytest.mark.extended
async def test_only_nodes_in_scope_execute_a_run(rig: StartRig, client: Client) -> None:
    """Workers out of scope make no call of a scoped run, reads included; the log names the node; it all replays."""
    ran: list[str] = []

    def catalog(node: Node) -> Catalog:
        @tool(effect=Effect.READ)
        def look() -> str:
            """Look."""
            ran.append(node.name)
            return "seen"

        return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look])], tools=[look])

    script = steps([call("look"), call("look"), say("done")])
    async with (
        rig(catalog(US), script, node=US) as us,
        rig(catalog(EU), script, node=EU, task_queue=us.task_queue) as eu,
    ):
        run = await us.start(scope=(("region=eu",),), features=PLACES)
        assert (await run.result())["result"] == "done"
        assert (len(us.llm.requests), len(eu.llm.requests)) == (0, 3)
        assert ran == ["berlin-1"] * 2
        events = await check_thread(client, run)
        accepted = [event for event in events if isinstance(event, NodeAccepted)]
        assert [event.node for event in accepted] == [EU]


def _waits_for_node(state: dict[str, Any]) -> bool:
    return bool(state.get("places", {}).get("waits_for"))


@pytest.mark.extended
async def test_a_run_that_no_node_fits_waits_and_says_for_which(rig: StartRig, client: Client) -> None:
    """It shows which nodes it waits for, makes no call meanwhile, and resumes by itself when such a node works."""
    sent: list[str] = []

    def catalog(node: Node) -> Catalog:
        @tool
        def send() -> str:
            """Send."""
            sent.append(node.name)
            return "sent"

        agent = Agent(name="clerk", instructions="Work.", tools=[send], policy=Policy(rules=(allow(),)))
        return Catalog(agents=[agent], tools=[send])

    script = steps([call("send"), say("done")])
    async with rig(catalog(US), script, node=US) as us:
        run = await us.start(scope=(("region=eu",),), features=PLACES)
        state = await eventually(lambda: run.query("state"), _waits_for_node)
        assert state["now"].startswith("waits until ")
        assert "for a node that fits region=eu" in state["now"]
        assert state["places"]["waits_for"]["rejected"] == ["paris-1: it is not region=eu"]
        assert us.llm.requests == []
        async with rig(catalog(EU), script, node=EU, task_queue=us.task_queue):
            assert (await run.result())["result"] == "done"
            assert sent == ["berlin-1"]
            events = await check_thread(client, run)
    assert [type(each) for each in events if isinstance(each, NodeAwaited | NodeAccepted)][:1] == [NodeAwaited]


ALLOWING = Policy(rules=(allow(),))


def sender(send: Callable[[], Any]) -> Catalog:
    """Return a catalog whose agent sends without asking."""
    send.__name__, send.__doc__ = "send", "Send."
    made = tool(send)
    return Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[made], policy=ALLOWING)], tools=[made])


async def test_a_call_that_one_node_refuses_and_another_cannot_make_runs_once_on_the_third(
    rig: StartRig, client: Client
) -> None:
    """The run waits while only the refusing node is in scope; what a tool could not on one node, it does on another."""
    strict = Node(name="strict", labels={"region": "eu"})
    unable, able = Node(name="unable", labels={}), Node(name="able", labels={})
    sent: list[str] = []

    def send_on_unable() -> Any:
        able.labels["region"] = "eu"
        return Cannot("no route to the bank from here", scope="node")

    def send_on_able() -> str:
        sent.append("able")
        return "sent"

    def send_on_strict() -> str:
        sent.append("strict")
        return "sent"

    script = steps([call("send"), say("done")])
    policy = Policy(rules=(deny("send", reason="no payments here"), allow()))
    async with (
        rig(sender(send_on_strict), script, node=strict, node_policy=policy) as first,
        rig(sender(send_on_unable), script, node=unable, task_queue=first.task_queue),
        rig(sender(send_on_able), script, node=able, task_queue=first.task_queue),
    ):
        run = await first.start(scope=(("region=eu",),), features=PLACES)
        await eventually(lambda: run.query("state"), _waits_for_node)
        unable.labels["region"] = "eu"
        await skip(client, run, minutes=1)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        evidence = await first.threads.read(run.id, 0)
    assert sent == ["able"]
    (awaited,) = [event for event in events if isinstance(event, NodeAwaited)]
    assert ("strict", "policy") in [(each.node, each.kind) for each in awaited.rejected]
    assert any("no payments here" in each.reason for each in awaited.rejected)
    (rerouted,) = [event for event in events if isinstance(event, ToolCallRerouted)]
    assert (rerouted.nodes, rerouted.reason) == ("unable", "no route to the bank from here")
    (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (finished.status, finished.text) == ("ok", "sent")
    assert len({event.key for event in events if isinstance(event, ToolCallStarted)}) == 1
    assert [event.node.name for event in events if isinstance(event, NodeAccepted) and event.number][-1] == "able"
    assert len(evidence) == len(events)


@pytest.mark.extended
async def test_people_approve_what_a_nodes_own_policy_asks_about(rig: StartRig, client: Client) -> None:
    """The recorded policy allows the call; the node asks; the run asks people, and the call runs when they approve."""
    sent: list[str] = []

    def send() -> str:
        sent.append("sent")
        return "sent"

    policy = Policy(rules=(ask("send", reason="money leaves"), allow()))
    async with rig(sender(send), steps([call("send"), say("done")]), node=EU, node_policy=policy) as r:
        run = await r.start()
        state = await status_of(run, "waiting_approval")
        (request,) = state["pending"]
        assert (request["rule"], sent) == ("the policy of node berlin-1", [])
        assert "money leaves" in request["why"]
        await run.signal("approve", {"request": request["request"], "by": "dana"})
        assert (await run.result())["result"] == "done"
        assert sent == ["sent"]
        events = await check_thread(client, run)
        assert [event.policy for event in events if isinstance(event, NodeAccepted)][-1] == policy.hash


@pytest.mark.extended
async def test_the_llm_reads_what_no_node_could(
    rig: StartRig, client: Client, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its tool cannot run on the only node, the call has the result `cannot`, with the node and the reason.

    The ledger has the call on that node, and nothing of the attempts that no node took; the log verifies.
    """
    monkeypatch.setattr("holdfast.activities.node_gate.PATIENCE", 3)

    def send() -> Any:
        return Cannot("no GPU", scope="label:gpu")

    async with rig(
        sender(send), steps([call("send"), say("done")]), node=Node(name="small", labels={"gpu": "no"})
    ) as r:
        run = await r.start()
        await run.result()
        events = await check_thread(client, run)
        async with open_pool(database_url, size=1) as pool:
            evidence = collect_evidence(PostgresThreads(pool), pool, None)
            verified = await verify(Threads(client, record=PostgresThreads(pool)), run.id, evidence=evidence)
    assert (verified.reason, verified.ok) == ("", True)
    (finished,) = [event for event in events if isinstance(event, ToolCallFinished)]
    assert (finished.status, finished.not_called) == ("cannot", True)
    assert "small: constraint 1: no GPU" in finished.text
    assert [event.nodes for event in events if isinstance(event, ToolCallRerouted)] == ["gpu=no"]


async def test_a_start_gives_the_scope_once_and_nobody_else_does(rig: StartRig, client: Client) -> None:
    """A repeated start with other nodes is another start; a start without a fleet key may not name nodes."""
    async with rig(sender(lambda: "sent"), steps([say("done")]), node=EU) as r:
        threads = Threads(client, task_queue=r.task_queue)
        options = StartOptions(nodes=("region=eu",))
        assert await start_once(threads, "do it", f"{r.task_queue}-t", options)
        assert not await start_once(threads, "do it", f"{r.task_queue}-t", options)
        for other in ((), ("region=us",), ("region=eu", "region=us")):
            with pytest.raises(TaskDiffers, match="other nodes"):
                await start_once(threads, "do it", f"{r.task_queue}-t", StartOptions(nodes=other))
        run_id = (await client.get_workflow_handle(f"{r.task_queue}-t").describe()).run_id
        run = client.get_workflow_handle(f"{r.task_queue}-t", run_id=run_id)
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        assert events[0].type == "run_started"
        assert events[0].scope == (("region=eu",),)
        plain = await client.start_workflow(
            WORKFLOW, RunInput(task="do it", scope=(("region=eu",),)), id=f"{r.task_queue}-p", task_queue=r.task_queue
        )
        with pytest.raises(WorkflowFailureError):
            await plain.result()
    with pytest.raises(ValidationError, match="selects no node"):
        StartOptions(nodes=("region=",))


def test_http_takes_nodes_as_a_list() -> None:
    """The body of a start has selectors, which are checked and bounded like those of other starts."""
    body = read_body(b'{"task": "do it", "nodes": ["region=eu, gpu=yes", "berlin-1"]}', StartBody)
    assert body.nodes == ("region=eu,gpu=yes", "berlin-1")
    for nodes in ('["a b"]', '"region=eu"', str([f"n{n}" for n in range(21)]).replace("'", '"')):
        with pytest.raises(HTTPProblem, match="nodes"):
            read_body(f'{{"task": "do it", "nodes": {nodes}}}'.encode(), StartBody)
