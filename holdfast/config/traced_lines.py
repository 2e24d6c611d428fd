"""The trace that a log line belongs to, if a workflow writes it. Activities bind theirs to structlog itself."""

from collections.abc import Callable
from contextvars import ContextVar

from holdfast.core.base.trace_context import SpanContext

line_trace: ContextVar[Callable[[], SpanContext] | None] = ContextVar("line_trace", default=None)
"""Returns the span of the current workflow. A function, because the tasks of a workflow copy the context when they
begin, and a run learns only later that it was moved and keeps another trace."""
