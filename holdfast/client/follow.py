"""Follow a thread live: yield its events as they are recorded, from one Temporal run to the next.

It keeps polling while no worker or no server answers. A worker that rejects a query counts as not answering: the next
worker may be able to replay the run, and a closed run is read from its history.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from temporalio.client import WorkflowExecutionDescription

from holdfast.client.reading.runs import ENDED
from holdfast.client.reading.states import CLOSED
from holdfast.client.threads import JSON, Threads
from holdfast.errors import EventsMissing, QueryRefused, ServerUnreachable

POLL_SECONDS = 0.25
LEAST_SECONDS = 0.02
"""The least time between two polls, even if there is reason to poll at once."""
DESCRIBE_EVERY = 8
"""Polls without new events between two descriptions of the run: a run terminated from outside records no last event."""


async def follow(
    threads: Threads,
    thread: str,
    *,
    after: int = -1,
    patient: bool = False,
    note: Callable[[str], None] = lambda line: None,
    pulse: Callable[[], None] = lambda: None,
    loops: bool = False,
    ahead: asyncio.Event | None = None,
    until_quiet: bool = False,
) -> AsyncIterator[JSON]:
    """Yield events after position `after` as they are recorded, until the latest run of the thread has ended.

    Earlier events that can no longer be read are skipped, with a call of `note`.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        after: The last position that the caller already has.
        patient: Keep polling even if nothing answers the first poll, instead of raising.
        note: Called with a message when nothing answers, once for each reason.
        pulse: Called after each poll that was answered.
        loops: Whether `thread` may be the id of a loop.
        ahead: Set if there is reason to poll at once; None to poll at intervals alone.
        until_quiet: End once all events so far have been read, even if the run is still open.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: Nothing answered the first poll.
        QueryRefused: The worker rejected the first query, or the run has ended and this release cannot read its history
            either.
    """
    position, quiet, noted, last = after, 0, "", ""
    found: WorkflowExecutionDescription | None = None
    describe, early = True, False
    while True:
        try:
            if describe:
                found, describe = await threads.reader.find(thread, loops=loops), False
            over, news = found is None or found.status in ENDED, False
            # A closed run is read from its history, which needs no worker that can replay it.
            async for event in threads.events(thread, after=position, found=found, loops=loops):
                position, last, news, patient = event["position"], event["type"], True, True
                yield event
            if over or (last == "run_finished" and await _is_last(threads, thread, position)):
                return
            quiet = 0 if news else quiet + 1
            describe = quiet % DESCRIBE_EVERY == 1
            patient, noted = True, ""
            pulse()
            if until_quiet:
                return
        except EventsMissing as error:
            if error.stop is None:
                raise
            note(str(error))
            position = error.stop - 1
        except (ServerUnreachable, QueryRefused) as error:
            describe, refused = True, isinstance(error, QueryRefused)
            if not patient or (refused and found and found.status in ENDED):
                raise
            if noted != str(error):
                noted = str(error)
                note(f"{noted}. Retrying." if refused else noted)
        # Anybody may claim that there is news: a claim that proves wrong is followed by an ordinary pause.
        early = await _pause(None if early and quiet else ahead)


async def _pause(ahead: asyncio.Event | None) -> bool:
    """Wait until the next poll is due; return whether it is early."""
    if ahead is None:
        await asyncio.sleep(POLL_SECONDS)
        return False
    await asyncio.sleep(LEAST_SECONDS)
    try:
        async with asyncio.timeout(POLL_SECONDS - LEAST_SECONDS):
            await ahead.wait()
    except TimeoutError:
        return False
    ahead.clear()
    return True


async def _is_last(threads: Threads, thread: str, position: int) -> bool:
    """Whether the run that finished with the event at `position` is the latest one."""
    state = await threads.runs.query(thread, "state")
    return state["status"] in CLOSED and state["events"] == position + 1
