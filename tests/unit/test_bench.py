"""The arithmetic of the benchmark: medians, ratios, growth and targets. Nothing is timed here."""

import json

import pytest

from bench import fanout
from bench.figures import (
    EFFECTS,
    FLOOR,
    HOLDFAST,
    LOCAL_FLOOR,
    SIDE_BY_SIDE,
    Load,
    Sample,
    cpu,
    figures,
    growth,
    over_floor,
    repeats,
    schedule,
    targets,
)
from bench.llm import FIRST, reply
from bench.report import Report, markdown


def sample(
    contender: str, steps: int, *, runs: int = 1, ms: float = 10, cpu_ms: float = 5, size: float = 4_000
) -> Sample:
    """Return one or several runs with these milliseconds and bytes per step."""
    made = steps * runs
    return Sample(
        contender=contender,
        load=Load(steps, runs),
        seconds=ms * made / 1000,
        cpu_seconds=cpu_ms * made / 1000,
        history_bytes=round(size * made),
        history_events=12 * made,
    )


def test_figures_are_medians_per_step() -> None:
    """One slow run of three does not change a row of the table."""
    [row] = figures([sample(HOLDFAST, 100, ms=ms, cpu_ms=ms / 2) for ms in (20, 500, 22)])

    assert (row.contender, row.load, row.samples) == (HOLDFAST, Load(100), 3)
    assert row.ms == pytest.approx(22)
    assert row.cpu_ms == pytest.approx(11)
    assert row.bytes == pytest.approx(4_000)
    assert row.events == pytest.approx(12)


def test_rows_are_sorted_by_length() -> None:
    """In any order of the runs, the table goes from short to long, with the floor first."""
    rows = figures([sample(name, steps) for steps in (400, 10) for name in (EFFECTS, HOLDFAST, FLOOR)])

    assert [(row.load.steps, row.contender) for row in rows] == [
        (10, FLOOR),
        (10, HOLDFAST),
        (10, EFFECTS),
        (400, FLOOR),
        (400, HOLDFAST),
        (400, EFFECTS),
    ]


def test_concurrent_runs_share_their_time() -> None:
    """64 concurrent runs that together complete a step every 10 ms make a hundred steps a second."""
    [row] = figures([sample(FLOOR, 20, runs=64, ms=10)])

    assert row.throughput == pytest.approx(100)
    assert row.cpu_ms == pytest.approx(5)
    assert row.bytes == pytest.approx(4_000)


def test_the_ratio_to_the_floor_compares_neighbours() -> None:
    """A temporary slowdown of the machine affects both runs of a pair, so the ratio stays the same."""
    samples = [
        one
        for slowdown in (1, 1, 7, 8, 9)
        for one in (
            sample(FLOOR, 10, ms=10 * slowdown),
            sample(HOLDFAST, 10, ms=15 * slowdown, cpu_ms=6),
            sample(EFFECTS, 10, ms=20 * slowdown),
        )
    ]

    assert over_floor(samples) == {(HOLDFAST, Load(10)): pytest.approx(1.5), (EFFECTS, Load(10)): pytest.approx(2)}
    assert over_floor(samples, cpu)[HOLDFAST, Load(10)] == pytest.approx(1.2)


def test_growth_compares_the_shortest_with_the_longest_length() -> None:
    """Time and bytes per step are compared between the ends; lengths in between do not matter."""
    rows = figures([sample(HOLDFAST, steps, ms=ms) for steps, ms in ((10, 20), (100, 90), (400, 30))])

    side_by_side = figures([sample(HOLDFAST, 20, runs=64, ms=500)])

    assert growth([*rows, *side_by_side])[HOLDFAST].time == pytest.approx(1.5)
    assert growth(rows)[HOLDFAST].bytes == pytest.approx(1.0)


def test_marginal_figures_exclude_fixed_costs() -> None:
    """With 6,000 fixed bytes and 4,000 per step, one more step costs 4,000 bytes."""
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
    """Bytes may grow by 5 % and time by 25 %; ten steps may take at most twice the floor's time."""
    samples = [sample(FLOOR, 10, ms=floor_ms), sample(HOLDFAST, 10), sample(HOLDFAST, 400, ms=ms, size=size)]

    assert [target.met for target in targets(samples)][:3] == met


@pytest.mark.parametrize(
    ("reads", "effects", "cpu_ms", "together", "met"),
    [
        (6.5, 11, 5.5, 8.3, [True, True, True, True]),
        (6.6, 11, 5.5, 8.3, [False, True, True, True]),
        (6.5, 11.1, 5.5, 8.3, [True, False, True, True]),
        (6.5, 11, 5.6, 8.3, [True, True, False, True]),
        (6.5, 11, 5.5, 8.4, [True, True, True, False]),
    ],
)
def test_a_step_is_compared_with_the_floors(
    reads: float, effects: float, cpu_ms: float, together: float, met: list[bool]
) -> None:
    """The limits are 0.65 of the floor's time for a read and 1.1 for an effect, 1.1 of its CPU, 1.2 of its steps a
    second.
    """
    samples = [
        sample(FLOOR, 100),
        sample(HOLDFAST, 100, ms=reads, cpu_ms=cpu_ms),
        sample(EFFECTS, 100, ms=effects),
        sample(FLOOR, SIDE_BY_SIDE.steps, runs=SIDE_BY_SIDE.runs),
        sample(HOLDFAST, SIDE_BY_SIDE.steps, runs=SIDE_BY_SIDE.runs, ms=together),
    ]

    assert [target.met for target in targets(samples)][3:] == met


def test_an_unmeasured_target_is_neither_met_nor_missed() -> None:
    """A single length shows no growth, and without runs there is nothing to judge."""
    single = [target.met for target in targets([sample(FLOOR, 10), sample(HOLDFAST, 10)])]

    assert single == [None, None, True, None, None, None, None]
    assert {target.met for target in targets([])} == {None}


def test_contenders_alternate_and_take_turns_at_being_first() -> None:
    """Each run has a run of the other contender beside it, and neither contender always runs second."""
    short, together = Load(10), Load(20, 64)

    assert schedule([short, together], 2) == [
        (FLOOR, short),
        (LOCAL_FLOOR, short),
        (HOLDFAST, short),
        (EFFECTS, short),
        (FLOOR, together),
        (LOCAL_FLOOR, together),
        (HOLDFAST, together),
        (EFFECTS, together),
        (EFFECTS, short),
        (HOLDFAST, short),
        (LOCAL_FLOOR, short),
        (FLOOR, short),
        (EFFECTS, together),
        (HOLDFAST, together),
        (LOCAL_FLOOR, together),
        (FLOOR, together),
    ]


def test_short_runs_are_repeated_more_often() -> None:
    """By default, ten steps are run nine times and 400 steps three times."""
    assert [repeats(load) for load in (Load(10), Load(100), Load(400), Load(20, 64))] == [9, 6, 3, 3]
    assert len(schedule([Load(10), Load(400)], None)) == 4 * (9 + 3)


def test_the_section_has_a_table_for_single_runs_and_one_for_many() -> None:
    """The same ratio is shown as time in one table and as steps a second in the other."""
    samples = [
        one
        for load in (Load(100), SIDE_BY_SIDE)
        for one in (
            sample(FLOOR, load.steps, runs=load.runs, ms=10),
            sample(HOLDFAST, load.steps, runs=load.runs, ms=5),
        )
    ]
    text = markdown(Report(samples, "a machine", {}, "2026-01-01", None))

    assert "| 100 | Holdfast, reads | 1 | 5.0 | 0.50 | 5.0 | 1.00 | 4,000 | 12.0 |" in text
    assert "| 64 × 20 steps | Holdfast, reads | 1 | 200 | 2.00 | 5.0 | 1.00 |" in text
    assert "| ✓ | steps a second of 64 runs, where tools read, of the floor's | ≥ 1.20 × | 2.00 × |" in text


def test_the_llm_reads_the_step_from_the_ends_of_the_body() -> None:
    """It asks for the next call after the last result, and for none after the last step."""
    task, middle = b'{"role":"user","content":"steps=3"}', b"x" * 100_000
    results = [b'{"role":"tool","tool_call_id":"call_%d","content":"seen"}' % number for number in (1, 2, 3)]

    assert b"call_1" in reply(task)
    assert b"call_3" in reply(b",".join([task, middle, *results[:2]]))
    assert b"tool_calls" not in reply(b",".join([task, middle, *results]))
    assert b'"name": "observe"' in reply(task)
    assert b'"name": "act"' in reply(b"uses=act " + task)


def test_the_llm_makes_the_first_calls_in_one_reply() -> None:
    """A task may begin with many calls at once; the steps follow, and the tasks of sub-agents make no such calls."""
    task, middle = b'{"role":"user","content":"first=100xrest steps=3"}', b"x" * 100_000
    results = [b'{"role":"tool","tool_call_id":"first_%d","content":"rested"}' % number for number in range(100)]
    first = json.loads(reply(task))["choices"][0]["message"]["tool_calls"]
    assert [len(first), len({each["id"] for each in first}), first[0]["function"]["name"]] == [101, 101, "run_agent"]
    assert b"call_1" in reply(b",".join([task, middle, *results]))
    assert b"call_2" in reply(b",".join([task, middle, *results, b'{"role":"tool","tool_call_id":"call_1"}']))
    for name, (_, given) in FIRST.items():
        below = json.loads(reply(json.dumps({"role": "user", "content": given.get("task", "")}).encode()))
        assert [len(below["choices"][0]["message"].get("tool_calls", ())), name] == [int(name == "wait"), name]


def test_the_figures_of_many_sub_agents_are_judged() -> None:
    """Steps are compared within a round, history with that of a parent alone; one open sub-agent too few is a miss."""

    def one(ms: float, size: int, *children: str, closed: int = 0) -> fanout.Sample:
        return fanout.Sample(
            ms=ms, cpu_ms=ms / 2, history_bytes=size, seconds=1, children=children, closed=closed or len(children)
        )

    ended, waiting = ("completed",) * 2, ("open",) * 2
    samples = {
        fanout.ALONE: [one(9, 100), one(18, 100)],
        fanout.CALLS: [one(10, 1_000), one(20, 1_000)],
        fanout.BESIDE: [one(11, 1_000), one(21, 1_000)],
        fanout.ENDED: [one(10, 2_100, *ended), one(22, 2_100, *ended)],
        fanout.OPEN: [one(10, 3_100, *waiting), one(20, 3_100, *waiting)],
    }
    lines, kept = fanout.judge(samples, count=2)
    assert kept
    assert "all 2 sub-agents of each parent ended" in lines[0]
    assert "grew by 1,000 bytes for each that ended while it waited, by 1,500" in lines[1]
    assert "after sub-agents that have ended takes 1.050 × the CPU of one after ordinary calls (" in lines[7]
    assert "beside open sub-agents takes 0.931 × the CPU of one after ordinary calls, beside" in lines[8]
    for worse in (one(10, 9_100, *ended), one(30, 2_100, *ended), one(10, 2_100, "completed", "open")):
        assert not fanout.judge({**samples, fanout.ENDED: [worse, worse]}, count=2)[1]
    assert not fanout.judge({**samples, fanout.OPEN: [one(10, 3_100, *waiting, closed=1)] * 2}, count=2)[1]
