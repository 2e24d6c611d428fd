"""A worker at work with its scripted LLM, and waiting for what a run does: by condition, never by time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from holdfast.contracts import WORKFLOW, RunInput
from holdfast.events import EVENTS, AgentEvent
from holdfast.testing import ScriptedLLM

PATIENCE = 30.0
"""Seconds after which a condition that a test waits for counts as never to come."""


@dataclass
class Rig:
    """A worker at work, its LLM, and a way to start runs on it."""

    client: Client
    llm: ScriptedLLM
    task_queue: str
    workspace: Path

    async def start(self, task: str = "do it", **run: Any) -> WorkflowHandle[Any, Any]:
        """Start a run with a thread id of its own; returns its handle."""
        given = {"workspace": str(self.workspace), **run}
        return await self.client.start_workflow(
            WORKFLOW, RunInput(task=task, **given), id=f"test-{uuid4().hex[:8]}", task_queue=self.task_queue
        )


StartRig = Callable[..., AbstractAsyncContextManager[Rig]]


async def eventually(ask: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool]) -> Any:
    """Ask until the answer is as wanted, and return it.

    Raises:
        AssertionError: It never was; the message holds the last answer.
    """
    answer = None
    try:
        async with asyncio.timeout(PATIENCE):
            while not wanted(answer := await ask()):  # noqa: ASYNC110  # the answer is another process's
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never came; the last answer was {answer!r}") from None
    return answer


async def status_of(handle: WorkflowHandle[Any, Any], *wanted: str) -> dict[str, Any]:
    """Wait until the run has one of these statuses; returns its state."""
    state: dict[str, Any] = await eventually(lambda: handle.query("state"), lambda state: state["status"] in wanted)
    return state


async def events_of(handle: WorkflowHandle[Any, Any]) -> list[AgentEvent]:
    """All events of a run, decoded."""
    lines: list[bytes] = []
    while page := await handle.query("log", len(lines), result_type=bytes):
        lines += page.split(b"\n")
    return EVENTS.validate_json(b"[" + b",".join(lines) + b"]")
