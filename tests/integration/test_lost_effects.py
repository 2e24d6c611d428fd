"""An effect of a lost attempt can arrive late: `call_tool` against a real ledger, attempt by attempt.

The ledger's clock is moved instead of waiting: the tests say since when a row has been settling.
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
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes
from holdfast.activities.tool_calls.guarded_call import Guarded
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.mac.outcomes import NO_SEALS
from holdfast.core.run.contracts.error_types import EFFECT_SETTLING
from holdfast.core.run.contracts.ledger import CallAttempt
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.tools.effects import PastEffect
from holdfast.core.tools.secrets import NO_SECRETS
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.imported_effects import ImportedEffect, put_effects
from holdfast.storage.ledger import CONFIRMED_SECONDS, Ledger
from holdfast.storage.threads import PostgresThreads
from tests.support.rig import die

SETTLES = 3_600.0
"""Seconds: longer than any test."""


class World:
    """Another system: what arrived there, and what a check finds."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.checks = 0
        self.answers: list[Any] = []
        """What the next checks answer; then they look."""

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
    """A call whose attempts are made one by one, as by workers that follow each other.

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
        """The effect, as the ledger identifies it."""
        return PastEffect(number=1, first_run_id="run", tool="act", call_digest="d", key=self.key, epoch=epoch)

    async def attempt(self, used: Tool, *, epoch: int = 0, more: Sequence[str] = ()) -> ToolOutcome:
        """Make the next attempt; what it leaves for the one after it is handed on.

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
        transcripts = TranscriptCache(PostgresThreads(self._pool), ChatCompletions())
        guarded = Guarded(Attempt(used, {}, context, {}), outcomes, None, transcripts, request, notes)
        named = CallAttempt("activity", self._number)
        start = not epoch and not more
        ledger = Ledger(self._pool, self._url)

        async def make() -> ToolOutcome:
            async with ledger.claim(self.effect(epoch), thread="t", start=start, attempt=named) as entry:
                if "undo" in more:
                    return await guarded.undo(entry)
                if entry.outcome is not None:
                    return entry.outcome
                outcome = await (guarded.settle(entry) if "settle" in more else guarded.run_once(entry))
                return outcome if outcome.status in ("unknown", "cancelled") else await entry.finish(outcome)

        try:
            return await ActivityEnvironment().run(make)
        finally:
            self._notes = notes.left

    async def waits(self, used: Tool, **more: Any) -> float:
        """Make an attempt, which has to wait; return for how many seconds until the next one."""
        with pytest.raises(ApplicationError, match="may still arrive") as error:
            await self.attempt(used, **more)
        assert error.value.type == EFFECT_SETTLING
        assert error.value.next_retry_delay
        return error.value.next_retry_delay.total_seconds()

    async def settle(self, seconds: float = 2 * SETTLES) -> None:
        """Let that much time pass for the ledger."""
        async with self._pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.effects SET settling_since = settling_since - %s * interval '1 s' WHERE key = %s",
                [seconds, self.key],
            )


@pytest.fixture
def made(pool: AsyncConnectionPool, database_url: str, tmp_path: Path) -> Call:
    """A call of the tool `act`."""
    return Call(pool, database_url, tmp_path)


@pytest.fixture
def world() -> World:
    """An empty world."""
    return World()


def acting(world: World, then: Callable[[], Any], kind: str = "verifiable", **more: Any) -> Tool:
    """Return a tool whose request arrives, unless `then` raises first; `then` says how the function ends."""
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
    """Return a tool that dies when its request is sent, and that has not arrived."""

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
    """`Absent` does not count before the settling time is over, and `Found` does at once."""
    await lost(made, sending(world))
    assert await made.waits(sending(world)) == 0.5
    world.arrived.append(made.key)
    outcome = await made.attempt(sending(world))
    assert (outcome.status, outcome.content, outcome.adopted) == ("ok", "found it", True)


async def test_what_never_arrived_runs_when_nothing_can_arrive_any_more(made: Call, world: World) -> None:
    """The last check begins after the settling time; then the call runs, once."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    outcome = await made.attempt(acting(world, lambda: "acted"))
    assert (outcome.status, outcome.content, world.arrived) == ("ok", "acted", [made.key])
    assert world.checks == 2


async def test_pauses_grow_between_checks(made: Call, world: World) -> None:
    """The next check comes after as much time as has passed, after 30 s at most, and at the very end."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle(10)
    assert await made.waits(sending(world)) == pytest.approx(10, abs=5)
    await made.settle(1_000)
    assert await made.waits(sending(world)) == 30
    await made.settle(SETTLES - 1_010 - 5)
    assert await made.waits(sending(world)) < 5


async def test_a_second_lost_attempt_settles_anew(made: Call, world: World) -> None:
    """An attempt that ran again can be lost, too: the time begins again."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    await lost(made, sending(world))
    await made.waits(sending(world))


async def test_a_death_during_the_wait_costs_nothing(made: Call, world: World) -> None:
    """The ledger keeps since when it settles, and the next attempt counts on."""
    await lost(made, sending(world))

    async def find() -> None:
        await die()

    await lost(made, tool(effect="verifiable", check=find, settles_within=SETTLES, name="act")(plainly))
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"))).content == "acted"


async def test_an_attempt_of_an_older_release_in_between_begins_the_time_again(made: Call, world: World) -> None:
    """Such an attempt believes `Absent` at once and may have sent a request; it does not look as ours do."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    made._number += 1  # the other release's attempt
    await made.waits(sending(world))


@pytest.mark.parametrize("answer", [ValueError("the bank is down"), Unknown("the bank is closed")])
async def test_a_check_without_an_answer_runs_nothing(made: Call, world: World, answer: Any) -> None:
    """While it settles and after: a check that raises is made again, and `Unknown` asks a person."""
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
    """The other system knows the key."""
    await lost(made, acting(world, die, "idempotent"))
    assert (await made.attempt(acting(world, lambda: "acted", "idempotent"))).content == "acted"


async def test_people_are_asked_at_once_and_told_until_when(made: Call, world: World) -> None:
    """The question about an unsafe effect says when the last moment is."""
    await lost(made, acting(world, die, "unsafe"))
    outcome = await made.attempt(acting(world, die, "unsafe"))
    assert outcome.status == "unknown"
    assert outcome.settles_in == pytest.approx(SETTLES, abs=60)
    assert "may still arrive until" in str(outcome.content)
    assert str(outcome.content).endswith("An `absent` before that is held: the call runs then, and nobody looks again")
    await made.settle()
    assert (await made.attempt(acting(world, die, "unsafe"))).settles_in is None


async def test_a_persons_absent_counts_when_nothing_can_arrive_any_more(made: Call, world: World) -> None:
    """Until then the call does not run again."""
    await lost(made, acting(world, die, "unsafe"))
    await made.attempt(acting(world, die, "unsafe"))
    await made.waits(acting(world, die, "unsafe"), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted", "unsafe"), epoch=1)).content == "acted"
    assert len(world.arrived) == 2


async def test_a_persons_absent_does_not_outweigh_the_check(made: Call, world: World) -> None:
    """What arrives after their answer is found before the tool runs."""
    await lost(made, sending(world))
    world.answers = [Unknown("the bank is closed")]
    assert (await made.attempt(sending(world))).status == "unknown"
    await made.waits(sending(world), epoch=1)
    world.arrived.append(made.key)
    assert (await made.attempt(sending(world), epoch=1)).content == "found it"
    assert (await made.attempt(sending(world), epoch=1)).content == "found it"  # recorded


async def test_a_persons_absent_stands_where_the_check_does_not_know(made: Call, world: World) -> None:
    """They were asked for that very reason: when nothing can arrive any more, the call runs."""
    await lost(made, sending(world))
    world.answers = [Unknown(), Unknown(), Unknown()]
    assert (await made.attempt(sending(world))).status == "unknown"
    await made.waits(sending(world), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"), epoch=1)).content == "acted"


async def test_an_attempt_lost_after_a_persons_absent_asks_again(made: Call, world: World) -> None:
    """Their answer was about the attempts before it."""
    await lost(made, acting(world, die, "unsafe", settles_within=0))
    with pytest.raises(asyncio.CancelledError):
        await made.attempt(acting(world, die, "unsafe", settles_within=0), epoch=1)
    assert (await made.attempt(acting(world, die, "unsafe", settles_within=0), epoch=1)).status == "unknown"
    assert len(world.arrived) == 2


async def test_undo_comes_after_the_last_moment(made: Call, world: World) -> None:
    """A compensation before the effect would not undo it."""
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


async def test_undo_need_not_wait_for_what_has_arrived(made: Call, world: World) -> None:
    """The check finds it."""
    used = acting(world, die, undo=lambda: "taken back")
    await lost(made, sending(world))
    await made.waits(used, epoch=1, more=["undo"])
    world.arrived.append(made.key)
    assert (await made.attempt(used, epoch=1, more=["undo"])).content == "taken back"


async def test_a_closed_or_moved_run_settles_too(made: Call, world: World) -> None:
    """An LLM that read "it did not happen" would call again."""
    await lost(made, sending(world))
    await made.waits(sending(world), more=["settle"])
    world.arrived.append(made.key)
    assert (await made.attempt(sending(world), more=["settle"])).content == "found it"


async def test_an_effect_that_comes_from_another_place_settles_anew(
    made: Call, world: World, pool: AsyncConnectionPool
) -> None:
    """The thread was here before, and its last attempt may have been made there, since this server last looked."""
    await lost(made, sending(world))
    await made.waits(sending(world))
    await made.settle()
    await put_effects(pool, "t", [ImportedEffect(made.effect(), None)], seals=NO_SEALS)
    await made.waits(sending(world), epoch=1)
    await made.settle()
    assert (await made.attempt(acting(world, lambda: "acted"), epoch=1)).content == "acted"


async def test_a_claim_covers_the_epochs_before_it(made: Call, pool: AsyncConnectionPool, database_url: str) -> None:
    """A frozen attempt keeps its claim, so that nobody acts whatever people have said about it."""
    ledger = Ledger(pool, database_url)
    async with ledger.claim(made.effect(), thread="t", start=True):
        with pytest.raises(ApplicationError, match="another attempt of act is still running"):
            async with ledger.claim(made.effect(epoch=1), thread="t"):
                pytest.fail("two attempts hold the claim")


async def drop_connections(database_url: str) -> None:
    """End every other connection to the database."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend' AND datname = current_database()"
        )


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
async def test_an_attempt_that_has_lost_its_claim_does_not_act(
    made: Call, pool: AsyncConnectionPool, database_url: str, sync: bool, tmp_path: Path
) -> None:
    """A worker that was frozen between its claim and its function finds that out before it sends anything."""
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
            entry._confirmed -= 2 * CONFIRMED_SECONDS  # as a frozen worker finds its clock
            await ActivityEnvironment().run(Attempt(used, {}, context, {}).run, entry)

    with pytest.raises(ApplicationError, match="no connection to the database"):
        await make()
    assert not acted


async def test_a_late_outcome_overwrites_nothing(made: Call, pool: AsyncConnectionPool, database_url: str) -> None:
    """An attempt that lost its claim ends after another one has: what is recorded stands, and it returns that."""
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
    """It was frozen, and has lost its claim, while they were asked: what it records in the end is adopted."""
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
    """Return a function that raises this."""

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
"""Ends of a function that say nothing about its effect."""


@pytest.mark.parametrize("end", ERRORS)
async def test_an_unsafe_effect_that_raises_asks_a_person(made: Call, world: World, end: Callable[[], Any]) -> None:
    """Whatever it raises: the effect may have happened."""
    assert (await made.attempt(acting(world, end, "unsafe"))).status == "unknown"


@pytest.mark.parametrize("end", ERRORS)
async def test_a_verifiable_effect_that_raises_is_checked(made: Call, world: World, end: Callable[[], Any]) -> None:
    """What arrived is adopted at once."""
    outcome = await made.attempt(acting(world, end))
    assert (outcome.status, outcome.content, outcome.adopted) == ("ok", "found it", True)


async def test_a_verifiable_effect_that_raised_and_never_arrived_has_failed(made: Call, world: World) -> None:
    """When nothing can arrive any more, the LLM reads the exception, and nothing runs again by itself."""

    @tool(effect="verifiable", check=world.find, settles_within=SETTLES, name="act")
    def act(context: ToolContext) -> str:
        """Raise."""
        raise ConnectionError("refused")

    await made.waits(act)
    await made.waits(act)
    await made.settle()
    outcome = await made.attempt(acting(world, lambda: "acted"))
    assert (outcome.status, outcome.content, world.arrived) == ("failed", "ConnectionError: refused", [])


async def test_a_check_that_raises_after_the_tool_has_is_made_again(made: Call, world: World) -> None:
    """How the call ended is handed on to the next attempt."""
    world.answers = [ValueError("the bank is down")]
    used = acting(world, raising(TimeoutError("no answer")), settles_within=0)
    with pytest.raises(ValueError, match="the bank is down"):
        await made.attempt(used)
    world.arrived = []
    outcome = await made.attempt(used)
    assert (outcome.status, outcome.content, world.arrived) == ("failed", "TimeoutError: no answer", [])


async def test_a_check_that_does_not_know_either_leaves_both_reasons(made: Call, world: World) -> None:
    """The person reads what was raised, and why the check does not know."""
    world.answers = [Unknown("the bank is closed")]
    outcome = await made.attempt(acting(world, raising(TimeoutError("no answer"))))
    assert outcome.status == "unknown"
    assert "TimeoutError: no answer" in str(outcome.content)
    assert "the bank is closed" in str(outcome.content)


class Declined(Exception):
    """The other system refused."""


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
@pytest.mark.parametrize(
    "error",
    [NotDone("declined"), Declined("declined"), ExceptionGroup("all", [Declined("a"), NotDone("b")])],
    ids=["NotDone", "declared", "group"],
)
async def test_a_tool_can_say_that_it_did_not_happen(made: Call, world: World, kind: str, error: Exception) -> None:
    """With `NotDone`, or an exception that it declares: the call has failed, and nobody looks or is asked."""
    outcome = await made.attempt(acting(world, raising(error), kind, not_done_on=(Declined,)))
    assert (outcome.status, world.checks) == ("failed", 0)


async def test_an_idempotent_call_that_raises_is_made_again_with_its_key(made: Call, world: World) -> None:
    """Another call by the LLM would have another key; after three attempts, a person is asked."""
    used = acting(world, raising(TimeoutError("no answer")), "idempotent")
    for _ in range(2):
        with pytest.raises(ApplicationError, match="called again with the same key"):
            await made.attempt(used)
    assert (await made.attempt(used)).status == "unknown"
    assert world.arrived == [made.key] * 3


async def test_an_idempotent_call_without_a_key_fails(made: Call) -> None:
    """It is idempotent by its arguments, so another call changes nothing more."""

    @tool(effect="idempotent", name="act")
    def act() -> str:
        """Raise."""
        raise ValueError("no such key")

    assert (await made.attempt(act)).content == "ValueError: no such key"


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
async def test_checks_results_that_a_tool_returns(made: Call, world: World, kind: str) -> None:
    """`Found` is its result, as of an effect that happened before; `Absent` means that it failed."""
    found = await made.attempt(acting(world, lambda: Found("receipt 7"), kind))
    assert (found.status, found.content, found.adopted) == ("ok", "receipt 7", True)


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
async def test_absent_as_a_result_means_that_it_failed(made: Call, world: World, kind: str) -> None:
    """The tool has looked itself."""
    assert (await made.attempt(acting(world, Absent, kind))).status == "failed"


async def test_a_sync_verifiable_function_that_takes_too_long_is_checked(made: Call, world: World) -> None:
    """`Found` counts although its thread may still be at work; `Absent` does not, so a person is asked."""
    released = threading.Event()

    @tool(effect="verifiable", check=world.find, settles_within=0, timeout=0.1, name="act")
    def act(context: ToolContext) -> None:
        """Take too long."""
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
