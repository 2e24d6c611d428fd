"""Publish an event: it wakes every run that waits for it.

1. Temporal's visibility store says which runs wait for an event. It lags a little, so it is searched twice: a run that
   began to wait just before is woken, too. A run that begins to wait later has missed the event.
2. Each run gets the event as a signal, which Temporal keeps until a worker processes it.
3. The signals follow each other as fast as workers take them. Sent all at once, they would wait in a worker's sticky
   queue for longer than its time-out, and Temporal would schedule each of these tasks again.
4. A publication that was interrupted is repeated with the same id: a run takes an event of one id once.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from holdfast.errors import HoldfastError, Refused, ThreadNotFound
from holdfast.run import contracts
from holdfast.run.dormancy import Wake, read_wake
from holdfast.runtime.client.decisions import SENT, send_signal
from holdfast.runtime.client.listing import of_prefixes
from holdfast.runtime.client.searching import search
from holdfast.runtime.client.threads import Threads

FIRST, MOST = 10, 50
"""Signals sent together: the first time, and at most."""

SHORT, LONG = 0.5, 1.5
"""Seconds in which workers take those. Fewer than the first: twice as many follow; more than the second: half as many.
A sticky queue keeps a task for 3 s (`STICKY_TIMEOUT`), and the woken runs have their further tasks in it."""

TAKEN_WITHIN = 5.0
"""Seconds without a worker that takes any, after which the rest follows without a wait. Temporal keeps it, and perhaps
no worker runs."""

PACED_SECONDS = 600.0
"""Seconds after which the rest follows without a wait in any case: a worker takes ten thousand signals or more in them.
Who asked over HTTP waits for the answer, and gets less (`holdfast.runtime.gateway.publishing`)."""

LOOK_SECONDS = 0.1
"""Seconds between two looks at whether a worker has taken a signal."""

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
        raise Refused(f"the event was not published: {'it has no name' if isinstance(read, Wake) else read[1]}")
    query = (
        f"WorkflowType = '{contracts.WORKFLOW}' AND ExecutionStatus = 'Running' AND HoldfastWaitsFor = '{event}'"
        f"{of_prefixes(prefixes)}"
    )
    outcomes: dict[str, HoldfastError | None] = {}
    clock = asyncio.get_running_loop()
    paced, paced_until = True, clock.time() + paced_seconds

    async def send(thread: str) -> None:
        try:
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
        size: int = FIRST
        while waiting:
            batch, waiting = waiting[:size], waiting[size:]
            await asyncio.gather(*map(send, batch))
            if waiting and paced:
                seconds = await seconds_until_taken(threads, batch[-1])
                # Slow workers took some of them meanwhile.
                taking = seconds < TAKEN_WITHIN or await any_taken(threads, batch)
                paced = taking and clock.time() < paced_until
                size = next_size(size, seconds) if paced else MOST
    return Publication(
        event=event,
        id=id,
        sent=tuple(sorted(thread for thread, error in outcomes.items() if error is None)),
        unreached={thread: error for thread, error in sorted(outcomes.items()) if error},
    )


def next_size(size: int, seconds: float) -> int:
    """How many signals to send together, after workers have taken `size` of them in that many seconds."""
    if seconds > LONG:
        return max(1, size // 2)
    return min(2 * size, MOST) if seconds < SHORT else size


async def seconds_until_taken(threads: Threads, thread: str) -> float:
    """Wait until a worker has processed what was sent to a run, or for TAKEN_WITHIN; return how long that took."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    while clock.time() - began < TAKEN_WITHIN:
        if await is_taken(threads, thread):
            return clock.time() - began
        await asyncio.sleep(LOOK_SECONDS)
    return TAKEN_WITHIN


async def any_taken(threads: Threads, batch: Sequence[str]) -> bool:
    """Whether a worker has processed what was sent to one of these runs: the first of them first."""
    for thread in batch:
        if await is_taken(threads, thread):
            return True
    return False


async def is_taken(threads: Threads, thread: str) -> bool:
    """Whether a worker has processed what was sent to a run; not where Temporal does not say."""
    with contextlib.suppress(HoldfastError):
        return not (await threads.runs.describe(thread)).raw_description.pending_workflow_task.state
    return False
