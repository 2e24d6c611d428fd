"""Long runs on a real server: context compaction, continue-as-new, follow-up messages, and changing workers.

Each test ends with `check_thread`: the histories of all Temporal runs replay, and yield the reported events.
"""

import asyncio
import json
import random
import re
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import (
    Client,
    RPCError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)

from holdfast import Agent, Catalog, Limits, Policy, ToolContext, allow, tool
from holdfast.client.threads import Threads
from holdfast.core.llm.blocks import ImageBlock, TextBlock
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import UserMessage
from holdfast.core.log.events import AgentEvent
from holdfast.core.run.rules import refusals
from holdfast.core.run.rules.compaction import INSTRUCTION
from holdfast.testing import Conversation, Reply, call, fail, hang, say, steps, together
from tests.support.rig import Rig, StartRig, answer_of, check_thread, events_of, eventually, runs_of, status_of
from tests.support.runs import UNGUARDED, agent_spec, calls, says
from tests.workflow.test_history import SPEC, Desk, Handle, begin, deciding, ended, working


@tool(effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"it is {at}"


@tool(effect="unsafe")
def pay(amount: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{context.key} {amount}\n")
    return f"paid {amount}"


def catalog(**limits: Any) -> Catalog:
    """Return an agent that may look, must ask to pay, and whose runs continue as new often."""
    options = {"history_events": 60, "max_steps": 1_000, **UNGUARDED, **limits}
    agent = Agent(
        name="clerk",
        instructions="Work.",
        policy=Policy(rules=(allow("look"),)),
        limits=Limits(**options),
        tools=[look, pay],
    )
    return Catalog(agents=[agent])


def amounts_paid(workspace: Path) -> list[int]:
    """Return the amounts that were paid, each effect once."""
    lines = (workspace / "paid").read_text().splitlines()
    keys = Counter(line.split()[0] for line in lines)
    assert set(keys.values()) == {1}, "an effect happened twice"
    return sorted(int(line.split()[1]) for line in lines)


def count(events: list[AgentEvent], kind: str) -> int:
    """Return the number of events of that type."""
    return sum(event.type == kind for event in events)


def pends(most: int, state: dict[str, Any]) -> bool:
    """Whether at most that many requests wait for a decision."""
    return len(state["pending"]) <= most


async def recorded_count(rig: Rig, thread: str) -> int:
    """Return the number of events in the permanent record."""
    return await rig.threads.length(thread)


async def test_a_run_continues_as_new_with_one_log(rig: StartRig) -> None:
    """Sixteen steps in several Temporal runs have one chain of events and one transcript; every request extends it."""
    script = steps([call("look", at=str(n)) for n in range(15)] + [say("done")])
    async with rig(catalog(history_events=45), script) as r:
        run = await r.start("look around")
        result = await run.result()
        assert (result["result"], result["steps"]) == ("done", 16)
        bodies = [request.body for request in r.llm.requests]
        for earlier, later in pairwise(bodies):
            assert later.startswith(earlier[:-2])
        events = await check_thread(r.client, run)
        assert events[-1].type == "run_finished"
        assert count(events, "run_continued") >= 2
        assert await recorded_count(r, run.id) == len(events)


async def test_a_step_of_many_calls_continues_as_new_with_open_requests(rig: StartRig) -> None:
    """Thirty-two parallel calls, eight of which ask, are decided in any order over Temporal runs; each runs once."""
    tool_calls = [call("pay", amount=n // 4) if n % 4 == 0 else call("look", at=str(n)) for n in range(32)]
    async with rig(catalog(history_events=30), steps([together(*tool_calls), say("done")])) as r:
        run = await r.start()
        await eventually(lambda: run.query("state"), lambda state: len(state["pending"]) == 8)
        numbers = [str(number) for number in range(1, 9)]
        random.Random(1).shuffle(numbers)
        for decided, number in enumerate(numbers, 1):
            await run.signal("deny" if number == "7" else "approve", {"request": number, "by": "alice"})
            # One by one: on a busy machine, a single workflow task might take them all, and no history would be full.
            await eventually(lambda: run.query("state"), partial(pends, 8 - decided))
        await run.result()
        assert amounts_paid(r.workspace) == [n for n in range(8) if n != 6]
        results = [m["content"] for m in r.llm.requests[-1].json()["messages"] if m["role"] == "tool"]
        wanted = [f"paid {n // 4}" if n % 4 == 0 else f"it is {n}" for n in range(32)]
        wanted[24] = "Denied by alice"
        assert results == wanted
        assert count(await check_thread(r.client, run), "run_continued") >= 2


@pytest.mark.slow
async def test_no_message_of_a_storm_is_lost_across_temporal_runs(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During continue-as-new, each of two hundred signals is recorded once, and each of twenty updates answered."""
    monkeypatch.setattr(refusals, "RECORDED", 1_000)  # a slow machine may refuse over a hundred
    chance = random.Random(7)
    steps_before_the_end = 10

    def script(conversation: Conversation) -> Reply:
        if conversation.replies < steps_before_the_end:
            return together(call("pay", amount=conversation.replies), call("pay", amount=100 + conversation.replies))
        if conversation.replies == steps_before_the_end:
            return call("pay", amount=999)
        return say("done")

    async with rig(catalog(history_events=250), script) as r:
        run = await r.start()
        last = str(2 * steps_before_the_end + 1)
        answers: dict[str, str] = {}

        async def signal(number: int) -> None:
            await asyncio.sleep(chance.random() * 3)
            request = {"request": str(chance.randrange(1, 2 * steps_before_the_end + 1)), "by": f"s{number}"}
            match number % 4:
                case 0:
                    await run.signal("say", {"message": f"<s{number}>", "by": f"s{number}"})
                case 1:
                    await run.signal(f"s{number}", {"request": last})
                case 2:
                    await run.signal("deny" if number % 8 == 2 else "approve", request)
                case _:
                    await run.signal("approve", request)

        async def update(number: int) -> None:
            await asyncio.sleep(chance.random() * 3)
            name, by = ("say", f"u{number}"), f"u{number}"
            request = str(chance.randrange(1, 2 * steps_before_the_end + 1))
            payload = {"message": f"<u{number}>", "by": by}
            if number % 2:
                name, payload = ("decide", by), {"decision": "approve", "request": request, "by": by}
            while by not in answers:
                try:
                    answers[by] = (await answer_of(run.execute_update(name[0], payload, id=name[1])))["outcome"]
                except (RPCError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError):
                    await asyncio.sleep(0.1)  # the Temporal run that it reached has ended

        await asyncio.gather(*map(signal, range(200)), *map(update, range(20)))
        while (state := await run.query("state"))["step"] <= steps_before_the_end:
            for pending in state["pending"]:
                await run.signal("approve", {"request": pending["request"], "by": "alice"})
            await asyncio.sleep(0.05)
        await run.signal("approve", {"request": last, "by": "alice"})
        await run.result()
        events = await check_thread(r.client, run)
        assert count(events, "run_continued") >= 2
        counts = Counter(
            event.signal if event.type == "signal_rejected" else event.by
            for event in events
            if event.type in ("signal_rejected", "decision_received", "user_message_received")
        )
        assert {f"s{number}": counts[f"s{number}"] for number in range(200)} == {
            f"s{number}": 1 for number in range(200)
        }
        taken = {by: int(outcome in ("accepted", "queued")) for by, outcome in answers.items()}
        assert {by: counts[by] for by in taken} == taken, "what an update is refused for leaves no trace"
        accepted = [e for e in events if e.type == "decision_received" and e.outcome == "accepted"]
        assert len({event.request for event in accepted}) == len(accepted) == int(last)
        assert len(amounts_paid(r.workspace)) == sum(event.decision == "approve" for event in accepted)
        spoken = r.llm.requests[-1].body
        assert all(f"<s{number}>".encode() in spoken for number in range(0, 200, 4))
        assert await recorded_count(r, run.id) == len(events)


def summing_up(conversation: Conversation, until: int) -> Reply:
    """Look at one thing after another; a summary gives their number."""
    text = conversation.messages[1]["content"]
    before = re.search(r"looked at (\d+)", text if isinstance(text, str) else "")
    looked = int(before[1]) if before else 0
    results = [message for message in conversation.messages if message["role"] == "tool"]
    looked += len(results) - ("kept" in conversation.request)
    if conversation.last_user_message == INSTRUCTION:
        return say(f"looked at {looked}")
    return call("look", at=f"{looked} " + "x" * 400) if looked < until else say(f"done {looked}")


async def test_a_transcript_is_compacted_by_its_reported_size(rig: StartRig) -> None:
    """On the wire, requests extend each other, up to and including the compaction's; then a new prefix starts."""
    script = lambda conversation: summing_up(conversation, 16)  # noqa: E731
    async with rig(catalog(compaction_tokens=1_500, history_events=120), script) as r:
        run = await r.start("look at sixteen things")
        assert (await run.result())["result"] == "done 16"
        bodies = [request.body for request in r.llm.requests]
        folds = [number for number, body in enumerate(bodies) if b"is about to be compacted" in body]
        assert len(folds) >= 2
        tail = b',"tool_choice":"none"}'
        for number, (earlier, later) in enumerate(pairwise(bodies)):
            if number in folds:
                assert earlier.endswith(tail)
                messages = r.llm.requests[number + 1].json()["messages"]
                assert [message["role"] for message in messages] == ["system", "user"]
                assert "look at sixteen things" in messages[1]["content"]
            else:
                assert later.startswith(earlier[:-2])
        events = await check_thread(r.client, run)
        assert count(events, "context_compacted") == len(folds)
        assert count(events, "run_continued") >= 1


@pytest.mark.extended
async def test_a_request_that_does_not_fit_is_compacted_but_unanswered_messages_stay(rig: StartRig) -> None:
    """On 'context too long', the answered part is compacted, and the last result stays verbatim."""
    too_long = 6_000

    def script(conversation: Conversation) -> Reply:
        size = sum(len(str(message)) for message in conversation.messages)
        folding_now = conversation.last_user_message == INSTRUCTION
        if size > too_long and not folding_now:
            return fail(400, "this model's maximum context length is small", code="context_length_exceeded")
        results = [str(message["content"]) for message in conversation.messages if message["role"] == "tool"]
        seen = [int(actual[1]) for text in [str(conversation.messages[1]["content"]), *results] if (
            actual := re.search(r"(?:looked at|it is) (\d+)", text)
        )]  # fmt: skip
        looked = max(seen, default=0)
        if folding_now:
            return say(f"looked at {looked}")
        return call("look", at=f"{looked + 1} " + "x" * 900) if looked < 9 else say(f"done {looked}")

    async with rig(catalog(history_events=80), script) as r:
        run = await r.start("look at nine things")
        assert (await run.result())["result"] == "done 9"
        events = await check_thread(r.client, run)
        assert count(events, "context_exceeded") >= 1
        assert count(events, "run_continued") >= 1
        folds = [event for event in events if event.type == "context_compacted"]
        assert [event.kept for event in folds] == [2] * len(folds), "the reply and its result"
        arguments = [json.loads(event.call.arguments) for event in events if event.type == "tool_call_requested"]
        assert [each["at"].split()[0] for each in arguments] == [f"{n}" for n in range(1, 10)], (
            "nothing was looked at twice"
        )


@pytest.mark.slow
async def test_an_image_of_the_task_survives_compaction_and_cold_workers(rig: StartRig) -> None:
    """Compacted, carried into a new Temporal run and read from the record, the LLM gets exactly the same block."""
    task = (TextBlock(text="look at this"), ImageBlock(data="A" * 20_000, media_type="image/png"))
    sent = json.loads(ChatCompletions().encode(UserMessage(content=task)))["content"]
    assert sent[1]["image_url"]["url"].startswith("data:image/png;base64,AAA")

    def script(conversation: Conversation) -> Reply:
        if conversation.last_user_message == INSTRUCTION:
            return say("looked")
        results = [str(message["content"]) for message in conversation.messages if message["role"] == "tool"]
        if "This conversation was compacted" not in str(conversation.messages[1]["content"]):
            return call("look", at="1")
        return call("pay", amount=1) if not results else say("done")

    async with rig(catalog(compaction_tokens=10, history_events=20), script) as r:
        run = await r.start(task)
        await eventually(lambda: run.query("pending_approvals"), bool)
        await eventually(lambda: recorded_count(r, run.id), bool)
        await run.signal("approve", {"request": "1", "by": "alice"})
        assert (await run.result())["result"] == "done"
        events = await check_thread(r.client, run)
        (folded,) = [event for event in events if event.type == "context_compacted"]
        assert folded.originals == (1,)
        assert count(events, "run_continued") >= 1
        for request in r.llm.requests:
            assert [message["content"] for message in request.json()["messages"]].count(sent) == 1


@pytest.mark.extended
async def test_an_interrupt_abandons_the_llm_call_in_flight(rig: StartRig) -> None:
    """`queue` waits, `reject` is rejected, `interrupt` ends the HTTP request: the next one has the message."""

    def script(conversation: Conversation) -> Reply:
        return say("stopped") if conversation.last_user_message == "stop" else hang()

    async with rig(catalog(), script) as r:
        run = await r.start()
        await eventually(lambda: asyncio.sleep(0, len(r.llm.requests)), lambda count: count == 1)
        outcomes = [
            (await answer_of(run.execute_update("say", payload)))["outcome"]
            for payload in (
                {"message": "wait", "when_busy": "queue"},
                {"message": "now or never", "when_busy": "reject"},
                {"message": [{"type": "text", "text": "stop"}], "when_busy": "interrupt", "by": "alice"},
            )
        ]
        assert outcomes == ["queued", "busy", "interrupting"]
        assert (await run.result())["result"] == "stopped"
        messages = [m["content"] for m in r.llm.requests[-1].json()["messages"] if m["role"] == "user"]
        assert messages == ["do it", "wait", "stop"]
        await check_thread(r.client, run)


@pytest.mark.extended
async def test_another_worker_takes_over_in_the_middle_of_a_thread(rig: StartRig) -> None:
    """A worker without a cache rebuilds the transcript from the record and the run: the LLM gets the same bytes."""
    script = steps([call("look", at=str(n)) for n in range(6)] + [call("pay", amount=1), say("done")])
    offer = catalog(history_events=40)
    async with rig(offer, script) as one:
        run = await one.start()
        await status_of(run, "waiting_approval")
        assert len(await runs_of(one.client, run)) >= 2
    async with rig(offer, script, task_queue=one.task_queue) as other:
        await run.signal("approve", {"request": "1"})
        assert (await run.result())["result"] == "done"
        assert len(other.llm.requests) == 1
        assert other.llm.requests[0].body.startswith(one.llm.requests[-1].body[:-2])
        assert b"it is 0" in other.llm.requests[0].body
        await check_thread(other.client, run)


@pytest.mark.parametrize("door", ["signal", pytest.param("update", marks=pytest.mark.extended)])
async def test_a_message_that_arrives_with_the_final_reply_is_accepted(client: Client, door: str) -> None:
    """If the LLM's final reply and a message share a workflow task, the run does not close before it has answered."""
    desk = Desk(says("done"), says("done again"), spec=agent_spec())
    desk.llm_open.clear()
    async with working(client, desk) as queue:
        async with deciding(client, queue, desk):
            run = await begin(client, queue)
            await eventually(lambda: asyncio.sleep(0, len(desk.began)), lambda count: count == 1)
        desk.llm_open.set()
        await ended(run, 2)
        payload = {"message": "one more thing", "by": "alice"}
        sending = asyncio.create_task(
            run.signal("say", payload) if door == "signal" else run.execute_update("say", payload)
        )
        await asyncio.sleep(0.1)
        async with deciding(client, queue, desk):
            answer = await sending
            assert door == "signal" or answer["outcome"] == "queued"
            assert (await run.result())["result"] == "done again"
            assert count(await check_thread(client, run), "message_taken") == 1


@pytest.mark.extended
async def test_a_message_that_arrives_while_the_run_is_archived_is_too_late(client: Client) -> None:
    """The run has its result and archives its events: the sender gets `too_late`, and may re-open the thread."""
    desk = Desk(says("done"), spec=agent_spec())
    desk.record_open.clear()
    async with working(client, desk) as queue, deciding(client, queue, desk):
        run = await begin(client, queue)
        await status_of(run, "completed")
        assert (await answer_of(run.execute_update("say", "one more thing")))["outcome"] == "too_late"
        await run.signal("say", "and another")
        await run.signal("approve", {"request": "1"})
        desk.record_open.set()
        assert (await run.result())["result"] == "done"
        events = await check_thread(client, run)
        assert [event.type for event in events[-3:]] == ["run_finished", "signal_rejected", "decision_received"]
        shown = await Threads(client, task_queue=queue).state(run.id)
        assert (shown["status"], shown["result"]) == ("completed", "done"), "late signals do not hide how it ended"


@pytest.mark.slow
@pytest.mark.parametrize("first", ["update", "signal"])
async def test_a_query_that_overtakes_a_workflow_task_leaves_a_history_that_replays(client: Client, first: str) -> None:
    """A cold worker gets queries first and a signal after the last task, with or without an update, ten times.

    The SDK shows a run the signal in the time of the task before it, and the worker drops that run
    (`workflow_runners`).
    """

    async def attempt() -> Handle:
        desk = Desk(calls("pay", "look"), calls("look", first=9), says("done"), spec=SPEC)
        desk.open.set()
        async with working(client, desk) as queue:
            async with deciding(client, queue, desk, sticky=timedelta(seconds=1), debug_mode=False):
                run = await begin(client, queue)
                await status_of(run, "waiting_approval")

            async def ask() -> None:
                for _ in range(4):
                    with suppress(RPCError):
                        await run.query("state", rpc_timeout=timedelta(seconds=8))

            asking = asyncio.gather(*(ask() for _ in range(4)))
            if first == "update":
                with suppress(WorkflowUpdateRPCTimeoutOrCancelledError, RPCError):
                    await run.execute_update("decide", {"decision": "approve"}, rpc_timeout=timedelta(seconds=1.5))
            else:
                await asyncio.sleep(1.5)  # now queries go to any worker: the first one's queue is abandoned
                await run.signal("whatever")
            async with deciding(client, queue, desk, sticky=timedelta(seconds=1), debug_mode=False):
                if first == "signal":
                    await eventually(lambda: events_of(run), lambda events: count(events, "signal_rejected") == 1)
                await run.signal("approve", {"request": "1", "by": "alice"})
                await run.result()
                await asking
                await check_thread(client, run)
        return run

    await asyncio.gather(*(attempt() for _ in range(10)))


@pytest.mark.slow
async def test_a_run_that_waits_for_weeks_continues_as_new_too(rig: StartRig) -> None:
    """Meaningless signals fill the history of a waiting run: it continues as new, and keeps waiting."""
    async with rig(catalog(history_events=30), steps([call("pay", amount=1), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        for number in range(12):
            await run.signal("whatever", number)
            await asyncio.sleep(0.05)
        await eventually(lambda: runs_of(r.client, run), lambda runs: len(runs) >= 2)
        assert (await status_of(run, "waiting_approval"))["pending"][0]["request"] == "1"
        await run.signal("approve", {"request": "1"})
        await run.result()
        events = await check_thread(r.client, run)
        assert count(events, "signal_rejected") == 12
        assert amounts_paid(r.workspace) == [1]
