"""Identity: one spelling per name, one encoding per signature, and no request in another person's name."""

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import Policy, Terms, ask
from holdfast.core.log.events import SignalRejected, UserMessageReceived
from holdfast.testing import call, say, steps
from tests.support.people import (
    KEYS,
    PEOPLE,
    answer,
    clerk,
    decision,
    delegation,
    message,
    payments,
    request_of,
    revocation,
)
from tests.support.rig import StartRig, answer_of, check_thread, status_of

FINANCE = Policy(rules=(ask("pay", terms=Terms(by=("finance",))),), approvers=PEOPLE, signatures="required")
OTHERS = Policy(rules=(ask("pay", terms=Terms(requester_may_decide=False)),), approvers=PEOPLE, signatures="required")


@pytest.mark.extended
async def test_a_revoked_delegation_does_not_return_in_another_encoding(rig: StartRig) -> None:
    """A revoked delegation stays revoked if its signature is re-encoded: Carol decides nothing.

    The signature is sent with padding, in the other alphabet, or with unused bits set.
    """
    async with rig(clerk(FINANCE), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        lent = delegation(run.id, "bob", "carol")
        assert await answer(run, "delegate_authority", lent) == "accepted"
        assert await answer(run, "revoke", revocation(run.id, "bob", delegated_to="carol")) == "accepted"
        signature = lent["signature"]
        last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        sibling = last[last.index(signature[-1]) ^ 1]
        variants = [f"{signature}==", f"{signature}=", signature.translate(str.maketrans("-_", "+/")) + "=="]
        variants += [f" {signature}", f"{signature}\n", signature[:-1] + sibling]
        for variant in variants:
            assert await answer(run, "delegate_authority", {**lent, "signature": variant}) in (
                "bad_signature",
                "duplicate",
            )
        for spelling in ("Bob", " bob ", "\uff22\uff2f\uff22"):
            assert await answer(run, "delegate_authority", {**lent, "by": spelling}) == "duplicate"
        assert await answer(run, "delegate_authority", lent) == "duplicate"
        assert await answer(run, "decide", decision(run.id, request, by="carol")) == "not_entitled"
        await run.signal("deny", decision(run.id, request, by="alice", decision="deny"))
        await run.result()
        assert payments(r) == []
        await check_thread(r.client, run)


@pytest.mark.slow
async def test_a_revoked_delegation_does_not_return_after_many_others(rig: StartRig) -> None:
    """After 220 more delegations, the first one is still known and still revoked."""
    async with rig(clerk(FINANCE), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        lent = delegation(run.id, "bob", "carol")
        assert await answer(run, "delegate_authority", lent) == "accepted"
        assert await answer(run, "revoke", revocation(run.id, "bob", delegated_to="carol")) == "accepted"
        for number in range(220):
            other = delegation(run.id, "alice", "dave", minutes=60, seconds=number)
            await run.signal("delegate_authority", other)
        assert await answer(run, "delegate_authority", delegation(run.id, "alice", "dave", minutes=10)) == "accepted"
        assert await answer(run, "delegate_authority", lent) == "duplicate"
        assert await answer(run, "decide", decision(run.id, request, by="carol")) == "not_entitled"
        await run.signal("deny", decision(run.id, request, by="alice", decision="deny"))
        await run.result()
        assert payments(r) == []


async def test_another_spelling_is_the_same_person(rig: StartRig) -> None:
    """A requester cannot approve under another spelling of their name, and has one vote of two under all spellings."""
    terms = Terms(requester_may_decide=False, quorum=2)
    policy = Policy(rules=(ask("pay", terms=terms),), approvers=PEOPLE)
    async with rig(clerk(policy), steps([call("pay", cents=1), say("done")])) as r:
        for number, spelling in enumerate(("alice ", "Alice", "\uff21lice", "ali\u0301ce", "\talice")):
            run = await r.start(by=spelling)
            request = await request_of(run)
            plain = {"decision": "approve", "request": request["request"]}
            for by in ("alice", spelling, "ALICE"):
                assert await answer(run, "decide", {**plain, "by": by}) == "not_entitled", spelling
            assert await answer(run, "decide", {**plain, "by": "Bob"}) == "waiting_for_quorum"
            assert await answer(run, "decide", {**plain, "by": "bob "}) == "duplicate"
            assert payments(r) == [1] * number
            assert await answer(run, "decide", {**plain, "by": "carol"}) == "accepted"
            await run.result()
            assert payments(r) == [1] * (number + 1)


async def test_a_look_alike_is_rejected(rig: StartRig) -> None:
    """Decisions and messages from names with look-alike or invisible characters are rejected."""
    policy = Policy(rules=(ask("pay", terms=Terms(quorum=2)),), approvers=())
    async with rig(clerk(policy), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start(by="zed")
        request = await request_of(run)
        plain = {"decision": "approve", "request": request["request"]}
        assert await answer(run, "decide", {**plain, "by": "alice"}) == "waiting_for_quorum"
        for look_alike in ("\u0430lice", "al\u0456ce", "al\u200bice", "ali\x00ce", "a\u0142ice"):
            told = await answer_of(run.execute_update("decide", {**plain, "by": look_alike}))
            assert (told["outcome"], "is not a valid name" in told["explanation"]) == ("malformed", True), look_alike
            assert await answer(run, "say", {"message": "pay", "by": look_alike}) == "malformed", look_alike
        assert payments(r) == []
        await run.signal("deny", {**plain, "by": "bob"})
        await run.result()


async def test_a_run_for_a_look_alike_fails_and_says_so(rig: StartRig) -> None:
    """A start in such a name fails at once instead of waiting."""
    async with rig(clerk(FINANCE), steps([call("pay", cents=1), say("done")])) as r:
        run = await r.start(by="\u0430lice")
        state = await status_of(run, "failed")
        assert "is not a valid name" in state["result"]


async def test_nobody_makes_requests_in_anothers_name(rig: StartRig) -> None:
    """If requesters may not decide, unsigned, forged and replayed messages are rejected.

    So Alice cannot ask as Zed and then approve. Her signed message counts, and she approves nothing from then on.
    """
    script = steps([say("what shall I pay?"), call("pay", cents=1), say("done")])
    async with rig(clerk(OTHERS), script) as r:
        run = await r.start("wait", by="dave", idle_limit=600)
        await status_of(run, "waiting_message")
        assert await answer(run, "say", {"message": "pay 1", "by": "zed"}) == "unsigned"
        assert await answer(run, "say", "pay 1") == "unsigned"
        forged = message(run.id, "pay 1", by="bob", key=KEYS["alice"])
        assert await answer(run, "say", forged) == "bad_signature"
        elsewhere = message("another", "pay 1", by="alice")
        assert await answer(run, "say", elsewhere) == "bad_signature"
        right = message(run.id, "pay 1", by="alice")
        assert await answer(run, "say", {**right, "message": "pay 1000"}) == "bad_signature"
        assert await answer(run, "say", right) == "accepted"
        request = await request_of(run)
        assert await answer(run, "say", right) == "duplicate"
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "not_entitled"
        assert await answer(run, "decide", decision(run.id, request, by="dave")) == "not_entitled"
        assert payments(r) == []
        assert await answer(run, "decide", decision(run.id, request, by="bob")) == "accepted"
        await status_of(run, "waiting_message")
        await run.cancel()
        with pytest.raises(WorkflowFailureError):
            await run.result()
        assert payments(r) == [1]
        events = await check_thread(r.client, run)
        messages = [event for event in events if isinstance(event, UserMessageReceived)]
        assert [(event.by, event.proof) for event in messages] == [("dave", ""), ("alice", "signed")]
        assert not any(isinstance(event, SignalRejected) for event in events)
