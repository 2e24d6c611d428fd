"""Runs our worker so that it stops at the boundaries of the plan, to be killed there.

    python -m holdfast.testing.kill_matrix.worker FOLDER [arguments of worker.py]

1. This process loads `holdfast.worker.__main__` once and forks a worker process, and another one after each kill.
2. `holdfast.hosting` builds the worker as usual, with one more interceptor and with wrapped tools. The worker's
   own code contains no boundaries.
3. The SDK's methods that record events are wrapped (`holdfast.testing.kill_matrix.recording`).
"""

import functools
import importlib
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast.config.programs import WORKER
from holdfast.core.agents.catalog import Catalog
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.tools.decorator import Tool
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.secrets import Secrets
from holdfast.testing.kill_matrix.plan import Stopper
from holdfast.testing.kill_matrix.recording import Recording

_PLACE: ContextVar[str] = ContextVar("place")
"""The activity that is running in this context."""


class ActivityBoundaries(Interceptor):
    """Reports the boundaries of activities: after the start of one, and before its result is sent."""

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(super().intercept_activity(next), self._stopper)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, stopper: Stopper) -> None:
        super().__init__(next)
        self._stopper = stopper

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        # Another attempt at a call, by a person's decision, is a different activity at the same place.
        request = input.args[0] if input.args else None
        name = request.key if isinstance(request, ToolRequest) else f"{info.workflow_run_id}/{info.activity_id}"
        _PLACE.set(f"{info.workflow_id}/activities/{name}")
        self._stopper.reached(f"before {info.activity_type}", _PLACE.get())
        result = await self.next.execute_activity(input)
        self._stopper.reached(f"after {info.activity_type}", _PLACE.get())
        return result


def instrument_tools(catalog: Catalog, stopper: Stopper) -> Catalog:
    """Return the catalog with tools that report the boundaries before and after their effects."""
    instrumented = copy(catalog)
    instrumented.tools = {
        name: tool if tool.spec.effect is Effect.READ else replace(tool, function=_instrument(tool, stopper))
        for name, tool in catalog.tools.items()
    }
    return instrumented


def _instrument(tool: Tool, stopper: Stopper) -> Any:
    function = tool.function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def act(**arguments: Any) -> Any:
            stopper.reached("before effect", _PLACE.get())
            try:
                return await function(**arguments)
            finally:
                stopper.reached("after effect", _PLACE.get())

    else:

        @functools.wraps(function)
        def act(**arguments: Any) -> Any:
            stopper.reached("before effect", _PLACE.get())
            try:
                return function(**arguments)
            finally:
                stopper.reached("after effect", _PLACE.get())

    return act


def main() -> None:
    """Run a worker, and another one after each kill; exit with the last one's exit code."""
    folder = Path(sys.argv[1])
    sys.argv = [WORKER.name, *sys.argv[2:]]
    # Not plain imports: in the ladder of packages, this one is below the worker.
    worker: Any = importlib.import_module("holdfast.worker.__main__")
    hosting: Any = importlib.import_module("holdfast.hosting.serving")
    stopper = Stopper(folder)
    recording = Recording(stopper)
    recording.instrument()
    assembled = hosting.assembled

    @asynccontextmanager
    async def assembled_instrumented(parts: Any, catalog: Catalog, secrets: Secrets) -> AsyncIterator[Any]:
        recording.client = await parts.client()
        async with assembled(parts, instrument_tools(catalog, stopper), secrets) as assembly:
            yield replace(assembly, interceptors=(*assembly.interceptors, ActivityBoundaries(stopper)))

    hosting.assembled = assembled_instrumented
    children: list[int] = []

    def forward(number: int, _: object) -> None:
        for child in children:
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    while True:
        child = os.fork()
        if child == 0:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            typer.run(worker.main)
            os._exit(0)
        children[:] = [child]
        (folder / "pid").write_text(str(child))
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)  # temporalio can crash the interpreter at exit


if __name__ == "__main__":
    main()
