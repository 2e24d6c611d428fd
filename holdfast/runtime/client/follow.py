"""Follow a run as it happens, from one Temporal run to the next. Quiet when nothing happens; patient when workers or
the server are away.

A worker that refuses a query counts as away, too: the next one may be able to replay the run, and what is settled in
its history can be read when it is over.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from temporalio.client import WorkflowExecutionDescription

from holdfast.errors import EventsMissing, QueryRefused, ServerUnreachable
from holdfast.runtime.client.threads import JSON, Threads
from holdfast.runtime.reading.runs import ENDED
from holdfast.runtime.reading.states import CLOSED

POLL_SECONDS = 0.25
LOOK_EVERY = 8
"""Quiet polls between two looks at what Temporal knows: a run terminated from outside records no last event."""


async def follow(
    threads: Threads,
    thread: str,
    *,
    after: int = -1,
    patient: bool = False,
    note: Callable[[str], None] = lambda line: None,
    pulse: Callable[[], None] = lambda: None,
) -> AsyncIterator[JSON]:
    """Yield events behind position `after` as they are recorded, until the latest run of the thread is over.

    Earlier events that are nowhere to be read are told of, and left out.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        after: The last position that is known already.
        patient: Also wait when nobody answers the very first time, instead of raising.
        note: Told, once for each reason, that nobody answers.
        pulse: Called after each poll that was answered.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: Nobody answered the very first time.
        QueryRefused: The worker that has the thread refused from the very first time on, or the run is over and
            this release cannot read its history either.
    """
    position, quiet, told, last = after, 0, "", ""
    found: WorkflowExecutionDescription | None = None
    look = True
    while True:
        try:
            if look:
                found, look = await threads.reader.find(thread), False
            over, news = found is None or found.status in ENDED, False
            # A run that is over is read from its history: no worker need be there, or be able to replay it.
            async for event in threads.events(thread, after=position, found=found):
                position, last, news, patient = event["position"], event["type"], True, True
                yield event
            if over or (last == "run_finished" and await _is_last(threads, thread, position)):
                return
            quiet = 0 if news else quiet + 1
            look = quiet % LOOK_EVERY == 1
            patient, told = True, ""
            pulse()
        except EventsMissing as error:
            if error.stop is None:
                raise
            note(str(error))
            position = error.stop - 1
        except (ServerUnreachable, QueryRefused) as error:
            look, refused = True, isinstance(error, QueryRefused)
            if not patient or (refused and found and found.status in ENDED):
                raise
            if told != str(error):
                told = str(error)
                note(f"{told}. Asking again." if refused else told)
        await asyncio.sleep(POLL_SECONDS)


async def _is_last(threads: Threads, thread: str, position: int) -> bool:
    """Whether the run that finished with the event at `position` is the latest one."""
    state = await threads.runs.query(thread, "state")
    return state["status"] in CLOSED and state["events"] == position + 1
