"""Spans as messages of OpenTelemetry's protocol (OTLP), in protobuf and in JSON."""

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

from holdfast.telemetry.traces import names
from holdfast.telemetry.traces.bounds import bounded, bounded_text
from holdfast.telemetry.traces.spans import Attributes, Span, Value, nanoseconds
from holdfast.version import __version__

_KINDS = {"internal": SpanMessage.SPAN_KIND_INTERNAL, "client": SpanMessage.SPAN_KIND_CLIENT}
_SAMPLED = 1
_CACHED_CHARS = 100
"""The most characters of a text whose encoding is cached: longer ones do not repeat."""
_IDS = ("traceId", "spanId", "parentSpanId")


def trace_request(spans: Iterable[Span], resource: Mapping[str, Value]) -> ExportTraceServiceRequest:
    """Return the request that exports spans to a collector.

    Args:
        spans: The spans.
        resource: Attributes of whoever recorded them, such as `service.name`.
    """
    scope = InstrumentationScope(name=names.SCOPE, version=__version__, attributes=_pairs(_SCOPE))
    messages = ScopeSpans(scope=scope, spans=map(_message, spans))
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=Resource(attributes=_pairs(resource)), scope_spans=[messages])]
    )


_SCOPE: Attributes = {"holdfast.gen_ai.conventions": names.CONVENTIONS}


def as_json(request: ExportTraceServiceRequest) -> dict[str, Any]:
    """Return a request as OTLP JSON: ids are hexadecimal, enums numbers, and times texts."""
    value = MessageToDict(request, use_integers_for_enums=True)
    for resource in value.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                for holder in (span, *span.get("links", ())):
                    for name in _IDS:
                        if name in holder:
                            holder[name] = base64.b64decode(holder[name]).hex()
    assert isinstance(value, dict)
    return value


def _message(span: Span) -> SpanMessage:
    message = SpanMessage(
        trace_id=bytes.fromhex(span.context.trace),
        span_id=bytes.fromhex(span.context.span),
        parent_span_id=bytes.fromhex(span.parent),
        flags=_SAMPLED,
        name=bounded_text(span.name),
        kind=_KINDS[span.kind],
        start_time_unix_nano=nanoseconds(span.start),
        end_time_unix_nano=nanoseconds(span.end),
        links=[
            SpanMessage.Link(
                trace_id=bytes.fromhex(link.to.trace),
                span_id=bytes.fromhex(link.to.span),
                attributes=_pairs(link.attributes),
                flags=_SAMPLED,
            )
            for link in span.links
        ],
        events=[
            SpanMessage.Event(
                name=event.name, time_unix_nano=nanoseconds(event.at), attributes=_pairs(event.attributes)
            )
            for event in span.events
        ],
        status=Status(code=Status.STATUS_CODE_ERROR, message=bounded_text(span.error)) if span.error else None,
    )
    # Most attributes repeat from span to span. A message takes in encoded ones four times as fast as it makes them.
    message.MergeFromString(b"".join([_encoded(name, each) for name, each in span.attributes.items()]))
    return message


def _encoded(name: str, value: Value) -> bytes:
    """Return one attribute as the encoding of a span that has nothing else: encodings are merged by joining them."""
    if isinstance(value, str) and len(value) > _CACHED_CHARS:
        return _span_with.__wrapped__(name, value)
    return _span_with(name, value)


@lru_cache(2_048, typed=True)
def _span_with(name: str, value: Value) -> bytes:
    return bytes(SpanMessage(attributes=[_pair(name, value)]).SerializeToString())


def _pairs(attributes: Attributes) -> list[KeyValue]:
    return [_pair(name, each) for name, each in attributes.items()]


def _pair(name: str, value: Value) -> KeyValue:
    match bounded(name, value):
        case bool() as flag:
            return KeyValue(key=name, value=AnyValue(bool_value=flag))
        case int() as number:
            return KeyValue(key=name, value=AnyValue(int_value=number))
        case float() as number:
            return KeyValue(key=name, value=AnyValue(double_value=number))
        case str() as text:
            return KeyValue(key=name, value=AnyValue(string_value=text))
        case texts:
            values = ArrayValue(values=[AnyValue(string_value=each) for each in texts])
            return KeyValue(key=name, value=AnyValue(array_value=values))
