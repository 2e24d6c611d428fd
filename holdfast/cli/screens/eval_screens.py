"""Output of `eval`: a row for each run, failed expectations, and a summary. All text is safe for the terminal."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from holdfast.cli.text import brief, count
from holdfast.evaluation.compare.evaluation import Evaluation, RunCost

JSON = dict[str, Any]
_COLUMNS = ("run", "result", "calls", "step", "refused", "asked", "missing", "tokens", "cost", "LLM time", "holds")


def eval_view(dataset: str, llm: str | None, evaluations: Sequence[Evaluation]) -> JSON:
    """Return the evaluations of a dataset for JSON output."""
    runs = [{**each.model_dump(mode="json"), "holds": each.holds} for each in evaluations]
    failed = sum(not each.holds for each in evaluations)
    held = len(evaluations) - failed
    return {"set": dataset, "llm": llm, "ok": not failed, "held": held, "failed": failed, "runs": runs}


def eval_screen(evaluations: Sequence[Evaluation]) -> Text:
    """Return the evaluations of a dataset for the terminal."""
    rows = [_COLUMNS, *map(_row, evaluations)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(set_cell_size(*cell) for cell in zip(row, widths, strict=True)).rstrip() for row in rows]
    failed = sum(not each.holds for each in evaluations)
    reasons = [line for each in evaluations for line in _reasons(each)]
    runs, held = count(len(evaluations), "run"), len(evaluations) - failed
    summary = f"{runs}: {held} as expected, {failed} not; {_totals(evaluations)}"
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
    """Return the measure of the recording, and that of the rerun."""
    sides = [getattr(side, name) for side in (each.recorded, each.played)]
    return " → ".join("?" if value is None else form.format(value) for value in sides)


def _reasons(each: Evaluation) -> list[str]:
    reasons = [each.unplayable] if each.unplayable else list(each.failed)
    return [f"{brief(each.run)}: {brief(reason, 400)}" for reason in reasons]


def _totals(evaluations: Sequence[Evaluation]) -> str:
    rerun = [each.played for each in evaluations if not each.unplayable]
    measures = ("tokens", "{:,}"), ("usd", "${:,.4f}"), ("llm_seconds", "{:,.1f} s of the LLM")
    return ", ".join(_sum(rerun, name, form) for name, form in measures)


def _sum(measured: Sequence[RunCost], name: str, form: str) -> str:
    values = [getattr(each, name) for each in measured]
    if None in values:
        return "cost unknown"
    return form.format(sum(values)) + (" tokens" if name == "tokens" else "")
