"""The database's owner rewrites, truncates or removes a thread: seals reveal it without Temporal's history.

Real runs on the real server. The record is verified in a namespace where Temporal has no history of them.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool
from temporalio.client import WorkflowHandle

from holdfast import Agent, Catalog, Policy, allow, tool
from holdfast.audit.anchors.folder import FolderAnchor
from holdfast.audit.anchors.lines import AnchoredLines
from holdfast.audit.anchors.sealer import CheckpointSigner
from holdfast.audit.anchors.webhook import WebhookAnchor
from holdfast.audit.evidence.anchors import Anchors
from holdfast.audit.evidence.loops import verify_loop
from holdfast.audit.evidence.verdicts import Verification
from holdfast.audit.evidence.verify import verify
from holdfast.client.connect import connect_stack
from holdfast.client.messages import say as send
from holdfast.client.prune import prune as prune_threads
from holdfast.client.reading.record import Evidence, OpenRecord
from holdfast.client.reading.runs import Runs
from holdfast.client.threads import Threads
from holdfast.config.stack_file import Stack
from holdfast.config.webhooks import Receiver as To
from holdfast.core.authority.signatures import encode_key, public_key
from holdfast.core.log.event_log import EventLog, event_line
from holdfast.core.log.events import AgentEvent, UserMessageReceived
from holdfast.core.log.node_seals import SignedCheckpoint, make_seal, read_seal
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.run.inputs.losses import LostLog, lost_after
from holdfast.errors import ThreadNotFound
from holdfast.portable.export import export_thread
from holdfast.portable.verify import verify_file
from holdfast.retention.rerecord import record_losses, seal_restored
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.forget import find_tombstone, forget
from holdfast.storage.ledger import effects_of
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.prune import prunable, prune
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import call, say, steps
from tests.support.rig import PATIENCE, StartRig, eventually, reset, task_of
from tests.support.serving import Receiver, served
from tests.workflow.test_agent_loop import TASKS, diligent
from tests.workflow.test_agent_loop import catalog as loop_catalog

KEY, STRANGER = (encode_key(bytes([n]) * 32) for n in (21, 22))
NODE = public_key(KEY)
ELSEWHERE = "temporal-system"
"""A namespace without a Temporal history of our runs: a verifier there has only the record."""
SCRIPT = steps([call("look"), say("done")])


@tool(effect="read")
def look() -> str:
    """Look."""
    return "it is fine"


CATALOG = Catalog(
    agents=[Agent(name="clerk", instructions="Look.", policy=Policy(rules=(allow("look"),)), tools=[look])]
)


@dataclass
class Auditor:
    """Verifies the record against an anchor, and alters it as the database's owner."""

    pool: AsyncConnectionPool
    threads: Threads
    folder: Path

    async def verify(self, thread: str, *nodes: str) -> Verification:
        """Return the verification with seals of these nodes, or of any node if none is named."""
        store = PostgresThreads(self.pool)
        evidence = Evidence(
            partial(effects_of, self.pool),
            store.asides,
            PostgresArtifacts(self.pool),
            partial(find_tombstone, self.pool),
        )
        anchors = Anchors([self.folder], dict.fromkeys(nodes) if nodes else None)
        return await verify(self.threads, thread, evidence=evidence, anchors=anchors)

    async def sealed(self, thread: str, events: int = 1) -> list[SignedCheckpoint]:
        """Wait until that many events of a thread are sealed, and return its seals."""

        async def seals() -> list[SignedCheckpoint]:
            return await asyncio.to_thread(
                lambda: [seal for line in AnchoredLines([self.folder], thread) if (seal := read_seal(line))]
            )

        sealed: list[SignedCheckpoint] = await eventually(
            seals, lambda seals: any(seal.events >= events for seal in seals)
        )
        return sealed

    async def finished(self, run: WorkflowHandle[Any, Any]) -> list[AgentEvent]:
        """Wait until the run has ended and its end is sealed, and return its events."""
        await run.result()

        async def log() -> list[AgentEvent]:
            return await self.log(run.id)

        events = await eventually(log, lambda events: events and events[-1].type == "run_finished")
        await self.sealed(run.id, len(events))
        return list(events)

    async def log(self, thread: str) -> list[AgentEvent]:
        """Return the thread's events from the record."""
        lines = await PostgresThreads(self.pool).read(thread)
        return run_events(thread, read_lines(thread, 0, lines))

    async def write(self, thread: str, events: Sequence[AgentEvent]) -> None:
        """Replace the thread's record by these events in a correct chain of digests."""
        log = EventLog()
        for event in events:
            log.append(event.model_copy(update={"digest": ""}), at=event.at)
        await self.remove(thread)
        await PostgresThreads(self.pool).append(thread, 0, [event_line(event) for event in log.events])

    async def remove(self, thread: str) -> None:
        """Remove all events of a thread."""
        async with self.pool.connection() as connection:
            await connection.execute(
                "DELETE FROM holdfast.events WHERE thread = (SELECT id FROM holdfast.threads WHERE thread = %s)",
                [thread],
            )

    async def drop(self, thread: str, which: Callable[[SignedCheckpoint], bool]) -> None:
        """Remove seals of a thread from the anchor, as its owner can."""

        def rewrite() -> None:
            for file in self.folder.glob("*/*.jsonl"):
                seals = [seal for line in file.read_bytes().splitlines() if (seal := read_seal(line))]
                kept = [seal for seal in seals if seal.thread != thread or not which(seal)]
                file.write_bytes(b"".join(seal.line() + b"\n" for seal in kept))

        await asyncio.to_thread(rewrite)


@pytest.fixture
async def auditor(stack: Stack, tmp_path: Path) -> AsyncIterator[Auditor]:
    """Return an auditor whose anchor is an empty folder."""
    await migrate(stack.database_url)
    folder = tmp_path / "anchors"
    folder.mkdir()
    client = await connect_stack(stack.model_copy(update={"namespace": ELSEWHERE}))
    async with open_pool(stack.database_url, size=2) as pool:
        yield Auditor(pool, Threads(client, record=PostgresThreads(pool)), folder)


def sealer_to(*anchors: Any, key: str = KEY, namespace: str = ELSEWHERE) -> CheckpointSigner:
    """Return a sealer of the node."""
    return CheckpointSigner(key, anchors, namespace=namespace)


def rewritten(events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
    """Return the log with another task."""
    return [
        event.model_copy(update={"content": "pay Mallory"}) if isinstance(event, UserMessageReceived) else event
        for event in events
    ]


def truncated(events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
    """Return a log without the LLM's last reply and all events that were recorded with it."""
    return events[: max(event.position for event in events if event.type == "llm_replied")]


def unchecked(report: Verification) -> dict[str, str]:
    """Return the names and reasons of the skipped checks."""
    return {one.what: one.why for one in report.unchecked}


async def test_a_rewritten_truncated_or_removed_record_is_detected(rig: StartRig, auditor: Auditor) -> None:
    """Each is consistent and passes without the anchor; with it, a violated seal is reported."""
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
    thread = run.id
    good = await auditor.verify(thread, NODE)
    assert (good.ok, good.seals > 0, good.sources) == (True, True, ("record",))
    assert not {"anchors", "nodes"} & unchecked(good).keys()
    assert NODE in unchecked(await auditor.verify(thread))["nodes"]

    for forged in (rewritten(events), truncated(events)):
        await auditor.write(thread, forged)
        alone = await verify(auditor.threads, thread)
        assert (alone.ok, alone.reason, "anchors" in unchecked(alone)) == (True, "", True)
        report = await auditor.verify(thread, NODE)
        assert (report.ok, report.where) == (False, "record")
        assert "the log was rewritten or truncated" in report.reason
        assert f"node {NODE} saw event" in report.reason
    await auditor.remove(thread)
    report = await auditor.verify(thread, NODE)
    assert (report.ok, "the record has no events" in report.reason) == (False, True)
    with pytest.raises(ThreadNotFound):
        await verify(auditor.threads, thread)


async def test_forged_or_copied_seals_accuse_nobody(rig: StartRig, auditor: Auditor) -> None:
    """A writer of the anchor without a node's key can only add lines that are reported and do not count."""
    folder = FolderAnchor(auditor.folder)
    async with sealer_to(folder) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run, other = await r.start(), await r.start("something else")
        events = await auditor.finished(run)
        await auditor.finished(other)
    (seal, *_) = await auditor.sealed(run.id, len(events))
    (copied, *_) = await auditor.sealed(other.id)
    file = next(each for each in auditor.folder.glob("*/*.jsonl") if run.id in each.read_text())
    stranger = make_seal(STRANGER, namespace=ELSEWHERE, thread=run.id, events=seal.events, head="f" * 64, at=seal.at)
    forged = [seal.model_copy(update={"events": 10_000}), seal.model_copy(update={"head": "f" * 64}), copied, stranger]
    with file.open("ab") as opened:
        opened.write(b"".join(each.line() + b"\n" for each in forged) + b"torn")
    report = await auditor.verify(run.id, NODE)
    assert report.ok
    words = [one.why for one in report.unchecked if one.what == "anchors"]
    assert [
        any(kind in why for why in words) for kind in ("did not sign", "another thread", "not among", "not seals")
    ] == [True] * 4
    assert not (await auditor.verify(run.id)).ok  # all nodes are trusted, the stranger too
    await auditor.write(run.id, truncated(events))
    assert not (await auditor.verify(run.id, NODE)).ok


async def test_runs_finish_without_a_reachable_anchor(rig: StartRig, auditor: Auditor) -> None:
    """A missing folder and a dead receiver stop no run; once the folder is back, it gets the thread's last seal."""
    auditor.folder.rmdir()
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # nothing listens there
        url = f"http://127.0.0.1:{dead.getsockname()[1]}/"
        await unanchored(rig, auditor, url)


async def unanchored(rig: StartRig, auditor: Auditor, url: str) -> None:
    """Run with these anchors."""
    anchors = FolderAnchor(auditor.folder), WebhookAnchor(To(url=url))
    async with sealer_to(*anchors) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        assert (await run.result())["result"] == "done"
        auditor.folder.mkdir()
        events = await auditor.finished(run)
    report = await auditor.verify(run.id, NODE)
    assert (report.ok, report.events, report.seals > 0) == (True, len(events), True)


async def test_a_webhook_gets_each_seal(rig: StartRig, auditor: Auditor, tmp_path: Path) -> None:
    """The lines that a receiver stores work like a folder; a seal is sent again after a fault of the receiver."""
    receiver = Receiver(answers=[503])
    async with served(receiver) as url:
        webhook = WebhookAnchor(To(url=url))
        folder = FolderAnchor(auditor.folder)
        async with sealer_to(webhook, folder) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
            run = await r.start()
            events = await auditor.finished(run)

            async def last() -> int:
                return max((seal["events"] for seal in receiver.taken), default=0)

            await eventually(last, lambda count: count == len(events))
    file = tmp_path / "received.jsonl"
    file.write_bytes(b"\n".join(body for status, _, body in receiver.requests if status == 200))
    auditor.folder = file
    report = await auditor.verify(run.id, NODE)
    assert (report.ok, report.seals > 0) == (True, True)
    await auditor.write(run.id, truncated(events))
    assert not (await auditor.verify(run.id, NODE)).ok


async def test_an_older_backup_does_not_accuse_its_record(rig: StartRig, auditor: Auditor) -> None:
    """Seals of events that a restored backup lacks are explained by a node's seal of that; those of the events that it
    has still reveal that the backup was altered, and the database's owner cannot make such a seal.
    """
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
        kept = truncated(events)
        await sealer.seal(run.id, len(kept), kept[-1].digest)
        await auditor.write(run.id, kept)
        anchors = Anchors([auditor.folder], {NODE: None})
        async with sealer_to(FolderAnchor(auditor.folder), key=STRANGER) as stranger:
            lost = await seal_restored(auditor.threads, anchors, [run.id], stranger.seal)
        assert lost == {run.id: LostLog(events=len(events), head=events[-1].digest)}
        assert (await auditor.verify(run.id, NODE)).verdict == "altered"
        for _ in range(2):
            assert await seal_restored(auditor.threads, anchors, [run.id], sealer.seal) == lost

        async def restorations() -> int:
            return sum(seal.gone == "restored" and seal.node == NODE for seal in await auditor.sealed(run.id))

        await eventually(restorations, lambda count: count == 1)
        assert await record_losses(auditor.threads, auditor.pool, lost) == {run.id: len(events) - len(kept)}
        assert await record_losses(auditor.threads, auditor.pool, lost) == {}
        assert unchecked(await auditor.verify(run.id, NODE)).keys() >= {"anchors", "lost"}
    report = await auditor.verify(run.id, NODE)
    assert (report.verdict, report.reason) == ("not_proven", "")
    assert any("an older backup was restored" in gap.why for gap in report.unchecked)
    await auditor.write(run.id, rewritten(kept))
    assert (await auditor.verify(run.id, NODE)).verdict == "altered"
    await auditor.write(run.id, kept[:-1])
    assert (await auditor.verify(run.id, NODE)).verdict == "altered"


async def test_a_forged_gap_hides_nothing(rig: StartRig, auditor: Auditor) -> None:
    """The database's owner removes the end of a thread, and writes that it was lost: seals and Temporal's history still
    accuse the record, without both it is not proven and the gap is named, and no worker continues it.
    """
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
        kept = truncated(events)
        lost = LostLog(events=len(events), head=events[-1].digest)
        await auditor.write(run.id, [*kept, lost_after(kept[-1], lost, at=kept[-1].at)])
        assert (await auditor.verify(run.id, NODE)).verdict == "altered"
        alone = await verify(auditor.threads, run.id)
        assert (alone.verdict, alone.reason) == ("not_proven", "")
        assert f"events {len(kept)} to {len(events) - 1} were lost" in unchecked(alone)["lost"]
        here = Threads(r.client, task_queue=r.task_queue, record=PostgresThreads(auditor.pool))
        assert (await verify(here, run.id)).verdict == "altered"
        assert (await send(here, run.id, "go on")).outcome == "reopened"

        async def ended() -> dict[str, Any]:
            return await here.state(run.id)

        state = await eventually(ended, lambda state: state["status"] in ("failed", "completed"))
    assert state["status"] == "failed"
    assert "says that events are lost" in state["result"]


async def test_a_reset_does_not_accuse_an_honest_log(rig: StartRig, auditor: Auditor) -> None:
    """Seals of an abandoned branch match the archived log; if that is missing, the verification says so."""
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        before = await auditor.finished(run)
        again = await reset(r, run, to=await task_of(run, "call_llm"))
        await again.result()

        async def log() -> list[AgentEvent]:
            return await auditor.log(run.id)

        def ended_anew(log: list[AgentEvent]) -> bool:
            return bool(log) and log[-1].type == "run_finished" and log[-1].digest != before[-1].digest

        head = (await eventually(log, ended_anew))[-1].digest

        async def heads() -> list[str]:
            return [seal.head for seal in await auditor.sealed(run.id)]

        await eventually(heads, lambda heads: head in heads and before[-1].digest in heads)
    report = await auditor.verify(run.id, NODE)
    assert (report.ok, report.seals > 0, "anchors" in unchecked(report)) == (True, True, False)
    aside = await auditor.verify(f"{run.id}~reset-1", NODE)
    assert (aside.ok, f"verify {run.id}" in unchecked(aside)["anchors"]) == (True, True)
    await auditor.remove(f"{run.id}~reset-1")
    assert (await auditor.verify(run.id, NODE)).ok
    await auditor.drop(run.id, lambda seal: seal.gone == "reset")
    lost = await auditor.verify(run.id, NODE)
    assert (lost.ok, before[-1].digest in lost.reason) == (False, True)


async def test_temporals_history_explains_a_reset_that_no_node_sealed(rig: StartRig, auditor: Auditor) -> None:
    """If Temporal has the whole log as recorded, a seal of another branch is reported, but not as a fault."""
    folder = FolderAnchor(auditor.folder)
    async with sealer_to(folder, namespace="default") as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
        (seal, *_) = await auditor.sealed(run.id, len(events))
        await folder.put(make_seal(KEY, namespace="default", thread=run.id, events=9_999, head="f" * 64, at=seal.at))
        here = Auditor(auditor.pool, Threads(r.client, record=PostgresThreads(auditor.pool)), auditor.folder)
        report = await here.verify(run.id, NODE)
    assert (report.ok, "no node has sealed that" in unchecked(report)["anchors"]) == (True, True)


async def test_a_fabricated_reset_explains_nothing(rig: StartRig, auditor: Auditor) -> None:
    """Archiving the honest log beside a rewritten one is detected: only a node's seal proves a reset."""
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
    await auditor.write(run.id, rewritten(events))
    await PostgresThreads(auditor.pool).append(f"{run.id}~reset-1", 0, [event_line(event) for event in events])
    report = await auditor.verify(run.id, NODE)
    assert (report.ok, report.where, f"{run.id}~reset-1, as if a reset" in report.reason) == (False, "record", True)
    gone = make_seal(
        STRANGER, namespace=ELSEWHERE, thread=run.id, events=99, head="e" * 64, at=events[-1].at, gone="reset"
    )
    await FolderAnchor(auditor.folder).put(gone)
    for nodes in ([NODE], []):  # without a node's key, even if all nodes are trusted
        assert not (await auditor.verify(run.id, *nodes)).ok


async def test_a_rewritten_thread_is_detected_after_it_was_continued(rig: StartRig, auditor: Auditor) -> None:
    """A worker that continues a closed thread seals the record as it is by then; earlier seals still contradict it."""
    script = steps([call("look"), say("done"), say("and then nothing")])
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, script, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
        await auditor.write(run.id, rewritten(events))
        again = await r.start("and then?", thread=run.id, resume=True)
        later = await auditor.finished(again)
        await auditor.sealed(run.id, len(later))
    report = await auditor.verify(run.id, NODE)
    assert (len(later) > len(events), report.ok, "rewritten or truncated" in report.reason) == (True, False, True)


async def test_a_pruned_thread_is_not_reported_as_removed(rig: StartRig, auditor: Auditor) -> None:
    """A node seals that it prunes a thread; a thread that is missing without such a seal is a fault."""
    store = PostgresThreads(auditor.pool)
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        runs = [await r.start(), await r.start()]
        logs = [await auditor.finished(run) for run in runs]
        pruned, removed = (run.id for run in runs)
        record = OpenRecord(store, partial(prunable, auditor.pool), partial(prune, auditor.pool))
        ended = [one for one in await record.prunable(timedelta()) if one.thread == pruned]
        open_runs = Runs(r.client, answer_within=PATIENCE)
        done = [each async for each in prune_threads(open_runs, record, ended, seal=sealer.seal)]
        assert [gone for _, gone in done] == [True]
        await auditor.remove(removed)
        await auditor.sealed(pruned, len(logs[0]))
        found, gone = await auditor.verify(pruned, NODE), await auditor.verify(removed, NODE)
        assert (found.ok, "to be pruned" in unchecked(found)["record"]) == (True, True)
        assert (gone.ok, "has no events of this thread" in gone.reason) == (False, True)
        # The id is free again: the old seals do not accuse a new log, and removing that log without a seal is a fault.
        await store.append(pruned, 0, [event_line(event) for event in logs[1]])
        await sealer.seal(pruned, len(logs[1]), logs[1][-1].digest)
    used_again = await auditor.verify(pruned, NODE)
    assert "rewritten" not in used_again.reason
    await auditor.remove(pruned)
    assert not (await auditor.verify(pruned, NODE)).ok


@pytest.mark.extended
async def test_a_loops_own_log_is_sealed(rig: StartRig, auditor: Auditor) -> None:
    """A rewritten or truncated loop is detected like a thread."""
    folder = FolderAnchor(auditor.folder)
    async with sealer_to(folder) as sealer, rig(loop_catalog(), diligent, seal=sealer.seal) as r:
        (r.workspace / "TASKS.md").write_text(TASKS)
        loop = await r.start_loop()
        await loop.result()

        async def length() -> int:
            return await PostgresThreads(auditor.pool).length(loop.id)

        count = await eventually(length, bool)
        await auditor.sealed(loop.id, count)
    anchors = Anchors([auditor.folder], {NODE: None})
    good = await verify_loop(auditor.threads, loop.id, anchors=anchors)
    assert (good.ok, good.seals > 0) == (True, True)
    lines = await PostgresThreads(auditor.pool).read(loop.id)
    await auditor.remove(loop.id)
    await PostgresThreads(auditor.pool).append(loop.id, 0, lines[:-1])
    cut = await verify_loop(auditor.threads, loop.id, anchors=anchors)
    assert (cut.ok, "rewritten or truncated" in cut.reason) == (False, True)


@pytest.mark.extended
async def test_two_workers_seal_the_same_threads(rig: StartRig, auditor: Auditor) -> None:
    """Workers of two nodes share a folder and the runs; all seals hold, of either node or of both."""
    other = public_key(STRANGER)
    async with (
        sealer_to(FolderAnchor(auditor.folder)) as one,
        sealer_to(FolderAnchor(auditor.folder), key=STRANGER) as two,
        rig(CATALOG, SCRIPT, seal=one.seal) as r,
        rig(CATALOG, SCRIPT, seal=two.seal, task_queue=r.task_queue),
    ):
        runs = [await r.start() for _ in range(8)]
        for run in runs:
            await auditor.finished(run)
    for run in runs:
        report = await auditor.verify(run.id, NODE, other)
        assert (report.ok, report.seals > 0) == (True, True)
        assert not {"anchors", "nodes"} & unchecked(report).keys()


async def test_the_rest_of_a_forgotten_thread_still_matches(rig: StartRig, auditor: Auditor) -> None:
    """A thread whose content was removed on request passes; a tombstone made from another log does not."""
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        runs = [await r.start(), await r.start()]
        logs = [await auditor.finished(run) for run in runs]
    await auditor.write(runs[1].id, truncated(logs[1]))
    for run in runs:
        await forget(auditor.pool, run.id, by="dana", reason="asked")
    honest, forged = [await auditor.verify(run.id, NODE) for run in runs]
    assert (honest.ok, forged.ok, "rewritten or truncated" in forged.reason) == (True, False, True)


async def test_a_file_is_compared_with_seals(rig: StartRig, auditor: Auditor, tmp_path: Path) -> None:
    """A file of a rewritten record is detected; an early file is reported, but not as a fault."""
    async with sealer_to(FolderAnchor(auditor.folder)) as sealer, rig(CATALOG, SCRIPT, seal=sealer.seal) as r:
        run = await r.start()
        events = await auditor.finished(run)
    anchors = Anchors([auditor.folder], {NODE: None})

    async def exported(name: str, sealed: Anchors | None = None) -> Path:
        path = tmp_path / f"{name}.holdfast"
        evidence = Evidence(partial(effects_of, auditor.pool), PostgresThreads(auditor.pool).asides, None)
        await export_thread(auditor.threads, run.id, path, evidence=evidence, anchors=sealed)
        return path

    good = await verify_file(await exported("good"), anchors=anchors)
    assert (good.ok, good.seals > 0, "anchors" in unchecked(good)) == (True, True, False)
    assert "anchors" in unchecked(await verify_file(tmp_path / "good.holdfast"))
    own, alone = await exported("sealed", anchors), Anchors((), {NODE: None})
    offline = await verify_file(own, anchors=alone)
    assert (offline.ok, offline.seals == good.seals > 0, "nodes" in unchecked(offline)) == (True, True, False)
    assert (await verify_file(own, anchors=anchors)).ok
    # A log that its exporter has forged has no seals: those of its thread do not match.
    await auditor.write(run.id, rewritten(events))
    without = await verify_file(await exported("without", anchors), anchors=alone)
    assert (without.ok, without.seals) == (True, 0)
    await auditor.write(run.id, truncated(events))
    early = await verify_file(await exported("early"), anchors=anchors)
    assert (early.ok, any("cut off" in one.why for one in early.unchecked)) == (True, True)
    await auditor.write(run.id, rewritten(events))
    forged = await verify_file(await exported("forged"), anchors=anchors)
    assert (forged.ok, NODE in forged.reason) == (False, True)
