"""An effect of a lost attempt can arrive late: `call_tool` against a real ledger, attempt by attempt.

The tests do not wait: they backdate when a row started settling.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast import Absent, Found, NotDone, Tool, ToolContext, Unknown, tool
from holdfast.activities.tool_calls.call_tool import ToolExecution
from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.mac.outcomes import NO_SEALS
from holdfast.core.run.contracts.error_types import EFFECT_SETTLING
from holdfast.core.run.contracts.ledger import CallAttempt
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.effects import PastEffect
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.imported_effects import ImportedEffect, put_effects
from holdfast.storage.ledger import CONFIRMED_SECONDS, Ledger
from tests.support.rig import die

SETTLES = 3_600.0
"""Seconds: longer than any test."""


class World:
    """An external system that records arrivals, and answers checks."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.checks = 0
        self.answers: list[Any] = []
        """The answers of the next checks; after those, a check looks for the effect."""

    def find(self, context: ToolContext) -> Any:
        """Look for the effect."""
        self.checks += 1
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return Found("found it") if context.key in self.arrived else Absent()


class Call:
    """A call whose attempts are made one by one, as if by successive workers.

    Args:
        pool: Connections to the ledger.
        url: Its address.
        folder: The workspace.
    """

    def __init__(self, pool: AsyncConnectionPool, url: str, folder: Path) -> None:
        self.key = uuid4().hex
        self._pool, self._url, self._folder = pool, url, folder
        self._number = 0
        self._notes: Any = None

    def effect(self, epoch: int = 0) -> PastEffect:
        """Return the effect as the ledger identifies it."""
        return PastEffect(number=1, first_run_id="run", tool="act", call_digest="d", key=self.key, epoch=epoch)

    async def attempt(self, used: Tool, *, epoch: int = 0, more: Sequence[str] = ()) -> ToolOutcome:
        """Make the next attempt, which gets the notes of the previous one.

        Args:
            used: The tool.
            epoch: How often a person has said that the effect did not happen.
            more: Flags of the request that are set: `undo`, `settle`.
        """
        self._number += 1
        call = ToolCall(id="c", name=used.spec.name, arguments="{}")
        flags: dict[str, Any] = dict.fromkeys(more, True)
        request = ToolRequest(
            call=call, key=self.key, first_run_id="run", epoch=epoch, workspace=str(self._folder), settles=True, **flags
        )
        notes = AttemptNotes(request, self._notes)
        context = ToolContext(thread="t", workspace=self._folder, key=self.key, attempt=self._number)
        outcomes = Outcomes(PostgresArtifacts(self._pool), "t", request, NO_SECRETS)
        execution = ToolExecution(Attempt(used, {}, context, {}), outcomes, request, notes)
        named = CallAttempt("activity", self._number)
        start = not epoch and not more
        ledger = Ledger(self._pool, self._url)

        async def make() -> ToolOutcome:
            async with ledger.claim(self.effect(epoch), thread="t", start=start, attempt=named) as entry:
                if "undo" in more:
                    return await execution.undo(entry)
                if entry.outcome is not None:
                    return entry.outcome
                outcome = await (execution.settle(entry) if "settle" in more else execution.run_once(entry))
                return outcome if outcome.status in ("unknown", "cancelled") else await entry.finish(outcome)

        try:
            return await ActivityEnvironment().run(make)
        finally:
            self._notes = notes.state

    async def waits(self, used: Tool, **more: Any) -> float:
        """Make an attempt that has to wait; return the seconds until the next one."""
        with pytest.raises(ApplicationError, match="may still arrive") as error:
            await self.attempt(used, **more)
        assert error.value.type == EFFECT_SETTLING
        assert error.value.next_retry_delay
        return error.value.next_retry_delay.total_seconds()

    async def settle(self, seconds: float = 2 * SETTLES) -> None:
        """Let that much settling time pass in the ledger."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.effects SET settling_since = settling_since - %s * interval '1 s' WHERE key = %s",
                [seconds, self.key],
            )


@pytest.fixture
def made(pool: AsyncConnectionPool, database_url: str, tmp_path: Path) -> Call:
    """Return a call of the tool `act`."""
    return Call(pool, database_url, tmp_path)


@pytest.fixture
def world() -> World:
    """Return a world without arrivals."""
    return World()


def acting(world: World, then: Callable[[], Any], kind: str = "verifiable", **more: Any) -> Tool:
    """Return a tool whose request arrives unless `then` raises first; `then` also decides how the function ends."""
    options: dict[str, Any] = {"effect": kind, "name": "act", "settles_within": SETTLES, **more}
    if kind == "verifiable":
        options["check"] = world.find

    async def act(context: ToolContext) -> Any:
        """Act."""
        world.arrived.append(context.key)
        ended = then()
        return await ended if asyncio.iscoroutine(ended) else ended

    made: Tool = tool(**options)(act)
    return made


def sending(world: World) -> Tool:
    """Return a tool that dies once its request is sent; the request has not arrived yet."""

    @tool(effect="verifiable", check=world.find, settles_within=SETTLES, name="act")
    async def act(context: ToolContext) -> None:
        """Die."""
        await die()

    return act


def plainly() -> str:
    """Act."""
    return "acted"


async def lost(made: Call, used: Tool) -> None:
    """Make an attempt that ends as if by SIGKILL."""
    with pytest.raises(asyncio.CancelledError):
        await made.attempt(used)


async def test_a_request_that_arrives_late_is_found(made: Call, world: World) -> None:
    """`Absent` does not count before the settling time is over; `Found` counts at once."""
    await lost(made, sending(world))
    assert await made.waits(sending(world)) == 0.5
    world.arrived.append(made.key)
    outcome = await made.attempt(sending(world))
    assert (outcome.status, outcome.content, outcome.adopted) == ("ok", "found it", True)


async def test_a_request_that_never_arrived_runs_after_the_settling_time(made: Call, world: World) -> None:
    """The last check starts after the settling time; then the call runs, once."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    outcome = await made.attempt(acting(world, lambda: "acted"))
    assert (outcome.status, outcome.content, world.arrived) == ("ok", "acted", [made.key])
    assert world.checks == 2


async def test_pauses_grow_between_checks(made: Call, world: World) -> None:
    """The next check follows after as long as has already passed, at most 30 s, and one comes at the very end."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle(10)
    assert await made.waits(sending(world)) == pytest.approx(10, abs=5)
    await made.settle(1_000)
    assert await made.waits(sending(world)) == 30
    await made.settle(SETTLES - 1_010 - 5)
    assert await made.waits(sending(world)) < 5


async def test_a_second_lost_attempt_restarts_the_settling_time(made: Call, world: World) -> None:
    """An attempt that ran again can be lost, too, so its settling time starts anew."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    await lost(made, sending(world))
    await made.waits(sending(world))


async def test_a_crash_during_the_wait_loses_no_time(made: Call, world: World) -> None:
    """The ledger stores when settling began, so the next attempt continues the countdown."""
    await lost(made, sending(world))

    async def find() -> None:
        await die()

    await lost(made, tool(effect="verifiable", check=find, settles_within=SETTLES, name="act")(plainly))
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"))).content == "acted"


async def test_an_attempt_of_an_older_release_restarts_the_settling_time(made: Call, world: World) -> None:
    """An older release's attempt accepts `Absent` at once and may have sent a request without polling."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    made._number += 1  # the older release's attempt
    await made.waits(sending(world))


@pytest.mark.parametrize("answer", [ValueError("the bank is down"), Unknown("the bank is closed")])
async def test_an_inconclusive_check_runs_nothing(made: Call, world: World, answer: Any) -> None:
    """During and after settling, a check that raises is repeated, and `Unknown` asks a person."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    world.answers = [answer]
    if isinstance(answer, Exception):
        with pytest.raises(ValueError, match="the bank is down"):
            await made.attempt(sending(world))
    else:
        assert (await made.attempt(sending(world))).status == "unknown"
    assert not world.arrived


async def test_idempotent_tools_do_not_wait(made: Call, world: World) -> None:
    """An idempotent call is retried at once, because the external system knows its key."""
    await lost(made, acting(world, die, "idempotent"))
    assert (await made.attempt(acting(world, lambda: "acted", "idempotent"))).content == "acted"


async def test_people_are_asked_at_once_with_the_deadline(made: Call, world: World) -> None:
    """The question about an unsafe effect names the moment after which nothing can arrive."""
    await lost(made, acting(world, die, "unsafe"))
    outcome = await made.attempt(acting(world, die, "unsafe"))
    assert outcome.status == "unknown"
    assert outcome.settles_in == pytest.approx(SETTLES, abs=60)
    assert "may still arrive until" in str(outcome.content)
    assert str(outcome.content).endswith("An `absent` before that is held: the call runs then, and nobody looks again")
    await made.settle()
    assert (await made.attempt(acting(world, die, "unsafe"))).settles_in is None


async def test_a_persons_absent_counts_after_the_settling_time(made: Call, world: World) -> None:
    """A person's `absent` reruns the call only once nothing of the lost attempt can arrive."""
    await lost(made, acting(world, die, "unsafe"))
    await made.attempt(acting(world, die, "unsafe"))
    await made.waits(acting(world, die, "unsafe"), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted", "unsafe"), epoch=1)).content == "acted"
    assert len(world.arrived) == 2


async def test_a_check_outweighs_a_persons_absent(made: Call, world: World) -> None:
    """An effect that arrives after the person's answer is found before the tool runs."""
    await lost(made, sending(world))
    world.answers = [Unknown("the bank is closed")]
    assert (await made.attempt(sending(world))).status == "unknown"
    await made.waits(sending(world), epoch=1)
    world.arrived.append(made.key)
    assert (await made.attempt(sending(world), epoch=1)).content == "found it"
    assert (await made.attempt(sending(world), epoch=1)).content == "found it"


async def test_a_persons_absent_decides_if_the_check_does_not_know(made: Call, world: World) -> None:
    """An inconclusive check is why the person was asked: after the settling time, the call runs."""
    await lost(made, sending(world))
    world.answers = [Unknown(), Unknown(), Unknown()]
    assert (await made.attempt(sending(world))).status == "unknown"
    await made.waits(sending(world), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"), epoch=1)).content == "acted"


async def test_an_attempt_lost_after_a_persons_absent_asks_again(made: Call, world: World) -> None:
    """A person's answer covers only the attempts before it."""
    await lost(made, acting(world, die, "unsafe", settles_within=0))
    with pytest.raises(asyncio.CancelledError):
        await made.attempt(acting(world, die, "unsafe", settles_within=0), epoch=1)
    assert (await made.attempt(acting(world, die, "unsafe", settles_within=0), epoch=1)).status == "unknown"
    assert len(world.arrived) == 2


async def test_undo_waits_for_the_settling_time(made: Call, world: World) -> None:
    """A compensation that ran before the late effect would not undo it."""
    undone: list[str] = []

    def take_back(context: ToolContext) -> str:
        undone.append(context.key)
        return "taken back"

    used = acting(world, die, "unsafe", undo=take_back)
    await lost(made, used)
    assert (await made.attempt(used)).status == "unknown"
    await made.waits(used, epoch=1, more=["undo"])
    assert not undone
    await made.settle()
    assert (await made.attempt(used, epoch=1, more=["undo"])).content == "taken back"


async def test_undo_need_not_wait_for_an_effect_that_arrived(made: Call, world: World) -> None:
    """Undo runs at once if the check finds the effect."""
    used = acting(world, die, undo=lambda: "taken back")
    await lost(made, sending(world))
    await made.waits(used, epoch=1, more=["undo"])
    world.arrived.append(made.key)
    assert (await made.attempt(used, epoch=1, more=["undo"])).content == "taken back"


async def test_a_closed_or_migrated_run_waits_for_the_settling_time(made: Call, world: World) -> None:
    """An early report that the call did not happen would make the LLM call again."""
    await lost(made, sending(world))
    await made.waits(sending(world), more=["settle"])
    world.arrived.append(made.key)
    assert (await made.attempt(sending(world), more=["settle"])).content == "found it"


async def test_an_effect_from_another_cluster_restarts_the_settling_time(
    made: Call, world: World, pool: AsyncConnectionPool
) -> None:
    """The thread was here before; its last attempt may have run on the other cluster since this one's last check."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    await put_effects(pool, "t", [ImportedEffect(made.effect(), None)], seals=NO_SEALS)
    await made.waits(sending(world), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"), epoch=1)).content == "acted"


async def test_rows_that_the_ledger_has_are_not_counted_again(made: Call, pool: AsyncConnectionPool) -> None:
    """A second `rerecord`, and one beside the worker that writes the rest, say that nothing was missing."""
    rows = [ImportedEffect(made.effect(), ToolOutcome(status="ok", content="done").model_dump_json())]
    changed = [await put_effects(pool, "t", rows, seals=NO_SEALS) for _ in range(2)]
    assert changed == [1, 0]


async def test_a_claim_covers_the_epochs_before_it(made: Call, pool: AsyncConnectionPool, database_url: str) -> None:
    """A frozen attempt keeps its claim, so no other attempt runs the effect, even after a person's answer."""
    ledger = Ledger(pool, database_url)
    async with ledger.claim(made.effect(), thread="t", start=True):
        with pytest.raises(ApplicationError, match="another attempt of act is still running"):
            async with ledger.claim(made.effect(epoch=1), thread="t"):
                pytest.fail("two attempts hold the claim")


async def drop_connections(database_url: str) -> None:
    """Close every other connection to the database."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend' AND datname = current_database()"
        )


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_an_attempt_that_has_lost_its_claim_does_not_run(
    made: Call, pool: AsyncConnectionPool, database_url: str, sync: bool, tmp_path: Path
) -> None:
    """A worker that was frozen between its claim and its function detects the lost claim before it sends anything."""
    acted: list[str] = []

    def act(context: ToolContext) -> None:
        """Act."""
        acted.append(context.key)

    async def act_async(context: ToolContext) -> None:
        """Act."""
        acted.append(context.key)

    used = tool(effect="unsafe", name="act")(act if sync else act_async)
    context = ToolContext(thread="t", workspace=tmp_path, key=made.key, attempt=1)

    async def make() -> None:
        async with Ledger(pool, database_url).claim(made.effect(), thread="t", start=True) as entry:
            await drop_connections(database_url)
            entry._confirmed -= 2 * CONFIRMED_SECONDS  # the clock that a frozen worker sees when it wakes
            await ActivityEnvironment().run(Attempt(used, {}, context, {}).run, entry)

    with pytest.raises(ApplicationError, match="no connection to the database"):
        await make()
    assert not acted


async def test_a_late_outcome_overwrites_nothing(made: Call, pool: AsyncConnectionPool, database_url: str) -> None:
    """An attempt that lost its claim and ends after another one returns the recorded outcome."""
    ledger = Ledger(pool, database_url)
    async with ledger.claim(made.effect(), thread="t", start=True) as frozen:
        await drop_connections(database_url)
        async with ledger.claim(made.effect(), thread="t", start=True) as other:
            assert other.started_before
            await other.finish(ToolOutcome(status="ok", content="the other's"))
        assert (await frozen.finish(ToolOutcome(status="ok", content="late"))).content == "the other's"
    async with ledger.claim(made.effect(), thread="t") as after:
        assert after.outcome
        assert after.outcome.content == "the other's"


async def test_an_attempt_that_returns_after_a_persons_absent_counts(
    made: Call, world: World, pool: AsyncConnectionPool, database_url: str
) -> None:
    """A frozen attempt that lost its claim while people were asked records its outcome, which is adopted."""
    async with Ledger(pool, database_url).claim(made.effect(), thread="t", start=True) as frozen:
        await drop_connections(database_url)
        assert (await made.attempt(acting(world, die, "unsafe"))).status == "unknown"
        await made.waits(acting(world, die, "unsafe"), epoch=1)
        await frozen.finish(ToolOutcome(status="ok", content="late"))
    assert (await made.attempt(acting(world, die, "unsafe"), epoch=1)).content == "late"
    assert not world.arrived


class ReadTimeout(Exception):
    """An error of a client library."""


def caused() -> None:
    """Raise an error that hides its cause."""
    try:
        raise ConnectionResetError("reset by peer")
    except ConnectionResetError as error:
        raise ValueError("no receipt") from error


def raising(error: BaseException) -> Callable[[], None]:
    """Return a function that raises this error."""

    def end() -> None:
        raise error

    return end


ERRORS = [
    pytest.param(raising(TimeoutError("no answer")), id="time-out"),
    pytest.param(raising(BrokenPipeError("broken pipe")), id="broken pipe"),
    pytest.param(raising(ReadTimeout("no answer")), id="client"),
    pytest.param(raising(ValueError("not JSON")), id="protocol"),
    pytest.param(caused, id="cause"),
    pytest.param(raising(ExceptionGroup("several", [NotDone("one"), OSError("two")])), id="group"),
    pytest.param(raising(SystemExit(1)), id="exit"),
    pytest.param(lambda: Unknown("no receipt"), id="returned"),
]
"""Ways in which a function can end without showing whether its effect happened."""


@pytest.mark.parametrize("end", ERRORS)
async def test_an_unsafe_effect_that_raises_asks_a_person(made: Call, world: World, end: Callable[[], Any]) -> None:
    """After any exception, the effect may have happened."""
    assert (await made.attempt(acting(world, end, "unsafe"))).status == "unknown"


@pytest.mark.parametrize("end", ERRORS)
async def test_a_verifiable_effect_that_raises_is_checked(made: Call, world: World, end: Callable[[], Any]) -> None:
    """An effect that arrived is adopted at once."""
    outcome = await made.attempt(acting(world, end))
    assert (outcome.status, outcome.content, outcome.adopted) == ("ok", "found it", True)


async def test_a_verifiable_effect_that_raised_and_never_arrived_has_failed(made: Call, world: World) -> None:
    """After the settling time the LLM gets the exception, and nothing runs again by itself."""

    @tool(effect="verifiable", check=world.find, settles_within=SETTLES, name="act")
    def act(context: ToolContext) -> str:
        """Raise."""
        raise ConnectionError("refused")

    await made.waits(act)
    await made.waits(act)
    await made.settle()
    outcome = await made.attempt(acting(world, lambda: "acted"))
    assert (outcome.status, outcome.content, world.arrived) == ("failed", "ConnectionError: refused", [])


async def test_a_check_that_raises_after_the_tool_is_repeated(made: Call, world: World) -> None:
    """The next attempt receives how the call ended in its heartbeat details."""
    world.answers = [ValueError("the bank is down")]
    used = acting(world, raising(TimeoutError("no answer")), settles_within=0)
    with pytest.raises(ValueError, match="the bank is down"):
        await made.attempt(used)
    world.arrived = []
    outcome = await made.attempt(used)
    assert (outcome.status, outcome.content, world.arrived) == ("failed", "TimeoutError: no answer", [])


async def test_a_check_that_does_not_know_leaves_both_reasons(made: Call, world: World) -> None:
    """The person reads the exception, and why the check is inconclusive."""
    world.answers = [Unknown("the bank is closed")]
    outcome = await made.attempt(acting(world, raising(TimeoutError("no answer"))))
    assert outcome.status == "unknown"
    assert "TimeoutError: no answer" in str(outcome.content)
    assert "the bank is closed" in str(outcome.content)


class Declined(Exception):
    """The external system declined the request."""


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
@pytest.mark.parametrize(
    "error",
    [NotDone("declined"), Declined("declined"), ExceptionGroup("all", [Declined("a"), NotDone("b")])],
    ids=["NotDone", "declared", "group"],
)
async def test_a_tool_can_say_that_it_did_not_happen(made: Call, world: World, kind: str, error: Exception) -> None:
    """After `NotDone`, or a declared exception, the call has failed, and neither a check nor a person is asked."""
    outcome = await made.attempt(acting(world, raising(error), kind, not_done_on=(Declined,)))
    assert (outcome.status, world.checks) == ("failed", 0)


async def test_an_idempotent_call_that_raises_is_retried_with_its_key(made: Call, world: World) -> None:
    """Another call by the LLM would have another key; after three attempts, a person is asked."""
    used = acting(world, raising(TimeoutError("no answer")), "idempotent")
    for _ in range(2):
        with pytest.raises(ApplicationError, match="called again with the same key"):
            await made.attempt(used)
    assert (await made.attempt(used)).status == "unknown"
    assert world.arrived == [made.key] * 3


async def test_an_idempotent_call_without_a_key_fails(made: Call) -> None:
    """Without a key, idempotency rests on the arguments, so another call of the LLM is harmless."""

    @tool(effect="idempotent", name="act")
    def act() -> str:
        """Raise."""
        raise ValueError("no such key")

    assert (await made.attempt(act)).content == "ValueError: no such key"


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
async def test_check_results_that_a_tool_returns(made: Call, world: World, kind: str) -> None:
    """A returned `Found` counts as an effect that happened before; a returned `Absent` means that the call failed."""
    found = await made.attempt(acting(world, lambda: Found("receipt 7"), kind))
    assert (found.status, found.content, found.adopted) == ("ok", "receipt 7", True)


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
async def test_absent_as_a_result_means_that_it_failed(made: Call, world: World, kind: str) -> None:
    """The tool has checked this itself."""
    assert (await made.attempt(acting(world, Absent, kind))).status == "failed"


async def test_a_sync_verifiable_function_that_times_out_is_checked(made: Call, world: World) -> None:
    """`Found` counts although the thread may still run; `Absent` does not, so a person is asked."""
    released = threading.Event()

    @tool(effect="verifiable", check=world.find, settles_within=0, timeout=3, name="act")
    def act(context: ToolContext) -> None:
        """Exceed the time limit."""
        released.wait(60)

    try:
        world.answers = [ValueError("the bank is down")]
        with pytest.raises(ValueError, match="the bank is down"):
            await made.attempt(act)
        assert (await made.attempt(act)).status == "unknown"
        world.arrived.append(made.key)
        assert (await Call(made._pool, made._url, made._folder).attempt(act)).status == "unknown"
        assert (await made.attempt(act)).content == "found it"
    finally:
        released.set()
