"""The trace context of the calling run, for logs, tools, and requests to LLMs.

It is the span that sums up the run, in the trace whose id portable files name for the run (`trace/1`): the ids follow
from the first run id alone, so an activity knows them before anything is exported. A run that was moved keeps the trace
that it had: its requests name the chain in which it began. The call is in `tracestate`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import structlog
from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInterceptorClassInput,
)

from holdfast.activities.calling_run import Chains
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.mac.seals import ActivityRequest
from holdfast.core.run.contracts.commands import KEEP_TRACE
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolRequest
from holdfast.telemetry.traces.spans import run_context

VENDOR = "holdfast"
"""Our key in `tracestate`."""

_NONE: Mapping[str, str] = MappingProxyType({})
trace_headers: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=_NONE)
"""The headers of W3C Trace Context for the current activity; empty if it is not traced."""


class TraceContext(Interceptor):
    """Traces each activity: its log lines have the ids of its run's trace, and its requests pass them on.

    Args:
        chains: Maps a Temporal run to its chain.
    """

    def __init__(self, chains: Chains) -> None:
        self._chains = chains

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Wrap an activity."""
        return _Traced(next, self._chains)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        """Let the log lines of workflows have the ids of their runs' traces: nothing else is intercepted."""
        input.unsafe_extern_functions[KEEP_TRACE] = _no_move


def _no_move(run: str) -> None:
    """Ignore a kept trace: `holdfast.worker.workflow_runners` replaces this function for each workflow."""


class _Traced(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, chains: Chains) -> None:
        super().__init__(next)
        self._chains = chains

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info, request = activity.info(), input.args[0] if input.args else None
        try:
            run = _kept_trace(request) or await self._chains.first_run_id(
                info.workflow_id or "", info.workflow_run_id or ""
            )
        except Exception:  # Temporal is unavailable, and an activity does not fail because of its trace
            return await super().execute_activity(input)
        with traced(run_context(run), _state_of(request)):
            return await super().execute_activity(input)


def _kept_trace(request: Any) -> str:
    """Return the first run id of the chain whose trace a moved run keeps; empty for the trace of its own."""
    return request.trace_run if isinstance(request, ActivityRequest) else ""


def _state_of(request: Any) -> str:
    """Return the call that a request is about, as the value of our key in `tracestate`; empty for none."""
    if isinstance(request, ToolRequest):
        return f"call:{request.number}" if request.number else ""
    return f"request:{request.request}" if isinstance(request, PreviewRequest) else ""


@contextmanager
def traced(span: SpanContext, state: str = "") -> Iterator[None]:
    """Make a span the current one for a block: for `trace_headers`, for logs, and for OpenTelemetry if it is used.

    Args:
        span: The span.
        state: The value of our key in `tracestate`; empty for none.
    """
    headers = {"traceparent": span.traceparent} | ({"tracestate": f"{VENDOR}={state}"} if state else {})
    token = trace_headers.set(headers)
    try:
        with (
            structlog.contextvars.bound_contextvars(trace_id=span.trace, span_id=span.span),
            _current_span(span, state),
        ):
            yield
    finally:
        trace_headers.reset(token)


@contextmanager
def _current_span(span: SpanContext, state: str) -> Iterator[None]:
    """Make the span OpenTelemetry's current one, so that instrumented clients in tools send it and log it."""
    if "opentelemetry.trace" not in sys.modules:  # the program does not use it
        yield
        return
    from opentelemetry import context, trace

    token = context.attach(trace.set_span_in_context(_remote(span, state)))
    try:
        yield
    finally:
        context.detach(token)


@lru_cache(1_024)
def _remote(span: SpanContext, state: str) -> Any:
    """Return OpenTelemetry's own object for a span."""
    from opentelemetry import trace

    own = trace.SpanContext(
        int(span.trace, 16),
        int(span.span, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        trace_state=trace.TraceState([(VENDOR, state)] if state else []),
    )
    return trace.NonRecordingSpan(own)
