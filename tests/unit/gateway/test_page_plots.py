"""The bars of calls and the plots of costs, from events as JSON."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.gateway.page.views.calls import WIDTH, CallRow, call_rows, timed
from holdfast.gateway.page.views.plots import HEIGHT, POINTS, costs_view, slim

JSON = dict[str, Any]
BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def event(second: float, kind: str, **fields: Any) -> JSON:
    """Return an event at a second after the beginning."""
    at = (BEGIN + timedelta(seconds=second)).isoformat()
    return {"type": kind, "position": int(second), "at": at, **fields}


def rows(*events: JSON, second: float = 100, is_open: bool = False) -> tuple[CallRow, ...]:
    """Return the calls of events, seen at a second after the beginning."""
    return call_rows(map(timed, events), BEGIN + timedelta(seconds=second), is_open=is_open)


CALL = event(0, "tool_call_requested", number=1, call={"name": "pay", "arguments": "{}"})
ASKED = event(10, "approval_requested", request={"id": "1", "number": 1})
DECIDED = event(70, "decision_received", request="1", outcome="accepted")
STARTED = event(71, "tool_call_started", number=1)
FINISHED = event(100, "tool_call_finished", number=1, status="ok", duration_ms=20_000)


def test_a_call_waits_for_a_worker_and_a_person_and_then_runs() -> None:
    """Each part of a call has its bar and its length, one after the other, and they fill the call."""
    (row,) = rows(CALL, ASKED, DECIDED, STARTED, FINISHED)
    assert row.times == ("waiting for a worker 20s", "waiting for a person 1m", "running 20s")
    assert [(bar.part, bar.x, bar.width) for bar in row.bars] == [
        ("worker", 0, 100),
        ("person", 100, 600),
        ("worker", 700, 100),
        ("running", 800, 200),
    ]
    assert (row.name, row.position, row.status, row.survived) == ("Call 1: pay", 0, "ok", "")


def test_a_call_of_an_imported_log_that_claims_to_have_run_for_ages_ran_since_it_began() -> None:
    """Anybody can write a log, and its page is shown."""
    (row,) = rows(CALL, STARTED, event(100, "tool_call_finished", number=1, status="ok", duration_ms=2**53 - 1))
    assert [(bar.part, bar.x, bar.width) for bar in row.bars] == [("running", 0, WIDTH)]


def test_a_vote_that_does_not_decide_ends_no_wait() -> None:
    """The person's bar ends with the decision that counts, not with one that is rejected."""
    rejected = event(30, "decision_received", request="1", outcome="not_entitled")
    (row,) = rows(CALL, ASKED, rejected, DECIDED, STARTED, FINISHED)
    assert "waiting for a person 1m" in row.times


def test_an_open_call_is_in_progress_until_now() -> None:
    """A call without a result waits for what it waits for until now, if the run is open; else until the last event."""
    (waits,) = rows(CALL, ASKED, second=110, is_open=True)
    assert (waits.times, waits.status) == (("waiting for a worker 10s", "waiting for a person 1m 40s"), "in progress")
    (runs,) = rows(CALL, event(1, "tool_call_started", number=1), second=5, is_open=True)
    assert runs.times == ("waiting for a worker 1s", "running 4s")
    (cut,) = rows(CALL, ASKED, second=110)
    assert (cut.times, cut.status) == (("waiting for a worker 10s",), "continues later")


def test_deaths_and_failed_attempts_are_told_apart() -> None:
    """A call says how many workers died and how many attempts failed before its result."""
    outage = {"failed": 1, "last": [{"cause": "RateLimitError", "message": "429"}]}
    reply = event(9, "llm_replied", llm="m", duration_ms=1_000, attempt=4, outage=outage)
    failures = {
        "count": 3,
        "last": [{"kind": "no_response", "message": "it died"}, {"kind": "timeout", "message": "60 s"}],
    }
    (llm, tool) = rows(event(0, "agent_loaded"), reply, CALL | {"at": reply["at"]}, FINISHED | {"failures": failures})
    assert llm.survived == "2 workers died and 1 attempt failed before it; the last: RateLimitError: 429"
    assert llm.times == ("waiting for a worker 8s", "running 1s")
    assert tool.survived == "1 worker died and 2 attempts failed before it; the last: timeout: 60 s"


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "tool_call_finished", "number": 7, "at": BEGIN.isoformat()},
        {"type": "tool_call_requested", "number": "x", "call": None, "at": BEGIN.isoformat()},
        {"type": "decision_received", "request": None, "at": BEGIN.isoformat()},
        {"type": "llm_replied", "at": "yesterday"},
        {"type": "llm_replied", "at": BEGIN.isoformat(), "outage": None, "attempt": None, "duration_ms": "x"},
        {"at": "2026-01-02T03:04:05"},
        {},
    ],
)
def test_events_that_are_cut_or_new_break_nothing(odd: JSON) -> None:
    """A window may begin in the middle of a call, and a newer release may write other fields."""
    for row in rows(odd, CALL, odd, FINISHED):
        assert all(0 <= bar.x < WIDTH and 0 < bar.width <= WIDTH for bar in row.bars)


def test_a_plot_rises_to_its_total_with_few_points() -> None:
    """The running total ends at the top; a run of 10,000 replies is a line of a few hundred points."""
    usage = {"prompt_tokens": 90, "completion_tokens": 10, "cached_tokens": 80}
    replies = [event(n, "llm_replied", usage=usage, llm="m", cost=2_000_000) for n in range(10_000)]
    costs = costs_view(map(slim, [*replies, event(1, "run_finished")]), BEGIN)
    tokens, money = costs.plots
    assert (tokens.total, money.total, costs.replied, costs.unpriced) == ("1,000,000", "$20.0000", 10_000, 0)
    assert tokens.points.startswith(f"0,{HEIGHT} ")
    assert tokens.points.endswith(",4")
    assert len(tokens.points.split()) <= POINTS + 3
    assert (costs.replies[0].position, costs.replies[0].cost) == (9_999, "$0.002000")


def test_a_run_without_prices_has_no_plot_of_money() -> None:
    """A reply whose price is unknown counts as unpriced, not as free."""
    costs = costs_view([event(1, "llm_replied", usage={"prompt_tokens": 5}, llm="m")], BEGIN)
    assert [plot.name for plot in costs.plots] == ["Tokens"]
    assert (costs.unpriced, costs.replies[0].cost) == (1, "")


def test_a_run_without_replies_has_no_plot() -> None:
    """The page of costs can be opened before the LLM has replied."""
    assert costs_view([], BEGIN) == ((), (), 0, 0)
