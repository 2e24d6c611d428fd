"""A call whose effect may have happened: look it up, wait until nothing of it can arrive any more, or ask a person.

1. A request outlives the process that sent it, and an exception says nothing about the effect. So `Found` counts at
   once, and `Absent` only in a check that began when nothing could arrive any more (`ToolSpec.settles_within`).
2. That time is counted by the ledger's clock, from when this worker, or one before it, found that the attempt had
   ended. A running attempt holds the claim, and nothing is counted.
3. Until then, the attempt fails, to be made again: nothing is held, and no worker has to survive the wait. The effect
   is looked up several times meanwhile.
4. A person's answer is no exception: a call that they say did not happen runs, or is undone, after that time, too. They
   are told when it ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes, RawResult
from holdfast.config.logs import EventLogger
from holdfast.core.run.contracts.error_types import EFFECT_SETTLING
from holdfast.core.run.contracts.ledger import ClaimedEffect
from holdfast.core.run.contracts.tool_calls import InDoubt
from holdfast.core.tools.effects import Effect, SecondAttempt, second_attempt
from holdfast.core.tools.spec import ToolSpec

MOST_ATTEMPTS = 3
"""How often an idempotent tool is called, with the same key, while it raises; then a person is asked."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between two checks while a request may still arrive; as many as have passed, within these limits."""

IN_DOUBT_CHARS = 2_000
"""Characters of an exception's text that the next attempt is handed."""

_HELD: Mapping[SecondAttempt, str] = {
    "check": "the check is asked again then, and if it does not find the effect, the call runs",
    "ask": "the call runs then, and nobody looks again",
}
"""The consequence of an early answer of a person."""

EFFECT_RAISED = "EffectRaised"
"""The type of the error of an attempt at an idempotent call that raised."""

log = EventLogger(__name__)


@dataclass(frozen=True)
class LostEffect:
    """An effect that an attempt of this call may have had, as the attempt sees it that holds the claim."""

    attempt: Attempt
    entry: ClaimedEffect
    outcomes: Outcomes
    notes: AttemptNotes
    epoch: int
    """How often people have said that it did not happen."""

    @property
    def _spec(self) -> ToolSpec:
        return self.attempt.tool.spec

    @property
    def said_absent(self) -> bool:
        """Whether people have said that it did not happen, and no attempt has begun since."""
        return self.epoch > 0 and not self.entry.started_before

    async def earlier(self) -> RawResult | None:
        """Determine the outcome of an effect that an earlier attempt may have had; None if it is to run (again).

        Raises:
            ApplicationError: EFFECT_SETTLING: a request may still arrive.
            Exception: The tool's check failed; the system that it asks may be down, so Temporal tries again.
        """
        match second_attempt(self._spec.effect):
            case "run":
                return None
            case "ask" if self.said_absent:
                await self.settled()
                return None
            case "ask":
                reason = f"an earlier attempt of {self._spec.name} was interrupted, and the tool has no check"
                return await asked(
                    RawResult(status="unknown", content=reason, cause="no_response"), self.entry, self._spec
                )
            case "check":
                found = await self._checked()
                return await asked(found, self.entry, self._spec) if found and found.status == "unknown" else found

    async def settled(self) -> None:
        """Fail the attempt while a request may still arrive.

        Raises:
            ApplicationError: EFFECT_SETTLING.
        """
        _wait_for(await _left(self.entry, self._spec), self._spec)

    async def arrived(self) -> None:
        """Fail the attempt until the tool's check finds the effect, or nothing can arrive any more.

        Raises:
            ApplicationError: EFFECT_SETTLING.
            Exception: The check failed.
        """
        left = await _left(self.entry, self._spec)
        if left.seconds and self.attempt.tool.check:
            found = await self.attempt.checked()
            if found and found.status == "ok":
                return
        _wait_for(left, self._spec)

    async def ended_in_doubt(self, ended: RawResult) -> RawResult:
        """Determine the outcome of an effect whose function has ended in this attempt without reporting it.

        Raises:
            ApplicationError: EFFECT_SETTLING; or EFFECT_RAISED: the call is made again, with the same key.
        """
        name, content = self._spec.name, str(await self.outcomes.redacted(ended.content))
        unknown = ended.model_copy(update={"content": _in_doubt(name, content) if ended.doubt == "raised" else content})
        match self._spec.effect:
            case Effect.IDEMPOTENT if ended.doubt in ("raised", "returned"):
                if ended.doubt == "raised" and not self.attempt.tool.takes_key:
                    # The LLM's next call changes nothing more, either.
                    return ended.model_copy(update={"status": "failed"})
                self._try_again(content)
            case Effect.VERIFIABLE:
                running = ended.doubt == "running"
                self.notes.in_doubt = InDoubt(content=content[:IN_DOUBT_CHARS], cause=ended.cause, running=running)
                found = await self._checked()
                if found and found.status != "unknown":
                    return found.model_copy(update={"duration_ms": ended.duration_ms})
                if found and found.content != content:
                    unknown = unknown.model_copy(update={"content": f"{unknown.content}; {found.content}"})
            case _:
                pass
        return await asked(unknown, self.entry, self._spec)

    async def _checked(self) -> RawResult | None:
        """Determine the outcome by the tool's check; None if the effect did not happen and nothing else is known."""
        left = await _left(self.entry, self._spec)  # before the check, which has to begin after that time
        found, known = await self.attempt.checked(), self.notes.in_doubt
        if found and (found.status == "ok" or not self.said_absent):
            return found
        if known and known.running:  # only `Found` counts
            return RawResult(status="unknown", content=known.content, cause=known.cause)
        _wait_for(left, self._spec)
        return RawResult(status="failed", content=known.content, cause=known.cause) if known else None

    def _try_again(self, content: str) -> None:
        """Fail the attempt, unless there were enough: with the same key, the tool can be called again."""
        count = self.notes.count_raised()
        if count < MOST_ATTEMPTS:
            raise ApplicationError(
                f"{self._spec.name} raised {content[:IN_DOUBT_CHARS]}; it is called again with the same key",
                type=EFFECT_RAISED,
                next_retry_delay=timedelta(seconds=2 ** (count - 1)),
            )


@dataclass(frozen=True)
class _Left:
    """How long a request may still arrive."""

    seconds: float
    passed: float


async def _left(entry: ClaimedEffect, spec: ToolSpec) -> _Left:
    passed = await entry.settling()
    if passed is None:
        return _Left(0, 0)
    passed = max(0.0, passed)
    return _Left(max(0.0, spec.settling_seconds - passed), passed)


def _wait_for(left: _Left, spec: ToolSpec) -> None:
    if not left.seconds:
        return
    pause = min(left.seconds, max(SHORTEST_PAUSE, min(left.passed, LONGEST_PAUSE)))
    log.info("effect_settling", tool=spec.name, seconds=round(left.seconds, 1))
    raise ApplicationError(
        f"waiting until {_time(left.seconds)}, because a request of a lost attempt of {spec.name} may still arrive",
        type=EFFECT_SETTLING,
        category=ApplicationErrorCategory.BENIGN,
        next_retry_delay=timedelta(seconds=pause),
    )


async def asked(unknown: RawResult, entry: ClaimedEffect, spec: ToolSpec) -> RawResult:
    """Return how a call ends about which a person is asked; they read until when a request may still arrive."""
    left = await _left(entry, spec)
    if not left.seconds or not isinstance(unknown.content, str):
        return unknown
    until = f"a request of it may still arrive until {_time(left.seconds)}, so look again after that"
    content = f"{unknown.content.rstrip('.')}; {until}"
    if not (held := _HELD.get(second_attempt(spec.effect))):  # it runs at once: the other system knows the key
        return unknown.model_copy(update={"content": content})
    content += f". An `absent` before that is held: {held}"
    return unknown.model_copy(update={"content": content, "settles_in": left.seconds})


def _in_doubt(name: str, content: str) -> str:
    return f"{name} raised an exception, which does not say whether it took effect: {content}"


def _time(seconds: float) -> str:
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} UTC"
