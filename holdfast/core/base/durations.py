"""Durations as people and LLMs write them: `90`, `30s`, `15m`, `4h`, `7d`, `3w`. Parsing and formatting."""

import re

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_seconds(text: str) -> float:
    """Parse a duration into seconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    match = _SPAN.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text[:40]!r} is not a duration; write 90 (seconds), 30s, 15m, 4h, 7d or 3w")
    return float(match[1]) * _SECONDS[match[2]]


def span_text(seconds: float) -> str:
    """Format seconds in the largest unit that divides them evenly: `4h`, `90s`."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"


def rounded_span(seconds: float) -> str:
    """Format seconds in the two largest units, rounded down: `20d 3h`, `2h 5m`, `7s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _SECONDS[unit])
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts)) or "0s"
