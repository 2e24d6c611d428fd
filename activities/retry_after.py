"""Reads `Retry-After`: how long a server asks the caller to wait before the next attempt."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(minutes=10)
"""Longer delays are cut to this: Temporal retries anyway, and a wrong header must not stop a run."""


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Read the delay from `Retry-After-Ms` or `Retry-After` (seconds or a date); None if neither is usable."""
    delay = _seconds(headers.get("retry-after-ms"), scale=1 / 1000) or _seconds(headers.get("retry-after"))
    if delay is None:
        try:
            delay = parsedate_to_datetime(headers["retry-after"]) - datetime.now(UTC)
        except (KeyError, ValueError, TypeError):
            return None
    return min(delay, LONGEST) if delay > timedelta() else None


def _seconds(text: str | None, *, scale: float = 1) -> timedelta | None:
    try:
        return timedelta(seconds=float(text or "") * scale)
    except (ValueError, OverflowError):
        return None
