"""pydantic-ai with `TemporalDurability(event_stream_topic=…)` and `AgentEventStream`, as their docstrings show."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta, UsageLimits
    from pydantic_ai.durable_exec.temporal import AgentEventStream, PydanticAIPlugin, TemporalDurability
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from bench.peers.contender import Contender, Setup, observation
    from bench.peers.contenders import INSTRUCTIONS, PYDANTIC_AI_STREAM, task
    from bench.peers.shown import TEXT, Piece
    from bench.peers.temporal_ import TemporalRuns, patient, wait_until_started

durability: TemporalDurability[None] = TemporalDurability(event_stream_topic="events")


async def observe(n: int) -> str:
    """Look at something."""
    return observation()


agent = Agent(
    OpenAIChatModel("bench", provider=OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0))),
    name="bench",
    instructions=INSTRUCTIONS,
    tools=[observe],
    capabilities=[durability],
)


@workflow.defn(name="PydanticAIStream")
class PydanticAIStream:
    """Runs pydantic-ai's own agent loop, and hosts the stream that its activities publish to."""

    __pydantic_ai_agents__ = [agent]

    @workflow.init
    def __init__(self, prompt: str) -> None:
        self._events = AgentEventStream()

    @workflow.run
    async def run(self, prompt: str) -> str:
        """Run the agent to its end."""
        async with self._events:
            result = await agent.run(prompt, usage_limits=UsageLimits(request_limit=None))
        return str(result.output)


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    client = await Client.connect(setup.address, plugins=[PydanticAIPlugin()])
    async with Worker(client, task_queue=PYDANTIC_AI_STREAM, workflows=[PydanticAIStream]):
        yield TemporalRuns(
            client,
            workflow="PydanticAIStream",
            task_queue=PYDANTIC_AI_STREAM,
            arguments=lambda steps: [task(steps)],
            limit=setup.limit,
        )


async def read(setup: Setup, name: str) -> AsyncIterator[Piece]:
    """Read a run's stream. Nothing in it says that an attempt replaces another one."""
    client = await Client.connect(setup.address, plugins=[PydanticAIPlugin()])
    await wait_until_started(client, name)
    handle = client.get_workflow_handle(name)

    async def subscribe(offset: int) -> AsyncIterator[tuple[int, Any]]:
        events = durability.stream_agent_events(client, handle, from_offset=offset)
        async for event in events:
            yield events.offset, event

    async for event in patient(subscribe):
        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
            yield Piece(TEXT, event.part.content)
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            yield Piece(TEXT, event.delta.content_delta)
