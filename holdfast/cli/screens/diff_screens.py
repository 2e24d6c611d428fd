"""Output of `diff`: the point at which two logs diverge, and the rest of each. All text is safe for the terminal."""

from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.cli.screens.costs import cost_text, with_cost
from holdfast.cli.text import brief, count
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.messages import AssistantMessage, from_json
from holdfast.core.run.views.diff import ComparedCall, Comparison, DiffSide

SHOWN = 200
"""The most messages and calls of each side on the screen; `--json` has all."""

JSON = dict[str, Any]


def diff_view(comparison: Comparison, names: tuple[str, str]) -> JSON:
    """Return a comparison for JSON output."""
    sides = {"first": comparison.first, "second": comparison.second}
    return {
        "same": comparison.same,
        "common": comparison.common,
        **{
            key: {"thread": name, **side.model_dump(mode="json", exclude={"costs"}), **_cost(side)}
            for (key, side), name in zip(sides.items(), names, strict=True)
        },
    }


def diff_screen(comparison: Comparison, names: tuple[str, str]) -> Text | Table:
    """Return a comparison for the terminal: two columns, row by row."""
    if comparison.same:
        return Text(f"The same {count(comparison.common, 'event')}: nothing differs.")
    first, second = comparison.first, comparison.second
    table = Table(
        title=Text(f"The same up to event {comparison.common - 1}" if comparison.common else "Nothing shared")
    )
    table.add_column("")
    for name in names:
        table.add_column(Text(brief(name)), overflow="fold", ratio=1)
    table.add_row("Events after that", *(Text(f"{side.events - comparison.common:,}") for side in (first, second)))
    table.add_row("Steps", *(Text(f"{side.steps:,}") for side in (first, second)))
    table.add_row("Cost", *(Text(cost_text(_cost(side))) for side in (first, second)))
    for title, left, right in (
        ("Messages", [_message(each) for each in first.messages], [_message(each) for each in second.messages]),
        ("Calls", [_call(each) for each in first.calls], [_call(each) for each in second.calls]),
    ):
        table.add_section()
        for number in range(min(max(len(left), len(right)), SHOWN)):
            row = [side[number] if number < len(side) else "" for side in (left, right)]
            table.add_row(title if number == 0 else "", *map(Text, row))
        if max(len(left), len(right)) > SHOWN:
            table.add_row("", *(Text(f"… {count(max(0, len(side) - SHOWN), 'more')}") for side in (left, right)))
    return table


def _cost(side: DiffSide) -> JSON:
    """Return the token counts and the price of one side; the price is None if that of an LLM is unknown."""
    costs = [with_cost({"usage": each.usage.model_dump(), "llm": each.llm})["cost"] for each in side.costs]
    total = None if None in costs else sum(costs)
    return {"usage": side.usage.model_dump(), "cost": total}


def _message(message: JSON) -> str:
    parsed = from_json(message)
    if not isinstance(parsed, AssistantMessage):
        return f"{parsed.role}: {brief(text_of(parsed.content))}"
    calls = ", ".join(call.name for call in parsed.tool_calls)
    return " ".join(filter(None, (f"{parsed.role}:", brief(parsed.text), f"→ {brief(calls)}" if calls else "")))


def _call(call: ComparedCall) -> str:
    text = f"{call.number} {call.tool}({call.arguments})"
    verdict = f"[{brief(f'{call.verdict}: {call.rule}')}]" if call.verdict else ""
    return " ".join(filter(None, (brief(text), verdict, call.status or "open")))
