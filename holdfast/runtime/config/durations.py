"""Durations as people write them: `90`, `30s`, `15m`, `4h`, `7d`, `3w`; and times, also as what is left until then."""

import re
from datetime import datetime, timedelta

_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([smhdw]?)", re.ASCII)
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def read_seconds(text: str) -> float:
    """Parse a duration into seconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    found = _SPAN.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:40]!r} is not a duration; write 90 (seconds), 30s, 15m, 4h, 7d or 3w")
    return float(found[1]) * _SECONDS[found[2]]


def read_time(text: str, *, now: datetime) -> datetime:
    """Parse a duration from now on, or a time: `2026-05-06T07:08`, in local time where it has no time zone.

    Raises:
        ValueError: `text` is neither, or there is no such time.
    """
    try:
        return now + timedelta(seconds=read_seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        words = "neither a time nor a duration; write 2026-05-06T07:08, 30s, 15m, 4h, 7d or 3w"
        raise ValueError(f"{text[:40]!r} is {words}") from None


def span_text(seconds: float) -> str:
    """Format seconds in the largest unit that divides them evenly: `4h`, `90s`."""
    for unit in ("d", "h", "m"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{seconds / _SECONDS[unit]:g}{unit}"
    return f"{seconds:g}s"
