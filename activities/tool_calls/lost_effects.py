"""Resolves a call whose effect may have happened: looks it up, waits until it can no longer arrive, or asks a person.

1. A request may outlive the process that sent it, and an exception does not show whether the effect happened. So
   `Found` is accepted at once, but `Absent` only from a check that began after the last moment at which the request
   could arrive (`ToolSpec.settles_within`).
2. That time is measured by the ledger's clock, from the moment at which this worker, or an earlier one, detected that
   the attempt had ended. While an attempt runs, it holds the claim, and the time does not begin.
3. Until then the attempt fails, to be retried: nothing is held, and no worker has to survive the wait. The effect is
   looked up several times meanwhile.
4. A person's answer does not shorten the wait: a call that they declare absent is run or undone after that time, too.
   The approval request shows when it ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.exceptions import ApplicationError

from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes, RawResult
from holdfast.config.logs import EventLogger
from holdfast.core.run.contracts.error_types import EFFECT_SETTLING, Waits
from holdfast.core.run.contracts.ledger import ClaimedEffect
from holdfast.core.run.contracts.tool_calls import InDoubt
from holdfast.core.tools.effects import Effect, SecondAttempt, second_attempt
from holdfast.core.tools.spec import ToolSpec

MAX_ATTEMPTS = 3
"""How often an idempotent tool is called, with the same key, while it raises; then a person is asked."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Limits of the pause between two checks while a request may still arrive, in seconds; otherwise it is as long as the
time that has passed."""

IN_DOUBT_CHARS = 2_000
"""The most characters of an exception's text that are left for the next attempt."""

_EARLY_ANSWER: Mapping[SecondAttempt, str] = {
    "check": "the check is asked again then, and if it does not find the effect, the call runs",
    "ask": "the call runs then, and nobody looks again",
}
"""The consequence of a person's early answer."""

EFFECT_RAISED = "EffectRaised"
"""The error type of an attempt in which an idempotent tool raised."""

log = EventLogger(__name__)


@dataclass(frozen=True)
class LostEffect:
    """An effect that an attempt at this call may have had; for the attempt that holds the claim."""

    attempt: Attempt
    entry: ClaimedEffect
    outcomes: Outcomes
    notes: AttemptNotes
    epoch: int
    """How often people have declared that it did not happen."""

    @property
    def _spec(self) -> ToolSpec:
        return self.attempt.tool.spec

    @property
    def declared_absent(self) -> bool:
        """Whether people have declared that it did not happen, and no attempt has begun since."""
        return self.epoch > 0 and not self.entry.started_before

    async def earlier_outcome(self) -> RawResult | None:
        """Determine the outcome of an effect that an earlier attempt may have had; None if it is to run (again).

        Raises:
            ApplicationError: EFFECT_SETTLING: a request may still arrive.
            Exception: The tool's check failed; the system that it asks may be down, so Temporal retries.
        """
        match second_attempt(self._spec.effect):
            case "run":
                return None
            case "ask" if self.declared_absent:
                await self.require_settled()
                return None
            case "ask":
                reason = f"an earlier attempt of {self._spec.name} was interrupted, and the tool has no check"
                return await with_settling_notice(
                    RawResult(status="unknown", content=reason, cause="no_response"), self.entry, self._spec
                )
            case "check":
                finding = await self._check()
                if finding and finding.status == "unknown":
                    return await with_settling_notice(finding, self.entry, self._spec)
                return finding

    async def require_settled(self) -> None:
        """Fail the attempt while a request may still arrive.

        Raises:
            ApplicationError: EFFECT_SETTLING.
        """
        _fail_while_settling(await _settling_time(self.entry, self._spec), self._spec)

    async def require_arrived(self) -> None:
        """Fail the attempt until the tool's check finds the effect, or the request can no longer arrive.

        Raises:
            ApplicationError: EFFECT_SETTLING.
            Exception: The check failed.
        """
        settling = await _settling_time(self.entry, self._spec)
        if settling.seconds and self.attempt.tool.check:
            finding = await self.attempt.check()
            if finding and finding.status == "ok":
                return
        _fail_while_settling(settling, self._spec)

    async def resolve_doubt(self, ended: RawResult) -> RawResult:
        """Determine the outcome of an effect whose function ended in this attempt without reporting it.

        Raises:
            ApplicationError: EFFECT_SETTLING; or EFFECT_RAISED: the call is made again, with the same key.
        """
        name, content = self._spec.name, str(await self.outcomes.redact(ended.content))
        unknown = ended.model_copy(
            update={"content": _doubt_text(name, content) if ended.doubt == "raised" else content}
        )
        match self._spec.effect:
            case Effect.IDEMPOTENT if ended.doubt in ("raised", "returned"):
                if ended.doubt == "raised" and not self.attempt.tool.takes_key:
                    # If the LLM repeats the call, that has no further effect, either.
                    return ended.model_copy(update={"status": "failed"})
                self._retry(content)
            case Effect.VERIFIABLE:
                running = ended.doubt == "running"
                self.notes.in_doubt = InDoubt(content=content[:IN_DOUBT_CHARS], cause=ended.cause, running=running)
                finding = await self._check()
                if finding and finding.status != "unknown":
                    return finding.model_copy(update={"duration_ms": ended.duration_ms, "trace": ended.trace})
                if finding and finding.content != content:
                    unknown = unknown.model_copy(update={"content": f"{unknown.content}; {finding.content}"})
            case _:
                pass
        return await with_settling_notice(unknown, self.entry, self._spec)

    async def _check(self) -> RawResult | None:
        """Determine the outcome by the tool's check; None if the effect did not happen and nothing else is known."""
        settling = await _settling_time(self.entry, self._spec)  # before the check, which has to begin after that time
        finding, doubt = await self.attempt.check(), self.notes.in_doubt
        if finding and (finding.status == "ok" or not self.declared_absent):
            return finding
        if doubt and doubt.running:  # only `Found` counts
            return RawResult(status="unknown", content=doubt.content, cause=doubt.cause)
        _fail_while_settling(settling, self._spec)
        return RawResult(status="failed", content=doubt.content, cause=doubt.cause) if doubt else None

    def _retry(self, content: str) -> None:
        """Fail the attempt, so that the tool is called again with the same key, unless it raised too often."""
        count = self.notes.count_raised()
        if count < MAX_ATTEMPTS:
            raise ApplicationError(
                f"{self._spec.name} raised {content[:IN_DOUBT_CHARS]}; it is called again with the same key",
                type=EFFECT_RAISED,
                next_retry_delay=timedelta(seconds=2 ** (count - 1)),
            )


@dataclass(frozen=True)
class _SettlingTime:
    """The time in which a request may still arrive."""

    seconds: float
    passed: float


async def _settling_time(entry: ClaimedEffect, spec: ToolSpec) -> _SettlingTime:
    passed = await entry.settling()
    if passed is None:
        return _SettlingTime(0, 0)
    passed = max(0.0, passed)
    return _SettlingTime(max(0.0, spec.settling_seconds - passed), passed)


def _fail_while_settling(settling: _SettlingTime, spec: ToolSpec) -> None:
    if not settling.seconds:
        return
    pause = min(settling.seconds, max(SHORTEST_PAUSE, min(settling.passed, LONGEST_PAUSE)))
    log.info("effect_settling", tool=spec.name, seconds=round(settling.seconds, 1))
    raise Waits(
        f"waiting until {_utc_in(settling.seconds)}, "
        f"because a request of a lost attempt of {spec.name} may still arrive",
        type=EFFECT_SETTLING,
        next_retry_delay=timedelta(seconds=pause),
    )


async def with_settling_notice(unknown: RawResult, entry: ClaimedEffect, spec: ToolSpec) -> RawResult:
    """Add to an unknown outcome until when a request may still arrive, for the person who resolves it."""
    settling = await _settling_time(entry, spec)
    if not settling.seconds or not isinstance(unknown.content, str):
        return unknown
    until = f"a request of it may still arrive until {_utc_in(settling.seconds)}, so look again after that"
    content = f"{unknown.content.rstrip('.')}; {until}"
    consequence = _EARLY_ANSWER.get(second_attempt(spec.effect))
    if not consequence:  # it runs at once: the other system recognises the key
        return unknown.model_copy(update={"content": content})
    content += f". An `absent` before that is held: {consequence}"
    return unknown.model_copy(update={"content": content, "settles_in": settling.seconds})


def _doubt_text(name: str, content: str) -> str:
    return f"{name} raised an exception, which does not say whether it took effect: {content}"


def _utc_in(seconds: float) -> str:
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} UTC"
