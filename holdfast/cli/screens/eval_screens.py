"""What `eval` shows: a row for each run, what does not hold, and a summary. All text is made safe for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from holdfast.cli.text import brief, count
from holdfast.evaluation.compare.evaluation import Evaluation, RunCost

JSON = dict[str, Any]
_COLUMNS = ("run", "result", "calls", "step", "refused", "asked", "missing", "tokens", "cost", "LLM time", "holds")


def eval_view(given: str, llm: str | None, found: Sequence[Evaluation]) -> JSON:
    """Return the evaluations of a set as JSON shows them."""
    runs = [{**each.model_dump(mode="json"), "holds": each.holds} for each in found]
    failed = sum(not each.holds for each in found)
    return {"set": given, "llm": llm, "ok": not failed, "held": len(found) - failed, "failed": failed, "runs": runs}


def eval_screen(found: Sequence[Evaluation]) -> Text:
    """Return the evaluations of a set as the terminal shows them."""
    rows = [_COLUMNS, *map(_row, found)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(set_cell_size(*cell) for cell in zip(row, widths, strict=True)).rstrip() for row in rows]
    failed = sum(not each.holds for each in found)
    reasons = [line for each in found for line in _reasons(each)]
    summary = f"{count(len(found), 'run')}: {len(found) - failed} as expected, {failed} not; {_totals(found)}"
    return Text("\n".join([*lines, *reasons, summary]))


def _row(each: Evaluation) -> tuple[str, ...]:
    if each.unplayable:
        return (brief(each.run), *("-" for _ in _COLUMNS[2:]), "no")
    refused = sum(refusal.verdict != "ask" for refusal in each.refusals)
    asked = [refusal for refusal in each.refusals if refusal.verdict == "ask"]
    stopped = " (stopped)" if any(not refusal.answered for refusal in asked) else ""
    return (
        brief(each.run),
        "same" if each.same_result else "other" if each.ended == each.recorded_ended else each.ended,
        "same" if each.same_calls else "other",
        str(each.diverges_at or "-"),
        str(refused),
        f"{len(asked)}{stopped}",
        str(len(each.missing)),
        _change(each, "tokens", "{:,}"),
        _change(each, "usd", "${:,.4f}"),
        _change(each, "llm_seconds", "{:,.1f} s"),
        "yes" if each.holds else "no",
    )


def _change(each: Evaluation, name: str, form: str) -> str:
    """What the recording cost, and what the play did."""
    sides = [getattr(side, name) for side in (each.recorded, each.played)]
    return " → ".join("?" if value is None else form.format(value) for value in sides)


def _reasons(each: Evaluation) -> list[str]:
    why = [each.unplayable] if each.unplayable else list(each.failed)
    return [f"{brief(each.run)}: {brief(reason, 400)}" for reason in why]


def _totals(found: Sequence[Evaluation]) -> str:
    played = [each for each in found if not each.unplayable]
    words = ("tokens", "{:,}"), ("usd", "${:,.4f}"), ("llm_seconds", "{:,.1f} s of the LLM")
    return ", ".join(_sum([each.played for each in played], name, form) for name, form in words)


def _sum(measured: Sequence[RunCost], name: str, form: str) -> str:
    values = [getattr(each, name) for each in measured]
    if None in values:
        return "cost unknown"
    return form.format(sum(values)) + (" tokens" if name == "tokens" else "")
