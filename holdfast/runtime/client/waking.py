"""Send an event to a run whose agent can put itself to sleep, or wake the run."""

from typing import Any
from uuid import uuid4

from holdfast.runtime.client.decisions import UpdateResult, send_update
from holdfast.runtime.client.threads import Threads


async def wake(
    threads: Threads,
    thread: str,
    *,
    by: str,
    event: str = "",
    id: str = "",
    data: dict[str, Any] | None = None,
    call: int | None = None,
    reason: str = "",
) -> UpdateResult:
    """Send an event to a run; without one, wake it now.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        by: Who sends it.
        event: The event's name; empty to end all waits.
        id: The sender's id of the event, which counts once; empty for a new one.
        data: The event's data: JSON, of at most 16 KB.
        call: The number of the one call that it is for; None for all that wait.
        reason: Why; the LLM reads it.

    Returns:
        `delivered`, `buffered` until a call waits for it, or `sent`. Refused: `duplicate`, `not_waiting`,
        `wrong_event`, `too_many`, `too_late`, `malformed`, or `unknown_update` where the run has a feature level
        without events.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    if event and not id:
        id = uuid4().hex  # an update that is not answered is sent again, as a signal
    optional = {"event": event, "id": id, "data": data, "call": call, "reason": reason}
    payload = {"by": by, **{name: value for name, value in optional.items() if value}}
    return await send_update(threads, thread, "wake", payload, signal="wake")
