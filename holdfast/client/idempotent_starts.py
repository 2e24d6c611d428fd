"""Start a thread once: the same start again finds the thread that there is.

Temporal refuses a second workflow of the same id, and the thread's log says how it was started. So any number of
processes can start the same thread, without a store of their own.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from holdfast.client.reading.states import decode_lines
from holdfast.client.start_options import StartOptions, check_task
from holdfast.client.threads import Started, Threads
from holdfast.core.llm.blocks import Content
from holdfast.core.log.events import RunStarted
from holdfast.errors import TaskDiffers, ThreadExists


class RecordedStart(NamedTuple):
    """How a run of a thread was started."""

    task: Content
    agent: str | None
    """The agent that was asked for; None for the catalog's first."""
    idle_limit: float | None
    by: str


async def start_once(
    threads: Threads, task: Content, thread: str, options: StartOptions, *, exactly: bool = False
) -> bool:
    """Start a thread, unless the same start has happened; return whether it is new. Needs no worker.

    It is the same start if the task and the agent are the same; the state of the thread does not matter.

    Args:
        threads: The namespace's threads.
        task: The task: text, or content blocks.
        thread: The thread id.
        options: The other options; the workspace and the budget of the first start count.
        exactly: The idle limit and the person have to be the same, too.

    Raises:
        TaskDiffers: There is a thread of that id that was started otherwise.
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
        ThreadIdInvalid: The thread id cannot be used.
        FleetKeyMissing: Without a fleet key, a run must have a folder of its own.
        ServerUnreachable: The server does not answer. The start may have reached it: start again.
    """
    given = RecordedStart(check_task(task), options.agent, options.idle_limit, options.by)
    try:
        await threads.start(given.task, thread, options, once=True)
    except ThreadExists:
        first = await anext(recorded_starts(threads, thread))
        if (first if exactly else first[:2]) != (given if exactly else given[:2]):
            raise TaskDiffers(
                f"thread {thread!r} was started with another task, or for another agent. Continue it with "
                "`say`, or choose another id."
            ) from None
        return False
    return True


async def start_or_continue(threads: Threads, task: Content, thread: str, options: StartOptions) -> Started | None:
    """Start a thread once, or continue a closed one with another task. Needs no worker.

    A start that has happened, as the first or as the latest of the thread, does not happen again: a cron job that
    repeats its command does nothing twice.

    Returns:
        The run that was started; None if the same start has happened before.

    Raises:
        ThreadExists: A run of that thread is open, for another task or another agent.
        EventsMissing, HistoryUnreadable: Whether it is the same start cannot be read.
    """
    task, agent = check_task(task), options.agent
    try:
        return await threads.start(task, thread, options, once=True)
    except ThreadExists:
        starts = [each async for each in recorded_starts(threads, thread)]
    first, latest = starts[0], starts[-1]
    # A run that continues the thread keeps its agent, unless it names another one.
    if (task, agent) == first[:2] or (task == latest.task and agent in (None, latest.agent)):
        return None
    return await threads.start(task, thread, options)


async def recorded_starts(threads: Threads, thread: str) -> AsyncIterator[RecordedStart]:
    """Yield how each run of a thread was started, oldest first, at least one. Needs no worker.

    Raises:
        ThreadNotFound: There is no such thread.
        EventsMissing: Its first events can no longer be read.
        HistoryUnreadable: This release cannot read them.
    """
    begun: RunStarted | None = None
    any_recorded = False
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=None, use_worker=False)):
        if event.type == "run_started":
            begun = event
        elif begun and event.type == "user_message_received":
            yield RecordedStart(event.content, begun.agent, begun.idle_limit, event.by)
            begun, any_recorded = None, True
    if not any_recorded:
        found = await threads.reader.find(thread) or await threads.runs.describe(thread)
        given = (await threads.reader.history(found)).given  # no worker has picked it up yet
        yield RecordedStart(given.task, given.agent, given.idle_limit, given.by)
