"""Renders the comparison as the section "Compared with alternatives" of `bench/RESULTS.md`, or as JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from bench.environment import OBSERVATION_BYTES
from bench.peers.contenders import CONTENDERS, HOLDFAST
from bench.peers.figures import (
    BYTES,
    MEASURES,
    MS,
    PLAIN,
    TUNED,
    Measure,
    Resume,
    Run,
    answers_before_kill,
    best,
    cells,
    deaths,
    wins,
)


@dataclass(frozen=True)
class Report:
    """All figures, with the machine and the versions used."""

    runs: Sequence[Run]
    resumes: Sequence[Resume]
    lengths: Sequence[int]
    limit: float
    machine: str
    versions: dict[str, str]
    date: str
    load: float | None
    """The machine's load average before the first run; above zero, other processes were using it."""

    @property
    def names(self) -> list[str]:
        """The measured contenders, in their usual order."""
        took_part = {run.contender for run in self.runs} | {resume.contender for resume in self.resumes}
        return [name for name in CONTENDERS if name in took_part]


def make_report(
    runs: Sequence[Run], resumes: Sequence[Resume], *, lengths: Sequence[int], limit: float, load: float | None
) -> Report:
    """Combine the figures with the machine and the versions."""
    date = datetime.now(UTC).date().isoformat()
    return Report(runs, resumes, lengths, limit, machine(), versions_used(), date, load)


def markdown(report: Report) -> str:
    """Render the section, without its markers."""
    lines = [
        "## Compared with alternatives",
        "",
        "Written by `python -m bench.peers` (`make bench-peers`); do not edit.",
        "",
        f"All contenders run the same agent: one tool, `observe(n)`, which returns the same {OBSERVATION_BYTES:,} "
        "bytes. A separate model server answers in constant time and calls the tool once a step. All use the same "
        "embedded Temporal server, tuned as for Holdfast, and the same embedded PostgreSQL with a database for each. "
        "Each contender is written as its documentation recommends for durability, and runs alone in a separate, "
        "warmed-up worker process with uvloop's event loop. Figures are per step: medians over whole runs, divided by "
        "their steps. "
        "**Bold** is the best of its column, † a failure with its last step, ‡ a run aborted by the benchmark with the "
        "figure up to its last step, – not run.",
        "",
        "The model answers at once, so the figures show the cost of a step without the model. With a model that takes "
        "seconds, the differences in time matter less, while those in bytes and failures remain. Much of the time that "
        "grows with the length is spent in the openai client, which encodes the whole transcript for every call; "
        "Holdfast keeps the encoded messages.",
    ]
    for measure in MEASURES:
        if table := _table(report, measure):
            lines += ["", f"### {measure.title}", "", *table]
    lines += [
        "",
        "Bytes are the size of the history for contenders on Temporal, the growth of tables, indexes and TOAST on "
        "disk for those on PostgreSQL, and the sum of both for Holdfast. PostgreSQL compresses, and the repeated text "
        "of this benchmark compresses better than real data; Temporal's history is not compressed.",
        "",
        "Actions are what Temporal Cloud bills ([definition](https://docs.temporal.io/evaluate/cloud/actions)): a "
        "start or continue-as-new, an activity and each of its retries, a timer, a signal, an update, a query, an "
        "upsert of search attributes or memo, a heartbeat that reaches the server, and all local activities of a "
        "workflow task together. They are read from the server's own metric `action`, which omits two billed items: "
        "heartbeats of workflow tasks, and retries of local activities after one. Storage is billed separately.",
        "",
        "PostgreSQL has no billed actions; the closest equivalent are transactions that write, because each is flushed "
        "to disk. Read-only transactions are not counted. Holdfast has both: its ledger and its permanent record are "
        "in PostgreSQL.",
        *_deaths(report),
        *_summaries(report),
        *_plain(report),
        *_resumes(report),
        "",
        "### Where a peer wins",
        "",
        *_wins(report),
        "",
        "### Settings",
        "",
        *[f"- {CONTENDERS[name].title}: {CONTENDERS[name].settings}" for name in report.names],
        "",
        foot(report.limit, report.load),
    ]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    """Convert the report to a JSON object with the figures of each run."""
    return asdict(report)


def _table(report: Report, measure: Measure) -> list[str]:
    figures, dead = cells(report.runs, measure), deaths(report.runs)
    winners = best(figures)
    rows = [["steps", *[f"{steps:,}" for steps in report.lengths]], ["---", *["--:" for _ in report.lengths]]]
    counted = {run.contender for run in report.runs if measure.of(run) is not None}
    if not counted:
        return []
    for name in [name for name in report.names if name in counted]:
        row = [CONTENDERS[name].title]
        for steps in report.lengths:
            value = figures.get((name, steps))
            if name in dead and steps == dead[name].steps:
                row.append(_death(dead[name], measure))
            elif value is None:
                row.append("–")
            else:
                number = f"{value:,.{measure.digits}f}"
                row.append(f"**{number}**" if (name, steps) in winners else number)
        rows.append(row)
    return [line(row) for row in rows]


def _death(run: Run, measure: Measure) -> str:
    if run.given_up:
        return f"{measure.of(run) or 0:,.{measure.digits}f} ‡ {run.reached:,}"
    return f"† {run.reached:,}"


def _deaths(report: Report) -> list[str]:
    lines = [
        f"- {'‡' if run.given_up else '†'} {CONTENDERS[name].title} reached step {run.reached:,} of {run.steps:,}: "
        f"{run.died}."
        for name, run in deaths(report.runs).items()
    ]
    return ["", *lines] if lines else []


def _summaries(report: Report) -> list[str]:
    most = {run.contender: run for run in report.runs if run.summaries}
    lines = [
        f"- {CONTENDERS[name].title} compacted its context {run.summaries} times in {run.steps:,} steps and sent the "
        "summary from then on; the others send the whole transcript every time."
        for name, run in most.items()
    ]
    return ["", *lines] if lines else []


def _plain(report: Report) -> list[str]:
    tried = sorted({run.steps for run in report.runs if run.server == PLAIN})
    if not tried:
        return []
    lines = ["", "### On an untuned Temporal server", ""]
    lines += ["`temporal server start-dev` with only its ports set: in memory, 20 workflow tasks a second.", ""]
    lines += [line(["", "steps", "ms, tuned", "ms, plain", "bytes, plain"]), line(["---", *["--:"] * 4])]
    for name in report.names:
        for steps in tried:
            plain = cells(report.runs, MS, server=PLAIN).get((name, steps))
            if plain is None:
                continue
            tuned = cells(report.runs, MS, server=TUNED).get((name, steps))
            size = cells(report.runs, BYTES, server=PLAIN)[name, steps]
            before = "–" if tuned is None else f"{tuned:.1f}"
            lines.append(line([CONTENDERS[name].title, str(steps), before, f"{plain:.1f}", f"{size:,.0f}"]))
    dead = deaths(report.runs, server=PLAIN).items()
    lines += ["", *[f"- {CONTENDERS[name].title} reached step {run.reached}: {run.died}." for name, run in dead]]
    return lines if dead else lines[:-1]


def _resumes(report: Report) -> list[str]:
    if not report.resumes:
        return []
    lines = [
        "",
        "### After a SIGKILL",
        "",
        "The worker is killed when the model server has answered 90 % of the steps, and another one is started at "
        "once. Seconds from the kill, including the start of the interpreter and imports.",
        "",
        line(["", "steps", "killed after", "next model call", "run finished", "model calls made twice"]),
        line(["---", *["--:"] * 5]),
    ]
    survived = [resume for resume in report.resumes if not resume.died]
    for one in report.resumes:
        numbers = [f"{one.next_call:.1f} s", f"{one.done:.1f} s", str(one.repeated)]
        if one.died:
            numbers = [f"† {one.died}", "–", "–"]
        elif one.next_call == min(other.next_call for other in survived if other.steps == one.steps):
            numbers[0] = f"**{numbers[0]}**"
        killed = f"{answers_before_kill(one.steps):,} answers"
        lines.append(line([CONTENDERS[one.contender].title, f"{one.steps:,}", killed, *numbers]))
    return lines


def _wins(report: Report) -> list[str]:
    if HOLDFAST not in report.names:
        return ["Holdfast did not take part."]
    found = wins(report.runs, report.resumes)
    if not found:
        return ["In none of these figures."]
    return [f"- {CONTENDERS[name].title}, {sentence}" for name, sentence in found]


def foot(limit: float, load: float | None) -> str:
    """Return the last line of a section: when, on what and with which versions it was measured."""
    loaded = "" if load is None else f" The load before the first run was {load:.2f}."
    versions = ", ".join(f"{name} {number}" for name, number in versions_used().items())
    return f"{datetime.now(UTC).date().isoformat()}, on {machine()}.{loaded} At most {limit:.0f} s a run. {versions}."


def machine() -> str:
    """Describe the machine."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{_cpu()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.machine()}"


def versions_used() -> dict[str, str]:
    """Return the versions of Python and of the contenders' packages."""
    packages = sorted({package for about in CONTENDERS.values() for package in about.packages} | {"pydantic"})
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def line(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or "unknown CPU"
