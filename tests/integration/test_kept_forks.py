"""Forks are exported, backed up, and kept when the original is forgotten."""

import json
from functools import partial
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from holdfast.activities.record.thread_past import forked_lines
from holdfast.audit.evidence.verify import verify
from holdfast.client.forks import fork
from holdfast.client.interventions import intervene
from holdfast.composition.stores import Stores, collect_evidence
from holdfast.config.stack_file import Stack
from holdfast.core.log.events import AgentEvent
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.run.contracts.error_types import RECORD_UNREADABLE
from holdfast.errors import ThreadForgotten
from holdfast.portable.export import export_thread
from holdfast.portable.verify import verify_file
from holdfast.retention.backup import back_up
from holdfast.retention.forget import forget_thread
from holdfast.retention.restore import restore
from holdfast.retention.source import Source
from holdfast.storage.artifacts import PostgresArtifacts
from holdfast.storage.in_memory.record import InMemoryThreads
from holdfast.storage.pool import open_pool
from holdfast.storage.threads import PostgresThreads
from tests.integration.test_forks import catalog, forked, lines_of, original, position_of, threads_of, work
from tests.support.keeping import new_pool
from tests.support.portable_files import independent, parts_of, rebuilt
from tests.support.rig import StartRig, status_of


@pytest.mark.extended
async def test_a_fork_is_kept_under_its_own_id_and_outlives_its_original(
    rig: StartRig, stack: Stack, tmp_path: Path
) -> None:
    """A fork's file verifies under its own id only. A backup has it, and it stays when its original is forgotten."""
    async with rig(catalog(), work) as started, open_pool(stack.database_url, size=3) as pool:
        store, artifacts = PostgresThreads(pool), PostgresArtifacts(pool)
        threads, evidence = threads_of(started), collect_evidence(store, pool, artifacts)
        thread = await original(started)
        done, run = await forked(started, thread, at=await position_of(started, thread, "tool_call_finished"))
        state = await status_of(run, "waiting_approval")
        await intervene(threads, done.thread, "lift", {"constraint": 0, "by": "dana"})
        await run.signal("approve", {"request": state["pending"][0]["request"], "by": "dana"})
        await run.result()
        lines = await lines_of(started, done.thread)

        path = tmp_path / "fork.holdfast"
        await export_thread(threads, done.thread, path, evidence=evidence)
        report = await verify_file(path)
        assert (report.ok, report.reason, report.events) == (True, "", len(lines))
        assert independent().verify(path)[1:3] == (len(lines), json.loads(lines[-1])["digest"])
        path.write_bytes(rebuilt(parts_of(path.read_bytes()), None, thread=thread))
        assert f"belongs to thread {done.thread!r}" in (await verify_file(path)).reason

        async with new_pool(stack.database_url) as (url, one), new_pool(stack.database_url) as (_, other):
            await PostgresThreads(one).append(done.thread, 0, lines)
            await back_up(url, tmp_path / "backup", artifacts=None)
            await restore(Source(tmp_path / "backup"), other, PostgresArtifacts(other))
            assert await PostgresThreads(other).read(done.thread) == lines

        stores = Stores(store, artifacts, None)
        forget = partial(forget_thread, threads, pool, stores, by="ann", reason="asked to")
        await forget(thread)
        with pytest.raises(ThreadForgotten):
            await fork(threads, thread)
        verified = await verify(threads, done.thread, evidence=evidence)
        assert (verified.ok, verified.reason) == (True, "")
        again, run = await forked(started, done.thread, at=4, say="go on")
        assert (await status_of(run, "waiting_approval", "completed"))["fork"]["thread"] == done.thread
        assert (await lines_of(started, again.thread))[:5] == lines[:5]


async def test_a_fork_of_a_thread_forgotten_meanwhile_fails_permanently() -> None:
    """The error is non-retryable: Temporal would retry any other one forever."""

    class Forgotten(InMemoryThreads):
        async def read(self, thread: str, start: int = 0) -> list[bytes]:
            raise ThreadForgotten(f"thread {thread!r} was forgotten")

    async def past(thread: str, start: int) -> list[AgentEvent]:
        return []

    with pytest.raises(ApplicationError, match="was forgotten") as failed:
        await forked_lines(Forgotten(), ForkPoint(thread="t", position=3, head=64 * "0"), past)
    assert (failed.value.type, failed.value.non_retryable) == (RECORD_UNREADABLE, True)
