"""An activity that asks the run it works for."""

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client, RPCError
from temporalio.testing import ActivityEnvironment

from activities import calling_run
from holdfast.run.contracts import WORKFLOW, RunInput


async def test_a_run_that_no_worker_answers_for_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that shuts down is the only one that could answer its own activity: it ends all the same."""
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
