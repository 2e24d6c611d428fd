"""Refine the task of an open run from outside."""

from typing import Any
from uuid import uuid4

from holdfast.authority.refinements import Refinement, read_refinement
from holdfast.runtime.client.decisions import send_update
from holdfast.runtime.client.messages import MessageResult
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import signed_once
from holdfast.runtime.programs import CLI


async def refine(
    threads: Threads, thread: str, payload: dict[str, Any], *, private: str | None = None
) -> MessageResult:
    """Refine the task of an open run, and return the outcome.

    It has an id, which counts once: sent again where no worker answers, it is not made twice.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.refinements.Refinement`: `{"kind", "text", "by", "when_busy"}`, and
            `id` where the caller may send it again.
        private: The private key to sign it with; None to leave it unsigned.

    Returns:
        `accepted`, `queued`, `interrupting`, or `sent`. Refused: `not_entitled`, `too_late` where the run is closed,
        `too_many`, `too_long`, `malformed`, `unsigned`, `bad_signature`, `busy` while the agent is being loaded, or
        `unknown_update` where the run has a feature level without refinements.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    payload = {"id": uuid4().hex, **payload}
    if private:
        payload = signed_once(payload, read_refinement, thread=thread, private=private)
    given = read_refinement(payload)
    if not isinstance(given, Refinement):
        return MessageResult(*given)
    sent = await send_update(threads, thread, "refine", payload, signal="refine")
    if sent.outcome == "too_late":
        then = f"`{CLI.command('say', thread, 'MESSAGE')}` continues the thread"
        return MessageResult("too_late", f"{sent.explanation}; {then}")
    return MessageResult(sent.outcome, sent.explanation)
