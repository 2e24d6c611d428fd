"""W3C Trace Context: the ids by which a span of another process is found.

A `traceparent` is a claim of its sender. Traces link to it, and nothing else depends on it.
"""

import re
import sys
from typing import NamedTuple

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class SpanContext(NamedTuple):
    """The ids of a span."""

    trace: str
    """32 hex digits."""
    span: str
    """16 hex digits."""

    @property
    def traceparent(self) -> str:
        """The ids as the value of a W3C `traceparent` header, sampled."""
        return f"00-{self.trace}-{self.span}-01"


def read_traceparent(text: str) -> SpanContext | None:
    """Return the ids in a W3C `traceparent` of version 00; None if it is not a valid one."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or found[1] == "0" * 32 or found[2] == "0" * 16:
        return None
    return SpanContext(found[1], found[2])


def traceparent_or_none(text: str) -> str:
    """Return a valid `traceparent` as it is, and any other text as an empty one, as W3C Trace Context demands."""
    return text if read_traceparent(text) else ""


def ambient_traceparent() -> str:
    """Return the `traceparent` of OpenTelemetry's current span; empty if there is none, or the program has no such API.

    Nothing is imported: a program that has a current span has imported the API.
    """
    if (api := sys.modules.get("opentelemetry.trace")) is None:
        return ""
    current = api.get_current_span().get_span_context()
    if not current.is_valid:
        return ""
    return f"00-{current.trace_id:032x}-{current.span_id:016x}-{int(current.trace_flags) & 0xFF:02x}"
