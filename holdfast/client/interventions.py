"""Intervene in a run from outside: one function sends all interventions of `holdfast.core.run.inputs.interventions`.

Messages, which re-open a closed thread, are in `messages`.
"""

import asyncio
import getpass
import socket
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

from temporalio.service import RPCError

from holdfast.client.reading.states import CLOSED
from holdfast.client.sending import SENT, UpdateResult, ended_status, send_signal, send_update
from holdfast.client.threads import JSON, Threads
from holdfast.config.programs import CLI, WORKER
from holdfast.core.authority.interventions import Steering, read_compaction
from holdfast.core.authority.statements import REASON_CHARS, Once
from holdfast.core.run.inputs.interventions import INTERVENTIONS, SIGNALS, UPDATES
from holdfast.core.run.state.features import FEEDBACK, OWN_SUMMARIES
from holdfast.encryption.signing_keys import signed, signed_once
from holdfast.errors import HoldfastError, NoWorker, QueryRefused, Refused, RunStuck

LOADING_SECONDS = 0.05
"""Seconds between two attempts to send a run something that it cannot take before its agent is loaded."""

EARLY = frozenset({"unknown_update", "busy", "unknown_request", "nothing_to_compact"})
"""The outcomes with which a run rejects what it cannot take before its agent is loaded."""

UNSIGNED = (
    "not signed, because no worker reported the run's current state; a policy that requires signatures will reject it"
)


async def intervene(
    threads: Threads, thread: str, name: str, payload: JSON, *, private: str | None = None
) -> UpdateResult:
    """Send an intervention to an open run, and return its outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        name: The name of its update, except `say`: one of `holdfast.core.run.inputs.interventions.UPDATES`.
        payload: The fields of its payload: `by`, `reason`, and the intervention's own.
        private: The private key to sign it with; None to send it unsigned.

    Returns:
        The run's outcome, such as `accepted`; `sent` if no worker answers; `unknown_update` if the run's feature level
        lacks this update.

    Raises:
        Refused: The payload is too large; a retry of a run that is not blocked; or a `say` that the run would not read.
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
        NoWorker: The run cannot take it before its agent is loaded, and no worker has loaded it in time.
    """
    if name == "retry" and (early := await _retry_unanswered(threads, thread, payload)):
        return early
    if name == "decide" and payload.get("say"):
        then = "Approve without it, and send the agent a message"
        await _require_level(threads, thread, FEEDBACK, "feedback (`say`)", then=then)
    if name == "compact" and payload.get("summary"):
        then = "Compact without it, and send the agent a message"
        await _require_level(threads, thread, OWN_SUMMARIES, "summaries of people (`summary`)", then=then)
    payload, unsigned = _completed(name, payload), ""
    if private:
        payload, unsigned = await _sign(threads, thread, name, payload, private=private)
    read = INTERVENTIONS[name].read
    if _counts_once(name, payload) and read and isinstance(wrong := read(payload), tuple):
        return UpdateResult(*wrong)
    sent = await _send_when_loaded(threads, thread, name, payload)
    if sent.outcome == "unknown_update" and name == "retry":  # a run of an earlier release has only the signal
        sent = await send_signal(threads.runs, thread, name, payload)
        sent = UpdateResult("accepted", "the run resumes") if sent.outcome == SENT else sent
    if sent.outcome == "too_late" and name == "decide":
        return await decided_before(threads, thread, str(payload.get("request", ""))) or sent
    if sent.outcome == "too_late" and name in ("refine", "reclassify"):
        then = f"`{CLI.command('say', thread, 'MESSAGE')}` continues the thread"
        return UpdateResult(sent.outcome, f"{sent.explanation}; {then}")
    return UpdateResult(SENT, f"{sent.explanation}; {unsigned}") if unsigned and sent.outcome == SENT else sent


async def _send_when_loaded(threads: Threads, thread: str, name: str, payload: JSON) -> UpdateResult:
    """Send the update; if the run has yet to load its agent, and cannot take the update before that, wait for it.

    A run right after its start or its fork rejects such an update before it is in history, so repeating it is harmless.

    Raises:
        NoWorker: No worker has loaded the agent in time. Nothing was sent.
    """
    signal, clock = _signal_of(name, payload), asyncio.get_running_loop()
    deadline = clock.time() + threads.runs.answer_within

    async def require_agent() -> None:
        if await _is_loading(threads, thread):
            raise _not_loaded(threads, thread, name)

    check = require_agent if SIGNALS.get(signal, 0) else None
    loaded = not UPDATES.get(name, 0)  # updates of the first level are taken before that
    while True:
        sent = await send_update(threads, thread, name, payload, signal=signal, before_signal=check)
        if sent.outcome not in EARLY or loaded:
            return sent
        loaded = not await _is_loading(threads, thread)  # perhaps only since the rejection
        if not loaded and clock.time() >= deadline:
            raise _not_loaded(threads, thread, name)
        await asyncio.sleep(0 if loaded else LOADING_SECONDS)


async def _is_loading(threads: Threads, thread: str) -> bool:
    """Whether an open run has yet to load its agent, according to its worker or else to its history."""
    try:
        state = await threads.state(thread, note=lambda silence: None)
    except QueryRefused:
        return False
    return _loading(state)


def _loading(state: JSON) -> bool:
    # A run whose agent cannot be loaded is blocked, and takes `retry` or `cancel`.
    return state["agent"] is None and state["status"] not in (*CLOSED, "blocked")


def _not_loaded(threads: Threads, thread: str, name: str) -> NoWorker:
    waited = f"{threads.runs.answer_within:g} s"
    return NoWorker(
        f"thread {thread!r} cannot take `{name}` before a worker has loaded its agent, and none has within {waited}. "
        f"Nothing was sent. Start a worker with `{WORKER.command('--dev')}`, and send it again"
    )


async def _require_level(threads: Threads, thread: str, needed: int, what: str, *, then: str) -> None:
    """Check that the run reads a field: a run of an earlier release would act without it.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        needed: The feature level.
        what: What the field holds.
        then: What to do instead.

    Raises:
        Refused: It does not, or no worker can tell.
    """
    try:
        level = (await threads.state(thread)).get("features", 0)
    except (NoWorker, RunStuck, QueryRefused) as error:
        raise Refused(f"no worker says whether the run reads {what}: nothing was sent. {then}") from error
    if level < needed:
        raise Refused(f"this run began in an earlier release, which reads no {what}: nothing was sent. {then}")


async def _sign(threads: Threads, thread: str, name: str, payload: JSON, *, private: str) -> tuple[JSON, str]:
    """Sign the payload. Return it, and the reason if it remains unsigned although a signature may be required; else
    empty.
    """
    row = INTERVENTIONS[name]
    if row.statement is None:
        return payload, ""
    if name == "compact" and not _counts_once(name, payload):
        return payload, ""
    if _counts_once(name, payload):
        return signed_once(payload, row.read or read_compaction, thread=thread, private=private), ""
    if issubclass(row.statement, Steering):
        # A signature is bound to the run's current state, so that the statement cannot be replayed later.
        try:
            seen = await _steering(threads, thread)
        except (NoWorker, RunStuck, QueryRefused):
            return payload, UNSIGNED
        if not seen:  # a run that began in an earlier release does not accept signatures
            return payload, ""
        payload = {**payload, **seen}
    return signed(payload, row.statement, thread=thread, private=private), ""


async def _steering(threads: Threads, thread: str) -> JSON | None:
    """Return the values to which a statement that steers the run is bound; None if the run accepts none.

    A run names them once its agent is loaded.
    """
    clock = asyncio.get_running_loop()
    deadline = clock.time() + threads.runs.answer_within
    while True:
        state = await threads.state(thread)
        if state.get("steering") or not _loading(state) or clock.time() >= deadline:
            steering: JSON | None = state.get("steering")
            return steering
        await asyncio.sleep(LOADING_SECONDS)


def _counts_once(name: str, payload: JSON) -> bool:
    """Whether each of its ids counts once, so that it can be sent again safely, also as a signal if no worker
    answers.
    """
    statement = INTERVENTIONS[name].statement
    plain = name == "compact" and "summary" not in payload
    return statement is not None and issubclass(statement, Once) and not plain


async def decided_before(threads: Threads, thread: str, request: str) -> UpdateResult | None:
    """Return how a request of a run that has ended was decided, so that a decision whose answer was lost can be sent
    again; None if people did not decide it, or the log cannot be read.
    """
    decided = None
    with suppress(HoldfastError):
        async for event in threads.events(thread):
            if event["type"] == "decision_received" and (event["request"], event["outcome"]) == (request, "accepted"):
                decided = event
    if decided is None:
        return None
    how = f"{decided['decision']} by {decided['by']}"
    return UpdateResult("duplicate", f"request {request} was decided before: {how}; the run is over")


def _completed(name: str, payload: JSON) -> JSON:
    """Add fields that a sender may omit: ids, and the login that sends a decision."""
    if name == "decide":
        return {"via": _login(), **payload}
    if name == "wake":
        payload = {field: value for field, value in payload.items() if value}
        return {"id": uuid4().hex, **payload} if "event" in payload else payload
    return {"id": uuid4().hex, **payload} if _counts_once(name, payload) else payload


def _signal_of(name: str, payload: JSON) -> str:
    """Return the name of the signal that is equivalent to an update."""
    if name != "decide":
        return name
    return payload["decision"] if payload["decision"] in SIGNALS else "reconcile"


async def _retry_unanswered(threads: Threads, thread: str, payload: JSON) -> UpdateResult | None:
    """Check that the run is blocked, and return None if it is; if no worker can tell, send the retry as a signal.

    Raises:
        Refused: The run is not blocked.
    """
    try:
        state = await threads.state(thread)
    except (NoWorker, RunStuck):
        return await send_signal(threads.runs, thread, "retry", payload)
    except QueryRefused:
        # The query only serves to reject early; the run itself ignores a retry when it is not blocked.
        sent = await send_signal(threads.runs, thread, "retry", payload)
        waits = "delivered to Temporal; the worker cannot say yet what the run is waiting for"
        return UpdateResult(SENT, waits) if sent.outcome == SENT else sent
    if state["status"] != "blocked" and not (state.get("paused") and state["blocked"]):
        raise Refused(f"thread {thread!r} is {state['status']}, not blocked: there is nothing to retry")
    return None


async def cancel(threads: Threads, thread: str, *, reason: str = "") -> UpdateResult:
    """Ask a run to stop. It stops its running tools, waits for them, and ends as `cancelled`.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        reason: The reason; it is in Temporal's history.

    Raises:
        Refused: The run is closed, or the reason is too long.
        ThreadNotFound: There is no such thread.
    """
    if len(reason) > REASON_CHARS:
        raise Refused(f"cancel: the reason has {len(reason):,} characters, and may have {REASON_CHARS:,}.")
    found = await threads.runs.describe(thread, loops=True)
    if ended := ended_status(found):
        raise Refused(f"thread {thread!r} is {ended}: there is nothing to cancel")
    run = threads.runs.client.get_workflow_handle(thread, run_id=found.run_id)
    try:
        await run.cancel(reason=reason, rpc_timeout=timedelta(seconds=10))
    except RPCError as error:
        raise threads.runs.translate_error(error, thread) from error
    return UpdateResult("accepted", "the run stops as soon as its running tools have stopped")


def _login() -> str:
    """Return the login of this process, as recorded with a decision."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"[:200]
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return ""
