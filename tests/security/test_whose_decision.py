"""Attempts to run a call without the required approvers: by others, unread edits, claimed names, or lost keys."""

from typing import Any

import pytest

from holdfast import Agent, Catalog, Policy, Terms, allow, ask
from holdfast.audit.evidence.verify import verify
from holdfast.client.forks import fork
from holdfast.client.threads import Threads
from holdfast.core.authority.interventions import KeyRevocation
from holdfast.core.authority.signatures import public_key
from holdfast.testing import Conversation, Reply, call, say, steps
from tests.support.people import KEYS, PEOPLE, answer, clerk, decision, pay, payments, request_of, signed, steering
from tests.support.rig import StartRig, check_thread, eventually, status_of

FINANCE = Policy(
    rules=(ask("pay", terms=Terms(by=("finance",), quorum=2)), allow()), approvers=PEOPLE, signatures="required"
)
"""Two signatures from finance."""
ANYBODY = Policy(rules=(ask("pay"), allow()))
"""A policy that asks, and names no approvers."""


def desk() -> Catalog:
    """Return an agent under `FINANCE` whose sub-agent pays, and knows no approvers."""
    head = Agent(name="head", instructions="Delegate.", tools=(), subagents=("clerk",), policy=FINANCE)
    return Catalog(agents=[head, Agent(name="clerk", instructions="Pay.", policy=ANYBODY, tools=[pay])], tools=[pay])


def delegates(conversation: Conversation) -> Reply:
    """Have a sub-agent pay, and report the result."""
    if conversation.replies:
        return say(" | ".join(conversation.results))
    if "run_agent" in conversation.tools:
        return call("run_agent", agent="clerk", task="Pay.")
    return call("pay", cents=5)


async def test_only_the_parents_approvers_decide_for_a_sub_agent(rig: StartRig) -> None:
    """A parent's policy needs two of finance, signed; only those two let its sub-agent's call run.

    Strangers, bare names, one person twice, and a signed approver without the role do not. The audit of the log agrees.
    """
    async with rig(desk(), delegates) as r:
        run = await r.start()
        child = r.client.get_workflow_handle(f"{run.id}.1")
        await eventually(lambda: run.query("state"), lambda state: state["subagents"])
        request = await request_of(child)
        bare = {"decision": "approve", "request": request["request"], "digest": request["digest"]}
        for by in ("mallory", "eve", "alice", "bob"):
            assert await answer(child, "decide", {**bare, "by": by}) == "unsigned"
            await child.signal("approve", {"request": "1", "by": by})
        assert await answer(child, "decide", decision(child.id, request, by="carol")) == "not_entitled"
        assert await answer(child, "decide", decision(child.id, request, by="alice")) == "waiting_for_quorum"
        assert await answer(child, "decide", decision(child.id, request, by="alice")) == "duplicate"
        assert (
            await answer(child, "decide", decision(child.id, request, by="bob", key=KEYS["alice"])) == "bad_signature"
        )
        assert await answer(child, "lift", {"constraint": 0, "by": "mallory"}) == "unsigned"
        assert payments(r) == []
        assert await answer(child, "decide", decision(child.id, request, by="bob")) == "accepted"
        await run.result()
        assert payments(r) == [5]
        await check_thread(r.client, child)
        threads = Threads(r.client, task_queue=r.task_queue, record=r.threads)
        assert (await verify(threads, child.id, trusted=FINANCE)).ok


async def test_a_fork_with_another_agent_asks_the_original_agents_approvers(rig: StartRig) -> None:
    """A fork whose agent knows no approvers does not bypass those of the original's agent."""
    catalog = Catalog(
        agents=[
            Agent(name="clerk", instructions="Pay.", policy=FINANCE, tools=[pay]),
            Agent(name="other", instructions="Pay.", policy=ANYBODY, tools=[pay]),
        ],
    )
    async with rig(catalog, steps([call("pay", cents=5), call("pay", cents=6), say("done")])) as r:
        run = await r.start(agent="clerk")
        request = await request_of(run)
        threads = Threads(r.client, task_queue=r.task_queue, record=r.threads)
        forked = await fork(threads, run.id, say="go on", agent="other", keeps_policy=True, by="mallory")
        there = r.client.get_workflow_handle(forked.thread)
        asked = await request_of(there)
        assert [each["who"] for each in asked["requirements"]] == [[], ["finance"]]
        bare = {"decision": "approve", "request": asked["request"], "by": "mallory", "digest": asked["digest"]}
        assert await answer(there, "decide", bare) == "unsigned"
        assert await answer(there, "lift", {"constraint": 0, "by": "mallory"}) == "unsigned"
        used = decision(run.id, request, by="alice")
        assert await answer(there, "decide", {**used, "request": asked["request"]}) in (
            "bad_signature",
            "digest_mismatch",
        )
        assert await answer(there, "decide", decision(there.id, asked, by="alice")) == "waiting_for_quorum"
        assert payments(r) == []
        for each in (run, there):
            await each.terminate("the test is over")


TWO = Policy(rules=(ask("pay", terms=Terms(quorum=2)), allow()), approvers=PEOPLE, signatures="optional")


@pytest.mark.parametrize("how", ["signal", "digest", pytest.param("update", marks=pytest.mark.extended)])
async def test_nobody_approves_another_voters_edit_unread(rig: StartRig, how: str) -> None:
    """If the first voter turns 5 into 99 million, a second voter who approves the call as read pays nothing."""
    async with rig(clerk(TWO), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        edit = {"decision": "approve", "request": "1", "by": "alice", "arguments": {"cents": 99_000_000}}
        assert await answer(run, "decide", edit) == "judged_anew"
        read = {"decision": "approve", "request": "1", "by": "bob"}
        if how == "signal":
            await run.signal("approve", read)
        else:
            seen = {"digest": request["digest"]} if how == "digest" else {}
            assert await answer(run, "decide", {**read, **seen}) == "too_late"
        anew = await request_of(run, "2")
        assert (anew["arguments"], anew["edited_by"]) == ({"cents": 99_000_000}, "alice")
        assert [vote["by"] for vote in anew["votes"]] == ["alice"]
        assert payments(r) == []
        assert await answer(run, "decide", {**read, "request": "2", "decision": "deny"}) == "accepted"
        await run.result()
        assert payments(r) == []
        await check_thread(r.client, run)


async def test_an_unsigned_name_steers_no_run_if_signatures_are_required(rig: StartRig) -> None:
    """Unsigned `pause`, `resume` and `move` under any name do not count, as a signal or as an update.

    An old signed `resume` ends no later pause.
    """
    required = Policy(rules=(ask("pay"), allow()), approvers=PEOPLE, signatures="required")
    async with rig(clerk(required), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        for name in ("pause", "move"):
            assert await answer(run, name, {"by": "alice"}) == "unsigned"
            await run.signal(name, {"by": "alice"})
        assert (await run.query("state"))["status"] == "waiting_approval"
        assert await answer(run, "pause", steering(run.id, await run.query("state"), "pause", "alice")) == "accepted"
        early = steering(run.id, await run.query("state"), "resume", "bob")
        for by in ("alice", "mallory"):
            assert await answer(run, "resume", {"by": by}) == "unsigned"
            await run.signal("resume", {"by": by})
            await run.signal("pause", {"by": by, "seconds": 0.001})
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "accepted"
        assert (await status_of(run, "paused"))["paused"]["proof"] == "signed"
        assert payments(r) == []
        assert await answer(run, "resume", early) == "accepted"
        again = steering(run.id, await run.query("state"), "pause", "alice")
        if await answer(run, "pause", again) == "accepted":  # unless the run has ended by now
            assert await answer(run, "resume", early) == "outdated"
            assert (
                await answer(run, "resume", steering(run.id, await run.query("state"), "resume", "bob")) == "accepted"
            )
        await run.result()
        assert payments(r) == [5]
        await check_thread(r.client, run)


async def test_a_lost_key_stops_counting_in_an_open_run(rig: StartRig) -> None:
    """Once another approver revokes a stolen key, the thief's vote is gone, and later ones are rejected.

    The thief can no longer revoke anybody's key with it.
    """
    two = Policy(rules=(ask("pay", terms=Terms(quorum=2)), allow()), approvers=PEOPLE, signatures="required")
    async with rig(clerk(two), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "waiting_for_quorum"
        stolen: dict[str, Any] = {"revoked": public_key(KEYS["alice"]), "by": "bob", "reason": "a lost laptop"}
        assert await answer(run, "revoke_key", stolen) == "unsigned"
        assert await answer(run, "revoke_key", signed(KeyRevocation, "another", **stolen)) == "bad_signature"
        assert await answer(run, "revoke_key", signed(KeyRevocation, run.id, **stolen)) == "accepted"
        assert (await request_of(run))["votes"] == []
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "bad_signature"
        more = {"revoked": public_key(KEYS["bob"]), "by": "alice"}
        assert await answer(run, "revoke_key", signed(KeyRevocation, run.id, **more)) == "bad_signature"
        for by, outcome in (("bob", "waiting_for_quorum"), ("carol", "accepted")):
            assert await answer(run, "decide", decision(run.id, request, by=by)) == outcome
        await run.result()
        assert payments(r) == [5]
        await check_thread(r.client, run)
