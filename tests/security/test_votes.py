"""A quorum counts people who give the same answer, for any kind of request."""

import pytest

from holdfast import Policy, Terms, ask
from holdfast.testing import call, say, steps
from tests.support.people import PEOPLE, answer, clerk, decision, delegation, payments, request_of, revocation
from tests.support.rig import StartRig, check_thread

TWO = Policy(
    rules=(ask("pay", terms=Terms(by=("finance", "carol"), quorum=2)),), approvers=PEOPLE, signatures="required"
)


async def test_a_delegation_makes_no_second_voter(rig: StartRig) -> None:
    """With Bob's and Carol's delegations, Alice still has one vote: nothing runs on two of her signatures."""
    async with rig(clerk(TWO), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        for lender in ("bob", "carol"):
            assert await answer(run, "delegate_authority", delegation(run.id, lender, "alice")) == "accepted"
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "waiting_for_quorum"
        for reason in ("", "for Bob", "for Carol"):
            assert await answer(run, "decide", decision(run.id, request, by="alice", reason=reason)) == "duplicate"
        assert payments(r) == []
        assert await answer(run, "decide", decision(run.id, request, by="bob")) == "accepted"
        await run.result()
        assert payments(r) == [1]
        await check_thread(r.client, run)


async def test_each_delegation_counts_once_and_not_after_revocation(rig: StartRig) -> None:
    """Dave votes with Bob's delegation instead of Bob; once Bob revokes it, Dave's vote is gone and Bob can vote."""
    async with rig(clerk(TWO), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        assert await answer(run, "delegate_authority", delegation(run.id, "bob", "dave")) == "accepted"
        assert await answer(run, "decide", decision(run.id, request, by="dave")) == "waiting_for_quorum"
        assert await answer(run, "decide", decision(run.id, request, by="bob")) == "duplicate"
        assert (await request_of(run))["votes"] == [
            {"by": "dave", "decision": "approve", "proof": "signed", "for": "bob"}
        ]
        assert await answer(run, "revoke", revocation(run.id, "bob", delegated_to="dave")) == "accepted"
        assert (await request_of(run))["votes"] == []
        assert await answer(run, "decide", decision(run.id, request, by="bob")) == "waiting_for_quorum"
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "accepted"
        await run.result()
        assert payments(r) == [1]


@pytest.mark.parametrize(
    "asking", [("bob",), *(pytest.param(each, marks=pytest.mark.extended) for each in (("alice",), ("alice", "bob")))]
)
async def test_the_last_voter_alone_remembers_nothing(rig: StartRig, asking: tuple[str, ...]) -> None:
    """A rule is remembered only if everyone who approved the call asked for it."""
    async with rig(clerk(TWO), steps([call("pay", cents=1), call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        for name in ("alice", "bob"):
            remember = {"remember": True} if name in asking else {}
            await answer(run, "decide", decision(run.id, request, by=name, **remember))
        if asking == ("alice", "bob"):
            await run.result()
            assert payments(r) == [1, 1]
            return
        second = await request_of(run, "2")
        assert payments(r) == [1]
        await run.signal("deny", decision(run.id, second, by="alice", decision="deny"))
        await run.result()
        assert payments(r) == [1]
        await check_thread(r.client, run)


@pytest.mark.extended
async def test_an_answer_that_replaces_a_call_needs_the_quorum(rig: StartRig) -> None:
    """`respond` by one of two waits; a different answer does not count with it; the same one ends the call."""
    async with rig(clerk(TWO), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)

        async def respond(by: str, result: str) -> str:
            response = decision(run.id, request, by=by, decision="respond", result=result)
            return await answer(run, "decide", response)

        assert await respond("alice", "it is paid") == "waiting_for_quorum"
        assert await respond("bob", "it is not due") == "waiting_for_quorum"
        assert await answer(run, "decide", decision(run.id, request, by="carol")) == "waiting_for_quorum"
        assert await respond("alice", "it is not due") == "accepted", "she has changed her mind"
        await run.result()
        assert payments(r) == []
        await check_thread(r.client, run)
