"""Metrics: bounded labels, whoever names threads, tools and LLMs; rules and dashboards that name what exists."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.runtime import MetricBuffer, Runtime, TelemetryConfig

from holdfast import Agent, Catalog, tool
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.deltas import Delta
from holdfast.core.llm.messages import Usage
from holdfast.core.nodes import NodeTerms
from holdfast.core.run.contracts.llm_calls import LLMReply, LLMRequest
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.secrets import Secrets
from holdfast.core.transcript.transcript import TranscriptRef
from holdfast.streaming.publisher import Publisher
from holdfast.streaming.transport import Attempt
from holdfast.telemetry.metrics.instruments import Names, instruments_of
from holdfast.telemetry.metrics.measuring import Measuring
from holdfast.telemetry.metrics.names import METRICS, OTHER
from tests.support.in_memory_streams import InMemoryStreams

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "docker/prometheus"
RULES = PROMETHEUS / "alerts.yml"
DASHBOARD = ROOT / "docker/grafana/holdfast.json"
RUNBOOK = ROOT / "docs/how-to/monitor.md"
SDK = frozenset(
    {
        "temporal_sticky_cache_hit",
        "temporal_sticky_cache_miss",
        "temporal_sticky_cache_size",
        "temporal_worker_task_slots_available",
        "temporal_workflow_task_schedule_to_start_latency",
    }
)
"""Metrics of Temporal's SDK that the files name."""


@tool(effect="read")
def look() -> str:
    """Look."""
    return ""


def test_labels_are_bounded_whoever_names_things() -> None:
    """A million names of agents, tools and LLMs that are not the catalog's make one series; none of them is a label."""
    buffer = MetricBuffer(100_000)
    instruments = instruments_of(Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter)
    catalog = Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look], llm="gpt-5-mini")])
    measuring = Measuring(instruments, catalog, ["scripted"])
    buffer.retrieve_updates()
    series: set[tuple[str, tuple[tuple[str, Any], ...]]] = set()
    for number in range(2_000):
        name = f"MADE-UP-{number}"
        request = LLMRequest(transcript=TranscriptRef(length=1, digest="d"), nodes=NodeTerms(agent=name))
        usage = Usage(prompt_tokens=10, completion_tokens=1)
        measuring.ended(request, LLMReply(llm=name, usage=usage, finish_reason=name, request_id=name), 0.1)
        called = ToolRequest(call=ToolCall(id=name, name=name, arguments="{}"), key=name, workspace=name)
        measuring.ended(called, ToolOutcome(status="failed", content=name), 0.1)
        series |= {(each.metric.name, tuple(sorted(each.attributes.items()))) for each in buffer.retrieve_updates()}
    assert len({name for name, _ in series}) >= 4
    assert len(series) <= 2 * len(METRICS)
    assert "MADE-UP" not in repr(series)
    names = Names(["clerk", "gpt-5-mini"])
    assert {names.of(f"n{number}") for number in range(1_000_000)} == {OTHER}
    assert names.beginning("gpt-5-mini-2026-08-07") == "gpt-5-mini"
    assert names.beginning("gpt-4") == OTHER


def test_an_alert_sees_the_first_failure() -> None:
    """Counters of failures begin at 0: without a value before it, Prometheus sees no increase in the first one."""
    buffer = MetricBuffer(1_000)
    instruments = instruments_of(Runtime(telemetry=TelemetryConfig(metrics=buffer)).metric_meter)
    Measuring(instruments, Catalog(agents=[Agent(name="clerk", instructions="Work.", tools=[look])]), [])
    begun = {(each.metric.name, *sorted(each.attributes.values())): each.value for each in buffer.retrieve_updates()}
    assert set(begun.values()) == {0}
    assert {
        ("holdfast_takeovers_total",),
        ("holdfast_worker_deaths_total", "call_tool"),
        ("holdfast_failed_attempts_total", "archive"),
        ("holdfast_tool_calls_total", "failed", "look"),
    } <= {tuple(str(text) for text in key if text != "temporal-core-sdk") for key in begun}


async def test_the_lag_of_streams_is_the_wait_until_a_batch_is_stored() -> None:
    """Each stored batch reports how long its oldest piece waited; one that is dropped reports nothing."""
    lags: list[float] = []
    transport = InMemoryStreams()
    publisher = Publisher(transport)
    publisher.on_sent = lags.append
    attempt = Attempt("t", 3, 0, 1)

    async def find() -> Attempt:
        return attempt

    reply = publisher.reply(find, Secrets({}))
    reply.emit(Delta("text", "Hello."))
    assert reply.finding is not None
    await reply.finding
    await asyncio.sleep(0)
    await publisher.flush()
    await publisher.flush()  # nothing is due
    assert len(lags) == 1
    assert lags[0] >= 0

    async def fail(*args: object) -> None:
        raise OSError("the database is down")

    transport.append = fail  # type: ignore[assignment,method-assign]
    reply.emit(Delta("text", "More. " * 300))
    await publisher.flush()
    assert len(lags) == 1


def test_a_metric_has_exactly_its_labels() -> None:
    """A label that the table does not name is a mistake, and so is one that is missing."""
    instruments = instruments_of(Runtime(telemetry=TelemetryConfig(metrics=MetricBuffer(100))).metric_meter)
    steps = METRICS[0]
    instruments.add(steps, agent="a", llm="b")
    for wrong in ({"agent": "a"}, {"agent": "a", "llm": "b", "thread": "t"}):
        with pytest.raises(AssertionError):
            instruments.add(steps, **wrong)


def named(text: str) -> set[str]:
    """Return the metrics that an expression names."""
    return {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:holdfast|temporal)_[a-z_]+", text)}


def test_rules_and_dashboards_name_metrics_that_exist() -> None:
    """Each metric in an alert rule or a dashboard is one of ours, or of the SDK; each of ours is on the dashboard."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    shown = {name for panel in panels for target in panel["targets"] for name in named(target["expr"])}
    ours = {each.name for each in METRICS}
    assert shown | {name for rule in rules for name in named(rule)} <= ours | SDK
    assert ours <= shown
    for panel in panels:
        for target in panel["targets"]:
            labels = {label for each in METRICS if each.name in named(target["expr"]) for label in each.labels}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels | {"worker_type"}


def test_each_alert_has_a_runbook_and_a_test() -> None:
    """An alert leads to the section of the page that says what to do, and is seen to fire."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    headings = set(re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    assert {rule["alert"] for rule in rules} == headings
    for rule in rules:
        assert rule["annotations"]["runbook"] == f"docs/how-to/monitor.md#{rule['alert'].lower()}"
    tests = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())["tests"]
    cases = [case for each in tests for case in each["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == headings


def test_prometheus_accepts_the_rules_and_each_alert_fires() -> None:
    """Prometheus itself checks the rules, and runs their tests: no alert fires without its cause."""
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run([promtool, *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
