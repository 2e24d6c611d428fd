"""When a provider wants to be asked again."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(minutes=10)
"""A provider's wish beyond this is cut: Temporal asks again anyway, and a wrong header must not stop a run."""


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The delay that `Retry-After-Ms` or `Retry-After` (seconds or a date) asks for; None without a usable one."""
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
