"""Interventions of authenticated callers, each in the caller's name, and the HTTP status of each outcome.

Slack buttons lead here, too: `slack.py` identifies the user, and calls `Actions.decide`.
"""

from collections.abc import Mapping
from typing import Any

from holdfast.client.interventions import cancel, decided_before, intervene
from holdfast.client.lifts import lift
from holdfast.client.messages import say
from holdfast.client.reading.runs import ENDED
from holdfast.client.sending import REOPENED, SENT, UpdateResult
from holdfast.client.threads import Threads
from holdfast.core.authority.interventions import Steering
from holdfast.core.authority.statements import read_decision
from holdfast.core.run.inputs.interventions import INTERVENTIONS
from holdfast.encryption.signing_keys import check_shown
from holdfast.errors import ServerUnreachable
from holdfast.gateway.answers import Outcome
from holdfast.gateway.bodies import Body, DecisionBody, LiftBody, MessageBody, ReasonBody
from holdfast.gateway.http.problems import HTTPProblem

STATUS = {
    "accepted": 200,
    REOPENED: 200,
    "delivered": 200,
    "waiting_for_quorum": 202,
    "buffered": 202,
    "counted": 202,
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
"""The HTTP status of the outcomes of `holdfast.core.run.rules.authority`, and of the client; 409 for all others."""

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
    """Sends decisions, messages and other interventions to runs.

    Args:
        threads: The threads.
        key: The gateway's private key, which vouches for the sender; None to send everything unsigned.
    """

    def __init__(self, threads: Threads, key: str | None) -> None:
        self._threads = threads
        self._key = key

    async def intervene(
        self, name: str, thread: str, body: Body, *, by: str, signature: Mapping[str, Any] | None = None
    ) -> tuple[int, Outcome]:
        """Send the intervention with this name; return status and outcome.

        Args:
            name: Its name.
            thread: The thread id.
            body: Its fields.
            by: The caller.
            signature: The caller's own signature, with the fields to which it is bound; None for that of the gateway.

        Raises:
            HTTPProblem: It was rejected.
            HoldfastError: There is no such thread; no worker can judge a statement; or a run to retry is not blocked.
        """
        await self._check_open(thread, then="; a message continues it (POST …/messages)" if name == "refine" else "")
        statement = INTERVENTIONS[name].statement
        if statement and not issubclass(statement, Steering):
            await self._threads.runs.query(thread, "pending_approvals")  # fails if no worker can judge it
        payload = {**body.payload(), "by": by, **(signature or {})}
        return _response(await self._send(name, thread, payload, None if signature else self._key), by=by)

    async def decide(self, thread: str, body: DecisionBody, *, by: str, signature: str = "") -> tuple[int, Outcome]:
        """Decide a request; return status and outcome.

        Args:
            thread: The thread id.
            body: The decision.
            by: The caller.
            signature: The caller's own signature of the decision; empty for that of the gateway.

        Raises:
            HTTPProblem: It was rejected.
            HoldfastError: No worker can judge it, and nothing was sent.
        """
        own = {"signature": signature} if signature else {}
        decision = read_decision({**body.payload(), "by": by, **own})
        if isinstance(decision, str):
            raise HTTPProblem(422, decision, outcome="malformed")
        try:
            await self._check_open(thread)
        except HTTPProblem:
            if before := await decided_before(self._threads, thread, decision.request):
                return _response(before, by=by)
            raise
        pending = await self._threads.runs.query(thread, "pending_approvals")  # fails if no worker can judge it
        payload = decision.model_dump(mode="json", exclude_defaults=True) | {"via": f"gateway {by}"}
        # No signature for a request that is not open: the run rejects the decision with the reason.
        request = next((each for each in pending if each["request"] == decision.request), None)
        key = self._key if request and not signature else None
        if key and request:
            check_shown(request)
        return _response(await self._send("decide", thread, payload, key), by=by)

    async def say(
        self, thread: str, body: MessageBody, *, by: str, id: str = "", signature: Mapping[str, Any] | None = None
    ) -> tuple[int, Outcome]:
        """Send a message; return status and outcome.

        Args:
            thread: The thread id.
            body: The message.
            by: The caller.
            id: The caller's id for it, with which it counts once; empty for none.
            signature: The caller's own signature, with the id and the expiry that it covers; None for that of the
                gateway.

        Raises:
            HTTPProblem: It was rejected, or it is unknown whether it arrived.
            HoldfastError: There is no such thread, or it cannot be read.
        """
        try:
            result = await say(
                self._threads,
                thread,
                body.message,
                by=by,
                when_busy=body.when_busy,
                id=id,
                private=None if signature else self._key,
                signature=signature,
            )
        except ServerUnreachable:
            detail = (
                "no worker confirmed the message, and it may still arrive; check the events before you send it again"
            )
            raise HTTPProblem(503, detail) from None
        return _response(result, by=by)

    async def lift(self, thread: str, body: LiftBody, *, by: str) -> tuple[int, Outcome]:
        """Lift a constraint, and send the message that comes with it; return status and outcome of the lift.

        Raises:
            HTTPProblem: It was rejected; or the message was, after the lift.
            HoldfastError: There is no such thread, it cannot be read, or no worker can judge the lift.
        """
        found = await self._threads.reader.find(thread)
        if found is None or found.status in ENDED:
            said = body.say or None
            lifted = await lift(
                self._threads, thread, body.constraint, by=by, reason=body.reason, message=said, private=self._key
            )
            return _response(lifted, by=by)
        answer = await self.intervene("lift", thread, LiftBody(constraint=body.constraint, reason=body.reason), by=by)
        if body.say:
            await self.say(thread, MessageBody(message=body.say), by=by)
        return answer

    async def cancel(self, thread: str, body: ReasonBody, *, by: str) -> tuple[int, Outcome]:
        """Ask a run to stop; Temporal's history records `by` with the reason.

        Raises:
            HoldfastError: It is closed, or there is no such thread.
        """
        await self._check_open(thread)
        reason = f"{by}: {body.reason}" if body.reason else by
        _, outcome = _response(await cancel(self._threads, thread, reason=reason), by=by)
        return 202, outcome

    async def _send(self, name: str, thread: str, payload: dict[str, Any], key: str | None) -> UpdateResult:
        """Send an intervention: signed if there is a key; unsigned if the policy neither lists nor requires one."""
        signed = await intervene(self._threads, thread, name, payload, private=key)
        if key is None or signed.outcome != "bad_signature":
            return signed
        unsigned = await intervene(self._threads, thread, name, payload)
        return signed if unsigned.outcome == "unsigned" else unsigned

    async def _check_open(self, thread: str, *, then: str = "") -> None:
        description = await self._threads.reader.find(thread)
        if description is None or description.status in ENDED:
            raise HTTPProblem(409, f"the run of thread {thread!r} is over{then}", outcome="too_late")


def _response(result: UpdateResult, *, by: str) -> tuple[int, Outcome]:
    status = STATUS.get(result.outcome, 409)
    if status >= 400:
        detail = f"{result.outcome}: {result.explanation or 'not done'}. {ADVICE.get(result.outcome, '')}"
        raise HTTPProblem(status, detail.strip(), outcome=result.outcome)
    return status, Outcome(outcome=result.outcome, explanation=result.explanation, by=by)
