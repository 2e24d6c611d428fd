"""Authority on a real server: signed decisions, edits, time, hostile input. For the rules see
tests/unit/core/run/test_authority.py.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import Agent, Approver, Catalog, Policy, Terms, ToolContext, ask, deny, tool
from holdfast.core.authority.signatures import encode_key, public_key, sign
from holdfast.core.authority.statements import Decision
from holdfast.core.log.events import DecisionReceived
from holdfast.testing import call, say, steps, together
from tests.support.rig import StartRig, answer_of, check_thread, eventually, runs_of, status_of

ALICE, BOB, MALLORY = (encode_key(bytes([number]) * 32) for number in range(1, 4))
PEOPLE = (
    Approver(name="alice", roles=("finance",), keys=(public_key(ALICE),)),
    Approver(name="bob", keys=(public_key(BOB),)),
)


@tool(effect="unsafe")
def pay(cents: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{context.key} {cents}\n")
    return f"paid {cents}"


def desk_of(policy: Policy) -> Catalog:
    """Return a clerk who pays under that policy."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=policy, tools=[pay])])


def signed(thread: str, request: dict[str, Any], key: str, **said: Any) -> dict[str, Any]:
    """Return a signed decision on a request."""
    payload = {"decision": "approve", "request": request["request"], "by": "alice", "digest": request["digest"], **said}
    signature = sign(key, Decision.model_validate(payload).signed_bytes(thread))
    return {**payload, "signature": signature}


async def test_only_signed_calls_run(rig: StartRig) -> None:
    """An unsigned, forged, repeated or misdirected decision is recorded and rejected; two signed ones, one edited, each
    run their call once.
    """
    policy = Policy(rules=(ask("pay", terms=Terms(by=("finance",))),), approvers=PEOPLE, signatures="required")
    script = steps([together(call("pay", cents=1), call("pay", cents=2_000)), say("done")])
    async with rig(desk_of(policy), script) as r:
        run = await r.start()
        state = await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 2)
        first, second = state["pending"]

        async def decide(payload: Any) -> str:
            answer: dict[str, str] = await answer_of(run.execute_update("decide", payload))
            return answer["outcome"]

        right = signed(run.id, first, ALICE)
        assert await decide({key: value for key, value in right.items() if key != "signature"}) == "unsigned"
        assert await decide(signed(run.id, first, MALLORY)) == "bad_signature"
        assert await decide(signed(run.id, first, BOB, by="bob")) == "not_entitled"
        assert await decide({**right, "request": second["request"]}) == "digest_mismatch"
        assert await decide(signed("another", first, ALICE)) == "bad_signature"
        assert not (r.workspace / "paid").exists()
        assert await decide(right) == "accepted"
        assert await decide(right) == "duplicate"
        await run.signal("approve", signed(run.id, second, ALICE, arguments={"cents": 20}))
        assert (await run.result())["result"] == "done"
        assert sorted(line.split()[1] for line in (r.workspace / "paid").read_text().splitlines()) == ["1", "20"]
        events = await check_thread(r.client, run)
        proofs = Counter(event.proof for event in events if isinstance(event, DecisionReceived))
        assert proofs == {"signed": 2}, "what an update is refused for leaves no trace"


def hostile(chance: random.Random) -> Any:
    """Return a message that no Holdfast client would send."""
    fields: list[Any] = [None, True, 0, -1, 1e308, "", "1", "2", "\ud800", "x" * 3_000, [], [[]], {}, {"request": "1"}]
    decisions = ["approve", "deny", "respond", "happened", "undo", "delegate_authority", "__class__", "approve\x00"]
    match chance.randrange(4):
        case 0:
            return chance.choice(fields)
        case 1:
            return json.dumps(chance.choice(fields[:8]))
        case 2:
            return {chance.choice(["request", "by", "digest", "arguments", "signature"]): chance.choice(fields)}
        case _:
            signature, digest = chance.choice(["", "x" * 86, 1]), chance.choice(["0" * 64, None, 7])
            payload = {name: chance.choice(fields) for name in ("request", "by", "arguments", "result", "text")}
            return {
                **payload,
                "kind": "narrow",
                "decision": chance.choice(decisions),
                "signature": signature,
                "digest": digest,
            }


@contextmanager
def tolerate_continue_as_new() -> Iterator[None]:
    """Ignore that the server rejects an update while the run continues as new: it can be sent again."""
    try:
        yield
    except RPCError as error:
        if error.status is not RPCStatusCode.FAILED_PRECONDITION:
            raise


@pytest.mark.parametrize("count", [150, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_no_hostile_input_harms_a_run(rig: StartRig, count: int) -> None:
    """For signals and updates of any name and shape, no workflow task fails, nothing runs, and the run completes."""
    chance = random.Random(count)
    policy = Policy(rules=(deny("pay", when="args.cents > 9"), ask("pay")), approvers=PEOPLE, signatures="required")
    async with rig(desk_of(policy), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        state = await status_of(run, "waiting_approval")
        names = [
            "approve",
            "deny",
            "respond",
            "reconcile",
            "delegate_authority",
            "revoke",
            "lift",
            "refine",
            "retry",
            "x" * 500,
        ]

        async def send() -> None:
            payload = hostile(chance)
            with suppress(WorkflowUpdateFailedError, UnicodeEncodeError, ValueError), tolerate_continue_as_new():
                if chance.random() < 0.5:
                    await run.signal(chance.choice(names), payload)
                else:
                    name = chance.choice(["decide", "delegate_authority", "revoke", "lift", "refine"])
                    answer = await answer_of(run.execute_update(name, payload))
                    assert answer["outcome"] not in ("accepted", "waiting_for_quorum", "queued", "interrupting")

        for _ in range(0, count, 10):
            await asyncio.gather(*(send() for _ in range(10)))
        assert not (r.workspace / "paid").exists()
        await run.signal("approve", signed(run.id, state["pending"][0], ALICE))
        assert (await run.result())["result"] == "done"
        for each in await runs_of(r.client, run):
            for event in (await each.fetch_history()).events:
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    cause = event.workflow_task_failed_event_attributes.cause
                    # The server's own rejection: a signal arrived as the run was about to continue as new.
                    assert cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND, event
        await check_thread(r.client, run)
