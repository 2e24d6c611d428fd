"""What somebody with access to Temporal can do to a program's worker that runs agents, and to its workflows."""

from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from holdfast import vouch_for
from holdfast.config.stack_file import Stack
from holdfast.core.run.contracts.called import RESULT, SAY
from holdfast.core.temporal.composed import PROOF
from tests.integration.test_run_agent import new_id, programs_worker
from tests.support.own_workflows import LaunderWorkflow, RawActivity, Research

ALICE = Research(topic="payroll", by="alice")


async def stranger(stack: Stack) -> TemporalClient:
    """Connect as somebody who reaches Temporal, and has no key."""
    return await TemporalClient.connect(stack.temporal_address)


async def started_with(client: TemporalClient, workflow_id: str) -> Payload:
    """Return the payload that a workflow was started with, as anybody can read it."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    (payload,) = history.events[0].workflow_execution_started_event_attributes.input.payloads
    return payload


async def test_a_copied_proof_proves_nobody_elsewhere(stack: Stack, state_folder: Path) -> None:
    """It is bound to the workflow's id and to the whole input: neither another id nor another topic has it."""
    async with programs_worker(stack, state_folder, [LaunderWorkflow]) as (client, queue):
        name, attacker = new_id("own"), await stranger(stack)
        proven = await client.execute_workflow(
            LaunderWorkflow.run, vouch_for("alice", ALICE), id=name, task_queue=queue
        )
        assert proven
        copied = await started_with(attacker, name)
        assert PROOF in copied.metadata
        edited = Payload(metadata=copied.metadata, data=copied.data.replace(b"payroll", b"pay-me!"))
        for payload, workflow_id in ((copied, new_id("other")), (edited, name)):
            answer = await attacker.execute_workflow(
                "LaunderWorkflow", RawValue(payload), id=workflow_id, task_queue=queue, result_type=bool
            )
            assert answer is False


async def test_passing_a_claim_on_does_not_prove_it(stack: Stack, state_folder: Path) -> None:
    """A workflow that continues as new with an input that bore no proof does not give it one."""
    async with programs_worker(stack, state_folder, [LaunderWorkflow]) as (_, queue):
        attacker = await stranger(stack)
        answer = await attacker.execute_workflow(
            "LaunderWorkflow",
            {"topic": "payroll", "by": "alice", "rounds": 2, "issued_at": "2026-01-01T00:00:00Z", "first_run_id": "x"},
            id=new_id("claim"),
            task_queue=queue,
            result_type=bool,
        )
        assert answer is False


async def test_a_proof_outlives_its_run_only_if_it_is_carried(stack: Stack, state_folder: Path) -> None:
    """An input that is passed on unchanged proves nobody in the next run: a foreign workflow could have sent it."""
    async with programs_worker(stack, state_folder, [LaunderWorkflow]) as (client, queue):
        given = vouch_for("alice", ALICE.model_copy(update={"rounds": 2}))
        assert not await client.execute_workflow(LaunderWorkflow.run, given, id=new_id("own"), task_queue=queue)


async def test_only_a_workflow_with_the_key_can_use_the_plugins_activities(stack: Stack, state_folder: Path) -> None:
    """An order without a seal sends no message and reads no thread."""
    async with programs_worker(stack, state_folder, [RawActivity]) as (_, queue):
        attacker = await stranger(stack)
        for name, order in ((RESULT, {"thread": "t"}), (SAY, {"thread": "t", "message": "x", "by": "", "id": "1"})):
            with pytest.raises(WorkflowFailureError) as failed:
                await attacker.execute_workflow("RawActivity", args=[name, order], id=new_id("raw"), task_queue=queue)
            error = failed.value.cause
            assert isinstance(error, ActivityError)
            assert isinstance(error.cause, ApplicationError)
            assert error.cause.type == "NotSealed"


async def test_a_run_that_claims_a_caller_is_refused(stack: Stack, state_folder: Path) -> None:
    """Only a sealed start names a workflow that started it."""
    async with programs_worker(stack, state_folder, []) as (_, queue):
        attacker = await stranger(stack)
        with pytest.raises(WorkflowFailureError) as failed:
            await attacker.execute_workflow(
                "AgentRunWorkflow", {"task": "x", "caller": "OrderWorkflow"}, id=new_id("run"), task_queue=queue
            )
        assert "but not caller" in str(failed.value.cause)
