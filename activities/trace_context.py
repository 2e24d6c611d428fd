"""The trace context of the calling run, for logs, tools, and requests to LLMs.

It is the span that sums up the run, in the trace whose id portable files name for the run (`trace/1`): the ids follow
from the first run id alone, so an activity knows them before anything is exported. The call is in `tracestate`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

import structlog
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.activities.calling_run import Chains
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolRequest
from holdfast.telemetry.traces.spans import run_context

VENDOR = "holdfast"
"""Our key in `tracestate`."""

_NONE: Mapping[str, str] = MappingProxyType({})
_headers: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=_NONE)


def trace_headers() -> Mapping[str, str]:
    """Return the headers of W3C Trace Context for the current activity; empty if it is not traced."""
    return _headers.get()


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


class _Traced(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, chains: Chains) -> None:
        super().__init__(next)
        self._chains = chains

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        try:
            run = await self._chains.first_run_id(info.workflow_id or "", info.workflow_run_id or "")
        except Exception:  # Temporal is unavailable, and an activity does not fail because of its trace
            return await super().execute_activity(input)
        with traced(run_context(run), _state_of(input.args[0] if input.args else None)):
            return await super().execute_activity(input)


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
    token = _headers.set(headers)
    try:
        with (
            structlog.contextvars.bound_contextvars(trace_id=span.trace, span_id=span.span),
            _current_span(span, state),
        ):
            yield
    finally:
        _headers.reset(token)


@contextmanager
def _current_span(span: SpanContext, state: str) -> Iterator[None]:
    """Make the span OpenTelemetry's current one, so that instrumented clients in tools send it and log it."""
    if "opentelemetry.trace" not in sys.modules:  # the program does not use it
        yield
        return
    from opentelemetry import context, trace

    remote = trace.SpanContext(
        int(span.trace, 16),
        int(span.span, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
        trace_state=trace.TraceState([(VENDOR, state)] if state else []),
    )
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    try:
        yield
    finally:
        context.detach(token)
