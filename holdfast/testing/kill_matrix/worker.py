"""Run our worker so that it stops at the boundaries of the plan, where it can be killed.

    python -m holdfast.testing.kill_matrix.worker FOLDER [arguments of worker.py]

1. This process loads `holdfast.worker` once and forks a worker process, and another one whenever that one is killed.
2. `worker.build_worker` builds the worker as usual, with one more interceptor and with wrapped tools. The worker's own
   code contains no boundaries.
3. An event is recorded once Temporal has accepted the workflow task's completion. Interceptors do not see that, so
   the SDK's method that sends the completion is wrapped.
"""

import functools
import importlib
import inspect
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from temporalio import activity, workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.bridge.worker import Worker as SDKWorker
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

from holdfast.agents.catalog import Catalog
from holdfast.log.event_log import EventLog
from holdfast.log.events import AgentEvent
from holdfast.run.contracts import ToolRequest
from holdfast.runtime.programs import WORKER
from holdfast.testing.kill_matrix.plan import Stopper
from holdfast.tools.decorator import Tool
from holdfast.tools.effects import Effect

_PLACE: ContextVar[str] = ContextVar("place")
"""The activity that is running in this context."""


class ActivityBoundaries(Interceptor):
    """Reports the boundaries of activities: when one has started, and when its result is not sent yet."""

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
        # A call that a person has decided to run again is a different activity at the same place.
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


def instrument_recording(stopper: Stopper) -> None:
    """Patch the SDK to report the boundaries before and after events are recorded, and of continue-as-new."""
    append, poll, complete = (
        EventLog.append,
        SDKWorker.poll_workflow_activation,
        SDKWorker.complete_workflow_activation,
    )
    unsettled: dict[str, list[tuple[str, str]]] = {}
    # Local activities run within a workflow task, which is completed only when they have ended.
    local: Counter[str] = Counter()

    def append_and_note(log: EventLog, event: AgentEvent, *, at: datetime) -> AgentEvent:
        stamped = append(log, event, at=at)
        if workflow.in_workflow() and not workflow.unsafe.is_replaying():
            info = workflow.info()
            place = f"{info.workflow_id}/{stamped.position}"
            unsettled.setdefault(info.run_id, []).append((stamped.type, place))
        return stamped

    async def poll_and_count(worker: SDKWorker) -> WorkflowActivation:
        activation = await poll(worker)
        local[activation.run_id] -= sum(job.resolve_activity.is_local for job in activation.jobs)
        if any(job.HasField("remove_from_cache") for job in activation.jobs):
            del local[activation.run_id]
        return activation

    async def complete_with_boundaries(worker: SDKWorker, completion: WorkflowActivationCompletion) -> None:
        commands = completion.successful.commands
        if commands and all(command.HasField("respond_to_query") for command in commands):
            return await complete(worker, completion)  # it records nothing
        local[completion.run_id] += sum(command.HasField("schedule_local_activity") for command in commands)
        if local[completion.run_id]:
            return await complete(worker, completion)  # it records nothing yet
        recording = unsettled.pop(completion.run_id, [])
        if any(command.HasField("continue_as_new_workflow_execution") for command in commands):
            recording.append(("continue_as_new", completion.run_id))
        if completion.HasField("failed"):
            recording = []
        for what, place in recording:
            stopper.reached(f"before {what}", place)
        await complete(worker, completion)
        for what, place in recording:
            stopper.reached(f"after {what}", place)

    # Through setattr, because type checkers reject assignments to methods. This process only serves tests.
    setattr(EventLog, "append", append_and_note)  # noqa: B010
    setattr(SDKWorker, "poll_workflow_activation", poll_and_count)  # noqa: B010
    setattr(SDKWorker, "complete_workflow_activation", complete_with_boundaries)  # noqa: B010


def main() -> None:
    """Run a worker, and another one whenever it is killed; exit with the last one's exit code."""
    folder = Path(sys.argv[1])
    sys.argv = [WORKER.name, *sys.argv[2:]]
    worker: Any = importlib.import_module("holdfast.worker")  # a test tool is below it, so it does not import it
    stopper = Stopper(folder)
    instrument_recording(stopper)
    build = worker.build_worker

    def build_instrumented(
        *arguments: Any, catalog: Catalog, interceptors: Sequence[Interceptor] = (), **options: Any
    ) -> Worker:
        interceptors = [*interceptors, ActivityBoundaries(stopper)]
        built: Worker = build(
            *arguments, catalog=instrument_tools(catalog, stopper), interceptors=interceptors, **options
        )
        return built

    worker.build_worker = build_instrumented
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
