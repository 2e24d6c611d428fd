"""Spans of time as people write them: `90`, `30s`, `15m`, `4h`, `7d`."""

import re

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhd]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def read_seconds(text: str) -> float:
    """The seconds that `text` stands for.

    Raises:
        ValueError: It is no span of time.
    """
    found = _SPAN.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:40]!r} is no span of time; write it as 90 (seconds), 30s, 15m, 4h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def span_text(seconds: float) -> str:
    """Seconds in the largest unit that they fill: `4h`, `90s`."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"
