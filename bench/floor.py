"""The floor: a bare workflow with the two activities of a step and no features of an agent runtime.

With the tool as a local activity, it shows the least possible cost of a step whose tool reads.

It has no transcript (each LLM request is small and of constant size), events, policy or digests. Its replies and
observations are as large as Holdfast's, and it uses the same LLM client.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    import httpx2
    import openai

LIMIT = timedelta(seconds=30)


@dataclass(frozen=True)
class Prompt:
    """Input of `floor_llm`."""

    steps: int
    answered: int
    """The number of the last call with a result."""


@dataclass(frozen=True)
class Reply:
    """Result of `floor_llm`."""

    message: dict[str, Any]
    """The message in the API's format."""


@dataclass(frozen=True)
class Call:
    """Input of `floor_tool`."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Observation:
    """Result of `floor_tool`."""

    content: str


Observe = Callable[[Call], Awaitable[Observation]]


async def _run(steps: int, observe: Observe) -> int:
    """Make `steps` steps; return the number of LLM calls."""
    for made in range(steps + 1):
        reply = await workflow.execute_activity_method(
            FloorActivities.floor_llm, Prompt(steps=steps, answered=made), start_to_close_timeout=LIMIT
        )
        calls = reply.message.get("tool_calls")
        if not calls:
            return made + 1
        function = calls[0]["function"]
        await observe(Call(name=function["name"], arguments=function["arguments"]))
    return 0


@workflow.defn
class FloorWorkflow:
    """Alternates between LLM and tool until the LLM calls no more tools."""

    @workflow.run
    async def run(self, steps: int) -> int:
        """Make `steps` steps; return the number of LLM calls."""

        async def observe(call: Call) -> Observation:
            return await workflow.execute_activity_method(
                FloorActivities.floor_tool, call, start_to_close_timeout=LIMIT
            )

        return await _run(steps, observe)


@workflow.defn
class LocalFloorWorkflow:
    """The same, with the tool as a local activity."""

    @workflow.run
    async def run(self, steps: int) -> int:
        """Make `steps` steps; return the number of LLM calls."""

        async def observe(call: Call) -> Observation:
            return await workflow.execute_local_activity_method(
                FloorActivities.floor_tool, call, start_to_close_timeout=LIMIT
            )

        return await _run(steps, observe)


class FloorActivities:
    """The two activities.

    Args:
        llm: The LLM client, shared with Holdfast.
        observation: The result of every tool call.
    """

    def __init__(self, llm: openai.AsyncOpenAI, observation: str) -> None:
        self._llm = llm
        self._observation = observation

    @activity.defn
    async def floor_llm(self, prompt: Prompt) -> Reply:
        """Send a small request in the same way as Holdfast, and return the message."""
        messages: list[dict[str, str]] = [{"role": "user", "content": f"steps={prompt.steps}"}]
        if prompt.answered:
            messages.append({"role": "tool", "tool_call_id": f"call_{prompt.answered}", "content": ""})
        body = json.dumps({"model": "bench", "messages": messages}, separators=(",", ":")).encode()
        response = await self._llm.post(
            "/chat/completions",
            content=body,
            cast_to=httpx2.Response,
            options={"headers": {"Content-Type": "application/json"}},
        )
        return Reply(message=response.json()["choices"][0]["message"])

    @activity.defn
    async def floor_tool(self, call: Call) -> Observation:
        """Return the observation."""
        return Observation(content=self._observation)
