"""Temporal's agent harness with its OpenAI Agents integration, as its README shows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client
from temporalio.contrib.workflow_streams import WorkflowStream
from temporalio.worker import Worker
from temporalio.workflow import ActivityConfig

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, Runner
    from openai import AsyncOpenAI
    from temporal_agent_harness.ai_sdks.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporal_agent_harness.ai_sdks.openai_agents_harness import as_openai_agent_tool
    from temporal_agent_harness.harness import AgentWorkflowRunner, agent
    from temporal_agent_harness.harness.agent_client import AgentClient
    from temporal_agent_harness.harness.agent_protocol import AgentConfig, TextMessage, TextReply, ToolApprovalPolicy
    from temporal_agent_harness.plugin import AgentHarnessPlugin
    from temporal_agent_harness.utils.large_payload import local_payload_storage

    from bench.peers.contender import Contender, Setup, observation
    from bench.peers.contenders import AGENT_HARNESS, INSTRUCTIONS, task
    from bench.peers.temporal_ import TemporalRuns


@agent.activity_tool_defn(
    inherently_safe=True, activity_config=ActivityConfig(start_to_close_timeout=timedelta(seconds=30))
)
async def observe(n: int) -> str:
    """Look at something."""
    return observation()


@agent.defn(name="AgentHarnessRun")
class AgentHarnessRun:
    """A session: each message is a turn, which runs the agent loop of the OpenAI Agents SDK."""

    @agent.init
    def __init__(self, config: AgentConfig) -> None:
        self._runner = AgentWorkflowRunner(
            config, stream=WorkflowStream(), approval_policy_default=ToolApprovalPolicy.allow_inherently_safe()
        )

    @agent.accepts
    async def ask(self, message: TextMessage) -> TextReply:
        """Run the agent to its end."""
        tools = [as_openai_agent_tool(self._runner, observe)]
        bench = Agent(name="bench", instructions=INSTRUCTIONS, model="bench", tools=tools)
        result = await Runner.run(bench, input=message.text, max_turns=1_000_000)
        return TextReply(text=str(result.final_output))


class Runs(TemporalRuns):
    """Sessions of one message, which store history and files of large payloads."""

    def __init__(self, client: Client, payloads: Path, limit: float) -> None:
        super().__init__(client, workflow="", task_queue="", arguments=lambda steps: [steps], limit=limit)
        self._payloads = payloads

    async def run(self, name: str, steps: int) -> None:
        """Send the message and close the session, which ends with the turn. The stream of events is not read."""
        await AgentClient(self.client, name).start_and_submit_message(
            "ask",
            TextMessage(text=task(steps)).model_dump(),
            workflow_name="AgentHarnessRun",
            task_queue=AGENT_HARNESS,
            start_config=AgentConfig(),
        )
        handle = self.client.get_workflow_handle(name)
        await handle.signal("close")
        await handle.result()

    async def stored(self, name: str) -> int:
        """Return the bytes of history and of payloads kept in files."""
        return await super().stored(name) + sum(each.stat().st_size for each in self._payloads.glob("*"))


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Run the worker during the block."""
    payloads = Path(setup.home) / "large-payloads"
    llm = OpenAIProvider(openai_client=AsyncOpenAI(max_retries=0), use_responses=False)
    limits = ModelActivityParameters(
        start_to_close_timeout=timedelta(minutes=2), heartbeat_timeout=timedelta(seconds=30)
    )
    plugins = [
        OpenAIAgentsPlugin(model_params=limits, model_provider=llm),
        AgentHarnessPlugin(tools=[observe], large_payload_offload=local_payload_storage(base_dir=payloads)),
    ]
    client = await Client.connect(setup.address, plugins=plugins)
    async with Worker(client, task_queue=AGENT_HARNESS, workflows=[AgentHarnessRun]):
        yield Runs(client, payloads, setup.limit)
