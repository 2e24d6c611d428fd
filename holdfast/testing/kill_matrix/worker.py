"""`worker.py`, doomed: it works as always, and stops where the plan says, to be killed there.

    python -m holdfast.testing.kill_matrix.worker FOLDER path/to/worker.py [arguments of worker.py]

1. This process loads `worker.py` once, and forks a worker process, and another one whenever that is killed.
2. The worker is built by `worker.build_worker`, with an interceptor and with tools that tell when they are called.
   Nothing in it knows of boundaries.
3. What a workflow records is settled when Temporal has taken the workflow task's completion. No interceptor sees
   that, so the one method of the SDK that sends it is wrapped.
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
from holdfast.testing.kill_matrix.plan import Doom
from holdfast.tools.decorator import Tool
from holdfast.tools.effects import Effect

_PLACE: ContextVar[str] = ContextVar("place")
"""The activity that is running here."""


class Activities(Interceptor):
    """Tells when activities begin, and when they have returned and nobody knows it yet."""

    def __init__(self, doom: Doom) -> None:
        self._doom = doom

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(super().intercept_activity(next), self._doom)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, doom: Doom) -> None:
        super().__init__(next)
        self._doom = doom

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        # A call that a person has sent to run again is another activity, and yet the same place.
        request = input.args[0] if input.args else None
        mine = request.key if isinstance(request, ToolRequest) else f"{info.workflow_run_id}/{info.activity_id}"
        _PLACE.set(f"{info.workflow_id}/activities/{mine}")
        self._doom.passing(f"before {info.activity_type}", _PLACE.get())
        result = await self.next.execute_activity(input)
        self._doom.passing(f"after {info.activity_type}", _PLACE.get())
        return result


def doomed(catalog: Catalog, doom: Doom) -> Catalog:
    """The same catalog, whose tools tell when their effects are about to happen, and when they have happened."""
    told = copy(catalog)
    told.tools = {
        name: tool if tool.spec.effect is Effect.READ else replace(tool, function=_telling(tool, doom))
        for name, tool in catalog.tools.items()
    }
    return told


def _telling(tool: Tool, doom: Doom) -> Any:
    function = tool.function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def act(**arguments: Any) -> Any:
            doom.passing("before effect", _PLACE.get())
            try:
                return await function(**arguments)
            finally:
                doom.passing("after effect", _PLACE.get())

    else:

        @functools.wraps(function)
        def act(**arguments: Any) -> Any:
            doom.passing("before effect", _PLACE.get())
            try:
                return function(**arguments)
            finally:
                doom.passing("after effect", _PLACE.get())

    return act


def watch_recording(doom: Doom) -> None:
    """Tell when an event is about to be recorded, and when it is; the same of continue-as-new."""
    append, poll, complete = (
        EventLog.append,
        SDKWorker.poll_workflow_activation,
        SDKWorker.complete_workflow_activation,
    )
    unsettled: dict[str, list[tuple[str, str]]] = {}
    # Activities within workflow tasks, which are completed when these have ended.
    local: Counter[str] = Counter()

    def append_noticed(log: EventLog, event: AgentEvent, *, at: datetime) -> AgentEvent:
        stamped = append(log, event, at=at)
        if workflow.in_workflow() and not workflow.unsafe.is_replaying():
            info = workflow.info()
            place = f"{info.workflow_id}/{stamped.position}"
            unsettled.setdefault(info.run_id, []).append((stamped.type, place))
        return stamped

    async def poll_noticed(worker: SDKWorker) -> WorkflowActivation:
        activation = await poll(worker)
        local[activation.run_id] -= sum(job.resolve_activity.is_local for job in activation.jobs)
        if any(job.HasField("remove_from_cache") for job in activation.jobs):
            del local[activation.run_id]
        return activation

    async def complete_noticed(worker: SDKWorker, completion: WorkflowActivationCompletion) -> None:
        commands = completion.successful.commands
        if commands and all(command.HasField("respond_to_query") for command in commands):
            return await complete(worker, completion)  # nothing is recorded by it
        local[completion.run_id] += sum(command.HasField("schedule_local_activity") for command in commands)
        if local[completion.run_id]:
            return await complete(worker, completion)  # nothing is recorded by it yet
        passing = unsettled.pop(completion.run_id, [])
        if any(command.HasField("continue_as_new_workflow_execution") for command in commands):
            passing.append(("continue_as_new", completion.run_id))
        if completion.HasField("failed"):
            passing = []
        for what, place in passing:
            doom.passing(f"before {what}", place)
        await complete(worker, completion)
        for what, place in passing:
            doom.passing(f"after {what}", place)

    # Through setattr: to a type checker, nobody replaces methods. This process is for tests alone.
    setattr(EventLog, "append", append_noticed)  # noqa: B010
    setattr(SDKWorker, "poll_workflow_activation", poll_noticed)  # noqa: B010
    setattr(SDKWorker, "complete_workflow_activation", complete_noticed)  # noqa: B010


def main() -> None:
    """Run a worker, and another one whenever it is killed; end as the last one ended."""
    folder, file = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    sys.argv = [str(file), *sys.argv[3:]]
    sys.path.insert(0, str(file.parent))
    worker: Any = importlib.import_module(file.stem)
    doom = Doom(folder)
    watch_recording(doom)
    build = worker.build_worker

    def build_doomed(
        *arguments: Any, catalog: Catalog, interceptors: Sequence[Interceptor] = (), **options: Any
    ) -> Worker:
        interceptors = [*interceptors, Activities(doom)]
        built: Worker = build(*arguments, catalog=doomed(catalog, doom), interceptors=interceptors, **options)
        return built

    worker.build_worker = build_doomed
    children: list[int] = []

    def pass_on(number: int, _: object) -> None:
        for child in children:
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
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
