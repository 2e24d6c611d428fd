"""Publish an event: it wakes every run that waits for it.

1. Temporal's visibility store says which runs wait for an event. It lags a little, so it is searched twice: a run that
   began to wait just before is woken, too. A run that begins to wait later has missed the event.
2. Each run gets the event as a signal, which Temporal keeps until a worker processes it.
3. The signals follow each other as fast as workers take them: a worker that had thousands at once would evict runs
   from its cache that it has just woken, and replay them. The next ones are always there when it has taken the last.
4. Except for the first few, a run is unbound from its worker before it gets the signal: asleep for long, it is hardly
   in that worker's cache. In the worker's own (sticky) queue, a task that waits for 3 s times out, and Temporal
   schedules it again; in the task queue it waits for as long as it takes, for any worker.
5. A publication that was interrupted is repeated with the same id: a run takes an event of one id once.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.api.common.v1 import WorkflowExecution as Execution
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from holdfast.client.listing import of_prefixes
from holdfast.client.searching import search
from holdfast.client.sending import SENT, send_signal
from holdfast.client.threads import Threads
from holdfast.core.run.contracts.runs import WORKFLOW
from holdfast.core.run.waits.dormancy import Wake, read_wake
from holdfast.errors import HoldfastError, Refused, ThreadNotFound

FIRST, NEXT = 10, 50
"""Signals sent together: the first time, and then. At most twice as many wait for workers: the runs that are awake
already wait behind them for their further tasks."""

TAKEN_WITHIN = 5.0
"""Seconds without a worker that takes any, after which the rest follows without a wait. Temporal keeps it, and perhaps
no worker runs."""

PACED_SECONDS = 600.0
"""Seconds after which the rest follows without a wait in any case: a worker takes ten thousand signals or more in them.
Who asked over HTTP waits for the answer, and gets less (`holdfast.gateway.routes.publications`)."""

LOOK_SECONDS = 0.1
"""Seconds between two looks at whether a worker has taken a signal."""

UNBIND_TIMEOUT = timedelta(seconds=5)

LAG_SECONDS = 2.0
"""Seconds until the second search: how long the visibility store may take to list a run that waits."""


@dataclass(frozen=True)
class Publication:
    """What became of a published event."""

    event: str
    id: str
    """The event's id: published again with it, the event reaches no run twice."""
    sent: tuple[str, ...]
    """The threads to which Temporal delivers it, in alphabetical order."""
    unreached: dict[str, HoldfastError]
    """The threads that wait for it and could not be sent it, and why. Publish it again with the same id."""


async def publish(
    threads: Threads,
    event: str,
    *,
    by: str,
    data: dict[str, Any] | None = None,
    id: str = "",
    prefixes: Sequence[str] = (),
    paced_seconds: float = PACED_SECONDS,
) -> Publication:
    """Send an event to every run that waits for it.

    A run that waits for other data (`match`) is sent it, and refuses it.

    Args:
        threads: The namespace's threads.
        event: The event's name.
        by: Who publishes it.
        data: What happened: JSON, at most 16,384 bytes.
        id: The event's id, of up to 100 visible ASCII characters; empty for a new one.
        prefixes: Only threads whose id begins with one of these; none for all.
        paced_seconds: For how long it is sent as fast as workers take it; then the rest follows at once.

    Raises:
        Refused: Its name, id or data cannot be used.
        HoldfastError: The namespace lacks Holdfast's search attributes.
        ServerUnreachable: The server does not answer.
    """
    id = id or uuid4().hex
    payload = {"event": event, "id": id, "data": data or {}, "by": by, "keep": False}
    read = read_wake(payload)
    if not isinstance(read, Wake) or not event:
        why = "it has no name" if isinstance(read, Wake) else read.explanation
        raise Refused(f"the event was not published: {why}")
    query = (
        f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND HoldfastWaitsFor = '{event}'"
        f"{of_prefixes(prefixes)}"
    )
    outcomes: dict[str, HoldfastError | None] = {}
    clock = asyncio.get_running_loop()
    paced, paced_until = True, clock.time() + paced_seconds

    async def send(thread: str, *, first: bool) -> None:
        try:
            if not first:
                await unbind(threads.runs.client, thread)
            sent = await send_signal(threads.runs, thread, "wake", payload)
            if sent.outcome == SENT:
                outcomes[thread] = None
        except ThreadNotFound:  # it has ended meanwhile
            pass
        except HoldfastError as error:
            outcomes[thread] = error

    for lag in (0.0, LAG_SECONDS):
        await asyncio.sleep(lag)
        # The store compares prefixes in its own way: the caller's threads are those of Python's.
        found = {run.id for run in await search(threads, query) if run.id.startswith(tuple(prefixes) or "")}
        waiting = sorted(thread for thread in found if outcomes.get(thread, thread))
        batch: list[str] = []
        while waiting:
            before, batch = batch, waiting[: NEXT if batch else FIRST]
            waiting = waiting[len(batch) :]
            await asyncio.gather(*(send(thread, first=not before) for thread in batch))
            if waiting and before and paced:
                paced = await are_taken(threads, before, until=paced_until)
    return Publication(
        event=event,
        id=id,
        sent=tuple(sorted(thread for thread, error in outcomes.items() if error is None)),
        unreached={thread: error for thread, error in sorted(outcomes.items()) if error},
    )


async def unbind(client: Client, thread: str) -> None:
    """Have Temporal put a run's next workflow task into the task queue, and not into that of its last worker."""
    request = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=Execution(workflow_id=thread))
    with contextlib.suppress(RPCError):  # the signal says what is wrong, or the server does not allow it
        await client.workflow_service.reset_sticky_task_queue(request, timeout=UNBIND_TIMEOUT)


async def are_taken(threads: Threads, batch: Sequence[str], *, until: float) -> bool:
    """Wait until a worker has processed what was sent to these runs: to the last of them, which the others precede.

    Returns:
        Whether one has: False if none has processed any more for TAKEN_WITHIN, or at the time `until`.
    """
    clock, count = asyncio.get_running_loop(), 0
    while clock.time() < until:
        look_until = min(until, clock.time() + TAKEN_WITHIN)
        while clock.time() < look_until:
            if await is_taken(threads, batch[-1]):
                return True
            await asyncio.sleep(LOOK_SECONDS)
        before, count = count, sum([await is_taken(threads, thread) for thread in batch])
        if count <= before:
            return False
    return False


async def is_taken(threads: Threads, thread: str) -> bool:
    """Whether a worker has processed what was sent to a run; not where Temporal does not say."""
    with contextlib.suppress(HoldfastError):
        return not (await threads.runs.describe(thread)).raw_description.pending_workflow_task.state
    return False
