"""Bounds of texts in spans: ids and names can be anything that their authors wrote."""

from holdfast.telemetry.traces import names
from holdfast.telemetry.traces.spans import Value
from holdfast.telemetry.traces.tracer import CONTENT_CHARS

TEXT_CHARS = 500
"""The most characters of a text that is not content."""

_LONG = frozenset({names.INPUT_MESSAGES, names.OUTPUT_MESSAGES, names.TOOL_RESULT})


def bounded_text(text: str, *, most: int = TEXT_CHARS) -> str:
    """Return a text of bounded length that is valid UTF-8."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return cut.encode("utf-8", "replace").decode()


def bounded(name: str, value: Value) -> Value:
    """Return the value of an attribute with its texts bounded, and an integer that 64 bits hold."""
    match value:
        case bool() | float():
            return value
        case int():
            return min(value, 2**63 - 1)
        case str():
            return bounded_text(value, most=4 * CONTENT_CHARS if name in _LONG else TEXT_CHARS)
        case _:
            return tuple(map(bounded_text, value))
