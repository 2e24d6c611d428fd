"""An activity that queries the run that called it."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client, RPCError
from temporalio.testing import ActivityEnvironment

from holdfast.activities import calling_run
from holdfast.run.contracts import WORKFLOW, RunInput


async def test_an_activity_does_not_wait_for_a_query_that_no_worker_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the only worker that could answer its activity's query is shutting down, the activity still ends."""
    monkeypatch.setattr(calling_run, "QUERY_TIMEOUT", timedelta(seconds=0.2))
    thread = f"test-{uuid4().hex[:8]}"
    run = await client.start_workflow(WORKFLOW, RunInput(task="wait"), id=thread, task_queue=thread)
    environment = ActivityEnvironment(client=client)
    environment.info = replace(environment.info, workflow_id=thread, workflow_run_id=run.first_execution_run_id)

    async def ask() -> None:
        await calling_run.CallingRun.of().query("state")

    with pytest.raises(RPCError, match=r"(?i)deadline|timeout|timed out"):
        await environment.run(ask)
    await run.terminate()
