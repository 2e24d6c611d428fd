"""Traces from the log: what an activation is, how traces are linked, and what they never contain."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

import pytest

from holdfast.core.base.trace_context import SpanContext, read_traceparent
from holdfast.core.lineage import Lineage
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log import events as ev
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.triggers import TimeTrigger
from holdfast.telemetry.otlp import as_json, trace_request
from holdfast.telemetry.traces import names
from holdfast.telemetry.traces.progress import Progress
from holdfast.telemetry.traces.spans import Span, activation_context, run_context
from holdfast.telemetry.traces.tracer import MOST_STEPS, Tracer, spans_of
from tests.replay.test_verifiers import recorded_logs
from tests.support.logs import WrittenLog, three_weeks
from tests.support.runs import loaded_thread


def traces_of(log: WrittenLog, *, content: bool = False) -> list[tuple[Span, ...]]:
    """Return the traces of a log."""
    return [trace.spans for trace in spans_of(log.events, log.thread, content=content)]


def attribute(span: Span, name: str) -> object:
    """Return an attribute of a span; None if it has none."""
    return span.attributes.get(name)


def test_a_run_of_three_weeks_with_twenty_waits_has_twenty_one_traces_that_links_join() -> None:
    """Each activation has a trace of its own, whose root leads to the one before; one span sums up the run."""
    log = three_weeks(waits=20)
    *activations, (summary,) = traces_of(log)
    assert len(activations) == 21
    roots = [spans[0] for spans in activations]
    assert len({root.context.trace for root in roots}) == 21
    assert all(not root.parent for root in roots)
    for before, root in pairwise(roots):
        (link,) = [each for each in root.links if each.attributes[names.LINK] == "previous_activation"]
        assert link.to == before.context
        assert (attribute(root, names.WAITED_FOR), attribute(before, names.WAITS_FOR)) == ("approval", "approval")
        assert attribute(root, names.WAITED) == timedelta(days=21 / 20).total_seconds()
        assert root.end - root.start < timedelta(minutes=1), "no span is open while the run waits"
    assert summary.context == run_context("r-1")
    assert all(any(link.to == summary.context for link in root.links) for root in roots)
    assert summary.end - summary.start > timedelta(days=21)
    assert attribute(summary, names.WAITS) == 20
    assert attribute(summary, names.STEPS) == 41
    assert attribute(summary, names.INPUT_TOKENS) == 4_100
    assert summary.context.trace not in {root.context.trace for root in roots}


def test_each_call_is_a_child_of_its_activation_with_its_approval() -> None:
    """LLM calls and tool calls have the names of the conventions; a wait for people is an attribute of the call."""
    _, (root, tool, chat), _ = traces_of(three_weeks(waits=1))
    assert (root.name, chat.name, tool.name) == ("invoke_agent agent", "chat scripted", "execute_tool pay")
    assert {chat.parent, tool.parent} == {root.context.span}
    assert chat.start < chat.end
    assert chat.kind == "client"
    assert tool.end - tool.start == timedelta(seconds=1)
    approval = {name: value for name, value in tool.attributes.items() if name.startswith("holdfast.approval.")}
    assert approval == {
        "holdfast.approval.request": "2",
        "holdfast.approval.kind": "approval",
        "holdfast.approval.rule": "ask pay",
        "holdfast.approval.decision": "approve",
        "holdfast.approval.proof": "",
        "holdfast.approval.edited": False,
        "holdfast.approval.wait.seconds": timedelta(days=21).total_seconds(),
        "holdfast.approval.reminders": 0,
        "holdfast.approval.escalations": 0,
    }


def test_a_run_without_waits_is_divided_by_its_steps() -> None:
    """After 200 steps a new trace begins, so that nothing is exported only at the end of a long run."""
    log = WrittenLog("busy")
    for _ in range(2 * MOST_STEPS + 1):
        (number,) = log.reply("look")
        log.run_call(number)
    log.finish()
    *activations, _ = traces_of(log)
    assert [spans[0].attributes[names.STEPS] for spans in activations] == [MOST_STEPS, MOST_STEPS, 1]
    assert all(names.WAITS_FOR not in spans[0].attributes for spans in activations)


@pytest.mark.parametrize("levels", [(1,), (2,), (1, 2), (2, 1), (1, 1, 2), (1, 2, 2), (2, 1, 2)])
def test_headers_have_the_trace_that_is_exported_after_moves_at_any_level(levels: tuple[int, ...]) -> None:
    """An import at level 1 begins a trace, one from level 2 on keeps what there is: in requests, and in exports."""
    thread, chains = loaded_thread(features=levels[0]), dict[int, str]()
    for number, level in enumerate(levels, start=2):
        chains[len(thread.moved().log)] = f"chain-{number}"
        thread = thread.imported(features=level)
    state, progress = RunState(), Progress()
    for event in thread.log:
        if chain := chains.get(event.position):
            assert isinstance(event, ev.RunImported)
            event = event.model_copy(update={"first_run_id": chain})
        state = evolve(state, event)
        progress.fold(event)
    executing = f"chain-{len(levels) + 1}"
    assert progress.summary == run_context(state.kept_trace or executing)
    assert progress.run == executing, "the spans' own ids are those of the chain"


def test_a_sleep_is_no_span() -> None:
    """A call that slept for a week is in the trace of the activation that it woke, from then on."""
    log = WrittenLog("sleeper")
    (number,) = log.reply("look")
    log.add(ev.ToolCallStarted(number=number, key="k"))
    log.add(ev.DormancyBegan(number=number, trigger=TimeTrigger(kind="time", until=log.at + timedelta(days=7))))
    log.later(days=3)
    log.add(ev.WakeReceived(outcome="buffered", event="noise"))
    log.later(days=4)
    log.add(ev.ToolCallFinished(number=number, status="ok", content="awake"))
    log.reply(text="done")
    log.finish()
    first, second, _ = traces_of(log)
    assert [span.name for span in first] == ["invoke_agent agent", "chat scripted"]
    root, tool, _ = second
    assert attribute(root, names.WAITED) == timedelta(days=7).total_seconds()
    assert tool.start == root.start, "what arrived in the meantime did not begin an activation"


def test_the_first_activation_and_the_summary_link_to_the_caller() -> None:
    """A start's `traceparent` becomes a link of the first root and of the summary, and no parent."""
    caller = SpanContext("a" * 32, "b" * 16)
    *activations, (summary,) = traces_of(three_weeks(waits=2, traceparent=caller.traceparent))
    linked = [[link.to for link in root.links if link.attributes[names.LINK] == "caller"] for root, *_ in activations]
    assert linked == [[caller], [], []]
    assert [link.to for link in summary.links if link.attributes[names.LINK] == "caller"] == [caller]
    assert not any(root.parent for root, *_ in activations)
    (root, *_), *_ = traces_of(three_weeks(waits=1, traceparent="00-nonsense"))
    assert {link.attributes[names.LINK] for link in root.links} == {"run"}


def test_a_sub_agent_links_to_its_parents_call() -> None:
    """The first root of a sub-agent leads to the span that sums up its parent's run, and names the call there."""
    lineage = Lineage(path=("top", "parent"), number=4, key="k", deepest=3)
    log = three_weeks(waits=1, traceparent=run_context("parent-run").traceparent, lineage=lineage)
    (root, *_), *_ = traces_of(log)
    (link,) = [each for each in root.links if each.attributes[names.LINK] == "parent_run"]
    assert (link.to, link.attributes[names.PARENT_CALL]) == (run_context("parent-run"), 4)


def test_a_sub_agent_is_found_from_the_call_that_started_it() -> None:
    """The span of the call has a link to the span that sums up the sub-agent's run."""
    log = WrittenLog("parent")
    (number,) = log.reply("look")
    log.add(ev.ToolCallStarted(number=number, key="k"))
    log.add(ev.SubagentStarted(number=number, thread="parent.1", agent="helper", run_id="child-run"))
    log.later(hours=1)
    log.add(ev.SubagentEnded(number=number, thread="parent.1", status="completed"))
    log.add(ev.ToolCallFinished(number=number, status="ok", content="ok"))
    log.reply(text="done")
    log.finish()
    first, second, _ = traces_of(log)
    assert attribute(first[0], names.WAITS_FOR) == "subagent"
    assert [link.to for link in second[1].links] == [run_context("child-run")]


def test_spans_have_no_content_unless_it_is_switched_on() -> None:
    """Tasks, arguments, results, reasons, names of people and tool names that an LLM invented are left out."""
    log = WrittenLog("quiet", task="SECRET-task")
    log.add(ev.UserMessageReceived(content="SECRET-message", by="SECRET-person"))
    first, second = log.reply("look", "pay", text="SECRET-reply")
    log.run_call(first, content="SECRET-result")
    request = log.ask(second)
    log.later(days=1)
    log.decide(request, "deny", reason="SECRET-reason")
    log.add(ev.ToolCallFinished(number=second, status="denied", content="SECRET-denial"))
    log.reply(text="")
    log.add(ev.ToolCallRequested(number=9, call=ToolCall(id="c9", name="SECRET-tool", arguments='{"a": "SECRET"}')))
    log.add(ev.ToolCallFinished(number=9, status="invalid", content="there is no SECRET-tool"))
    log.add(ev.RunBlocked(cause="LLMRejected", message="SECRET-block"))
    log.finish("failed", result="SECRET-answer", cause="LLMRejected")
    plain = [span for trace in traces_of(log) for span in trace]
    assert "SECRET" not in str(trace_request(plain, {}))
    full = [span for trace in traces_of(log, content=True) for span in trace]
    shown = str(trace_request(full, {}))
    for each in ("task", "message", "reply", "result", "reason"):
        assert f"SECRET-{each}" in shown
    assert all("SECRET" not in span.name for span in full), "a name that an LLM invented is no name"


@pytest.mark.parametrize("content", [False, True])
def test_a_tracer_that_stops_after_any_event_goes_on_with_the_same_spans(content: bool) -> None:
    """Exports in parts give the same spans as one export, for every recorded run, wherever the parts begin."""
    for name, events in recorded_logs("0.3.0").items():
        if events[0].type == "loop_started":
            continue
        log: Sequence[ev.AgentEvent] = events  # type: ignore[assignment]
        thread = [event.thread for event in log if isinstance(event, ev.RunStarted | ev.RunForked)][-1]
        tasks = [at for at, event in enumerate(log) if at and event.at != log[at - 1].at]
        found, carried, start = [], None, 0
        for stop in [*tasks, len(log)]:
            tracer = Tracer(thread, carried, content=content)
            for event in log[start:stop]:
                found += [trace.spans for trace in tracer.take(event)]
            found += [trace.spans for trace in tracer.finish()]
            if tracer.progress is not None:
                carried, start = tracer.progress, tracer.position
        whole = [trace.spans for trace in spans_of(log, thread, content=content)]
        assert found == whole[: len(found)], name
        assert all(event.type != "run_finished" for event in log[start:]), "what ended was exported"


def test_ids_follow_from_run_and_position_alone() -> None:
    """The same log gives the same bytes; the formulas of the ids never change."""
    first, second = (
        trace_request([s for t in traces_of(three_weeks()) for s in t], {}).SerializeToString() for _ in range(2)
    )
    assert first == second
    assert activation_context("r-1", 0) == ("4fe81cfc626f23ae4e0b4e58fee9bc7d", "18b6a16b92e17fb5")
    assert run_context("r-1") == ("d95a8832635f79a22917cb2c13f73838", "3b7c9f4edd98a2f5")


def test_otlp_json_has_ids_in_hexadecimal() -> None:
    """Collectors read ids of OTLP JSON as hexadecimal digits, not as Base64."""
    spans = [span for trace in traces_of(three_weeks(waits=1)) for span in trace]
    (resource,) = as_json(trace_request(spans, {"service.name": "x"}))["resourceSpans"]
    for span, own in zip(resource["scopeSpans"][0]["spans"], spans, strict=True):
        assert (span["traceId"], span["spanId"]) == own.context
        assert span.get("parentSpanId", "") == own.parent
        assert [(link["traceId"], link["spanId"]) for link in span.get("links", ())] == [each.to for each in own.links]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nx: y",
    ],
)
def test_a_malformed_traceparent_is_no_trace_context(text: str) -> None:
    """Only a `traceparent` in exactly the form of W3C Trace Context is taken."""
    assert read_traceparent(text) is None
    good = run_context("r")
    assert read_traceparent(good.traceparent) == good
