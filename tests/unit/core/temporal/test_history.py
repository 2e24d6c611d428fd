"""Events rebuilt from recorded histories; `tests/workflow/test_history.py` compares them with the workflow's own."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import History, HistoryEvent
from temporalio.client import WorkflowHistory

from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import AgentEvent, RunForked
from holdfast.core.temporal.history_reader import read_events
from holdfast.errors import HistoryUnreadable

HISTORIES = Path(__file__).parents[3] / "replay" / "histories"
RECORDED = [
    f"{file.parent.name}/{file.stem}"
    for file in sorted(HISTORIES.rglob("*.json"))
    # Launchers record no events; `tests/replay/test_replay.py` reads those of loops.
    if not file.stem.startswith(("loop", "launcher"))
]
"""The names of the recorded histories of agent runs."""


@cache
def recorded(name: str) -> WorkflowHistory:
    """Return a recorded history, cached because reading all of them takes a second."""
    return WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text())


LOADED = "run_started user_message_received agent_loaded "
ALLOWED = "tool_call_requested verdict_given "
ASKED = ALLOWED + "approval_requested "
INVALID = "tool_call_requested tool_call_finished "
RAN = "tool_call_started tool_call_finished "
STEP = "llm_replied " + ALLOWED + RAN
SLEPT = ALLOWED + "tool_call_started dormancy_began "
POLLED = "wait_polled tool_call_finished "
DONE = "llm_replied run_finished"
EXPECTED = {
    "scheduled": LOADED + STEP + DONE,
    "budgeted": LOADED
    + 4 * ("budget_reserved " + STEP)
    + "budget_low budget_spent budget_reserved llm_replied run_blocked signal_rejected budget_extended budget_extended "
    + ("budget_reserved " + STEP + "budget_reserved " + DONE),
    "structured": LOADED
    + "llm_replied reply_rejected llm_replied "
    + (INVALID + "reply_rejected " + STEP + "llm_replied " + ALLOWED + RAN + "run_finished"),
    "previewed": LOADED
    + ("llm_replied " + ALLOWED + "preview_requested approval_requested decision_received " + RAN + DONE),
    "answered": LOADED
    + ("llm_replied " + ALLOWED + "tool_call_started answer_requested decision_received " + RAN + DONE),
    "reclassified": LOADED
    + "llm_replied message_awaited signal_rejected signal_rejected run_reclassified agent_loaded message_taken "
    + ("llm_replied reply_rejected " + STEP + "message_awaited run_finished"),
    "postponed": LOADED
    + ("llm_replied " + ALLOWED + "tool_call_postponed user_message_received tool_call_finished message_taken " + DONE),
    "adopted": LOADED
    + ("llm_replied " + ALLOWED + "tool_call_postponed policy_change_requested policy_change_failed ")
    + ("policy_change_requested policy_changed approval_requested decision_received " + RAN + DONE),
    "placed": "run_started user_message_received node_awaited node_accepted agent_loaded llm_replied "
    + (ALLOWED + "tool_call_started tool_call_rerouted " + RAN + DONE),
    "typed_context": LOADED
    + "llm_replied "
    + (ALLOWED + "tool_call_started context_updated tool_call_finished llm_replied " + ALLOWED)
    + ("tool_call_started tool_call_finished " + DONE),
    "unattended": LOADED + "llm_replied " + ALLOWED + "tool_call_finished run_blocked run_finished",
    "lost_call": LOADED + "budget_reserved llm_call_lost budget_reserved " + DONE,
    "plain": LOADED
    + "llm_replied "
    + 2 * ALLOWED
    + 2 * "tool_call_started "
    + 2 * "tool_call_finished "
    + ("llm_replied " + ALLOWED + "tool_call_finished " + DONE),
    "rejected_replies": LOADED + "llm_replied " + 2 * INVALID + "reply_rejected llm_replied reply_rejected " + DONE,
    "approvals": LOADED
    + "llm_replied "
    + 2 * ASKED
    + "decision_received signal_rejected decision_received tool_call_finished decision_received "
    + (RAN + DONE),
    "retried": LOADED + "run_blocked run_unblocked " + STEP + DONE,
    "unknown_outcome": LOADED
    + "llm_replied "
    + ALLOWED
    + 2 * "tool_call_started reconcile_requested decision_received "
    + ("tool_call_finished " + DONE),
    "step_limit": LOADED + 4 * STEP + "run_blocked run_unblocked " + STEP + DONE,
    "cancelled": LOADED + "llm_replied " + ASKED + "tool_call_finished run_finished",
    "continued": LOADED
    + 8 * STEP
    + ("llm_replied " + ASKED + 12 * "signal_rejected " + "decision_received " + RAN + DONE),
    "compacted": LOADED + 3 * STEP + "context_compacted " + STEP + DONE,
    "compacted_on_request": LOADED
    + STEP
    + "llm_replied message_awaited compaction_requested signal_rejected context_compacted "
    + ("user_message_received message_taken " + STEP + "llm_replied message_awaited run_finished"),
    "constrained": LOADED
    + STEP
    + "llm_replied "
    + ("tool_call_requested verdict_given tool_call_finished " + ALLOWED + RAN)
    + ("llm_replied message_awaited constraint_lifted user_message_received message_taken ")
    + 2 * STEP
    + ("llm_replied " + ALLOWED + "tool_call_finished llm_replied message_awaited constraint_lifted signal_rejected ")
    + ("user_message_received message_taken " + STEP + "llm_replied message_awaited run_finished"),
    "repeated": LOADED
    + 4 * STEP
    + ("llm_replied " + ASKED + "decision_received " + RAN)
    + 3 * STEP
    + ("llm_replied " + ASKED + "decision_received tool_call_finished ")
    + 6 * ("llm_replied " + ALLOWED + "tool_call_finished ")
    + ("run_blocked user_message_received run_unblocked message_taken " + DONE),
    "paused": LOADED
    + "llm_replied "
    + ASKED
    + ALLOWED
    + "tool_call_started tool_call_finished run_paused run_paused decision_received run_resumed "
    + (RAN + STEP + "llm_replied message_awaited run_paused run_resumed run_paused ")
    + ("user_message_received run_resumed message_taken ")
    + "llm_replied message_awaited run_finished",
    "refined": LOADED
    + "llm_replied "
    + ASKED
    + ALLOWED
    + "tool_call_started tool_call_finished task_refined task_refined signal_rejected decision_received "
    + (RAN + 2 * "message_taken " + STEP + "llm_replied message_awaited task_refined message_taken ")
    + "llm_replied message_awaited run_finished",
    "refined_by_agent": LOADED
    + ("llm_replied " + ASKED + "decision_received ")
    + "tool_call_started task_refined tool_call_finished "
    + DONE,
    "dormant": LOADED
    + (STEP + "llm_replied " + SLEPT + "wake_received signal_rejected tool_call_finished ")
    + ("llm_replied " + 3 * ALLOWED + "tool_call_started dormancy_began tool_call_finished ")
    + (2 * "tool_call_started dormancy_began " + "wake_received " + 2 * "wake_received tool_call_finished ")
    + ("llm_replied " + SLEPT + "user_message_received tool_call_finished message_taken ")
    + ("llm_replied " + SLEPT + "wake_received tool_call_finished " + DONE),
    "pictured": LOADED + STEP + DONE,
    "delegated": LOADED
    + ("llm_replied " + ALLOWED + "tool_call_started subagent_started signal_rejected subagent_ended ")
    + ("tool_call_finished llm_replied " + ALLOWED + "tool_call_started subagent_started tool_call_finished ")
    + "llm_replied message_awaited subagent_ended run_finished",
    "allotted": LOADED
    + ("budget_reserved llm_replied " + ALLOWED + "tool_call_started budget_reserved subagent_started ")
    + "subagent_ended tool_call_finished budget_reserved llm_replied message_awaited run_finished",
    "descended": LOADED + STEP + DONE,
    "polled": LOADED
    + ("llm_replied tool_call_requested tool_call_finished " + SLEPT + POLLED)
    + ("llm_replied " + SLEPT + "wait_polled " + POLLED)
    + ("llm_replied " + SLEPT + POLLED)
    + ("llm_replied " + SLEPT + "wait_polled run_paused run_resumed ")
    + ("user_message_received tool_call_finished message_taken " + DONE),
    "overflowed": LOADED + 2 * STEP + "context_exceeded context_compacted " + DONE,
    "said": LOADED + "user_message_received signal_rejected user_message_received message_taken message_taken " + DONE,
    "idle": LOADED
    + "llm_replied message_awaited user_message_received message_taken llm_replied message_awaited run_finished",
    "recalled": LOADED + "memory_recalled " + STEP + "llm_replied " + ASKED + "decision_received " + RAN + DONE,
    "undone": LOADED
    + "llm_replied "
    + ALLOWED
    + "tool_call_started reconcile_requested decision_received "
    + (RAN + DONE),
    "0.1.0/authorised": LOADED
    + "llm_replied "
    + ASKED
    + "baseline_recorded approval_reminded decision_received authority_delegated "
    + "decision_received decision_received rule_remembered "
    + ("state_verified " + RAN + STEP + "llm_replied " + ASKED + "baseline_recorded rule_revoked delegation_revoked ")
    + ("decision_received decision_received tool_call_finished " + DONE),
    # Edited arguments are judged again, and a revoked key signs nothing more.
    "authorised": LOADED
    + "llm_replied "
    + ASKED
    + "baseline_recorded approval_reminded decision_received authority_delegated "
    + "decision_received approval_requested decision_received rule_remembered "
    + ("state_verified " + RAN + STEP + "llm_replied " + ASKED + "baseline_recorded rule_revoked delegation_revoked ")
    + ("key_revoked signal_rejected decision_received decision_received tool_call_finished " + DONE),
    "expired": LOADED
    + "llm_replied "
    + ASKED
    + "baseline_recorded approval_escalated approval_expired tool_call_finished state_verified "
    + DONE,
    "failed": "run_started user_message_received run_finished",
    "notified": LOADED + "llm_replied " + ASKED + "decision_received " + RAN + DONE,
    "flooded": LOADED
    + "llm_replied "
    + ASKED
    + 100 * "signal_rejected "
    + "refusals_counted decision_received "
    + (RAN + DONE),
    "reset": LOADED + "run_reset llm_replied " + ASKED + "decision_received tool_call_finished " + DONE,
    "moved": LOADED
    + ("llm_replied " + ASKED + "move_requested run_finished run_imported agent_loaded decision_received ")
    + (RAN + "llm_replied message_awaited move_requested run_finished"),
    "forked": "run_forked tool_call_finished "
    + LOADED
    + "message_taken llm_replied "
    + ASKED
    + "constraint_lifted decision_received "
    + (RAN + DONE),
    "forked_strictly": "run_forked tool_call_finished "
    + LOADED
    + "message_taken llm_replied tool_call_requested verdict_given tool_call_finished "
    + DONE,
    "by_signal": LOADED
    + "llm_replied "
    + 2 * ASKED
    + ALLOWED
    + "tool_call_started reconcile_requested authority_delegated delegation_revoked "
    + (3 * "decision_received tool_call_finished " + DONE),
    "learnt": LOADED
    + (ALLOWED + RAN + STEP + "llm_replied message_awaited learning_requested llm_replied ")
    + 2 * ASKED
    + ("decision_received tool_call_finished decision_received " + RAN)
    + (ALLOWED + RAN + "run_finished"),
    "not_learnt": LOADED
    + (ALLOWED + RAN + "run_blocked " + ALLOWED + RAN + "run_unblocked " + STEP)
    + ("llm_replied message_awaited learning_requested learning_skipped " + ALLOWED + RAN + "run_finished"),
    "reopened": LOADED + "llm_replied " + ASKED + "tool_call_finished " + LOADED + "message_taken " + DONE,
}
"""The event types of each recorded scenario over all its Temporal runs, without `run_continued`."""


def scenario(name: str) -> str:
    """Return the scenario of a recorded history: `continued` for `0.1.0/continued.2`."""
    return name.rpartition("/")[2].split(".")[0]


def copy_of(history: WorkflowHistory) -> list[HistoryEvent]:
    """Return a copy of the events that a test may change."""
    return [HistoryEvent.FromString(event.SerializeToString()) for event in history.events]


def payloads(message: Message) -> Iterator[Payload]:
    """Yield all payloads anywhere in a message."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        each: Any
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = list(value.values())
        else:
            inner = [value] if isinstance(value, Message) else list(value)
        for each in inner:
            if isinstance(each, Message):
                yield from payloads(each)


@pytest.mark.parametrize("name", dict.fromkeys(name.rpartition("/")[0] + "/" + scenario(name) for name in RECORDED))
def test_recorded_histories_yield_the_events_of_their_scenario(name: str) -> None:
    """Without a worker or a server, the chain is complete over all Temporal runs and has the scenario's events."""
    events: list[AgentEvent] = []
    expected = EXPECTED.get(name, EXPECTED[scenario(name)]).split()
    runs = [read_events(recorded(each).events) for each in RECORDED if each == name or each.startswith(f"{name}.")]
    for own in runs:
        first = own[0].position
        if isinstance(own[0], RunForked):  # the events before it are the original's
            assert first_altered(own, start=first, head=own[0].point.head) is None
            assert [event.type for event in own] == expected
            return
        # A run that was reset has a log of its own from there on.
        assert own[: len(events) - first] == events[first:] or any(event.type == "run_reset" for event in own)
        events = events[:first] + own
    assert first_altered(events) is None
    types = [event.type for event in events if event.type != "run_continued"]
    assert types == expected
    assert len(events) - len(types) == sum("continued" in name for _ in runs[1:])


def test_a_history_message_is_read_like_its_events() -> None:
    """Both forms that Temporal's client returns are accepted."""
    plain = recorded("0.1.0/plain")
    assert read_events(History(events=plain.events)) == read_events(plain.events)


@given(st.data())
def test_a_truncated_history_is_rejected_or_yields_a_prefix(draw: st.DataObject) -> None:
    """A truncated history is rejected, or yields the same events up to the cut."""
    history = recorded(draw.draw(st.sampled_from(RECORDED))).events
    whole = read_events(history)
    cut = draw.draw(st.integers(0, len(history) - 1))
    try:
        part = read_events(history[:cut])
    except HistoryUnreadable as error:
        assert "event " in str(error)  # noqa: PT017  # both outcomes are correct
    else:
        assert part == whole[: len(part)]


@given(st.data())
def test_a_gap_in_a_history_is_rejected_with_its_position(draw: st.DataObject) -> None:
    """A missing page is detected at its first event."""
    events = copy_of(recorded(draw.draw(st.sampled_from(RECORDED))))
    hole = draw.draw(st.integers(0, len(events) - 2))
    del events[hole]
    with pytest.raises(HistoryUnreadable, match=f"event {hole + 1} of the history"):
        read_events(events)


@given(st.data())
def test_altered_payloads_never_break_the_reader(draw: st.DataObject) -> None:
    """A history with a payload removed, truncated, replaced or swapped is rejected or read in its altered form."""
    events = copy_of(recorded(draw.draw(st.sampled_from(RECORDED))))
    all_payloads = [payload for event in events for payload in payloads(event)]
    payload = draw.draw(st.sampled_from(all_payloads))
    match draw.draw(st.integers(0, 4)):
        case 0:
            payload.Clear()
        case 1:
            payload.data = payload.data[: draw.draw(st.integers(0, len(payload.data)))]
        case 2:
            payload.data = draw.draw(st.binary(max_size=30) | st.sampled_from([b"null", b"[]", b"{}", b"1", b'""']))
        case 3:
            payload.metadata["encoding"] = draw.draw(
                st.sampled_from([b"binary/null", b"binary/plain", b"json/protobuf", b"binary/encrypted", b""])
            )
        case _:
            payload.CopyFrom(draw.draw(st.sampled_from(all_payloads)))
    _read_or_refuse(events)


@given(st.data())
def test_reordered_events_never_break_the_reader(draw: st.DataObject) -> None:
    """A history with swapped events or changed types or times is rejected or read in its altered form."""
    events = copy_of(recorded(draw.draw(st.sampled_from(RECORDED))))
    one, other = draw.draw(st.sampled_from(events)), draw.draw(st.sampled_from(events))
    kept = one.event_id, other.event_id
    first = HistoryEvent.FromString(one.SerializeToString())
    match draw.draw(st.integers(0, 2)):
        case 0:
            one.CopyFrom(other)
            other.CopyFrom(first)
        case 1:
            one.event_type = other.event_type
        case _:
            one.event_time.seconds = draw.draw(st.integers(-(2**63), 2**63 - 1))
    one.event_id, other.event_id = kept
    _read_or_refuse(events)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workflow_type": {"name": "AnotherWorkflow"}}, "event 1 .* of type 'AnotherWorkflow', not an agent run"),
        ({"input": {"payloads": []}}, "event 1 .* 0 payloads"),
        ({"workflow_id": ""}, "event 1 .* ids"),
    ],
)
def test_a_foreign_history_is_rejected_at_its_first_event(change: dict[str, Any], words: str) -> None:
    """The error says that the history belongs to another kind of workflow."""
    events = copy_of(recorded("0.1.0/plain"))
    begin = events[0].workflow_execution_started_event_attributes
    for name, value in change.items():
        begin.ClearField(name)  # type: ignore[arg-type]
        if name == "workflow_type":
            begin.workflow_type.name = value["name"]
    with pytest.raises(HistoryUnreadable, match=words):
        read_events(events)


@pytest.mark.parametrize("kind", ["EVENT_TYPE_WORKFLOW_EXECUTION_STARTED", "EVENT_TYPE_WORKFLOW_TASK_STARTED"])
@pytest.mark.parametrize("time", [{"seconds": -(2**63)}, {"seconds": 2**63 - 1}, {"nanos": -1}, {"nanos": 10**9}])
def test_an_impossible_time_is_rejected(kind: str, time: dict[str, int]) -> None:
    """Any server can send any number as a time."""
    events = copy_of(recorded("0.1.0/plain"))
    event = next(each for each in events if EventType.Name(each.event_type) == kind)
    for name, value in time.items():
        setattr(event.event_time, name, value)
    with pytest.raises(HistoryUnreadable, match=f"event {event.event_id} .* time"):
        read_events(events)


@pytest.mark.parametrize("events", [[], [HistoryEvent(event_id=1)], [HistoryEvent(event_id=2)]])
def test_a_history_without_a_start_is_rejected(events: list[HistoryEvent]) -> None:
    """An empty history, or one that does not begin with a start, is not a run."""
    with pytest.raises(HistoryUnreadable, match="event 1 of the history"):
        read_events(events)


def test_an_altered_tool_result_is_detected() -> None:
    """A tool result altered afterwards does not match the transcript of the next LLM request."""
    events = copy_of(recorded("0.1.0/plain"))
    altered = next(payload for event in events for payload in payloads(event) if b"it is a" in payload.data)
    altered.data = altered.data.replace(b"it is a", b"it is x")
    with pytest.raises(HistoryUnreadable, match="the transcript that it sends to 'call_llm'"):
        read_events(events)


def _read_or_refuse(events: list[HistoryEvent]) -> None:
    try:
        result = read_events(events)
        # A snapshot carries digests of the thread's earlier events, so only those events can confirm the chain.
        assert not result or result[0].position or first_altered(result) is None
    except HistoryUnreadable as error:
        assert "event " in str(error)  # noqa: PT017  # both outcomes are correct
