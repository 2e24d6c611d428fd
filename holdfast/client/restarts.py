"""Start a thread's task again, in a new thread with a clean slate."""

import secrets

from holdfast.client.idempotent_starts import recorded_starts
from holdfast.client.reading.continuity import begins_for_person
from holdfast.client.start_options import StartOptions, check_own_id
from holdfast.client.threads import Started, Threads
from holdfast.config.programs import CLI
from holdfast.core.llm.blocks import Content
from holdfast.errors import TaskInvalid


async def restart(
    threads: Threads,
    thread: str,
    options: StartOptions,
    *,
    id: str | None = None,
    task: Content | None = None,
) -> Started:
    """Start the task of a thread again, in a new thread without the old one's log. The old thread is kept.

    Args:
        threads: The namespace's threads.
        thread: The thread.
        options: The options of the new run. An omitted agent, context, conversation, person or choice of nodes is taken
            from the old run, and that person is then unauthenticated; the idle limit is always the old run's.
        id: The new thread's id; None for a new one that begins with the old one's.
        task: Another task; None for the same.

    Raises:
        ThreadNotFound: There is no such thread.
        ThreadIdInvalid: The id cannot be used.
        ThreadExists: There is a thread of that id.
        TaskInvalid: No person gave the task: the thread is a sub-agent's, or an iteration of a loop.
        EventsMissing: Its first events can no longer be read.
        ServerUnreachable: The server does not answer.
    """
    if not await _has_persons_task(threads, check_own_id(thread)):
        raise TaskInvalid(
            f"the task of thread {thread!r} was written by an agent or read in a file, and would count as a "
            f"person's: `{CLI.command('fork', thread, '--at', '1')}` begins it again, and trusts it as before"
        )
    first = await anext(recorded_starts(threads, thread))
    return await threads.start(
        first.task if task is None else task,
        f"{thread[:180]}-again-{secrets.token_hex(3)}".strip() if id is None else id,
        StartOptions(
            agent=options.agent or first.agent,
            workspace=options.workspace,
            idle_limit=first.idle_limit,
            when_blocked=first.when_blocked,
            by=options.by or first.by,
            by_proven=bool(options.by) and options.by_proven,
            context=first.context if options.context is None else options.context,
            nodes=options.nodes or next(iter(first.scope), ()),
            conversation=options.conversation or first.conversation,
        ),
        once=True,
    )


async def _has_persons_task(threads: Threads, thread: str) -> bool:
    """Whether a person gave the task of the thread, or of its source thread if it is a fork."""
    async for line in threads.reader.lines(thread, 0, found=None, note=None, use_worker=False):
        return begins_for_person(line)
    found = await threads.reader.find(thread) or await threads.runs.describe(thread)
    run_input = (await threads.reader.history(found)).run_input  # no worker has picked up the start yet
    return run_input.lineage is None and run_input.trust == "person"
