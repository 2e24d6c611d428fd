"""The OpenAI Agents SDK with Temporal's plugin, streamed as the plugin's README shows in "Streaming"."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.workflow_streams import WorkflowStream, WorkflowStreamClient
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, Runner
    from openai import AsyncOpenAI
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from bench.peers.contender import Contender, Setup
    from bench.peers.contenders import INSTRUCTIONS, OPENAI_AGENTS_STREAM, task
    from bench.peers.openai_agents_ import observe
    from bench.peers.shown import TEXT, Piece
    from bench.peers.temporal_ import TemporalRuns, patient, wait_until_started

TOPIC = "events"


@workflow.defn(name="OpenAIAgentsStream")
class OpenAIAgentsStream:
    """Runs the SDK's own agent loop, and hosts the stream that its model activities publish to."""

    @workflow.init
    def __init__(self, prompt: str) -> None:
        self._stream = WorkflowStream()

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Run the agent to its end."""
        tool = activity_as_tool(observe, start_to_close_timeout=timedelta(seconds=10))
        agent = Agent(name="bench", instructions=INSTRUCTIONS, model="bench", tools=[tool])
        result = Runner.run_streamed(agent, input=prompt, max_turns=1_000_000)
        async for _ in result.stream_events():
            pass
        self._stream.detach_pollers()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return str(result.final_output)


def _plugin() -> OpenAIAgentsPlugin:
    return OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(
            start_to_close_timeout=timedelta(seconds=30), heartbeat_timeout=timedelta(seconds=10), streaming_topic=TOPIC
        ),
        model_provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0), use_responses=False),
    )


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    client = await Client.connect(setup.address, plugins=[_plugin()])
    async with Worker(client, task_queue=OPENAI_AGENTS_STREAM, workflows=[OpenAIAgentsStream], activities=[observe]):
        yield TemporalRuns(
            client,
            workflow="OpenAIAgentsStream",
            task_queue=OPENAI_AGENTS_STREAM,
            arguments=lambda steps: [task(steps)],
            limit=setup.limit,
        )


async def read(setup: Setup, name: str) -> AsyncIterator[Piece]:
    """Read a run's stream. Nothing in it says that an attempt replaces another one."""
    client = await Client.connect(setup.address, plugins=[_plugin()])
    await wait_until_started(client, name)
    stream = WorkflowStreamClient.create(client, name)

    async def subscribe(offset: int) -> AsyncIterator[tuple[int, Any]]:
        async for item in stream.subscribe([TOPIC], from_offset=offset):
            yield item.offset, item.data

    async for event in patient(subscribe):
        if event["type"] == "response.output_text.delta":
            yield Piece(TEXT, event["delta"])
