"""Start a thread once: the same start again finds the thread that there is.

Temporal refuses a second workflow of the same id, and the thread's log says how it was started. So any number of
processes can start the same thread, without a store of their own.
"""

from typing import TypedDict, Unpack

from holdfast.budget.budget import Budget
from holdfast.errors import TaskDiffers, ThreadExists
from holdfast.llm.blocks import Content
from holdfast.runtime.client.start_options import check_task
from holdfast.runtime.client.threads import FirstStart, Started, Threads


class StartOptions(TypedDict, total=False):
    """What a start may say besides, as `Threads.start` describes it."""

    workspace: str | None
    idle_limit: float | None
    by: str
    by_proven: bool
    budget: Budget | None


async def start_once(
    threads: Threads,
    task: Content,
    *,
    thread: str,
    agent: str | None = None,
    workspace: str | None = None,
    idle_limit: float | None = None,
    by: str = "",
    by_proven: bool = True,
    budget: Budget | None = None,
    exactly: bool = False,
) -> bool:
    """Start a thread, unless the same start has happened; return whether it is new. Needs no worker.

    It is the same start if the task and the agent are the same; the state of the thread does not matter.

    Args:
        threads: The namespace's threads.
        task: The task: text, or content blocks.
        thread: The thread id.
        agent: The agent's name; None for the catalog's first.
        workspace: A folder on the worker; None for one of the thread's own.
        idle_limit: Seconds that the run stays open for messages; None for the agent's own limit.
        by: Who gives the task.
        by_proven: The caller has authenticated that person.
        budget: What the run may use; that of the first start counts.
        exactly: The idle limit and the person have to be the same, too.

    Raises:
        TaskDiffers: There is a thread of that id that was started otherwise.
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
        ThreadIdInvalid: The thread id cannot be used.
        FleetKeyMissing: Without a fleet key, a run must have a folder of its own.
        ServerUnreachable: The server does not answer. The start may have reached it: start again.
    """
    given = FirstStart(check_task(task), agent, idle_limit, by)
    options: StartOptions = {"workspace": workspace, "idle_limit": idle_limit, "by": by}
    options |= {"by_proven": by_proven, "budget": budget}
    try:
        await threads.start(given.task, agent=agent, thread=thread, once=True, **options)
    except ThreadExists:
        first = await threads.started_as(thread)
        if (first if exactly else first[:2]) != (given if exactly else given[:2]):
            raise TaskDiffers(
                f"thread {thread!r} was started with another task, or for another agent. Continue it with "
                "`say`, or choose another id."
            ) from None
        return False
    return True


async def start_or_continue(
    threads: Threads,
    task: Content,
    *,
    thread: str,
    agent: str | None = None,
    **options: Unpack[StartOptions],
) -> Started | None:
    """Start a thread once, or continue a closed one with another task. Needs no worker.

    A start that has happened, as the first or as the latest of the thread, does not happen again: a cron job that
    repeats its command does nothing twice.

    Returns:
        What was started; None if the same start has happened before.

    Raises:
        ThreadExists: A run of that thread is open, for another task or another agent.
        EventsMissing, HistoryUnreadable: Whether it is the same start cannot be read.
    """
    task = check_task(task)
    try:
        return await threads.start(task, agent=agent, thread=thread, once=True, **options)
    except ThreadExists:
        starts = await threads.starts_of(thread)
    first, latest = starts[0], starts[-1]
    # A run that continues the thread keeps its agent, unless it names another one.
    if (task, agent) == first[:2] or (task == latest.task and agent in (None, latest.agent)):
        return None
    return await threads.start(task, agent=agent, thread=thread, **options)
