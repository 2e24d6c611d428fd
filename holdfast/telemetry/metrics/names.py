"""Every metric of Holdfast: its name, what it counts, and its labels. Nothing else defines one.

A label's values come from a closed list or from the catalog. No id, and no text of a person, an LLM or a provider, is a
label: a fleet with a million threads has as many series as one with ten.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """A metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    description: str
    unit: str = ""


STEPS: Final = Metric("holdfast_steps_total", "counter", ("agent", "llm"), "LLM calls that were answered.")
TOKENS: Final = Metric(
    "holdfast_tokens_total",
    "counter",
    ("agent", "llm", "type"),
    "Tokens by `type`: `input` (with those from and for the cache), `cache_read`, `cache_write` and `output`.",
)
COST: Final = Metric(
    "holdfast_cost_micro_usd_total",
    "counter",
    ("agent", "llm", "tenant"),
    "Cost of LLM calls by list prices, in millionths of a US dollar; calls without a known price are left out. "
    "`tenant` is one of `HOLDFAST_TENANTS`, or `other`.",
)
LLM_SECONDS: Final = Metric(
    "holdfast_llm_call_seconds", "histogram", ("llm",), "Time of the LLM call that was answered.", "s"
)
TOOL_CALLS: Final = Metric(
    "holdfast_tool_calls_total",
    "counter",
    ("tool", "status"),
    "Tool calls that ran, by their outcome: `ok`, `failed`, `unknown`, `cannot`, …",
)
TOOL_SECONDS: Final = Metric("holdfast_tool_call_seconds", "histogram", ("tool",), "Time of a tool call.", "s")
FAILED_ATTEMPTS: Final = Metric(
    "holdfast_failed_attempts_total",
    "counter",
    ("activity",),
    "Attempts at activities that raised: Temporal retries them, or the run is blocked.",
)
WORKER_DEATHS: Final = Metric(
    "holdfast_worker_deaths_total",
    "counter",
    ("activity",),
    "Attempts whose worker crashed, hung or lost its connection, counted by the attempt that came after.",
)
TAKEOVERS: Final = Metric(
    "holdfast_takeovers_total", "counter", (), "Dead workers of the same machine whose claims this worker ended."
)
ARCHIVE_SECONDS: Final = Metric(
    "holdfast_archive_lag_seconds",
    "histogram",
    (),
    "Time from the moment a run wanted to write to the record until it was written.",
    "s",
)
STREAM_SECONDS: Final = Metric(
    "holdfast_stream_lag_seconds",
    "histogram",
    (),
    "Time from the moment a piece of a reply was to be shown until its readers could get it.",
    "s",
)
RUNS: Final = Metric(
    "holdfast_runs",
    "gauge",
    ("status",),
    "Open runs that wait, by status: `waiting_approval`, `waiting_message`, `dormant`, `blocked` and `paused`.",
)
REQUESTS: Final = Metric("holdfast_requests_open", "gauge", (), "Open runs with at least one request to people.")
REQUEST_AGE: Final = Metric(
    "holdfast_requests_oldest_seconds", "gauge", (), "Age of the oldest open request that the record has.", "s"
)
BUDGET_SPENT: Final = Metric(
    "holdfast_runs_budget_spent", "gauge", (), "Runs that are blocked because their budget is spent, in the record."
)
FEED_BACKLOG: Final = Metric(
    "holdfast_feed_backlog_blocks",
    "gauge",
    ("feed",),
    "Blocks of the record that a feed has not passed. `traces` is the export of traces, which always holds back the "
    "last look.",
)
OBSERVED: Final = Metric(
    "holdfast_observed_timestamp_seconds",
    "gauge",
    (),
    "When the gauges above were last computed, in seconds since 1970.",
    "s",
)

METRICS: Final[tuple[Metric, ...]] = (
    *(STEPS, TOKENS, COST, LLM_SECONDS, TOOL_CALLS, TOOL_SECONDS, FAILED_ATTEMPTS, WORKER_DEATHS, TAKEOVERS),
    *(ARCHIVE_SECONDS, STREAM_SECONDS, RUNS, REQUESTS, REQUEST_AGE, BUDGET_SPENT, FEED_BACKLOG, OBSERVED),
)
"""All of them, in the order of the reference page."""

OTHER: Final = "other"
"""The value of a label for whatever the catalog does not name."""

BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""The bounds of our histograms, in seconds."""
