"""Runs paused in Temporal: the SDK lacks that status, yet everything that reads runs must work."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.api.workflowservice.v1 import PauseWorkflowExecutionRequest, UnpauseWorkflowExecutionRequest
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from holdfast import Policy
from holdfast.client.reading.executions import is_paused, list_runs
from holdfast.client.reading.runs import Runs
from holdfast.client.reading.runs import status_of as status_of_run
from holdfast.config.stack_file import Stack
from holdfast.errors import RunPaused
from holdfast.testing import call, say, steps
from tests.integration.test_cli import Ran, Shell
from tests.support.people import clerk, payments
from tests.support.rig import StartRig, environ_of, eventually, status_of


async def test_a_paused_run_is_read_as_an_open_one(rig: StartRig) -> None:
    """A paused run can be described and listed, with a mark; a query fails with the reason."""
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("done")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        pausing = PauseWorkflowExecutionRequest(namespace="default", workflow_id=run.id, identity="ops")
        await r.client.workflow_service.pause_workflow_execution(pausing)
        runs = Runs(r.client, answer_within=5)
        description = await runs.describe(run.id)
        assert (description.status, status_of_run(description)) == (
            WorkflowExecutionStatus.RUNNING,
            "paused_in_temporal",
        )

        async def listed() -> list[WorkflowExecution]:
            query = f"WorkflowId = '{run.id}' AND ExecutionStatus = 'Paused'"
            return [row async for row in list_runs(r.client, query, within=timedelta(seconds=5))]

        (row,) = await eventually(listed, bool)
        assert is_paused(row)
        with pytest.raises(RunPaused, match="temporal workflow unpause"):
            await runs.query(run.id, "state")
        await run.terminate()


@pytest.mark.slow
async def test_a_paused_run_is_shown_as_paused_and_takes_a_decision_later(rig: StartRig, stack: Stack) -> None:
    """`list`, `show`, `pending` and `start --thread` report the pause; a decision is sent as a signal."""
    async with rig(clerk(Policy()), steps([call("pay", cents=5), say("done")])) as r:
        variables = {"HOLDFAST_HOME": str(r.workspace / "home"), **environ_of(stack)}
        shell = Shell({**variables, "DATABASE_URL": stack.database_url or ""}, folder=r.workspace)

        async def starter(*words: str) -> Ran:
            return await asyncio.to_thread(lambda: shell(*words))

        run = await r.start()
        await status_of(run, "waiting_approval")
        service, which = r.client.workflow_service, {"namespace": "default", "workflow_id": run.id}
        await service.pause_workflow_execution(PauseWorkflowExecutionRequest(**which, reason="look", identity="ops"))

        async def listed() -> dict[str, str]:
            return {row["thread"]: row["status"] for row in (await starter("list", "--json")).lines}

        await eventually(listed, lambda rows: rows.get(run.id) == "paused_in_temporal")
        shown = (await starter("show", run.id, "--json")).json
        assert (shown["status"], [request["request"] for request in shown["pending"]]) == ("paused_in_temporal", ["1"])
        (request,) = (await starter("pending", run.id, "--json")).lines
        assert request["tool"] == "pay"
        everywhere = await starter("pending", "--json")
        assert [each["thread"] for each in everywhere.lines if each["thread"] == run.id] == [run.id]
        assert "(paused in temporal)" in (await starter("start", "again", "--thread", run.id)).err
        left = await starter("approve", run.id, "1", "--by", "alice")
        assert "paused in Temporal" in left.out + left.err
        await service.unpause_workflow_execution(UnpauseWorkflowExecutionRequest(**which, identity="ops"))
        assert (await run.result())["result"] == "done"
        assert payments(r) == [5]
