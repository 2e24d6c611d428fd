"""`call_tool`: runs one tool call, following the rules of `holdfast.tools.effects`."""

import inspect
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.blocked_loop import loop_watch
from holdfast.activities.calling_run import calling_thread
from holdfast.activities.handed_on import to_hand_on
from holdfast.activities.heartbeats import heartbeats
from holdfast.activities.orders import Chains
from holdfast.activities.tool_functions import TimedOut, call_function, raise_if_stopped
from holdfast.activities.tool_outcomes import Outcomes
from holdfast.activities.transcript_cache import TranscriptCache
from holdfast.activities.worker_deaths import Deaths, given_up
from holdfast.agents.catalog import Catalog
from holdfast.run.consequences import CLOSED_EARLY, OUTCOME_UNKNOWN
from holdfast.run.contracts import ToolOutcome, ToolRequest
from holdfast.run.details import describe_call
from holdfast.runtime.stores.ledger import Entry, Ledger
from holdfast.stores import ArtifactStore
from holdfast.tools.arguments import ArgumentsInvalid
from holdfast.tools.decorator import (
    Absent,
    Found,
    Tool,
    ToolContext,
    Unknown,
    bind,
)
from holdfast.tools.effects import Effect, PastEffect, second_attempt
from holdfast.tools.results import error_text
from holdfast.tools.secrets import NO_SECRETS, Secrets
from holdfast.transcript.transcript import tool_message
from holdfast.trust import NO_ORIGIN

log = structlog.get_logger(__name__)


class Tools:
    """Runs tools from the worker's catalog.

    Args:
        catalog: The agents and tools of this worker.
        ledger: Records effects before and after they happen.
        chains: Maps a Temporal run to its chain.
        transcripts: This worker's cache of transcripts.
        artifacts: Stores results that are too long for the log.
        secrets: Passed to the tools that declare them, and redacted from every result.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledger: Ledger,
        chains: Chains,
        transcripts: TranscriptCache,
        artifacts: ArtifactStore,
        secrets: Secrets = NO_SECRETS,
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._chains = chains
        self._transcripts = transcripts
        self._artifacts = artifacts
        self._secrets = secrets
        self._deaths = Deaths()

    @activity.defn
    async def call_tool(self, request: ToolRequest) -> ToolOutcome:
        """See `holdfast.run.contracts.call_tool`."""
        tool = self._catalog.tools.get(request.call.name)
        if tool is None:
            raise ApplicationError(
                f"this worker's catalog has no tool {request.call.name!r}; start a worker that has it",
                type="ToolNotFound",
            )
        try:
            arguments = tool.read(request.call.arguments)
        except ArgumentsInvalid as error:
            return await self._invalid(tool, request, f"the arguments do not fit: {error}")
        if arguments.text != request.call.arguments:
            # If they were read leniently here, other arguments would run than the policy judged.
            hint = f"the tool reads them as {arguments.text[:2_000]}; give exactly that, or other arguments"
            return await self._invalid(tool, request, f"the arguments are not in the form in which they run: {hint}")
        context = ToolContext(
            thread=calling_thread(),
            workspace=Path(request.workspace),
            key=request.key,
            attempt=activity.info().attempt,
            at=activity.info().scheduled_time,
            origin=request.origin or NO_ORIGIN,
            secrets=self._secrets.only(tool.secrets),
        )
        deaths = await self._deaths.before(request)
        async with heartbeats(*(to_hand_on(deaths) if deaths else ())):
            if deaths and deaths.count >= request.max_worker_deaths:
                outcome = await self._give_up(tool, request, given_up(tool.spec.name, deaths.count))
            else:
                outcome = await self._execute(tool, arguments.values, context, request)
        if outcome.status != "unknown":
            self._transcripts.add_result(
                tool_message(request.call.id, request.call.name, outcome.status, outcome.content)
            )
        return outcome

    async def _give_up(self, tool: Tool, request: ToolRequest, why: str) -> ToolOutcome:
        """The outcome of a call that killed its workers. Nothing of the tool runs: its check might kill one, too."""
        if tool.spec.effect is Effect.READ:
            return ToolOutcome(status="failed", content=why)
        if not request.undo:
            async with self._ledger.claim(await self._effect(request), thread=calling_thread()) as entry:
                if entry.outcome is not None:
                    return entry.outcome.model_copy(update={"adopted": True})
        return ToolOutcome(status="unknown", content=why)

    async def _invalid(self, tool: Tool, request: ToolRequest, why: str) -> ToolOutcome:
        """The outcome of arguments that this worker's tool rejects. An earlier attempt may have run elsewhere."""
        why = self._secrets.redact(why)
        if tool.spec.effect is not Effect.READ:
            async with self._ledger.claim(await self._effect(request), thread=calling_thread()) as entry:
                if entry.outcome is not None:
                    return entry.outcome.model_copy(update={"adopted": True})
                if entry.started_before:
                    reason = f"an earlier attempt of {tool.spec.name} was interrupted, and on this worker {why}"
                    return ToolOutcome(status="unknown", content=reason)
        return ToolOutcome(status="invalid", content=f"Not called: {why}")

    async def _execute(
        self, tool: Tool, arguments: dict[str, Any], context: ToolContext, request: ToolRequest
    ) -> ToolOutcome:
        outcomes = Outcomes(self._artifacts, context.thread, request.clip, self._secrets)
        if tool.spec.effect is Effect.READ:
            return await _run(tool, arguments, context, outcomes)
        if request.undo and not request.settle:
            return await _undo(tool, arguments, context, outcomes)
        claim = self._ledger.claim(await self._effect(request), thread=context.thread, start=not request.settle)
        async with claim as entry:
            if request.settle:
                return await _settle(entry, tool, arguments, context, outcomes)
            return await _run_once(entry, tool, arguments, context, outcomes)

    async def _effect(self, request: ToolRequest) -> PastEffect:
        """The effect of a call, as the ledger identifies it."""
        own = activity.info().workflow_run_id or ""
        return PastEffect(
            number=request.number,
            first_run_id=request.first_run_id or await self._chains.first_run_id(calling_thread(), own),
            tool=request.call.name,
            call_digest=request.call.digest,
            key=request.key,
            epoch=request.epoch,
            call=describe_call(request.call),
        )


async def _run_once(
    entry: Entry, tool: Tool, arguments: dict[str, Any], context: ToolContext, outcomes: Outcomes
) -> ToolOutcome:
    """Run an effect unless an earlier attempt ran it, or may have."""
    if entry.outcome is not None:
        return entry.outcome.model_copy(update={"adopted": True})
    if entry.started_before:
        earlier = await _earlier_outcome(tool, arguments, context, outcomes)
        if earlier is not None:
            if earlier.status != "unknown":
                await entry.finish(earlier)
            return earlier
    outcome = await _run(tool, arguments, context, outcomes)
    if outcome.status == "unknown" and tool.check is not None and inspect.iscoroutinefunction(tool.function):
        # The function exceeded its limit and was stopped, so the tool's check can determine the outcome.
        timed_out = outcome.model_copy(update={"status": "failed"})
        outcome = await _earlier_outcome(tool, arguments, context, outcomes) or timed_out
    if outcome.status != "unknown":
        await entry.finish(outcome)
    return outcome


async def _settle(
    entry: Entry, tool: Tool, arguments: dict[str, Any], context: ToolContext, outcomes: Outcomes
) -> ToolOutcome:
    """Determine the outcome of an effect whose run was closed from outside, without running it."""
    if entry.outcome is not None:
        return entry.outcome.model_copy(update={"adopted": True})
    if not entry.started_before:
        return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} It had not begun.")
    if second_attempt(tool.spec.effect) != "check":
        return ToolOutcome(status="unknown", content=f"{CLOSED_EARLY} {OUTCOME_UNKNOWN}")
    settled = await _earlier_outcome(tool, arguments, context, outcomes)
    if settled is None:
        return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} Its check says that it did not happen.")
    if settled.status != "unknown":
        await entry.finish(settled)
    return settled


async def _earlier_outcome(
    tool: Tool, arguments: dict[str, Any], context: ToolContext, outcomes: Outcomes
) -> ToolOutcome | None:
    """Determine the outcome of an effect that was started and not finished; None if the effect is to run (again)."""
    match second_attempt(tool.spec.effect):
        case "run":
            return None
        case "ask":
            reason = f"an earlier attempt of {tool.spec.name} was interrupted, and the tool has no check"
            return ToolOutcome(status="unknown", content=reason)
        case "check":
            answer = await _check(tool, arguments, context)
            log.info("effect_checked", key=context.key, tool=tool.spec.name, answer=type(answer).__name__)
            match answer:
                case Found(result=result):
                    return await outcomes.returned(tool.spec, result, adopted=True)
                case Absent():
                    return None
                case _:
                    reason = (
                        getattr(answer, "reason", "") or f"check of {tool.spec.name} could not determine the outcome"
                    )
                    return ToolOutcome(status="unknown", content=outcomes.secrets.redact(reason))


async def _check(tool: Tool, arguments: dict[str, Any], context: ToolContext) -> Any:
    """Return the answer of the tool's check. What it raises is retried: the system that it asks may be down."""
    assert tool.check is not None
    try:
        given = bind(tool.check, arguments, context)
        return await call_function(tool.check, given, tool.spec.timeout, tool=tool.spec.name, key=context.key)
    except TimedOut:
        return Unknown(f"check of {tool.spec.name} took longer than {tool.spec.timeout:g} s")
    except Exception:
        raise
    except BaseException as error:  # such as sys.exit, which would end the worker, and again on each retry
        raise_if_stopped(error)
        return Unknown(f"check of {tool.spec.name} raised {error_text(error)}")


async def _undo(tool: Tool, arguments: dict[str, Any], context: ToolContext, outcomes: Outcomes) -> ToolOutcome:
    """Undo the effect. An earlier attempt may have done so already: an undo is safe to run again."""
    if tool.undo is None:
        return ToolOutcome(status="failed", content=f"this worker's {tool.spec.name} cannot undo its effect")
    return await _run(replace(tool, function=tool.undo), arguments, context, outcomes)


async def _run(tool: Tool, arguments: dict[str, Any], context: ToolContext, outcomes: Outcomes) -> ToolOutcome:
    """Run the tool. What it raises becomes a result for the LLM."""
    started = time.monotonic()

    def duration_ms() -> int:
        return round((time.monotonic() - started) * 1000)

    blocked = loop_watch().blocked if tool.spec.effect is Effect.READ else {}
    if context.key in blocked:  # an earlier attempt did
        return await outcomes.build("failed", blocked[context.key])
    try:
        given = bind(tool.function, arguments, context)
        value = await call_function(tool.function, given, tool.spec.timeout, tool=tool.spec.name, key=context.key)
    except TimedOut:
        # A thread cannot be stopped, and an effect may be half done: then the outcome is unknown.
        still = "" if inspect.iscoroutinefunction(tool.function) else "; it may still be running"
        content = f"{tool.spec.name} took longer than {tool.spec.timeout:g} s and was abandoned{still}"
        status: Literal["failed", "unknown"] = "failed" if tool.spec.effect is Effect.READ else "unknown"
        return await outcomes.build(status, content, duration_ms=duration_ms())
    except BaseException as error:  # also sys.exit: it would end the worker, and each one that retries the call
        raise_if_stopped(error)
        # Not exc_info: the log's own traceback asks the error for its message, which may raise anything.
        trace = "".join(traceback.format_exception(error))
        log.info("tool_failed", key=context.key, tool=tool.spec.name, exception=trace)
        return await outcomes.build("failed", error_text(error), duration_ms=duration_ms())
    if context.key in blocked:
        # Its result would hide what stopped every run on this worker. An effect has happened: it has its result.
        return await outcomes.build("failed", blocked[context.key], duration_ms=duration_ms())
    return await outcomes.returned(tool.spec, value, duration_ms=duration_ms())
