"""Text for people: untrusted text made safe to show on a terminal, times and counts."""

from datetime import datetime

from holdfast.core.base.text import count as count
from holdfast.core.base.text import one_line
from holdfast.core.base.text import visible as visible


def brief(text: str, limit: int = 160) -> str:
    """Return `text` on one line, safe to show, cut to `limit` characters."""
    return visible(one_line(text, limit))


def cell(text: str) -> str:
    """Return all of `text`, safe to show in a row of a table: line breaks and tabs are escaped, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clock(at: str) -> str:
    """Return an event's time on this machine's clock: `2026-05-06 07:08:09`."""
    return local(datetime.fromisoformat(at)).strftime("%Y-%m-%d %H:%M:%S")


def local(time: datetime) -> datetime:
    """Return a time on this machine's clock; unchanged if it has none there, as the end of the year 9999 east of UTC.

    Tools choose times, such as `Cannot(until=datetime.max.replace(tzinfo=UTC))`.
    """
    try:
        return time.astimezone()
    except OverflowError:
        return time


def age_text(started_at: str, *, now: datetime) -> str:
    """Return the time since something started, in its largest unit: `45s`, `12m`, `3h`, `9d`."""
    seconds = max(0, int((now - datetime.fromisoformat(started_at)).total_seconds()))
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next((f"{seconds // size}{unit}" for unit, size in units if seconds >= size), f"{seconds}s")


def indented(text: str, by: str = "  ") -> str:
    """Return `text` with each line indented."""
    return "\n".join(f"{by}{line}" for line in text.splitlines())
