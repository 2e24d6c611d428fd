"""Find schedules, and read their definitions and the outcomes of their runs. Needs no worker.

Each is a Temporal schedule of the same id. Schedules of other programs in the namespace are ignored.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta

from temporalio.client import (
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionResult,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleListActionStartWorkflow,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.exceptions import ChildWorkflowError, FailureError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading import executions
from holdfast.client.reading.runs import ENDED, status_of
from holdfast.client.schedule_definitions import begin_of, check_schedule_name, definition_of
from holdfast.client.threads import JSON, Threads
from holdfast.config.programs import CLI
from holdfast.core.base.text import one_line
from holdfast.core.llm.blocks import text_of
from holdfast.core.mac.seals import launched
from holdfast.core.run.contracts.error_types import cause_of
from holdfast.core.run.contracts.runs import SCHEDULED_WORKFLOW
from holdfast.core.temporal.converter import DecryptionFailed
from holdfast.errors import HoldfastError, ScheduleExists, ScheduleInvalid, ScheduleNotFound, ThreadNotFound

LIMIT = timedelta(seconds=10)
"""Time limit for the server's answer."""

_MAX_CONCURRENT = 20
_NEXT = 5
"""Number of next times to show."""


async def find_schedule(threads: Threads, name: str, *, taken: bool = False) -> ScheduleDescription:
    """Return Temporal's description of a schedule.

    Raises:
        ScheduleInvalid: A schedule cannot have this name.
        ScheduleNotFound: There is no such schedule.
        ScheduleExists: With `taken`: another program's schedule has the name.
        ServerUnreachable: The server does not answer.
    """
    check_schedule_name(name)
    try:
        found = await threads.runs.client.get_schedule_handle(name).describe(rpc_timeout=LIMIT)
    except RPCError as error:
        raise translate_schedule_error(threads, error, name) from error
    action = found.schedule.action
    if isinstance(action, ScheduleActionStartWorkflow) and action.workflow == SCHEDULED_WORKFLOW:
        return found
    if taken:
        raise ScheduleExists(f"another program has a schedule {name!r} in this namespace; choose another name")
    raise _not_found(name)


async def list_schedules(threads: Threads, *, prefixes: Sequence[str] = (), limit: int = 1_000) -> list[JSON]:
    """List schedules by name, each as `schedule_state` returns it, without its runs.

    Temporal's list of schedules lags a little.

    Args:
        threads: The namespace's threads.
        prefixes: Only schedules whose name begins with one of these; none for all.
        limit: Maximum number of schedules.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    names: list[str] = []
    try:
        async for each in await threads.runs.client.list_schedules(rpc_timeout=LIMIT):
            action = each.schedule.action if each.schedule else None
            ours = isinstance(action, ScheduleListActionStartWorkflow) and action.workflow == SCHEDULED_WORKFLOW
            if ours and each.id.startswith(tuple(prefixes) or ""):
                names.append(each.id)
            if len(names) >= limit:
                break
    except RPCError as error:
        raise translate_schedule_error(threads, error) from error
    gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def state(name: str) -> JSON | None:
        async with gate:
            try:
                return await schedule_state(threads, name, runs=False)
            except (ScheduleNotFound, ScheduleInvalid):  # deleted meanwhile, or not created by Holdfast
                return None

    return [row for row in await asyncio.gather(*map(state, sorted(names))) if row]


async def schedule_state(threads: Threads, name: str, *, runs: bool = True) -> JSON:
    """Return a schedule's definition and state, and with `runs` its last ten runs, newest first.

    A run has the `status` of its thread, or `starting` before a worker has picked it up, `not_started` for the reason
    in `why`, or `removed` if Temporal no longer has it.

    Raises:
        ScheduleNotFound: There is no such schedule.
        ServerUnreachable: The server does not answer.
    """
    found = await find_schedule(threads, name)
    begin = await begin_of(threads.runs.client, found)
    given, state, info = definition_of(begin, found), found.schedule.state, found.info
    recent = sorted(info.recent_actions, key=lambda each: each.started_at, reverse=True) if runs else []
    problem = begin.malformed or ("" if begin.sealed else "its input carries no valid seal")
    return {
        "schedule": name,
        "task": text_of(given.task),
        "by": given.by,
        "agent": given.agent,
        "workspace": given.workspace,
        "reason": given.reason,
        "budget": given.budget.words if given.budget else "",
        **({"context": given.context} if given.context is not None else {}),
        **({"nodes": list(given.nodes)} if given.nodes else {}),
        "unattended": given.when_blocked == "fail",
        "cron": given.cron,
        "every": given.every,
        "tz": given.tz,
        "until": given.until.isoformat() if given.until else None,
        "overlap": given.overlap,
        "catchup": given.catchup,
        "paused": state.paused,
        "note": state.note or "",
        "problem": f"{problem}; it starts no run: add it again" if problem else "",
        "next": [] if state.paused else [at.isoformat() for at in info.next_action_times[:_NEXT]],
        "started": info.num_actions,
        "skipped": info.num_actions_skipped_overlap,
        "missed": info.num_actions_missed_catchup_window,
        "runs": list(await asyncio.gather(*(_run(threads, each) for each in recent))),
    }


async def _run(threads: Threads, each: ScheduleActionResult) -> JSON:
    """Return the outcome of a start by a schedule."""
    action = each.action
    assert isinstance(action, ScheduleActionExecutionStartWorkflow)
    found = launched(action.workflow_id)
    thread = found[1] if found else action.workflow_id
    status, why = await _launcher_outcome(threads, action)
    if status != "not_started":
        with contextlib.suppress(ThreadNotFound):
            status = status_of(await threads.runs.describe(thread))
    return {
        "thread": thread,
        "due_at": each.scheduled_at.isoformat(),
        "started_at": each.started_at.isoformat(),
        "status": status,
        "why": why if status in ("failed", "not_started") else "",
    }


async def _launcher_outcome(threads: Threads, action: ScheduleActionExecutionStartWorkflow) -> tuple[str, str]:
    """Return a launcher's status, and why it or its run failed."""
    client = threads.runs.client
    try:
        found = await executions.describe(client, action.workflow_id, within=LIMIT)
        if found.status not in ENDED:
            return "starting", ""
        if found.status is not WorkflowExecutionStatus.FAILED:
            return "removed", ""  # unless its thread exists
        await client.get_workflow_handle(action.workflow_id, run_id=found.run_id).result(rpc_timeout=LIMIT)
    except WorkflowFailureError as error:
        failure = error.cause
        if isinstance(failure, ChildWorkflowError):
            return "failed", one_line(cause_of(failure)[1], 300)
        why = failure.message if isinstance(failure, FailureError) else str(failure)
        return "not_started", one_line(why, 300)
    except DecryptionFailed as error:
        return "failed", one_line(str(error), 300)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise translate_schedule_error(threads, error) from error
    return "removed", ""


def translate_schedule_error(threads: Threads, error: RPCError, name: str = "") -> HoldfastError:
    """Return the HoldfastError for a server error about a schedule."""
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return ScheduleInvalid(f"Temporal refuses the schedule {name!r}: {one_line(error.message, 300)}")
    translation = threads.runs.translate_error(error)
    return _not_found(name) if isinstance(translation, ThreadNotFound) else translation


def _not_found(name: str) -> ScheduleNotFound:
    listed = CLI.command("schedule", "list")
    return ScheduleNotFound(f"there is no schedule {name!r}; `{listed}` lists those that there are")
