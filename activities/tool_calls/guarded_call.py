"""A tool call within its middleware, by the rules of `holdfast.core.tools.effects` for a second attempt.

1. Middleware runs inside the claim on the effect: the ledger records its result, and a later attempt returns that.
2. It wraps everything that determines the outcome of the call, the tool's check included: every result that the LLM
   reads has passed through it.
3. A call that middleware did not make has failed. If an earlier attempt may have had the effect, its outcome is
   determined first.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.middleware import MiddlewareStack, RunReader
from holdfast.activities.tool_calls.earlier_attempts import AttemptNotes
from holdfast.activities.tool_calls.lost_effects import LostEffect, with_settling_notice
from holdfast.activities.tool_calls.previews import changed_since
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes, RawResult
from holdfast.core.agents.middleware import ToolCall, ToolResult, ToolWork
from holdfast.core.llm.blocks import text_of
from holdfast.core.run.contracts.ledger import ClaimedEffect
from holdfast.core.run.contracts.tool_calls import ToolOutcome, ToolRequest
from holdfast.core.run.decide.reactions import CLOSED_EARLY, OUTCOME_UNKNOWN
from holdfast.core.tools.effects import Effect, second_attempt


@dataclass(frozen=True)
class GuardedCall:
    """A tool call within its middleware."""

    attempt: Attempt
    outcomes: Outcomes
    middleware: MiddlewareStack | None
    transcripts: TranscriptCache
    request: ToolRequest
    notes: AttemptNotes

    async def read(self) -> ToolOutcome:
        """Make a call without an effect."""

        async def make() -> RawResult:
            return await self._changed() or await self.attempt.run()

        ended, _ = await self._through(make, "run")
        return await self.outcomes.record(ended)

    async def undo(self, entry: ClaimedEffect) -> ToolOutcome:
        """Undo the effect once it has arrived, or can no longer arrive."""
        await self._lost_effect(entry).require_arrived()
        ended, _ = await self._through(self.attempt.undo, "undo")
        return await self.outcomes.record(ended)

    async def run_once(self, entry: ClaimedEffect) -> ToolOutcome:
        """Run an effect unless an earlier attempt ran it, or may have."""
        lost, repeated = self._lost_effect(entry), entry.started_before or self.request.epoch > 0

        async def make() -> RawResult:
            if repeated:
                earlier_outcome = await lost.earlier_outcome()
                if earlier_outcome is None or not entry.started_before:  # an adopted effect belongs to this epoch
                    await entry.start()
                if earlier_outcome:
                    return earlier_outcome
            # An earlier attempt of an idempotent call may itself have changed what its preview showed.
            if not (repeated and self.attempt.tool.spec.effect is Effect.IDEMPOTENT) and (
                changed := await self._changed()
            ):
                return changed
            ended = await self.attempt.run(entry)
            return await lost.resolve_doubt(ended) if ended.doubt else ended

        ended, made = await self._through(make, "run")
        if not made and repeated:
            ended = await self._resolve_earlier_attempt(ended, lost)
        elif made and ended.status == "unknown" and ended.settles_in is None:  # middleware cancelled it
            ended = await with_settling_notice(ended, entry, self.attempt.tool.spec)
        return await self.outcomes.record(ended)

    async def settle(self, entry: ClaimedEffect) -> ToolOutcome:
        """Determine the outcome of an effect whose run was closed from outside, without running it."""
        lost = self._lost_effect(entry)
        if not entry.started_before and not lost.declared_absent:
            return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} It had not begun.")
        unknown = RawResult(status="unknown", content=f"{CLOSED_EARLY} {OUTCOME_UNKNOWN}")

        async def make() -> RawResult:
            if second_attempt(self.attempt.tool.spec.effect) == "run" or not (lost.declared_absent or self._has_check):
                return await with_settling_notice(unknown, entry, self.attempt.tool.spec)
            explanation = "Its check says that it did not happen." if self._has_check else "It had not begun again."
            return await lost.earlier_outcome() or RawResult(
                status="cancelled", content=f"{CLOSED_EARLY} {explanation}"
            )

        ended, made = await self._through(make, "settle")
        return await self.outcomes.record(ended if made else unknown)

    async def _changed(self) -> RawResult | None:
        """Return the end of a call whose approval is about another state; None if it may run."""
        why = await changed_since(self.attempt, self.request.base) if self.request.base else ""
        return RawResult(status="failed", content=why) if why else None

    @property
    def _has_check(self) -> bool:
        return second_attempt(self.attempt.tool.spec.effect) == "check"

    def _lost_effect(self, entry: ClaimedEffect) -> LostEffect:
        return LostEffect(self.attempt, entry, self.outcomes, self.notes, self.request.epoch)

    async def _resolve_earlier_attempt(self, rejected: RawResult, lost: LostEffect) -> RawResult:
        """Determine the outcome of an earlier attempt at a call that middleware now rejects."""
        spec, rejection = self.attempt.tool.spec, text_of(rejected.content)
        if self._has_check or lost.declared_absent:
            earlier_outcome = await lost.earlier_outcome()
            if earlier_outcome is None or earlier_outcome.status == "failed":
                return rejected
            if earlier_outcome.status == "ok":
                hidden = f"an earlier attempt of {spec.name} took effect; its result is hidden: {rejection}"
                return earlier_outcome.model_copy(update={"content": hidden})
        reason = f"an earlier attempt of {spec.name} was interrupted, and this one was refused: {rejection}"
        return await with_settling_notice(RawResult(status="unknown", content=reason), lost.entry, spec)

    async def _through(self, make: Callable[[], Awaitable[RawResult]], work: ToolWork) -> tuple[RawResult, bool]:
        """Make a call through the middleware; return how it ended, and whether it was made."""
        if not self.middleware:
            return await make(), True
        ended: RawResult | None = None
        visible_result: ToolResult | None = None

        async def proceed() -> ToolResult:
            nonlocal ended, visible_result
            ended = await make()
            content, missing = await self.outcomes.redact(ended.content), await self.outcomes.redact(ended.missing)
            visible_result = ToolResult(content, ended.status, missing=text_of(missing))
            return visible_result

        reader = RunReader(self.transcripts, context=self.request.context)
        result, made = await self.middleware.tool(await self._call(work, reader), proceed)
        reader.raise_if_refused()
        reads = self.attempt.tool.spec.effect is Effect.READ
        if ended is not None:
            if result is not visible_result:
                missing = _missing_from(result) if ended.missing else ""
                ended = ended.model_copy(update={"content": result.content, "missing": missing})
            return ended, True
        if made:  # middleware cancelled it
            return RawResult(status="failed" if reads else "unknown", content=result.content), True
        return RawResult(status="ok" if reads and result.status == "ok" else "failed", content=result.content), False

    async def _call(self, work: ToolWork, reader: RunReader) -> ToolCall:
        context, spec = self.attempt.context, self.attempt.tool.spec
        return ToolCall(
            thread=context.thread,
            agent=await reader.agent(),
            attempt=context.attempt,
            _reader=reader,
            tool=spec.name,
            effect=spec.effect,
            key=context.key,
            number=self.request.number,
            work=work,
            _arguments=self.request.call.arguments,
        )


def _missing_from(result: ToolResult) -> str:
    """Return the part that is missing from a partial result, as middleware describes it. Middleware may exist to remove
    a text, so the tool's own description is not kept in its place.
    """
    return (result.missing if isinstance(result.missing, str) else "") or "a part that middleware does not name"
