"""Spans as data, and their deterministic ids: whoever exports a span again exports the same one."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal

from holdfast.core.base.canonical import digest
from holdfast.core.base.trace_context import SpanContext
from holdfast.portable.format.origins import trace_id

Value = str | int | float | bool | tuple[str, ...]
Attributes = Mapping[str, Value]
SpanKind = Literal["internal", "client"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a span of another trace."""

    to: SpanContext
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """A point in time within a span."""

    name: str
    at: datetime
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Span:
    """A finished span."""

    context: SpanContext
    parent: str
    """The id of the span above it in its trace; empty for a root."""
    name: str
    kind: SpanKind
    start: datetime
    end: datetime
    attributes: Attributes
    links: tuple[Link, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """A short name of the error; None for no error."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one activation, or the summary of a run."""

    spans: tuple[Span, ...]
    """The root first."""


@lru_cache(1_024)
def run_context(run: str) -> SpanContext:
    """Return the ids of the span that sums up a run, in the trace `trace/1` of that run.

    Args:
        run: Temporal's first run id of the chain.
    """
    return SpanContext(trace_id(run), _span_id("run", run, 0))


@lru_cache(1_024)
def activation_context(run: str, position: int) -> SpanContext:
    """Return the ids of the root span of an activation, in a trace `trace/2` of its own.

    Args:
        run: Temporal's first run id of the chain.
        position: The position of the activation's first event.
    """
    return SpanContext(digest(["trace/2", run, position])[:32], _span_id("activation", run, position))


def child_context(root: SpanContext, run: str, position: int) -> SpanContext:
    """Return the ids of the span of an LLM call or a tool call, by the position of the event that ends it."""
    return SpanContext(root.trace, _span_id("call", run, position))


def _span_id(kind: str, run: str, position: int) -> str:
    return digest(["span/1", kind, run, position])[:16]


def nanoseconds(at: datetime) -> int:
    """Return a time in nanoseconds since 1970, exactly."""
    return (at - _EPOCH) // timedelta(microseconds=1) * 1_000
