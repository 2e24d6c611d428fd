"""DBOS: the loop is a workflow, model and tool calls are steps, as its documentation shows for agents."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import openai
from dbos import DBOS, SetWorkflowID

from bench.peers.contender import Contender, Setup, create_database, observation, table_bytes
from bench.peers.contenders import DBOS as NAME
from bench.peers.contenders import INSTRUCTIONS, task

TOOL = {
    "type": "function",
    "function": {
        "name": "observe",
        "description": "Look at something.",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


@cache
def client() -> openai.AsyncOpenAI:
    """Return the client of all model calls."""
    return openai.AsyncOpenAI(max_retries=0)


@DBOS.step()
async def ask(messages: list[Any]) -> dict[str, Any]:
    """Make one model call; DBOS records the message returned."""
    completion = await client().chat.completions.create(model="bench", messages=messages, tools=[TOOL])  # type: ignore[list-item]
    return completion.choices[0].message.model_dump(exclude_none=True)


@DBOS.step()
async def observe(n: int) -> str:
    """Look at something."""
    return observation()


@DBOS.workflow()
async def run_agent(prompt: str) -> str:
    """Alternate between model and tool until the model calls no more tools."""
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt}]
    while True:
        answer = await ask(messages)
        messages.append(answer)
        if not answer.get("tool_calls"):
            return str(answer.get("content"))
        for call in answer["tool_calls"]:
            seen = await observe(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": seen})


class Runs:
    """Runs of the workflow."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    async def run(self, name: str, steps: int) -> None:
        """See `Contender`."""
        with SetWorkflowID(name):
            handle = await DBOS.start_workflow_async(run_agent, task(steps))
        await handle.get_result()

    async def resume(self, name: str) -> None:
        """See `Contender`. `DBOS.launch` recovers the run."""
        handle = await DBOS.retrieve_workflow_async(name)
        await handle.get_result(polling_interval_sec=0.05)

    async def stored(self, name: str) -> int:
        """Return the bytes of its tables."""
        return await table_bytes(self._database_url)

    async def diagnose(self, name: str) -> str:
        """Cancel the run; return nothing beyond the error."""
        await DBOS.cancel_workflow_async(name)
        return ""


@asynccontextmanager
async def open_contender(setup: Setup) -> AsyncIterator[Contender]:
    """Launch DBOS for the block."""
    url = await create_database(setup, NAME)
    DBOS(config={"name": "bench-peers", "system_database_url": url, "log_level": "WARNING"})
    DBOS.launch()
    try:
        yield Runs(url)
    finally:
        DBOS.destroy()
