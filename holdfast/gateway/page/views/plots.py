"""Tokens and cost of a run over time, as points of a plot that a template draws. Pure functions of events as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.gateway.page.views.text import When, line, when

JSON = Mapping[str, Any]

WIDTH, HEIGHT = 1_000, 200
"""The size of a plot, in its own units."""
POINTS = 250
"""The most points of a line."""
ROWS = 50
"""The most rows of the table below the plots."""

NANO = 1_000_000_000


class Plot(NamedTuple):
    """A quantity over time."""

    name: str
    total: str
    points: str
    """Of a line from the lower left: `0,200 10,180`."""
    first: When | None
    last: When | None
    words: str
    """The plot in a sentence, for those who do not see it."""


class Reply(NamedTuple):
    """A reply of the LLM, with what it used."""

    position: int
    at: When | None
    llm: str
    tokens: str
    cached: str
    cost: str


class Costs(NamedTuple):
    """What a run has used over time."""

    plots: tuple[Plot, ...]
    replies: tuple[Reply, ...]
    """The last ones, the newest first."""
    replied: int
    unpriced: int
    """How many of them have no known price."""


class _Spent(NamedTuple):
    event: JSON
    usage: JSON
    nano_usd: int | None

    @property
    def at(self) -> str:
        return str(self.event.get("at"))

    @property
    def tokens(self) -> int:
        return _int(self.usage.get("prompt_tokens")) + _int(self.usage.get("completion_tokens"))


def costs_view(events: Iterable[JSON], now: datetime) -> Costs:
    """Return what the events of a run used.

    Args:
        events: Those that used something, oldest first; others are ignored.
        now: The time.
    """
    spent = [each for event in events if (each := _spent(event))]
    plots = [_plot("Tokens", spent, [each.tokens for each in spent], now)] if spent else []
    if any(each.nano_usd for each in spent):
        plots.append(_plot("Cost", spent, [_int(each.nano_usd) for each in spent], now))
    unpriced = sum(each.nano_usd is None for each in spent)
    return Costs(tuple(plots), tuple(_reply(each, now) for each in reversed(spent[-ROWS:])), len(spent), unpriced)


def slim(event: JSON) -> JSON:
    """Return the fields of an event that `costs_view` reads, without its texts."""
    return {name: event[name] for name in ("type", "position", "at", "usage", "cost", "llm") if name in event}


def _spent(event: JSON) -> _Spent | None:
    """Return what an event says that an LLM call used, with its cost if that is known; None for other events."""
    usage, cost = event.get("usage"), event.get("cost")
    if event.get("type") not in _USING or not isinstance(usage, Mapping):
        return None
    return _Spent(event, usage, cost if isinstance(cost, int) else None)


_USING = frozenset({"llm_replied", "llm_call_lost", "context_compacted", "reply_rejected"})


def _reply(spent: _Spent, now: datetime) -> Reply:
    event, usage, cost = spent
    return Reply(
        _int(event.get("position")),
        when(event.get("at"), now),
        line(event.get("llm") or str(event.get("type")).replace("_", " "), 80),
        f"{_int(usage.get('prompt_tokens')):,} + {_int(usage.get('completion_tokens')):,}",
        f"{_int(usage.get('cached_tokens')):,}",
        "" if cost is None else f"${cost / NANO:,.6f}",
    )


def _plot(name: str, spent: Sequence[_Spent], amounts: Sequence[int], now: datetime) -> Plot:
    """Return the running total of some amounts as a line of steps."""
    times = [_seconds(each.at) for each in spent]
    begin, end, whole = min(times), max(times), max(sum(amounts), 1)
    length = max(end - begin, 0.001)
    every = max(1, len(amounts) // POINTS)
    points, total = [f"0,{HEIGHT}"], 0
    for number, (time, amount) in enumerate(zip(times, amounts, strict=True)):
        total += amount
        if number % every == 0 or number == len(amounts) - 1:
            x, y = WIDTH * (time - begin) / length, HEIGHT - (HEIGHT - 4) * total / whole
            points.append(f"{x:.0f},{y:.0f}")
    points.append(f"{WIDTH},{HEIGHT - (HEIGHT - 4) * total / whole:.0f}")
    shown = f"${total / NANO:,.4f}" if name == "Cost" else f"{total:,}"
    first, last = when(spent[0].at, now), when(spent[-1].at, now)
    between = f" from {first.exact} to {last.exact}" if first and last else ""
    return Plot(name, shown, " ".join(points), first, last, f"{name} over time: {shown} in all{between}")


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _int(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
