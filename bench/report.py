"""Renders the figures as a table on screen, a section of `RESULTS.md`, or JSON."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.environment import OBSERVATION_BYTES
from bench.figures import (
    CONTENDERS,
    EFFECTS,
    FLOOR,
    HOLDFAST,
    LOCAL_FLOOR,
    Figures,
    Growth,
    Load,
    Sample,
    Target,
    cpu,
    figures,
    growth,
    over_floor,
    targets,
)
from holdfast.version import __version__

NAMES = {
    FLOOR: "bare workflow",
    LOCAL_FLOOR: "bare, local tool",
    HOLDFAST: "Holdfast, reads",
    EFFECTS: "Holdfast, effects",
}
HEADINGS = ["steps", "", "runs", "ms", "× floor", "CPU ms", "× floor", "bytes", "events"]
"""All but the first three are per step."""
TOGETHER = ["runs", "", "samples", "steps a second", "× floor", "CPU ms", "× floor"]
"""CPU is per step."""
MARKS = {True: "✓", False: "✗", None: "–"}


@dataclass(frozen=True)
class Report:
    """All samples, with the machine and the versions used."""

    samples: Sequence[Sample]
    machine: str
    versions: dict[str, str]
    date: str
    load: float | None
    """The machine's load average before the first run; above zero, other processes were using it."""

    @property
    def figures(self) -> list[Figures]:
        """Medians by length and contender."""
        return figures(self.samples)

    @property
    def growth(self) -> dict[str, Growth]:
        """Growth from the shortest length to the longest, by contender."""
        return growth(self.figures)

    @property
    def targets(self) -> list[Target]:
        """The targets with the figures measured."""
        return targets(self.samples)


def make_report(samples: Sequence[Sample], *, temporal_server: str, load: float | None) -> Report:
    """Combine the samples with the machine and the versions."""
    packages = {name: version(name) for name in ("temporalio", "openai", "pydantic")}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    own = {"holdfast": __version__, "python": python, "temporal server": temporal_server}
    machine = f"{_cpu()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return Report(samples, machine, own | packages, datetime.now(UTC).date().isoformat(), load)


def show(report: Report, console: Console) -> None:
    """Print the tables and the targets."""
    tables = {
        "Per step: one LLM call and one tool call": (HEADINGS, _rows(report)),
        "Runs side by side": (TOGETHER, _together(report)),
    }
    for title, (headings, rows) in tables.items():
        table = Table(title=title, title_justify="left")
        for heading in headings:
            table.add_column(heading, justify="left" if not heading else "right")
        for row in rows:
            table.add_row(*row, end_section=row[1] == NAMES[CONTENDERS[-1]])
        if rows:
            console.print(table)
    for line in _growth_lines(report):
        console.print(line, highlight=False)
    for target in report.targets:
        style = {True: "green", False: "red", None: "dim"}[target.met]
        console.print(f"[{style}]{MARKS[target.met]}[/] {_target_line(target)}", highlight=False)


def markdown(report: Report) -> str:
    """Return the section of `RESULTS.md`."""
    load = "" if report.load is None else f" The load before the first run was {report.load:.2f}."
    return "\n".join(
        [
            "## Beside a bare workflow",
            "",
            "Written by `python -m bench` (`make bench`); do not edit.",
            "",
            f"Each step is one LLM call and one tool call that returns {OBSERVATION_BYTES:,} bytes. The LLM answers in "
            "constant time from a separate process; Temporal is the embedded server. The bare workflow is the floor: "
            "two ordinary activities with small, constant payloads, without transcript, events or policy. With its "
            "tool as a local activity, as Holdfast makes reads, it shows the least that a step with a read can cost. "
            "Holdfast runs two scenarios: a tool that reads, and a tool that has an effect, which the ledger guards. "
            "Runs alternate; figures are per step: medians over whole runs, divided by their steps, including fixed "
            "costs. CPU is that of the worker's process. × floor is the median over pairs of consecutive runs.",
            "",
            *_table(HEADINGS, _rows(report)),
            "",
            *_side_by_side(report),
            *[f"- {line}" for line in _growth_lines(report)],
            "",
            "| | target | limit | measured |",
            "|---|---|--:|--:|",
            *[_line([MARKS[one.met], one.text, _limit(one), _times(one.value)]) for one in report.targets],
            "",
            f"{report.date}, on {report.machine}.{load} "
            + ", ".join(f"{name} {number}" for name, number in report.versions.items())
            + ".",
            "",
        ]
    )


def as_json(report: Report) -> dict[str, Any]:
    """Convert the report to a JSON object."""
    cpus = over_floor(report.samples, cpu)
    return {
        "date": report.date,
        "machine": report.machine,
        "load": report.load,
        "versions": report.versions,
        "figures": [asdict(row) for row in report.figures],
        "over_floor": [
            {"contender": contender, **asdict(load), "time": ratio, "cpu": cpus[contender, load]}
            for (contender, load), ratio in over_floor(report.samples).items()
        ],
        "growth": {name: asdict(one) for name, one in report.growth.items()},
        "targets": [{**asdict(target), "met": target.met} for target in report.targets],
        "samples": [asdict(sample) for sample in report.samples],
    }


def _rows(report: Report) -> list[list[str]]:
    """Return the rows of single runs."""
    times, cpus = over_floor(report.samples), over_floor(report.samples, cpu)
    return [
        [
            f"{row.load.steps}",
            NAMES[row.contender],
            f"{row.samples}",
            f"{row.ms:.1f}",
            _ratio(times, row),
            f"{row.cpu_ms:.1f}",
            _ratio(cpus, row),
            f"{row.bytes:,.0f}",
            f"{row.events:.1f}",
        ]
        for row in report.figures
        if row.load.runs == 1
    ]


def _together(report: Report) -> list[list[str]]:
    """Return the rows of concurrent runs."""
    times, cpus = over_floor(report.samples), over_floor(report.samples, cpu)
    return [
        [
            str(row.load),
            NAMES[row.contender],
            f"{row.samples}",
            f"{row.throughput:.0f}",
            _ratio(times, row, inverse=True),
            f"{row.cpu_ms:.1f}",
            _ratio(cpus, row),
        ]
        for row in report.figures
        if row.load.runs > 1
    ]


def _side_by_side(report: Report) -> list[str]:
    rows = _together(report)
    about = "Concurrent runs on one worker: steps per second of all runs, from the first start to the last result."
    return [about, "", *_table(TOGETHER, rows), ""] if rows else []


def _growth_lines(report: Report) -> list[str]:
    lengths = sorted({row.load.steps for row in report.figures if row.load.runs == 1})
    return [
        f"{NAMES[name]}, from {lengths[0]} to {lengths[-1]} steps: time × {one.time:.2f}, bytes × {one.bytes:.2f}; "
        f"one more step: {one.marginal_ms:.1f} ms, {one.marginal_bytes:,.0f} bytes"
        for name, one in report.growth.items()
    ]


def _target_line(target: Target) -> str:
    return f"{target.text}: {_times(target.value)} ({_limit(target)})"


def _limit(target: Target) -> str:
    return f"{'≥' if target.at_least else '≤'} {target.limit:.2f} ×"


def _times(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} ×"


def _ratio(ratios: Mapping[tuple[str, Load], float], row: Figures, *, inverse: bool = False) -> str:
    ratio = ratios.get((row.contender, row.load))
    return "" if ratio is None else f"{1 / ratio if inverse else ratio:.2f}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    bars = ["---" if not heading else "--:" for heading in headings]
    return [_line(headings), _line(bars), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown CPU"
