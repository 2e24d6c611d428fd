"""Send a message to a thread: to its open run, or re-open a closed thread with the message as the task of a new run.

1. If a worker answers, the message is an update, whose outcome is known at once. If none answers, the message is sent
   as a signal, which Temporal keeps. It is never sent both ways, because a message that arrives twice is in the
   transcript twice.
2. If the run ends before it accepts the message, the message re-opens the thread.
3. A message with an id counts once, in an open run as well as when it re-opens the thread. So it can be repeated
   whenever it is unknown whether it arrived.
4. A closed thread judges a signature as its last run would have; the new run records the message as a start's task.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import RPCTimeoutOrCancelledError, WorkflowExecutionDescription, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.interventions import intervene
from holdfast.client.reading.runs import ENDED, TIMED_OUT, NeverRan, check_sealed, rejection_answer
from holdfast.client.reading.states import CLOSED, decode_lines
from holdfast.client.sending import REOPENED, UPDATE_UNAVAILABLE, UpdateResult, send_signal
from holdfast.client.start_options import StartOptions
from holdfast.client.threads import Threads
from holdfast.core.authority.interventions import Message, WhenBusy, read_message
from holdfast.core.base.trace_context import ambient_traceparent
from holdfast.core.llm.blocks import Content
from holdfast.core.run.contracts.runs import View
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.inputs.messages import refuse_signature
from holdfast.core.run.state.state import RunState
from holdfast.encryption.signing_keys import signed_once
from holdfast.errors import HoldfastError, NoWorker, QueryRefused, RunStuck, ServerUnreachable, ThreadExists

_ATTEMPTS = 5
"""Number of attempts to find the latest run, if the one found ends before it accepts the message."""


@dataclass(frozen=True)
class MessageResult(UpdateResult):
    """The result of sending a message: an outcome of `holdfast.core.authority.interventions`, `sent`, or `reopened`."""

    run_id: str | None = None
    """Temporal's id of the new run, if the message re-opened the thread."""


async def say(
    threads: Threads,
    thread: str,
    message: Content,
    *,
    by: str = "",
    when_busy: WhenBusy = "queue",
    id: str = "",
    private: str | None = None,
    signature: Mapping[str, Any] | None = None,
) -> MessageResult:
    """Send a message to a thread's agent; if the thread is closed, re-open it in a new run.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        message: Text, or content blocks (`holdfast.core.llm.blocks`).
        by: The person who sends it.
        when_busy: How the run handles the message during a step.
        id: The sender's id, with which the message counts once; empty for none.
        private: The private key to sign it with; None to leave it unsigned.
        signature: The sender's own signature, made elsewhere, with the `id` and `until` that it covers; None for none.

    Raises:
        ThreadNotFound: There is no such thread.
        ThreadExists: The thread is closed, and somebody else's run has its id in Temporal.
        ServerUnreachable: The server does not answer, or it is unknown whether the message arrived.
    """
    given = read_message({"message": message, "by": by, "when_busy": when_busy, "id": id, **(signature or {})})
    if isinstance(given, tuple):
        return MessageResult(*given)
    payload = given.model_dump(mode="json", include={"message", "by", "when_busy"} | ({"id"} if id else set()))
    if signature:
        payload |= signature
    elif private:
        payload = signed_once(payload, read_message, thread=thread, private=private)
        given = Message.model_validate(payload)
    for _ in range(_ATTEMPTS):
        found = await threads.reader.find(thread)
        if found is None or found.status in ENDED:
            result = await _reopen_closed_thread(threads, thread, given, id=id)
        else:
            if id:  # until the agent is loaded, the run does not record ids
                await threads.wait_until_loaded(thread)
            result = await _send_to_open_run(threads, found, payload)
        if result:
            return result
    return MessageResult("too_late", "the run is ending, and has not closed yet; say it again in a moment")


async def resume(
    threads: Threads,
    thread: str,
    *,
    by: str,
    reason: str = "",
    message: Content | None = None,
    private: str | None = None,
) -> UpdateResult:
    """Resume a paused run, optionally after a message to the agent. A run that is not paused does not get the message.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        by: The person who resumes it.
        reason: The reason; it is in the log.
        message: The message; None for none.
        private: The private key to sign both with; None to send them unsigned.

    Returns:
        The outcome of the resumption; that of the message if it was rejected.

    Raises:
        NoWorker: With a message: no worker reports whether the run is paused.
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
    return await intervene(threads, thread, "resume", {"by": by, "reason": reason}, private=private)


async def _reopen_closed_thread(threads: Threads, thread: str, message: Message, *, id: str) -> MessageResult | None:
    """Start a new run of a closed thread, with the message as its task; None if another caller re-opened it first."""
    if (id or message.signature) and (refused := await _refused(threads, thread, message, id=id)):
        return refused
    try:
        options = StartOptions(by=message.by, traceparent=ambient_traceparent())
        started = await threads.start(message.message, thread, options, message_id=id)
    except ThreadExists:
        if threads.reader.ownership.foreign(thread):
            raise
        return None
    return MessageResult(REOPENED, "the thread was closed; a new run continues it", started.run_id)


async def _refused(threads: Threads, thread: str, message: Message, *, id: str) -> MessageResult | None:
    """Return why a message may not re-open a closed thread; None if it may.

    The log has its id, or the policy of the last run rejects its signature: the new run does not see a signature.
    """
    past = RunState(thread=thread)
    async for event in decode_lines(threads.reader.lines(thread, 0, found=None, note=None)):
        if id and event.type == "user_message_received" and event.id == id:
            if event.content == message.message:
                return MessageResult("duplicate", f"the message {id!r} was received before, and counts once")
            return MessageResult("id_taken", f"another message was received under the id {id!r}: take another id")
        if message.signature:
            past = evolve(past, event)
    refused = refuse_signature(past, message, at=datetime.now(UTC))
    return MessageResult(refused.outcome, refused.explanation) if refused else None


async def _send_to_open_run(
    threads: Threads, found: WorkflowExecutionDescription, payload: dict[str, Any]
) -> MessageResult | None:
    """Send the message to an open run; None if the run has ended."""
    thread, runs = found.id, threads.runs
    try:
        await runs.query(thread, "pending_approvals")  # the cheapest query: does a worker answer?
    except (NoWorker, RunStuck, QueryRefused):
        return _none_if_late(await send_signal(runs, thread, "say", payload))
    except NeverRan:
        return None
    try:
        answer = await _send_update(threads, thread, payload)
    except (RPCError, WorkflowUpdateFailedError) as error:
        if isinstance(error, RPCError) and error.status in UPDATE_UNAVAILABLE - TIMED_OUT:
            return _none_if_late(await send_signal(runs, thread, "say", payload))
        now = await runs.describe(thread)
        if now.run_id != found.run_id or now.status in ENDED:
            return None
        if isinstance(error, WorkflowUpdateFailedError):
            raise HoldfastError(f"the run of thread {thread!r} failed to process the message: {error.cause}") from error
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise runs.translate_error(error, thread) from error
        return None
    if answer["outcome"] == "too_late" and not ("until" in payload and await _is_open(threads, thread)):
        await runs.until_closed(found)
        return None
    return MessageResult(answer["outcome"], answer["explanation"])


async def _is_open(threads: Threads, thread: str) -> bool:
    """Whether the run has not ended, so that a signed message came too late by its own expiry."""
    try:
        state = await threads.runs.query(thread, "state")
    except (NeverRan, NoWorker, QueryRefused, RunStuck):
        return False
    return state["status"] not in CLOSED


async def _send_update(threads: Threads, thread: str, payload: dict[str, Any]) -> dict[str, str]:
    limit = threads.runs.answer_within
    run = threads.runs.client.get_workflow_handle(thread)
    try:
        async with asyncio.timeout(limit):
            answer = await run.execute_update(
                "say", payload, id=uuid4().hex, result_type=View, rpc_timeout=timedelta(seconds=limit)
            )
            outcome: dict[str, str] = check_sealed(answer, thread, "say")
            return outcome
    except WorkflowUpdateFailedError as error:
        refused: dict[str, str] | None = rejection_answer(error, threads.runs.client, thread, "say")
        if refused is None:
            raise
        return refused
    except (TimeoutError, RPCTimeoutOrCancelledError):
        # The client's error hides a cancellation of this task, as by Ctrl-C.
        if (task := asyncio.current_task()) and task.cancelling():
            raise asyncio.CancelledError from None
        raise ServerUnreachable(
            f"no worker confirmed the message to thread {thread!r} within {limit:g} s, and it may still arrive. "
            "Look for it with `log` before you send it again."
        ) from None


def _none_if_late(sent: UpdateResult) -> MessageResult | None:
    return None if sent.outcome == "too_late" else MessageResult(sent.outcome, sent.explanation)
