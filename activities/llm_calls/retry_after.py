"""Reads the delay that a server requests before the next attempt, from headers and from the text of a rejection."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

LONGEST = timedelta(minutes=10)
"""Longer delays are cut to this: Temporal retries anyway, and a wrong header must not stop a run."""

_UNITS = {"ms": 0.001, "mil": 0.001, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(
    r"(\d{1,15}(?:\.\d{1,15})?)\s{0,3}(ms|mil[a-z]{0,11}|s[a-z]{0,6}|m[a-z]{0,6}|h[a-z]{0,4})(?![a-z])"
    r"(?:\s{0,3}(?:and\b|,))?\s{0,3}",
    re.IGNORECASE,
)
_PARTS = re.compile(f"(?:{_PART.pattern})+", re.IGNORECASE)
_BARE = re.compile(r"\+?\d{0,15}(?:\.\d{0,15})?(?:e\+?\d{1,2})?", re.IGNORECASE)
_PHRASE = re.compile(
    r"(?:try again|retry|retry[ _-]?after|retry[ _-]?delay|wait|available|resets?)[\"']?\s{0,3}[:=]?\s{0,3}[\"']?"
    r"(?:in|after|for|at least)?\s{0,3}[:=]?\s{0,3}[\"']?(\d[\w. ,]{0,40})",
    re.IGNORECASE,
)
_LIMITS = ("requests", "tokens", "input-tokens", "output-tokens")


def retry_after(headers: Mapping[str, str], body: str = "") -> timedelta | None:
    """Read the delay: from `Retry-After-Ms`, `Retry-After` (a duration or a date), rate limits, or text.

    Args:
        headers: The headers of the response.
        body: The body of the rejection.

    Returns:
        The delay, limited to `LONGEST`; None if no usable one is found.
    """
    delays = (
        _duration(headers.get("retry-after-ms"), unit=0.001),
        _duration(headers.get("retry-after")) or _until(headers.get("retry-after")),
        _rate_limit_reset(headers),
        _from_text(body[:20_000]),
    )
    delay = next((each for each in delays if each is not None and each > timedelta()), None)
    return None if delay is None else min(delay, LONGEST)


def _duration(text: str | None, *, unit: float = 1) -> timedelta | None:
    """Read a duration: `2`, `2s`, `1m30.5s`, `17 seconds`; a bare number is in `unit`, given in seconds."""
    text = (text or "").strip().strip("\"'")
    if text and _BARE.fullmatch(text):
        return _seconds(text, unit)
    total, at = 0.0, 0
    while part := _PART.match(text, at):
        total += float(part[1]) * next(_UNITS[name] for name in _UNITS if part[2].lower().startswith(name))
        at = part.end()
    return timedelta(seconds=min(total, LONGEST.total_seconds())) if at and at == len(text) else None


def _seconds(text: str, unit: float) -> timedelta | None:
    try:
        return timedelta(seconds=float(text) * unit)
    except (ValueError, OverflowError):
        return None


def _until(text: str | None) -> timedelta | None:
    """Read the time until a date, as HTTP or ISO 8601 writes it, or a moment in seconds or milliseconds since 1970."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text or "")
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _rate_limit_reset(headers: Mapping[str, str]) -> timedelta | None:
    """Read the time until the exhausted rate limits reset."""
    resets = []
    for prefix in ("x-ratelimit", "anthropic-ratelimit", "ratelimit"):
        pairs = [(f"{prefix}-remaining", f"{prefix}-reset")]
        pairs += [(f"{prefix}-remaining-{name}", f"{prefix}-reset-{name}") for name in _LIMITS]
        pairs += [(f"{prefix}-{name}-remaining", f"{prefix}-{name}-reset") for name in _LIMITS]
        resets += [_reset(headers.get(reset)) for left, reset in pairs if headers.get(left, "").strip() == "0"]
    return max((each for each in resets if each), default=None)


def _reset(text: str | None) -> timedelta | None:
    duration = _duration(text)
    if duration is None:
        return _until(text)
    seconds = duration.total_seconds()
    if seconds < 1e9:
        return duration
    moment = seconds / 1000 if seconds > 1e11 else seconds  # since 1970, in milliseconds or in seconds
    return timedelta(seconds=max(0.0, min(moment - datetime.now(UTC).timestamp(), LONGEST.total_seconds())))


def _from_text(body: str) -> timedelta | None:
    """Read a delay from text, such as `try again in 2.5s`, `"retryDelay": "17s"` or `"retry_after": 2`."""
    for match in _PHRASE.finditer(body):
        text = match[1].strip(" .,")
        parts = _PART.match(text)
        duration = _PARTS.match(text) if parts else re.fullmatch(r"\d+(?:\.\d+)?", text)
        if duration and (delay := _duration(duration[0].strip(" ,"))):
            return delay
    return None
