"""An edited call is judged like the LLM's own, and is a new request if its approval requirements differ."""

from holdfast import Policy, Terms, ask, deny
from holdfast.core.authority.policy import allow
from holdfast.testing import call, say, steps
from tests.support.people import PEOPLE, answer, clerk, decision, payments, pending, request_of
from tests.support.rig import StartRig, check_thread

RESERVED = Policy(
    rules=(
        deny("pay", when="args.cents > 100000000", reason="never so much"),
        ask("pay", when="args.cents > 10000", reason="much", terms=Terms(by=("head",))),
        allow("pay", when="args.cents < 10"),
        ask("pay", terms=Terms(by=("finance",))),
    ),
    approvers=PEOPLE,
    signatures="required",
)


async def test_an_edit_cannot_bypass_the_rule_of_the_new_arguments(rig: StartRig) -> None:
    """`pay(100)` edited into `pay(99,999,900)` asks the approvers of such payments anew, not the editor."""
    async with rig(clerk(RESERVED), steps([call("pay", cents=100), say("done")])) as r:
        run = await r.start()
        first = await request_of(run)
        edit = decision(run.id, first, by="alice", arguments={"cents": 99_999_900})
        assert await answer(run, "decide", edit) == "judged_anew"
        (second,) = await pending(run)
        assert (second["request"], second["arguments"], second["who"]) == ("2", {"cents": 99_999_900}, ["head"])
        assert (second["edited_by"], second["votes"]) == ("alice", [])
        assert await answer(run, "decide", edit) == "too_late"
        assert await answer(run, "decide", decision(run.id, first, by="bob")) == "too_late"
        assert await answer(run, "decide", decision(run.id, second, by="alice")) == "not_entitled"
        assert payments(r) == []
        # Conversely, Dave decides on large payments, not on small ones.
        back = decision(run.id, second, by="dave", arguments={"cents": 100})
        assert await answer(run, "decide", back) == "judged_anew"
        (third,) = await pending(run)
        assert await answer(run, "decide", decision(run.id, third, by="dave")) == "not_entitled"
        assert await answer(run, "decide", decision(run.id, third, by="bob")) == "accepted"
        await run.result()
        assert payments(r) == [100]
        await check_thread(r.client, run)


async def test_an_edit_is_denied_allowed_or_counted_as_the_policy_says(rig: StartRig) -> None:
    """If the policy denies the edit, it is rejected; under the same requirements it counts; if allowed, it runs."""
    script = steps([call("pay", cents=100), call("pay", cents=200), say("done")])
    async with rig(clerk(RESERVED), script) as r:
        run = await r.start()
        first = await request_of(run)
        never = decision(run.id, first, by="alice", arguments={"cents": 100_000_001})
        assert await answer(run, "decide", never) == "against_policy"
        assert await answer(run, "decide", decision(run.id, first, by="alice", arguments={"cents": 90})) == "accepted"
        second = await request_of(run, "2")
        assert await answer(run, "decide", decision(run.id, second, by="alice", arguments={"cents": 9})) == "accepted"
        await run.result()
        assert payments(r) == [90, 9]
        await check_thread(r.client, run)
