"""Pacing: the delay before a poll is repeated."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.run.rules.backoff import Pace, PollOutcome, next_delay

RESULTS = ("news", "same", "partial", "timeout", "no_response")
OUTCOMES = st.lists(st.builds(PollOutcome, st.sampled_from(RESULTS), st.floats(0, 1_000)), max_size=40)
PACES = st.builds(
    lambda start, span, growth, failure: Pace(start, start + span, growth, growth + failure),
    st.floats(0.5, 600),
    st.floats(0, 3_600),
    st.floats(1.1, 4),
    st.floats(0.1, 4),
)
THREE_WEEKS = 21 * 86_400


def polls(*results: str, pace: Pace | None = None, remaining: float | None = None) -> float:
    """Return the delay after polls with these results, which took no time."""
    outcomes = [PollOutcome(result) for result in results]  # type: ignore[arg-type]
    return next_delay(outcomes, pace or Pace(), remaining=remaining)


@given(OUTCOMES, PACES, st.none() | st.floats(-10, 10_000))
def test_a_delay_is_bounded_and_always_the_same(
    outcomes: list[PollOutcome], pace: Pace, remaining: float | None
) -> None:
    """The delay lies between the start and the ceiling, and never beyond the deadline; no part of it is random."""
    delay = next_delay(outcomes, pace, remaining=remaining)
    assert delay == next_delay(iter(outcomes), pace, remaining=remaining)
    assert 0 <= delay <= pace.ceiling
    if remaining is None:
        assert delay >= pace.start
    else:
        assert delay <= max(0, remaining)


@given(OUTCOMES, PACES)
def test_the_same_answer_never_makes_the_next_poll_sooner(outcomes: list[PollOutcome], pace: Pace) -> None:
    """Each repeated result slows polling down until the ceiling; a time-out slows it at least as much."""
    before = next_delay(outcomes, pace)
    same = next_delay([*outcomes, PollOutcome("same")], pace)
    assert same >= before
    assert same > before or same == pace.ceiling
    for failed in ("timeout", "no_response"):
        assert next_delay([*outcomes, PollOutcome(failed)], pace) >= same


@given(OUTCOMES, PACES)
def test_news_and_parts_never_slow_down(outcomes: list[PollOutcome], pace: Pace) -> None:
    """After news the next poll is as soon as the first one; after a partial result, no later than before."""
    assert next_delay([*outcomes, PollOutcome("news")], pace) == pace.start
    assert next_delay([*outcomes, PollOutcome("partial")], pace) <= next_delay(outcomes, pace)


def test_the_number_of_polls_in_three_weeks_is_bounded() -> None:
    """Without news, the ceiling and a few early polls give the number."""
    pace, elapsed, count = Pace(), 0.0, 0
    outcomes: list[PollOutcome] = []
    while elapsed < THREE_WEEKS:
        elapsed += next_delay(outcomes[-30:], pace)
        outcomes.append(PollOutcome("same"))
        count += 1
    assert count <= THREE_WEEKS / pace.ceiling + 20


@pytest.mark.parametrize(
    ("results", "delay"),
    [
        ((), 2),
        (("same",), 3),
        (("same", "same"), 4.5),
        (("same", "same", "news"), 2),
        (("timeout",), 6),
        (("no_response", "no_response"), 18),
        (("timeout", "partial"), 3),
        (("partial",), 2),
        (("same",) * 50, 300),
    ],
)
def test_each_answer_has_its_effect_on_the_delay(results: tuple[str, ...], delay: float) -> None:
    """The examples show the rules."""
    assert polls(*results) == delay


def test_a_slow_answer_and_a_deadline_bound_the_delay() -> None:
    """A source that takes a minute to answer is not polled every two seconds; the last poll is at the deadline."""
    assert next_delay([PollOutcome("news", 60)], Pace()) == 60
    assert polls("timeout", "timeout", remaining=5) == 5
    assert polls(remaining=-1) == 0


def test_delays_grow_step_by_step() -> None:
    """As a control of the factor, each delay is half as long again as the one before."""
    delays = [polls(*["same"] * count) for count in range(8)]
    assert all(later == pytest.approx(1.5 * earlier) for earlier, later in pairwise(delays))
