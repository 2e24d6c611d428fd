"""The arithmetic of the benchmark: medians, ratios, growth and targets. Nothing is timed here."""

import pytest

from bench.figures import FLOOR, HOLDFAST, Sample, figures, growth, over_floor, repeats, schedule, targets
from bench.llm import reply


def sample(contender: str, steps: int, *, ms: float = 10, size: float = 4_000) -> Sample:
    """A run whose steps took `ms` milliseconds and `size` bytes each."""
    return Sample(
        contender=contender,
        steps=steps,
        seconds=ms * steps / 1000,
        cpu_seconds=ms * steps / 2000,
        history_bytes=round(size * steps),
        history_events=12 * steps,
    )


def test_figures_are_medians_per_step() -> None:
    """One slow run of three leaves no trace in a row of the table."""
    [row] = figures([sample(HOLDFAST, 100, ms=ms) for ms in (20, 500, 22)])

    assert (row.contender, row.steps, row.runs) == (HOLDFAST, 100, 3)
    assert row.ms == pytest.approx(22)
    assert row.cpu_ms == pytest.approx(11)
    assert row.bytes == pytest.approx(4_000)
    assert row.events == pytest.approx(12)


def test_rows_come_in_order_of_length() -> None:
    """Whatever the order of the runs, the table goes from short to long, the floor first."""
    rows = figures([sample(name, steps) for steps in (400, 10) for name in (HOLDFAST, FLOOR)])

    assert [(row.steps, row.contender) for row in rows] == [
        (10, FLOOR),
        (10, HOLDFAST),
        (400, FLOOR),
        (400, HOLDFAST),
    ]


def test_the_ratio_to_the_floor_compares_neighbours() -> None:
    """A machine that slows down for a while slows both of a pair, and the ratio stays."""
    samples = [
        one
        for slowdown in (1, 1, 7, 8, 9)
        for one in (sample(FLOOR, 10, ms=10 * slowdown), sample(HOLDFAST, 10, ms=15 * slowdown))
    ]

    assert over_floor(samples) == {10: pytest.approx(1.5)}


def test_growth_goes_from_the_shortest_length_to_the_longest() -> None:
    """Time and bytes per step are compared between the ends, whatever lies between."""
    rows = figures([sample(HOLDFAST, steps, ms=ms) for steps, ms in ((10, 20), (100, 90), (400, 30))])

    assert growth(rows)[HOLDFAST].time == pytest.approx(1.5)
    assert growth(rows)[HOLDFAST].bytes == pytest.approx(1.0)


def test_marginal_figures_leave_fixed_costs_out() -> None:
    """A run of 6,000 bytes and 4,000 more a step costs 4,000 bytes for one more step."""
    rows = figures([sample(HOLDFAST, steps, size=4_000 + 6_000 / steps) for steps in (10, 400)])

    assert growth(rows)[HOLDFAST].marginal_bytes == pytest.approx(4_000)


@pytest.mark.parametrize(
    ("ms", "size", "floor_ms", "met"),
    [
        (10, 4_000, 5, [True, True, True]),
        (10, 4_201, 5, [False, True, True]),
        (12.6, 4_000, 5, [True, False, True]),
        (10, 4_000, 4.9, [True, True, False]),
    ],
)
def test_each_target_has_its_own_limit(ms: float, size: float, floor_ms: float, met: list[bool]) -> None:
    """Bytes may grow by 5 %, time by 25 %, and ten steps may take twice the floor's time; not more."""
    samples = [sample(FLOOR, 10, ms=floor_ms), sample(HOLDFAST, 10), sample(HOLDFAST, 400, ms=ms, size=size)]

    assert [target.met for target in targets(samples)] == met


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    """With a single length there is no growth to judge, and without any run nothing at all."""
    assert [target.met for target in targets([sample(FLOOR, 10), sample(HOLDFAST, 10)])] == [None, None, True]
    assert [target.met for target in targets([])] == [None, None, None]


def test_contenders_alternate_and_take_turns_at_going_first() -> None:
    """Each run has its opponent beside it, and neither always runs in the other's wake."""
    assert schedule([10, 400], 2) == [
        (FLOOR, 10),
        (HOLDFAST, 10),
        (FLOOR, 400),
        (HOLDFAST, 400),
        (HOLDFAST, 10),
        (FLOOR, 10),
        (HOLDFAST, 400),
        (FLOOR, 400),
    ]


def test_short_runs_are_repeated_more_often() -> None:
    """By default ten steps are run nine times and 400 steps three times."""
    assert [repeats(steps) for steps in (10, 100, 400)] == [9, 6, 3]
    assert len(schedule([10, 400], None)) == 2 * (9 + 3)


def test_the_llm_reads_the_step_off_the_ends_of_the_body() -> None:
    """It asks for the next call after the last result, and for none after the last step."""
    task, middle = b'{"role":"user","content":"steps=3"}', b"x" * 100_000
    results = [b'{"role":"tool","tool_call_id":"call_%d","content":"seen"}' % number for number in (1, 2, 3)]

    assert b"call_1" in reply(task)
    assert b"call_3" in reply(b",".join([task, middle, *results[:2]]))
    assert b"tool_calls" not in reply(b",".join([task, middle, *results]))
