"""Times as people write them: a duration from now on, or a time in their own time zone."""

from datetime import datetime, timedelta

from holdfast.core.base.durations import read_seconds


def read_time(text: str, *, now: datetime) -> datetime:
    """Parse a duration from now on, or a time: `2026-05-06T07:08`, in local time if it has no time zone.

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
        problem = "neither a time nor a duration; write 2026-05-06T07:08, 30s, 15m, 4h, 7d or 3w"
        raise ValueError(f"{text[:40]!r} is {problem}") from None
