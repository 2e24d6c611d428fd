"""Numbers that JSON parsers read differently, and lone surrogates, stop no run and confuse no two calls."""

import json
import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import Field
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError

from holdfast import Agent, Catalog, Policy, ToolContext, allow, ask, deny, tool
from holdfast.audit.evidence.verify import verify
from holdfast.client.threads import Threads
from holdfast.core.agents.agent import Limits
from holdfast.core.authority.approvals import shown_digest
from holdfast.core.log.events import ApprovalRequested, DecisionReceived, ToolCallFinished
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.errors import CatalogError
from holdfast.testing import Conversation, Reply, call, call_verbatim, say, steps, together
from tests.support.attacker import plain
from tests.support.people import clerk, payments, pending, request_of
from tests.support.rig import StartRig, answer_of, check_thread, eventually, status_of
from tests.support.runs import UNGUARDED

ODD = ["1180591620717411303424", "-9007199254740993", "1e400", "-1e400", "NaN", "Infinity", "1e300", "-0.0"]
ODD += ['"\\ud800"', '{"\\udfff": 1}', '{"\\ufb33": 0, "😀": 5e-324}', "9" * 400, "9" * 5_000]
ODD += ["[" * 150 + "]" * 150, "[" * 900 + "]" * 900]
"""JSON texts on which parsers differ, and some that none accepts."""

FIELDS = [
    "request",
    "by",
    "reason",
    "arguments",
    "digest",
    "result",
    "message",
    "to",
    "seconds",
    "until",
    "signature",
    "constraint",
]
SIGNALS = [
    "approve",
    "deny",
    "respond",
    "reconcile",
    "delegate_authority",
    "revoke",
    "lift",
    "refine",
    "retry",
    "say",
    "of_tomorrow",
]


@tool(effect="unsafe")
def transfer(account: int, amount: float, context: ToolContext, note: Any = None) -> str:
    """Transfer: append a line to a file."""
    with (context.workspace / "transfers").open("a") as file:
        file.write(json.dumps([account, amount, note]) + "\n")
    return "transferred"


@tool(effect="read")
def measure() -> dict[str, Any]:
    """Return NaN."""
    return {"big": 2**70, "none": math.nan, "much": math.inf, "share": 600.0}


def transfers(folder: Path) -> list[Any]:
    """Return the transfers in order."""
    file = folder / "transfers"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def bank(*rules: Any, **agent: Any) -> Catalog:
    """Return a clerk who transfers under these rules."""
    policy = Policy(rules=rules or (ask("transfer"),))
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=policy, **agent, tools=[transfer, measure])])


async def test_two_ids_beyond_2_to_the_53_are_two_calls(rig: StartRig) -> None:
    """Both ids are the same double, but each is shown, approved, keyed and run as the LLM wrote it."""
    ids = [2**53 + 1, 2**53, 2**70 + 1]
    script = steps([together(*(call("transfer", account=each, amount=600.0) for each in ids)), say("done")])
    async with rig(bank(), script) as r:
        run = await r.start()
        requests = await pending(run, 3)
        assert [request["arguments"]["account"] for request in requests] == ids
        assert len({request["digest"] for request in requests}) == len({each["effect_key"] for each in requests}) == 3
        assert all(shown_digest(request) == request["digest"] for request in requests)
        first, second, third = requests
        wrong = {"decision": "approve", "request": "1", "by": "ann", "digest": second["digest"]}
        assert (await answer_of(run.execute_update("decide", wrong)))["outcome"] == "digest_mismatch"
        await run.signal("approve", {"request": "1", "by": "ann", "digest": first["digest"], "remember": True})
        await run.signal("deny", {"request": "2", "by": "ann"})
        await run.signal("approve", {"request": "3", "by": "ann", "digest": third["digest"]})
        assert (await run.result())["result"] == "done"
        assert sorted(transfers(r.workspace)) == [[ids[0], 600.0, None], [ids[2], 600.0, None]]
        events = await check_thread(r.client, run)
        asked = [event.request.arguments for event in events if isinstance(event, ApprovalRequested)]
        assert asked[0] == '{"account":9007199254740993,"amount":600,"note":null}'


async def test_a_condition_may_calculate_with_a_whole_float(rig: StartRig) -> None:
    """600.0 is written as 600, and is a float for the policy as it is for the tool; an id stays an integer."""
    rules = (deny("transfer", when="args.amount * 1.5 > 1000.0"), allow("transfer", when="args.account + 1 > 5"))
    script = steps([call("transfer", account=5, amount=600.0), call("transfer", account=5, amount=700), say("done")])
    async with rig(bank(*rules), script) as r:
        run = await r.start()
        await run.result()
        assert transfers(r.workspace) == [[5, 600.0, None]]
        assert "600.0" in (r.workspace / "transfers").read_text()
        await check_thread(r.client, run)


async def test_no_argument_of_a_call_stops_a_run(rig: StartRig) -> None:
    """At any position of the arguments, the call runs with the exact value, or the LLM reads why not."""

    def script(conversation: Conversation) -> Reply:
        if conversation.replies:
            return say("done")
        arguments = []
        for odd in ODD[int(conversation.last_user_message) :: 3]:
            arguments += [f'{{"account": {odd}, "amount": 1}}', f'{{"account": 1, "amount": {odd}}}']
            arguments += [f'{{"account": 1, "amount": 1, "note": [{odd}, 5.0]}}']
        return together(*(call_verbatim("transfer", each) for each in arguments))

    async with rig(bank(allow("transfer")), script) as r:
        for number in range(3):
            run = await r.start(str(number))
            assert (await run.result())["result"] == "done"
            events = await check_thread(r.client, run)
            ended = [event for event in events if isinstance(event, ToolCallFinished)]
            assert len(ended) == 3 * len(ODD[number::3])
            assert {event.status for event in ended} <= {"ok", "invalid"}
        assert [2**70, 1.0, None] in transfers(r.workspace)
        assert [1, 1.0, [2**70, 5]] in transfers(r.workspace)


def pays_once(conversation: Conversation) -> Reply:
    """Pay, and answer all messages."""
    return say("done") if conversation.replies else call("pay", cents=5)


@pytest.mark.extended
@pytest.mark.parametrize("several", [False, True])
async def test_no_signal_or_update_stops_a_run(rig: StartRig, several: bool) -> None:
    """After odd values in fields of signals and updates, the right approval counts, and the history replays."""
    async with rig(clerk(Policy(rules=(ask("pay"),))), pays_once) as r:
        run = await r.start()
        await request_of(run)
        for number, odd in enumerate(ODD):
            fields = [FIELDS[(number + step) % len(FIELDS)] for step in range(2)]
            texts = [f'{{"request": "9", "by": "mallory", "decision": "deny", "{field}": {odd}}}' for field in fields]
            edit = f'{{"request": "9", "by": "ann", "decision": "approve", "arguments": {{"cents": {odd}}}}}'
            for step, text in enumerate((odd, edit, *texts)):
                for name in SIGNALS[number % 3 :: 3] if several else [SIGNALS[(number + 3 * step) % len(SIGNALS)]]:
                    both = [text, json.dumps(text)]
                    for sent in both if several else both[number % 2 :][:1]:
                        await _tried(run.signal(name, plain(sent.encode())))
            for text in (edit, *texts):
                for name in ("decide", "say") if several else ("decide",):
                    await _tried(run.execute_update(name, plain(text.encode())))
        request = await request_of(run)
        assert request["request"] == "1"
        decision = {"decision": "approve", "request": "1", "by": "ann", "digest": request["digest"]}
        assert (await answer_of(run.execute_update("decide", decision)))["outcome"] == "accepted"
        await status_of(r.client.get_workflow_handle(run.id), "completed")
        assert payments(r) == [5]
        await check_thread(r.client, run)


async def _tried(sent: Any) -> None:
    """Send a message that the server or the run may reject."""
    with suppress(RPCError, WorkflowUpdateFailedError):
        await answer_of(sent)


async def test_edited_arguments_are_exact_or_rejected(rig: StartRig) -> None:
    """A signature covers doubles: an edit with an integer beyond them is rejected with a reason; 7.0 is 7."""
    async with rig(bank(), steps([call("transfer", account=2**60, amount=1), say("done")])) as r:
        run = await r.start()
        request = await request_of(run)
        assert request["arguments"]["account"] == 2**60
        decision = {"decision": "approve", "request": "1", "by": "ann"}
        for odd in (2**60, 2**70, -(2**53) - 1):
            edit = {**decision, "arguments": {"account": odd, "amount": 2, "note": None}}
            answer = await answer_of(run.execute_update("decide", edit))
            assert answer["outcome"] == "malformed"
            assert f"the integer {odd}, beyond 2^53 - 1" in answer["explanation"]
        for text in [odd for odd in ODD if odd not in ("1e300", "-0.0")]:
            sent = f'{{"decision": "approve", "request": "1", "by": "ann", "arguments": {{"account": {text}}}}}'
            await _tried(run.execute_update("decide", plain(sent.encode())))
            await _tried(run.signal("approve", plain(sent.replace('"account"', '"amount"').encode())))
        edit = {**decision, "arguments": {"account": 7.0, "amount": 1e20, "note": 0.5}}
        assert (await answer_of(run.execute_update("decide", edit)))["outcome"] == "accepted"
        await run.result()
        assert transfers(r.workspace) == [[7, 1e20, 0.5]]
        events = await check_thread(r.client, run)
        (received,) = [event for event in events if isinstance(event, DecisionReceived) and event.outcome == "accepted"]
        assert received.arguments == {"account": 7, "amount": 10**20, "note": 0.5}


@pytest.mark.parametrize("fields", [1, pytest.param(3, marks=pytest.mark.extended)])
async def test_no_plain_start_gets_stuck_forever(rig: StartRig, fields: int) -> None:
    """Anyone can start a run with any JSON: it completes, or fails with a typed error, and its log verifies."""
    async with rig(clerk(Policy()), steps([say("done")])) as r:
        for number, odd in enumerate(ODD):
            blocks = f'[{{"type": "text", "text": "x", "odd": {odd}}}]'
            starts = [f'{{"task": {blocks}}}', f'{{"task": "x", "idle_limit": {odd}}}', f'{{"task": "x", "by": {odd}}}']
            for start in (starts[number % 3 :] + starts)[:fields]:
                run = await _started(r.client, start, r.task_queue)
                state = await eventually(partial(_outcome, run), bool)
                assert state in ("completed", "failed", "waiting_message"), start
                if state == "waiting_message":
                    await run.cancel()
                verified = await verify(Threads(r.client), run.id)
                assert (verified.reason, verified.ok) == ("", True), start


async def _started(client: Client, start: str, queue: str) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(WORKFLOW, plain(start.encode()), id=f"odd-{uuid4().hex[:8]}", task_queue=queue)


async def _outcome(run: WorkflowHandle[Any, Any]) -> str:
    """Return how the run ended, or that it waits; empty until then."""
    described = await run.describe()
    if described.status and described.status.name == "RUNNING":
        state: dict[str, Any] = await run.query("state")
        return state["status"] if state["status"] == "waiting_message" else ""
    return described.status.name.lower() if described.status else ""


@pytest.mark.extended
async def test_no_reply_of_a_provider_stops_a_run(rig: StartRig) -> None:
    """Any token counts, unknown fields and numbers of blocks let the run continue, and its log can be verified."""
    numbers = [odd for odd in ODD if len(odd) < 1_000]  # the worker rejects other replies as invalid, and asks again

    def script(conversation: Conversation) -> Reply:
        number = conversation.replies
        if number >= len(numbers):
            return say("done")
        message = f'{{"content": "…", "odd": {{"x": {numbers[number]}, "y": 5.0}}, "tool_calls": [{{"id": "c{number}", '
        message += '"function": {"name": "measure", "arguments": "{}"}}]}'
        usage = f'{{"prompt_tokens": 9.0, "prompt_tokens_details": {{"cached_tokens": {numbers[number]}}}}}'
        body = f'{{"choices": [{{"message": {message}}}], "usage": {usage}, "model": "m\\ud800"}}'
        return Reply(body=body.encode())

    async with rig(bank(limits=Limits(**UNGUARDED)), script) as r:
        run = await r.start()
        assert (await run.result())["result"] == "done"
        await check_thread(r.client, run)


def of_63_bits(account: Annotated[int, Field(le=2**63 - 1)]) -> None:
    """Take an id of 63 bits."""


def of_default(account: int = 2**60) -> None:
    """Take an argument with a large default."""


@pytest.mark.parametrize(
    ("agent", "function", "words"),
    [
        ({}, of_63_bits, "tool 'of_63_bits' cannot be recorded: .* the integer 9223372036854775807"),
        ({}, of_default, "tool 'of_default' cannot be recorded: .* the integer 1152921504606846976"),
        ({"llm_options": {"seed": 2**63 - 1}}, measure.function, "agent 'a' cannot be recorded"),
        ({"limits": Limits(idle_limit=math.inf)}, measure.function, "agent 'a' .* NaN or infinity"),
        ({"limits": Limits(max_steps=2**60)}, measure.function, "agent 'a' cannot be recorded"),
    ],
)
def test_an_agent_that_cannot_be_recorded_is_rejected_when_the_worker_starts(
    agent: dict[str, Any], function: Any, words: str
) -> None:
    """A run records its agent and the agent's hash, so the developer gets the error at startup, not the first run."""
    with pytest.raises(CatalogError, match=words):
        Catalog(agents=[Agent(name="a", instructions="", **agent, tools=[tool(effect="read")(function)])])
