"""Trace context from outside: a claim that is bounded, exact in form, and good for a link alone."""

from datetime import UTC, datetime

from holdfast.client.start_options import StartOptions
from holdfast.core.base.models import replace
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.mac.starts import refusal
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.subagents import StartSubagentsRequest, SubagentStart, child_input
from holdfast.core.run.state.features import KEEPS_TRACE
from holdfast.core.run.state.state import MOST_RUN_ID
from holdfast.telemetry.traces.tracer import spans_of
from tests.support.logs import three_weeks
from tests.support.runs import Thread, agent_spec

GOOD = SpanContext("a" * 32, "b" * 16).traceparent


def test_whatever_a_caller_sends_as_traceparent_starts_the_run() -> None:
    """A header of any size and form is at most 55 characters of hexadecimal digits in a start, or nothing."""
    for hostile in (
        "x" * 1_000_000,
        GOOD + "\r\nX-Admin: 1",
        GOOD.upper(),
        "00-" + "0" * 32 + "-" + "0" * 16 + "-01",
        "\0",
    ):
        assert StartOptions(traceparent=hostile).traceparent == ""
    assert StartOptions(traceparent=GOOD).traceparent == GOOD


def test_a_plain_start_cannot_claim_a_span() -> None:
    """Only a process with the fleet key passes a caller's span on: anybody else's start with one is refused."""
    now = datetime(2026, 1, 2, tzinfo=UTC)
    refused = refusal(RunInput(task="x", traceparent=GOOD), first_run_id="r", started_at=now)
    assert "traceparent" in refused


def test_a_claimed_span_never_becomes_a_parent() -> None:
    """A caller cannot put spans into the trace of another: our spans have traces of their own, and link only."""
    victim = three_weeks(waits=1)
    (root, *_), *_ = [trace.spans for trace in spans_of(victim.events, victim.thread)]
    claimed = three_weeks("other", waits=1, run="r-2", traceparent=root.context.traceparent)
    spans = [span for trace in spans_of(claimed.events, claimed.thread) for span in trace.spans]
    assert root.context.trace not in {span.context.trace for span in spans}
    assert root.context.span not in {span.parent for span in spans}


def test_a_sub_agent_of_an_older_run_starts_as_before() -> None:
    """Below the level of such links, the start of a sub-agent is the same as in the release that recorded the run."""
    child = SubagentStart(number=1, key="k", agent="a", task="t")
    for level, expected in ((1, ""), (2, GOOD)):
        order = StartSubagentsRequest(
            children=(child,), path=("t",), depth=1, deepest=3, workspace="/w", trust="person", features=level
        )
        assert child_input(order, child, traceparent=GOOD).traceparent == expected


def test_a_file_cannot_make_each_request_long() -> None:
    """The id whose trace an imported run keeps comes from the file: requests repeat a bounded part of it."""
    there = Thread(agent_spec(), features=KEEPS_TRACE)
    there.load(KEEPS_TRACE)
    state = there.moved().imported(features=KEEPS_TRACE).run.state
    assert state.kept_trace
    long = replace(state, origin=replace(state.origin, first_run_id="x" * 1_000_000))
    assert len(long.kept_trace) == MOST_RUN_ID
