"""A second `call_tool` attempt against a real ledger repeats no effect, for each effect class."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast import Absent, Agent, Catalog, Effect, Found, NotDone, Tool, ToolContext, Unknown, tool
from holdfast.activities.calling_run import Chains
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.tool_calls.call_tool import Tools
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.run.contracts.error_types import Waits
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.temporal.converter import data_converter
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import Ledger
from holdfast.storage.pool import migrate, open_pool, unlock_all
from holdfast.storage.threads import PostgresThreads
from tests.support.rig import die


@pytest.fixture
def attempt(pool: AsyncConnectionPool, database_url: str, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs one attempt of a call; the key is the same within a test."""
    key = uuid4().hex

    async def run(tool: Tool, epoch: int = 0) -> ToolOutcome:
        tools = Tools(
            Catalog(agents=[Agent(name="a", instructions="", tools=[tool])]),
            Ledger(pool, database_url),
            Chains(),
            TranscriptCache(PostgresThreads(pool)),
            PostgresArtifacts(pool),
        )
        call = ToolCall(id="c", name=tool.spec.name, arguments="{}")
        request = ToolRequest(call=call, key=key, first_run_id="run", epoch=epoch, workspace=str(tmp_path), clip=1000)
        outcome: ToolOutcome = await environment().run(tools.call_tool, request)
        return outcome

    return run


def environment() -> ActivityEnvironment:
    """Return an activity environment that encodes heartbeats as a worker does."""
    made = ActivityEnvironment()
    made.payload_converter = data_converter.payload_converter
    return made


def leave_line(context: ToolContext) -> None:
    """Perform the effect: append a line to a file."""
    with (context.workspace / "effects").open("a") as effects:
        effects.write(f"{context.key}\n")


def effect(kind: str, *, dies: bool = False, check: Callable[..., Any] | None = None, settles: float = 0) -> Tool:
    """Return a tool that appends a line to a file and may die before it returns."""

    @tool(effect=Effect(kind), check=check, settles_within=settles, name="act")
    async def act(context: ToolContext) -> str:
        """Act."""
        leave_line(context)
        if dies:
            await die()
        return "acted"

    return act


def effects(folder: Path) -> int:
    """Return how many times the effect happened."""
    file = folder / "effects"
    return len(file.read_text().splitlines()) if file.exists() else 0


def find_line(context: ToolContext) -> Found | Absent:
    """Check for the line."""
    happened = (context.workspace / "effects").exists()
    return Found(f"found {context.key[:4]}") if happened else Absent()


async def dies(attempt: Callable[..., Any], tool: Tool) -> None:
    """Run an attempt that ends as if by SIGKILL."""
    with pytest.raises(asyncio.CancelledError):
        await attempt(tool)


@pytest.mark.parametrize("kind", ["idempotent", "unsafe"])
async def test_a_finished_effect_returns_its_recorded_result(attempt: Any, tmp_path: Path, kind: str) -> None:
    """If the effect has finished, a later attempt returns the recorded result and runs nothing."""
    first = await attempt(effect(kind))
    again = await attempt(effect(kind, dies=True))
    assert (first.content, first.adopted) == ("acted", False)
    assert (again.content, again.adopted) == ("acted", True)
    assert effects(tmp_path) == 1


async def test_an_interrupted_idempotent_effect_runs_again(attempt: Any, tmp_path: Path) -> None:
    """An interrupted idempotent effect runs again, because its author declared that harmless."""
    await dies(attempt, effect("idempotent", dies=True))
    assert (await attempt(effect("idempotent"))).status == "ok"
    assert effects(tmp_path) == 2


async def test_a_verifiable_effect_that_happened_is_adopted(attempt: Any, tmp_path: Path) -> None:
    """If `check` finds the effect, its result is recorded, and no later attempt repeats it."""
    await dies(attempt, effect("verifiable", dies=True, check=find_line))
    second = await attempt(effect("verifiable", dies=True, check=find_line))
    third = await attempt(effect("verifiable", dies=True, check=lambda: Unknown()))
    assert second.status == third.status == "ok"
    assert second.content.startswith("found")
    assert third.content == second.content
    assert effects(tmp_path) == 1


async def test_a_verifiable_effect_that_is_absent_runs(attempt: Any, tmp_path: Path) -> None:
    """A verifiable effect runs if its `check` reports that it has not happened."""
    await dies(attempt, effect("verifiable", dies=True, check=find_line))
    (tmp_path / "effects").unlink()
    assert (await attempt(effect("verifiable", check=find_line))).content == "acted"
    assert effects(tmp_path) == 1


async def test_an_inconclusive_check_leaves_the_outcome_unknown(attempt: Any, tmp_path: Path) -> None:
    """If `check` returns unknown, the outcome is unknown, with the check's reason, and nothing runs."""
    unsure = effect("verifiable", check=lambda: Unknown("the bank is closed"))
    await dies(attempt, effect("verifiable", dies=True, check=find_line))
    outcome = await attempt(unsure)
    assert (outcome.status, outcome.content) == ("unknown", "the bank is closed")
    assert effects(tmp_path) == 1


async def test_an_interrupted_unsafe_effect_is_left_to_a_person(attempt: Any, tmp_path: Path) -> None:
    """The outcome stays unknown on every later attempt until a person's `absent` (the next epoch) runs it."""
    await dies(attempt, effect("unsafe", dies=True))
    assert (await attempt(effect("unsafe"))).status == "unknown"
    assert (await attempt(effect("unsafe"))).status == "unknown"
    assert effects(tmp_path) == 1
    assert (await attempt(effect("unsafe"), epoch=1)).status == "ok"
    assert effects(tmp_path) == 2


async def test_a_recorded_failure_is_final(attempt: Any) -> None:
    """A tool that reports that it did not happen has a result, which later attempts return."""

    @tool(effect="unsafe", name="act")
    def act() -> str:
        """Raise."""
        raise NotDone("card declined")

    assert (await attempt(act)).content == "NotDone: card declined"
    assert (await attempt(act)).adopted


async def test_two_attempts_never_run_an_effect_at_the_same_time(attempt: Any, tmp_path: Path) -> None:
    """While one attempt holds the claim, another is rejected, retried, and then returns the first one's result."""
    inside, go = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent", name="act")
    async def act(context: ToolContext) -> str:
        """Act slowly."""
        leave_line(context)
        inside.set()
        await go.wait()
        return "acted"

    first = asyncio.create_task(attempt(act))
    await inside.wait()
    with pytest.raises(ApplicationError, match="another attempt of act is still running"):
        await attempt(act)
    go.set()
    assert (await first).content == (await attempt(act)).content == "acted"
    assert effects(tmp_path) == 1


async def test_a_result_survives_the_loss_of_the_connection(attempt: Any, database_url: str, tmp_path: Path) -> None:
    """If the database drops the connection between effect and record, the result is recorded over a new one."""

    @tool(effect="unsafe", name="act")
    async def act(context: ToolContext) -> str:
        """Act, then drop the worker's connections."""
        leave_line(context)
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
            await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend' AND datname = current_database()"
            )
        return "acted"

    assert (await attempt(act)).content == "acted"
    assert (await attempt(act)).adopted
    assert effects(tmp_path) == 1


async def test_without_a_database_no_effect_runs(tmp_path: Path) -> None:
    """If the ledger is unavailable, the attempt fails before the effect, and Temporal retries it."""
    nowhere = "postgresql://postgres@127.0.0.1:1/postgres"
    pool = open_pool(nowhere, size=1)
    pool.timeout = 0.2
    await pool.open(wait=False)
    try:
        tools = Tools(
            Catalog(agents=[Agent(name="a", instructions="", tools=[effect("unsafe")])]),
            Ledger(pool, nowhere),
            Chains(),
            TranscriptCache(PostgresThreads(pool)),
            PostgresArtifacts(pool),
        )
        call = ToolCall(id="c", name="act", arguments="{}")
        request = ToolRequest(call=call, key="k", first_run_id="run", workspace=str(tmp_path), clip=1000)
        with pytest.raises(ApplicationError, match="no connection to the database; act waits for one") as error:
            await environment().run(tools.call_tool, request)
        assert not error.value.non_retryable
        assert effects(tmp_path) == 0
    finally:
        await pool.close()


@pytest.mark.extended
async def test_effects_beyond_a_workers_limit_wait_and_do_not_fail(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take turns; one that waits too long goes to another worker, and no failure is recorded. Connections for the
    record stay free.
    """
    running, end = asyncio.Event(), asyncio.Event()

    @tool(effect="idempotent")
    async def act(context: ToolContext) -> str:
        """Act."""
        leave_line(context)
        running.set()
        await end.wait()
        return "acted"

    async with open_pool(database_url, size=2) as pool:
        catalog, ledger = (
            Catalog(agents=[Agent(name="a", instructions="", tools=[act])]),
            Ledger(pool, database_url, at_once=1),
        )
        artifacts = PostgresArtifacts(pool)
        tools = Tools(catalog, ledger, Chains(), TranscriptCache(PostgresThreads(pool)), artifacts)

        def start(key: str, notes: list[Any]) -> asyncio.Task[ToolOutcome]:
            call, made = ToolCall(id="c", name="act", arguments="{}"), environment()
            made.on_heartbeat = lambda *details: notes.extend(details)
            request = ToolRequest(call=call, key=key, first_run_id="run", workspace=str(tmp_path), clip=1000)
            return asyncio.ensure_future(made.run(tools.call_tool, request))

        first = start(uuid4().hex, [])
        await running.wait()
        assert await artifacts.put(b"result", thread="t"), "the record has connections left"
        monkeypatch.setattr("holdfast.storage.ledger.WAIT_SECONDS", 0.05)
        notes: list[Any] = []
        with pytest.raises(ApplicationError, match="as many effects as it may; act waits for one") as error:
            await start(uuid4().hex, notes)
        assert (isinstance(error.value, Waits), notes, effects(tmp_path)) == (True, [], 1)
        monkeypatch.undo()
        second = start(uuid4().hex, [])
        end.set()
        assert [(await each).content for each in (first, second)] == ["acted", "acted"]
        assert effects(tmp_path) == 2


@pytest.mark.parametrize(
    ("kind", "check", "status"),
    [
        ("read", None, "failed"),
        pytest.param("unsafe", None, "unknown", marks=pytest.mark.extended),
        pytest.param("verifiable", lambda: Absent(), "failed", marks=pytest.mark.extended),
    ],
)
async def test_a_tool_that_exceeds_its_time_limit(attempt: Any, kind: str, check: Any, status: str) -> None:
    """A read that times out has failed; an effect is checked, and without a check its outcome is unknown."""
    settles = None if kind == "read" else 0

    @tool(effect=Effect(kind), check=check, settles_within=settles, name="act", timeout=3)
    async def act() -> str:
        """Take too long."""
        await asyncio.sleep(60)
        return "never"

    assert (await attempt(act)).status == status


async def test_a_timeout_error_raised_by_a_read_is_an_ordinary_failure(attempt: Any) -> None:
    """A TimeoutError that a read raises itself is its result for the LLM, not a sign that it exceeded its limit."""

    @tool(effect="read", name="act")
    def act() -> str:
        """Raise."""
        raise TimeoutError("the printer is asleep")

    assert (await attempt(act)).content == "TimeoutError: the printer is asleep"


async def test_migrations_run_once_for_any_number_of_workers(database_url: str) -> None:
    """Workers that start together apply each migration once."""
    await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert await migrate(database_url) == []


async def test_a_cancelled_attempt_leaves_no_lock_behind(attempt: Any, tmp_path: Path) -> None:
    """After an attempt is cancelled, the next one can run."""
    inside = asyncio.Event()

    @tool(effect="idempotent", name="act")
    async def act(context: ToolContext) -> str:
        """Act slowly on the first attempt."""
        if not inside.is_set():
            inside.set()
            await asyncio.sleep(60)
        return "acted"

    first = asyncio.create_task(attempt(act))
    await inside.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await attempt(act)).content == "acted"


async def test_a_cancelled_release_still_releases_the_claim(pool: AsyncConnectionPool) -> None:
    """If the release of a claim is cancelled, its connection is closed and never reused, which ends the claim."""
    async with pool.connection() as connection:
        await connection.execute("SELECT pg_advisory_lock(20261123)")
        releasing = asyncio.create_task(unlock_all(connection))
        await asyncio.sleep(0)  # it waits for the server's answer
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        assert connection.closed
    async with pool.connection() as connection:
        await connection.execute("SELECT pg_advisory_lock(20261123)")
        await unlock_all(connection)


@pytest.mark.extended
async def test_a_check_that_exceeds_its_time_limit_leaves_the_outcome_unknown(attempt: Any) -> None:
    """A check has the tool's own time limit; if it exceeds that, the outcome is unknown."""

    async def slow() -> Absent:
        await asyncio.sleep(60)
        return Absent()

    @tool(effect="verifiable", check=slow, name="act", timeout=0.5)
    async def act() -> None:
        """Die."""
        await die()

    await dies(attempt, act)
    outcome = await attempt(act)
    assert (outcome.status, outcome.content) == ("unknown", "check of act took longer than 0.5 s")
