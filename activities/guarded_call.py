"""A tool call within its middleware, by the rules of `holdfast.tools.effects` for a second attempt.

1. Middleware is inside the claim on the effect: what it returns is what the ledger records, and what a later attempt
   returns.
2. It is outside of everything that finds out what the call has done, the tool's check included: every result that
   the LLM reads has passed through it.
3. A call that it did not make has failed. Where an earlier attempt may have had the effect, that is found out first.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from holdfast.activities.middleware import Around, RunReader
from holdfast.activities.tool_attempt import Attempt
from holdfast.activities.tool_outcomes import Ended, Outcomes
from holdfast.agents.middleware import ToolCall, ToolResult, ToolWork
from holdfast.llm.blocks import text_of
from holdfast.run.consequences import CLOSED_EARLY, OUTCOME_UNKNOWN
from holdfast.run.contracts import ToolOutcome, ToolRequest
from holdfast.run.ledger import ClaimedEffect
from holdfast.tools.effects import Effect, second_attempt


@dataclass(frozen=True)
class Guarded:
    """A tool call within its middleware."""

    attempt: Attempt
    outcomes: Outcomes
    around: Around
    reader: RunReader
    request: ToolRequest

    async def read(self) -> ToolOutcome:
        """Make a call without an effect."""
        ended, _ = await self._through(self.attempt.run, "run")
        return await self.outcomes.record(ended)

    async def undo(self) -> ToolOutcome:
        """Undo the effect."""
        ended, _ = await self._through(self.attempt.undo, "undo")
        return await self.outcomes.record(ended)

    async def run_once(self, entry: ClaimedEffect) -> ToolOutcome:
        """Run an effect unless an earlier attempt ran it, or may have."""

        async def make() -> Ended:
            if entry.started_before and (earlier := await self.attempt.earlier()):
                return earlier
            ended = await self.attempt.run()
            if ended.status == "unknown" and self.attempt.can_be_checked:
                # The function exceeded its limit and was stopped, so the tool's check can determine the outcome.
                return await self.attempt.earlier() or replace(ended, status="failed")
            return ended

        ended, made = await self._through(make, "run")
        if not made and entry.started_before:
            ended = await self._refused_later(ended)
        return await self.outcomes.record(ended)

    async def settle(self, entry: ClaimedEffect) -> ToolOutcome:
        """Determine the outcome of an effect whose run was closed from outside, without running it."""
        if not entry.started_before:
            return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} It had not begun.")
        unknown = Ended("unknown", f"{CLOSED_EARLY} {OUTCOME_UNKNOWN}")

        async def make() -> Ended:
            if second_attempt(self.attempt.tool.spec.effect) != "check":
                return unknown
            absent = Ended("cancelled", f"{CLOSED_EARLY} Its check says that it did not happen.")
            return await self.attempt.earlier() or absent

        ended, made = await self._through(make, "settle")
        return await self.outcomes.record(ended if made else unknown)

    async def _refused_later(self, refused: Ended) -> Ended:
        """Find out what an earlier attempt has done, of a call that middleware does not let happen now."""
        name, why = self.attempt.tool.spec.name, text_of(refused.content)
        if second_attempt(self.attempt.tool.spec.effect) == "check":
            earlier = await self.attempt.earlier()
            if earlier is None:
                return refused
            if earlier.status == "ok":
                return replace(
                    earlier, content=f"an earlier attempt of {name} took effect; its result is hidden: {why}"
                )
        return Ended("unknown", f"an earlier attempt of {name} was interrupted, and this one was refused: {why}")

    async def _through(self, make: Callable[[], Awaitable[Ended]], work: ToolWork) -> tuple[Ended, bool]:
        """Make a call through the middleware; return how it ended, and whether it was made."""
        if not self.around:
            return await make(), True
        ended: Ended | None = None
        shown: ToolResult | None = None

        async def proceed() -> ToolResult:
            nonlocal ended, shown
            ended = await make()
            shown = ToolResult(await self.outcomes.redacted(ended.content), ended.status)
            return shown

        result, made = await self.around.tool(await self._call(work), proceed)
        self.reader.raise_if_refused()
        reads = self.attempt.tool.spec.effect is Effect.READ
        if ended is not None:
            return (ended if result is shown else replace(ended, content=result.content)), True
        if made:  # and cancelled
            return Ended("failed" if reads else "unknown", result.content), True
        return Ended("ok" if reads and result.status == "ok" else "failed", result.content), False

    async def _call(self, work: ToolWork) -> ToolCall:
        context, spec = self.attempt.context, self.attempt.tool.spec
        return ToolCall(
            thread=context.thread,
            agent=await self.reader.agent(),
            attempt=context.attempt,
            _reader=self.reader,
            tool=spec.name,
            effect=spec.effect,
            key=context.key,
            number=self.request.number,
            work=work,
            _arguments=self.request.call.arguments,
        )
