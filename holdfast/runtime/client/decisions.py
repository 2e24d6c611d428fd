"""What changes a run from outside: decide a request, lend a right or take it back, retry a blocked run, cancel.

Each says what became of it. Where no worker answers, the same message is left with Temporal as a signal, which keeps
it: arriving twice does no harm, for a request is decided once and a second decision is recorded as a duplicate.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import (
    RPCTimeoutOrCancelledError,
    WorkflowExecutionDescription,
    WorkflowUpdateFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import NoWorker, QueryRefused, Refused, RunStuck
from holdfast.run.contracts import View
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.runs import ENDED, Runs, refused_answer, sealed_answer

SENT = "sent"
"""Temporal keeps it; no worker has answered yet."""

NO_UPDATES = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
    }
)
"""With these the server takes no update (too many, switched off, nobody answers) but still takes a signal."""


@dataclass(frozen=True)
class Decided:
    """What became of a decision: an outcome of `holdfast.authority.approvals`, or `sent`."""

    outcome: str
    explanation: str = ""

    @property
    def counts(self) -> bool:
        """Whether it was accepted, counts towards a quorum, has opened another request, or waits for a worker."""
        return self.outcome in ("accepted", "waiting_for_quorum", "judged_anew", SENT)


async def decide(threads: Threads, thread: str, payload: dict[str, Any]) -> Decided:
    """Decide a request and learn the outcome.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        payload: The fields of `holdfast.authority.approvals.Decision`: `{"decision", "request", "by", "reason", …}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    decision = payload["decision"]
    signal = decision if decision in ("approve", "deny", "respond") else "reconcile"
    return await update(threads, thread, "decide", payload, signal=signal)


async def delegate_authority(threads: Threads, thread: str, payload: dict[str, Any]) -> Decided:
    """Lend a right to decide, and learn the outcome.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        payload: The fields of `holdfast.authority.approvals.AuthorityDelegation`: `{"by", "to", "until", …}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await update(threads, thread, "delegate_authority", payload, signal="delegate_authority")


async def revoke(threads: Threads, thread: str, payload: dict[str, Any]) -> Decided:
    """Take back what was remembered or lent, and learn the outcome.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        payload: The fields of `holdfast.authority.approvals.Revocation`: `{"by", "remembered"}` or `{"by",
        "delegated_to"}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await update(threads, thread, "revoke", payload, signal="revoke")


async def update(threads: Threads, thread: str, update: str, payload: dict[str, Any], *, signal: str) -> Decided:
    """Send an update that answers with an outcome; where nobody answers it, leave the same as a signal.

    Args:
        threads: Where the thread is.
        thread: The thread id.
        update: The update's name.
        payload: What both carry.
        signal: The signal's name.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    runs = threads.runs
    limit = timedelta(seconds=runs.answer_within)
    run = runs.client.get_workflow_handle(thread)
    try:
        # The client asks again whenever the server says "admitted": only a limit over all of it is one.
        async with asyncio.timeout(runs.answer_within):
            answer = await run.execute_update(update, payload, result_type=View, rpc_timeout=limit)
        sealed_answer(answer, thread, update)
        return Decided(outcome=answer["outcome"], explanation=answer["explanation"])
    except (TimeoutError, RPCTimeoutOrCancelledError):
        # The client's error hides a cancellation of ours: who presses Ctrl-C does not want a signal sent.
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError from None
    except (RPCError, WorkflowUpdateFailedError) as error:
        refused = isinstance(error, WorkflowUpdateFailedError) and refused_answer(error, runs.client, thread, update)
        if refused:
            return Decided(outcome=refused["outcome"], explanation=refused["explanation"])
        if ended := await _ended(runs, thread):
            return Decided("too_late", f"the run is {ended}")
        if isinstance(error, RPCError) and error.status not in NO_UPDATES:
            raise runs.in_words(error, thread) from error
        if "paused" in getattr(error, "message", ""):
            later = "the run is paused in Temporal, and takes it when it goes on"
            return await leave(runs, thread, signal, payload, later)
    return await leave(runs, thread, signal, payload)


async def retry(threads: Threads, thread: str, *, by: str, reason: str = "") -> Decided:
    """Let a blocked run go on.

    Raises:
        Refused: The run is not blocked.
        ThreadNotFound: There is no such thread.
    """
    payload = {"by": by, "reason": reason}
    try:
        status = (await threads.state(thread))["status"]
    except (NoWorker, RunStuck):
        return await leave(threads.runs, thread, "retry", payload)
    except QueryRefused:
        # Asked only to say at once that there is nothing to retry; the run can tell that itself.
        sent = await leave(threads.runs, thread, "retry", payload)
        waits = "delivered to Temporal; the worker cannot say yet what the run is waiting for"
        return Decided(SENT, waits) if sent.outcome == SENT else sent
    if status != "blocked":
        raise Refused(f"thread {thread!r} is {status}, not blocked: there is nothing to retry")
    sent = await leave(threads.runs, thread, "retry", payload)
    return Decided("accepted", "the run goes on") if sent.outcome == SENT else sent


async def cancel(threads: Threads, thread: str) -> Decided:
    """Ask a run to stop. Tools under way are stopped and waited for; then the run is `cancelled`.

    Raises:
        Refused: The run is closed.
        ThreadNotFound: There is no such thread.
    """
    found = await threads.runs.describe(thread, loops=True)
    if ended := _ending(found):
        raise Refused(f"thread {thread!r} is {ended}: there is nothing to cancel")
    run = threads.runs.client.get_workflow_handle(thread, run_id=found.run_id)
    try:
        await run.cancel(rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        raise threads.runs.in_words(error, thread) from error
    return Decided("accepted", "the run stops as soon as the tools under way have")


async def leave(runs: Runs, thread: str, signal: str, payload: dict[str, Any], because: str = "") -> Decided:
    """Leave a signal with Temporal; `because` says why it is taken later, where that is not for want of a worker."""
    try:
        await runs.client.get_workflow_handle(thread).signal(signal, payload, rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if ended := await _ended(runs, thread):
            return Decided("too_late", f"the run is {ended}")
        raise runs.in_words(error, thread) from error
    silent = f"no worker answered within {runs.answer_within:g} s, it will be taken when one is up"
    return Decided(SENT, f"delivered to Temporal; {because or silent}")


async def _ended(runs: Runs, thread: str) -> str | None:
    return _ending(await runs.describe(thread, loops=True))


def _ending(found: WorkflowExecutionDescription) -> str | None:
    return ENDED.get(found.status) if found.status else None
