"""The front door to threads for programs: start one, continue it, read it. `holdfast.runtime.client.listing` looks
across threads, `holdfast.runtime.client.decisions` and `holdfast.runtime.client.messages` have what changes a run.

client = await connect(connect_config(os.environ, home=settings.home))
threads = Threads(client)
started = await threads.start("Publish 1.2")
print(await threads.state(started.thread))
"""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast.errors import (
    AgentNotFound,
    FleetKeyMissing,
    HoldfastError,
    RunPaused,
    ServerUnreachable,
    ThreadExists,
    ThreadNotFound,
    WorkspaceNotFound,
)
from holdfast.llm.messages import Content
from holdfast.log.events import AgentEvent
from holdfast.run import contracts
from holdfast.runtime.client.connect import seals_of
from holdfast.runtime.client.start_options import check_own_id, check_task, details, issued, new_thread_id, summary
from holdfast.runtime.config.settings import ANSWER_SECONDS
from holdfast.runtime.reading.reader import Note, Reader
from holdfast.runtime.reading.runs import ENDED, NeverRan, Runs, status_of
from holdfast.runtime.reading.states import CLOSED, decoded, state_at, state_of
from holdfast.stores import ThreadStore
from holdfast.transcript.transcript import Transcript

JSON = dict[str, Any]


@dataclass(frozen=True)
class Started:
    """A run that was started."""

    thread: str
    run_id: str
    continued: bool = False
    """Whether Temporal knew the thread: it was closed, and goes on."""


class Threads:
    """The threads of one namespace.

    Args:
        client: Connected, speaking Holdfast's models (`holdfast.runtime.client.connect.connect`).
        task_queue: Where new runs find their workers.
        answer_within: Seconds that a worker may take to answer.
        record: The permanent record, for what Temporal has no longer; None without one.
    """

    def __init__(
        self,
        client: Client,
        *,
        task_queue: str = contracts.TASK_QUEUE,
        answer_within: float = ANSWER_SECONDS,
        record: ThreadStore | None = None,
    ) -> None:
        self.runs = Runs(client, answer_within=answer_within)
        self.reader = Reader(self.runs, record)
        self.task_queue = task_queue
        self._client = client

    async def start(
        self,
        task: Content,
        *,
        agent: str | None = None,
        thread: str | None = None,
        workspace: str | None = None,
        idle_limit: float | None = None,
        by: str = "",
        by_proven: bool = True,
    ) -> Started:
        """Start a run. It is recorded when this returns; a worker takes it when there is one.

        Args:
            task: What the agent is to do: text, or the API's content blocks.
            agent: None for the one that a continued thread had, or the catalog's first.
            thread: The thread id: of a new thread, or of a closed one, which goes on. None for a fresh id: then
                nothing that came before is looked for.
            workspace: A folder on the worker; None for the one that a continued thread had, or one of its own.
            idle_limit: Seconds that the run stays open for follow-up messages after the LLM has answered; None for
                what the agent says.
            by: Who gives the task.
            by_proven: The caller knows that it is that person; without that, the run does not reach their memory.

        Raises:
            TaskInvalid: The task is empty, too long or not text.
            ThreadIdInvalid: The thread id cannot be used.
            ThreadExists: A run of that thread is open.
            FleetKeyMissing: Without a fleet key, a run has a fresh thread and a folder of its own.
            ServerUnreachable: The server does not answer.
        """
        check_task(task)
        resume, previous = thread is not None, None
        if thread is None:
            thread = new_thread_id(agent)
        else:
            previous = await self._closed(check_own_id(thread))
        given = contracts.RunInput(task=task, by=by, agent=agent, idle_limit=idle_limit)
        if seals_of(self._client):
            claims = {"workspace": workspace, "resume": resume, "previous_run": previous}
            claims["by_proven"] = by_proven
            given = issued(given.model_copy(update=claims))
        elif workspace is not None or previous is not None:
            what = "in a folder" if workspace is not None else f"of the closed thread {thread!r}"
            raise FleetKeyMissing(
                f"only those who have the fleet key start a run {what}: set HOLDFAST_FLEET_KEYS as the workers have "
                "it, or start the run through the gateway"
            )
        continued = previous is not None
        try:
            run = await self._client.start_workflow(
                contracts.WORKFLOW,
                given,
                id=thread,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                static_summary=summary(task),
                static_details=details(task, agent=agent, thread=thread, workspace=workspace, continued=continued),
                rpc_timeout=timedelta(seconds=10),
            )
        except WorkflowAlreadyStartedError:
            raise _exists(thread, "running") from None
        except RPCError as error:
            raise self.runs.in_words(error, thread) from error
        return Started(thread=thread, run_id=run.first_execution_run_id or "", continued=continued)

    async def _closed(self, thread: str) -> str | None:
        """Temporal's id of the last run of a closed thread; None if Temporal does not know the thread.

        Raises:
            ThreadExists: A run of it is open.
        """
        try:
            found = await self.runs.describe(thread)
        except ThreadNotFound:
            return None
        if status_of(found) in CLOSED:
            found = await self.runs.until_closed(found)
        if found.status not in ENDED:
            raise _exists(thread, status_of(found))
        return found.run_id

    async def loaded(self, thread: str, *, within: float = 5.0) -> JSON | None:
        """The state as soon as a worker has loaded the agent or the run is over; None where nobody answers in time.

        Raises:
            AgentNotFound: The worker's catalog has no such agent.
            WorkspaceNotFound: The workspace is not a folder on the worker.
        """
        clock = asyncio.get_running_loop()
        deadline = clock.time() + within
        state: JSON | None = None
        while (left := deadline - clock.time()) > 0:
            try:
                state = await self.runs.query(thread, "state", within=left)
                if not state["events"] and (found := await self.runs.describe(thread)).status in ENDED:
                    return await self.state(thread, found=found)  # its past cannot be read
            except (ServerUnreachable, NeverRan):
                return state
            if state["status"] == "failed":
                await self._raise_not_found(thread, state)
            if state["agent"] or state["status"] in CLOSED:
                break
            await asyncio.sleep(0.03)
        return state

    async def state(
        self, thread: str, *, found: WorkflowExecutionDescription | None = None, note: Note | None = None
    ) -> JSON:
        """The derived state. What Temporal knows better, such as a run terminated from outside, is put in.

        Args:
            thread: The thread id.
            found: The description, where the caller has it already.
            note: Told when no worker answers; None to raise instead.
        """
        return await state_of(self.reader, thread, found=found, note=note)

    async def state_at(self, thread: str, position: int, *, note: Note | None = None) -> JSON:
        """The derived state right after the event at `position`.

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
    ) -> AsyncIterator[JSON]:
        """The events behind position `after`, oldest first, up to now. The arguments are those of `state`.

        Raises:
            EventsMissing: Earlier ones are nowhere to be read any more.
        """
        async for line in self.reader.lines(thread, after + 1, found=found, note=note):
            yield json.loads(line)

    async def messages(self, thread: str, *, active: bool = False, note: Note | None = None) -> AsyncIterator[JSON]:
        """The messages of a thread, without the system message: all of them, or what the LLM sees now (`active`)."""
        transcript = Transcript(keep_all=not active)
        async for event in decoded(self.reader.lines(thread, 0, found=None, note=note)):
            transcript.add(event)
        for message in transcript.messages:
            yield json.loads(message)

    async def settled(self, thread: str) -> list[AgentEvent]:
        """The events that are on record for good, read without a worker.

        Raises:
            HistoryUnreadable: This release cannot read them.
        """
        lines = self.reader.lines(thread, 0, found=None, note=None, asking=False)
        return [event async for event in decoded(lines)]

    async def pending(self, thread: str) -> list[JSON]:
        """The open requests of a thread, each with its thread."""
        found = await self.reader.find(thread)
        if found is None or found.status in ENDED:
            return []
        requests: list[JSON]
        try:
            requests = await self.runs.query(thread, "pending_approvals")
        except RunPaused:
            requests = (await self.state(thread, found=found))["pending"]
        return [{"thread": thread, **request} for request in requests]

    async def _raise_not_found(self, thread: str, state: JSON) -> None:
        kinds: dict[str, type[HoldfastError]] = {
            contracts.AGENT_NOT_FOUND: AgentNotFound,
            contracts.WORKSPACE_NOT_FOUND: WorkspaceNotFound,
        }
        async for event in self.events(thread, after=state["events"] - 2):
            if event["type"] == "run_finished" and (kind := kinds.get(event.get("cause", ""))):
                raise kind(f"thread {thread!r} could not begin: {event['result']}")


def _exists(thread: str, status: str) -> ThreadExists:
    return ThreadExists(
        f"thread {thread!r} is there already ({status.replace('_', ' ')}). "
        f"Send it a message with `python starter.py say {shlex.quote(thread)} MESSAGE`, follow it with "
        f"`python starter.py watch {shlex.quote(thread)}`, or choose another id with --thread."
    )
