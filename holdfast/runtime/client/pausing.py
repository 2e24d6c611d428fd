"""Pause a run and resume it. A pause by `temporal workflow pause` is another thing: it stops the workflow itself."""

from datetime import datetime

from holdfast.llm.blocks import Content
from holdfast.runtime.client.decisions import UpdateResult
from holdfast.runtime.client.messages import say
from holdfast.runtime.client.steering import steer_run
from holdfast.runtime.client.threads import Threads


async def pause(
    threads: Threads,
    thread: str,
    *,
    by: str,
    reason: str = "",
    until: datetime | None = None,
    private: str | None = None,
) -> UpdateResult:
    """Pause a run: what is under way ends, and nothing else starts. Of a paused run, change the reason and the end.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        by: Who pauses it.
        reason: Why; it is in the log.
        until: When it resumes by itself, with a time zone; None for never.
        private: The private key to sign it with; None to send it unsigned.

    Returns:
        `accepted`, or `sent`. Refused: `duplicate` for the same pause, `too_late` where the run or `until` is over,
        `too_many`, `malformed`, `unsigned` and other outcomes of `holdfast.run.steering`, or `unknown_update` where it
        has a feature level without pauses.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    payload = {"by": by, "reason": reason} | ({"until": until.isoformat()} if until else {})
    return await steer_run(threads, thread, "pause", payload, private=private)


async def resume(
    threads: Threads,
    thread: str,
    *,
    by: str,
    reason: str = "",
    message: Content | None = None,
    private: str | None = None,
) -> UpdateResult:
    """Resume a paused run.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        by: Who resumes it.
        reason: Why; it is in the log.
        message: What to say to the agent before; None for nothing. A run that is not paused does not get it.
        private: The private key to sign both with; None to send them unsigned.

    Returns:
        `accepted`, or `sent`. Refused: `not_paused`, `too_late` where the run is closed, `unsigned` and other outcomes
        of `holdfast.run.steering`, `unknown_update`, or the outcome of the message.

    Raises:
        NoWorker: With a message: no worker says whether the run is paused.
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    if message is not None:
        state = await threads.state(thread)
        if not state.get("paused"):
            return UpdateResult("not_paused", f"the run is {state['status']}, not paused; the message was not sent")
        said = await say(threads, thread, message, by=by, private=private)
        if not said.counts:
            return UpdateResult(said.outcome, f"{said.explanation}; the run stays paused")
    return await steer_run(threads, thread, "resume", {"by": by, "reason": reason}, private=private)
