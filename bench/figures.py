"""What is measured, what is computed from it, and the targets. Pure: no clock, no I/O.

1. A run is measured whole, from its start to its result, and divided by its steps: fixed costs are in.
2. Ratios to the floor are medians over pairs of samples that were made one right after the other, so that a machine
   that is busy now and then does not decide.
3. Marginal figures (per step, between the shortest and the longest length) leave the fixed costs out.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

FLOOR = "floor"
HOLDFAST = "holdfast"
EFFECTS = "holdfast_effects"
CONTENDERS = (FLOOR, HOLDFAST, EFFECTS)
"""The bare workflow, Holdfast with a tool that reads, and Holdfast with one that has an effect."""

PROMISED_STEPS = 100
"""The length at which a step is held against the floor's."""


@dataclass(frozen=True, order=True)
class Load:
    """What one sample is made of."""

    steps: int
    """Of each run."""
    runs: int = 1
    """Side by side."""

    def __str__(self) -> str:
        return f"{self.runs} × {self.steps} steps" if self.runs > 1 else f"{self.steps} steps"


SIDE_BY_SIDE = Load(steps=20, runs=64)
"""Enough runs to keep the machine busy, long enough for what a run costs once not to decide."""


@dataclass(frozen=True)
class Sample:
    """One run, or several that were made side by side."""

    contender: str
    load: Load
    seconds: float
    """From the first start of a workflow to the last result."""
    cpu_seconds: float
    """CPU time of the process that holds worker and driver."""
    history_bytes: int
    history_events: int


Figure = Callable[[Sample], float]


def seconds(sample: Sample) -> float:
    """The figure by which time is compared."""
    return sample.seconds


def cpu(sample: Sample) -> float:
    """The figure by which CPU is compared."""
    return sample.cpu_seconds


@dataclass(frozen=True)
class Figures:
    """The samples of one contender under one load: medians, per step."""

    contender: str
    load: Load
    samples: int
    ms: float
    cpu_ms: float
    bytes: float
    events: float

    @property
    def throughput(self) -> float:
        """Steps a second, of all runs together."""
        return 1000 / self.ms


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
    """None where the loads that were measured do not tell."""
    at_least: bool = False
    """Whether more is better; else the limit is the most."""

    @property
    def met(self) -> bool | None:
        """Whether the figure keeps the bound; None where it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def repeats(load: Load) -> int:
    """How often a load is measured by default: short runs are cheap, and vary most."""
    return max(3, min(9, 600 // (load.steps * load.runs)))


def schedule(loads: Sequence[Load], repeat: int | None) -> list[tuple[str, Load]]:
    """Contender and load of every sample, in order: interleaved, and from either end in turn.

    Args:
        loads: What to measure.
        repeat: Samples of each configuration; None for `repeats`.
    """
    wanted = {load: repeat or repeats(load) for load in loads}
    return [
        (contender, load)
        for number in range(max(wanted.values(), default=0))
        for load in loads
        if number < wanted[load]
        for contender in (CONTENDERS if number % 2 == 0 else CONTENDERS[::-1])
    ]


def figures(samples: Iterable[Sample]) -> list[Figures]:
    """Medians per step, one row for each contender and load, in order of load."""
    groups: dict[tuple[Load, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.load, CONTENDERS.index(sample.contender)), []).append(sample)
    rows = []
    for (load, contender), group in sorted(groups.items()):
        steps = load.steps * load.runs
        rows.append(
            Figures(
                contender=CONTENDERS[contender],
                load=load,
                samples=len(group),
                ms=median(map(seconds, group)) * 1000 / steps,
                cpu_ms=median(map(cpu, group)) * 1000 / steps,
                bytes=median(sample.history_bytes for sample in group) / steps,
                events=median(sample.history_events for sample in group) / steps,
            )
        )
    return rows


def over_floor(samples: Sequence[Sample], figure: Figure = seconds) -> dict[tuple[str, Load], float]:
    """Contender and load → its figure divided by the floor's: the median over pairs of neighbouring samples."""
    groups: dict[tuple[str, Load], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.contender, sample.load), []).append(figure(sample))
    return {
        (contender, load): median(one / other for one, other in zip(ours, groups[FLOOR, load], strict=False))
        for (contender, load), ours in groups.items()
        if contender != FLOOR and (FLOOR, load) in groups
    }


def growth(rows: Iterable[Figures]) -> dict[str, Growth]:
    """Contender → how the figures of its single runs grow; empty with fewer than two lengths."""
    found = {}
    by_contender: dict[str, list[Figures]] = {}
    for row in rows:
        if row.load.runs == 1:
            by_contender.setdefault(row.contender, []).append(row)
    for contender, own in by_contender.items():
        short, long = min(own, key=lambda row: row.load), max(own, key=lambda row: row.load)
        if short.load == long.load:
            continue
        a, b = short.load.steps, long.load.steps
        found[contender] = Growth(
            contender=contender,
            time=long.ms / short.ms,
            bytes=long.bytes / short.bytes,
            marginal_ms=(long.ms * b - short.ms * a) / (b - a),
            marginal_bytes=(long.bytes * b - short.bytes * a) / (b - a),
        )
    return found


def targets(samples: Sequence[Sample]) -> list[Target]:
    """What Holdfast promises, and whether it was kept."""
    grown = growth(figures(samples)).get(HOLDFAST)
    single = sorted({sample.load for sample in samples if sample.load.runs == 1})
    short, long = (single[0], single[-1]) if single else (Load(0), Load(0))
    times, cpus = over_floor(samples), over_floor(samples, cpu)
    flat = f"at {long.steps} steps, of that at {short.steps}"
    at, promised = f"at {PROMISED_STEPS} steps", Load(PROMISED_STEPS)
    together = times.get((HOLDFAST, SIDE_BY_SIDE))
    return [
        Target(f"history bytes per step {flat}", 1.05, grown.bytes if grown else None),
        Target(f"time per step {flat}", 1.25, grown.time if grown else None),
        Target(f"time per step at {short.steps} steps, of the floor's", 2.0, times.get((HOLDFAST, short))),
        Target(f"time per step {at}, where tools read, of the floor's", 0.65, times.get((HOLDFAST, promised))),
        Target(f"time per step {at}, where tools have effects, of the floor's", 1.1, times.get((EFFECTS, promised))),
        Target(f"CPU per step {at}, where tools read, of the floor's", 1.1, cpus.get((HOLDFAST, promised))),
        Target(
            f"steps a second of {SIDE_BY_SIDE.runs} runs, where tools read, of the floor's",
            1.2,
            1 / together if together else None,
            at_least=True,
        ),
    ]
