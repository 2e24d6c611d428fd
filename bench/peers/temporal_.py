"""Shared by contenders on Temporal: starts a run by its workflow's name, measures its history, diagnoses failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

Item = TypeVar("Item")


async def wait_until_started(client: Client, name: str) -> None:
    """Wait until the server has a run: a reader may be faster than the command that starts it."""
    while True:
        try:
            await client.get_workflow_handle(name).describe()
            return
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
        await asyncio.sleep(0.02)


async def patient(subscribe: Callable[[int], AsyncIterator[tuple[int, Item]]]) -> AsyncIterator[Item]:
    """Yield the items of a stream; subscribe again after the last offset if that fails, as it may without a worker."""
    after = 0
    while True:
        try:
            async for offset, item in subscribe(after):
                after = offset + 1
                yield item
            return
        except TemporalError:
            await asyncio.sleep(0.2)


class TemporalRuns:
    """Runs of one workflow type.

    Args:
        client: A connected client with the contender's plugin.
        workflow: The workflow's name.
        task_queue: The task queue that its worker polls.
        arguments: Builds the workflow's arguments from the number of steps.
        limit: Seconds after which the server ends a run.
    """

    def __init__(
        self,
        client: Client,
        *,
        workflow: str,
        task_queue: str,
        arguments: Callable[[int], list[Any]],
        limit: float,
    ) -> None:
        self.client = client
        self._workflow = workflow
        self._task_queue = task_queue
        self._arguments = arguments
        self._limit = limit

    async def run(self, name: str, steps: int) -> None:
        """See `Contender`."""
        await self.client.execute_workflow(
            self._workflow,
            args=self._arguments(steps),
            id=name,
            task_queue=self._task_queue,
            execution_timeout=timedelta(seconds=self._limit),
        )

    async def resume(self, name: str) -> None:
        """See `Contender`. The server dispatches the run to the new worker by itself."""
        await self.client.get_workflow_handle(name).result()

    async def stored(self, name: str) -> int:
        """Return the bytes of history, across continue-as-new."""
        size, run_id = 0, await self._first(name)
        while run_id:
            handle = self.client.get_workflow_handle(name, run_id=run_id)
            description = await handle.describe()
            size += description.raw_description.workflow_execution_info.history_size_bytes
            run_id = ""
            if description.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
                closing = WorkflowHistoryEventFilterType.CLOSE_EVENT
                async for event in handle.fetch_history_events(event_filter_type=closing):
                    run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        return size

    async def diagnose(self, name: str) -> str:
        """Terminate the run if it is still open; return the last failure in its history, or the reason of its end."""
        handle = self.client.get_workflow_handle(name)
        with suppress(RPCError):
            await handle.terminate("aborted by the benchmark")
        found = ""
        with suppress(RPCError):
            async for event in handle.fetch_history_events():
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    failed = event.workflow_task_failed_event_attributes
                    found = f"workflow task failed: {failed.failure.message}"
                elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                    reason = event.workflow_execution_terminated_event_attributes.reason
                    found = found if reason == "aborted by the benchmark" else f"terminated: {reason}"
                elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                    found = f"activity failed: {event.activity_task_failed_event_attributes.failure.message}"
        return found

    async def _first(self, name: str) -> str:
        """Return the run id of the first run of a chain; empty if there is none."""
        try:
            found = await self.client.get_workflow_handle(name).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return ""
            raise
        return found.raw_description.workflow_execution_info.first_run_id
