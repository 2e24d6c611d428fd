"""Control of a run: decide its requests, pause, resume, wake or cancel it, and extend its budget."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.api.dialogue import Dialogue
from holdfast.api.request_views import PendingRequest
from holdfast.client import interventions, lifts, messages
from holdfast.client.sending import UpdateResult
from holdfast.core.authority.policy import Policy
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import Content
from holdfast.core.trust import Trust
from holdfast.encryption.signing_keys import check_shown
from holdfast.errors import Refused, SettingsError


class Controls(Dialogue):
    """The controls of a thread's run, a base class of `holdfast.api.thread.Thread`."""

    async def decide(
        self,
        request: PendingRequest | str,
        decision: DecisionKind,
        *,
        by: str | None = None,
        reason: str = "",
        digest: str | None = None,
        arguments: dict[str, Any] | None = None,
        result: str | None = None,
        remember: bool = False,
        say: str = "",
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Decide a request.

        Args:
            request: One of `pending`, which binds the decision to the displayed content; or its id. A request of a
                sub-agent is decided in the sub-agent's thread.
            decision: `approve`, `deny` or `respond`; for a call whose outcome is unknown `happened`, `absent`, `undo`
                or `abandon`.
            by: The person who decides; None for the client's `by`.
            reason: The reason, which is logged; the agent reads it, except that of an approval.
            digest: The digest of the request that the person saw; None for that of the `PendingRequest`.
            arguments: With `approve`: arguments that replace the LLM's.
            result: With `respond` and `happened`: the result that the agent reads.
            remember: With `approve`: allow the same call from now on in this thread.
            say: With `approve`: feedback, at most 2,000 characters, that the agent reads with the call's result.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `waiting_for_quorum`, `judged_anew`, or `sent` if no worker responded: Temporal keeps the
            decision for the next worker.

        Raises:
            NotAccepted: The decision was rejected; `outcome` gives the reason.
            Refused: The content to sign does not match its digest, or there is no digest; or the run cannot take `say`.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        shown = request if isinstance(request, PendingRequest) else None
        fields = {
            "decision": decision,
            "request": shown.request if shown else request,
            "by": self._person(by),
            "reason": reason or None,
            "digest": digest or (shown.digest if shown else None),
            "arguments": arguments,
            "result": result,
            "remember": remember or None,
            "say": say or None,
        }
        payload = {name: value for name, value in fields.items() if value is not None}
        if self._private(key):
            if "digest" not in payload:
                raise Refused("a signed decision is bound to what was seen: pass one of `pending`, or its digest")
            if shown:
                check_shown(shown.model_dump(mode="json"))
        thread = shown.path[-1] if shown and shown.path else ""
        return await self._intervene("decide", payload, what=f"request {fields['request']}", key=key, thread=thread)

    async def extend(
        self, more: Amounts, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Extend the budget of an open run. A run that is blocked because its budget is used up continues.

        Args:
            more: The amounts to add to the limits: `Amounts(usd="1")`. Seconds count from now on.
            by: The person who extends it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` if no worker responded: Temporal keeps the extension for the next worker.

        Raises:
            NotAccepted: The budget is unchanged; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a
                person who may not extend it, `too_much`, `no_budget` if the run has no such limit, or `too_late` for a
                closed run.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        payload = {**more.model_dump(mode="json", exclude_none=True), "by": self._person(by), "reason": reason}
        return await self._intervene("extend", payload, what="extension", key=key)

    async def reclassify(
        self,
        *,
        agent: str = "",
        trust: Trust | None = None,
        budget: Amounts | None = None,
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Change the agent of an open run, or lower its trust level or its budget, from the end of the step on.

        Args:
            agent: The agent of the catalog that continues the run. The policy of the agent before it still judges its
                calls, too.
            trust: The lower trust level of what the LLM has read.
            budget: The lower limits: `Amounts(usd="1")`.
            by: The person who reclassifies it; None for the client's `by`.
            reason: The reason, which is logged, and which the LLM reads.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `queued`, or `sent` if no worker responded: Temporal keeps it for the next worker.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a person
                who may not change this, `too_much` for a higher trust level or limit, `no_budget` if the run has no
                such limit, or `too_late` for a closed run.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        changes: dict[str, Any] = {"agent": agent, "trust": trust}
        changes["budget"] = budget.model_dump(mode="json", exclude_none=True) if budget else None
        payload = {name: value for name, value in changes.items() if value}
        payload |= {"by": self._person(by), "reason": reason}
        return await self._intervene("reclassify", payload, what="reclassification", key=key)

    async def adopt_policy(
        self, policy: Policy | str, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Have an open run adopt another policy, which the workers have for its agent, and judge its calls again.

        Args:
            policy: The policy, or its digest (`Policy.hash`).
            by: The person who asks for it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` if no worker responded: Temporal keeps it for the next worker. The log says whether a
            worker had the policy: `policy_changed` or `policy_change_failed`.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `duplicate` if the run has the policy, `not_entitled`,
                `unsigned` or `bad_signature` for a person who may not change it, `busy` while another one is adopted,
                or `too_late` for a closed run.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        digest = policy if isinstance(policy, str) else policy.hash
        payload = {"policy": digest, "by": self._person(by), "reason": reason}
        return await self._intervene("adopt_policy", payload, what="adoption of a policy", key=key)

    async def retry(self, *, by: str | None = None, reason: str = "", key: Path | str | None = None) -> UpdateResult:
        """Resume a blocked run after its cause is fixed.

        Args:
            by: The person who resumes it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign with; None for the client's `key`.

        Raises:
            NotAccepted: The run stays blocked; `outcome` is `budget_spent`, or `unsigned`, `bad_signature` or
                `not_entitled` if the policy requires signatures.
            Refused: The run is not blocked.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        return await self._intervene("retry", {"by": self._person(by), "reason": reason}, what="retry", key=key)

    async def compact(
        self,
        *,
        summary: str | None = None,
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Compact the agent's context: at once while it waits for a message, otherwise at the end of the step.

        A summary replaces the messages; the log keeps them. The task, people's messages, and calls that were denied or
        whose outcome is unknown stay verbatim.

        Args:
            summary: The person's own summary, in place of the LLM's; at most 16,000 bytes of JSON. The agent reads who
                wrote it.
            by: The person who requests it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign a summary with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` if no worker responded: Temporal keeps the request for the next worker.

        Raises:
            NotAccepted: Nothing was compacted; `outcome` is `nothing_to_compact`, `duplicate`, `too_late` for a closed
                run, or `unknown_update` for a run that a worker before 0.2.0 began. For a summary also `too_long`, and
                `not_entitled`, `unsigned` or `bad_signature` for a person who may not refine the task either.
            Refused: The run began in an earlier release, which reads no summary.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        payload = {"by": self._person(by), "reason": reason, **({} if summary is None else {"summary": summary})}
        return await self._intervene("compact", payload, what="compaction", key=key)

    async def lift(
        self,
        constraint: int,
        *,
        say: Content | None = None,
        by: str | None = None,
        reason: str = "",
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Remove a constraint. The policy then judges the calls that it rejected like any other call.

        The LLM is not notified: give it a message with `say` if it should try again. The message continues a closed
        thread, in a run that records the lift before its agent reads the message.

        Args:
            constraint: Its number, as `state` lists it in `constraints`; 0 to let the policy alone decide about the
                effects of a fork.
            say: A message for the agent, which a closed thread needs; None for none.
            by: The person who removes it; None for the client's `by`.
            reason: The reason, which is logged.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `sent` if no worker responded: Temporal keeps the request for the next worker; or `reopened` for
            a closed thread, whose policy judges the lift when the agent is loaded.

        Raises:
            NotAccepted: The constraint still holds; `outcome` is `unknown_request` if there is no such constraint,
                `too_late` for a closed thread without a message, or `not_entitled`, `unsigned` or `bad_signature` for a
                person who may not remove it.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        lifted = await lifts.lift(
            self._threads,
            self.id,
            constraint,
            by=self._person(by),
            reason=reason,
            message=say,
            private=self._private(key),
        )
        return self._accepted(lifted, f"constraint {constraint} of thread {self.id!r}")

    async def pause(
        self,
        *,
        by: str | None = None,
        reason: str = "",
        until: datetime | timedelta | None = None,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Pause the run: running calls finish, and nothing else starts until it resumes.

        Decisions and messages that arrive meanwhile are recorded, and take effect when it resumes. Reminders and
        expiry of requests continue, and `cancel` ends the run at once. If the run is paused already, this changes the
        reason and the end of the pause.

        Args:
            by: The person who pauses it; None for the client's `by`.
            reason: The reason, which is logged.
            until: The end of the pause: a time with a time zone, or the time from now. None for no end.
            key: The file of the private key to sign with; None for the client's `key`. Only a signed statement ends a
                signed pause.

        Returns:
            `accepted`, or `sent` if no worker responded: Temporal keeps the request for the next worker.

        Raises:
            NotAccepted: Nothing changed; `outcome` is `duplicate`, `too_late` if the run has closed or `until` is in
                the past, `too_many`, `malformed`, `unsigned`, `bad_signature`, or `unknown_update` for a run that a
                worker before 0.2.0 began.
            SettingsError: `by` is not set, `until` has no time zone, or the key cannot be read.
        """
        end = datetime.now(UTC) + until if isinstance(until, timedelta) else until
        if end and end.tzinfo is None:
            raise SettingsError("give `until` a time zone: datetime(…, tzinfo=UTC)")
        payload = {"by": self._person(by), "reason": reason} | ({"until": end.isoformat()} if end else {})
        return await self._intervene("pause", payload, what="pause", key=key)

    async def resume(
        self,
        *,
        by: str | None = None,
        reason: str = "",
        say: Content | None = None,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Resume the run after a pause.

        Args:
            by: The person who resumes it; None for the client's `by`.
            reason: The reason, which is logged.
            say: A message that the agent reads before anything else; None for none.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` if no worker responded: Temporal keeps the request for the next worker.

        Raises:
            NotAccepted: Nothing changed; `outcome` is `not_paused`, `too_late` for a closed run, `unsigned`,
                `bad_signature` or `not_entitled` if a person with more authority paused it, `unknown_update`, or the
                outcome of the message.
            SettingsError: `by` is not set, or the key cannot be read.
        """
        answer = await messages.resume(
            self._threads, self.id, by=self._person(by), reason=reason, message=say, private=self._private(key)
        )
        return self._accepted(answer, f"resumption of thread {self.id!r}")

    async def wake(
        self,
        event: str = "",
        *,
        data: dict[str, Any] | None = None,
        id: str = "",
        call: int | None = None,
        by: str | None = None,
        reason: str = "",
    ) -> UpdateResult:
        """Send the run an event that its agent waits for; without an event, wake the agent now.

        Anybody with access to Temporal can do this: an event is unauthenticated, and authorizes no call.

        Args:
            event: The event's name; empty to end all waits early.
            data: The event's data: JSON, at most 16 KB.
            id: Your id of the event: a second event with the same id is rejected. Empty for a new id.
            call: The number of the call that the event is for; None for all waiting calls.
            by: The person who sends it; None for the client's `by`.
            reason: The reason, which the LLM reads.

        Returns:
            `delivered` to a call; `buffered` until a call waits for it; or `sent` if no worker responded: Temporal
            keeps the event for the next worker.

        Raises:
            NotAccepted: Nothing changed; `outcome` is `duplicate`, `not_waiting`, `wrong_event`, `too_many`, `too_late`
                for a closed run, `malformed`, or `unknown_update` for a run that a worker before 0.2.0 began.
            SettingsError: `by` is not set.
        """
        payload: dict[str, Any] = {"event": event, "id": id, "data": data, "call": call, "by": self._person(by)}
        what = f"event {event}" if event else "wake"
        return await self._intervene("wake", {**payload, "reason": reason}, what=what)

    async def cancel(self, reason: str = "") -> UpdateResult:
        """Ask the run to stop. It stops its running tools, waits for them, and ends as `cancelled`.

        Args:
            reason: The reason, which is recorded in Temporal's history.

        Raises:
            Refused: The run is closed.
        """
        return await interventions.cancel(self._threads, self.id, reason=reason)
