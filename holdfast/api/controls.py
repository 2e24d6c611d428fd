"""How people control a run: decide its requests, pause, resume and wake it, extend its budget, cancel it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.api.dialogue import Dialogue
from holdfast.api.request_views import PendingRequest
from holdfast.client import interventions, messages
from holdfast.client.sending import UpdateResult
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.budget.budget import Amounts
from holdfast.core.llm.blocks import Content
from holdfast.encryption.signing_keys import check_shown
from holdfast.errors import Refused, SettingsError


class Controls(Dialogue):
    """A thread whose run can be controlled. `holdfast.api.thread` has the whole of it."""

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
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Decide a request.

        Args:
            request: One of `pending`, which binds the decision to what it shows; or its id.
            decision: `approve`, `deny` or `respond`; for a call whose outcome is unknown `happened`, `absent`, `undo`
                or `abandon`.
            by: Who decides; None for the client's `by`.
            reason: Why; the agent reads it.
            digest: The digest of what the person has seen; None for that of the `PendingRequest`.
            arguments: With `approve`: run with these in place of the LLM's.
            result: With `respond` and `happened`: what the agent is to read.
            remember: With `approve`: allow the same call from now on, in this thread.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, `waiting_for_quorum`, `judged_anew`, or `sent` where no worker has answered: Temporal keeps the
            decision for the next one.

        Raises:
            NotAccepted: It does not count; `outcome` says why.
            Refused: What is to be signed is not what its digest stands for, or no digest says what it is.
            SettingsError: Nothing says who decides, or the key cannot be read.
        """
        shown = request if isinstance(request, PendingRequest) else None
        given = {
            "decision": decision,
            "request": shown.request if shown else request,
            "by": self._person(by),
            "reason": reason or None,
            "digest": digest or (shown.digest if shown else None),
            "arguments": arguments,
            "result": result,
            "remember": remember or None,
        }
        payload = {name: value for name, value in given.items() if value is not None}
        if self._private(key):
            if "digest" not in payload:
                raise Refused("a signed decision is bound to what was seen: pass one of `pending`, or its digest")
            if shown:
                check_shown(shown.model_dump(mode="json"))
        return await self._intervene("decide", payload, what=f"request {given['request']}", key=key)

    async def extend(
        self, more: Amounts, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Extend the budget of an open run; one that the end of its budget has blocked continues.

        Args:
            more: What is added to the limits: `Amounts(usd="1")`. Seconds count from now on.
            by: Who extends it; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps it for the next one.

        Raises:
            NotAccepted: The budget is as before; `outcome` is `not_entitled`, `unsigned` or `bad_signature` for a
                person who may not extend it, `too_much`, `no_budget` where the run has no such limit, or `too_late`
                for a closed run.
            SettingsError: Nothing says who extends it, or the key cannot be read.
        """
        given = {**more.model_dump(mode="json", exclude_none=True), "by": self._person(by), "reason": reason}
        return await self._intervene("extend", given, what="extension", key=key)

    async def retry(self, *, by: str | None = None, reason: str = "", key: Path | str | None = None) -> UpdateResult:
        """Resume a blocked run, once its cause is fixed.

        Args:
            by: Who says that it is; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Raises:
            NotAccepted: It stays blocked; `outcome` is `budget_spent`, or `unsigned`, `bad_signature` or `not_entitled`
                where the policy requires signatures.
            Refused: The run is not blocked.
            SettingsError: Nothing says who retries it, or the key cannot be read.
        """
        return await self._intervene("retry", {"by": self._person(by), "reason": reason}, what="retry", key=key)

    async def compact(self, *, by: str | None = None, reason: str = "") -> UpdateResult:
        """Compact the agent's context: at once while it waits for a message, else at the end of the step.

        A summary takes the messages' place; the log keeps them. The task, what people said, and calls that were denied
        or whose outcome is unknown stay word for word.

        Args:
            by: Who asks for it; None for the client's `by`.
            reason: Why; it is in the log.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing is compacted; `outcome` is `nothing_to_compact`, `duplicate`, `too_late` for a closed
                run, or `unknown_update` for a run that a worker before 0.2.0 began.
            SettingsError: Nothing says who asks for it.
        """
        return await self._intervene("compact", {"by": self._person(by), "reason": reason}, what="compaction")

    async def lift(
        self, constraint: int, *, by: str | None = None, reason: str = "", key: Path | str | None = None
    ) -> UpdateResult:
        """Lift a constraint: calls that a tool said it cannot make are judged again like any others.

        The LLM does not read about it: send it a message with `say` if it should try again.

        Args:
            constraint: Its number, as `state` lists it in `constraints`; 0 to let the effects of a fork run as the
                policy says.
            by: Who lifts it; None for the client's `by`.
            reason: Why; it is in the log.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps it for the next one.

        Raises:
            NotAccepted: It still stands; `outcome` is `unknown_request` where there is no such constraint, or
                `not_entitled`, `unsigned` or `bad_signature` for a person who may not lift it.
            SettingsError: Nothing says who lifts it.
        """
        given: dict[str, Any] = {"constraint": constraint, "by": self._person(by), "reason": reason}
        return await self._intervene("lift", given, what=f"constraint {constraint}", key=key)

    async def pause(
        self,
        *,
        by: str | None = None,
        reason: str = "",
        until: datetime | timedelta | None = None,
        key: Path | str | None = None,
    ) -> UpdateResult:
        """Pause the run: what is under way ends, and nothing else starts before it resumes.

        Decisions and messages are recorded meanwhile, and count when it resumes; requests are reminded of and expire;
        `cancel` ends it at once. Of a paused run, this changes the reason and the end.

        Args:
            by: Who pauses it; None for the client's `by`.
            reason: Why; it is in the log.
            until: When it resumes by itself: a time with a time zone, or how long from now. None for never.
            key: The file of the private key to sign with; None for the client's `key`. Only a signed statement ends a
                signed pause.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `duplicate`, `too_late` where the run or `until` is over,
                `too_many`, `malformed`, `unsigned`, `bad_signature`, or `unknown_update` for a run that a worker before
                0.2.0 began.
            SettingsError: Nothing says who pauses it, `until` has no time zone, or the key cannot be read.
        """
        end = datetime.now(UTC) + until if isinstance(until, timedelta) else until
        if end and end.tzinfo is None:
            raise SettingsError("give `until` a time zone: datetime(…, tzinfo=UTC)")
        given = {"by": self._person(by), "reason": reason} | ({"until": end.isoformat()} if end else {})
        return await self._intervene("pause", given, what="pause", key=key)

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
            by: Who resumes it; None for the client's `by`.
            reason: Why; it is in the log.
            say: A message for the agent, which it reads before anything else; None for none.
            key: The file of the private key to sign with; None for the client's `key`.

        Returns:
            `accepted`, or `sent` where no worker has answered: Temporal keeps the request for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `not_paused`, `too_late` for a closed run, `unsigned`,
                `bad_signature` or `not_entitled` where somebody has paused it who may do more, `unknown_update`, or
                that of the message.
            SettingsError: Nothing says who resumes it, or the key cannot be read.
        """
        answer = await messages.resume(
            self._threads, self.id, by=self._person(by), reason=reason, message=say, private=self._private(key)
        )
        return self._counted(answer, f"resumption of thread {self.id!r}")

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
        """Send the run an event, for an agent that waits for it; without one, wake the agent now.

        Anybody who reaches Temporal can do this: an event is a claim, which lets nothing run.

        Args:
            event: The event's name; empty to end all waits early.
            data: The event's data: JSON, of at most 16 KB.
            id: Your id of the event: another one of the same id is refused. Empty for a new one.
            call: The number of the one call that it is for; None for all that wait.
            by: Who sends it; None for the client's `by`.
            reason: Why; the LLM reads it.

        Returns:
            `delivered` to a call; `buffered` until a call waits for it; or `sent` where no worker has answered:
            Temporal keeps it for the next one.

        Raises:
            NotAccepted: Nothing has changed; `outcome` is `duplicate`, `not_waiting`, `wrong_event`, `too_many`,
                `too_late` for a closed run, `malformed`, or `unknown_update` for a run that a worker before 0.2.0
                began.
            SettingsError: Nothing says who sends it.
        """
        given: dict[str, Any] = {"event": event, "id": id, "data": data, "call": call, "by": self._person(by)}
        what = f"event {event}" if event else "wake"
        return await self._intervene("wake", {**given, "reason": reason}, what=what)

    async def cancel(self, reason: str = "") -> UpdateResult:
        """Ask the run to stop. It stops its running tools, waits for them, and ends as `cancelled`.

        Args:
            reason: Why; it is in Temporal's history.

        Raises:
            Refused: The run is closed.
        """
        return await interventions.cancel(self._threads, self.id, reason=reason)
