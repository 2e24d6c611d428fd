"""Attacks on schedules by someone who reaches Temporal's port without a fleet key."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WorkflowFailureError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast import Agent, Catalog
from holdfast.client.connect import connect_stack
from holdfast.client.schedule_definitions import Definition
from holdfast.client.schedule_states import schedule_state
from holdfast.client.schedules import add_schedule, trigger_schedule
from holdfast.client.threads import Threads
from holdfast.config.encryption_keys import EncryptionKey
from holdfast.config.stack_file import Stack
from holdfast.core.mac.seals import LAUNCHER, launcher_prefix
from holdfast.core.run.contracts.error_types import START_REFUSED
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW, WORKFLOW
from holdfast.encryption.codec import EncryptionCodec
from holdfast.testing import say
from tests.support.attacker import reach
from tests.support.rig import Rig, StartRig, eventually, start_rig

CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.")])
MONTHLY = "0 0 1 * *"
AT = "2026-01-02T03:04:05Z"


@pytest.fixture
async def name(client: Client) -> AsyncIterator[str]:
    """Yield a name for a schedule, which is deleted after the test."""
    name = f"inbox-{uuid4().hex[:8]}"
    yield name
    with suppress(RPCError):
        await client.get_schedule_handle(name).delete()


async def added(rig: Rig, name: str) -> Threads:
    """Add Alice's schedule, and return the threads."""
    threads = Threads(rig.client, task_queue=rig.task_queue)
    await add_schedule(threads, name, Definition(task="Sort", cron=MONTHLY, by="alice"))
    return threads


async def not_started(threads: Threads, name: str) -> str:
    """Wait until the last run of a schedule was rejected, and return why."""

    async def last() -> dict[str, Any]:
        runs = (await schedule_state(threads, name))["runs"]
        return dict(runs[0]) if runs else {}

    return str((await eventually(last, lambda run: run.get("status") == "not_started"))["why"])


def input_of(description: ScheduleDescription) -> Payload:
    """Return the sealed input in a schedule."""
    action = description.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    (payload,) = action.args
    assert isinstance(payload, Payload)
    return payload


async def test_an_altered_schedule_starts_nothing(rig: StartRig, stack: Stack, name: str) -> None:
    """Any change to the input in Temporal breaks its seal: no run starts, and `show` says why."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        threads = await added(worker, name)
        attacker = await reach(stack)
        original = input_of(await attacker.get_schedule_handle(name).describe()).data
        for claimed in ({"by": "root"}, {"task": "Steal"}, {"workspace": "/"}, {"until": "2099-01-01T00:00:00Z"}):

            def alter(current: ScheduleUpdateInput, claimed: dict[str, str] = claimed) -> ScheduleUpdate:
                input_of(current.description).data = json.dumps({**json.loads(original), **claimed}).encode()
                return ScheduleUpdate(current.description.schedule)

            await attacker.get_schedule_handle(name).update(alter)
            assert "no valid seal" in (await schedule_state(threads, name))["problem"], claimed
        await attacker.get_schedule_handle(name).trigger()
        assert "no valid seal" in await not_started(threads, name)
        assert worker.llm.requests == []


async def test_a_schedule_made_without_a_key_starts_nothing(rig: StartRig, stack: Stack, name: str) -> None:
    """An attacker's schedule starts nothing, whether it claims to be Alice's or contains a copy of her sealed input."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        threads = await added(worker, name)
        attacker = await reach(stack)
        sealed = RawValue(input_of(await attacker.get_schedule_handle(name).describe()))
        plain = {"task": "Steal", "by": "alice", "sealed": True, "issued_at": "2026-01-01T00:00:00Z"}
        for number, begin in enumerate((plain, sealed)):
            other = f"{name}-{number}"
            action = ScheduleActionStartWorkflow(
                SCHEDULED_WORKFLOW, begin, id=launcher_prefix(other), task_queue=worker.task_queue
            )
            await attacker.create_schedule(other, Schedule(action, ScheduleSpec()), trigger_immediately=True)
            try:
                assert "no valid seal" in await not_started(threads, other)
            finally:
                await attacker.get_schedule_handle(other).delete()
        assert worker.llm.requests == []


async def test_a_sealed_input_starts_only_its_own_schedule(rig: StartRig, stack: Stack, name: str) -> None:
    """A copy starts no agent run, and no launcher with another id; under the launcher's id it is Alice's task."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        await added(worker, name)
        attacker = await reach(stack)
        sealed = RawValue(input_of(await attacker.get_schedule_handle(name).describe()))
        for kind, workflow_id in (
            (WORKFLOW, f"{name}-{AT}"),
            (WORKFLOW, f"{launcher_prefix(name)}-{AT}"),
            (SCHEDULED_WORKFLOW, f"{name}-{AT}-x"),
            (SCHEDULED_WORKFLOW, launcher_prefix(name)),
            (SCHEDULED_WORKFLOW, f"{launcher_prefix(name)}-x-{AT}"),
        ):
            run = await attacker.start_workflow(kind, sealed, id=workflow_id, task_queue=worker.task_queue)
            with pytest.raises(WorkflowFailureError) as failed:
                await run.result()
            assert isinstance(failed.value.cause, ApplicationError)
            assert failed.value.cause.type == START_REFUSED
        assert worker.llm.requests == []
        again = f"{launcher_prefix(name)}-2026-01-02T03:04:06Z"
        await (
            await attacker.start_workflow(SCHEDULED_WORKFLOW, sealed, id=again, task_queue=worker.task_queue)
        ).result()
        task = worker.llm.requests[0].json()["messages"][1]["content"]
        assert task.startswith("Sort")


async def test_a_plain_start_names_no_schedule(rig: StartRig, stack: Stack) -> None:
    """Only a launcher reports that a schedule started a run."""
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        attacker = await reach(stack)
        for claim in ({"schedule": "nightly"}, {"schedule": "nightly", "features": 1}):
            thread = f"nightly-{uuid4().hex[:8]}"
            begin = {"task": "Sort", **claim}
            run = await attacker.start_workflow(WORKFLOW, begin, id=thread, task_queue=worker.task_queue)
            with pytest.raises(WorkflowFailureError) as failed:
                await run.result()
            assert isinstance(failed.value.cause, ApplicationError)
            assert failed.value.cause.type == START_REFUSED


async def test_a_malformed_input_fails_the_launcher_and_blocks_no_worker(rig: StartRig, stack: Stack) -> None:
    """The launcher fails, not its workflow task: a malformed schedule costs one task per due time."""
    malformed: tuple[Any, ...] = (None, "Sort", {"task": {"a": 1}}, {"until": "soon"}, [1, 2], {})
    async with rig(CATALOG, lambda _: say("sorted")) as worker:
        attacker = await reach(stack)
        for begin in malformed:
            run = await attacker.start_workflow(
                SCHEDULED_WORKFLOW, begin, id=f"{LAUNCHER}x-{uuid4().hex[:8]}-{AT}", task_queue=worker.task_queue
            )
            with pytest.raises(WorkflowFailureError) as failed:
                await run.result()
            assert isinstance(failed.value.cause, ApplicationError), begin
            assert failed.value.cause.type == START_REFUSED, begin


async def test_an_encrypted_schedule_runs_and_reveals_nothing(stack: Stack, tmp_path: Any) -> None:
    """With an encryption key, launcher and run decrypt the schedule; Temporal stores none of it in plain text."""
    codec = EncryptionCodec([EncryptionKey("k1", bytes(range(32)), "")])
    ours = await connect_stack(stack, codec=codec)
    name = f"secret-{uuid4().hex[:8]}"
    async with start_rig(
        ours,
        CATALOG,
        lambda _: say("sorted"),
        worker_client=await connect_stack(stack, codec=codec),
        database_url=stack.database_url,
        folder=tmp_path,
    ) as worker:
        threads = Threads(ours, task_queue=worker.task_queue)
        await add_schedule(threads, name, Definition(task="canary", cron=MONTHLY, by="alice", reason="canary"))
        try:
            thread = await trigger_schedule(threads, name)
            assert (await ours.get_workflow_handle(thread).result())["result"] == "sorted"
            assert (await schedule_state(threads, name))["task"] == "canary"
            raw = (await (await reach(stack)).get_schedule_handle(name).describe()).raw_description
            assert b"canary" not in raw.SerializeToString()
            unread = Threads(await connect_stack(stack), task_queue=worker.task_queue)
            assert "HOLDFAST_ENCRYPTION_KEYS" in (await schedule_state(unread, name))["problem"]
        finally:
            await ours.get_schedule_handle(name).delete()
