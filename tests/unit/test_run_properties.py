"""The invariants of a run, over runs that hypothesis makes up."""

import hashlib
import json
from itertools import pairwise
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from holdfast.approval import DecisionKind
from holdfast.contracts import LLMReply
from holdfast.decide import CallLLM, Finish, Park, StartCalls, Wait
from holdfast.events import (
    EVENTS,
    ApprovalRequested,
    ReconcileRequested,
    RunParked,
    RunUnparked,
    event_json,
    first_altered,
)
from holdfast.model import GENESIS, chain
from holdfast.state import RunState, evolve
from holdfast.transcript import Transcript, request_body, request_prefix
from tests.unit.runs import Run, calls, says

REQUEST = TypeAdapter(CompletionCreateParamsNonStreaming)
DECISIONS: tuple[DecisionKind, ...] = get_args(DecisionKind)
NAMES = st.lists(st.sampled_from(["look", "pay", "wipe", "nonsense"]), min_size=1, max_size=4)


def play(data: st.DataObject) -> tuple[Run, list[bytes]]:
    """Drive a run through random replies, outcomes and decisions; returns it and every request the LLM got."""
    run = Run()
    requests: list[bytes] = []
    prefix = request_prefix(run.spec)
    for step in range(data.draw(st.integers(1, 60))):
        match run.next:
            case CallLLM():
                requests.append(request_body(prefix, run.transcript.messages))
                kind = data.draw(st.sampled_from(["calls", "calls", "calls", "empty", "end"]))
                if kind == "calls":
                    run.reply(calls(*data.draw(NAMES), first=step * 10))
                else:
                    run.reply(LLMReply(rejected="it is empty.") if kind == "empty" else says("done"))
            case StartCalls():
                run.start()
            case Park(cause=cause, message=message):
                run.record(RunParked(cause=cause, message=message), RunUnparked(by="bob"))
            case Wait():
                started = [call.number for call in run.state.calls if call.phase == "started"]
                if data.draw(st.booleans()) and started:
                    status = data.draw(st.sampled_from(["ok", "failed", "unknown"]))
                    run.finish(data.draw(st.sampled_from(started)), data.draw(st.text(max_size=20)), status)
                else:
                    decision = data.draw(st.sampled_from(DECISIONS))
                    request = data.draw(st.integers(0, run.state.asked + 1).map(str))
                    run.decide(request, decision)
            case Finish():
                break
    return run, requests


@given(st.data())
def test_the_prefix_never_changes(data: st.DataObject) -> None:
    """I3: each request to the LLM begins with the very bytes of the one before it (but for the closing bracket)."""
    _, requests = play(data)
    for earlier, later in pairwise(requests):
        assert later.startswith(earlier[:-2])


@given(st.data())
def test_nothing_runs_that_was_not_allowed(data: st.DataObject) -> None:
    """I5: a call that starts has a verdict `allow`, or an accepted approval of a request about it."""
    run, _ = play(data)
    cleared: set[int] = set()
    asked: dict[str, int] = {}
    for event in run.log.events:
        if event.type == "verdict_given" and event.verdict == "allow":
            cleared.add(event.number)
        elif isinstance(event, ApprovalRequested | ReconcileRequested):
            asked[event.request.request] = event.request.number
        elif event.type == "decision_received" and event.outcome == "accepted":
            if event.decision in ("approve", "absent"):
                cleared.add(asked[event.request])
        elif event.type == "tool_call_started":
            assert event.number in cleared
            cleared.remove(event.number)


@given(st.data())
def test_state_and_transcript_are_folds_of_the_decoded_log(data: st.DataObject) -> None:
    """I2: events that went through JSON rebuild the very same state and transcript."""
    run, _ = play(data)
    decoded = EVENTS.validate_json(EVENTS.dump_json(run.log.events))
    state, transcript = RunState(), Transcript()
    for event in decoded:
        state = evolve(state, event)
        transcript.add(event)
    assert state == run.state
    assert transcript.messages == run.transcript.messages
    assert first_altered(decoded) is None


@given(st.data())
def test_the_first_altered_event_is_named(data: st.DataObject) -> None:
    """I9: whichever event is altered, the chain names it and no later one."""
    run, _ = play(data)
    events = list(run.log.events)
    position = data.draw(st.integers(0, len(events) - 1))
    events[position] = events[position].model_copy(update={"at": events[position].at.replace(year=1999)})
    assert first_altered(events) == position


@given(st.data())
def test_every_call_is_answered_once_and_in_call_order(data: st.DataObject) -> None:
    """A provider's rule: after an assistant message, one result for each of its calls, in order, before all else."""
    run, _ = play(data)
    waiting: list[str] = []
    for message in run.messages():
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", [])]


@given(st.data())
def test_the_reference_is_the_chain_over_the_encoded_messages(data: st.DataObject) -> None:
    """Whoever has the messages can recompute the digest of the reference."""
    run, _ = play(data)
    head = GENESIS
    for message in run.transcript.messages:
        head = chain(head, message)
    assert (run.transcript.ref.length, run.transcript.ref.digest) == (len(run.transcript.messages), head)


@given(st.data())
def test_requests_are_numbered_from_one_without_gaps(data: st.DataObject) -> None:
    """Request ids are short, unique and in the order asked."""
    run, _ = play(data)
    requested = [e for e in run.log.events if isinstance(e, ApprovalRequested | ReconcileRequested)]
    ids = [event.request.request for event in requested]
    assert ids == [str(number) for number in range(1, len(ids) + 1)]


@given(st.data())
def test_the_chain_can_be_checked_with_nothing_but_sha256(data: st.DataObject) -> None:
    """I9: a stranger needs the lines of `log`, a JSON parser and SHA-256; none of our models."""
    run, _ = play(data)
    head = "0" * 64
    for line in run.log.page(0).split(b"\n"):
        event = json.loads(line)
        digest = event.pop("digest")
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        head = hashlib.sha256(head.encode() + text.encode("utf-8", "surrogatepass")).hexdigest()
        assert head == digest


def test_a_field_added_later_alters_no_older_digest() -> None:
    """Events with only default values in a field have the JSON they had before there was that field."""

    class Later(RunUnparked):
        """A later release's event, with one more field."""

        added: str = "by a later release"

    assert event_json(Later(by="bob")) == event_json(RunUnparked(by="bob"))


@given(st.data())
def test_every_request_is_one_that_the_api_takes(data: st.DataObject) -> None:
    """The bytes we join are what the `openai` package's own types call a request, whatever the run was like."""
    _, requests = play(data)
    for request in requests:
        checked = REQUEST.validate_json(request)
        assert len(list(checked["tools"])) == 3  # the items of an Iterable are validated as they are read
        for message in checked["messages"]:
            list(message.get("tool_calls") or [])  # type: ignore[call-overload]  # the same, one level down
