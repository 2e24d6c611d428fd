"""What the contenders on Temporal share: starting a run by its workflow's name, measuring its history, autopsy."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode


class TemporalRuns:
    """Runs of one workflow type.

    Args:
        client: Connected, with the contender's plugin.
        workflow: The workflow's name.
        task_queue: Where its worker listens.
        arguments: The workflow's arguments, from the number of steps.
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
        """See `Contender`. Nothing to do but to wait: the server hands the run to the new worker."""
        await self.client.get_workflow_handle(name).result()

    async def stored(self, name: str) -> int:
        """Bytes of history, over every continue-as-new."""
        size, run_id = 0, await self._first(name)
        while run_id:
            handle = self.client.get_workflow_handle(name, run_id=run_id)
            found = await handle.describe()
            size += found.raw_description.workflow_execution_info.history_size_bytes
            run_id = ""
            if found.status == WorkflowExecutionStatus.CONTINUED_AS_NEW:
                closing = WorkflowHistoryEventFilterType.CLOSE_EVENT
                async for event in handle.fetch_history_events(event_filter_type=closing):
                    run_id = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        return size

    async def autopsy(self, name: str) -> str:
        """The last failure in the history, or the reason of the end; the run is terminated if it still goes on."""
        handle = self.client.get_workflow_handle(name)
        with suppress(RPCError):
            await handle.terminate("given up by the bench")
        found = ""
        with suppress(RPCError):
            async for event in handle.fetch_history_events():
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                    failed = event.workflow_task_failed_event_attributes
                    found = f"workflow task failed: {failed.failure.message}"
                elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                    reason = event.workflow_execution_terminated_event_attributes.reason
                    found = found if reason == "given up by the bench" else f"terminated: {reason}"
                elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                    found = f"activity failed: {event.activity_task_failed_event_attributes.failure.message}"
        return found

    async def _first(self, name: str) -> str:
        """Run id of the first run of a chain; empty if there is none."""
        try:
            found = await self.client.get_workflow_handle(name).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return ""
            raise
        return found.raw_description.workflow_execution_info.first_run_id
