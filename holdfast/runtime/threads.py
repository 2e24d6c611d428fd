"""The front door to threads for programs: start and read one. `holdfast.runtime.listing` looks across threads,
`holdfast.runtime.decisions` has what changes a run.

client = await connect(connect_config(os.environ, home=settings.home))
threads = Threads(client)
started = await threads.start("Publish 1.2")
print(await threads.state(started.thread))
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from holdfast import contracts
from holdfast.describe import one_line
from holdfast.errors import HistoryUnreadable, HoldfastError, ServerUnreachable
from holdfast.events import AgentEvent, event_json
from holdfast.history import read_events
from holdfast.model import canonical
from holdfast.runtime.runs import ENDED, NeverRan, Runs, status_of
from holdfast.runtime.settings import ANSWER_SECONDS
from holdfast.runtime.thread_errors import (
    AgentNotFound,
    NoWorker,
    TaskInvalid,
    ThreadExists,
    ThreadIdInvalid,
    WorkspaceNotFound,
)
from holdfast.state import RunState, evolve
from holdfast.transcript import Transcript

JSON = dict[str, Any]
Note = Callable[[str], None]
"""Told that no worker answers. Whoever gives one takes, in an answer's stead, what is settled in the history."""

CLOSED = frozenset(ENDED.values())


@dataclass(frozen=True)
class Started:
    """A run that was started."""

    thread: str
    run_id: str


class Threads:
    """The threads of one namespace.

    Args:
        client: Connected, speaking Holdfast's models (`holdfast.runtime.client.connect`).
        task_queue: Where new runs find their workers.
        answer_within: Seconds that a worker may take to answer.
    """

    def __init__(
        self, client: Client, *, task_queue: str = contracts.TASK_QUEUE, answer_within: float = ANSWER_SECONDS
    ) -> None:
        self.runs = Runs(client, answer_within=answer_within)
        self.task_queue = task_queue
        self._client = client

    async def start(
        self, task: str, *, agent: str | None = None, thread: str | None = None, workspace: str | None = None
    ) -> Started:
        """Start a run. It is recorded when this returns; a worker takes it when there is one.

        Args:
            task: What the agent is to do.
            agent: None for the catalog's first.
            thread: The thread id; None for a new one.
            workspace: A folder on the worker; None for one of the thread's own.

        Raises:
            TaskInvalid: The task is empty, too long or not text.
            ThreadIdInvalid: The thread id cannot be used.
            ThreadExists: The thread id is taken.
            ServerUnreachable: The server does not answer.
        """
        check_task(task)
        thread = new_thread_id(agent) if thread is None else check_thread_id(thread)
        try:
            run = await self._client.start_workflow(
                contracts.WORKFLOW,
                contracts.RunInput(task=task, agent=agent, workspace=workspace),
                id=thread,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                static_summary=one_line(next(line for line in task.splitlines() if line.strip()), 100),
                static_details=_details(task, agent=agent, thread=thread, workspace=workspace),
                rpc_timeout=timedelta(seconds=10),
            )
        except WorkflowAlreadyStartedError:
            raise ThreadExists(await self._taken(thread)) from None
        except RPCError as error:
            raise self.runs.in_words(error, thread) from error
        return Started(thread=thread, run_id=run.first_execution_run_id or "")

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
            except (ServerUnreachable, NeverRan):
                return state
            if state["status"] == "failed":
                await self._raise_not_found(thread)
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
        found = found or await self.runs.describe(thread)
        state = await self._state(thread, found, note)
        ended = ENDED.get(found.status) if found.status else None
        if found.status and ended and state["status"] not in CLOSED:
            why = f"Temporal closed this run from outside ({found.status.name.lower()}); the Web UI says by whom"
            state |= {"status": ended, "pending": [], "blocked": None, "result": why}
        return state

    async def events(
        self,
        thread: str,
        *,
        after: int = -1,
        found: WorkflowExecutionDescription | None = None,
        note: Note | None = None,
    ) -> AsyncIterator[JSON]:
        """The events behind position `after`, oldest first, up to now. The arguments are those of `state`."""
        async for event in self._lines(thread, "log", after + 1, found=found, note=note):
            yield event

    async def messages(self, thread: str, *, note: Note | None = None) -> AsyncIterator[JSON]:
        """The transcript: what the LLM is sent, without the system message."""
        found = await self.runs.describe(thread)
        async for message in self._lines(thread, "transcript", 0, found=found, note=note):
            yield message

    async def settled(self, thread: str) -> list[AgentEvent]:
        """The events that Temporal's history holds for good, read without a worker.

        Raises:
            HistoryUnreadable: This release cannot read them.
        """
        run = self._client.get_workflow_handle(thread)
        try:
            return read_events((await run.fetch_history(rpc_timeout=timedelta(seconds=10))).events)
        except RPCError as error:
            raise self.runs.in_words(error, thread) from error

    async def pending(self, thread: str) -> list[JSON]:
        """The open requests of a thread, each with its thread."""
        found = await self.runs.describe(thread)
        if found.status in ENDED:
            return []
        requests: list[JSON] = await self.runs.query(thread, "pending_approvals")
        return [{"thread": thread, **request} for request in requests]

    async def _state(self, thread: str, found: WorkflowExecutionDescription, note: Note | None) -> JSON:
        if found.status in ENDED:
            with contextlib.suppress(HistoryUnreadable):
                return _folded(thread, await self.settled(thread))
        try:
            state: JSON = await self.runs.query(thread, "state")
        except NeverRan:
            return RunState(thread=thread).view()
        except NoWorker as error:
            return _folded(thread, await self._settled_instead(thread, error, note))
        return state

    async def _lines(
        self, thread: str, query: str, start: int, *, found: WorkflowExecutionDescription | None, note: Note | None
    ) -> AsyncIterator[JSON]:
        rebuilt: list[JSON] | None = None
        if found and found.status in ENDED:
            with contextlib.suppress(HistoryUnreadable):
                rebuilt = _rebuilt(query, await self.settled(thread))
        while rebuilt is None:
            try:
                page: bytes = await self.runs.query(thread, query, start, kind=bytes)
            except NeverRan:
                return
            except NoWorker as error:
                rebuilt = _rebuilt(query, await self._settled_instead(thread, error, note))
                break
            if not page:
                return
            for line in page.split(b"\n"):
                yield json.loads(line)
                start += 1
        for entry in rebuilt[start:]:
            yield entry

    async def _settled_instead(self, thread: str, silence: NoWorker, note: Note | None) -> list[AgentEvent]:
        """What is settled, where no worker answered: of a closed run everything, of an open one if `note` is there."""
        closed = (await self.runs.describe(thread)).status in ENDED
        if not closed and note is None:
            raise silence
        try:
            events = await self.settled(thread)
        except HistoryUnreadable as error:
            raise silence from error
        if note and not closed:
            note(str(silence))
        return events

    async def _raise_not_found(self, thread: str) -> None:
        kinds: dict[str, type[HoldfastError]] = {
            contracts.AGENT_NOT_FOUND: AgentNotFound,
            contracts.WORKSPACE_NOT_FOUND: WorkspaceNotFound,
        }
        async for event in self.events(thread):
            if event["type"] == "run_finished" and (kind := kinds.get(event.get("cause", ""))):
                raise kind(f"thread {thread!r} could not begin: {event['result']}")

    async def _taken(self, thread: str) -> str:
        found = await self.runs.describe(thread)
        if found.status in ENDED:
            return (
                f"thread {thread!r} is closed ({ENDED[found.status]}), and a closed thread cannot be continued yet. "
                "Choose another id with --thread, or leave it out."
            )
        return (
            f"thread {thread!r} is there already ({status_of(found)}). "
            f"Follow it with `python starter.py watch {thread}`, or choose another id with --thread."
        )


def _folded(thread: str, events: list[AgentEvent]) -> JSON:
    state = RunState(thread=thread)
    for event in events:
        state = evolve(state, event)
    return state.view()


def _rebuilt(query: str, events: list[AgentEvent]) -> list[JSON]:
    """What the query `log` or `transcript` answers, to the order of its keys."""
    if query == "log":
        return [json.loads(canonical(event_json(event))) for event in events]
    transcript = Transcript()
    for event in events:
        transcript.add(event)
    return [json.loads(message) for message in transcript.messages]


def check_task(task: str) -> None:
    """Refuse a task that no run could begin with.

    Raises:
        TaskInvalid: It is empty, too long or not text.
    """
    try:
        size = len(task.encode())
    except UnicodeEncodeError:
        raise TaskInvalid("the task is not valid UTF-8; check the terminal's encoding") from None
    if not task.strip():
        raise TaskInvalid("the task is empty; say what the agent is to do")
    if size > contracts.MAX_TASK_BYTES:
        raise TaskInvalid(
            f"the task has {size:,} bytes, and {contracts.MAX_TASK_BYTES:,} are the limit; "
            "put it into a file in the workspace, and name the file in the task"
        )


def check_thread_id(thread: str) -> str:
    """Return the thread id as given.

    Raises:
        ThreadIdInvalid: It is empty, over 200 characters, or has characters that cannot be seen.
    """
    if not thread or len(thread) > 200 or not thread.isprintable() or thread != thread.strip():
        shown = ascii(thread if len(thread) <= 60 else f"{thread[:60]}…")
        raise ThreadIdInvalid(
            f"{shown} cannot be a thread id; use 1 to 200 printable characters, with no space at either end"
        )
    return thread


def new_thread_id(agent: str | None) -> str:
    """A fresh thread id that a person can type: `releaser-3f09ac`."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in agent or "run")[:64]
    return f"{name.strip('-') or 'run'}-{secrets.token_hex(3)}"


def _details(task: str, *, agent: str | None, thread: str, workspace: str | None) -> str:
    quoted = "\n".join(f"> {line}" for line in task[:4_000].splitlines())
    return "\n".join(
        [
            f"Agent: {f'`{agent}`' if agent else 'the first of the catalog'}  ",
            f"Workspace: {f'`{workspace}`' if workspace else 'one of its own'}  ",
            f"Follow it: `python starter.py watch {thread}`",
            "",
            quoted,
        ]
    )
