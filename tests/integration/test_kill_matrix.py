"""SIGKILL at every recorded boundary, against real outside systems: each effect once, or a person is asked.

The default tests take a sample; `make kill-matrix` runs all of it, and the random kills of `bench/kills.py`.
"""

from collections.abc import Iterator

import pytest

from holdfast.testing import BOUNDARIES, KillMatrix, call, say, steps, together
from holdfast.testing.kill_matrix.matrix import Victim
from tests.integration.outside import Api, Outside

SCRIPT = steps(
    [
        together(call("look", order="7"), call("charge", order="7"), call("mail", order="7"), call("ship", order="7")),
        call("transfer", order="7"),
        say("served"),
    ]
)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """The world."""
    with Api() as api:
        yield Outside(api, tmp_path_factory.mktemp("outside") / "outbox")


@pytest.fixture(scope="module")
def matrix(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillMatrix]:
    """A doomed worker on a stack of its own."""
    with KillMatrix(
        catalog="tests.integration.outside:catalog",
        script=SCRIPT,
        effects=outside.effects,
        home=tmp_path_factory.mktemp("kill-matrix"),
        environ=outside.environ,
    ) as matrix:
        outside.prepare(matrix.stack.database_url)
        yield matrix


@pytest.mark.timeout(120)
async def test_a_sample_of_the_matrix(matrix: KillMatrix) -> None:
    """Killed when a person has been asked, and in mid-effect: every effect happens once, no decision is lost."""
    survival = await matrix.survive("after approval_requested", "after effect", most=2)
    assert [stop.boundary for stop in survival.stops] == ["after approval_requested", "after effect"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_the_matrix(matrix: KillMatrix, boundary: str) -> None:
    """Wherever the worker is killed, every effect happens once, or a person says whether it did."""
    survival = await matrix.survive(boundary)
    assert boundary in {stop.boundary for stop in survival.stops}
    if boundary.endswith("effect"):
        assert len(survival.stops) == 4
        assert survival.asked  # about `mail`; twice where it was killed before, while another effect was stopped at


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", ["temporal", "database", "llm"])
@pytest.mark.parametrize("boundary", ["before call_llm", "after effect", "before tool_call_finished", "before archive"])
async def test_a_server_is_killed(matrix: KillMatrix, victim: Victim, boundary: str) -> None:
    """A server that dies at that moment, and comes back, costs time and nothing else."""
    survival = await matrix.survive(boundary, victim=victim, most=1)
    assert len(survival.stops) == 1


@pytest.mark.slow
async def test_what_a_run_never_comes_to(matrix: KillMatrix) -> None:
    """A boundary that the script does not lead to kills nobody, and says so."""
    assert (await matrix.survive("before folded")).stops == ()


@pytest.mark.slow
async def test_a_tool_that_lies_is_found_out(matrix: KillMatrix) -> None:
    """A tool that calls itself idempotent, and is not, has its effect twice; the matrix says so."""
    matrix.llm.script = steps([call("stamp", order="7"), say("stamped")])
    try:
        with pytest.raises(AssertionError, match=r"call 1 of stamp \(\w+\) happened 2 times"):
            await matrix.survive("after effect")
    finally:
        matrix.llm.script = SCRIPT
