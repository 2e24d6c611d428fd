"""What is measured, what is computed from it, and the targets. Pure: no clock, no I/O.

1. A run is measured whole, from its start to its result, and divided by its steps: fixed costs are in.
2. Ratios to the floor are medians over pairs of runs that were made one right after the other, so that a machine
   that is busy now and then does not decide.
3. Marginal figures (per step, between the shortest and the longest length) leave the fixed costs out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

FLOOR = "floor"
HOLDFAST = "holdfast"


@dataclass(frozen=True)
class Sample:
    """One run."""

    contender: str
    steps: int
    seconds: float
    """From the start of the workflow to its result."""
    cpu_seconds: float
    """CPU time of the process that holds worker and driver."""
    history_bytes: int
    history_events: int


@dataclass(frozen=True)
class Figures:
    """The runs of one contender at one length: medians, per step."""

    contender: str
    steps: int
    runs: int
    ms: float
    cpu_ms: float
    bytes: float
    events: float


@dataclass(frozen=True)
class Growth:
    """One contender from the shortest length to the longest."""

    contender: str
    time: float
    """Time per step at the longest length, divided by that at the shortest."""
    bytes: float
    """The same for history bytes per step."""
    marginal_ms: float
    """Milliseconds that one more step takes."""
    marginal_bytes: float
    """History bytes that one more step takes."""


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    text: str
    limit: float
    value: float | None
    """None where the lengths that were measured do not tell."""

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps the bound; None where it was not measured."""
        return None if self.value is None else self.value <= self.limit


def repeats(steps: int) -> int:
    """How often a length is run by default: short runs are cheap, and vary most."""
    return max(3, min(9, 600 // steps))


def schedule(lengths: Sequence[int], repeat: int | None) -> list[tuple[str, int]]:
    """Contender and length of every run, in order: interleaved, and each goes first every other time.

    Args:
        lengths: Numbers of steps.
        repeat: Runs of each configuration; None for `repeats`.
    """
    wanted = {steps: repeat or repeats(steps) for steps in lengths}
    return [
        (contender, steps)
        for number in range(max(wanted.values(), default=0))
        for steps in lengths
        if number < wanted[steps]
        for contender in ((FLOOR, HOLDFAST) if number % 2 == 0 else (HOLDFAST, FLOOR))
    ]


def figures(samples: Iterable[Sample]) -> list[Figures]:
    """Medians per step, one row for each contender and length, in order of length."""
    groups: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.steps, sample.contender), []).append(sample)
    return [
        Figures(
            contender=contender,
            steps=steps,
            runs=len(group),
            ms=median(sample.seconds for sample in group) * 1000 / steps,
            cpu_ms=median(sample.cpu_seconds for sample in group) * 1000 / steps,
            bytes=median(sample.history_bytes for sample in group) / steps,
            events=median(sample.history_events for sample in group) / steps,
        )
        for (steps, contender), group in sorted(groups.items())
    ]


def over_floor(samples: Sequence[Sample]) -> dict[int, float]:
    """Length → Holdfast's time divided by the floor's: the median over pairs of neighbouring runs."""
    ratios = {}
    for steps in sorted({sample.steps for sample in samples}):
        ours = [sample.seconds for sample in samples if (sample.contender, sample.steps) == (HOLDFAST, steps)]
        floor = [sample.seconds for sample in samples if (sample.contender, sample.steps) == (FLOOR, steps)]
        if ours and floor:
            ratios[steps] = median(one / other for one, other in zip(ours, floor, strict=False))
    return ratios


def growth(rows: Iterable[Figures]) -> dict[str, Growth]:
    """Contender → how its figures grow; empty with fewer than two lengths."""
    found = {}
    by_contender: dict[str, list[Figures]] = {}
    for row in rows:
        by_contender.setdefault(row.contender, []).append(row)
    for contender, own in sorted(by_contender.items()):
        short, long = min(own, key=lambda row: row.steps), max(own, key=lambda row: row.steps)
        if short.steps == long.steps:
            continue
        more = long.steps - short.steps
        found[contender] = Growth(
            contender=contender,
            time=long.ms / short.ms,
            bytes=long.bytes / short.bytes,
            marginal_ms=(long.ms * long.steps - short.ms * short.steps) / more,
            marginal_bytes=(long.bytes * long.steps - short.bytes * short.steps) / more,
        )
    return found


def targets(samples: Sequence[Sample]) -> list[Target]:
    """What Holdfast promises, and whether it was kept."""
    grown = growth(figures(samples)).get(HOLDFAST)
    lengths = sorted({sample.steps for sample in samples})
    short, long = (lengths[0], lengths[-1]) if lengths else (0, 0)
    flat = f"at {long} steps, of that at {short}"
    return [
        Target(f"history bytes per step {flat}", 1.05, grown.bytes if grown else None),
        Target(f"time per step {flat}", 1.25, grown.time if grown else None),
        Target(f"time per step at {short} steps, of the floor's", 2.0, over_floor(samples).get(short)),
    ]
