"""Start a thread's task again, in a new thread with a clean slate."""

import secrets

from holdfast.errors import TaskInvalid
from holdfast.llm.blocks import Content
from holdfast.runtime.client.start_options import check_own_id
from holdfast.runtime.client.threads import Started, Threads
from holdfast.runtime.programs import CLI
from holdfast.runtime.reading.continuity import begins_for_person


async def restart(
    threads: Threads,
    thread: str,
    *,
    id: str | None = None,
    task: Content | None = None,
    agent: str | None = None,
    workspace: str | None = None,
    by: str | None = None,
    by_proven: bool = False,
) -> Started:
    """Start the task of a thread again, in a new thread with nothing of the old one's log. The old one stays.

    Args:
        threads: The namespace's threads.
        thread: The thread.
        id: The new thread's id; None for a new one that begins with the old one's.
        task: Another task; None for the same.
        agent: Another agent; None for the same.
        workspace: A folder on the worker; None for one of the new thread's own.
        by: Who gives the task; None for the person who gave it before, which then is only a claim.
        by_proven: The caller has authenticated that person.

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
    first = await threads.started_as(thread)
    return await threads.start(
        first.task if task is None else task,
        agent=agent or first.agent,
        thread=f"{thread[:180]}-again-{secrets.token_hex(3)}".strip() if id is None else id,
        workspace=workspace,
        idle_limit=first.idle_limit,
        by=first.by if by is None else by,
        by_proven=by is not None and by_proven,
        once=True,
    )


async def _has_persons_task(threads: Threads, thread: str) -> bool:
    """Whether a person gave the task of the thread, or of the one that it was forked from."""
    async for line in threads.reader.lines(thread, 0, found=None, note=None, use_worker=False):
        return begins_for_person(line)
    found = await threads.reader.find(thread) or await threads.runs.describe(thread)
    given = (await threads.reader.history(found)).given  # no worker has picked it up yet
    return given.lineage is None and given.trust == "person"
