"""Follow a run as it happens. Quiet when nothing happens; patient when workers or the server are away."""

import asyncio
from collections.abc import AsyncIterator, Callable

from holdfast.errors import ServerUnreachable
from holdfast.runtime.runs import ENDED
from holdfast.runtime.threads import JSON, Threads

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
    """Yield events behind position `after` as they are recorded, until the run is over.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        after: The last position that is known already.
        patient: Also wait when nobody answers the very first time, instead of raising.
        note: Told, once for each reason, that nobody answers.
        pulse: Called after each poll.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: Nobody answered the very first time.
    """
    position, quiet, told = after, 0, ""
    while True:
        try:
            news = False
            async for event in threads.events(thread, after=position):
                position, news, patient = event["position"], True, True
                yield event
                if event["type"] == "run_finished":
                    return
            if not news and quiet % LOOK_EVERY == 0 and (await threads.runs.describe(thread)).status in ENDED:
                async for event in threads.events(thread, after=position):
                    yield event
                return
            quiet = 0 if news else quiet + 1
            patient, told = True, ""
        except ServerUnreachable as error:
            if not patient:
                raise
            if told != str(error):
                told = str(error)
                note(told)
        pulse()
        await asyncio.sleep(POLL_SECONDS)
