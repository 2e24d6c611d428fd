"""A tool call within its middleware.

1. Middleware runs inside the claim on the effect: the ledger records its result, and a later attempt returns that.
2. It wraps everything that determines the outcome of the call, the tool's check included: every result that the LLM
   reads has passed through it.
3. A call that middleware did not make has failed. If an earlier attempt may have had the effect, its outcome is
   determined first (`holdfast.activities.tool_calls.call_tool.ToolExecution`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.middleware import MiddlewareStack, RunReader
from holdfast.activities.tool_calls.tool_attempt import Attempt
from holdfast.activities.tool_calls.tool_outcomes import Outcomes, RawResult
from holdfast.core.agents.middleware import ToolCall, ToolResult, ToolWork
from holdfast.core.llm.blocks import text_of
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.tools.effects import Effect


@dataclass(frozen=True)
class GuardedCall:
    """A tool call within its middleware."""

    attempt: Attempt
    outcomes: Outcomes
    middleware: MiddlewareStack
    transcripts: TranscriptCache
    request: ToolRequest

    async def through(self, make: Callable[[], Awaitable[RawResult]], work: ToolWork) -> tuple[RawResult, bool]:
        """Make a call through the middleware; return how it ended, and whether it was made."""
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
