"""The examples of programs that have a Temporal worker of their own, on the session's servers."""

from uuid import uuid4

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from holdfast import Client, HoldfastPlugin
from holdfast.config.stack_file import Stack
from holdfast.examples.programs import activity_as_tool, existing_worker, research_workflow
from tests.support.rig import PATIENCE, environ_of


@pytest.fixture(autouse=True)
def queue(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> str:
    """Configure the session's servers, and return a queue that no other test has."""
    for name, value in {**environ_of(stack), "DATABASE_URL": stack.database_url}.items():
        monkeypatch.setenv(name, value)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    queue = f"program-{uuid4().hex[:8]}"
    for example in (activity_as_tool, existing_worker, research_workflow):
        monkeypatch.setattr(example, "QUEUE", queue)
    return queue


@pytest.mark.extended
async def test_research_in_a_workflow_plans_searches_side_by_side_and_reports(stack: Stack, queue: str) -> None:
    """The report has what each search found, and is a value of the program's own type."""
    client = await TemporalClient.connect(
        stack.temporal_address,
        data_converter=pydantic_data_converter,
        plugins=[HoldfastPlugin(research_workflow.catalog, script=research_workflow.script)],
    )
    question = "How do bees find their way?"
    async with Worker(client, task_queue=queue, workflows=[research_workflow.ResearchWorkflow]):
        report = await client.execute_workflow(
            research_workflow.ResearchWorkflow.run, question, id=f"research-{uuid4().hex[:8]}", task_queue=queue
        )
    assert report == research_workflow.Report(title=question, paragraphs=[*research_workflow.NOTES.values()])


async def test_a_shops_worker_runs_an_agent_beside_its_orders(queue: str) -> None:
    """The order is charged as before, and refunded once a person approves."""
    shop = await existing_worker.connect()
    async with existing_worker.worker(shop), Client.connect(shop, task_queue=queue, by="shop") as agents:
        order = f"order-{uuid4().hex[:8]}"
        charged = await shop.execute_workflow(
            existing_worker.OrderWorkflow.run, args=[order, "teapot"], id=order, task_queue=queue
        )
        assert charged == existing_worker.CHARGED[order] == 1900
        thread = await agents.start(f"The spout is broken. Please refund {order}.", thread=f"complaint-{order}")
        waiting = await thread.result(until="attention", timeout=PATIENCE)
        assert [request.tool for request in waiting.pending] == ["refund"]
        assert order in existing_worker.CHARGED
        await thread.decide(waiting.pending[0], "approve", by="dana")
        assert (await thread.result(timeout=PATIENCE)).text == "19.00 EUR go back."
        assert order not in existing_worker.CHARGED


@pytest.mark.extended
async def test_an_agent_calls_activities_of_two_workers(
    stack: Stack, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is the program's own function; the other is another team's, which prints one label."""
    plugin = HoldfastPlugin(activity_as_tool.catalog, script=activity_as_tool.script)
    client = await TemporalClient.connect(stack.temporal_address, plugins=[plugin])
    theirs, labels = await TemporalClient.connect(stack.temporal_address), activity_as_tool.Labels()
    async with (
        Worker(client, task_queue=queue),
        Worker(theirs, task_queue=activity_as_tool.LABELS, activities=[labels.print]),
        Client.connect(client, task_queue=queue) as agents,
    ):
        thread = await agents.start("Write to Ada that the engine works.")
        assert (await thread.result(timeout=PATIENCE)).text == "The letter and its label are ready."
    assert labels.printed == ["Ada"]
