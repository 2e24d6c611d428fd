"""Activities get what they need of their run passed in process, or query the run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client, RPCError, WorkflowHandle
from temporalio.testing import ActivityEnvironment

from holdfast import Agent, Catalog, Policy, ask, tool
from holdfast.activities import calling_run
from holdfast.activities.calling_run import InProcessAnswers
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput
from holdfast.testing import call, say, steps
from tests.support.rig import StartRig, check_thread, status_of


async def test_an_activity_does_not_wait_for_a_query_that_no_worker_answers(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An activity ends even if the only worker that could answer its query is shutting down."""
    monkeypatch.setattr(calling_run, "QUERY_TIMEOUT", timedelta(seconds=0.2))
    thread = f"test-{uuid4().hex[:8]}"
    run = await client.start_workflow(WORKFLOW, RunInput(task="wait"), id=thread, task_queue=thread)
    environment = ActivityEnvironment(client=client)
    environment.info = replace(environment.info, workflow_id=thread, workflow_run_id=run.first_execution_run_id)

    async def ask() -> None:
        await calling_run.CallingRun.of().query("state")

    # On a busy machine, the connection may report the end of the time first.
    with pytest.raises(RPCError, match=r"(?i)deadline|timeout|timed out|h2 protocol error"):
        await environment.run(ask)
    await run.terminate()


@tool(effect="unsafe")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


CATALOG = Catalog(agents=[Agent(name="clerk", instructions="Work.", policy=Policy(rules=(ask("pay"),)), tools=[pay])])


async def queried(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a run wait for a decision, continue and end; return the queries that its activities made."""
    made: list[str] = []
    query = WorkflowHandle.query

    async def counted(handle: Any, name: Any, *args: Any, **options: Any) -> Any:
        made.append(name)
        return await query(handle, name, *args, **options)

    async with rig(CATALOG, steps([call("pay", amount=1), say("Done.")])) as r:
        run = await r.start()
        await status_of(run, "waiting_approval")
        with monkeypatch.context() as patch:
            patch.setattr(WorkflowHandle, "query", counted)
            await run.signal("deny", {"request": "1", "by": "dana"})
            assert (await run.result())["result"] == "Done."
        await check_thread(r.client, run)
    return made


async def test_an_activity_in_the_process_of_its_run_queries_nothing(
    rig: StartRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run passes its transcript and new log lines in process, even after it has waited for a person."""
    assert await queried(rig, monkeypatch) == []


@pytest.mark.extended
async def test_an_activity_in_another_process_queries_the_run(rig: StartRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An activity that was passed nothing, as in any other process, queries its run."""
    monkeypatch.setattr(InProcessAnswers, "take", lambda given, request, caller: {})
    assert {"transcript", "log"} <= set(await queried(rig, monkeypatch))
