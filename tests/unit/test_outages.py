"""The record of an outage of the LLM, and its description."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.canonical import canonical
from holdfast.llm.messages import Usage
from holdfast.llm.outages import KEPT, LLMFailure, Outage
from holdfast.log.event_log import event_json
from holdfast.log.events import LLMReplied, RunBlocked
from holdfast.run.contracts import CONTEXT_TOO_LONG, LLM_REJECTED
from holdfast.run.details import current_details
from holdfast.runtime.cli.event_lines import event_summary
from tests.unit.runs import loaded_thread

AT = datetime(2026, 1, 2, tzinfo=UTC)


def failed(times: int) -> Outage:
    """Return an outage of that many attempts, one a second."""
    outage = None
    for number in range(times):
        at = AT + timedelta(seconds=number)
        outage = Outage.of(
            outage, LLMFailure(at=at, seconds=0.5, cause="InternalServerError", message=f"503: {number}")
        )
    assert outage
    return outage


@given(st.integers(1, 60))
def test_an_outage_is_bounded_and_says_how_many_attempts_failed(times: int) -> None:
    """The record has the last ten failures, the number of all failures, and the start of the first attempt."""
    outage = failed(times)
    assert (outage.failed, outage.began) == (times, AT)
    assert [each.message for each in outage.last] == [f"503: {n}" for n in range(max(0, times - KEPT), times)]
    assert Outage.from_details([outage.model_dump(mode="json")]) == outage
    attempts = "1 failed attempt" if times == 1 else f"{times} failed attempts"
    words = outage.words(AT + timedelta(seconds=42.2))
    assert words == f"after {attempts} in 42 s: InternalServerError: 503: {times - 1}"


@pytest.mark.parametrize(
    "claim",
    [
        None,
        "x",
        {"failed": 1},
        {"failed": 0, "began": "2026-01-02T00:00:00Z", "last": []},
        {
            "failed": 1,
            "began": "2026-01-02T00:00:00",
            "last": [{"at": "2026-01-02", "seconds": 1, "cause": "", "message": ""}],
        },
        failed(1).model_dump(mode="json") | {"last": [failed(1).last[0].model_dump(mode="json")] * 11},
        failed(1).model_dump(mode="json")
        | {"last": [{**failed(1).last[0].model_dump(mode="json"), "message": "x" * 301}]},
    ],
)
def test_invalid_details_of_an_error_are_dropped(claim: Any) -> None:
    """Any client of Temporal can fail an activity with any details."""
    assert Outage.from_details([claim]) is None
    assert Outage.from_details([]) is None


def test_a_blocked_run_reports_the_earlier_failures() -> None:
    """The event has the failures, the state their description, and the Web UI shows it."""
    thread = loaded_thread()
    thread.refuse(LLM_REJECTED, failed(3).model_dump(mode="json"))
    blocked = thread.log[-1]
    assert isinstance(blocked, RunBlocked)
    assert blocked.outage == failed(3)
    assert thread.state.view()["blocked"]["after"].startswith("after 3 failed attempts in ")
    assert "The run gave up after 3 failed attempts in" in current_details(thread.state)
    canonical(thread.state.view())
    thread.check_consistent()


def test_a_context_that_is_too_long_is_no_outage() -> None:
    """The context is compacted, even after failed attempts."""
    thread = loaded_thread()
    thread.refuse(CONTEXT_TOO_LONG, failed(1).model_dump(mode="json"))
    assert "context_exceeded" in thread.types()


def test_an_attempt_that_left_no_trace_is_counted() -> None:
    """A killed worker recorded nothing, but the attempt's number shows one more attempt."""
    event = LLMReplied(
        message=None, transcript_length=1, usage=Usage(), finish_reason="stop", llm="m", attempt=4, outage=failed(2)
    )
    line = event_summary(event_json(event.model_copy(update={"at": AT + timedelta(seconds=9)})))
    words = "after 2 failed attempts in 9 s: InternalServerError: 503: 1 (and 1 attempt that left no trace)"
    assert line.endswith(f", attempt 4), {words}")
