"""Say something to a thread: to a run that is open, or to one that is closed, which goes on with the message.

1. Where a worker answers, the message is an update, and its outcome is known at once. Where none does, it is left
   with Temporal as a signal. Never both: a message that arrives twice is said twice.
2. A run that ends meanwhile has not taken the message: then the thread goes on in a new run.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import RPCTimeoutOrCancelledError, WorkflowExecutionDescription, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.authority.follow_ups import WhenBusy, read_message
from holdfast.errors import HoldfastError, NoWorker, QueryRefused, RunStuck, ServerUnreachable, ThreadExists
from holdfast.llm.messages import Content
from holdfast.run.contracts import View
from holdfast.runtime.client.decisions import NO_UPDATES, SENT, Decided, leave
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import signed_message
from holdfast.runtime.reading.runs import ENDED, TIMED_OUT, NeverRan, refused_answer, sealed_answer

REOPENED = "reopened"
"""The thread was closed, and goes on in a new run."""

_ROUNDS = 5
"""How often to begin anew, where the run that was found has ended by the time it is told."""


@dataclass(frozen=True)
class Said:
    """What became of a message: an outcome of `holdfast.authority.follow_ups`, `sent`, or `reopened`."""

    outcome: str
    explanation: str = ""
    run_id: str | None = None
    """Of the new run, where the thread was reopened."""

    @property
    def counts(self) -> bool:
        """Whether the agent will read it."""
        return self.outcome in ("accepted", "queued", "interrupting", SENT, REOPENED)


async def say(
    threads: Threads,
    thread: str,
    message: Content,
    *,
    by: str = "",
    when_busy: WhenBusy = "queue",
    private: str | None = None,
) -> Said:
    """Say something to the agent of a thread.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        message: Text, or the API's content blocks.
        by: Who says it.
        when_busy: What becomes of it while the run is at work.
        private: The key to sign it with; None to sign nothing.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer, or nobody can tell whether the message arrived.
    """
    payload = {"message": message, "by": by, "when_busy": when_busy}
    given = read_message(payload)
    if isinstance(given, tuple):
        return Said(*given)
    if private:
        payload = signed_message(payload, thread=thread, private=private)
    for _ in range(_ROUNDS):
        found = await threads.reader.find(thread)
        if found is None or found.status in ENDED:
            try:
                started = await threads.start(message, thread=thread, by=by)
            except ThreadExists:
                continue  # somebody else was faster: the message goes to that run
            return Said(REOPENED, "the thread was closed; it goes on in a new run", started.run_id)
        if said := await _tell(threads, found, payload):
            return said
    return Said("too_late", "the run is ending, and has not closed yet; say it again in a moment")


async def _tell(threads: Threads, found: WorkflowExecutionDescription, payload: dict[str, Any]) -> Said | None:
    """Tell an open run; None where it is over."""
    thread, runs = found.id, threads.runs
    try:
        await runs.query(thread, "pending_approvals")  # the shortest answer there is: somebody is there
    except (NoWorker, RunStuck, QueryRefused):
        left = await leave(runs, thread, "say", payload)
        return _unless_late(left)
    except NeverRan:
        return None
    try:
        answer = await _update(threads, thread, payload)
    except (RPCError, WorkflowUpdateFailedError) as error:
        if isinstance(error, RPCError) and error.status in NO_UPDATES - TIMED_OUT:
            return _unless_late(await leave(runs, thread, "say", payload))
        now = await runs.describe(thread)
        if now.run_id != found.run_id or now.status in ENDED:
            return None
        if isinstance(error, WorkflowUpdateFailedError):
            raise HoldfastError(f"the run of thread {thread!r} failed to take the message: {error.cause}") from error
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise runs.in_words(error, thread) from error
        return None
    if answer["outcome"] == "too_late":
        await runs.until_closed(found)
        return None
    return Said(answer["outcome"], answer["explanation"])


async def _update(threads: Threads, thread: str, payload: dict[str, Any]) -> dict[str, str]:
    limit = threads.runs.answer_within
    run = threads.runs.client.get_workflow_handle(thread)
    try:
        async with asyncio.timeout(limit):
            answer = await run.execute_update(
                "say", payload, id=uuid4().hex, result_type=View, rpc_timeout=timedelta(seconds=limit)
            )
            told: dict[str, str] = sealed_answer(answer, thread, "say")
            return told
    except WorkflowUpdateFailedError as error:
        refused: dict[str, str] | None = refused_answer(error, threads.runs.client, thread, "say")
        if refused is None:
            raise
        return refused
    except (TimeoutError, RPCTimeoutOrCancelledError):
        # The client's error hides a cancellation of ours: who presses Ctrl-C is told so.
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError from None
        raise ServerUnreachable(
            f"no worker confirmed the message to thread {thread!r} within {limit:g} s, and it may still arrive. "
            "Look at `log` for it before you say it again."
        ) from None


def _unless_late(left: Decided) -> Said | None:
    return None if left.outcome == "too_late" else Said(left.outcome, left.explanation)
