"""The log of a loop on a real server: its events, their copy in the record, and how it reveals alterations."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from holdfast.activities.record.loop_record import LoopRecord
from holdfast.audit.evidence.loops import verify_loop
from holdfast.client.follow import follow
from holdfast.client.loops import loop_state_at, steer
from holdfast.client.threads import Threads
from holdfast.core.base.canonical import GENESIS, canonical
from holdfast.core.budget.tree import TreeCost
from holdfast.core.log.event_log import digest_after, first_altered
from holdfast.core.log.loop_events import StoredEvent
from holdfast.core.log.stored_lines import read_lines
from holdfast.core.log.upcasters import decode_event, decode_loop_event
from holdfast.core.loop.evolve import evolve
from holdfast.core.loop.state import LoopLimits, LoopState
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW
from holdfast.core.run.inputs.pause import PAUSES
from holdfast.core.run.rules.refusals import RECORDED
from holdfast.core.stores import ThreadStore
from holdfast.errors import EventUnreadable
from holdfast.testing import hang, say
from tests.support.rig import Rig, StartRig, answer_of, eventually, reset, status_of
from tests.workflow.test_agent_loop import BY, TASKS, catalog, diligent, replays

Handle = WorkflowHandle[Any, Any]

ITERATION = ["workspace_surveyed", "iteration_started", "iteration_ended"]


async def recorded_events(rig: Rig, loop: str) -> list[StoredEvent]:
    """Return a loop's events from the permanent record, after checking their chain."""
    lines: list[bytes] = []
    while page := await rig.threads.read(loop, len(lines)):
        lines += page
    events = read_lines(loop, 0, lines)
    assert first_altered(events) is None
    return events


def kinds(events: list[StoredEvent]) -> list[str]:
    """Return the types of events, in order."""
    return [event.type for event in events]


def client_of(rig: Rig, record: ThreadStore | None = None) -> Threads:
    """Return a client of the rig's threads and record."""
    return Threads(rig.client, task_queue=rig.task_queue, record=record or rig.threads)


async def test_a_loop_records_all_that_it_does(rig: StartRig) -> None:
    """The record has every event of a loop, its state is a fold over them, and each iteration's log is bound to it."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop(limits=LoopLimits(iterations=1))
        await status_of(handle, "blocked")
        await handle.execute_update("retry", {"by": "alice", "reason": "go on"})
        await handle.result()
        events = await recorded_events(at_work, handle.id)
        assert kinds(events) == [
            "loop_started",
            *ITERATION,
            *("workspace_surveyed", "run_blocked", "run_unblocked"),
            *ITERATION,
            *("workspace_surveyed", "run_finished"),
        ]
        state = LoopState(thread=handle.id)
        for event in events:
            state = evolve(state, decode_loop_event(json.dumps(event.model_dump(mode="json"))))
        assert state.view() == await handle.query("state")
        ends = [event for event in events if event.type == "iteration_ended"]
        assert [event.commits[0].split(" ", 1)[1] for event in ends] == ["Complete: one", "Complete: two"]
        for number, event in enumerate(ends):
            run = await recorded_events(at_work, f"{handle.id}-{number}")
            assert (event.log_events, event.log_head) == (len(run), run[-1].digest)
        result = await verify_loop(client_of(at_work), handle.id)
        assert (result.ok, result.sources, result.events) == (True, ("history", "record"), len(events))
        await replays(at_work.client, handle)


@pytest.mark.slow
async def test_the_log_costs_a_loop_no_event_per_iteration(rig: StartRig) -> None:
    """The events travel with the surveys: a whole loop makes one further activity, at its end."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        await handle.result()
        history = await handle.fetch_history()
        activity_types = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
        assert {name: activity_types.count(name) for name in activity_types if name} == {
            "survey_workspace": 3,
            "settle_iteration": 2,
            "archive_loop": 1,
        }


@pytest.mark.extended
async def test_a_running_loop_shows_its_log(rig: StartRig) -> None:
    """`log` gets unwritten events from the worker; `--follow` continues to the end."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        threads = client_of(at_work)
        followed = [event async for event in follow(threads, handle.id, loops=True)]
        assert [event["position"] for event in followed] == list(range(len(followed)))
        assert followed[-1]["type"] == "run_finished"
        begun = await loop_state_at(threads, handle.id, 2, found=await threads.reader.find(handle.id, loops=True))
        assert (begun["status"], begun["step"]) == ("running", 1)


@pytest.mark.slow
async def test_a_loop_is_paused_like_a_run(rig: StartRig) -> None:
    """A pause has a reason and an end, at which the loop resumes by itself; outcomes are those of a run."""

    async def answer(handle: Handle, name: str, payload: Any) -> str:
        return str((await answer_of(handle.execute_update(name, payload)))["outcome"])

    async with rig(catalog(), diligent) as at_work:
        handle = await at_work.start_loop()  # there is no source for a plan, so it is blocked
        await status_of(handle, "blocked")
        assert await answer(handle, "resume", BY) == "not_paused"
        until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert await answer(handle, "pause", {**BY, "until": until, "reason": "lunch"}) == "accepted"
        assert await answer(handle, "pause", {**BY, "until": until, "reason": "lunch"}) == "duplicate"
        assert await answer(handle, "pause", {**BY, "seconds": -1}) == "malformed"
        assert await answer(handle, "pause", {**BY, "until": "2020-01-01T00:00:00Z"}) == "too_late"
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        assert await answer(handle, "retry", BY) == "accepted"
        assert await answer(handle, "retry", BY) == "not_blocked"
        state = await status_of(handle, "paused")
        assert (state["paused"]["reason"], state["paused"]["by"]) == ("lunch", "alice")
        changed = await steer(
            client_of(at_work), handle.id, "pause", by="bob", until=datetime.now(UTC) + timedelta(seconds=10)
        )
        assert changed.outcome == "accepted"
        assert (await handle.result()).tasks == 1
        events = await recorded_events(at_work, handle.id)
        ends = [event for event in events if event.type == "run_resumed"]
        assert [event.by for event in ends] == [""]
        assert (await verify_loop(client_of(at_work), handle.id)).ok
        await replays(at_work.client, handle)


@pytest.mark.extended
async def test_a_cancelled_loop_records_its_end(rig: StartRig) -> None:
    """The end of the stopped iteration and of the loop are in the record when it is closed."""
    async with rig(catalog(), lambda conversation: hang()) as at_work:
        (at_work.workspace / "TASKS.md").write_text(TASKS)
        handle = await at_work.start_loop()
        await eventually(lambda: asyncio.sleep(0, len(at_work.llm.requests)), bool)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        events = await recorded_events(at_work, handle.id)
        assert kinds(events)[-2:] == ["iteration_ended", "run_finished"]
        assert (await verify_loop(client_of(at_work), handle.id)).ok


@pytest.mark.slow
async def test_a_log_continues_with_the_loop_as_new(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several Temporal runs a loop has one log, whose chain the record and the histories share."""
    monkeypatch.setattr("holdfast.workflows.agent_loop.HISTORY_EVENTS", 40)
    titles = [f"task {number}" for number in range(4)]
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("".join(f"- [ ] {title}\n" for title in titles))
        handle = await at_work.start_loop()
        await handle.result()
        events = await recorded_events(at_work, handle.id)
        assert kinds(events).count("run_continued") >= 1
        assert kinds(events).count("iteration_ended") == 4
        result = await verify_loop(client_of(at_work), handle.id)
        assert (result.ok, result.unchecked) == (True, ())


@pytest.mark.slow
async def test_a_reset_loop_continues_its_log(rig: StartRig) -> None:
    """A reset archives the branch that it abandons; the log continues from the event at which the loop was reset."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop()
        await handle.result()
        abandoned = await recorded_events(at_work, handle.id)
        completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        tasks = [event.event_id for event in (await handle.fetch_history()).events if event.event_type == completed]
        again = await reset(at_work, handle, to=tasks[1])
        await again.result()
        events = await recorded_events(at_work, handle.id)
        assert (events[0], events[-1].type) == (abandoned[0], "run_finished")
        assert await recorded_events(at_work, f"{handle.id}~reset-1") == abandoned
        result = await verify_loop(client_of(at_work), handle.id)
        assert (result.ok, result.reason) == (True, "")


# Attacks.


async def test_a_forged_log_in_a_plain_start_is_rejected(rig: StartRig) -> None:
    """Anybody can start a workflow: one whose input includes a log fails at once, and nothing is written."""
    async with rig(catalog(), diligent) as at_work:
        forged = {"workspace": "/", "log": {"start": 3, "events": [{"type": "made up"}]}, "state": {"thread": "x"}}
        name = f"forged-{at_work.task_queue}"
        handle: Handle = await at_work.client.start_workflow(
            LOOP_WORKFLOW, forged, id=name, task_queue=at_work.task_queue
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await handle.result()
        assert isinstance(failed.value.cause, ApplicationError)
        assert failed.value.cause.type == "StartRefused"
        assert await at_work.threads.length(name) == 0


@pytest.mark.extended
async def test_a_flood_of_signals_is_bounded(rig: StartRig) -> None:
    """Signals from anybody grow the log by a bounded number of events; their content is not kept."""
    async with rig(catalog(), diligent) as at_work:
        handle = await at_work.start_loop()
        await status_of(handle, "blocked")
        sent = [handle.signal("resume", {"by": "m" * 500, "reason": "x" * 20_000}) for _ in range(RECORDED + 60)]
        await asyncio.gather(*sent)
        paused = [handle.signal("pause", {"by": "m", "reason": str(number)}) for number in range(PAUSES + 10)]
        await asyncio.gather(*paused)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        events = await recorded_events(at_work, handle.id)
        counts = {kind: kinds(events).count(kind) for kind in ("signal_rejected", "run_paused")}
        assert counts["run_paused"] == PAUSES
        assert counts["signal_rejected"] <= RECORDED
        assert sum(event.count for event in events if event.type == "refusals_counted") >= 60
        assert max(len(event.model_dump_json()) for event in events if event.type == "signal_rejected") < 1_500


def outcome_changed(line: bytes) -> bytes:
    """Return an event with another outcome of an iteration."""
    return line.replace(b'"outcome":"completed"', b'"outcome":"failed"')


def task_changed(line: bytes) -> bytes:
    """Return an event with another task of an iteration."""
    return line.replace(b'"task":"one"', b'"task":"two"')


class AlteredStore:
    """A record in which somebody has changed lines, and recomputed the chain from there on."""

    def __init__(self, store: ThreadStore, change: Callable[[bytes], bytes], *, again: bool) -> None:
        self._store, self._change, self._again = store, change, again

    async def read(self, thread: str, start: int = 0) -> list[bytes]:
        """Return the altered lines."""
        lines = [self._change(line) for line in await self._store.read(thread, 0)]
        if self._again:
            head = GENESIS
            for index, line in enumerate(lines):
                event = json.loads(line)
                head = digest_after(head, event)
                lines[index] = canonical({**event, "digest": head})
        return lines[start:]

    async def length(self, thread: str) -> int:
        """Return the number of lines."""
        return await self._store.length(thread)

    async def append(self, thread: str, start: int, lines: Any) -> None:
        """Refuse to write."""
        raise AssertionError


async def test_verify_names_the_first_altered_event(rig: StartRig) -> None:
    """A forged result of an iteration in the database is named, even if the whole chain was recomputed."""
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop()
        await handle.result()
        for change, position in ((task_changed, 2), (outcome_changed, 3)):
            for again in (False, True):
                altered = client_of(at_work, AlteredStore(at_work.threads, change, again=again))
                result = await verify_loop(altered, handle.id)
                assert (result.ok, result.where, result.position) == (False, "record", position)


@pytest.mark.extended
@pytest.mark.parametrize("lies", [False, True])
async def test_verify_compares_an_iterations_cost_with_its_own_log(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch, lies: bool
) -> None:
    """`verify` detects a worker that settles less than the log of the iteration's thread has."""

    async def nothing(record: LoopRecord, thread: str, run_id: str) -> TreeCost:
        return TreeCost(steps=1, tokens=1)

    if lies:
        monkeypatch.setattr(LoopRecord, "spent_by", nothing)
    async with rig(catalog(), diligent) as at_work:
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop(limits=LoopLimits(tokens=1_000_000))
        await handle.result()
        result = await verify_loop(client_of(at_work), handle.id)
        assert (result.ok, "`spent`" in result.reason, result.position) == (
            (False, True, 3) if lies else (True, False, None)
        )


@pytest.mark.extended
async def test_a_loop_and_a_run_do_not_share_a_log(rig: StartRig, client: Client) -> None:
    """A loop whose id has the log of a run in the record is blocked and says so; the run's log is unchanged."""
    async with rig(catalog(), lambda conversation: say("done")) as at_work:
        await (await at_work.start("first", thread="log-taken")).result()
        lines = await at_work.threads.read("log-taken")
        for number, line in enumerate(lines):
            await at_work.threads.append("log-taken-loop", number, [line])
        (at_work.workspace / "TASKS.md").write_text("- [ ] one\n")
        handle = await at_work.start_loop("log-taken-loop")
        state = await status_of(handle, "blocked")
        assert state["blocked"]["cause"] == "RecordConflict"
        assert "start one of them under another id" in state["blocked"]["message"]
        assert await at_work.threads.read("log-taken-loop") == lines
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()


def test_an_event_of_a_loop_is_no_event_of_a_run() -> None:
    """Neither log is read as the other's, so that no event of one can replace an event of the other."""
    loop = b'{"number":0,"position":2,"schema_version":1,"thread":"l-0","type":"iteration_started"}'
    assert decode_loop_event(loop).type == "iteration_started"
    with pytest.raises(EventUnreadable, match="is no event of an agent run"):
        decode_event(loop)
    run = b'{"message":1,"position":2,"schema_version":1,"type":"message_taken"}'
    with pytest.raises(EventUnreadable, match="is no event of a loop"):
        decode_loop_event(run)
