"""Records traces through the tracer provider of a program, for whatever processors it has."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    set_span_in_context,
)

from holdfast.core.base.trace_context import SpanContext as Ids
from holdfast.telemetry.activations import ExportFailed, traces_of
from holdfast.telemetry.following import Part, Taken
from holdfast.telemetry.traces import names
from holdfast.telemetry.traces.bounds import bounded, bounded_text
from holdfast.telemetry.traces.spans import Attributes, Span, nanoseconds
from holdfast.version import __version__

FLUSH_SPANS = 500
"""Spans after which the provider is flushed: the SDK's batches drop spans beyond 2,048."""

FLUSH_SECONDS = 10.0
"""How long a flush may take."""

MOST_CONTEXTS = 10_000
"""Spans of a provider with ids of its own that later links can lead to."""

_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class ProvidedTracer:
    """Records the spans of activations that have ended.

    The SDK's tracers take our ids, so that whatever is recorded again after a crash is the same span. Another
    implementation has ids of its own.

    Args:
        provider: The program's.
        content: Record what was said, too.
    """

    def __init__(self, provider: TracerProvider, *, content: bool = False) -> None:
        self._provider = provider
        self._content = content
        self._tracer = provider.get_tracer(names.SCOPE, __version__)
        self._ids = _FixedIds()
        self._own = hasattr(self._tracer, "id_generator")
        if self._own:
            self._tracer.id_generator = self._ids  # type: ignore[attr-defined]
        self._made: OrderedDict[Ids, SpanContext] = OrderedDict()

    async def deliver(self, threads: Sequence[Part]) -> Sequence[Taken]:
        """Record the activations that have ended, and flush the provider.

        Raises:
            ExportFailed: The provider could not pass all of them on.
        """
        spans, taken = traces_of(threads, content=self._content)
        for start in range(0, len(spans), FLUSH_SPANS):
            for span in spans[start : start + FLUSH_SPANS]:
                self._record(span)
            await self._flush()
        return taken

    async def _flush(self) -> None:
        flush = getattr(self._provider, "force_flush", None)
        if flush and await asyncio.to_thread(flush, int(FLUSH_SECONDS * 1_000)) is False:
            raise ExportFailed("the tracer provider did not flush its spans in time")

    def _record(self, span: Span) -> None:
        self._ids.use(span.context)
        parent = Ids(span.context.trace, span.parent)
        recorded = self._tracer.start_span(
            bounded_text(span.name),
            set_span_in_context(NonRecordingSpan(self._context(parent)), Context()) if span.parent else Context(),
            _KINDS[span.kind],
            _attributes(span.attributes),
            [Link(self._context(link.to), _attributes(link.attributes)) for link in span.links],
            nanoseconds(span.start),
        )
        for event in span.events:
            recorded.add_event(event.name, _attributes(event.attributes), nanoseconds(event.at))
        if span.error:
            recorded.set_status(Status(StatusCode.ERROR, bounded_text(span.error)))
        recorded.end(nanoseconds(span.end))
        if not self._own:
            self._made[span.context] = recorded.get_span_context()
            while len(self._made) > MOST_CONTEXTS:
                self._made.popitem(last=False)

    def _context(self, ids: Ids) -> SpanContext:
        """Return the provider's context of one of our spans, or of the caller's."""
        made = self._made.get(ids)
        return made or SpanContext(int(ids.trace, 16), int(ids.span, 16), is_remote=True, trace_flags=_SAMPLED)


class _FixedIds:
    """An id generator of the SDK that returns the ids of the next span."""

    def __init__(self) -> None:
        self._next = Ids("1", "1")

    def use(self, ids: Ids) -> None:
        """Set the ids of the next span."""
        self._next = ids

    def generate_trace_id(self) -> int:
        """Return its trace id."""
        return int(self._next.trace, 16)

    def generate_span_id(self) -> int:
        """Return its span id."""
        return int(self._next.span, 16)

    def is_trace_id_random(self) -> bool:
        """Whether trace ids are random; they are digests."""
        return False


def _attributes(attributes: Attributes) -> dict[str, Any]:
    return {name: bounded(name, value) for name, value in attributes.items()}
