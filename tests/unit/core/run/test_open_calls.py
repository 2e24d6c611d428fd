"""`holdfast.core.run.machine.open_calls`: which calls are started, abandoned, stopped and repeated, and which answers
count.
"""

import pytest

from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.messages import Usage
from holdfast.core.mac.seals import Unsealed
from holdfast.core.run.contracts.commands import Call, Failure, Result, Sleep, Stop
from holdfast.core.run.contracts.error_types import NOT_SEALED
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import ThreadRequest
from holdfast.core.run.contracts.record import ArchiveRequest, Notice, Notified
from holdfast.core.run.contracts.requests import tool_request
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.machine.open_calls import OpenCalls
from holdfast.core.run.state.state import RunState
from holdfast.core.transcript.transcript import TranscriptRef
from tests.support.runs import NOW, agent_spec

STATE = RunState(thread="t", spec=agent_spec())
ASK = LLMRequest(transcript=TranscriptRef(length=1, digest="d", compactions=0))
LOOK = tool_request(STATE, ToolCall(id="c", name="look", arguments="{}"), number=1)
PAY = tool_request(STATE, ToolCall(id="c", name="pay", arguments="{}"), number=2)
WRITE = ArchiveRequest(start=0, stop=1, head="h")
NEWS = Notice(occasion="run_finished", position=0)


def open_calls(*requests: LLMRequest | ToolRequest | ArchiveRequest | Notice) -> OpenCalls:
    """Return calls in progress whose commands the driver has already executed."""
    calls = OpenCalls(thread="t", first_run_id="r", orders=0)
    for request in requests:
        calls.call(request, STATE, number=1 if isinstance(request, ToolRequest) else 0)
    calls.commands()
    return calls


def test_an_unstarted_call_needs_no_stop() -> None:
    """A call abandoned in the workflow task that made it sends no command; a started call is stopped."""
    calls = open_calls(ASK)
    calls.call(ASK, STATE)
    calls.drop(2)
    calls.drop(1)
    assert list(calls.commands()) == [Stop(1)]
    assert not calls.under_way(LLMRequest)


def test_cancelling_waits_for_tools_notices_and_writes() -> None:
    """Tools are stopped and stay open, an LLM call is abandoned, a notice and a write to the record finish."""
    calls = open_calls(ASK, PAY, NEWS, WRITE)
    calls.wake_at(NOW, now=NOW)
    calls.commands()
    calls.cancel()
    assert list(calls.commands()) == [Stop(1), Stop(2), Stop(5)]
    assert [call.id for call in calls.under_way(LLMRequest, ToolRequest, Notice, ArchiveRequest)] == [2, 3, 4]


@pytest.mark.parametrize("archiving", [True, False])
def test_abandoning_stops_a_tool_once_and_a_write_if_it_may(archiving: bool) -> None:
    """Tools are stopped once and stay open; all other calls are abandoned, except a write that is still needed."""
    calls = open_calls(ASK, PAY, NEWS, WRITE)
    calls.abandon(archiving=archiving)
    assert list(calls.commands()) == [Stop(1), Stop(2), Stop(3), *([Stop(4)] if archiving else [])]
    calls.abandon(archiving=archiving)
    assert list(calls.commands()) == []
    assert bool(calls.under_way(ArchiveRequest)) is not archiving


def test_only_reads_run_as_local_activities() -> None:
    """A read is a local activity until one was too slow; a tool with an effect and a write to the record never are."""
    calls = OpenCalls(thread="t", first_run_id="r", orders=0)
    for request in (LOOK, PAY, WRITE, ThreadRequest()):
        calls.call(request, STATE)
    look, pay, write, thread = calls.commands()
    assert [isinstance(call, Call) and call.seconds > 0 for call in (look, pay, write, thread)] == [
        True,
        False,
        False,
        True,
    ]
    assert isinstance(look, Call)
    calls.close(look.id)
    calls.call_again(look)
    calls.call(LOOK, STATE)
    assert [isinstance(call, Call) and call.seconds > 0 for call in calls.commands()] == [False, False]


def test_there_is_one_sleep_at_a_time() -> None:
    """The same wake-up time keeps the sleep, another one replaces it, and None stops it."""
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
def test_an_answer_must_be_sealed_for_its_call(answer: Result | Unsealed | None, why: str) -> None:
    """An answer that is empty, unsealed, of another kind or for another call is a failure."""
    calls = open_calls(ASK)
    rejection = calls.refuse_answer(1, answer)
    assert isinstance(rejection, Failure)
    assert rejection.cause == NOT_SEALED
    assert why in rejection.message
    (call,) = calls.under_way(LLMRequest)
    assert calls.refuse_answer(1, LLMReply(answers=call.request.order)) is None
    assert calls.refuse_answer(2, None) is None
