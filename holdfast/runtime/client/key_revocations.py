"""Revoke a key in the runs that are open."""

from typing import Any

from holdfast.authority.key_revocations import KeyRevocation
from holdfast.run.contracts import WORKFLOW
from holdfast.runtime.client.decisions import UpdateResult, send_update
from holdfast.runtime.client.searching import search
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.encryption.signing_keys import signed


async def open_threads(threads: Threads) -> list[str]:
    """Return the ids of the threads whose runs are open, as Temporal's index has them.

    Raises:
        ServerUnreachable: The server does not answer.
    """
    # Not by ExecutionStatus: paused runs have one of their own, which older servers reject in a query.
    found = await search(threads, f"WorkflowType = '{WORKFLOW}' AND CloseTime IS NULL")
    return list(dict.fromkeys(run.id for run in found))


async def revoke_key(threads: Threads, thread: str, payload: dict[str, Any], *, private: str) -> UpdateResult:
    """Revoke a key in a run, and return the outcome.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        payload: The fields of `holdfast.authority.key_revocations.KeyRevocation`: `{"revoked", "by", "reason"}`.
        private: The private key to sign it with.

    Returns:
        `accepted`, or `sent`. Refused: `duplicate` for a key that was revoked before, `unknown_request` for one that no
        policy of the run lists, `bad_signature`, `not_entitled`, `malformed`, `too_late`, or `unknown_update` where the
        run has a feature level without revocations.

    Raises:
        ThreadNotFound: There is no such thread.
        ServerUnreachable: The server does not answer.
    """
    payload = signed(payload, KeyRevocation, thread=thread, private=private)
    return await send_update(threads, thread, "revoke_key", payload, signal="revoke_key")
