"""The measurements, the figures computed from them, and the targets. Pure: no clock, no I/O.

1. A run is measured from its start to its result and divided by its steps, so fixed costs are included.
2. Ratios to the floor are medians over pairs of consecutive samples, which temporary load on the machine distorts less.
3. Marginal figures (per step, between the shortest and the longest length) exclude fixed costs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

FLOOR = "floor"
HOLDFAST = "holdfast"
EFFECTS = "holdfast_effects"
LOCAL_FLOOR = "local_floor"
CONTENDERS = (FLOOR, LOCAL_FLOOR, HOLDFAST, EFFECTS)
"""The bare workflow, the same with its tool as a local activity, Holdfast with a tool that reads, and Holdfast with a
tool that has an effect."""

PROMISED_STEPS = 100
"""The length for which the targets relative to the floor are set."""


@dataclass(frozen=True, order=True)
class Load:
    """The load of one sample."""

    steps: int
    """Steps of each run."""
    runs: int = 1
    """Concurrent runs."""

    def __str__(self) -> str:
        return f"{self.runs} × {self.steps} steps" if self.runs > 1 else f"{self.steps} steps"


SIDE_BY_SIDE = Load(steps=20, runs=64)
"""Enough runs to keep the machine busy, each long enough that fixed costs do not dominate."""


@dataclass(frozen=True)
class Sample:
    """One run, or several concurrent ones."""

    contender: str
    load: Load
    seconds: float
    """From the first start to the last result."""
    cpu_seconds: float
    """CPU time of the process of worker and driver."""
    history_bytes: int
    history_events: int


Figure = Callable[[Sample], float]


def seconds(sample: Sample) -> float:
    """Return the duration of a sample."""
    return sample.seconds


def cpu(sample: Sample) -> float:
    """Return the CPU time of a sample."""
    return sample.cpu_seconds


@dataclass(frozen=True)
class Figures:
    """Medians per step over the samples of one contender and load."""

    contender: str
    load: Load
    samples: int
    ms: float
    cpu_ms: float
    bytes: float
    events: float

    @property
    def throughput(self) -> float:
        """Steps per second of all runs together."""
        return 1000 / self.ms


@dataclass(frozen=True)
class Growth:
    """The change of a contender's figures from the shortest length to the longest."""

    contender: str
    time: float
    """Time per step at the longest length, divided by that at the shortest."""
    bytes: float
    """The same for history bytes per step."""
    marginal_ms: float
    """Milliseconds per additional step."""
    marginal_bytes: float
    """History bytes per additional step."""


@dataclass(frozen=True)
class Target:
    """A bound on a figure."""

    text: str
    limit: float
    value: float | None
    """None if it needs loads that were not measured."""
    at_least: bool = False
    """True if the limit is a minimum; otherwise it is a maximum."""

    @property
    def met(self) -> bool | None:
        """Whether the figure meets the limit; None if it was not measured."""
        if self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def repeats(load: Load) -> int:
    """Return the default number of samples of a load: more for short runs, which are cheap and vary most."""
    return max(3, min(9, 600 // (load.steps * load.runs)))


def schedule(loads: Sequence[Load], repeat: int | None) -> list[tuple[str, Load]]:
    """Return contender and load of every sample, interleaved, with the order of contenders reversed every time.

    Args:
        loads: The loads to measure.
        repeat: Samples of each configuration; None for `repeats`.
    """
    counts = {load: repeat or repeats(load) for load in loads}
    return [
        (contender, load)
        for number in range(max(counts.values(), default=0))
        for load in loads
        if number < counts[load]
        for contender in (CONTENDERS if number % 2 == 0 else CONTENDERS[::-1])
    ]


def figures(samples: Iterable[Sample]) -> list[Figures]:
    """Compute medians per step for each contender and load, in order of load."""
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
    """Map contender and load to the figure divided by the floor's: the median over pairs of consecutive samples."""
    groups: dict[tuple[str, Load], list[float]] = {}
    for sample in samples:
        groups.setdefault((sample.contender, sample.load), []).append(figure(sample))
    return {
        (contender, load): median(one / other for one, other in zip(ours, groups[FLOOR, load], strict=False))
        for (contender, load), ours in groups.items()
        if contender != FLOOR and (FLOOR, load) in groups
    }


def growth(rows: Iterable[Figures]) -> dict[str, Growth]:
    """Map each contender to the growth of its single runs; empty with fewer than two lengths."""
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
    """Return Holdfast's targets with the figures measured."""
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
        Target(f"time per step {at} with tools that read, of the floor's", 0.65, times.get((HOLDFAST, promised))),
        Target(f"time per step {at} with tools that have effects, of the floor's", 1.1, times.get((EFFECTS, promised))),
        Target(f"CPU per step {at} with tools that read, of the floor's", 1.1, cpus.get((HOLDFAST, promised))),
        Target(
            f"steps a second of {SIDE_BY_SIDE.runs} runs with tools that read, of the floor's",
            1.2,
            1 / together if together else None,
            at_least=True,
        ),
    ]
