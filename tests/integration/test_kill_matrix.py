"""SIGKILL at every boundary, against real external systems: each effect happens once, or a person is asked.

The default tests run a sample; `make kill-matrix` runs all of it, and the random kills of `bench/kills.py`.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.core.log.events import SubagentEnded
from holdfast.testing import (
    BOUNDARIES,
    INTERVENTION_BOUNDARIES,
    Conversation,
    KillMatrix,
    Reply,
    call,
    say,
    steps,
    together,
)
from holdfast.testing.kill_matrix.matrix import Victim
from tests.support.outside import LATE, Api, Outside

SCRIPT = steps(
    [
        together(call("look", order="7"), call("charge", order="7"), call("mail", order="7"), call("ship", order="7")),
        call("transfer", order="7"),
        say("served"),
    ]
)
SLEEPER = steps(
    [
        call("look", order="7"),
        call("wait_for_event", name="paid"),
        call("charge", order="7"),
        call("wait_for_event", name="paid"),  # the next event of that name may have arrived already
        together(call("sleep_until", until="1s"), call("transfer", order="7")),
        call("sleep_until", until="2h"),
        together(call("sleep_until", until="3h"), call("wait_for_event", name="sent"), call("mail", order="7")),
        call("sleep_until", until="4h"),
        say("served"),
    ]
)
"""A run that sleeps."""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """Run the external systems."""
    with Api(late=LATE) as api:
        yield Outside(api, tmp_path_factory.mktemp("outside") / "outbox")


@pytest.fixture(scope="module")
def matrix(outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KillMatrix]:
    """Return a kill matrix with its own stack."""
    with KillMatrix(
        catalog="tests.support.outside:catalog",
        script=SCRIPT,
        effects=outside.effects,
        home=tmp_path_factory.mktemp("kill-matrix"),
        environ=outside.environ,
    ) as matrix:
        outside.prepare(matrix.stack.database_url)
        yield matrix


async def test_a_sample_of_the_matrix(matrix: KillMatrix) -> None:
    """After kills at a request and during an effect, every effect has happened once, and no decision is lost."""
    survival = await matrix.survive("after approval_requested", "after effect", most=2)
    assert [stop.boundary for stop in survival.stops] == ["after approval_requested", "after effect"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("boundary", BOUNDARIES)
async def test_the_matrix(matrix: KillMatrix, boundary: str) -> None:
    """A kill at any boundary leaves every effect done once, or a person says whether it happened."""
    survival = await matrix.survive(boundary)
    assert boundary in {stop.boundary for stop in survival.stops}
    if boundary.endswith("effect"):
        assert len(survival.stops) == 4
        assert survival.asked  # about `mail`; twice if it was also killed during another effect


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["temporal", "database", "llm"])
@pytest.mark.parametrize("boundary", ["before call_llm", "after effect", "before tool_call_finished", "before archive"])
async def test_a_server_is_killed(matrix: KillMatrix, victim: Victim, boundary: str) -> None:
    """A server that is killed at the boundary and restarted costs only time."""
    survival = await matrix.survive(boundary, victim=victim, most=1)
    assert len(survival.stops) == 1


@pytest.fixture
def sleeper(matrix: KillMatrix) -> Iterator[KillMatrix]:
    """Return the matrix with runs that sleep."""
    matrix.llm.script = SLEEPER
    yield matrix
    matrix.llm.script = SCRIPT


@pytest.mark.slow
async def test_a_sample_of_interventions(sleeper: KillMatrix) -> None:
    """After kills at an event and at a pause, each counts once, and the pause still holds."""
    boundaries = ("after wake_received", "before task_refined", "after run_paused")
    survival = await sleeper.survive(*boundaries, most=3, intervene=True)
    assert len(survival.stops) == 3
    assert {stop.boundary for stop in survival.stops} <= set(boundaries)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("boundary", INTERVENTION_BOUNDARIES)
async def test_interventions(sleeper: KillMatrix, boundary: str) -> None:
    """A kill at any boundary leaves each event, refinement and pause counted once, and each wait ended once."""
    survival = await sleeper.survive(boundary, intervene=True)
    assert boundary in {stop.boundary for stop in survival.stops}
    kinds = Counter(event.type for event in survival.events)
    assert kinds["run_paused"] == kinds["run_resumed"] >= 2
    assert kinds["dormancy_began"] == 7
    assert kinds["task_refined"] >= 1


def delegating(conversation: Conversation) -> Reply:
    """As the shop, have two helpers help, and charge meanwhile; as a helper, help."""
    if "run_agent" not in conversation.tools:
        return say("helped")
    helpers = [call("run_agent", agent="helper", task=f"help {n}") for n in range(2)]
    return [together(*helpers, call("charge", order="7")), say("served")][conversation.replies]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_run_with_sub_agents(matrix: KillMatrix, moment: str) -> None:
    """A kill at any boundary leaves each sub-agent started once, and its answer read once."""
    matrix.llm.script = delegating
    places = ("start_subagents", "subagent_started", "announce_end", "check_subagents", "subagent_ended")
    try:
        survival = await matrix.survive(*(f"{moment} {place}" for place in places))
    finally:
        matrix.llm.script = SCRIPT
    assert {stop.boundary for stop in survival.stops} >= {f"{moment} {place}" for place in places}
    kinds = Counter(event.type for event in survival.events)
    assert (kinds["subagent_started"], kinds["subagent_ended"], kinds["tool_call_finished"]) == (2, 2, 3)
    ends = [event.status for event in survival.events if isinstance(event, SubagentEnded)]
    assert ends == ["completed", "completed"]


@pytest.mark.slow
async def test_a_boundary_that_the_run_never_reaches_is_reported(matrix: KillMatrix) -> None:
    """The run is not killed, and the result says so."""
    assert (await matrix.survive("before folded")).stops == ()


@pytest.mark.slow
async def test_a_tool_wrongly_declared_idempotent_is_detected(matrix: KillMatrix) -> None:
    """The matrix reports an effect that happened twice."""
    matrix.llm.script = steps([call("stamp", order="7"), say("stamped")])
    try:
        with pytest.raises(AssertionError, match=r"call 1 of stamp \(\w+\) happened 2 times"):
            await matrix.survive("after effect")
    finally:
        matrix.llm.script = SCRIPT
