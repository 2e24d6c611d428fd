"""Extend the budget of an open run from outside."""

from typing import Any
from uuid import uuid4

from holdfast.authority.extensions import Extension, read_extension
from holdfast.runtime.client.decisions import UpdateResult, send_update
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import signed_once


async def extend(threads: Threads, thread: str, payload: dict[str, Any], *, private: str | None = None) -> UpdateResult:
    """Extend the budget of an open run, and return the outcome.

    It has an id, which counts once: sent again where no worker answers, it is not added twice.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.extensions.Extension`: amounts such as `{"usd": "1"}`, `by`,
            `reason`, and `id` where the caller may send it again.
        private: The private key to sign it with; None to leave it unsigned.

    Returns:
        `accepted`, or `sent`. Refused: `not_entitled`, `no_budget` where the run has none or not of that kind,
        `too_much`, `too_late` where the run is closed, `malformed`, `unsigned`, `bad_signature`, `duplicate`, `busy`
        while the agent is being loaded, or `unknown_update` where the run has a feature level without budgets.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    payload = {"id": uuid4().hex, **payload}
    if private:
        payload = signed_once(payload, read_extension, thread=thread, private=private)
    given = read_extension(payload)
    if not isinstance(given, Extension):
        return UpdateResult(*given)
    return await send_update(threads, thread, "extend", payload, signal="extend")
