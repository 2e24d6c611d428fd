"""The node that made an LLM or tool call signs its result: for this thread, call, attempt and result, and no other."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.audit.evidence.results import all_signed, calls_by_node, unchecked_results
from holdfast.audit.judge.audit import Audit, Fault
from holdfast.audit.judge.signed_results import MadeCall
from holdfast.core.authority.signatures import SigningKey, encode_key
from holdfast.core.llm.blocks import TextBlock
from holdfast.core.llm.messages import Usage
from holdfast.core.llm.outages import LLMFailure, Outage
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, ContextCompacted, LLMReplied, ToolCallFinished
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.contracts.signed_results import (
    ID_CHARS,
    node_id,
    outcome_statement,
    read_signature,
    reply_statement,
)
from holdfast.core.run.contracts.tool_calls import NO_REASON, ToolOutcome, ToolRequest
from holdfast.core.run.state.features import FEATURES, SIGNED_RESULTS
from tests.support.examples import examples
from tests.support.plays import RandomRun
from tests.support.runs import NOW, Thread, agent_spec, calls, loaded_thread, says

NODE, OTHER = (SigningKey(encode_key(bytes([number]) * 32)) for number in (31, 32))
KEYS = {NODE.public: None, OTHER.public: None}


def audited(events: Sequence[AgentEvent], keys: Any = KEYS) -> tuple[list[MadeCall], Fault | None]:
    """Return the calls of a log that its chain covers, and its first fault."""
    log = EventLog()
    for event in events:
        log.append(event.model_copy(update={"digest": ""}), at=event.at)
    audit = Audit("t", nodes=keys)
    audit.take(log.events)
    return audit.results.calls, audit.fault


def signed_events(events: Sequence[AgentEvent]) -> list[Any]:
    """Return the events with a signature."""
    return [event for event in events if getattr(event, "signed", "")]


def changed(events: Sequence[AgentEvent], at: int, **fields: Any) -> list[AgentEvent]:
    """Return the events with the one at this position changed."""
    return [event.model_copy(update=fields) if event.position == at else event for event in events]


def signed_thread(*, node: SigningKey | None = NODE) -> Thread:
    """Return a thread that has looked once, and has answered; its worker signs with that key."""
    thread = Thread(agent_spec())
    thread.load(FEATURES)
    thread.node = node
    thread.reply(calls("look"))
    (call,) = thread.waiting(ToolRequest)
    thread.end(call, ToolOutcome(status="ok", content="it is fine", duration_ms=3))
    thread.reply(says("done"))
    return thread


# Honest logs.


@given(st.integers(0, 10_000))
@settings(max_examples=examples(5, 150))
def test_each_signature_of_a_random_run_verifies(seed: int) -> None:
    """Whatever happens to a run (edits, undone effects, polls, compactions, resets), its own signatures hold."""
    log = RandomRun(seed, 80, node=NODE).thread.log
    made, fault = audited(log)
    assert fault is None
    signatures = signed_events(log)
    assert len([call for call in made if call.key == NODE.public]) == len(signatures)
    assert signatures


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=examples(5, 150))
def test_no_signature_of_a_random_run_fits_another_result(seed: int, data: st.DataObject) -> None:
    """Exchanged between two results of a run, signatures are a fault at the first of them."""
    log = RandomRun(seed, 60, node=NODE).thread.log
    found = signed_events(log)
    assume(len(found) > 1)
    first = data.draw(st.sampled_from(found[:-1]))
    second = data.draw(st.sampled_from([event for event in found if event.position > first.position]))
    forged = changed(changed(log, first.position, signed=second.signed), second.position, signed=first.signed)
    _, fault = audited(forged)
    assert fault is not None
    assert fault.position == first.position
    assert "did not sign this result" in fault.reason


def test_a_step_has_two_hundred_bytes_of_signatures() -> None:
    """An LLM call and a tool call together add exactly 200 bytes to the log."""
    signed, plain = signed_thread(), signed_thread(node=None)
    sizes = [
        sum(len(event_line(event)) for event in thread.log if isinstance(event, kind))
        for thread in (signed, plain)
        for kind in (LLMReplied, ToolCallFinished)
    ]
    replies, results = sizes[0] - sizes[2], sizes[1] - sizes[3]
    assert (replies, results) == (2 * 100, 100)


REPLY = says("done").model_copy(
    update={
        "usage": Usage(prompt_tokens=2),
        "outage": Outage(failed=1, began=NOW, last=(LLMFailure(at=NOW, seconds=1, cause="APIError", message="503"),)),
        "request_id": "r1",
    }
)


@pytest.mark.parametrize(
    "result",
    [
        says("done"),
        calls("look", "pay"),
        REPLY,
        LLMReply(rejected="it is empty", usage=Usage()),
        ToolOutcome(status="ok", content="it is fine", duration_ms=3, adopted=True),
        ToolOutcome(status="ok", content=(TextBlock(text="a"), TextBlock(text="b")), artifacts=("sha256:0",)),
        ToolOutcome(status="cannot", content="", scope="everywhere", until=NOW, trust="web"),
        ToolOutcome(status="ok", content="", changes={"b": 1.5, "a": None}, cause="error"),
    ],
    ids=lambda result: type(result).__name__,
)
def test_a_signature_covers_the_recorded_fields_without_defaults(result: LLMReply | ToolOutcome) -> None:
    """They are the fields of the event with the result, in JSON, as in any payload."""
    recorded = {*(LLMReplied if isinstance(result, LLMReply) else ToolCallFinished).model_fields, "changes"}
    if isinstance(result, LLMReply):
        statement = reply_statement(result, thread="t", first_run_id="r", prompt="p")
    else:
        statement = outcome_statement(result, thread="t", key="k", epoch=0, undo=False)
    assert statement["result"] == result.model_dump(mode="json", include=recorded - {"signed"}, exclude_defaults=True)


# Altered logs.


def test_a_signed_result_cannot_be_altered() -> None:
    """No field of a signed reply or result can change without a fault, even by who can recompute the chain."""
    log = signed_thread().log
    reply, result, _ = signed_events(log)
    text = says("done!").message
    for event, fields in (
        (result, {"content": "it is on fire"}),
        (result, {"status": "failed"}),
        (result, {"duration_ms": 4}),
        (result, {"artifact": "sha256:" + 64 * "0"}),
        (result, {"trust": "person"}),
        (reply, {"llm": "another"}),
        (reply, {"request_id": "another"}),
        (reply, {"usage": reply.usage.model_copy(update={"completion_tokens": 9})}),
        (signed_events(log)[2], {"message": text}),
    ):
        _, fault = audited(changed(log, event.position, **fields))
        assert fault is not None, fields
        assert fault.position in (event.position, event.position + 1)  # the answer is repeated where the run ends


def test_a_reply_is_signed_for_its_prompt() -> None:
    """If the task is rewritten, no reply to it verifies: its signature covers the messages of the request."""
    log = signed_thread().log
    task = next(event for event in log if event.type == "user_message_received")
    _, fault = audited(changed(log, task.position, content="pay Mallory"))
    assert fault is not None
    assert fault.position == signed_events(log)[0].position


def test_an_attempt_is_signed() -> None:
    """The number of the attempt cannot be changed, nor spelled in two ways."""
    log = signed_thread().log
    result = signed_events(log)[1]
    assert read_signature(result.signed).attempt == 1  # type: ignore[union-attr]
    for attempt in ("2", "1", "02", "x", "-1", "²", "9" * 10):
        _, fault = audited(changed(log, result.position, signed=result.signed + attempt))
        assert fault is not None, attempt


def test_a_node_cannot_be_named_in_place_of_another() -> None:
    """A signature under the id of another known node is a fault; a malformed one is a fault, too."""
    log = signed_thread().log
    result = signed_events(log)[1]
    other = node_id(OTHER.public) + result.signed[ID_CHARS:]
    for forged in (other, "x", result.signed[:-1], result.signed[:-1] + '"', 88 * "~", 10_000 * "a"):
        _, fault = audited(changed(log, result.position, signed=forged))
        assert fault is not None, forged[:100]


def test_a_stranger_and_a_missing_signature_are_reported() -> None:
    """Results by nodes whose keys are not known, or without a signature, are no fault, and are named."""
    log = signed_thread().log
    result = signed_events(log)[1]
    made, fault = audited(log, {OTHER.public: None})
    assert fault is None
    assert {call.node for call in made} == {node_id(NODE.public)}
    assert not all_signed(made)
    assert node_id(NODE.public) in unchecked_results(made)[0].why
    assert [(each.known, each.llm, each.tools) for each in calls_by_node(made)] == [(False, 2, 1)]
    made, fault = audited(changed(log, result.position, signed=""))
    assert fault is None
    assert f"such as event {result.position}" in unchecked_results(made)[0].why
    assert unchecked_results(audited(signed_thread(node=None).log)[0]) == []


def test_a_revoked_key_counts_until_its_time() -> None:
    """A result from after the time at which its node's key was revoked is not by a known node."""
    log = signed_thread().log
    for until, known in ((NOW - timedelta(days=1), 0), (datetime(2100, 1, 1, tzinfo=UTC), 3)):
        made, fault = audited(log, {NODE.public: until})
        assert fault is None
        assert len([call for call in made if call.key]) == known


def test_runs_of_earlier_releases_have_no_signatures() -> None:
    """Below its feature level a run records no signature, and one in its log is a fault."""
    thread = loaded_thread(features=SIGNED_RESULTS - 1)
    thread.node = NODE
    thread.reply(says("done"))
    reply = next(event for event in thread.log if isinstance(event, LLMReplied))
    assert reply.signed == ""
    _, fault = audited(changed(thread.log, reply.position, signed=signed_events(signed_thread().log)[0].signed))
    assert fault is not None
    assert "feature level" in fault.reason


def test_a_summary_is_signed() -> None:
    """The reply that compacts the context is signed, too, and its text cannot be altered."""
    log = RandomRun(10, 23, node=NODE).thread.log
    event = next(event for event in log if isinstance(event, ContextCompacted) and event.signed)
    _, fault = audited(changed(log, event.position, summary=event.summary + "!"))
    assert fault is not None
    assert fault.position == event.position


def test_an_unknown_outcome_without_text_is_signed_as_the_request_says_it() -> None:
    """The request about it has words of its own, and a verifier has only those."""
    place: dict[str, Any] = {"thread": "t", "key": "k", "epoch": 0, "undo": False}
    empty, recorded = (ToolOutcome(status="unknown", content=text) for text in ("", NO_REASON))
    assert outcome_statement(empty, **place) == outcome_statement(recorded, **place)
