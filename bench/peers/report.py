"""How the comparison reads: the section "Beside the peers" of `bench/RESULTS.md`, and JSON."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

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
from bench.stage import OBSERVATION_BYTES


@dataclass(frozen=True)
class Report:
    """Everything that was measured, and where."""

    runs: Sequence[Run]
    resumes: Sequence[Resume]
    lengths: Sequence[int]
    limit: float
    machine: str
    versions: dict[str, str]
    date: str
    load: float | None
    """The machine's load before the first run: above zero, others were using it."""

    @property
    def names(self) -> list[str]:
        """The contenders that took part, in their order."""
        took_part = {run.contender for run in self.runs} | {resume.contender for resume in self.resumes}
        return [name for name in CONTENDERS if name in took_part]


def make_report(
    runs: Sequence[Run], resumes: Sequence[Resume], *, lengths: Sequence[int], limit: float, load: float | None
) -> Report:
    """Put the figures together with what they were made on."""
    packages = sorted({package for about in CONTENDERS.values() for package in about.packages} | {"pydantic"})
    versions = {"python": platform.python_version()} | {name: _version(name) for name in packages}
    memory = psutil.virtual_memory().total / 2**30
    machine = f"{_cpu()}, {os.cpu_count()} cores, {memory:.0f} GB, {platform.system()} {platform.machine()}"
    date = datetime.now(UTC).date().isoformat()
    return Report(runs, resumes, lengths, limit, machine, versions, date, load)


def markdown(report: Report) -> str:
    """The section, without its markers."""
    lines = [
        "## Beside the peers",
        "",
        "Written by `python -m bench.peers` (`make bench-peers`); do not edit.",
        "",
        f"The same agent everywhere: one tool, `observe(n)`, which returns the same {OBSERVATION_BYTES:,} bytes; a "
        "model server in a process of its own, which answers in constant time and calls the tool once a step; the same "
        "embedded Temporal server, tuned as Holdfast's, and the same embedded PostgreSQL, with a database for each. "
        "Each contender is written as its documentation recommends for durability, and has a worker process of its "
        "own, warmed up, one at a time. Figures are per step: medians over whole runs, divided by their steps. "
        "**Bold** is the best of its column, † a death with its last step, ‡ a run that the bench gave up with the "
        "figure up to its last step, – not tried.",
        "",
        "The model answers at once, so that nothing hides what a step costs beside it; with one that thinks for "
        "seconds the differences in time matter less, and those in bytes and in deaths do not. Time that grows with "
        "the length is in good part the openai client's, which encodes the whole transcript for every call; Holdfast "
        "keeps the encoded messages.",
    ]
    for measure in MEASURES:
        if table := _table(report, measure):
            lines += ["", f"### {measure.title}", "", *table]
    lines += [
        "",
        "Bytes are the size of the history for contenders on Temporal, the growth of tables, indexes and TOAST on "
        "disk for those on PostgreSQL, and the sum of both for Holdfast. PostgreSQL compresses, and the same text "
        "every step compresses better than life; Temporal's history does not.",
        "",
        "Actions are what Temporal Cloud bills ([definition](https://docs.temporal.io/evaluate/cloud/actions)): a "
        "start or continue-as-new, an activity and each of its retries, a timer, a signal, an update, a query, an "
        "upsert of search attributes or memo, a heartbeat that reaches the server, and all local activities of a "
        "workflow task together. They are read off the server's own metric `action`, which leaves two things out "
        "that are billed: heartbeats of workflow tasks, and retries of local activities after one. Storage is billed "
        "besides.",
        "",
        "PostgreSQL bills nobody; the nearest to actions there are transactions that write, for each is flushed to "
        "disk. Those that only read are not counted. Holdfast has both: its ledger and its record are in PostgreSQL.",
        *_deaths(report),
        *_summaries(report),
        *_plain(report),
        *_resumes(report),
        "",
        "### Where a peer wins",
        "",
        *_wins(report),
        "",
        "### What was set",
        "",
        *[f"- {CONTENDERS[name].title}: {CONTENDERS[name].settings}" for name in report.names],
        "",
        _foot(report),
    ]
    return "\n".join(lines)


def as_json(report: Report) -> dict[str, Any]:
    """The report as one JSON object, with every single run."""
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
    return [_line(row) for row in rows]


def _death(run: Run, measure: Measure) -> str:
    if run.given_up:
        return f"{measure.of(run) or 0:,.{measure.digits}f} ‡ {run.reached:,}"
    return f"† {run.reached:,}"


def _deaths(report: Report) -> list[str]:
    lines = [
        f"- {'‡' if run.given_up else '†'} {CONTENDERS[name].title} got to step {run.reached:,} of {run.steps:,}: "
        f"{run.died}."
        for name, run in deaths(report.runs).items()
    ]
    return ["", *lines] if lines else []


def _summaries(report: Report) -> list[str]:
    most = {run.contender: run for run in report.runs if run.summaries}
    lines = [
        f"- {CONTENDERS[name].title} had its transcript summed up {run.summaries} times in {run.steps:,} steps, and "
        "sent the summary from then on; the others send the whole transcript every time."
        for name, run in most.items()
    ]
    return ["", *lines] if lines else []


def _plain(report: Report) -> list[str]:
    tried = sorted({run.steps for run in report.runs if run.server == PLAIN})
    if not tried:
        return []
    lines = ["", "### On a Temporal server that is not tuned", ""]
    lines += ["`temporal server start-dev` with nothing but its ports set: in memory, 20 workflow tasks a second.", ""]
    lines += [_line(["", "steps", "ms, tuned", "ms, plain", "bytes, plain"]), _line(["---", *["--:"] * 4])]
    for name in report.names:
        for steps in tried:
            plain = cells(report.runs, MS, server=PLAIN).get((name, steps))
            if plain is None:
                continue
            tuned = cells(report.runs, MS, server=TUNED).get((name, steps))
            size = cells(report.runs, BYTES, server=PLAIN)[name, steps]
            before = "–" if tuned is None else f"{tuned:.1f}"
            lines.append(_line([CONTENDERS[name].title, str(steps), before, f"{plain:.1f}", f"{size:,.0f}"]))
    dead = deaths(report.runs, server=PLAIN).items()
    lines += ["", *[f"- {CONTENDERS[name].title} got to step {run.reached}: {run.died}." for name, run in dead]]
    return lines if dead else lines[:-1]


def _resumes(report: Report) -> list[str]:
    if not report.resumes:
        return []
    lines = [
        "",
        "### After a SIGKILL",
        "",
        "The worker is killed when the model server has answered 90 % of the steps, and another one is started at "
        "once, with its interpreter and imports. Seconds from the kill.",
        "",
        _line(["", "steps", "killed after", "next model call", "run finished", "model calls made twice"]),
        _line(["---", *["--:"] * 5]),
    ]
    lived = [resume for resume in report.resumes if not resume.died]
    for one in report.resumes:
        numbers = [f"{one.next_call:.1f} s", f"{one.done:.1f} s", str(one.repeated)]
        if one.died:
            numbers = [f"† {one.died}", "–", "–"]
        elif one.next_call == min(other.next_call for other in lived if other.steps == one.steps):
            numbers[0] = f"**{numbers[0]}**"
        killed = f"{answers_before_kill(one.steps):,} answers"
        lines.append(_line([CONTENDERS[one.contender].title, f"{one.steps:,}", killed, *numbers]))
    return lines


def _wins(report: Report) -> list[str]:
    if HOLDFAST not in report.names:
        return ["Holdfast did not take part."]
    found = wins(report.runs, report.resumes)
    if not found:
        return ["Nowhere in these figures."]
    return [f"- {CONTENDERS[name].title}, {sentence}" for name, sentence in found]


def _foot(report: Report) -> str:
    load = "" if report.load is None else f" The load before the first run was {report.load:.2f}."
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    return f"{report.date}, on {report.machine}.{load} At most {report.limit:.0f} s a run. {versions}."


def _line(cells: Sequence[str]) -> str:
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
