"""Steer a run from outside: pause, resume, retry, move; signed, if there is a key."""

from typing import Any

from holdfast.errors import NoWorker, QueryRefused, Refused, RunStuck
from holdfast.run.steering import STEERING
from holdfast.runtime.client.decisions import SENT, UpdateResult, send_signal, send_update
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import signed

UNSIGNED = "not signed, for no worker says what the run is like now: a policy that requires signatures refuses it"


async def steer_run(
    threads: Threads, thread: str, name: str, payload: dict[str, Any], *, private: str | None
) -> UpdateResult:
    """Send a statement that steers a run, and return its outcome.

    A signature is bound to what the run is like now, so that the statement cannot be sent again later.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        name: `pause`, `resume`, `retry` or `move`.
        payload: `by`, `reason`, and for `pause` `until`.
        private: The private key to sign it with; None to send it unsigned.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    unsigned = False
    if private:
        try:
            seen = (await threads.state(thread)).get("steering")
        except (NoWorker, RunStuck, QueryRefused):
            seen, unsigned = None, True
        if seen:  # a run that an earlier release began takes no signature
            payload = signed({**payload, **seen}, STEERING[name], thread=thread, private=private)
    sent = await send_update(threads, thread, name, payload, signal=name)
    if sent.outcome == "unknown_update" and name == "retry":  # so does this, of a run that an earlier release began
        sent = await send_signal(threads.runs, thread, name, payload)
        sent = UpdateResult("accepted", "the run resumes") if sent.outcome == SENT else sent
    return UpdateResult(SENT, f"{sent.explanation}; {UNSIGNED}") if unsigned and sent.outcome == SENT else sent


async def retry(
    threads: Threads, thread: str, *, by: str, reason: str = "", private: str | None = None
) -> UpdateResult:
    """Resume a blocked run.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        by: Who says that its cause is fixed.
        reason: Why; it is in the log.
        private: The private key to sign it with; None to send it unsigned.

    Returns:
        `accepted`, or `sent`. Refused: `budget_spent`, or `unsigned` and other outcomes of `holdfast.run.steering`.

    Raises:
        Refused: The run is not blocked.
        ThreadNotFound: There is no such thread.
    """
    payload = {"by": by, "reason": reason}
    try:
        state = await threads.state(thread)
    except (NoWorker, RunStuck):
        return await send_signal(threads.runs, thread, "retry", payload)
    except QueryRefused:
        # The query only serves to refuse early; the run itself ignores a retry when it is not blocked.
        sent = await send_signal(threads.runs, thread, "retry", payload)
        waits = "delivered to Temporal; the worker cannot say yet what the run is waiting for"
        return UpdateResult(SENT, waits) if sent.outcome == SENT else sent
    if state["status"] != "blocked" and not (state.get("paused") and state["blocked"]):
        raise Refused(f"thread {thread!r} is {state['status']}, not blocked: there is nothing to retry")
    return await steer_run(threads, thread, "retry", payload, private=private)
