"""What `diff` shows: where two logs part, and what each has after that. All text is made safe for the terminal."""

from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.cli.screens.costs import cost_words, with_cost
from holdfast.cli.text import brief, count
from holdfast.core.llm.blocks import text_of
from holdfast.core.llm.messages import AssistantMessage, from_json
from holdfast.core.run.views.diff import ComparedCall, Comparison, Side

SHOWN = 200
"""Messages and calls of each side that the screen shows; `--json` has all."""

JSON = dict[str, Any]


def diff_view(comparison: Comparison, names: tuple[str, str]) -> JSON:
    """Return a comparison as JSON shows it."""
    sides = {"first": comparison.first, "second": comparison.second}
    return {
        "same": comparison.same,
        "common": comparison.common,
        **{
            side: {"thread": name, **found.model_dump(mode="json", exclude={"costs"}), **_cost(found)}
            for (side, found), name in zip(sides.items(), names, strict=True)
        },
    }


def diff_screen(comparison: Comparison, names: tuple[str, str]) -> Text | Table:
    """Return a comparison as the terminal shows it: two columns, row by row."""
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
    table.add_row("Cost", *(Text(cost_words(_cost(side))) for side in (first, second)))
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


def _cost(side: Side) -> JSON:
    """Token counts and price of one side; the price is None where that of an LLM is unknown."""
    costs = [with_cost({"usage": each.usage.model_dump(), "llm": each.llm})["cost"] for each in side.costs]
    known = None if None in costs else sum(costs)
    return {"usage": side.usage.model_dump(), "cost": known}


def _message(message: JSON) -> str:
    said = from_json(message)
    if not isinstance(said, AssistantMessage):
        return f"{said.role}: {brief(text_of(said.content))}"
    calls = ", ".join(call.name for call in said.tool_calls)
    return " ".join(filter(None, (f"{said.role}:", brief(said.text), f"→ {brief(calls)}" if calls else "")))


def _call(call: ComparedCall) -> str:
    words = f"{call.number} {call.tool}({call.arguments})"
    verdict = f"[{brief(f'{call.verdict}: {call.rule}')}]" if call.verdict else ""
    return " ".join(filter(None, (brief(words), verdict, call.status or "open")))
