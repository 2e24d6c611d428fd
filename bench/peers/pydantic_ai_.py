"""pydantic-ai with its `TemporalDurability` capability, as its documentation shows: the agent at module level."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, ModelMessage, RunContext, UsageLimits
    from pydantic_ai.durable_exec.temporal import PydanticAIPlugin, TemporalDurability
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from bench.peers.contender import Contender, Setup, observation
    from bench.peers.contenders import INSTRUCTIONS, PYDANTIC_AI, task
    from bench.peers.temporal_ import TemporalRuns


def continue_as_new(context: RunContext[None]) -> None:
    """Continue as new when the server suggests it, with all messages as the workflow's argument."""
    workflow.continue_as_new(args=[None, context.messages])


agent = Agent(
    OpenAIChatModel("bench", provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))),
    name="bench",
    instructions=INSTRUCTIONS,
    capabilities=[TemporalDurability(continue_as_new=continue_as_new)],
)


@agent.tool_plain
async def observe(n: int) -> str:
    """Look at something."""
    return observation()


@workflow.defn(name="PydanticAIRun")
class PydanticAIRun:
    """Runs pydantic-ai's own agent loop."""

    __pydantic_ai_agents__ = [agent]

    @workflow.run
    async def run(self, prompt: str | None, messages: list[ModelMessage] | None = None) -> str:
        """Run the agent to its end."""
        limits = UsageLimits(request_limit=None)
        result = await agent.run(prompt, message_history=messages, usage_limits=limits)
        return str(result.output)


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    client = await Client.connect(setup.address, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue=PYDANTIC_AI, workflows=[PydanticAIRun]):
        yield TemporalRuns(
            client,
            workflow="PydanticAIRun",
            task_queue=PYDANTIC_AI,
            arguments=lambda steps: [task(steps)],
            limit=setup.limit,
        )
