"""`verify` detects each forgery in the real stores by an attacker who can write to the database or to Temporal."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.client import WorkflowFailureError

from holdfast import Agent, Approver, Catalog, Policy, Terms, ToolContext, allow, ask, tool
from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect, connect_stack, stack_config
from holdfast.client.reading.record import Evidence
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.authority.signatures import public_key
from holdfast.core.base.canonical import digest_of
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    ApprovalRequested,
    DecisionReceived,
    LLMReplied,
    ToolCallFinished,
    ToolCallStarted,
    UserMessageReceived,
)
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.mac.seals import FleetKeys
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.state import features
from holdfast.core.stores import aside_id, origin_of
from holdfast.encryption.fleet_keys import stack_seals
from holdfast.errors import ThreadIdInvalid
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.blocks import Block, _content
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Conversation, Reply, call, say, steps
from holdfast.testing.conformance import record
from tests.support.people import KEYS, PEOPLE, answer, decision, request_of
from tests.support.rig import Rig, StartRig, events_of, eventually, start_rig

SIGNED = Policy(
    rules=(allow("dump"), ask("pay", terms=Terms(by=("finance",), quorum=2))), approvers=PEOPLE, signatures="required"
)
KNOWN = Policy(approvers=PEOPLE, signatures="required")
"""The keys that a verifier trusts: `--keys`."""
SCRIPT = steps([call("dump"), call("pay", cents=100), say("done")])

Log = Sequence[AgentEvent]
Forge = Callable[[Log], Log]


@tool(effect="unsafe")
def pay(cents: int, context: ToolContext) -> str:
    """Pay: append a line to a file."""
    with (context.workspace / "paid").open("a") as paid:
        paid.write(f"{cents}\n")
    return f"paid {cents}"


@tool(effect="read")
def dump() -> str:
    """Return more output than the log stores."""
    return "0123456789" * 5_000


def catalog(policy: Policy = SIGNED) -> Catalog:
    """Return a clerk who pays under that policy."""
    return Catalog(agents=[Agent(name="clerk", instructions="Pay.", policy=policy, tools=[pay, dump])])


@pytest.fixture
async def pool(stack: Stack) -> AsyncIterator[AsyncConnectionPool]:
    """Open connections to the database of the rig's worker, as its owner."""
    await migrate(stack.database_url)
    async with open_pool(stack.database_url, size=2) as pool:
        yield pool


@dataclass
class Desk:
    """The verifier of a thread, and its forger."""

    pool: AsyncConnectionPool
    threads: Threads
    forgotten: Threads
    """The same threads in a namespace where Temporal has no history of them."""
    thread: str

    async def verify(self, *, forgotten: bool = False, trusted: Policy | None = None) -> Verification:
        """Return the verification."""
        threads = self.forgotten if forgotten else self.threads
        return await verify(threads, self.thread, evidence=self.evidence, trusted=trusted)

    @property
    def evidence(self) -> Evidence:
        """Return ledger and artifacts."""
        asides = PostgresThreads(self.pool).asides
        return Evidence(partial(effects_of, self.pool), asides, PostgresArtifacts(self.pool))

    async def log(self) -> list[AgentEvent]:
        """Return the thread's events from the record."""
        lines = await PostgresThreads(self.pool).read(self.thread)
        return run_events(self.thread, read_lines(self.thread, 0, lines))

    async def write(self, events: Log) -> None:
        """Replace the thread's record by these events in a correct chain of digests."""
        log = EventLog()
        for event in events:
            log.append(event.model_copy(update={"digest": ""}), at=event.at)
        await self.sql("DELETE FROM holdfast.events WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)")
        await PostgresThreads(self.pool).append(self.thread, 0, [event_line(event) for event in log.events])

    async def sql(self, statement: str, *values: Any) -> None:
        """Execute SQL as the database's owner; the thread is the last value."""
        async with self.pool.connection() as connection:
            await connection.execute(statement, [*values, self.thread])


async def desk_of(rig: Rig, pool: AsyncConnectionPool, stack: Stack, thread: str) -> Desk:
    """Return a desk with a fleet key, with and without Temporal's history."""
    elsewhere = await connect_stack(stack.model_copy(update={"namespace": "temporal-system"}))
    store = PostgresThreads(pool)
    return Desk(pool, Threads(rig.client, record=store), Threads(elsewhere, record=store), thread)


async def paid(rig: Rig, pool: AsyncConnectionPool, stack: Stack) -> Desk:
    """Return a closed thread with a payment that two people signed."""
    run = await rig.start()
    for name in ("alice", "bob"):
        assert await answer(run, "decide", decision(run.id, await request_of(run), by=name)) in (
            "accepted",
            "waiting_for_quorum",
        )
    await run.result()
    return await desk_of(rig, pool, stack, run.id)


def without(*kinds: Any) -> Forge:
    """Remove events."""
    return lambda log: [event for event in log if not isinstance(event, kinds)]


def with_forged_keys(log: Log) -> Log:
    """Replace the approvers' keys in the recorded policy, with its digests."""
    own = tuple(person.model_copy(update={"keys": (public_key(KEYS["mallory"]),)}) for person in PEOPLE)

    def swapped(event: AgentEvent) -> AgentEvent:
        if not isinstance(event, AgentLoaded):
            return event
        spec = event.spec.model_copy(update={"policy": event.spec.policy.model_copy(update={"approvers": own})})
        return event.model_copy(
            update={"spec": spec, "spec_hash": spec.hash, "policy_hash": spec.policy.hash}
        ).model_copy()

    return [swapped(event) for event in log]


def with_one_vote(log: Log) -> Log:
    """Make one of two signed decisions the deciding one, and remove the other."""
    first, second = (event for event in log if isinstance(event, DecisionReceived))
    return [
        event.model_copy(update={"outcome": "accepted", "explanation": ""}) if event is first else event
        for event in log
        if event is not second
    ]


def with_another_task(log: Log) -> Log:
    """Change the person's task."""
    return [
        event.model_copy(update={"content": "pay Mallory"}) if isinstance(event, UserMessageReceived) else event
        for event in log
    ]


def with_another_payment(log: Log) -> Log:
    """Change the sum in the request and the call after it was signed."""
    text = '{"cents":999}'

    def altered(event: AgentEvent) -> AgentEvent:
        if isinstance(event, ApprovalRequested):
            request = event.request.model_copy(update={"arguments": text})
            return event.model_copy(update={"request": request.model_copy(update={"digest": request.seen.digest})})
        if event.type == "tool_call_requested" and event.call.name == "pay":
            return event.model_copy(update={"call": event.call.model_copy(update={"arguments": text})})
        return event

    return [altered(event) for event in log]


async def test_an_event_altered_within_its_block_is_detected(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack
) -> None:
    """A tool's result is changed inside its block, without the stored digests. The error names the block."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
    altered = None
    async with pool.connection() as connection:
        rows = await connection.execute(
            "SELECT position, stop, size, at, body FROM holdfast.events "
            "WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
            [desk.thread],
        )
    for row in await rows.fetchall():
        form, content = _content(block := Block(*row))
        if b'"content":"paid ' in content:
            altered = block
            content = content.replace(b'"content":"paid ', b'"content":"owes ')
            body = bytes([form & ~1]) + content
            await desk.sql(
                "UPDATE holdfast.events SET body = %s WHERE position = %s "
                "AND thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
                body,
                block.position,
            )
    assert altered is not None
    for forgotten in (False, True):
        report = await desk.verify(forgotten=forgotten)
        assert (report.ok, report.where, report.position) == (False, "record", altered.position)
        assert f"or one up to event {altered.stop - 1}, was altered or damaged" in report.reason


async def test_a_rewritten_log_is_inconsistent(rig: StartRig, pool: AsyncConnectionPool, stack: Stack) -> None:
    """With recomputed chains and without Temporal's history, verification names the first event without a cause."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
        log = await desk.log()
        good = await desk.verify(forgotten=True, trusted=KNOWN)
        assert (good.verdict, good.signatures, good.sources) == ("not_proven", 2, ("record",))
        assert {one.what for one in good.unchecked} == {"anchors", "history", "policy"}
        whole_policy = await desk.verify(forgotten=True, trusted=SIGNED)
        assert (whole_policy.ok, {one.what for one in whole_policy.unchecked}) == (True, {"anchors", "history"})
        own_keys = await desk.verify(forgotten=True)
        assert (own_keys.ok, {one.what for one in own_keys.unchecked}) == (True, {"anchors", "history", "keys"})

        forgeries: list[tuple[Forge, type[Any], str]] = [
            (without(ApprovalRequested, DecisionReceived), ToolCallStarted, "leads to approval_requested"),
            (without(DecisionReceived), ToolCallStarted, "was not allowed to run: it is awaiting_approval"),
            (with_one_vote, DecisionReceived, "has to be waiting_for_quorum"),
            (with_forged_keys, AgentLoaded, "its digests are not those"),
            (with_another_payment, ApprovalRequested, "its digest is"),
            (without(AgentLoaded), LLMReplied, "nothing that came before leads to it"),
        ]
        for forge, kind, words in forgeries:
            forged = forge(log)
            await desk.write(forged)
            report = await desk.verify(forgotten=True)
            assert (report.ok, report.where) == (False, "record"), words
            assert words in report.reason
            assert report.advice
            named = next(index for index, event in enumerate(forged) if isinstance(event, kind))
            if kind is ToolCallStarted:  # the second one, as the first is a read
                named = [index for index, event in enumerate(forged) if isinstance(event, kind)][1]
            assert report.position == named, words

        await desk.write(log)
        assert (await desk.verify(forgotten=True)).ok


async def test_a_thread_signed_with_forged_keys_needs_trusted_keys_to_detect(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack
) -> None:
    """A whole thread under forged names and keys is valid by itself, but not with the keys that people trust."""
    mallory = (Approver(name="alice", roles=("finance",), keys=(public_key(KEYS["mallory"]),)),)
    policy = Policy(rules=(allow("dump"), ask("pay")), approvers=mallory, signatures="required")
    async with rig(catalog(policy), SCRIPT) as r:
        run = await r.start()
        approval = decision(run.id, await request_of(run), by="alice", key=KEYS["mallory"])
        assert await answer(run, "decide", approval) == "accepted"
        await run.result()
        desk = await desk_of(r, pool, stack, run.id)
        alone = await desk.verify(forgotten=True)
        assert alone.ok
        assert "keys" in {one.what for one in alone.unchecked}
        report = await desk.verify(forgotten=True, trusted=KNOWN)
        assert (report.ok, report.where) == (False, "record")
        assert "which is no key of alice among the given keys" in report.reason


async def test_the_log_of_another_thread_is_detected(rig: StartRig, pool: AsyncConnectionPool, stack: Stack) -> None:
    """A valid log under another thread's id is detected: the first event names its own thread."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
        other = Desk(pool, desk.threads, desk.forgotten, f"other-{uuid4().hex[:8]}")
        await other.write(await desk.log())
        report = await other.verify(forgotten=True)
        assert (report.ok, report.where, report.position) == (False, "record", 0)
        assert f"it is the log of thread {desk.thread!r}" in report.reason


async def test_a_truncated_log_is_detected_by_the_ledger(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack
) -> None:
    """Without the history, the ledger has an effect that no event starts, or else the end is reported as unchecked."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
        log = await desk.log()
        start = [event.position for event in log if isinstance(event, ToolCallStarted)][-1]
        await desk.write(log[:start])
        report = await desk.verify(forgotten=True)
        assert (report.ok, report.where, report.position) == (False, "ledger", None)
        assert "no event starts it" in report.reason
        short = await desk.verify()
        assert (short.ok, short.where, short.position) == (False, "record", start)
        await desk.sql("DELETE FROM holdfast.effects WHERE thread = %s")
        unseen = await desk.verify(forgotten=True)
        assert (unseen.ok, "end" in {one.what for one in unseen.unchecked}) == (True, True)
        await desk.write(log)
        gone = await desk.verify(forgotten=True)
        assert (gone.ok, gone.where) == (False, "ledger")
        assert "the log has its result, but the ledger does not have the effect" in gone.reason


async def test_a_run_of_a_newer_release_is_not_called_altered(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older release cannot read it, proves nothing, and says who can."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
        assert (await desk.verify(trusted=KNOWN)).verdict == "proven"
        monkeypatch.setattr(features, "FEATURES", 1)
        report = await desk.verify(trusted=KNOWN)
        assert (report.verdict, [each.what for each in report.unchecked]) == ("not_proven", ["history"])
        assert "upgrade it here" in report.unchecked[0].why


async def test_history_record_ledger_and_artifacts_are_compared(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack
) -> None:
    """With Temporal's history, everything rewritten, planted or altered is reported with its location."""
    async with rig(catalog(), SCRIPT) as r:
        desk = await paid(r, pool, stack)
        log = await desk.log()
        good = await desk.verify(trusted=KNOWN)
        assert (good.verdict, good.unchecked, good.sources) == ("proven", (), ("history", "record"))

        await desk.write(with_another_task(log))
        report = await desk.verify()
        assert (report.ok, report.where, report.position) == (False, "record", 1)
        assert "a different event here than Temporal's history" in report.reason
        assert (await desk.verify(forgotten=True)).ok  # a task has no signature, so the missing history is reported
        await desk.write(log)

        plant = "INSERT INTO holdfast.effects (key, epoch, tool, thread) VALUES (%s, 0, 'pay', %s)"
        await desk.sql(plant, "k" * 40)
        report = await desk.verify()
        assert (report.ok, report.where, report.position) == (False, "ledger", None)
        assert f"effect {'k' * 40} of pay (epoch 0) is in the ledger, but no event starts it" in report.reason
        await desk.sql("DELETE FROM holdfast.effects WHERE key = %s AND thread = %s", "k" * 40)
        assert (await desk.verify()).ok

        finished = [event for event in log if isinstance(event, ToolCallFinished)]
        swap = "UPDATE holdfast.effects SET outcome = replace(outcome, %s, %s) WHERE thread = %s"
        for old, new in (("paid 100", "paid 999"), ('"ok"', '"failed"'), ("{", "")):
            kept = "UPDATE holdfast.effects SET outcome = %s WHERE thread = %s"
            (row,) = await effects_of(pool, desk.thread)
            await desk.sql(swap, old, new)
            report = await desk.verify()
            assert (report.ok, report.where, report.position) == (False, "ledger", finished[-1].position)
            await desk.sql(kept, row.outcome)
        await desk.sql("UPDATE holdfast.effects SET tool = 'look' WHERE thread = %s")
        assert "in the ledger it is an effect of look" in (await desk.verify()).reason
        await desk.sql("UPDATE holdfast.effects SET tool = 'pay' WHERE thread = %s")
        assert (await desk.verify()).ok

        address = finished[0].artifact
        digest = bytes.fromhex(digest_of(address))
        async with pool.connection() as connection:
            await connection.execute(
                "UPDATE holdfast.artifact_parts SET content = overlay(content PLACING 'X'::bytea FROM 5) "
                "WHERE digest = %s",
                [digest],
            )
        report = await desk.verify()
        assert (report.ok, report.where, report.position) == (False, "artifacts", finished[0].position)
        assert address in report.reason
        async with pool.connection() as connection:
            await connection.execute("DELETE FROM holdfast.artifact_parts WHERE digest = %s", [digest])
        gone = await desk.verify()
        assert (gone.ok, gone.where) == (False, "artifacts")
        assert "there is no artifact" in gone.reason
        left_out = await verify(desk.threads, desk.thread, evidence=replace(desk.evidence, artifacts=None))
        assert (left_out.ok, "artifacts" in {one.what for one in left_out.unchecked}) == (True, True)


async def test_a_truncated_record_of_an_open_run_is_detected(
    rig: StartRig, pool: AsyncConnectionPool, stack: Stack
) -> None:
    """A waiting run has recorded its events, so missing ones are detected while it waits."""
    async with rig(catalog(), SCRIPT) as r:
        run = await r.start()
        await request_of(run)
        desk = await desk_of(r, pool, stack, run.id)
        length = await eventually(lambda: PostgresThreads(pool).length(run.id), bool)
        await eventually(lambda: desk.verify(), lambda found: found.ok)
        log = await desk.log()
        assert len(log) == length

        async def cut() -> Verification:
            await desk.write(log[:-2])
            return await desk.verify()

        found = await eventually(cut, lambda found: not found.ok)  # once history shows that the record was written
        assert (found.where, found.position) == ("record", length - 2)
        await desk.write(log)
        assert (await desk.verify()).ok
        await run.cancel()


async def test_an_altered_artifact_never_reaches_an_llm(rig: StartRig, pool: AsyncConnectionPool, stack: Stack) -> None:
    """A read of any part of it fails, and the LLM gets the reason."""
    content = "altered content"
    altered = "UPDATE holdfast.artifact_parts SET content = %s || substr(content, 16) WHERE digest = %s"

    addresses: list[str] = []

    def script(conversation: Conversation) -> Reply:
        if conversation.replies == 1:
            addresses.append(conversation.results[0].split('read_artifact("')[1].split('"')[0])
        replies = [
            call("dump"),
            call("pay", cents=1),
            call("read_artifact", address=(addresses or [""])[0]),
            say("done"),
        ]
        return replies[conversation.replies]

    policy = Policy(rules=(allow("dump"), allow("read_artifact")))
    async with rig(catalog(policy), script) as r:
        run = await r.start()
        await request_of(run)
        (dumped,) = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)]
        async with pool.connection() as connection:
            await connection.execute(altered, [content.encode(), bytes.fromhex(digest_of(dumped.artifact))])
        await run.signal("approve", {"request": "1"})
        await run.result()
        last = [event for event in await events_of(run) if isinstance(event, ToolCallFinished)][-1]
        assert last.status == "failed"
        assert "ArtifactAltered" in last.content
        assert not any(content in request.body.decode() for request in r.llm.requests)
        async with pool.connection() as connection:  # another test may have the same content
            await connection.execute(
                "DELETE FROM holdfast.artifact_parts WHERE digest = %s", [bytes.fromhex(digest_of(dumped.artifact))]
            )


async def test_a_history_made_with_another_key_is_detected(
    stack: Stack, pool: AsyncConnectionPool, tmp_path: Path
) -> None:
    """The same code with another key on the same Temporal: its events are valid, but its requests lack our seal."""
    stranger = FleetKeys({next(iter(stack_seals(stack).keys)): b"x" * 32})
    theirs = await connect(stack_config(stack), seals=stranger)
    workers = await connect(stack_config(stack), seals=stranger)
    async with start_rig(
        theirs,
        catalog(Policy(rules=(allow(),))),
        SCRIPT,
        worker_client=workers,
        database_url=stack.database_url,
        folder=tmp_path,
        debug_mode=True,
    ) as r:
        task = {"task": "do it", "agent": "clerk"}  # an unsealed start, which reads the same with every key
        run = await theirs.start_workflow(WORKFLOW, task, id=f"theirs-{uuid4().hex[:8]}", task_queue=r.task_queue)
        await run.result()
    store = PostgresThreads(pool)
    report = await verify(Threads(await connect_stack(stack), record=store), run.id)
    assert (report.ok, report.where) == (False, "history")
    assert "does not come from our own processes" in report.reason
    keyless = await verify(Threads(await connect(stack_config(stack)), record=store), run.id)
    assert (keyless.verdict, {one.what for one in keyless.unchecked}) == (
        "not_proven",
        {"seals", "ledger", "artifacts"},
    )
    others = FleetKeys({"another": b"y" * 32})
    unknown = await verify(Threads(await connect(stack_config(stack), seals=others), record=store), run.id)
    assert (unknown.verdict, unknown.where) == ("altered", "history")
    assert "is sealed with the fleet key" in unknown.reason


# Archived branches.


async def test_an_archived_branch_is_never_added_to_an_existing_log(pool: AsyncConnectionPool) -> None:
    """If another thread has the branch's next id, that thread stays unchanged."""
    store, thread = PostgresThreads(pool), f"reset-{uuid4().hex[:8]}"
    old, new = record("task", "old", "older"), record("task", "new")
    await store.append(thread, 0, old)
    taken = aside_id(thread, 1)
    await store.append(taken, 0, new)
    aside = await store.set_aside(thread, 1, new[1:])
    assert (aside, origin_of(aside)) == (aside_id(thread, 2), thread)
    assert await store.read(taken) == new
    assert await store.read(aside) == old
    await store.append(thread, 1, new[1:])
    assert await store.read(thread) == new
    assert await store.asides(thread) == [taken, aside]
    assert await store.asides(f"{thread}x") == []


async def test_no_run_is_recorded_under_the_id_of_an_archived_branch(rig: StartRig, pool: AsyncConnectionPool) -> None:
    """Temporal accepts any id from anyone: such a run is not recorded, and reads nothing of that log."""
    store = PostgresThreads(pool)
    for resume in (False, True):
        name = aside_id(f"victim-{uuid4().hex[:8]}", 1)
        async with rig(catalog(Policy(rules=(allow(),))), steps([say("done")])) as r:
            if resume:
                await store.append(name, 0, record("task"))
            run = await r.start(thread=name, resume=resume)
            with pytest.raises(WorkflowFailureError) as failed:
                await run.result()
            why = "no run is recorded under it" if resume else "this id is reserved for what resets leave behind"
            assert why in str(failed.value.cause)
        assert await store.length(name) == int(resume)
        with pytest.raises(ThreadIdInvalid):
            await Threads(r.client, record=store).start("more", thread=name)
