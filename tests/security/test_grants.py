"""A decision authorizes one effect in one run, and no remembered rule counts without its decisions."""

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import Policy, Terms, ask
from holdfast.core.agents.agent import Limits
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import RuleRemembered
from holdfast.testing import call, say, steps
from tests.support.people import PEOPLE, answer, clerk, decision, payments, pending, request_of
from tests.support.rig import Rig, StartRig, check_thread
from tests.support.runs import Thread, agent_spec, loaded_thread, tool_spec
from tests.unit.core.run.test_authority import pays

SIGNED = Policy(rules=(ask("pay", terms=Terms(by=("finance",))),), approvers=PEOPLE, signatures="required")


async def test_a_signed_approval_is_invalid_in_another_run_of_the_thread(rig: StartRig) -> None:
    """One signature pays once: three more runs of the same thread id ask again, by update or by signal."""
    async with rig(clerk(SIGNED), steps([call("pay", cents=100), say("done"), *[call("pay", cents=100)] * 3])) as r:
        run = await r.start(thread="thrice")
        approval = decision("thrice", await request_of(run), by="alice")
        assert await answer(run, "decide", approval) == "accepted"
        await run.result()
        for number in range(3):
            again = await r.start(f"once more, {number}", thread="thrice", resume=True)
            request = await request_of(again)
            assert request["arguments"] == {"cents": 100}
            replayed = {**approval, "request": request["request"]}
            assert await answer(again, "decide", replayed) == "digest_mismatch"
            assert await answer(again, "decide", {**replayed, "digest": request["digest"]}) == "bad_signature"
            await again.signal("approve", replayed)
            (still,) = await pending(again)
            assert still["votes"] == []
            await again.cancel()
            with pytest.raises(WorkflowFailureError):
                await again.result()
        assert payments(r) == [100]


async def test_a_signed_approval_is_invalid_for_the_next_identical_call(rig: StartRig) -> None:
    """Two calls of one run with the same arguments are two effects, and need two signatures."""
    async with rig(clerk(SIGNED), steps([call("pay", cents=7), call("pay", cents=7), say("done")])) as r:
        run = await r.start()
        approval = decision(run.id, await request_of(run), by="alice")
        assert await answer(run, "decide", approval) == "accepted"
        second = await request_of(run, "2")
        assert await answer(run, "decide", {**approval, "request": "2"}) == "digest_mismatch"
        assert await answer(run, "decide", {**approval, "request": "2", "digest": second["digest"]}) == "bad_signature"
        await run.signal("deny", decision(run.id, second, by="alice", decision="deny"))
        await run.result()
        assert payments(r) == [7]
        await check_thread(r.client, run)


def forged_past(*, spec: Policy) -> Thread:
    """Return a thread forged under a policy without signatures: Alice has remembered a payment."""
    parameters = {"type": "object"}
    thread = loaded_thread(agent_spec(tools=(tool_spec("pay", parameters=parameters),), policy=spec, limits=Limits()))
    thread.reply(pays(cents=100))
    assert thread.decide("1", remember=True) == "accepted"
    thread.finish(1, "paid")
    thread.cancel()
    assert [rule.tool for rule in thread.state.authority.rules] == ["pay"]
    return thread


async def plant(rig: Rig, thread: str, past: Thread, *, without: str = "") -> None:
    """Write a forged past into the permanent record, with a correct chain of digests."""
    log = EventLog()
    for event in past.log:
        named = {"thread": thread} if event.type == "run_started" else {}
        if event.type != without:
            log.append(event.model_copy(update={"digest": "", **named}), at=event.at)
    await rig.threads.append(thread, 0, [event_line(event) for event in log.events])


async def test_a_forged_rule_in_the_record_lets_nothing_run(rig: StartRig) -> None:
    """After a forged past with a decision, but without Alice's signature, the re-opened thread asks as usual."""
    past = forged_past(spec=Policy(rules=(ask("pay"),)))
    script = steps([call("pay", cents=100), call("pay", cents=100), say("done")])
    async with rig(clerk(SIGNED), script) as r:
        await plant(r, "forged", past)
        run = await r.start(thread="forged", resume=True, agent="clerk")
        request = await request_of(run)
        assert [rule["rule"] for rule in (await run.query("state"))["remembered"]] == ["1"]
        assert payments(r) == []
        await run.signal("deny", decision("forged", request, by="alice", decision="deny"))
        await run.result()
        assert payments(r) == []


@pytest.mark.parametrize("without", ["decision_received", "approval_requested"])
async def test_a_record_with_an_unfounded_rule_is_rejected(rig: StartRig, without: str) -> None:
    """If a remembered rule lacks its decision, or a decision its request, the run fails and names the event."""
    past = forged_past(spec=Policy(rules=(ask("pay"),)))
    assert any(isinstance(event, RuleRemembered) for event in past.log)
    async with rig(clerk(SIGNED), steps([call("pay", cents=100), say("done")])) as r:
        await plant(r, f"nowhere-{without}", past, without=without)
        run = await r.start(thread=f"nowhere-{without}", resume=True)
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
        assert "The record was forged or altered" in str(failed.value.cause)
        assert payments(r) == []
