"""Change a run from outside: decide a request, delegate or revoke authority, lift a constraint, cancel.

Each function returns the outcome. If no worker answers, it sends the same message as a signal, which Temporal keeps.
Delivery twice is harmless: a request is decided once, and the run records a second decision as a duplicate.
"""

import asyncio
import getpass
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import (
    RPCTimeoutOrCancelledError,
    WorkflowExecutionDescription,
    WorkflowUpdateFailedError,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.authority.statements import CLAIM_BYTES, REASON_CHARS, STATEMENT_BYTES, too_large
from holdfast.errors import AnswerForged, HoldfastError, Refused
from holdfast.run.contracts import View
from holdfast.runtime.client.connect import seals_of
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.reading.runs import ENDED, Runs, refused_answer, sealed_answer
from holdfast.seals.seals import SealKeyUnknown

FLEET_SECONDS = 2.0
"""How long the worker of a run may take to show that it has a fleet key of ours, before it gets a decision."""

SENT = "sent"
"""Temporal has the message as a signal; no worker has answered yet."""

UPDATE_UNAVAILABLE = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.UNIMPLEMENTED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
    }
)
"""Errors with which the server rejects an update (too many, disabled, no answer) but still accepts a signal."""


@dataclass(frozen=True)
class UpdateResult:
    """The result of a decision or other change: an outcome of `holdfast.authority.approvals`, or `sent`."""

    outcome: str
    explanation: str = ""

    @property
    def counts(self) -> bool:
        """Whether it was accepted, counts towards a quorum, opened another request, or waits for a call or a worker."""
        return self.outcome in ("accepted", "waiting_for_quorum", "judged_anew", "delivered", "buffered", SENT)


async def decide(threads: Threads, thread: str, payload: dict[str, Any]) -> UpdateResult:
    """Decide a request and return the outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.statements.Decision`: `{"decision", "request", "by", "reason", …}`;
            `via` is the login of this process where it is left out.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    payload = {"via": _login(), **payload}
    decision = payload["decision"]
    signal = decision if decision in ("approve", "deny", "respond") else "reconcile"
    return await send_update(threads, thread, "decide", payload, signal=signal)


async def delegate_authority(threads: Threads, thread: str, payload: dict[str, Any]) -> UpdateResult:
    """Delegate approval authority to another approver, and return the outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.approvals.AuthorityDelegation`: `{"by", "to", "until", …}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await send_update(threads, thread, "delegate_authority", payload, signal="delegate_authority")


async def revoke(threads: Threads, thread: str, payload: dict[str, Any]) -> UpdateResult:
    """Revoke a remembered rule or a delegation of approval authority, and return the outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.approvals.Revocation`: `{"by", "remembered"}` or `{"by",
        "delegated_to"}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await send_update(threads, thread, "revoke", payload, signal="revoke")


async def lift(threads: Threads, thread: str, payload: dict[str, Any]) -> UpdateResult:
    """Lift a constraint, and return the outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.statements.Lift`: `{"by", "constraint"}`.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await send_update(threads, thread, "lift", payload, signal="lift")


async def compact(threads: Threads, thread: str, *, by: str, reason: str = "") -> UpdateResult:
    """Compact a run's context: at once while it waits for a message, else at the end of the step.

    Returns:
        `accepted`, or `sent`. Refused: `nothing_to_compact`, `duplicate`, `too_late` where the run is closed, or
        `unknown_update` where it has a feature level without compactions on request.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    return await send_update(threads, thread, "compact", {"by": by, "reason": reason}, signal="compact")


async def send_update(
    threads: Threads, thread: str, update: str, payload: dict[str, Any], *, signal: str
) -> UpdateResult:
    """Send an update and return its outcome; if no worker answers, send the same payload as a signal.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        update: The update's name.
        payload: The argument of the update and of the signal.
        signal: The signal's name.

    Raises:
        AnswerForged, SealKeyUnknown: The run's worker has no fleet key of ours; nothing was sent.
        Refused: The payload is too large.
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    check_size(update, payload)
    runs = threads.runs
    await _check_fleet(runs, thread)
    limit = timedelta(seconds=runs.answer_within)
    run = runs.client.get_workflow_handle(thread)
    try:
        # The client polls again whenever the server says "admitted": only a limit around the whole call holds.
        async with asyncio.timeout(runs.answer_within):
            answer = await run.execute_update(update, payload, result_type=View, rpc_timeout=limit)
        sealed_answer(answer, thread, update)
        return UpdateResult(outcome=answer["outcome"], explanation=answer["explanation"])
    except (TimeoutError, RPCTimeoutOrCancelledError):
        # The client's error hides a cancellation of this task: after Ctrl-C, send no signal.
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError from None
    except (RPCError, WorkflowUpdateFailedError) as error:
        refused = isinstance(error, WorkflowUpdateFailedError) and refused_answer(error, runs.client, thread, update)
        if refused:
            return UpdateResult(outcome=refused["outcome"], explanation=refused["explanation"])
        if ended := await _fetch_ended_status(runs, thread):
            return UpdateResult("too_late", f"the run is {ended}")
        if isinstance(error, RPCError) and error.status not in UPDATE_UNAVAILABLE:
            raise runs.translate_error(error, thread) from error
        if "paused" in getattr(error, "message", ""):
            why = "the run is paused in Temporal and will process it when it is unpaused"
            return await send_signal(runs, thread, signal, payload, why_later=why)
    return await send_signal(runs, thread, signal, payload)


async def _check_fleet(runs: Runs, thread: str) -> None:
    """Ask the run's worker something first, where there is a fleet key to recognise it by.

    Only a worker that answers is judged: what else is wrong shows when the message is sent, and Temporal keeps a signal
    for a worker of ours.

    Raises:
        AnswerForged, SealKeyUnknown: It does not have our key.
    """
    if not seals_of(runs.client):
        return
    try:
        await runs.query(thread, "pending_approvals", within=min(FLEET_SECONDS, runs.answer_within))
    except (AnswerForged, SealKeyUnknown) as error:
        raise type(error)(f"{error}. Nothing was sent") from None
    except HoldfastError:
        return


async def cancel(threads: Threads, thread: str, *, reason: str = "") -> UpdateResult:
    """Ask a run to stop. It stops its running tools, waits for them, and ends as `cancelled`.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        reason: Why; it is in Temporal's history.

    Raises:
        Refused: The run is closed, or the reason is too long.
        ThreadNotFound: There is no such thread.
    """
    if len(reason) > REASON_CHARS:
        raise Refused(f"cancel: the reason has {len(reason):,} characters, and may have {REASON_CHARS:,}.")
    found = await threads.runs.describe(thread, loops=True)
    if ended := _ended_status(found):
        raise Refused(f"thread {thread!r} is {ended}: there is nothing to cancel")
    run = threads.runs.client.get_workflow_handle(thread, run_id=found.run_id)
    try:
        await run.cancel(reason=reason, rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        raise threads.runs.translate_error(error, thread) from error
    return UpdateResult("accepted", "the run stops as soon as its running tools have stopped")


async def send_signal(
    runs: Runs, thread: str, signal: str, payload: dict[str, Any], *, why_later: str = ""
) -> UpdateResult:
    """Send a signal, which Temporal keeps until a worker processes it.

    Args:
        runs: The namespace's runs.
        thread: The thread id.
        signal: The signal's name.
        payload: Its argument.
        why_later: Why the run processes it later; empty if no worker answered.

    Raises:
        Refused: The payload is too large.
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    check_size(signal, payload)
    try:
        await runs.client.get_workflow_handle(thread).signal(signal, payload, rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        if ended := await _fetch_ended_status(runs, thread):
            return UpdateResult("too_late", f"the run is {ended}")
        raise runs.translate_error(error, thread) from error
    silent = f"no worker answered within {runs.answer_within:g} s; the next worker will process it"
    return UpdateResult(SENT, f"delivered to Temporal; {why_later or silent}")


def check_size(name: str, payload: dict[str, Any]) -> None:
    """Check that a message is not too large, before anything is sent: Temporal's own errors do not say what is.

    Args:
        name: The name of the update or signal.
        payload: Its argument.

    Raises:
        Refused: It is.
    """
    if why := too_large(payload, limit=CLAIM_BYTES if name == "say" else STATEMENT_BYTES):
        raise Refused(f"{name}: {why}.")


def _login() -> str:
    """The login of this process, as the log of a decision names it."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return ""


async def _fetch_ended_status(runs: Runs, thread: str) -> str | None:
    return _ended_status(await runs.describe(thread, loops=True))


def _ended_status(found: WorkflowExecutionDescription) -> str | None:
    """Return the status with which a run has ended; None for an open run."""
    return ENDED.get(found.status) if found.status else None
