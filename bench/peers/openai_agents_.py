"""The OpenAI Agents SDK with Temporal's plugin, as the plugin's README shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, Runner
    from openai import AsyncOpenAI
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

    from bench.peers.contender import Contender, Setup, observation
    from bench.peers.contenders import INSTRUCTIONS, OPENAI_AGENTS, task
    from bench.peers.temporal_ import TemporalRuns


@activity.defn
async def observe(n: int) -> str:
    """Look at something."""
    return observation()


@workflow.defn(name="OpenAIAgentsRun")
class OpenAIAgentsRun:
    """Runs the SDK's own agent loop."""

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Run the agent to its end."""
        tool = activity_as_tool(observe, start_to_close_timeout=timedelta(seconds=10))
        agent = Agent(name="bench", instructions=INSTRUCTIONS, model="bench", tools=[tool])
        result = await Runner.run(agent, input=prompt, max_turns=1_000_000)
        return str(result.final_output)


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    llm = AsyncOpenAI(max_retries=0)
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=timedelta(seconds=30)),
        model_provider=OpenAIProvider(openai_client=llm, use_responses=False),
    )
    client = await Client.connect(setup.address, plugins=[plugin])
    async with Worker(client, task_queue=OPENAI_AGENTS, workflows=[OpenAIAgentsRun], activities=[observe]):
        yield TemporalRuns(
            client,
            workflow="OpenAIAgentsRun",
            task_queue=OPENAI_AGENTS,
            arguments=lambda steps: [task(steps)],
            limit=setup.limit,
        )
