"""Send an update to a run or a loop; if no worker answers, send the same payload as a signal, which Temporal keeps.

Duplicate delivery is harmless: a request is decided once, and the run records a second decision as a duplicate.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import RPCTimeoutOrCancelledError, WorkflowExecutionDescription, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.reading.runs import ENDED, Runs, check_sealed, rejection_answer
from holdfast.client.threads import Threads
from holdfast.core.authority.statements import CLAIM_BYTES, STATEMENT_BYTES, too_large
from holdfast.core.mac.seals import SealKeyUnknown
from holdfast.core.run.contracts.runs import View
from holdfast.core.temporal.converter import seals_in
from holdfast.errors import AnswerForged, HoldfastError, Refused

FLEET_SECONDS = 2.0
"""Seconds that a run's worker may take to prove that it has the fleet key, before it is sent a decision."""

SENT = "sent"
"""Temporal has the message as a signal; no worker has answered yet."""

REOPENED = "reopened"
"""The thread was closed, and a new run continues it with the message."""

COUNTING = frozenset(
    {
        "accepted",
        "waiting_for_quorum",
        "judged_anew",
        "delivered",
        "buffered",
        "counted",
        "queued",
        "interrupting",
        SENT,
        REOPENED,
    }
)
"""Outcomes after which the sender has nothing left to do."""

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


_NO_HANDLER = "expected but not found"
"""Part of the SDK's words about an update that a workflow does not have. Its signal would be dropped."""


@dataclass(frozen=True)
class UpdateResult:
    """The result of an intervention: an outcome of `holdfast.core.run.rules.authority`, `unknown_update`, `sent` or
    `reopened`.
    """

    outcome: str
    explanation: str = ""

    @property
    def counts(self) -> bool:
        """Whether it was accepted, counts towards a quorum, opened another request, or waits for a call or a worker."""
        return self.outcome in COUNTING


async def send_update(
    threads: Threads,
    thread: str,
    update: str,
    payload: dict[str, Any],
    *,
    signal: str,
    before_signal: Callable[[], Awaitable[None]] | None = None,
) -> UpdateResult:
    """Send an update and return its outcome; if no worker answers, send the same payload as a signal.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        update: The update's name.
        payload: The argument of the update and of the signal.
        signal: The signal's name.
        before_signal: Raises if the run would reject the signal; None for no check.

    Raises:
        AnswerForged, SealKeyUnknown: The run's worker does not have the fleet key; nothing was sent.
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
        # The client polls again whenever the server says "admitted", so only a limit around the whole call is
        # effective.
        async with asyncio.timeout(runs.answer_within):
            answer = await run.execute_update(update, payload, result_type=View, rpc_timeout=limit)
        check_sealed(answer, thread, update)
        return UpdateResult(outcome=answer["outcome"], explanation=answer["explanation"])
    except (TimeoutError, RPCTimeoutOrCancelledError):
        # The client's error hides a cancellation of this task: after Ctrl-C, send no signal.
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError from None
    except (RPCError, WorkflowUpdateFailedError) as error:
        refused = isinstance(error, WorkflowUpdateFailedError) and rejection_answer(error, runs.client, thread, update)
        if refused:
            return UpdateResult(outcome=refused["outcome"], explanation=refused["explanation"])
        if ended := await _fetch_ended_status(runs, thread):
            return UpdateResult("too_late", f"the run is {ended}")
        if isinstance(error, WorkflowUpdateFailedError) and _NO_HANDLER in str(error.cause):
            return UpdateResult("unknown_update", f"the worker that has the run is of a release without `{update}`")
        if isinstance(error, RPCError) and error.status not in UPDATE_UNAVAILABLE:
            raise runs.translate_error(error, thread) from error
        if "paused" in getattr(error, "message", ""):
            why = "the run is paused in Temporal and will process it when it is unpaused"
            return await send_signal(runs, thread, signal, payload, why_later=why)
    if before_signal:
        await before_signal()
    return await send_signal(runs, thread, signal, payload)


async def _check_fleet(runs: Runs, thread: str) -> None:
    """Query the run's worker first, if this client has a fleet key to authenticate it.

    Only a worker that answers is checked: other errors appear when the message is sent, and Temporal keeps a signal for
    a worker of this fleet.

    Raises:
        AnswerForged, SealKeyUnknown: The worker does not have the fleet key.
    """
    if not seals_in(runs.client.data_converter):
        return
    try:
        await runs.query(thread, "pending_approvals", within=min(FLEET_SECONDS, runs.answer_within))
    except (AnswerForged, SealKeyUnknown) as error:
        raise type(error)(f"{error}. Nothing was sent") from None
    except HoldfastError:
        return


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
    """Check that a message is not too large before anything is sent: Temporal's own errors do not name the field.

    Args:
        name: The name of the update or signal.
        payload: Its argument.

    Raises:
        Refused: It is too large.
    """
    if why := too_large(payload, limit=CLAIM_BYTES if name == "say" else STATEMENT_BYTES):
        raise Refused(f"{name}: {why}.")


async def _fetch_ended_status(runs: Runs, thread: str) -> str | None:
    return ended_status(await runs.describe(thread, loops=True))


def ended_status(found: WorkflowExecutionDescription) -> str | None:
    """Return the final status of a run; None for an open run."""
    return ENDED.get(found.status) if found.status else None
