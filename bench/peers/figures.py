"""The measurements, and the figures computed from them. Pure: no clock, no I/O.

1. A run is measured from its start to its result and divided by its steps, so fixed costs are included. An aborted run
   is divided by the steps that it made.
2. A contender that fails at a length is not run at longer ones.
3. The best contender of each length is marked, and every figure at which a peer beats Holdfast is listed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.peers.contenders import HOLDFAST

TUNED = "tuned"
PLAIN = "plain"

TIME_LIMIT = "time limit of the benchmark"
"""The only cause that is not a failure of the contender, which was slow but might have finished."""


@dataclass(frozen=True)
class Run:
    """One run."""

    contender: str
    server: str
    """TUNED or PLAIN: the Temporal server's settings."""
    steps: int
    """The number of steps requested."""
    seconds: float
    cpu_seconds: float
    """CPU time of the worker's process."""
    stored: int
    """Bytes of history, or growth of tables, or both."""
    actions: int | None
    """Actions that Temporal Cloud would bill; None for a contender without Temporal."""
    transactions: int | None
    """Transactions that wrote to PostgreSQL; None for a contender without PostgreSQL."""
    reached: int
    """The last step requested from the model server."""
    died: str = ""
    """The cause of the failure; empty if it made all of its steps."""

    words: str = ""
    """The full error message."""
    summaries: int = 0
    """Model calls for no step, except the last one: summaries of the transcript."""

    @property
    def given_up(self) -> bool:
        """True if the benchmark aborted the run, and the contender did not fail."""
        return self.died == TIME_LIMIT


@dataclass(frozen=True)
class Resume:
    """One run whose worker was killed, and another worker started."""

    contender: str
    steps: int
    killed: int
    """Model calls answered when the worker was killed."""
    next_call: float
    """Seconds from the kill to the next model call."""
    done: float
    """Seconds from the kill to the end of the run."""
    repeated: int
    """Model calls made twice."""
    died: str = ""


@dataclass(frozen=True)
class Measure:
    """A column of the comparison: less is better."""

    title: str
    short: str
    """The unit within a sentence."""
    digits: int

    def of(self, run: Run) -> float | None:
        """Return the figure of one run per step; None if it is not counted for this contender."""
        amounts = {MS: run.seconds * 1000, CPU: run.cpu_seconds * 1000, BYTES: run.stored}
        amount = (amounts | {ACTIONS: run.actions, TRANSACTIONS: run.transactions})[self]
        return None if amount is None else amount / (max(1, run.reached) if run.died else run.steps)


MS = Measure("Milliseconds per step", "ms a step", 1)
CPU = Measure("Milliseconds of CPU per step, in the worker's process", "ms of CPU a step", 1)
BYTES = Measure("Bytes stored per step", "bytes a step", 0)
ACTIONS = Measure("Actions of the Temporal server per step", "actions a step", 2)
TRANSACTIONS = Measure("Transactions that write to PostgreSQL per step", "transactions a step", 2)
MEASURES = (MS, CPU, BYTES, ACTIONS, TRANSACTIONS)

Cells = Mapping[tuple[str, int], float]
"""Contender and length → figure."""


def repeats(steps: int) -> int:
    """Return the default number of runs of a length: more for short runs, which are cheap and vary most."""
    return max(1, min(3, 100 // steps))


def answers_before_kill(steps: int) -> int:
    """Return the number of model calls answered before the worker is killed: 90 % of the steps."""
    return max(1, steps * 9 // 10)


def cells(runs: Iterable[Run], measure: Measure, *, server: str = TUNED) -> Cells:
    """Compute medians over the runs that made all of their steps."""
    groups: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        figure = measure.of(run)
        if figure is not None and not run.died and run.server == server:
            groups.setdefault((run.contender, run.steps), []).append(figure)
    return {key: median(group) for key, group in groups.items()}


def deaths(runs: Iterable[Run], *, server: str = TUNED) -> dict[str, Run]:
    """Map each contender that failed to the run at which it failed."""
    return {run.contender: run for run in runs if run.died and run.server == server}


def best(figures: Cells) -> set[tuple[str, int]]:
    """Return the best contender of each length."""
    lengths = {steps for _, steps in figures}
    return {min((key for key in figures if key[1] == steps), key=lambda key: figures[key]) for steps in lengths}


def wins(runs: Sequence[Run], resumes: Sequence[Resume]) -> list[tuple[str, str]]:
    """Return contender and sentence for every figure at which a peer beats Holdfast."""
    sentences = []
    for measure in MEASURES:
        figures = cells(runs, measure)
        for (contender, steps), value in sorted(figures.items(), key=lambda item: (item[0][1], item[0][0])):
            own = figures.get((HOLDFAST, steps))
            if own is not None and value < own:
                numbers = f"{value:,.{measure.digits}f} {measure.short}, Holdfast {own:,.{measure.digits}f}"
                sentences.append((contender, f"{steps:,} steps: {numbers}"))
    survived = {resume.contender: resume for resume in resumes if not resume.died}
    if ours := survived.get(HOLDFAST):
        sentences += [
            (name, f"after a SIGKILL: next model call in {one.next_call:.1f} s, Holdfast {ours.next_call:.1f} s")
            for name, one in survived.items()
            if one.next_call < ours.next_call
        ]
    return sentences


_CAUSES = (
    (r"history size exceeds|history count exceeds|History.*limit", "the server terminated it: history limit"),
    (
        r"PAYLOADS?_TOO_LARGE|payloads? size|payload.*exceed|BlobSize|BLOB_SIZE|exceeds size limit|TMPRL1103"
        r"|PayloadSizeError|too large for|larger than max|message too large",
        "payload limit of the server (2 MB a payload, 4 MB a request)",
    ),
    (r"no model call for too long", "no progress"),
    (r"time limit|execution timeout|timed out", TIME_LIMIT),
)


def cause(words: str) -> str:
    """Shorten an error message to a known cause, most specific first, or to its beginning."""
    for pattern, name in _CAUSES:
        if re.search(pattern, words, re.IGNORECASE):
            return name
    return " ".join(words.split())[:160]
