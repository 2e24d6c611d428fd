"""`call_tool`: runs one tool call, by the rules of `holdfast.tools.effects`."""

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.calling_run import calling_thread
from activities.clipping import Clipped, clip_to
from activities.heartbeats import heartbeats
from activities.orders import Chains
from activities.transcript_cache import Sessions
from holdfast.agents.catalog import Catalog
from holdfast.log.events import ToolStatus
from holdfast.run.consequences import CLOSED_EARLY, OUTCOME_UNKNOWN
from holdfast.run.contracts import ToolOutcome, ToolRequest
from holdfast.run.details import describe_call
from holdfast.runtime.stores.ledger import Entry, Ledger
from holdfast.stores import ArtifactStore
from holdfast.tools.arguments import ArgumentsInvalid
from holdfast.tools.decorator import Absent, Found, Labelled, Tool, ToolContext, Unknown, bind, result_text
from holdfast.tools.effects import Effect, PastEffect, second_attempt
from holdfast.tools.secrets import NO_SECRETS, Secrets
from holdfast.trust import NO_ORIGIN, Trust

log = structlog.get_logger(__name__)


class Tools:
    """Runs tools from the worker's catalog.

    Args:
        catalog: What this worker offers.
        ledger: Where effects are written down before and after they happen.
        chains: Which run belongs to which chain.
        sessions: What this worker has read of each thread.
        artifacts: Where results go that are too long for the log.
        secrets: Those that tools may ask for, and all others that must not be in a result.
    """

    def __init__(
        self,
        catalog: Catalog,
        ledger: Ledger,
        chains: Chains,
        sessions: Sessions,
        artifacts: ArtifactStore,
        secrets: Secrets = NO_SECRETS,
    ) -> None:
        self._catalog = catalog
        self._ledger = ledger
        self._chains = chains
        self._sessions = sessions
        self._artifacts = artifacts
        self._secrets = secrets

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
            return await self._refused(tool, request, f"the arguments do not fit: {error}")
        if arguments.text != request.call.arguments:
            # Read leniently here, something else would run than was judged.
            wanted = f"its tool reads them as {arguments.text[:2_000]}; give exactly that, or other arguments"
            return await self._refused(tool, request, f"the arguments are not in the form in which they run: {wanted}")
        context = ToolContext(
            thread=calling_thread(),
            workspace=Path(request.workspace),
            key=request.key,
            attempt=activity.info().attempt,
            at=activity.info().scheduled_time,
            origin=request.origin or NO_ORIGIN,
            secrets=self._secrets.only(tool.secrets),
        )
        async with heartbeats():
            outcome = await self._run(tool, arguments.values, context, request)
        if outcome.status != "unknown":
            self._sessions.finished(request.call.id, outcome.content)
        return outcome

    async def _refused(self, tool: Tool, request: ToolRequest, why: str) -> ToolOutcome:
        """The outcome of arguments that this worker's tool cannot run. An earlier attempt, elsewhere, may have."""
        why = self._secrets.redact(why)
        if tool.spec.effect is not Effect.READ:
            async with self._ledger.claim(await self._effect(request), thread=calling_thread()) as entry:
                if entry.outcome is not None:
                    return entry.outcome.model_copy(update={"adopted": True})
                if entry.started_before:
                    reason = f"an earlier attempt of {tool.spec.name} broke off, and on this worker {why}"
                    return ToolOutcome(status="unknown", content=reason)
        return ToolOutcome(status="invalid", content=f"Not called: {why}")

    async def _run(
        self, tool: Tool, arguments: dict[str, Any], context: ToolContext, request: ToolRequest
    ) -> ToolOutcome:
        clip = _Clip(self._artifacts, context.thread, request.clip, self._secrets)
        if tool.spec.effect is Effect.READ:
            return await _run(tool, arguments, context, clip)
        if request.undo and not request.settle:
            return await _undo(tool, arguments, context, clip)
        claim = self._ledger.claim(await self._effect(request), thread=context.thread, start=not request.settle)
        async with claim as entry:
            if request.settle:
                return await _find_out(entry, tool, arguments, context, clip)
            return await _run_once(entry, tool, arguments, context, clip)

    async def _effect(self, request: ToolRequest) -> PastEffect:
        """The effect that a call has, as the ledger names it."""
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


_LONG = 64_000
"""Characters from which a text is worked on in a thread: others are done before a thread has begun."""


async def _off_the_loop(function: Callable[[Any], str], value: Any, *, size: int) -> str:
    return await asyncio.to_thread(function, value) if size > _LONG else function(value)


@dataclass(frozen=True)
class _Clip:
    """Makes an outcome of a text, whatever its length and whatever secrets are in it."""

    artifacts: ArtifactStore
    thread: str
    limit: int
    secrets: Secrets

    async def outcome(self, status: ToolStatus, text: str, **more: Any) -> ToolOutcome:
        # Before it is clipped: half a secret would not be found.
        clipped = await self._patiently(await _off_the_loop(self.secrets.redact, text, size=len(text)))
        return ToolOutcome(status=status, content=clipped.content, artifact=clipped.artifact, size=clipped.size, **more)

    async def _patiently(self, text: str) -> Clipped:
        """The effect has happened, so this does not give up while the store is away: it has the activity's time."""
        while True:
            try:
                return await clip_to(self.artifacts, text, self.limit, thread=self.thread)
            except Exception as error:  # a store of the user's own raises what it likes
                log.warning("artifact_waits", thread=self.thread, reason=str(error))
                await asyncio.sleep(1)


async def _run_once(
    entry: Entry, tool: Tool, arguments: dict[str, Any], context: ToolContext, clip: _Clip
) -> ToolOutcome:
    """Run an effect unless an earlier attempt has, or may have."""
    if entry.outcome is not None:
        return entry.outcome.model_copy(update={"adopted": True})
    if entry.started_before:
        settled = await _settle(tool, arguments, context, clip)
        if settled is not None:
            if settled.status != "unknown":
                await entry.finish(settled)
            return settled
    outcome = await _run(tool, arguments, context, clip)
    if outcome.status == "unknown" and tool.check is not None and inspect.iscoroutinefunction(tool.function):
        # It outlived its limit and has been stopped, so its check can say what it came to.
        timed_out = outcome.model_copy(update={"status": "failed"})
        outcome = await _settle(tool, arguments, context, clip) or timed_out
    if outcome.status != "unknown":
        await entry.finish(outcome)
    return outcome


async def _find_out(
    entry: Entry, tool: Tool, arguments: dict[str, Any], context: ToolContext, clip: _Clip
) -> ToolOutcome:
    """What became of an effect whose run was closed from outside. Nothing happens any more."""
    if entry.outcome is not None:
        return entry.outcome.model_copy(update={"adopted": True})
    if not entry.started_before:
        return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} It had not begun.")
    if second_attempt(tool.spec.effect) != "check":
        return ToolOutcome(status="unknown", content=f"{CLOSED_EARLY} {OUTCOME_UNKNOWN}")
    settled = await _settle(tool, arguments, context, clip)
    if settled is None:
        return ToolOutcome(status="cancelled", content=f"{CLOSED_EARLY} Its check says that it did not happen.")
    if settled.status != "unknown":
        await entry.finish(settled)
    return settled


async def _settle(tool: Tool, arguments: dict[str, Any], context: ToolContext, clip: _Clip) -> ToolOutcome | None:
    """What became of an effect that was started and not finished; None if it is to be run (again)."""
    match second_attempt(tool.spec.effect):
        case "run":
            return None
        case "ask":
            reason = f"an earlier attempt of {tool.spec.name} broke off, and it has no check"
            return ToolOutcome(status="unknown", content=reason)
        case "check":
            assert tool.check is not None
            try:
                answer = await _call(tool.check, bind(tool.check, arguments, context), tool.spec.timeout)
            except _OutOfTime:
                answer = Unknown(f"check of {tool.spec.name} took longer than {tool.spec.timeout:g} s")
            log.info("effect_checked", key=context.key, tool=tool.spec.name, answer=type(answer).__name__)
            match answer:
                case Found(result=result):
                    return await clip.outcome("ok", result_text(result), adopted=True)
                case Absent():
                    return None
                case _:
                    reason = getattr(answer, "reason", "") or f"check of {tool.spec.name} cannot tell"
                    return ToolOutcome(status="unknown", content=clip.secrets.redact(reason))


async def _undo(tool: Tool, arguments: dict[str, Any], context: ToolContext, clip: _Clip) -> ToolOutcome:
    """Take the effect back. It may have been tried before: an undo is safe to run again."""
    if tool.undo is None:
        return ToolOutcome(status="failed", content=f"this worker's {tool.spec.name} cannot take its effect back")
    return await _run(replace(tool, function=tool.undo), arguments, context, clip)


async def _run(tool: Tool, arguments: dict[str, Any], context: ToolContext, clip: _Clip) -> ToolOutcome:
    """Run the tool. What it raises becomes a result that the LLM reads."""
    started = time.monotonic()
    status: ToolStatus = "ok"
    trust: Trust | None = None
    try:
        value = await _call(tool.function, bind(tool.function, arguments, context), tool.spec.timeout)
        if isinstance(value, Labelled):
            value, trust = value.result, value.trust
        # What is no text may be of any size.
        content = await _off_the_loop(result_text, value, size=len(value) if isinstance(value, str) else _LONG + 1)
    except _OutOfTime:
        # A thread cannot be stopped, and an effect may be half done: of those, nobody knows.
        status = "failed" if tool.spec.effect is Effect.READ else "unknown"
        still = "" if inspect.iscoroutinefunction(tool.function) else "; it may still be at it"
        content = f"{tool.spec.name} took longer than {tool.spec.timeout:g} s and was given up{still}"
    except Exception as error:
        # A file's name in a message may hold half a surrogate pair.
        status, content = "failed", result_text(f"{type(error).__name__}: {error}")
        log.info("tool_failed", key=context.key, tool=tool.spec.name, exc_info=True)
    took = round((time.monotonic() - started) * 1000)
    return await clip.outcome(status, content, duration_ms=took, trust=trust)


class _OutOfTime(Exception):
    """A function took longer than it may; not to be mistaken for a TimeoutError of its own."""


async def _call(function: Callable[..., Any], arguments: dict[str, Any], timeout: float) -> Any:
    """Call a sync (in a thread) or async function, for at most `timeout` seconds."""
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(function):
                return await function(**arguments)
            return await asyncio.to_thread(function, **arguments)
    except TimeoutError:
        if limit.expired():
            raise _OutOfTime from None
        raise
