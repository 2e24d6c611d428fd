"""Start a thread once: repeating the same start finds the existing thread.

Temporal rejects a second workflow with the same id, and the thread's log records how it was started. Any number of
processes can therefore start the same thread without their own store.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from holdfast.client.reading.states import decode_lines
from holdfast.client.start_options import StartOptions, check_task
from holdfast.client.threads import Started, Threads
from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.conversation import Conversation
from holdfast.core.log.events import RunStarted
from holdfast.core.nodes import TrustScope
from holdfast.errors import TaskDiffers, ThreadExists


class RecordedStart(NamedTuple):
    """The recorded parameters of a run's start."""

    task: Content
    agent: str | None
    """The requested agent; None for the catalog's first."""
    idle_limit: float | None
    by: str
    context: dict[str, Any] | None = None
    """The typed context that the start gave; None for none."""
    when_blocked: WhenBlocked | None = None
    scope: TrustScope = ()
    """The nodes that the start allowed; empty for all."""
    conversation: Conversation = ()
    """The conversation that it brought along; empty for none."""

    @property
    def substance(self) -> tuple[Any, ...]:
        """Its parts that two equal starts share."""
        return self.task, self.agent, self.context, self.scope, self.conversation


async def start_once(
    threads: Threads, task: Content, thread: str, options: StartOptions, *, exactly: bool = False
) -> bool:
    """Start a thread, unless the same start has already happened; return whether it is new. Needs no worker.

    It is the same start if the task, the agent, the context, the nodes and the conversation are the same; the state of
    the thread does not matter.

    Args:
        threads: The namespace's threads.
        task: The task: text, or content blocks.
        thread: The thread id.
        options: The other options; the first start's workspace and budget are used.
        exactly: Whether the idle limit, the person and `when_blocked` must be the same, too.

    Raises:
        TaskDiffers: There is a thread of that id that was started differently.
        TaskInvalid: The task is empty, too long, or neither text nor content blocks.
        ThreadIdInvalid: The thread id cannot be used.
        FleetKeyMissing: Without a fleet key, a run must have its own folder.
        ServerUnreachable: The server does not answer. The start may have reached it: start again.
    """
    given = RecordedStart(
        check_task(task),
        options.agent,
        options.idle_limit,
        options.by,
        options.context,
        options.when_blocked,
        options.scope,
        options.conversation,
    )
    try:
        await threads.start(given.task, thread, options, once=True)
    except ThreadExists:
        first = await anext(recorded_starts(threads, thread))
        same = first == given if exactly else first.substance == given.substance
        if not same:
            raise TaskDiffers(
                f"thread {thread!r} was started with another task, context or conversation, for another agent or other "
                "nodes. Continue it with `say`, or choose another id."
            ) from None
        return False
    return True


async def start_or_continue(threads: Threads, task: Content, thread: str, options: StartOptions) -> Started | None:
    """Start a thread once, or continue a closed one with another task. Needs no worker.

    A start that equals the first or the latest one of the thread is not repeated, so a cron job can safely repeat its
    command.

    Returns:
        The run that was started; None if the same start has happened before.

    Raises:
        ThreadExists: A run of that thread is open, for another task or another agent.
        EventsMissing, HistoryUnreadable: The earlier starts cannot be read.
    """
    task, agent = check_task(task), options.agent
    try:
        return await threads.start(task, thread, options, once=True)
    except ThreadExists:
        starts = [each async for each in recorded_starts(threads, thread)]
    first, latest = starts[0], starts[-1]
    # A run that continues the thread keeps its agent, unless it names another one.
    if (task, agent, options.context, options.scope, options.conversation) == first.substance:
        return None
    same_terms = options.context in (None, latest.context) and options.scope in ((), latest.scope)
    same_terms = same_terms and options.conversation in ((), latest.conversation)
    if task == latest.task and agent in (None, latest.agent) and same_terms:
        return None
    return await threads.start(task, thread, options)


async def recorded_starts(threads: Threads, thread: str) -> AsyncIterator[RecordedStart]:
    """Yield the start of each run of a thread, oldest first; at least one. Needs no worker.

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
            terms = begun.context, begun.when_blocked, begun.scope, begun.conversation
            yield RecordedStart(event.content, begun.agent, begun.idle_limit, event.by, *terms)
            begun, any_recorded = None, True
    if not any_recorded:
        found = await threads.reader.find(thread) or await threads.runs.describe(thread)
        run_input = (await threads.reader.history(found)).run_input  # no worker has picked up the start yet
        first = run_input
        terms = first.context, first.when_blocked, first.scope, first.conversation
        yield RecordedStart(first.task, first.agent, first.idle_limit, first.by, *terms)
