"""Run a worker with its scripted LLM, and wait for a run by condition, never by time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest, RespondActivityTaskFailedByIdRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from holdfast.activities.heartbeats import attempt_of
from holdfast.client.reading.runs import Runs
from holdfast.client.start_options import issued
from holdfast.client.time_skipping import skip_time
from holdfast.config.stack_file import Stack
from holdfast.core.agents.catalog import Catalog
from holdfast.core.llm.blocks import Content
from holdfast.core.log.event_log import first_altered
from holdfast.core.log.events import EVENTS, AgentEvent
from holdfast.core.loop.state import LoopInput, LoopResult
from holdfast.core.mac.seals import launcher_prefix
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, SCHEDULED_WORKFLOW, WORKFLOW, RunInput
from holdfast.core.schedule.launching import ScheduledInput, ScheduledResult
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.converter import data_converter
from holdfast.core.temporal.history_reader import read_events
from holdfast.storage.pool import migrate, open_pool
from holdfast.storage.threads import PostgresThreads
from holdfast.testing import Script, ScriptedLLM, Unparsed
from holdfast.testing.scripted_worker import scripted_worker
from holdfast.worker.takeover.takeover import WORKER_DIED
from holdfast.workflows import WORKFLOWS
from holdfast.workspace.approved_instructions import Approvals
from holdfast.workspace.memory.recall import WorkspaceMemory

PATIENCE = 120.0
"""Seconds after which a test stops waiting for a condition."""

_migrated: set[str] = set()
"""The databases that this process has migrated."""


@dataclass
class Rig:
    """A running worker, its LLM, and methods to start runs on it."""

    client: Client
    llm: ScriptedLLM
    task_queue: str
    workspace: Path
    threads: ThreadStore
    task_timeout: timedelta | None = None
    """The time limit of a run's workflow tasks; None for Temporal's, of 10 s."""

    async def start(self, task: Content = "do it", **run: Any) -> WorkflowHandle[Any, Any]:
        """Start a run, with a new thread id unless one is given, and return its handle."""
        thread = run.pop("thread", None) or f"test-{uuid4().hex[:8]}"
        arguments = {"workspace": str(self.workspace), **run}
        return await self.client.start_workflow(
            WORKFLOW,
            issued(RunInput(task=task, **arguments)),
            id=thread,
            task_queue=self.task_queue,
            task_timeout=self.task_timeout,
        )

    async def start_loop(self, name: str = "", **loop: Any) -> WorkflowHandle[Any, LoopResult]:
        """Start a loop on the rig's workspace, with a new id unless one is given, and return its handle."""
        loop_input = LoopInput(**{"workspace": str(self.workspace), "by": "dana", **loop})
        name = name or f"loop-{uuid4().hex[:8]}"
        return await self.client.start_workflow(
            LOOP_WORKFLOW, issued(loop_input), id=name, task_queue=self.task_queue, result_type=LoopResult
        )

    async def launch(
        self, schedule: str, *, at: str = "2026-01-02T03:04:05Z", **given: Any
    ) -> WorkflowHandle[Any, ScheduledResult]:
        """Start a launcher, as a schedule of that name does at that time, and return its handle."""
        fields = {"task": "do it", "by": "dana", "workspace": str(self.workspace), **given}
        begin = issued(ScheduledInput.model_validate(fields))
        return await self.client.start_workflow(
            SCHEDULED_WORKFLOW,
            begin,
            id=f"{launcher_prefix(schedule)}-{at}",
            task_queue=self.task_queue,
            result_type=ScheduledResult,
        )


StartRig = Callable[..., AbstractAsyncContextManager[Rig]]


def environ_of(stack: Stack) -> dict[str, str]:
    """Return the environment that another process needs to use the stack, and has patience on a busy machine."""
    return {
        "TEMPORAL_ADDRESS": stack.temporal_address,
        "HOLDFAST_FLEET_KEYS": Path(stack.fleet_keys).read_text(encoding="ascii").strip(),
        "HOLDFAST_ANSWER_SECONDS": "60",
    }


async def migrate_once(database_url: str) -> None:
    """Migrate a database, unless this process has done so."""
    if database_url not in _migrated:
        await migrate(database_url)
        _migrated.add(database_url)


@asynccontextmanager
async def start_rig(
    client: Client,
    catalog: Catalog,
    script: Script | Unparsed,
    *,
    worker_client: Client,
    database_url: str,
    folder: Path,
    task_queue: str = "",
    **options: Any,
) -> AsyncIterator[Rig]:
    """Run a worker with its own LLM for a block.

    Args:
        client: The test's client.
        catalog: The worker's agents and tools.
        script: The LLM's replies.
        worker_client: The worker's client: a client allows one worker per task queue.
        database_url: The URL of a PostgreSQL, which is migrated at its first use.
        folder: The folder for workspaces.
        task_queue: The worker's task queue; a new one if not given.
        options: More arguments of `build_worker`.
    """
    await migrate_once(database_url)
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    queue = task_queue or f"test-{uuid4().hex[:8]}"
    async with (
        open_pool(database_url, size=8) as pool,
        scripted_worker(
            worker_client,
            catalog,
            script,
            task_queue=queue,
            pool=pool,
            database_url=database_url,
            workspaces=folder / "workspaces",
            **options,
        ) as llm,
    ):
        # The strict sandbox imports our code for each run, which takes 20 s and more on a busy machine: the run would
        # begin again and again.
        limit = timedelta(seconds=PATIENCE) if options.get("strict") else None
        yield Rig(client, llm, queue, workspace, catalog.threads or PostgresThreads(pool), limit)


def approve(workspace: Path) -> None:
    """Approve the instructions in a workspace, as a person does with `starter.py trust`."""
    paths = [each for each, _ in WorkspaceMemory().instructions(workspace)]
    Approvals().add(paths, by="dana", at=datetime.now(UTC))


async def die() -> None:
    """End the calling attempt like SIGKILL: nothing after it is recorded."""
    attempt = attempt_of.get()
    assert attempt is not None
    attempt.cancel()
    await asyncio.sleep(60)


async def lose_attempt(
    client: Client, run: WorkflowHandle[Any, Any], activity_id: str, *, delay: timedelta = timedelta(milliseconds=1)
) -> None:
    """End an attempt at an activity as a worker does that finds the attempt's worker killed.

    Args:
        client: A connected client.
        run: The run that has the activity.
        activity_id: The activity.
        delay: The time before Temporal's next attempt.
    """
    died = ApplicationFailureInfo(type=WORKER_DIED)
    died.next_retry_delay.FromTimedelta(delay)
    await client.workflow_service.respond_activity_task_failed_by_id(
        RespondActivityTaskFailedByIdRequest(
            namespace=client.namespace,
            workflow_id=run.id,
            activity_id=activity_id,
            failure=Failure(message="killed", application_failure_info=died),
        )
    )


async def eventually(ask: Callable[[], Awaitable[Any]], wanted: Callable[[Any], bool]) -> Any:
    """Poll until the answer satisfies the condition, and return it.

    Polls become rarer over time: most are queries, which cost a worker and Temporal CPU time.

    Raises:
        AssertionError: It never did; the message has the last answer.
    """
    answer, pause = None, 0.02
    try:
        async with asyncio.timeout(PATIENCE):
            while not wanted(answer := await ask()):  # the answer is another process's
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, 0.15)
    except TimeoutError:
        raise AssertionError(f"never came; the last answer was {answer!r}") from None
    return answer


async def skip(client: Client, run: WorkflowHandle[Any, Any], **time: float) -> None:
    """Let time pass for a run, such as `days=21`."""
    await skip_time(Runs(client, answer_within=PATIENCE), run.id, timedelta(**time), within=PATIENCE)


async def answer_of(update: Awaitable[Any]) -> dict[str, str]:
    """Return an update's outcome and explanation, whether the run accepted it or rejected it before recording it."""
    try:
        answer: dict[str, str] = await update
    except WorkflowUpdateFailedError as error:
        if not isinstance(error.cause, ApplicationError) or not error.cause.details:
            raise  # it failed for another reason
        return {"outcome": error.cause.type or "", "explanation": error.cause.message}
    return answer


async def status_of(handle: WorkflowHandle[Any, Any], *wanted: str) -> dict[str, Any]:
    """Wait until the run has one of these statuses, and return its state."""
    state: dict[str, Any] = await eventually(lambda: handle.query("state"), lambda state: state["status"] in wanted)
    return state


async def events_of(handle: WorkflowHandle[Any, Any]) -> list[AgentEvent]:
    """Return all events that a Temporal run has recorded, decoded."""
    events: list[AgentEvent] = []
    while page := await handle.query("log", events[-1].position + 1 if events else 0, result_type=bytes):
        events += EVENTS.validate_json(b"[" + page.replace(b"\n", b",") + b"]")
    return events


async def events_and_history(run: WorkflowHandle[Any, Any]) -> tuple[list[AgentEvent], WorkflowHistory]:
    """Return the events and the history of a Temporal run at the same moment, although it may be changing."""
    while True:
        before, history = await events_of(run), await run.fetch_history()
        if before == await events_of(run):
            return before, history


async def runs_of(client: Client, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHandle[Any, Any]]:
    """Yield the Temporal runs of a thread, from the first one through each continue-as-new."""
    run_id = handle.run_id or handle.first_execution_run_id
    runs = []
    while run_id:
        runs.append(client.get_workflow_handle(handle.id, run_id=run_id))
        last = (await runs[-1].fetch_history()).events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return runs


async def tasks_of(run: WorkflowHandle[Any, Any]) -> list[int]:
    """Return the events that a run can be reset to."""
    history = (await run.fetch_history()).events
    return [event.event_id for event in history if event.HasField("workflow_task_completed_event_attributes")]


async def task_of(run: WorkflowHandle[Any, Any], activity: str) -> int:
    """Return the event to reset a run to before its first call of this activity, which the run then repeats.

    The number of workflow tasks before it depends on the speed of the machine.
    """
    history = (await run.fetch_history()).events
    scheduled = (event.activity_task_scheduled_event_attributes for event in history)
    return next(each.workflow_task_completed_event_id for each in scheduled if each.activity_type.name == activity)


async def reset(rig: Rig, run: WorkflowHandle[Any, Any], *, to: int, again: bool = True) -> WorkflowHandle[Any, Any]:
    """Reset a run to the workflow task that this event completed; later signals and updates are sent `again`."""
    request = ResetWorkflowExecutionRequest(
        namespace=rig.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=run.id, run_id=run.run_id or run.first_execution_run_id or ""),
        reason="a test",
        request_id=uuid4().hex,
        workflow_task_finish_event_id=to,
        reset_reapply_exclude_types=[]
        if again
        else [
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
            ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
        ],
    )
    answer = await rig.client.workflow_service.reset_workflow_execution(request)
    return rig.client.get_workflow_handle(run.id, run_id=answer.run_id)


async def try_reset(
    rig: Rig, run: WorkflowHandle[Any, Any], *, to: int, again: bool = True
) -> WorkflowHandle[Any, Any] | None:
    """Reset a run as `reset` does; None if Temporal cannot divide the events that it has recorded together.

    The task of an update is recorded with its schedule and its start. If the update is refused, nothing in the history
    distinguishes it from other tasks.
    """
    try:
        return await reset(rig, run, to=to, again=again)
    except RPCError as error:
        if "at the boundary" not in str(error):
            raise
        return None


async def check_thread(client: Client, handle: WorkflowHandle[Any, Any]) -> list[AgentEvent]:
    """Return all events of a thread from the histories of its Temporal runs, and check them.

    Each run's history replays and yields the events that the workflow's query returns; together they are one log.
    `tests/replay` replays recorded histories in the sandbox, which costs ten times as much.
    """
    events: list[AgentEvent] = []
    replayer = Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter,
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,
    )
    for run in await runs_of(client, handle):
        recorded, history = await events_and_history(run)
        await replayer.replay_workflow(history)
        own = read_events(history.events)
        assert own == recorded
        first = own[0].position
        assert first <= len(events), "a gap between two runs"
        assert own[: len(events) - first] == events[first:]
        events = events[:first] + own
    assert first_altered(events) is None
    return events
