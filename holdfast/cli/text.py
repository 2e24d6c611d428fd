"""Text for people: what a model, a tool or a user wrote, made safe to show on a terminal; times and commands."""

from datetime import datetime

from holdfast.core.base.text import one_line
from holdfast.core.base.text import visible as visible


def brief(text: str, limit: int = 160) -> str:
    """`text` on one line, safe to show, cut to `limit` characters."""
    return visible(one_line(text, limit))


def cell(text: str) -> str:
    """`text` as it is, safe to show in a row of a table: line breaks and tabs are written out, too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def clock(at: str) -> str:
    """An event's time on this machine's clock."""
    return datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age_words(started_at: str, *, now: datetime) -> str:
    """How long ago something started, in its largest unit: `45s`, `12m`, `3h`, `9d`."""
    seconds = max(0, int((now - datetime.fromisoformat(started_at)).total_seconds()))
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next((f"{seconds // size}{unit}" for unit, size in units if seconds >= size), f"{seconds}s")


def count(number: int, thing: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def indented(text: str, by: str = "  ") -> str:
    """`text` with each line moved in."""
    return "\n".join(f"{by}{line}" for line in text.splitlines())
