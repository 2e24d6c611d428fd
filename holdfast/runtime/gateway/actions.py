"""What an authenticated caller does to a run, in the caller's name, and the HTTP status of each outcome.

A Slack button arrives here, too: `slack.py` reads who pressed it, and calls `Actions.decide`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.authority.statements import AuthorityDelegation, Decision, Lift, Revocation, Signed, read_decision
from holdfast.errors import ServerUnreachable
from holdfast.runtime.client.decisions import (
    SENT,
    UpdateResult,
    cancel,
    decide,
    delegate_authority,
    lift,
    revoke,
)
from holdfast.runtime.client.extending import extend
from holdfast.runtime.client.messages import REOPENED, say
from holdfast.runtime.client.pausing import pause, resume
from holdfast.runtime.client.refining import refine
from holdfast.runtime.client.steering import retry
from holdfast.runtime.client.threads import Threads
from holdfast.runtime.client.waking import wake
from holdfast.runtime.encryption.signing_keys import check_shown, signed
from holdfast.runtime.gateway.answers import Outcome
from holdfast.runtime.gateway.bodies import (
    DecisionBody,
    DelegationBody,
    ExtensionBody,
    LiftBody,
    MessageBody,
    PauseBody,
    ReasonBody,
    RefinementBody,
    RevocationBody,
    WakeBody,
)
from holdfast.runtime.gateway.problems import HTTPProblem
from holdfast.runtime.reading.runs import ENDED

_Send = Callable[[Threads, str, dict[str, Any]], Awaitable[UpdateResult]]

STATUS = {
    "accepted": 200,
    REOPENED: 200,
    "delivered": 200,
    "waiting_for_quorum": 202,
    "buffered": 202,
    "queued": 202,
    "interrupting": 202,
    SENT: 202,
    "judged_anew": 202,
    "duplicate": 409,
    "too_late": 409,
    "digest_mismatch": 409,
    "wrong_kind": 409,
    "not_paused": 409,
    "outdated": 409,
    "not_waiting": 409,
    "wrong_event": 409,
    "busy": 409,
    "not_entitled": 403,
    "too_many": 429,
    "unsigned": 403,
    "bad_signature": 403,
    "against_policy": 403,
    "unknown_request": 404,
    "malformed": 422,
    "too_long": 413,
}
"""The status of every outcome of `holdfast.authority.approvals` and `holdfast.authority.follow_ups`, and of the
client's own."""

ADVICE = {
    "duplicate": "There is nothing left to do.",
    "digest_mismatch": "Look at the request again, and decide on what it says now.",
    "unsigned": "Have this gateway sign: HOLDFAST_GATEWAY_KEY, with its public key in the policy's `gateways`.",
    "bad_signature": "The policy does not list this gateway's key: add its public key to `gateways`.",
    "unknown_request": "GET the thread's /pending for those that are open.",
    "outdated": "Send it again.",
    "busy": "Send it later, or with when_busy queue or interrupt.",
}


class Actions:
    """Sends decisions, messages and other changes to runs.

    Args:
        threads: The threads.
        key: The gateway's private key, with which it vouches for the approver; None to send decisions unsigned.
    """

    def __init__(self, threads: Threads, key: str | None) -> None:
        self._threads = threads
        self._key = key

    async def decide(self, thread: str, body: DecisionBody, *, by: str) -> tuple[int, Outcome]:
        """Decide a request in the name of `by`; returns status and outcome.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        decision = read_decision({**body.model_dump(exclude_unset=True), "by": by})
        if isinstance(decision, str):
            raise HTTPProblem(422, decision, outcome="malformed")
        await self._check_open(thread)
        pending = await self._threads.runs.query(thread, "pending_approvals")  # fails where no worker can judge it
        payload = decision.model_dump(mode="json", exclude_defaults=True) | {"via": f"gateway {by}"}
        # A request that is not open is not signed: the run says what is wrong.
        if self._key and (request := next((each for each in pending if each["request"] == decision.request), None)):
            check_shown(request)
            return _response(await self._send(thread, payload, Decision, decide), by=by)
        return _response(await decide(self._threads, thread, payload), by=by)

    async def say(self, thread: str, body: MessageBody, *, by: str) -> tuple[int, Outcome]:
        """Send a message in the name of `by`; returns status and outcome.

        Raises:
            HTTPProblem: It was refused, or it is unknown whether it arrived.
            HoldfastError: There is no such thread, or it cannot be read.
        """
        try:
            said = await say(self._threads, thread, body.message, by=by, when_busy=body.when_busy, private=self._key)
        except ServerUnreachable:
            words = (
                "no worker confirmed the message, and it may still arrive; check the events before you send it again"
            )
            raise HTTPProblem(503, words) from None
        return _response(UpdateResult(said.outcome, said.explanation), by=by)

    async def refine(self, thread: str, body: RefinementBody, *, by: str) -> tuple[int, Outcome]:
        """Refine the task in the name of `by`; returns status and outcome.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        await self._check_open(thread, then="; a message continues it (POST …/messages)")
        await self._threads.runs.query(thread, "pending_approvals")  # fails where no worker can judge it
        payload = {**body.model_dump(exclude_unset=True), "by": by}
        sent = await refine(self._threads, thread, payload, private=self._key)
        return _response(UpdateResult(sent.outcome, sent.explanation), by=by)

    async def extend(self, thread: str, body: ExtensionBody, *, by: str) -> tuple[int, Outcome]:
        """Extend the budget in the name of `by`; returns status and outcome.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        await self._check_open(thread)
        await self._threads.runs.query(thread, "pending_approvals")  # fails where no worker can judge it
        payload = {**body.model_dump(exclude_unset=True, exclude_none=True), "by": by}
        return _response(await extend(self._threads, thread, payload, private=self._key), by=by)

    async def delegate(self, thread: str, body: DelegationBody, *, by: str) -> tuple[int, Outcome]:
        """Delegate the approval authority of `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        until = (datetime.now(UTC) + timedelta(seconds=body.seconds)).isoformat()
        payload = {"by": by, "to": body.to, "until": until, "reason": body.reason}
        return await self._send_statement(thread, payload, AuthorityDelegation, delegate_authority, by=by)

    async def revoke(self, thread: str, body: RevocationBody, *, by: str) -> tuple[int, Outcome]:
        """Revoke a remembered rule, or a delegation by `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        payload = {**body.model_dump(exclude_unset=True), "by": by}
        return await self._send_statement(thread, payload, Revocation, revoke, by=by)

    async def lift(self, thread: str, body: LiftBody, *, by: str) -> tuple[int, Outcome]:
        """Lift a constraint, in the name of `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: No worker can judge it; then nothing was done.
        """
        payload = {**body.model_dump(exclude_unset=True), "by": by}
        return await self._send_statement(thread, payload, Lift, lift, by=by)

    async def retry(self, thread: str, body: ReasonBody, *, by: str) -> tuple[int, Outcome]:
        """Resume a blocked run, in the name of `by`.

        Raises:
            HoldfastError: It is not blocked, or there is no such thread.
        """
        await self._check_open(thread)
        return _response(await retry(self._threads, thread, by=by, reason=body.reason, private=self._key), by=by)

    async def pause(self, thread: str, body: PauseBody, *, by: str) -> tuple[int, Outcome]:
        """Pause a run, in the name of `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: There is no such thread.
        """
        await self._check_open(thread)
        until = datetime.now(UTC) + timedelta(seconds=body.seconds) if body.seconds else None
        sent = await pause(self._threads, thread, by=by, reason=body.reason, until=until, private=self._key)
        return _response(sent, by=by)

    async def resume(self, thread: str, body: ReasonBody, *, by: str) -> tuple[int, Outcome]:
        """Resume a paused run, in the name of `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: There is no such thread.
        """
        await self._check_open(thread)
        sent = await resume(self._threads, thread, by=by, reason=body.reason, private=self._key)
        return _response(sent, by=by)

    async def wake(self, thread: str, body: WakeBody, *, by: str) -> tuple[int, Outcome]:
        """Send an event to a run, or wake it, in the name of `by`.

        Raises:
            HTTPProblem: It was refused.
            HoldfastError: There is no such thread.
        """
        await self._check_open(thread)
        return _response(await wake(self._threads, thread, by=by, **body.model_dump()), by=by)

    async def cancel(self, thread: str, body: ReasonBody, *, by: str) -> tuple[int, Outcome]:
        """Ask a run to stop; Temporal's history says that `by` has asked.

        Raises:
            HoldfastError: It is closed, or there is no such thread.
        """
        await self._check_open(thread)
        reason = f"{by}: {body.reason}" if body.reason else by
        _, outcome = _response(await cancel(self._threads, thread, reason=reason), by=by)
        return 202, outcome

    async def _send_statement(
        self,
        thread: str,
        payload: dict[str, Any],
        kind: type[Signed],
        send: _Send,
        *,
        by: str,
    ) -> tuple[int, Outcome]:
        """Send a statement to an open run, signed where the gateway has a key."""
        await self._check_open(thread)
        await self._threads.runs.query(thread, "pending_approvals")  # fails where no worker can judge it
        return _response(await self._send(thread, payload, kind, send), by=by)

    async def _send(self, thread: str, payload: dict[str, Any], kind: type[Signed], send: _Send) -> UpdateResult:
        """Send a statement: signed if the gateway has a key, and bare if no policy lists that key or asks for one."""
        if not self._key:
            return await send(self._threads, thread, payload)
        sent = await send(self._threads, thread, signed(payload, kind, thread=thread, private=self._key))
        if sent.outcome != "bad_signature":
            return sent
        bare = await send(self._threads, thread, payload)
        return sent if bare.outcome == "unsigned" else bare

    async def _check_open(self, thread: str, *, then: str = "") -> None:
        found = await self._threads.reader.find(thread)
        if found is None or found.status in ENDED:
            raise HTTPProblem(409, f"the run of thread {thread!r} is over{then}", outcome="too_late")


def _response(decided: UpdateResult, *, by: str) -> tuple[int, Outcome]:
    status = STATUS.get(decided.outcome, 409)
    if status >= 400:
        words = f"{decided.outcome}: {decided.explanation or 'not done'}. {ADVICE.get(decided.outcome, '')}"
        raise HTTPProblem(status, words.strip(), outcome=decided.outcome)
    return status, Outcome(outcome=decided.outcome, explanation=decided.explanation, by=by)
