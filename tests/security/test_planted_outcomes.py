"""Outcomes that the database's owner plants in the effect ledger are not adopted; a person is asked instead."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from holdfast import Absent, Agent, Catalog, Effect, Policy, Tool, ToolContext, ask, tool
from holdfast.activities.calling_run import Chains
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.tool_calls.call_tool import Tools
from holdfast.audit.evidence.verify import verify
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.log.events import ReconcileRequested, ToolCallFinished
from holdfast.core.mac.outcomes import OutcomeMACs, Recorded
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.temporal.converter import data_converter
from holdfast.core.tools.effects import PastEffect, effect_key
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.ledger import Ledger, effects_of
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.support.people import PEOPLE, answer, clerk, decision, payments, request_of
from tests.support.rig import Rig, StartRig, events_of, eventually

OURS = FleetKeys({"2026": b"o" * 32})
THEIRS = FleetKeys({"2026": b"t" * 32})
PAID = ToolOutcome(status="ok", content="paid, honestly").model_dump_json()


@dataclass
class Till:
    """A worker's ledger and tools, and the owner of its database."""

    pool: AsyncConnectionPool
    url: str
    folder: Path
    seals: FleetKeys = OURS

    def tools(self, tool: Tool) -> Tools:
        """Return the tools of a worker with the fleet keys."""
        return Tools(
            Catalog(agents=[Agent(name="a", instructions="", tools=[tool])]),
            Ledger(self.pool, self.url, self.seals),
            Chains(),
            TranscriptCache(PostgresThreads(self.pool)),
            PostgresArtifacts(self.pool),
        )

    async def pay(self, kind: str, request: ToolRequest) -> ToolOutcome:
        """Run an attempt of a payment."""

        @tool(effect=Effect(kind), name="pay", check=(lambda: Absent()) if kind == "verifiable" else None)
        async def pay(context: ToolContext) -> str:
            """Pay."""
            with (self.folder / "paid").open("a") as paid:
                paid.write("paid\n")
            return "paid"

        environment = ActivityEnvironment()
        environment.payload_converter = data_converter.payload_converter
        outcome: ToolOutcome = await environment.run(self.tools(pay).call_tool, request)
        return outcome

    def request(self, **more: Any) -> ToolRequest:
        """Return a request to pay, with a new key."""
        own = {"key": uuid4().hex, "first_run_id": "run", "workspace": str(self.folder), "clip": 1_000, **more}
        return ToolRequest(call=ToolCall(id="c", name="pay", arguments="{}"), **own)

    async def plant(self, request: ToolRequest, mac: str | None, outcome: str = PAID) -> None:
        """Plant an outcome of a call that never ran."""
        async with self.pool.connection() as connection:
            await connection.execute(
                "INSERT INTO holdfast.effects (key, epoch, thread, tool, number, first_run_id, call_digest, call, "
                "outcome, mac, finished_at) VALUES (%s, %s, 'test', 'pay', 1, 'run', %s, 'pay()', %s, %s, now())",
                [request.key, request.epoch, request.call.digest, outcome, mac],
            )

    @property
    def paid(self) -> int:
        """Return how often it paid."""
        file = self.folder / "paid"
        return len(file.read_text().splitlines()) if file.exists() else 0


@pytest.fixture
def till(pool: AsyncConnectionPool, database_url: str, tmp_path: Path) -> Till:
    """Return a till of this test alone."""
    return Till(pool, database_url, tmp_path)


def recorded(request: ToolRequest, **other: Any) -> Recorded:
    """Return the content that the MAC of the planted outcome must cover; `other` selects a copied MAC's content."""
    own = Recorded("test", request.key, request.epoch, "pay", request.call.digest, PAID)
    return own._replace(**other)


MACS: dict[str, Callable[[ToolRequest], str | None]] = {
    "none": lambda request: None,
    "empty": lambda request: "",
    "not hex": lambda request: "2026:not hex",
    "no key id": lambda request: "0" * 32,
    "a key that nobody has": lambda request: f"2031:{'0' * 32}",
    "another fleet's key": lambda request: OutcomeMACs(THEIRS).make(recorded(request)),
    "of another outcome": lambda request: OutcomeMACs(OURS).make(recorded(request, outcome="{}")),
    "of another thread": lambda request: OutcomeMACs(OURS).make(recorded(request, thread="other")),
    "of another key": lambda request: OutcomeMACs(OURS).make(recorded(request, key="k" * 40)),
    "of another epoch": lambda request: OutcomeMACs(OURS).make(recorded(request, epoch=7)),
    "of another call": lambda request: OutcomeMACs(OURS).make(recorded(request, call_digest="d")),
    "of another tool": lambda request: OutcomeMACs(OURS).make(recorded(request, tool="look")),
}


@pytest.mark.parametrize("kind", ["unsafe", "verifiable", "idempotent"])
@pytest.mark.parametrize("mac", MACS)
async def test_an_outcome_that_no_worker_has_recorded_is_not_adopted(mac: str, kind: str, till: Till) -> None:
    """Without a MAC of the fleet for this very effect and outcome, the outcome is unknown, and nothing runs."""
    request = till.request()
    await till.plant(request, MACS[mac](request))
    outcome = await till.pay(kind, request)
    assert (outcome.status, outcome.adopted, till.paid) == ("unknown", False, 0)
    assert "does not count" in str(outcome.content)
    assert "honestly" not in str(outcome.content)


@pytest.mark.parametrize("settle", [False, True])
async def test_a_recorded_outcome_is_adopted_after_a_key_rotation(settle: bool, till: Till) -> None:
    """An outcome counts as long as the key of its MAC is configured, whichever key makes new ones."""
    request = till.request()
    assert (await till.pay("unsafe", request)).content == "paid"
    till.seals = FleetKeys({"2027": b"n" * 32, **OURS.keys})
    again = await till.pay("unsafe", request.model_copy(update={"settle": settle}))
    assert (again.content, again.adopted) == ("paid", True)
    till.seals = FleetKeys({"2027": b"n" * 32})
    gone = await till.pay("unsafe", request.model_copy(update={"settle": settle}))
    assert (gone.status, till.paid) == ("unknown", 1)


async def test_an_altered_outcome_is_not_adopted(till: Till) -> None:
    """The MAC covers the text of an outcome, so an altered text is not what the worker recorded."""
    request = till.request()
    await till.pay("unsafe", request)
    async with till.pool.connection() as connection:
        alter = "UPDATE holdfast.effects SET outcome = replace(outcome, 'paid', 'lost') WHERE key = %s"
        await connection.execute(alter, [request.key])
    assert (await till.pay("unsafe", request)).status == "unknown"


async def test_a_reset_run_gets_no_effect_of_another_thread(till: Till) -> None:
    """A row with another thread's key is not part of this thread's past; nor is an outcome without a MAC."""
    ledger, thread = Ledger(till.pool, till.url, OURS), f"reset-{uuid4().hex[:8]}"
    ids: dict[str, Any] = {"first_run_id": "run", "number": 1, "call_digest": "d"}
    own, foreign = effect_key(thread=thread, **ids), effect_key(thread="another", **ids)
    async with till.pool.connection() as connection:
        for key in (own, foreign):
            await connection.execute(
                "INSERT INTO holdfast.effects (key, epoch, thread, tool, number, first_run_id, call_digest, call, "
                "outcome, finished_at) VALUES (%s, 0, %s, 'pay', 1, 'run', 'd', 'pay()', %s, now())",
                [key, thread, PAID],
            )
        await connection.execute(
            "INSERT INTO holdfast.effects (key, epoch, thread, tool, number) VALUES (%s, 9, %s, 'pay', 2)",
            [own, thread],
        )
    (past,) = (await ledger.past_effects(thread, after=0)).effects
    assert past == PastEffect(tool="pay", key=own, call="pay()", **ids)


async def test_a_planted_epoch_hides_no_recorded_outcome(till: Till) -> None:
    """A forged later row of the same effect does not replace the outcome that a worker recorded."""
    thread, request = "test", till.request()
    ids: dict[str, Any] = {"first_run_id": "run", "number": 1, "call_digest": request.call.digest}
    request = till.request(key=effect_key(thread=thread, **ids), number=1)
    await till.pay("unsafe", request)
    async with till.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO holdfast.effects (key, epoch, thread, tool, number, first_run_id, call_digest, call) "
            "VALUES (%s, 9, %s, 'pay', 1, 'run', %s, 'pay()')",
            [request.key, thread, request.call.digest],
        )
    past = (await Ledger(till.pool, till.url, OURS).past_effects(thread, after=0)).effects
    (mine,) = [effect for effect in past if effect.key == request.key]
    assert (mine.epoch, mine.status, mine.content) == (0, "ok", "paid")


async def planted_meanwhile(till: Till, request: ToolRequest, outcome: str, mac: str | None) -> ToolOutcome:
    """Return the result of an attempt that records its outcome after somebody has planted another one."""
    effect = PastEffect(number=1, first_run_id="run", tool="pay", call_digest=request.call.digest, key=request.key)
    async with Ledger(till.pool, till.url, till.seals).claim(effect, thread="test", start=True) as entry:
        async with till.pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.effects SET outcome = %s, mac = %s, finished_at = now() WHERE key = %s",
                [outcome, mac, request.key],
            )
        return await entry.finish(ToolOutcome(status="failed", content="the card was declined"))


@pytest.mark.parametrize("mac", MACS)
async def test_an_outcome_planted_during_an_attempt_is_overwritten(mac: str, till: Till) -> None:
    """The outcome recorded first stands if a worker of ours recorded it; any other is replaced by the real one."""
    request = till.request()
    kept = await planted_meanwhile(till, request, PAID, MACS[mac](request))
    assert kept.content == "the card was declined"
    assert (await till.pay("unsafe", request)).content == "the card was declined"


async def test_an_outcome_that_another_worker_has_recorded_meanwhile_stands(till: Till) -> None:
    """An outcome with a MAC belongs to the attempt that held the claim after this one had lost it."""
    request = till.request()
    kept = await planted_meanwhile(till, request, PAID, OutcomeMACs(OURS).make(recorded(request)))
    assert kept.content == "paid, honestly"


@pytest.mark.parametrize("kind", ["unsafe", "verifiable"])
async def test_a_planted_outcome_ends_no_wait(kind: str, till: Till) -> None:
    """The request may still be in flight although a planted row has an outcome, so a person's absent waits."""
    request = till.request()
    await till.plant(request, None)
    asked = await till.pay(kind, request)
    assert "may still arrive until" in str(asked.content)
    with pytest.raises(ApplicationError, match="may still arrive"):
        await till.pay(kind, request.model_copy(update={"epoch": 1}))
    with pytest.raises(ApplicationError, match="may still arrive"):
        await till.pay(kind, request.model_copy(update={"epoch": 1, "undo": True}))
    assert till.paid == 0


@pytest.mark.parametrize("settle", [False, True])
async def test_a_planted_outcome_of_an_earlier_epoch_is_not_adopted(settle: bool, till: Till) -> None:
    """A planted outcome is ignored once people answered; a worker's late one is adopted, and verifies."""
    request = till.request()
    await till.plant(request, MACS["of another epoch"](request))
    later = request.model_copy(update={"epoch": 1, "settle": settle})
    with pytest.raises(ApplicationError, match="may still arrive"):
        await till.pay("unsafe", later)
    async with till.pool.connection() as connection:
        mac = OutcomeMACs(OURS).make(recorded(request))
        await connection.execute("UPDATE holdfast.effects SET mac = %s WHERE key = %s", [mac, request.key])
    for _ in range(2):
        outcome = await till.pay("unsafe", later)
        assert (outcome.content, outcome.adopted, till.paid) == ("paid, honestly", True, 0)
    rows = [row for row in await effects_of(till.pool, "test") if row.key == request.key]
    assert sorted(row.epoch for row in rows) == [0, 1]
    (row,) = (row for row in rows if row.epoch == 1)
    assert row.outcome
    assert OutcomeMACs(OURS).verify(row.mac, recorded(request, epoch=1, outcome=row.outcome)) == "valid"


@pytest.mark.parametrize("epoch", [0, 1])
async def test_a_payment_that_a_row_claims_is_asked_about(epoch: int, rig: StartRig, stack: Stack) -> None:
    """A row under the key of a waiting request does not satisfy an approved payment, and `verify` reports it."""
    policy = Policy(rules=(ask("pay"),), approvers=PEOPLE, signatures="required")
    await migrate(stack.database_url)
    async with (
        rig(clerk(policy), steps([call("pay", cents=7), say("done")])) as r,
        open_pool(stack.database_url, size=2) as pool,
    ):
        run = await r.start()
        request = await request_of(run)
        async with pool.connection() as connection:
            plant = (
                "INSERT INTO holdfast.effects (key, epoch, thread, tool, number, outcome, finished_at) "
                "VALUES (%s, %s, %s, 'pay', 1, %s, now())"
            )
            for planted in range(epoch + 1):
                await connection.execute(plant, [request["effect_key"], planted, run.id, PAID])
        assert await answer(run, "decide", decision(run.id, request, by="alice")) == "accepted"
        for before in range(epoch):
            lost = await _asked(r, run.id, before)
            absent = decision(run.id, lost, by="bob", decision="absent")
            assert await answer(run, "decide", absent) == "accepted"
        await _asked(r, run.id, epoch)
        events = await events_of(run)
        asked = [event for event in events if isinstance(event, ReconcileRequested)]
        assert len(asked) == epoch + 1
        assert not [event for event in events if isinstance(event, ToolCallFinished)]
        assert payments(r) == []
        evidence = Evidence(partial(effects_of, pool), PostgresThreads(pool).asides, PostgresArtifacts(pool))
        report = await verify(
            Threads(r.client, record=PostgresThreads(pool)), run.id, evidence=evidence, trusted=policy
        )
        assert (report.ok, report.where) == (False, "ledger")
        assert "without a MAC" in report.reason


async def _asked(rig: Rig, thread: str, epoch: int) -> dict[str, Any]:
    """Wait for the question whether the payment happened, after that many answers that it did not."""
    handle = rig.client.get_workflow_handle(thread)

    async def asked() -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = await handle.query("pending_approvals")
        return [each for each in requests if (each["kind"], each["epoch"]) == ("reconcile", epoch)]

    request: dict[str, Any]
    (request,) = await eventually(asked, bool)
    return request
