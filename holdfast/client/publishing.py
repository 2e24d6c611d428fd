"""Publish an event: it wakes every run that waits for it.

1. Temporal's visibility store knows which runs wait for an event. It lags a little, so it is searched twice, to wake
   runs that began to wait just before. A run that begins to wait later misses the event.
2. Each run gets the event as a signal, which Temporal keeps until a worker processes it.
3. Signals are sent as fast as workers process them: a worker with thousands at once would evict runs that it has just
   woken from its cache, and replay them. The next signals are always ready when it has processed the last.
4. Except for the first few, a run is unbound from its worker before it gets the signal, because a long-dormant run is
   rarely still in that worker's cache. A task in a worker's sticky queue times out after 3 s, and Temporal schedules it
   again; in the normal task queue it waits as long as necessary, for any worker.
5. An interrupted publication can be repeated with the same id: a run accepts each event id once.
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
"""Size of the first batch of signals, and of the following ones. At most two batches wait for workers, because the
later tasks of runs that are already awake queue behind them."""

TAKEN_WITHIN = 5.0
"""Seconds without progress after which the rest is sent without waiting: perhaps no worker is running, and Temporal
keeps the signals."""

PACED_SECONDS = 600.0
"""Seconds after which the rest is sent without waiting in any case: a worker processes ten thousand signals or more in
that time. HTTP callers wait for the response, so they get less (`holdfast.gateway.routes.publications`)."""

LOOK_SECONDS = 0.1
"""Seconds between two checks whether a worker has processed a signal."""

UNBIND_TIMEOUT = timedelta(seconds=5)

LAG_SECONDS = 2.0
"""Seconds until the second search: the expected maximum lag of the visibility store."""


@dataclass(frozen=True)
class Publication:
    """The result of publishing an event."""

    event: str
    id: str
    """The event's id: publishing again with the same id delivers the event to no run twice."""
    sent: tuple[str, ...]
    """The threads to which Temporal delivers it, in alphabetical order."""
    unreached: dict[str, HoldfastError]
    """The waiting threads that could not be sent the event, with the error. Publish it again with the same id."""


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

    A run that waits for other data (`match`) receives the event and rejects it.

    Args:
        threads: The namespace's threads.
        event: The event's name.
        by: The publisher's name.
        data: The event's data: JSON, at most 16,384 bytes.
        id: The event's id, of up to 100 visible ASCII characters; empty for a new one.
        prefixes: Only threads whose id begins with one of these; none for all.
        paced_seconds: Seconds during which signals are sent as fast as workers process them; then the rest is sent at
            once.

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
        # The store may compare prefixes differently; the caller's threads are selected by Python's comparison.
        found = {run.id for run in await search(threads, query) if run.id.startswith(tuple(prefixes) or "")}
        waiting = sorted(thread for thread in found if outcomes.get(thread, thread))
        batch: list[str] = []
        while waiting:
            before, batch = batch, waiting[: NEXT if batch else FIRST]
            waiting = waiting[len(batch) :]
            await asyncio.gather(*(send(thread, first=not before) for thread in batch))
            if waiting and before and paced:
                paced = await are_processed(threads, before, until=paced_until)
    return Publication(
        event=event,
        id=id,
        sent=tuple(sorted(thread for thread, error in outcomes.items() if error is None)),
        unreached={thread: error for thread, error in sorted(outcomes.items()) if error},
    )


async def unbind(client: Client, thread: str) -> None:
    """Have Temporal put a run's next workflow task into the normal task queue instead of its last worker's sticky
    queue.
    """
    request = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=Execution(workflow_id=thread))
    with contextlib.suppress(RPCError):  # the server may not allow it; other errors recur when the signal is sent
        await client.workflow_service.reset_sticky_task_queue(request, timeout=UNBIND_TIMEOUT)


async def are_processed(threads: Threads, batch: Sequence[str], *, until: float) -> bool:
    """Wait until a worker has processed the signals of a batch, by checking the last one, which follows all others.

    Returns:
        Whether a worker has: False if none made progress for TAKEN_WITHIN seconds, or at the time `until`.
    """
    clock, count = asyncio.get_running_loop(), 0
    while clock.time() < until:
        look_until = min(until, clock.time() + TAKEN_WITHIN)
        while clock.time() < look_until:
            if await is_processed(threads, batch[-1]):
                return True
            await asyncio.sleep(LOOK_SECONDS)
        before, count = count, sum([await is_processed(threads, thread) for thread in batch])
        if count <= before:
            return False
    return False


async def is_processed(threads: Threads, thread: str) -> bool:
    """Whether a worker has processed the signal to a run; False if Temporal does not report it."""
    with contextlib.suppress(HoldfastError):
        return not (await threads.runs.describe(thread)).raw_description.pending_workflow_task.state
    return False
