"""Remove the histories of all Temporal runs of a thread."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DeleteWorkflowExecutionRequest,
    DescribeWorkflowExecutionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.prune import is_open
from holdfast.client.reading.executions import list_runs
from holdfast.client.reading.histories import previous_of
from holdfast.client.reading.runs import Runs
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, WORKFLOW
from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.errors import Refused, ThreadNotFound

_WITHIN = timedelta(seconds=10)
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 30.0
"""How long to wait until the server has removed the histories."""


@dataclass(frozen=True)
class RemovedHistories:
    """The Temporal runs whose histories were removed, and those that the server has not removed yet."""

    runs: tuple[str, ...]
    remaining: tuple[str, ...]


async def remove_histories(runs: Runs, thread: str, *, patience: float = _PATIENCE_SECONDS) -> RemovedHistories:
    """Remove the history of every Temporal run of a closed thread, the latest last.

    Args:
        runs: The namespace's runs.
        thread: The thread id.
        patience: Seconds to wait for the server.

    Raises:
        Refused: A run is open.
        ServerUnreachable: The server is unreachable.
    """
    run_ids = await runs_of(runs, thread)
    if await is_open(runs, thread):
        raise Refused(f"thread {thread!r} was continued meanwhile: its run is open. Cancel it, then forget it again")
    for run_id in reversed(run_ids):
        await _delete(runs, thread, run_id)
    deadline = asyncio.get_running_loop().time() + patience
    remaining = [run_id for run_id in run_ids if await _exists(runs, thread, run_id)]
    while remaining and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
        remaining = [run_id for run_id in remaining if await _exists(runs, thread, run_id)]
    return RemovedHistories(tuple(run_ids), tuple(remaining))


async def runs_of(runs: Runs, thread: str) -> list[str]:
    """Return the ids of all Temporal runs of a thread or loop that the server has, the latest first.

    Each run names the one before it. Visibility, which lags a little, finds runs that no other names (after a reset).
    """
    run_ids: dict[str, None] = {}
    run_id: str | None = None
    with suppress(ThreadNotFound):
        run_id = (await runs.describe(thread, loops=True)).run_id
    while run_id and run_id not in run_ids:
        run_ids[run_id] = None
        try:
            run_id = await previous_of(runs, thread, run_id)
        except DecryptionFailed:
            run_id = None
    query = f"WorkflowType IN ('{WORKFLOW}', '{LOOP_WORKFLOW}')"
    if not {'"', "\\"} & set(thread):  # no quoting makes visibility find such an id: compare all ids instead
        query += " AND WorkflowId = '" + thread.replace("'", "''") + "'"
    try:
        async for run in list_runs(runs.client, query, within=_WITHIN):
            if run.id == thread:
                run_ids.setdefault(run.run_id)
    except RPCError as error:
        raise runs.translate_error(error, thread) from error
    return list(run_ids)


async def _delete(runs: Runs, thread: str, run_id: str) -> None:
    request = DeleteWorkflowExecutionRequest(
        namespace=runs.client.namespace, workflow_execution=WorkflowExecution(workflow_id=thread, run_id=run_id)
    )
    try:
        await runs.client.workflow_service.delete_workflow_execution(request, retry=True, timeout=_WITHIN)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise runs.translate_error(error, thread) from error


async def _exists(runs: Runs, thread: str, run_id: str) -> bool:
    request = DescribeWorkflowExecutionRequest(
        namespace=runs.client.namespace, execution=WorkflowExecution(workflow_id=thread, run_id=run_id)
    )
    try:
        await runs.client.workflow_service.describe_workflow_execution(request, retry=True, timeout=_WITHIN)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise runs.translate_error(error, thread) from error
    return True
