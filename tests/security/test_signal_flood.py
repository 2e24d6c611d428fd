"""A run survives a flood of meaningless signals, rejected decisions and messages, and stays small."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.converter import PayloadConverter
from temporalio.service import RPCError

from holdfast import Approver, Policy, ask
from holdfast.client.reading.runs import rejection_answer
from holdfast.core.authority.interventions import INBOX
from holdfast.core.authority.policy import Terms
from holdfast.core.log.event_log import event_line
from holdfast.core.log.events import DecisionReceived, RefusalsCounted, SignalRejected, UserMessageReceived
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.snapshot import MAX_BYTES, TAIL_BYTES, RunSnapshot
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.inputs.interventions import on_signal
from holdfast.core.run.machine import rollover, run_log
from holdfast.core.run.rules import refusals
from holdfast.errors import AnswerForged
from holdfast.testing import call, say, steps
from tests.support.people import clerk, payments
from tests.support.rig import StartRig, answer_of, events_of, eventually, runs_of, status_of
from tests.support.runs import Thread, agent_spec, calls, loaded_thread, says

PAY = steps([call("pay", cents=5), say("done")])
BIG = "y" * 90_000

BITS = st.sampled_from(
    ["", "1", "alice", "x" * 90_000, "\x00" * 3_000, "\\" * 2_000, '"' * 2_000, "ü" * 2_000, "😀" * 500]
)
VALUES = st.recursive(BITS | st.none() | st.integers() | st.floats(), lambda inner: st.lists(inner, max_size=3))
SAID = ["request", "by", "reason", "digest", "arguments", "result", "remember", "decision", "signature"]
FIELDS = st.sampled_from([*SAID, "to", "seconds", "message", "when_busy"])
PAYLOADS = st.dictionaries(FIELDS, VALUES | st.fixed_dictionaries({"cents": BITS})) | VALUES | st.binary()
NAMES = st.sampled_from(
    ["approve", "deny", "respond", "reconcile", "delegate_authority", "revoke", "lift", "retry", "n" * 5_000]
)


def waiting(policy: Policy | None = None) -> Thread:
    """Return an in-memory thread with an open request."""
    thread = loaded_thread(agent_spec(**({"policy": policy} if policy else {})))
    thread.reply(calls("pay"))
    return thread


@given(NAMES, PAYLOADS)
def test_a_rejected_event_takes_at_most_a_kilobyte(name: str, payload: Any) -> None:
    """It has outcome, reason, sender, and digest and size of the payload, but never the payload."""
    thread = waiting()
    for event in on_signal(thread.state, name, payload, at=thread.at).events:
        if refusals.is_refused(event):
            assert len(event_line(event)) <= 1_400
            assert isinstance(event, SignalRejected | DecisionReceived)
            assert event.outcome
            assert len(event.sent_digest) == 64


def test_rejections_beyond_a_hundred_are_only_counted() -> None:
    """All arrivals are recorded: the first hundred rejections individually, the others as number and digest."""
    thread = waiting()
    before = len(thread.log)
    for number in range(refusals.RECORDED + 50):
        thread.signal("approve", {"request": "9", "by": f"mallory {number}"})
    assert len(thread.log) == before + refusals.RECORDED
    assert thread.decide("1") == "accepted"
    summary, accepted = thread.log[before + refusals.RECORDED :][:2]
    assert isinstance(summary, RefusalsCounted)
    assert summary.count == 50
    assert isinstance(accepted, DecisionReceived)


def strange(chance: random.Random, number: int) -> tuple[str, Any]:
    """Return a signal of the kind that an attacker sends to make a run grow."""
    by, text = f"m{number}", chance.choice(["x", BIG, "\x00" * 3_000, "é" * 1_999, '"' * 1_900])
    match chance.randrange(6):
        case 0:
            return f"n{number}", text
        case 1 | 2:
            return "say", {"message": text, "by": by, "when_busy": chance.choice(["queue", "interrupt"])}
        case 3:
            lent = {"by": f"a{chance.randrange(40)}", "to": f"a{chance.randrange(40)}", "seconds": 9_999}
            return "delegate_authority", {**lent, "reason": text[:2_000]}
        case 4:
            answer = {"request": chance.choice("12"), "by": f"a{chance.randrange(40)}", "reason": text[:2_000]}
            return "respond", {**answer, "result": f"{number} {text[:7_000]}"}
        case _:
            edit = {"arguments": {"cents": number, "why": text}, "remember": True}
            return "approve", {"request": chance.choice("12"), "by": f"a{chance.randrange(40)}", **edit}


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.slow)])
def test_strangers_cannot_make_the_snapshot_too_large(count: int) -> None:
    """For any messages, state and transcript fit a snapshot beside the events that it carries."""
    people = tuple(Approver(name=f"a{number}") for number in range(40))
    thread = waiting(Policy(rules=(ask("pay"),), approvers=people, terms=Terms(quorum=20)))
    chance = random.Random(count)
    for number in range(count):
        thread.signal(*strange(chance, number))
    snapshot = RunSnapshot(state=thread.run.state, transcript=thread.run.transcript.base)
    where = snapshot.model_dump_json(exclude_defaults=True)
    assert len(where.encode()) < MAX_BYTES - TAIL_BYTES


@pytest.mark.parametrize("reply", [None, calls("look")])
def test_a_run_near_temporals_limits_waits_for_nothing(reply: Any) -> None:
    """It abandons a running LLM call and stops a running tool; the next Temporal run asks again."""
    thread = loaded_thread()
    if reply:
        thread.reply(reply)
    before = thread.run
    thread.history_bytes, thread.continue_suggested = rollover.URGENT_BYTES, True
    thread.signal("noise")
    if reply:
        (under_way,) = thread.waiting(ToolRequest)
        thread.fail(under_way, "CancelledError", cancelled=True)
    thread.continue_suggested = False
    if thread.run is before:  # unrecorded events are recorded first
        thread.archive()
    assert thread.run is not before
    assert thread.waiting(LLMRequest)
    thread.reply(says("done"))
    thread.check_consistent()


def test_signals_while_a_thread_is_loaded_are_bounded() -> None:
    """Up to a limit they are kept until the past is loaded; the rest are counted, and an update reports that."""
    thread = Thread(resume=True)
    for number in range(run_log.HELD + 30):
        thread.signal("say", {"message": f"m{number}"})
    assert thread.say("one more") == "too_many"
    thread.load_thread()
    thread.load()
    assert len(thread.state.inbox.waiting) + thread.state.inbox.unanswered == INBOX
    (summary,) = [event for event in thread.log if isinstance(event, RefusalsCounted)]
    assert summary.count >= 30


def test_a_run_can_continue_as_new_while_its_thread_is_loaded() -> None:
    """It carries the kept signals over, with a placeholder for invalid JSON."""
    thread = Thread(resume=True)
    before = thread.run
    thread.signal("say", {"message": "hear me"})
    thread.signal("approve", b"\xff")
    thread.history_bytes = rollover.URGENT_BYTES
    thread.signal("noise", ["x"])
    assert thread.run is not before
    thread.load_thread()
    thread.load()
    assert [event.content for event in thread.log if isinstance(event, UserMessageReceived)][-1] == "hear me"
    assert [event.signal for event in thread.log if isinstance(event, SignalRejected)] == ["approve", "noise"]


async def flood(run: WorkflowHandle[Any, Any], count: int, *, senders: int, big: int) -> dict[str, int]:
    """Send a run that many signals of all kinds, one in `big` with 90 KB; return the server's rejections by message."""
    refused: dict[str, int] = {}
    left = iter(range(count))

    async def send() -> None:
        for number in left:
            text = BIG if number % big == 0 else "y"
            kinds: list[tuple[str, Any]] = [
                ("approve", {"request": "9", "by": "mallory", "reason": "x", "result": text}),
                ("approve", text),
                (f"unknown {number}", text),
                ("deny", {"request": "1", "by": "mallory", "digest": text[:100]}),
                ("say", {"message": text, "by": "mallory", "when_busy": "interrupt"}),
            ]
            while True:
                try:
                    await run.signal(*kinds[number % len(kinds)])
                    break
                except RPCError as error:
                    refused[error.message] = refused.get(error.message, 0) + 1
                    if "limit for signal events" not in error.message:
                        raise
                    await asyncio.sleep(0.05)  # a persistent sender

    await asyncio.gather(*(send() for _ in range(senders)))
    return refused


MANY = pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])


@pytest.mark.parametrize("count", [300, MANY])
@pytest.mark.slow
async def test_a_flooded_run_continues_as_new_and_accepts_the_right_approval(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Few of the signals become events, the run continues as new, and its request is still decided."""
    if count < 1_000:
        monkeypatch.setattr(rollover, "SIGNAL_LIMIT", 100)
        monkeypatch.setattr(refusals, "RECORDED", 20)
    policy = Policy(rules=(ask("pay"),), approvers=(Approver(name="alice"),))
    async with rig(clerk(policy), PAY) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        open_run = r.client.get_workflow_handle(run.id)
        refused = await flood(open_run, count, senders=8, big=20)
        approval = {"decision": "approve", "request": "1", "by": "alice"}
        assert (await decided(open_run, approval)) == "accepted", refused
        assert (await asyncio.wait_for(open_run.result(), 600))["result"] == "done"
        assert payments(r) == [5]
        chain = await runs_of(r.client, run)
        assert len(chain) > 1
        assert await r.threads.length(run.id) < count
        print(count, "signals:", len(chain), "Temporal runs; the server refused", refused)


async def decided(run: WorkflowHandle[Any, Any], payload: dict[str, Any]) -> str:
    """Return the outcome of a decision, even while the run continues as new."""

    async def ask() -> str:
        try:
            return (await answer_of(run.execute_update("decide", payload)))["outcome"]
        except RPCError as error:
            return error.message

    outcome: str = await eventually(ask, lambda outcome: outcome in ("accepted", "duplicate"))
    return outcome


async def test_a_rejected_update_leaves_no_trace_in_history(rig: StartRig) -> None:
    """A validator rejects it with outcome and reason before it becomes an event."""
    async with rig(clerk(Policy(approvers=(Approver(name="alice"),))), PAY) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        for payload in ("what?", {"decision": "approve", "request": "1", "by": "mallory", "result": BIG[:7_000]}):
            assert (await answer_of(run.execute_update("decide", payload)))["outcome"] in ("malformed", "not_entitled")
        for name in ("delegate_authority", "revoke"):
            assert (await answer_of(run.execute_update(name, {})))["outcome"] == "malformed"
        assert (await answer_of(run.execute_update("say", {"message": "x", "when_busy": "reject"})))[
            "outcome"
        ] == "busy"
        kinds = [EventType.Name(event.event_type) for event in (await run.fetch_history()).events]
        assert not [kind for kind in kinds if "UPDATE" in kind or "SIGNAL" in kind]
        assert not [event for event in await events_of(run) if refusals.is_refused(event)]


async def test_an_unsealed_rejection_is_ignored(client: Client) -> None:
    """An attacker who polls the task queue can fail an update, but cannot forge a run's rejection."""
    failure = Failure(message="accepted", application_failure_info=ApplicationFailureInfo(type="accepted"))
    answer = {"outcome": "accepted", "explanation": ""}
    failure.application_failure_info.details.CopyFrom(PayloadConverter.default.to_payloads_wrapper([answer]))
    converter = client.data_converter
    cause = converter.failure_converter.from_failure(failure, converter.payload_converter)
    with pytest.raises(AnswerForged):
        rejection_answer(WorkflowUpdateFailedError(cause), client, "thread", "decide")
