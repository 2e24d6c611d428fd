"""Hostile files for an import: their author controls all of their content. A rejected import changes nothing."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.client import Client

from holdfast import Policy, allow, ask
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.core.authority.policy import Approver, Gateway, Signer
from holdfast.core.authority.signatures import public_key
from holdfast.core.lineage import Lineage
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, AgentLoaded, RunImported, RunReset, ToolCallFinished, ToolCallStarted
from holdfast.core.mac.outcomes import OutcomeMACs, Recorded
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.core.run.contracts.tool_calls import ToolOutcome
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.state import features
from holdfast.core.stores import EffectRow
from holdfast.core.temporal.converter import seals_in
from holdfast.core.tools.effects import PastEffect, effect_key
from holdfast.errors import HoldfastError, ImportRefused, Refused, ThreadExists, ThreadForgotten, ThreadIdInvalid
from holdfast.portable import content
from holdfast.portable.destination import namespace_id
from holdfast.portable.format.manifest import Imported
from holdfast.portable.format.members import ARTIFACTS, LEDGER, LOG, child_member
from holdfast.portable.importing import ImportStores, import_thread
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.forget import forget
from holdfast.storage.ledger import effects_of
from holdfast.storage.threads import PostgresThreads
from tests.support.families import Tree, family
from tests.support.forked import run as run_program
from tests.support.keeping import new_pool
from tests.support.portable_files import ALICE, MALLORY, SIGNER, export, export_tree, log_of, parts_of, rebuilt
from tests.support.runs import Thread, agent_spec, calls

PAYS = Policy(rules=(allow(),))
WHOLE = b"what the log refers to"
WHOLE_AT = f"sha256:{hashlib.sha256(WHOLE).hexdigest()}"


@dataclass
class Here:
    """A cluster without a worker: what an import starts stays unprocessed."""

    client: Client
    pool: AsyncConnectionPool
    folder: Path

    @property
    def threads(self) -> Threads:
        """Return the threads."""
        return Threads(self.client, task_queue="nobody-works-here", record=PostgresThreads(self.pool))

    async def bring(self, file: bytes, **options: Any) -> Imported:
        """Import a file, trusting Alice's signature."""
        path = self.folder / f"{uuid4().hex}.holdfast"
        path.write_bytes(file)
        place = ImportStores(PostgresThreads(self.pool), PostgresArtifacts(self.pool), self.pool)
        given = {"signer": SIGNER, **options}
        return await import_thread(self.threads, path, place, **given)

    async def refuses(self, file: bytes, kind: type[HoldfastError], words: str, **options: Any) -> None:
        """Check that a file is rejected, and that nothing was stored."""
        with pytest.raises(kind, match=words):
            await self.bring(file, **options)
        async with self.pool.connection() as connection:
            for table in ("threads", "events", "effects", "artifacts"):
                found = await connection.execute(f"SELECT count(*) FROM holdfast.{table}".encode())
                assert await found.fetchone() == (0,), table


@pytest.fixture
async def here(client: Client, stack: Stack, tmp_path: Path) -> AsyncIterator[Here]:
    """Return a cluster with a new database."""
    async with new_pool(stack.database_url) as (_, pool):
        yield Here(client, pool, tmp_path)


def running(name: str = "", **begin: Any) -> Thread:
    """Return a thread that has paid, and calls the LLM."""
    thread = Thread(agent_spec(policy=PAYS), **({"name": name or f"imp-{uuid4().hex[:8]}"} | begin))
    thread.load(1)
    thread.reply(calls("pay"))
    thread.finish(1, "paid")
    return thread


def rows_of(events: Sequence[AgentEvent]) -> list[EffectRow]:
    """Return the ledger's rows of a log in which every effect has its outcome."""
    ends = {event.number: event for event in events if isinstance(event, ToolCallFinished)}
    rows = [
        EffectRow(event.key, 0, "pay", _outcome(ends[event.number]) if event.number in ends else None)
        for event in events
        if isinstance(event, ToolCallStarted)
    ]
    return sorted(rows, key=lambda row: row.key)


def _outcome(end: ToolCallFinished) -> str:
    return ToolOutcome(status=end.status, content=end.content, artifact=end.artifact).model_dump_json()


def file_of(
    thread: Thread, *, private: str | None = ALICE, events: Sequence[AgentEvent] | None = None, **options: Any
) -> bytes:
    """Return the thread's file."""
    events = events or thread.log
    given = {"thread": thread.name, "private": private, "rows": rows_of(events), **options}
    with ThreadPoolExecutor(1) as apart:  # it has an event loop of its own
        return apart.submit(partial(export, events, **given)).result()


async def test_a_file_needs_the_signature_of_a_trusted_key(here: Here) -> None:
    """A file is rejected if unsigned, if no key is trusted, or if its key is another or may only decide."""
    thread = running().moved()
    deciding = Policy(
        approvers=(Approver(name="alice", keys=(SIGNER,)),), gateways=(Gateway(name="hooks", keys=(SIGNER,)),)
    )
    known = Policy(signers=(Signer(name="ops", keys=(SIGNER,)),), approvers=(Approver(name="alice"),))
    for private, options in (
        (None, {}),
        (MALLORY, {}),
        (ALICE, {"signer": None}),
        (ALICE, {"signer": None, "trusted": deciding}),
        (MALLORY, {"signer": None, "trusted": known}),
    ):
        words = "is not signed" if private is None else public_key(private)
        await here.refuses(file_of(thread, private=private), ImportRefused, words, **options)
    assert (await here.bring(file_of(thread), signer=None, trusted=known)).signer == SIGNER


async def test_an_altered_file_is_rejected_although_it_is_signed_again(here: Here) -> None:
    """A trusted signature does not make an inconsistent outcome valid: the file is verified in full."""
    thread = running().moved()
    parts = parts_of(file_of(thread))
    forged = [
        event.model_copy(update={"policy_hash": 64 * "0"}) if isinstance(event, AgentLoaded) else event
        for event in thread.log
    ]
    await here.refuses(
        rebuilt([(n, log_of(forged) if n == LOG else c) for n, c in parts], ALICE), ImportRefused, "does not verify"
    )
    await here.refuses(file_of(thread)[:-9], ImportRefused, "does not verify")


async def test_a_live_copy_is_rejected(here: Here) -> None:
    """A thread that may still run on its source cluster would act twice."""
    await here.refuses(file_of(running()), ImportRefused, "was open where it was exported")


@pytest.mark.parametrize("name", ["x~reset-1", "holdfast-schedule/x", " x", "x\u202e", ""])
async def test_an_id_that_no_run_can_have_is_rejected(name: str, here: Here) -> None:
    """Ids of archived branches and launchers, and unreadable ones, are rejected."""
    thread = running("t").moved()
    with pytest.raises((ThreadIdInvalid, ImportRefused)):
        await here.bring(rebuilt(parts_of(file_of(thread)), ALICE, thread=name))


async def test_the_id_of_a_sub_agent_of_a_local_thread_is_rejected(here: Here) -> None:
    """Calls of the local thread, or of its sub-agent, would otherwise find the imported thread as their sub-agent."""
    root = running().moved()
    await here.bring(file_of(root))
    for name in (f"{root.name}.2", f"{root.name}.2.1"):
        with pytest.raises(ImportRefused, match="is the id of a sub-agent"):
            await here.bring(file_of(running(name).moved()))


async def test_a_sub_agents_thread_is_rejected(here: Here) -> None:
    """The run that waits for the sub-agent is on another cluster."""
    lineage = Lineage(path=("p",), number=1, key="k", deepest=3)
    thread = running("p.1", lineage=lineage, features=1)
    await here.refuses(file_of(thread), ImportRefused, "sub-agent of p")


async def test_another_thread_with_that_id_is_not_touched(here: Here) -> None:
    """The error names the event at which the file differs; neither log nor ledger of the local thread changes."""
    mine, theirs = running("same").moved(), running("same", task="another").moved()
    await here.bring(file_of(mine))
    before = await PostgresThreads(here.pool).read("same")
    with pytest.raises(ThreadExists, match="event 1 differs"):
        await here.bring(file_of(theirs))
    assert await PostgresThreads(here.pool).read("same") == before == [event_line(event) for event in mine.log]


async def test_an_older_file_does_not_roll_a_thread_back(here: Here) -> None:
    """Later events would happen again, so only a file that extends the local log is imported."""
    first = running("older").moved()
    there = first.imported()
    there.reply(calls("pay"))
    there.finish(2, "paid again")
    newer = there.moved()
    place = PostgresThreads(here.pool)
    await place.append("older", 0, [event_line(event) for event in newer.log])
    with pytest.raises(ThreadExists, match=r"differs|has gone on here"):
        await here.bring(file_of(first))
    assert (await here.bring(file_of(newer))).new


async def test_ledger_rows_cannot_suppress_an_effect(here: Here) -> None:
    """A row that no event starts is rejected; an outcome that is only in an unvouched ledger does not count."""
    thread = running().moved()
    rows = [*rows_of(thread.log), EffectRow("f" * 40, 0, "pay", None)]
    await here.refuses(file_of(thread, rows=sorted(rows, key=lambda row: row.key)), ImportRefused, "no event starts it")

    under_way = Thread(agent_spec(policy=PAYS), name=f"imp-{uuid4().hex[:8]}")
    under_way.load(1)
    under_way.reply(calls("pay"))
    under_way.update("move", {"by": "carol"})
    (call,) = under_way.waiting()[:1]
    under_way.run._calls.drop(call.id)
    under_way.signal("x")
    while not under_way.closed:
        under_way.archive()
    claimed = [
        EffectRow(row.key, 0, "pay", ToolOutcome(status="ok", content="paid, honestly").model_dump_json())
        for row in rows_of(under_way.log)
    ]
    await here.bring(file_of(under_way, private=None, rows=claimed), signer=None, unproven=True)
    (row,) = await effects_of(here.pool, under_way.name)
    assert (row.key, row.outcome) == (claimed[0].key, None), "its tool's check, or a person, says what happened"


@pytest.mark.parametrize("private", [ALICE, None])
async def test_a_reset_names_no_effect_of_another_thread(private: str | None, here: Here) -> None:
    """An effect key in a reset event must follow from the file's own ids.

    Otherwise its row in the file's ledger would count as the outcome of another thread's approved payment.
    """
    victim = PastEffect(number=1, first_run_id="another-run", tool="pay", call_digest="d", key="")
    ids: dict[str, Any] = {"first_run_id": victim.first_run_id, "number": 1, "call_digest": "d"}
    key = effect_key(thread="another", **ids)
    options: dict[str, Any] = {} if private else {"signer": None, "unproven": True}
    for past in (victim.model_copy(update={"key": key}), victim.model_copy(update={"key": "k" * 40})):
        thread = running()
        thread.reset()
        thread.load_effects(past)
        position = next(event.position for event in thread.log if isinstance(event, RunReset))
        rows = [
            *rows_of(thread.log),
            EffectRow(past.key, 0, "pay", ToolOutcome(status="ok", content="paid").model_dump_json()),
        ]
        file = file_of(thread.moved(), private=private, rows=sorted(rows, key=lambda row: row.key))
        words = rf"event {position}, in {LOG}: run_reset: effect {past.key} of pay is not of this thread"
        await here.refuses(file, ImportRefused, words, **options)

    thread = running()
    own = victim.model_copy(update={"key": effect_key(thread=thread.name, **ids)})
    thread.reset()
    thread.load_effects(own)
    rows = [*rows_of(thread.log), EffectRow(own.key, 0, "pay", None)]
    assert (await here.bring(file_of(thread.moved(), rows=sorted(rows, key=lambda row: row.key)))).new


async def test_an_imported_outcome_counts_for_local_workers(here: Here) -> None:
    """It gets a MAC of this fleet under the thread's own key; one that is only in an unvouched ledger gets none."""
    thread = running().moved()
    await here.bring(file_of(thread))
    (row,) = await effects_of(here.pool, thread.name)
    assert row.outcome is not None
    recorded = Recorded(thread.name, row.key, row.epoch, row.tool, row.call_digest, row.outcome)
    assert OutcomeMACs(seals_in(here.client.data_converter)).verify(row.mac, recorded) == "valid"


async def test_a_moved_thread_is_imported_where_it_was_moved_to(here: Here) -> None:
    """In any other place, it is refused: it may run already where it was moved to. A person can override that."""
    place = await namespace_id(here.client)
    elsewhere = "01a21834-2a7f-76ef-a905-8f743de5f74d"
    assert (await here.bring(file_of(running().moved(to=place)))).new
    thread = running().moved(to=elsewhere)
    with pytest.raises(ImportRefused, match=f"moved to the place {elsewhere}, and this is {place}"):
        await here.bring(file_of(thread))
    with pytest.raises(ImportRefused, match="moved to the place"):
        await here.bring(file_of(thread, private=None), signer=None, unproven=True)
    assert await PostgresThreads(here.pool).length(thread.name) == 0
    assert (await here.bring(file_of(thread), fork=True, id=f"{thread.name}-fork")).new
    assert (await here.bring(file_of(thread), override_destination=True)).new


def test_a_destination_is_the_id_of_a_cluster() -> None:
    """Any other text is rejected, and the run continues; a file in which it was altered does not verify."""
    for text in ("production", "x" * 5_000_000, 7, ["01a21834-2a7f-76ef-a905-8f743de5f74d"]):
        thread = running("to")
        answer = thread.update("move", {"by": "carol", "to": text})
        assert answer["outcome"] == "not_movable"
        assert "`to` is not the id of a place" in answer["explanation"]
        assert not thread.closed


async def test_an_outcome_that_contradicts_the_local_ledger_is_rejected(here: Here) -> None:
    """The local ledger is not overwritten, and nothing else is written."""
    thread = running().moved()
    (row,) = rows_of(thread.log)
    async with here.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO holdfast.effects (key, epoch, thread, tool, outcome, finished_at) "
            "VALUES (%s, 0, %s, 'pay', '{}', now())",
            [row.key, thread.name],
        )
    with pytest.raises(ImportRefused, match="another outcome of effect"):
        await here.bring(file_of(thread))
    assert not await PostgresThreads(here.pool).read(thread.name)


async def test_an_artifact_must_match_its_digest(here: Here) -> None:
    """Content under another digest, or that no event refers to, is rejected."""
    thread = running().moved()
    parts = parts_of(file_of(thread))
    place = next(n for n, (name, _) in enumerate(parts) if name == LEDGER) + 1
    for name in (f"{ARTIFACTS}{'0' * 64}", f"{ARTIFACTS}../../../etc/passwd"):
        forged = [*parts[:place], (name, b"not that"), *parts[place:]]
        await here.refuses(rebuilt(forged, ALICE), ImportRefused, "does not verify")


async def test_a_file_that_lacks_content_the_run_needs_is_rejected(here: Here) -> None:
    """Without the ledger, pending effects could not be looked up; a redacted file lacks the text."""
    thread = running().moved()
    await here.refuses(file_of(thread, rows=None), ImportRefused, "has no ledger")
    await here.refuses(file_of(thread, rows=None, redact=True), ImportRefused, "is redacted")


async def test_a_huge_file_is_rejected_before_it_is_read(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that no run could hold in memory is rejected by its size in the manifest."""
    monkeypatch.setattr(content, "MAX_LOG_BYTES", 1_000)
    await here.refuses(file_of(running().moved()), ImportRefused, "at most 1,000 are imported")


def test_an_unsealed_start_imports_nothing() -> None:
    """Anyone who reaches Temporal can start a run that claims an import, but it ends before it loads anything."""
    thread = running("plain").moved()
    point = next(event.point for event in thread.imported().log if isinstance(event, RunImported))
    begin = RunInput(resume=True, imported=point, features=1)
    ids = {"thread": "plain", "run_id": "r", "first_run_id": "r"}
    run = AgentRun(begin, **ids, at=thread.at, started_at=thread.at)
    assert run.end is not None
    assert run.end.failure is not None
    assert run.end.failure.cause == "StartRefused"
    assert run.commands() == []


async def test_the_same_file_is_imported_once(here: Here) -> None:
    """Importing it repeatedly or concurrently results in one run with the same lines."""
    thread = running().moved()
    file = file_of(thread)
    first, second = await here.bring(file), await here.bring(file)
    assert (first.new, second.new, first.run_id) == (True, False, second.run_id)
    assert await PostgresThreads(here.pool).length(thread.name) == len(thread.log)


async def test_a_policy_that_asks_keeps_asking(here: Here) -> None:
    """The file's approvers decide only for the file's policy; nothing runs without the approvers of the local policy.

    See also test_importing.
    """
    mallory = Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="m", keys=(public_key(MALLORY),)),))
    thread = Thread(agent_spec(policy=mallory), name=f"imp-{uuid4().hex[:8]}")
    thread.load(1)
    thread.reply(calls("pay"))
    here_spec = agent_spec(policy=Policy(rules=(ask("pay"), allow()), approvers=(Approver(name="dana"),)))
    there = thread.moved().imported(here_spec)
    assert there.decide("2", by="m") == "waiting_for_quorum"
    assert there.decide("1", by="m") == "too_late"
    assert not there.running_calls
    assert there.decide("2", by="dana") == "accepted"


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path

from holdfast.client.connect import connect_stack
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.portable import importing
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads

stack, url, path, signer, step, after = sys.argv[1:]
owner = {"put": PostgresArtifacts, "append": PostgresThreads}.get(step, importing)
real = getattr(owner, step)

async def dies(*args, **given):
    if after == "True":
        await real(*args, **given)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, step, dies)

async def main():
    client = await connect_stack(Stack.model_validate_json(stack))
    async with open_pool(url, size=2) as pool:
        threads = Threads(client, task_queue="nobody-works-here", record=PostgresThreads(pool))
        stores = importing.ImportStores(PostgresThreads(pool), PostgresArtifacts(pool), pool)
        await importing.import_thread(threads, Path(path), stores, signer=signer)

asyncio.run(main())
"""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["put", "put_effects", "append", "_begin"])
async def test_a_killed_import_is_repeated(
    step: str, after: bool, client: Client, stack: Stack, tmp_path: Path
) -> None:
    """After a kill before or after each step, the same command completes the import, without duplicates."""
    log = EventLog()
    for event in (thread := running().moved()).log:
        given = {"artifact": WHOLE_AT} if isinstance(event, ToolCallFinished) else {}
        log.append(event.model_copy(update={"position": -1, "digest": "", **given}), at=event.at)
    path = tmp_path / "killed.holdfast"
    path.write_bytes(file_of(thread, events=log.events, artifacts=[WHOLE]))
    async with new_pool(stack.database_url) as (url, pool):
        words = (stack.model_dump_json(), url, str(path), SIGNER, step, str(after))
        assert run_program("-c", [KILLED, *words], environ=os.environ).code == -signal.SIGKILL
        here = Here(client, pool, tmp_path)
        done = await here.bring(path.read_bytes())
        assert done.new is not ((step, after) == ("_begin", True))
        again = await here.bring(path.read_bytes())
        assert (again.new, again.run_id) == (False, done.run_id)
        assert await PostgresThreads(pool).read(thread.name) == [event_line(event) for event in log.events]
        assert len(await effects_of(pool, thread.name)) == 1
        assert await PostgresArtifacts(pool).get(WHOLE_AT) == WHOLE


async def test_concurrent_imports_of_the_same_file_start_one_run(here: Here) -> None:
    """One of them starts the run, and the others find it."""
    file = file_of(running().moved())
    results = await asyncio.gather(*(here.bring(file) for _ in range(3)))
    assert sorted(each.new for each in results) == [False, False, True]
    assert len({each.run_id for each in results}) == 1


async def test_a_file_of_a_later_release_is_rejected(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """No local worker could continue such a run, which would stay open forever."""
    with monkeypatch.context() as later:
        later.setattr(features, "FEATURES", 99)
        thread = Thread(agent_spec(policy=PAYS), name=f"imp-{uuid4().hex[:8]}", features=1)
        thread.load(99)
        file = file_of(thread.moved())
    await here.refuses(file, ImportRefused, "feature level 99")


async def test_only_a_fork_gets_a_new_id(here: Here) -> None:
    """Effect keys contain the thread id, so another id would repeat the effects."""
    await here.refuses(file_of(running().moved()), ImportRefused, "keeps its id", id="another")


async def test_a_fork_under_the_id_of_another_thread_is_rejected(here: Here) -> None:
    """Nothing is written under the id, even if only the record has that thread, with fewer events."""
    other = PostgresThreads(here.pool)
    await other.append("theirs", 0, [event_line(event) for event in running("theirs").log[:2]])
    with pytest.raises(ThreadExists, match="is not this fork"):
        await here.bring(file_of(running()), fork=True, id="theirs")
    assert await other.length("theirs") == 2


async def test_a_live_copy_is_imported_only_as_a_fork(here: Here) -> None:
    """The fork has its own id, without the original's ledger; the original's id stays free."""
    thread = running()
    done = await here.bring(file_of(thread), fork=True, id=f"{thread.name}-b")
    assert (done.thread, done.new) == (f"{thread.name}-b", True)
    assert not (await here.bring(file_of(thread), fork=True, id=done.thread)).new
    store = PostgresThreads(here.pool)
    assert (await store.length(thread.name), await store.length(done.thread)) == (0, len(thread.log))
    assert await effects_of(here.pool, thread.name) == await effects_of(here.pool, done.thread) == []
    with pytest.raises(ThreadExists, match="from itself"):
        await here.bring(file_of(thread), fork=True, id=thread.name)


# The logs of sub-agents.


@dataclass
class Household:
    """A finished thread with two levels of sub-agents, and its file."""

    name: str
    tree: Tree
    file: bytes

    def lines(self, path: str = "") -> list[bytes]:
        """Return a log."""
        return [event_line(event) for event in self.tree[path]]


def household(**options: Any) -> Household:
    """Return a tree with an id of its own."""
    name = f"imp-{uuid4().hex[:8]}"
    tree = family(name=name)
    with ThreadPoolExecutor(1) as apart:  # it has an event loop of its own
        file = apart.submit(partial(export_tree, tree, thread=name, **options)).result()
    return Household(name, tree, file)


async def test_the_logs_of_sub_agents_are_recorded_once(here: Here) -> None:
    """Each is recorded under its own id, also by repeated or concurrent imports; no run is started for it."""
    home = household()
    results = await asyncio.gather(*(here.bring(home.file) for _ in range(2)))
    assert sorted((each.new, each.subagents) for each in results) == [(False, 2), (True, 2)]
    store = PostgresThreads(here.pool)
    for path in ("1", "1.1"):
        assert await store.read(f"{home.name}.{path}") == home.lines(path)
        assert await here.threads.reader.find(f"{home.name}.{path}") is None
    assert not (await here.bring(home.file)).new


@pytest.mark.parametrize("path", ["1", "1.1"])
async def test_another_thread_with_the_id_of_a_sub_agent_is_not_touched(path: str, here: Here) -> None:
    """The import is rejected and writes nothing if that thread is recorded, or is running and not yet recorded."""
    home, store = household(), PostgresThreads(here.pool)
    name = f"{home.name}.{path}"
    theirs = [event_line(event) for event in running(name).log]
    await store.append(name, 0, theirs)
    with pytest.raises(ThreadExists, match=rf"another thread '{name}' here.*Nothing was imported"):
        await here.bring(home.file)
    assert await store.read(name) == theirs
    assert [await store.length(f"{home.name}{each}") for each in ("", ".1.1" if path == "1" else ".1")] == [0, 0]

    alive = household()
    await here.client.start_workflow(
        WORKFLOW, RunInput(task="t"), id=f"{alive.name}.{path}", task_queue="nobody-works-here"
    )
    with pytest.raises(ThreadExists, match="another thread"):
        await here.bring(alive.file)
    assert [await store.length(f"{alive.name}{each}") for each in ("", ".1", ".1.1")] == [0, 0, 0]


async def test_the_log_of_another_trees_sub_agent_is_rejected(here: Here) -> None:
    """Under its own or a renamed id, it does not match the sub-agent that the log above started."""
    home = household()
    parts, member = parts_of(home.file), child_member(LOG, "1.1")
    for other in (family(task="Pay.", name=home.name), family()):
        forged = [(name, log_of(other["1.1"]) if name == member else content) for name, content in parts]
        await here.refuses(rebuilt(forged, ALICE), ImportRefused, "does not verify")


async def test_decisions_in_a_sub_agents_log_let_nothing_run(here: Here) -> None:
    """Its run is not continued, whatever rules its log has: a new task is rejected before any worker has the import."""
    home = household()
    await here.bring(home.file)
    for path in ("1", "1.1"):
        with pytest.raises(Refused, match="ran here"):
            await here.threads.start("pay", thread=f"{home.name}.{path}")
        with pytest.raises(ThreadExists, match="another thread"):
            await here.bring(file_of(running(f"{home.name}.{path}").moved()))


@pytest.mark.parametrize("gone", ["never there", "forgotten"])
async def test_a_sub_agents_log_alone_is_not_continued(gone: str, here: Here) -> None:
    """A sub-agent's log without its root, not yet imported or forgotten, may come from a file: it never continues."""
    home, store = household(), PostgresThreads(here.pool)
    await store.append(f"{home.name}.1", 0, home.lines("1"))
    if gone == "forgotten":
        await forget(here.pool, home.name, by="ann", reason="asked to")
    with pytest.raises(Refused, match="nothing here shows"):
        await here.threads.start("pay", thread=f"{home.name}.1")
    plain = running(f"{home.name}.7").moved()
    await store.append(plain.name, 0, [event_line(event) for event in plain.log])
    started = await here.threads.start("pay", thread=plain.name)  # no sub-agent, although its id looks like one
    assert started.thread == plain.name


async def test_sub_agents_of_an_unproven_file_are_not_imported(here: Here) -> None:
    """Their logs would be indistinguishable from locally recorded ones, so they stay in the file."""
    home = household(private=None)
    done = await here.bring(home.file, signer=None, unproven=True)
    assert done.subagents == 0
    store = PostgresThreads(here.pool)
    assert [await store.length(f"{home.name}{each}") for each in ("", ".1", ".1.1")] == [len(home.tree[""]), 0, 0]


async def test_a_forgotten_sub_agent_stays_forgotten(here: Here) -> None:
    """The file restores the threads above and below it, but not its content."""
    home = household()
    await forget(here.pool, f"{home.name}.1.1", by="ann", reason="asked to")
    assert (await here.bring(home.file)).new
    store = PostgresThreads(here.pool)
    assert await store.read(f"{home.name}.1") == home.lines("1")
    with pytest.raises(ThreadForgotten):
        await store.read(f"{home.name}.1.1")


async def test_a_huge_log_of_a_sub_agent_is_rejected(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-agent's log has the same limit as every log."""
    home = household()
    sizes = {path: len(log_of(events)) for path, events in home.tree.items()}
    monkeypatch.setattr(content, "MAX_LOG_BYTES", sizes[""])
    assert max(sizes.values()) > sizes[""], "only a sub-agent's log is too large"
    await here.refuses(home.file, ImportRefused, "children/.* are imported")


@pytest.mark.extended
@pytest.mark.parametrize("after", [False, True])
async def test_a_killed_import_of_a_tree_is_repeated(after: bool, client: Client, stack: Stack, tmp_path: Path) -> None:
    """A log is never stored without those below it, and the same command imports the rest."""
    home, path = household(), tmp_path / "killed.holdfast"
    path.write_bytes(home.file)
    async with new_pool(stack.database_url) as (url, pool):
        words = (stack.model_dump_json(), url, str(path), SIGNER, "put_child", str(after))
        assert run_program("-c", [KILLED, *words], environ=os.environ).code == -signal.SIGKILL
        store = PostgresThreads(pool)
        kept = [await store.length(f"{home.name}{each}") > 0 for each in ("", ".1", ".1.1")]
        assert kept == [False, False, after]
        assert (await Here(client, pool, tmp_path).bring(home.file)).new
        for each in ("", "1", "1.1"):
            assert await store.read(f"{home.name}.{each}".rstrip(".")) == home.lines(each)
