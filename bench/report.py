"""How the figures read: a table on screen, `RESULTS.md`, JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import FLOOR, HOLDFAST, Figures, Growth, Sample, Target, figures, growth, over_floor, targets
from bench.stage import OBSERVATION_BYTES
from holdfast import __version__

NAMES = {FLOOR: "bare workflow", HOLDFAST: "Holdfast"}
HEADINGS = ["steps", "", "runs", "ms", "× floor", "CPU ms", "bytes", "events"]
"""All but the first three are per step."""
MARKS = {True: "✓", False: "✗", None: "–"}


@dataclass(frozen=True)
class Report:
    """Everything that was measured, and where."""

    samples: Sequence[Sample]
    machine: str
    versions: dict[str, str]
    date: str
    load: float | None
    """The machine's load before the first run: above zero, others were using it."""

    @property
    def figures(self) -> list[Figures]:
        """Medians by length and contender."""
        return figures(self.samples)

    @property
    def growth(self) -> dict[str, Growth]:
        """From the shortest length to the longest, by contender."""
        return growth(self.figures)

    @property
    def targets(self) -> list[Target]:
        """The targets, and what came of them."""
        return targets(self.samples)


def make_report(samples: Sequence[Sample], *, temporal_server: str, load: float | None) -> Report:
    """Put the samples together with what they were made on."""
    packages = {name: version(name) for name in ("temporalio", "openai", "pydantic")}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    own = {"holdfast": __version__, "python": python, "temporal server": temporal_server}
    machine = f"{_cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return Report(samples, machine, own | packages, datetime.now(UTC).date().isoformat(), load)


def show(report: Report, console: Console) -> None:
    """Print the table and the targets."""
    table = Table(title="Per step: one LLM call and one tool call", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if not heading else "right")
    for row in _rows(report):
        table.add_row(*row, end_section=row[1] == NAMES[HOLDFAST])
    console.print(table)
    for line in _growth_lines(report):
        console.print(line, highlight=False)
    for target in report.targets:
        style = {True: "green", False: "red", None: "dim"}[target.met]
        console.print(f"[{style}]{MARKS[target.met]}[/] {_target_line(target)}", highlight=False)


def markdown(report: Report) -> str:
    """The section of `RESULTS.md`."""
    bars = ["---" if not heading else "--:" for heading in HEADINGS]
    table = [_line(HEADINGS), _line(bars), *map(_line, _rows(report))]
    load = "" if report.load is None else f" The load before the first run was {report.load:.2f}."
    return "\n".join(
        [
            "## Beside a bare workflow",
            "",
            "Written by `python -m bench` (`make bench`); do not edit.",
            "",
            f"Each step is one LLM call and one tool call that returns {OBSERVATION_BYTES:,} bytes. The LLM answers in "
            "constant time from a process of its own; Temporal is the embedded server. The bare workflow is the floor: "
            "the same two activities with small, constant payloads, and neither transcript, events nor policy. Runs "
            "alternate; figures are per step: medians over whole runs, divided by their steps, fixed costs included. "
            "CPU is that of the worker's process.",
            "",
            *table,
            "",
            *[f"- {line}" for line in _growth_lines(report)],
            "",
            "| | target | limit | measured |",
            "|---|---|--:|--:|",
            *[_line([MARKS[one.met], one.text, f"≤ {one.limit:.2f} ×", _times(one.value)]) for one in report.targets],
            "",
            f"{report.date}, on {report.machine}.{load} "
            + ", ".join(f"{name} {number}" for name, number in report.versions.items())
            + ".",
            "",
        ]
    )


def as_json(report: Report) -> dict[str, Any]:
    """The report as one JSON object."""
    return {
        "date": report.date,
        "machine": report.machine,
        "load": report.load,
        "versions": report.versions,
        "figures": [asdict(row) for row in report.figures],
        "over_floor": over_floor(report.samples),
        "growth": {name: asdict(one) for name, one in report.growth.items()},
        "targets": [{**asdict(target), "met": target.met} for target in report.targets],
        "samples": [asdict(sample) for sample in report.samples],
    }


def _rows(report: Report) -> list[list[str]]:
    ratios = over_floor(report.samples)
    rows = []
    for row in report.figures:
        ratio = f"{ratios[row.steps]:.2f}" if row.contender == HOLDFAST and row.steps in ratios else ""
        numbers = [f"{row.runs}", f"{row.ms:.1f}", ratio, f"{row.cpu_ms:.1f}", f"{row.bytes:,.0f}", f"{row.events:.1f}"]
        rows.append([str(row.steps), NAMES[row.contender], *numbers])
    return rows


def _growth_lines(report: Report) -> list[str]:
    lengths = sorted({row.steps for row in report.figures})
    return [
        f"{NAMES[name]}, from {lengths[0]} to {lengths[-1]} steps: time × {one.time:.2f}, bytes × {one.bytes:.2f}; "
        f"one more step: {one.marginal_ms:.1f} ms, {one.marginal_bytes:,.0f} bytes"
        for name, one in report.growth.items()
    ]


def _target_line(target: Target) -> str:
    return f"{target.text}: {_times(target.value)} (at most {target.limit:.2f} ×)"


def _times(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} ×"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown CPU"
