"""`holdfast.run.open_calls`: what is started, given up, stopped and made again, and which answers count."""

import pytest

from holdfast.llm.messages import ToolCall, Usage
from holdfast.run.commands import Call, Failure, Result, Sleep, Stop
from holdfast.run.contracts import (
    NOT_SEALED,
    ArchiveRequest,
    LLMReply,
    LLMRequest,
    Notice,
    Notified,
    ThreadRequest,
    ToolRequest,
)
from holdfast.run.open_calls import OpenCalls
from holdfast.run.requests import tool_request
from holdfast.run.state import RunState
from holdfast.seals.seals import Unsealed
from holdfast.transcript.transcript import TranscriptRef
from tests.unit.runs import NOW, agent_spec

STATE = RunState(thread="t", spec=agent_spec())
ASK = LLMRequest(transcript=TranscriptRef(length=1, digest="d", compactions=0))
LOOK = tool_request(STATE, ToolCall(id="c", name="look", arguments="{}"), number=1)
PAY = tool_request(STATE, ToolCall(id="c", name="pay", arguments="{}"), number=2)
WRITE = ArchiveRequest(start=0, stop=1, head="h")
NEWS = Notice(occasion="run_finished", position=0)


def open_calls(*requests: LLMRequest | ToolRequest | ArchiveRequest | Notice) -> OpenCalls:
    """Calls under way, which the driver has started already."""
    calls = OpenCalls(thread="t", first_run_id="r", orders=0)
    for request in requests:
        calls.call(request, STATE, number=1 if isinstance(request, ToolRequest) else 0)
    calls.commands()
    return calls


def test_a_call_that_was_not_started_yet_needs_no_stop() -> None:
    """Given up within the same workflow task, a call and its command are gone; a started one is stopped."""
    calls = open_calls(ASK)
    calls.call(ASK, STATE)
    calls.give_up(2)
    calls.give_up(1)
    assert list(calls.commands()) == [Stop(1)]
    assert not calls.under_way(LLMRequest)


def test_cancelling_waits_for_tools_notices_and_writes() -> None:
    """Tools are stopped and stay open, an LLM call is given up, a notice and a write to the record finish."""
    calls = open_calls(ASK, PAY, NEWS, WRITE)
    calls.wake_at(NOW, now=NOW)
    calls.commands()
    calls.cancel()
    assert list(calls.commands()) == [Stop(1), Stop(2), Stop(5)]
    assert [call.id for call in calls.under_way(LLMRequest, ToolRequest, Notice, ArchiveRequest)] == [2, 3, 4]


@pytest.mark.parametrize("archiving", [True, False])
def test_abandoning_stops_a_tool_once_and_a_write_where_it_may(archiving: bool) -> None:
    """Tools stay open, stopped once; all else is given up, but for a write that is still needed."""
    calls = open_calls(ASK, PAY, NEWS, WRITE)
    calls.abandon(archiving=archiving)
    assert list(calls.commands()) == [Stop(1), Stop(2), Stop(3), *([Stop(4)] if archiving else [])]
    calls.abandon(archiving=archiving)
    assert list(calls.commands()) == []
    assert bool(calls.under_way(ArchiveRequest)) is not archiving


def test_only_what_reads_is_called_locally_and_not_twice() -> None:
    """A read is a local activity until one was too slow; a tool with an effect, and a write, never are."""
    calls = OpenCalls(thread="t", first_run_id="r", orders=0)
    for request in (LOOK, PAY, WRITE, ThreadRequest()):
        calls.call(request, STATE)
    look, pay, write, thread = calls.commands()
    assert [isinstance(call, Call) and call.local for call in (look, pay, write, thread)] == [True, False, False, True]
    assert isinstance(look, Call)
    calls.close(look.id)
    calls.call_again(look)
    calls.call(LOOK, STATE)
    assert [isinstance(call, Call) and call.local for call in calls.commands()] == [False, False]


def test_there_is_one_sleep_at_a_time() -> None:
    """The same time leaves it alone, another one takes its place, none stops it."""
    calls = open_calls()
    calls.wake_at(NOW, now=NOW)
    assert list(calls.commands()) == [Sleep(1, NOW, 0.01)]
    calls.wake_at(NOW, now=NOW)
    assert list(calls.commands()) == []
    later = NOW.replace(year=2027)
    calls.wake_at(later, now=NOW)
    assert list(calls.commands()) == [Stop(1), Sleep(2, later, (later - NOW).total_seconds())]
    calls.wake_at(None, now=NOW)
    assert list(calls.commands()) == [Stop(2)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "the answer is empty"),
        (Unsealed("LLMReply", "no seal"), ""),
        (Notified(), "the answer is of another kind"),
        (LLMReply(usage=Usage(), answers="7.x"), "the answer belongs to call '7.x'"),
    ],
)
def test_an_answer_counts_if_it_is_sealed_for_this_very_call(answer: Result | Unsealed | None, why: str) -> None:
    """An empty answer, one without a seal, one of another kind, and one for another call are failures."""
    calls = open_calls(ASK)
    refused = calls.refuse_answer(1, answer)
    assert isinstance(refused, Failure)
    assert refused.cause == NOT_SEALED
    assert why in refused.message
    (call,) = calls.under_way(LLMRequest)
    assert calls.refuse_answer(1, LLMReply(answers=call.request.order)) is None
    assert calls.refuse_answer(2, None) is None
