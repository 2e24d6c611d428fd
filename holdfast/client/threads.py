"""Start a thread, re-open a closed thread, and read its state, events and messages.

`holdfast.client.listing` lists threads; `interventions` and `messages` beside it change a run.

    client = await connect(connect_config(os.environ, home=settings.home))
    threads = Threads(client)
    started = await threads.start("Publish 1.2")
    print(await threads.state(started.thread))
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast.client.imported_subagents import refuse_imported_subagent
from holdfast.client.message_times import TimedTranscript
from holdfast.client.reading.loops import loop_lines
from holdfast.client.reading.reader import Note, Reader
from holdfast.client.reading.runs import ENDED, MOVED, NeverRan, Runs, status_of
from holdfast.client.reading.states import CLOSED, decode_lines, pending_of, state_at, state_of
from holdfast.client.start_options import (
    StartOptions,
    check_own_id,
    check_task,
    details,
    issued,
    new_thread_id,
)
from holdfast.config.programs import CLI
from holdfast.config.settings import ANSWER_SECONDS
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.llm.blocks import Content
from holdfast.core.log.events import AgentEvent
from holdfast.core.loop.state import LoopInput
from holdfast.core.run.contracts.error_types import AGENT_NOT_FOUND, CONTEXT_INVALID, WORKSPACE_NOT_FOUND
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, TASK_QUEUE, WORKFLOW, RunInput
from holdfast.core.run.state.features import BUDGETS, LIFTS_ON_START, MESSAGE_IDS, level_of_start
from holdfast.core.stores import ThreadStore
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import (
    AgentNotFound,
    ContextInvalid,
    FleetKeyMissing,
    HoldfastError,
    PositionInvalid,
    Refused,
    ServerUnreachable,
    ThreadExists,
    ThreadForgotten,
    ThreadNotFound,
    WorkspaceNotFound,
)

JSON = dict[str, Any]
_REJECT = WorkflowIDReusePolicy.REJECT_DUPLICATE
_NOT_FOUND: dict[str, type[HoldfastError]] = {
    AGENT_NOT_FOUND: AgentNotFound,
    WORKSPACE_NOT_FOUND: WorkspaceNotFound,
    CONTEXT_INVALID: ContextInvalid,
}
"""The causes with which a run fails before it begins, and their errors."""


@dataclass(frozen=True)
class Started:
    """A run that was started."""

    thread: str
    run_id: str
    continued: bool = False
    """Whether the run re-opened a closed thread."""


class Threads:
    """The threads of one namespace.

    Args:
        client: A client from `holdfast.client.connect.connect`.
        task_queue: The task queue of new runs.
        answer_within: Seconds that a worker may take to answer.
        record: The permanent record, for events that Temporal no longer has; None without one.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = TASK_QUEUE,
        answer_within: float = ANSWER_SECONDS,
        record: ThreadStore | None = None,
    ) -> None:
        self.runs = Runs(client, answer_within=answer_within)
        self.reader = Reader(self.runs, record)
        self.task_queue = task_queue
        self._client = client

    @property
    def sealed(self) -> bool:
        """Whether this process has the fleet key, which is required to continue a closed thread."""
        return bool(seals_in(self._client.data_converter))

    async def start(
        self,
        task: Content,
        thread: str | None = None,
        options: StartOptions | None = None,
        *,
        once: bool = False,
        message_id: str = "",
    ) -> Started:
        """Start a run: of a new thread, or re-open a closed thread. The next free worker runs it.

        The run is recorded in Temporal when this returns.

        Args:
            task: The task: text, or content blocks (`holdfast.core.llm.blocks`).
            thread: The id of a new thread, or of a closed thread to re-open. None for a new id, without a lookup of
                earlier runs.
            options: The other options; None for none.
            once: Whether the thread must be new: a closed one is then not re-opened.
            message_id: For a closed thread: the sender's id of the message that is the task.

        Raises:
            TaskInvalid: The task is empty, too long or not text.
            ThreadIdInvalid: The thread id cannot be used.
            ThreadExists: A run of that thread is open; with `once`, there is such a thread.
            FleetKeyMissing: Without a fleet key, a run must have a new thread, its own folder, and neither context,
                nodes nor conversation.
            ServerUnreachable: The server does not answer.
        """
        task, options = check_task(task), options or StartOptions()
        resume, previous = thread is not None and not once, None
        if thread is None:
            thread = new_thread_id(options.agent)
        elif once:
            await self._check_new(check_own_id(thread))
        else:
            previous = await self._latest_closed_run(check_own_id(thread))
        run_input = RunInput(
            task=task,
            by=options.by,
            agent=options.agent,
            idle_limit=options.idle_limit,
            budget=options.budget,
            when_blocked=options.when_blocked,
        )
        if self.sealed:
            claims: dict[str, Any] = {"workspace": options.workspace, "resume": resume, "previous_run": previous}
            claims["by_proven"] = options.by_proven
            claims |= {"message_id": message_id} if message_id else {}
            claims |= {"context": options.context} if options.context is not None else {}
            others = max(BUDGETS if options.budget else 0, MESSAGE_IDS if message_id else 0)
            claims |= {"scope": options.scope} if options.scope else {}
            claims |= {"lift": options.lift} if options.lift else {}
            others = max(others, LIFTS_ON_START if options.lift else 0)
            claims |= {"conversation": options.conversation} if options.conversation else {}
            claims |= {"traceparent": options.traceparent} if options.traceparent else {}
            level = level_of_start(
                others=others,
                context=options.context,
                when_blocked=options.when_blocked,
                scope=options.scope,
                conversation=options.conversation,
                traceparent=options.traceparent,
            )
            claims |= {"features": level} if level else {}
            run_input = issued(run_input.model_copy(update=claims))
        elif options.workspace is not None or previous is not None or options.needs_seal:
            what = "in a folder" if options.workspace is not None else f"of the closed thread {thread!r}"
            what = "with a conversation" if options.conversation else what
            what = "with a context" if options.context is not None else "on certain nodes" if options.nodes else what
            raise FleetKeyMissing(
                f"starting a run {what} needs the fleet key: set HOLDFAST_FLEET_KEYS as the workers have it, or start "
                "the run through the gateway"
            )
        continued = previous is not None
        shown = details(task, agent=options.agent, thread=thread, workspace=options.workspace, continued=continued)
        try:
            run_id = await self.begin(thread, run_input, title=task, details=shown, once=once)
        except WorkflowAlreadyStartedError:
            if foreign := self.reader.ownership.foreign(thread):
                raise ThreadExists(
                    f"thread {thread!r} cannot continue: {foreign}. Find out who has started it, and end it with "
                    f"`temporal workflow terminate -w {thread}`"
                ) from None
            raise _exists(thread, "running") from None
        if self.sealed:
            self.reader.ownership.started(thread, run_id)
        return Started(thread=thread, run_id=run_id, continued=continued)

    async def begin(
        self,
        thread: str,
        begin: RunInput | LoopInput,
        *,
        title: Content,
        details: str,
        once: bool = False,
    ) -> str:
        """Start the workflow of a run or a loop, and return the id that Temporal gives the run.

        Args:
            thread: The id of the thread or the loop.
            begin: The input.
            title: The text whose first line is shown in lists of runs.
            details: The description in the Web UI, in Markdown.
            once: Whether to require that Temporal never had a run of this id.

        Raises:
            WorkflowAlreadyStartedError: A run of this id is open; with `once`, there was one.
            ServerUnreachable: The server does not answer.
        """
        try:
            run = await self._client.start_workflow(
                WORKFLOW if isinstance(begin, RunInput) else LOOP_WORKFLOW,
                begin,
                id=thread,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=_REJECT if once else WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                memo=memo(title),
                static_summary=summary(title),
                static_details=details,
                rpc_timeout=timedelta(seconds=10),
            )
        except RPCError as error:
            raise self.runs.translate_error(error, thread) from error
        return run.first_execution_run_id or ""

    async def _check_new(self, thread: str) -> None:
        """Check that neither Temporal nor the permanent record has a thread.

        Raises:
            ThreadExists: One of them has it.
        """
        with contextlib.suppress(ThreadNotFound):
            found = await self.reader.find(thread)
            raise _exists(thread, status_of(found) if found else "closed")

    async def _latest_closed_run(self, thread: str) -> str | None:
        """Return Temporal's id of the latest run of a closed thread; None if Temporal has no such thread.

        Raises:
            ThreadExists: A run of the thread is open.
            Refused: It was moved to another cluster; or it is a sub-agent's whose log may have been imported.
            ThreadForgotten: Its content was removed.
            RecordUnavailable: Its id may be a sub-agent's, and the record does not answer.
        """
        found = None
        with contextlib.suppress(ThreadNotFound):
            found = await self.reader.find(thread)
        if found is None:
            await self._refuse_forgotten(thread)
            await refuse_imported_subagent(self.reader, thread)
            return None
        if status_of(found) in CLOSED:
            found = await self.runs.until_closed(found)
        if found.status not in ENDED:
            raise _exists(thread, status_of(found))
        if status_of(found) == MOVED:
            raise Refused(
                f"thread {thread!r} was moved to another place, and continues there; to take it back, import its file"
            )
        return found.run_id

    async def _refuse_forgotten(self, thread: str) -> None:
        """Raise `ThreadForgotten` if the record has a tombstone. If it does not answer, the worker checks."""
        try:
            if self.reader.record:
                await self.reader.record.length(thread)
        except ThreadForgotten:
            raise
        except HoldfastError:
            pass

    async def wait_until_loaded(self, thread: str, *, within: float = 5.0, past: int = 0) -> JSON | None:
        """Wait until a worker has loaded the agent or the run has ended, and return the state.

        Args:
            thread: The thread id.
            within: Seconds to wait. After them, return the last state that a worker reported; None if none answered, or
                if the thread has only its past.
            past: The number of events that an import has brought: until there are more, no worker has loaded an agent.

        Raises:
            AgentNotFound: The worker's catalog has no such agent.
            WorkspaceNotFound: The workspace is not a folder on the worker.
            ContextInvalid: The context does not fit the agent's model.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + within
        state: JSON | None = None
        while (left := deadline - clock.time()) > 0:
            try:
                reported = await self.runs.query(thread, "state", within=left)
                begun = reported["events"] > past
                if not begun and (found := await self.runs.describe(thread)).status in ENDED:
                    await self._raise_failed_start(found)
                    return await self.state(thread, found=found)  # it closed before it read the thread's past
            except (ServerUnreachable, NeverRan):
                return state
            state = reported if begun or not past else None
            if begun and reported["status"] == "failed":
                await self._raise_not_found(thread, reported)
            if begun and (reported["agent"] or reported["status"] in CLOSED):
                break
            await asyncio.sleep(0.03)
        return state

    async def state(
        self,
        thread: str,
        *,
        found: WorkflowExecutionDescription | None = None,
        note: Note | None = None,
        use_worker: bool = True,
    ) -> JSON:
        """Return the thread's state. If the run was closed in Temporal from outside, its status and result say so.

        Args:
            thread: The thread id.
            found: The latest run's description, if the caller already has it.
            note: Called with a message when no worker answers; None to raise instead.
            use_worker: Query the worker; otherwise read only the recorded history.
        """
        return await state_of(self.reader, thread, found=found, note=note, use_worker=use_worker)

    async def state_at(self, thread: str, position: int, *, note: Note | None = None) -> JSON:
        """Return the thread's state right after the event at `position`.

        Raises:
            PositionInvalid: There is no such event.
        """
        return await state_at(self.reader, thread, position, note=note)

    async def events(
        self,
        thread: str,
        *,
        after: int = -1,
        found: WorkflowExecutionDescription | None = None,
        note: Note | None = None,
        loops: bool = False,
    ) -> AsyncIterator[JSON]:
        """Yield the events recorded so far after position `after`, oldest first. Other arguments are as in `state`.

        With `loops`, `thread` may be the id of a loop.

        Raises:
            EventsMissing: Some of them can no longer be read.
        """
        if loops:
            found = found or await self.reader.find(thread, loops=True)
            if found and found.workflow_type == LOOP_WORKFLOW:
                async for line in loop_lines(self.reader, thread, after + 1, found=found, note=note):
                    yield json.loads(line)
                return
        async for line in self.reader.lines(thread, after + 1, found=found, note=note):
            yield json.loads(line)

    async def messages(
        self, thread: str, *, active: bool = False, at: int | None = None, note: Note | None = None
    ) -> AsyncIterator[JSON]:
        """Yield the messages of a thread, without the system message: all of them, or those that the LLM sees now
        (`active`). Each has the time `at` which it came.

        With `at`, as they were right after the event at that position.

        Raises:
            PositionInvalid: There is no such event.
        """
        transcript, last = TimedTranscript(keep_all=not active), -1
        async for event in decode_lines(self.reader.lines(thread, 0, found=None, note=note)):
            transcript.add(event)
            last = event.position
            if last == at:
                break
        if at is not None and last != at:
            raise PositionInvalid(f"thread {thread!r} has no event {at}: its events are at positions 0 to {last}")
        for message, came_at in transcript.messages():
            yield {**json.loads(message), "at": came_at.isoformat()}

    async def recorded_events(self, thread: str) -> list[AgentEvent]:
        """Return the events that are durably recorded, read without a worker.

        Raises:
            HistoryUnreadable: This release cannot read them.
        """
        lines = self.reader.lines(thread, 0, found=None, note=None, use_worker=False)
        return [event async for event in decode_lines(lines)]

    async def pending(self, thread: str, *, note: Note | None = None, use_worker: bool = True) -> list[JSON]:
        """Return the open requests of a thread, each with the thread id.

        Args:
            thread: The thread id.
            note: Called with a message when no worker answers and the requests are read from Temporal's history; None
                to raise instead.
            use_worker: Query the worker; otherwise read only the recorded history.
        """
        requests = await pending_of(self.reader, thread, note=note, use_worker=use_worker)
        return [{"thread": thread, **request} for request in requests]

    async def _raise_not_found(self, thread: str, state: JSON) -> None:
        async for event in self.events(thread, after=state["events"] - 2):
            if event["type"] == "run_finished" and (kind := _NOT_FOUND.get(event.get("cause", ""))):
                raise kind(f"thread {thread!r} could not start: {event['result']}")

    async def _raise_failed_start(self, found: WorkflowExecutionDescription) -> None:
        """Raise why a run ended that has recorded nothing, if that is one of the reasons that have an error here."""
        run = self._client.get_workflow_handle(found.id, run_id=found.run_id)
        try:
            await run.result(follow_runs=False)
        except RPCError as error:
            raise self.runs.translate_error(error, found.id) from error
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and (kind := _NOT_FOUND.get(cause.type or "")):
                raise kind(f"thread {found.id!r} could not start: {cause.message}") from None


def _exists(thread: str, status: str) -> ThreadExists:
    return ThreadExists(
        f"thread {thread!r} already exists ({status.replace('_', ' ')}). "
        f"Send it a message with `{CLI.command('say', thread, 'MESSAGE')}`, follow it with "
        f"`{CLI.command('watch', thread)}`, or choose another id with --thread."
    )
