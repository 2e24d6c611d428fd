"""A program's own telemetry: its tracer provider, its meter provider, and its function for each event."""

import asyncio
import json
import logging
from collections.abc import Sequence
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg_pool import AsyncConnectionPool

from holdfast import Agent, AgentEvent, Catalog, Policy, ToolContext, allow, ask, tool
from holdfast.composition.telemetry.logs import configure_logging
from holdfast.config.stack_file import Stack
from holdfast.storage.threads import PostgresThreads
from holdfast.telemetry.following import Held, Receiver, look
from holdfast.telemetry.hook import EventHook
from holdfast.telemetry.provided import ProvidedTracer
from holdfast.telemetry.traces.spans import run_context
from holdfast.telemetry.traces.tracer import spans_of
from holdfast.testing import agent, call, say
from tests.support.feeds import own_feed
from tests.support.keeping import new_pool
from tests.support.logs import three_weeks

SEEN: list[dict[str, str]] = []


@tool(effect="read")
async def lookup(context: ToolContext) -> str:
    """Look something up."""
    current = trace.get_current_span().get_span_context()
    logging.getLogger("mine").warning("looking")
    SEEN.append({**context.trace_headers, "current": f"{current.trace_id:032x}-{current.span_id:016x}"})
    return "MARKED-result"


@tool(effect="unsafe")
def pay(note: str, context: ToolContext) -> str:
    """Pay."""
    SEEN.append(dict(context.trace_headers))
    return "MARKED-paid"


POLICY = Policy(rules=(allow("lookup"), ask("pay")))
CLERK = Agent(name="clerk", instructions="MARKED-instructions", tools=[lookup, pay], policy=POLICY)
REPLIES = [call("lookup"), call("pay", note="MARKED-note"), say("MARKED-answer")]


def recording() -> tuple[TracerProvider, InMemorySpanExporter]:
    """Return a program's tracer provider, and what it exports."""
    provider, exported = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider, exported


@pytest.mark.extended
@pytest.mark.usefixtures("session_server")
async def test_a_program_observes_its_runs_with_its_own_providers() -> None:
    """Spans, metrics and events reach it; tools, LLM requests and logs have the trace of the run; content stays out."""
    provider, exported = recording()
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    got: list[tuple[str, AgentEvent]] = []
    SEEN.clear()
    lines = StringIO()
    configure_logging("WARNING", "json", stream=lines)
    observed: dict[str, Any] = {"tracer_provider": provider, "meter_provider": meters}
    async with agent(
        Catalog(agents=[CLERK]), REPLIES, **observed, on_event=lambda thread, event: got.append((thread, event))
    ) as run:
        with provider.get_tracer("caller").start_as_current_span("request") as request:
            assert (await run.task("MARKED-task")).status == "waiting_approval"
        await run.approve()
        events, thread = await run.events(), run.thread.id
        headers = [each.headers for each in run.llm.requests]
    own = run_context(events[0].first_run_id)  # type: ignore[union-attr]
    spans = [span for span in exported.get_finished_spans() if span.name != "request"]
    found = {(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}") for span in spans if span.context}
    assert found == {tuple(span.context) for traced in spans_of(events, thread) for span in traced.spans}
    assert len(spans) == len(found), "each span once"
    callers = [link.context for span in spans for link in span.links if link.attributes["holdfast.link"] == "caller"]  # type: ignore[index]
    assert {each.span_id for each in callers} == {request.get_span_context().span_id}
    assert [each["traceparent"] for each in headers] == [own.traceparent] * 3
    assert [each["traceparent"] for each in SEEN] == [own.traceparent] * 2
    assert [each["tracestate"] for each in SEEN] == ["holdfast=call:1", "holdfast=call:2"]
    assert SEEN[0]["current"] == f"{own.trace}-{own.span}"
    (line,) = [json.loads(each) for each in lines.getvalue().splitlines() if "looking" in each]
    assert (line["trace_id"], line["span_id"]) == (own.trace, own.span)
    assert [event for _, event in got] == events
    assert {name for name, _ in got} == {thread}
    metrics = reader.get_metrics_data()
    assert metrics is not None
    assert "holdfast_steps_total" in (measured := metrics.to_json())
    assert "MARKED" not in measured + "".join(span.to_json() for span in spans)


@pytest.mark.extended
@pytest.mark.usefixtures("session_server")
async def test_a_run_that_nobody_observes_has_no_trace() -> None:
    """Without a tracer, no header is sent, and nothing is computed."""
    SEEN.clear()
    async with agent(Catalog(agents=[CLERK]), [call("lookup"), say("done")]) as run:
        await run.task("look")
        headers = [each.headers for each in run.llm.requests]
    assert not any("traceparent" in each for each in headers)
    assert "traceparent" not in SEEN[0]


async def deliver(url: str, pool: AsyncConnectionPool, receiver: Receiver, *, past: bool = False) -> None:
    """Deliver everything that is new, as a process does that has just taken over."""
    async with own_feed(url, "events:test", past=past) as feed:
        for _ in range(2):
            while await look(feed, receiver, PostgresThreads(pool)):
                pass


async def test_events_arrive_in_order_and_again_until_the_program_takes_them(stack: Stack) -> None:
    """An exception holds back its own thread, from that event on; after a crash, nothing that was taken is lost."""
    good, bad = three_weeks("good", run="good", waits=1), three_weeks("bad", run="bad", waits=1)
    got: list[tuple[str, int]] = []
    refused = {("bad", 3)}

    async def on_event(thread: str, event: AgentEvent) -> None:
        await asyncio.sleep(0)
        if (thread, event.position) in refused:
            raise RuntimeError("not now")
        got.append((thread, event.position))

    async with new_pool(stack.database_url) as (url, pool):
        await deliver(url, pool, EventHook(on_event))
        for log in (bad, good):
            await PostgresThreads(pool).append(log.thread, 0, log.lines)
        for _ in range(2):
            with pytest.raises(Held):
                await deliver(url, pool, EventHook(on_event))
        assert [position for thread, position in got if thread == "good"] == list(range(len(good.lines)))
        assert [position for thread, position in got if thread == "bad"] == [0, 1, 2]
        refused.clear()
        await deliver(url, pool, EventHook(on_event))
        await deliver(url, pool, EventHook(on_event))
    assert [position for thread, position in got if thread == "bad"] == list(range(len(bad.lines)))


@pytest.mark.extended
async def test_a_sync_function_that_blocks_stops_no_worker(stack: Stack) -> None:
    """A function that is no coroutine function runs in a thread, one event after the other."""
    log, got = three_weeks(waits=1), list[int]()
    loops: list[bool] = []

    def on_event(thread: str, event: AgentEvent) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        got.append(event.position)

    async with new_pool(stack.database_url) as (url, pool):
        await PostgresThreads(pool).append(log.thread, 0, log.lines)
        await deliver(url, pool, EventHook(on_event), past=True)
    assert got == list(range(len(log.lines)))
    assert len(loops) == len(got)


class OtherProvider(trace.TracerProvider):
    """An implementation of OpenTelemetry's API that chooses ids by itself, around the SDK."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **options: Any) -> trace.Tracer:
        """Return a tracer without an id generator."""
        own = self._provider.get_tracer(uuid4().hex)

        class Other(trace.Tracer):
            def start_span(self, *args: Any, **options: Any) -> trace.Span:
                return own.start_span(*args, **options)

            def start_as_current_span(self, *args: Any, **options: Any) -> Any:
                return own.start_as_current_span(*args, **options)

        return Other()


@pytest.mark.extended
async def test_a_provider_with_ids_of_its_own_has_joined_traces_too() -> None:
    """The root is above its calls, and each activation leads to the one before, by whatever ids the provider chose."""
    log = three_weeks(waits=3)
    provider, exported = recording()
    tracer = ProvidedTracer(OtherProvider(provider))
    from holdfast.telemetry.following import Part

    await tracer.deliver([Part(log.thread, log.events, None)])
    spans = {span.context.span_id: span for span in exported.get_finished_spans() if span.context}
    assert len(spans) == len([span for traced in spans_of(log.events, log.thread) for span in traced.spans])
    assert all(span.parent is None or span.parent.span_id in spans for span in spans.values())
    assert linked(list(spans.values())) == 3


def linked(spans: Sequence[Any]) -> int:
    """Return how many links lead from an activation to the one before, among these spans."""
    known = {span.context.span_id for span in spans}
    links = [link for span in spans for link in span.links]
    return sum(
        link.attributes["holdfast.link"] == "previous_activation" and link.context.span_id in known for link in links
    )
