"""One attempt at a tool call: it runs the tool's function, its check or its undo, which may raise anything."""

import functools
import inspect
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio import activity

from holdfast.activities.calling_run import calling_thread
from holdfast.activities.event_loop_watch import loop_watch
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.context_updates import (
    NO_CONTEXT,
    CallContext,
    checked_changes,
    split_update,
)
from holdfast.activities.tool_calls.tool_functions import WRAPPED, TimedOut, call_function, raise_if_stopped
from holdfast.activities.tool_calls.tool_outcomes import RawResult, result_of_value
from holdfast.activities.tool_calls.tool_threads import NoThread
from holdfast.activities.trace_context import trace_headers
from holdfast.core.llm.blocks import with_heading
from holdfast.core.log.events import ToolStatus
from holdfast.core.nodes import NO_NODE, Node
from holdfast.core.run.contracts.ledger import ClaimedEffect
from holdfast.core.run.contracts.tool_calls import PreviewRequest, ToolRequest
from holdfast.core.tools.cannot import Cannot
from holdfast.core.tools.decorator import Absent, Found, Labelled, Tool, ToolContext, Unknown, bind
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.failures import kind_of
from holdfast.core.tools.foreign_waits import ASKED, BEGAN, Asks, Resumed, TaskEnded, Working
from holdfast.core.tools.not_done import says_not_done
from holdfast.core.tools.progress_file import USUAL_FILE
from holdfast.core.tools.results import error_text, recordable_text
from holdfast.core.tools.secrets import NO_SECRETS, Secrets
from holdfast.core.trust import NO_ORIGIN, Origin
from holdfast.errors import ContextInvalid

log = SafeLogger(__name__)


def tool_context(
    request: ToolRequest | PreviewRequest,
    tool: Tool,
    secrets: Secrets,
    *,
    origin: Origin = NO_ORIGIN,
    resumed: Resumed | None = None,
) -> ToolContext:
    """Return what a tool's function gets of the current attempt at an activity.

    Args:
        request: The activity's request.
        tool: The tool.
        secrets: The worker's; the function gets those that the tool declares.
        origin: The origin of the call.
        resumed: What the call continues with.
    """
    return ToolContext(
        thread=calling_thread(),
        workspace=Path(request.workspace),
        key=request.key,
        attempt=activity.info().attempt,
        at=activity.info().scheduled_time,
        origin=origin,
        progress=(request.progress if isinstance(request, ToolRequest) else None) or USUAL_FILE,
        secrets=secrets.only(tool.secrets) if tool.secrets else NO_SECRETS,
        resumed=resumed,
        trace_headers=trace_headers.get(),
        pends=isinstance(request, ToolRequest) and request.pends,
    )


@dataclass(frozen=True)
class Attempt:
    """One attempt at a tool call."""

    tool: Tool
    arguments: dict[str, Any]
    """The arguments by name, as the tool has read them."""
    context: ToolContext
    resources: Mapping[Any, Any]
    """The catalog's resources by type."""
    run_context: CallContext = NO_CONTEXT
    """The typed context of the run."""
    secrets: Secrets = NO_SECRETS
    """Values that must not be recorded."""
    node: Node = NO_NODE
    """The node that makes it."""

    async def run(self, entry: ClaimedEffect | None = None) -> RawResult:
        """Run the tool. An exception becomes a result for the LLM, or a doubt whether the effect has happened.

        Args:
            entry: The claim on the effect; None for a read, and for a call that undoes an effect.

        Raises:
            Exception: The claim is lost; nothing has run.
        """
        tool, context = self.tool, self.context
        blocked = loop_watch().blocked if tool.spec.effect is Effect.READ else {}
        if context.key in blocked:  # an earlier attempt blocked the event loop
            return RawResult(status="failed", content=blocked[context.key])
        try:
            bound = self._bind(tool.function)
        except Exception as error:  # nothing of the tool has run
            return RawResult(status="failed", content=error_text(error), cause=kind_of(error))
        started, ended = time.monotonic(), None
        while ended is None:
            if entry:
                await entry.confirm()
            ended = await self._call_function(bound, entry)
        if context.key in blocked:
            # Its result would hide that it stopped every run on this worker. A call with an effect keeps its result.
            ended = RawResult(status="failed", content=blocked[context.key])
        return ended.model_copy(update={"duration_ms": round((time.monotonic() - started) * 1000)})

    async def _call_function(self, bound: dict[str, Any], entry: ClaimedEffect | None) -> RawResult | None:
        """Call the function, and return its result; None if the claim has to be confirmed again first."""
        tool, spec = self.tool, self.tool.spec
        reads, stopped = spec.effect is Effect.READ, inspect.iscoroutinefunction(tool.function)
        function = tool.function if stopped or entry is None else _if_claim_fresh(tool.function, entry)
        try:
            value = await self._call(function, bound)
        except _ClaimStale:
            return None
        except TimedOut:
            # A thread cannot be stopped, and an effect may be half done: then the outcome is unknown.
            still = "" if stopped else "; it may still be running"
            content = f"{spec.name} took longer than {spec.timeout:g} s and was abandoned{still}"
            if reads:
                return RawResult(status="failed", content=content, cause="timeout")
            return RawResult(
                status="unknown", content=content, cause="timeout", doubt="stopped" if stopped else "running"
            )
        except NoThread as error:  # the function was not called
            return RawResult(status="failed", content=str(error))
        except BaseException as error:  # also sys.exit: it would end the worker, and each one that retries the call
            raise_if_stopped(error)
            # Not exc_info: the log's own traceback asks the error for its message, which may raise anything.
            trace = "".join(traceback.format_exception(error))
            log.info("tool_failed", key=self.context.key, tool=spec.name, exception=trace)
            # Only an idempotent call runs again while one before it may have had the effect.
            repeated = entry is not None and entry.started_before and spec.effect is Effect.IDEMPOTENT
            if reads or says_not_done(error, tool.not_done_on, repeated=repeated):
                return RawResult(status="failed", content=error_text(error), cause=kind_of(error), trace=trace)
            return RawResult(
                status="unknown", content=error_text(error), cause=kind_of(error), doubt="raised", trace=trace
            )
        return await self._result_of(value)

    async def _result_of(self, value: Any) -> RawResult:
        changes = None
        if isinstance(value, WRAPPED):
            value, changes = split_update(value)
        if changes is None:
            return await self._recorded_form(value)
        try:
            changed = checked_changes(changes, self.run_context, self.tool.contexts, self.secrets)
        except ContextInvalid as error:
            return self._not_changed(await self._recorded_form(value), str(error))
        ended = await self._recorded_form(value)
        return ended.model_copy(update={"changes": changed}) if ended.status == "ok" and changed else ended

    def _not_changed(self, ended: RawResult, reason: str) -> RawResult:
        """Return the end of a call whose change of the context is rejected. An effect has happened all the same."""
        name = self.tool.spec.name
        if self.tool.spec.effect is Effect.READ:
            return RawResult(status="failed", content=f"{name} returned, but the context is unchanged: {reason}")
        if ended.status != "ok":
            return ended
        note = f"[{name} took effect, but the context is unchanged: {reason}]\n"
        return ended.model_copy(update={"content": with_heading(note, ended.content)})

    async def _recorded_form(self, value: Any) -> RawResult:
        spec, reads = self.tool.spec, self.tool.spec.effect is Effect.READ
        if isinstance(value, Cannot):
            until = value.ends_at(datetime.now(UTC))
            return RawResult(
                status="cannot",
                content=recordable_text(value.reason),
                scope=value.recorded_scope,
                until=until,
                unfit=value.unfit(self.node),
            )
        match value:
            case Asks(question=question, state=state):
                read = self.context.resumed is not None and self.context.resumed.polls
                asked: ToolStatus = "ok" if read else "failed"
                return RawResult(status=asked, content=ASKED, question=question, server_state=state)
            case Working(task=task):
                status: ToolStatus = "ok" if self.context.resumed else "failed"
                return RawResult(status=status, content=task.message or BEGAN, task=task)
            case TaskEnded(reason=reason, unknown=in_doubt):
                status = "unknown" if in_doubt else "failed"
                return RawResult(status=status, content=recordable_text(reason), task_ended=True)
        match value.result if isinstance(value, Labelled) else value:
            case Unknown() as unknown:
                reason = _reason(unknown) or f"{spec.name} could not find out what its outcome is"
                if reads:
                    return RawResult(status="failed", content=reason)
                return RawResult(status="unknown", content=reason, doubt="returned")
            case Absent() if not reads:
                return RawResult(status="failed", content=f"{spec.name} reports that it did not happen")
            case Found(result=result) if not reads:
                return (await result_of_value(spec, result)).model_copy(update={"adopted": True})
        return await result_of_value(spec, value)

    async def undo(self) -> RawResult:
        """Undo the effect. An earlier attempt may have done so already: an undo is safe to run again."""
        if self.tool.undo is None:
            return RawResult(status="failed", content=f"this worker's {self.tool.spec.name} cannot undo its effect")
        return await replace(self, tool=replace(self.tool, function=self.tool.undo)).run()

    async def check(self) -> RawResult | None:
        """Return the result of the tool's check; None for `Absent`."""
        spec, answer = self.tool.spec, await self._run_check()
        log.info("effect_checked", key=self.context.key, tool=spec.name, answer=type(answer).__name__)
        match answer:
            case Found():
                return (await self._result_of(answer)).model_copy(update={"adopted": True})
            case Absent():
                return None
            case _:
                reason = _reason(answer) or f"check of {spec.name} could not determine the outcome"
                return RawResult(status="unknown", content=reason)

    async def _run_check(self) -> Any:
        """Return the answer of the tool's check. An exception is retried: the system that it asks may be down."""
        spec, check = self.tool.spec, self.tool.check
        assert check is not None
        try:
            return await self._call(check, self._bind(check))
        except ContextInvalid as error:  # no other attempt has another context
            return Unknown(f"check of {spec.name} was not called: {error}")
        except TimedOut:
            return Unknown(f"check of {spec.name} took longer than {spec.timeout:g} s")
        except Exception:
            raise
        except BaseException as error:  # such as sys.exit, which would end the worker, and again on each retry
            raise_if_stopped(error)
            return Unknown(f"check of {spec.name} raised {error_text(error)}")

    def _bind(self, function: Any) -> dict[str, Any]:
        return bind(function, self.arguments, self.context, self.resources, self.run_context.values)

    async def _call(self, function: Any, bound: dict[str, Any]) -> Any:
        spec = self.tool.spec
        return await call_function(function, bound, spec.timeout, tool=spec.name, key=self.context.key)


class _ClaimStale(BaseException):
    """A thread began so late that the claim has to be confirmed again. No tool raises this type."""


def _if_claim_fresh(function: Callable[..., Any], entry: ClaimedEffect) -> Callable[..., Any]:
    """Wrap the function to run only if the claim is still fresh when its thread begins, which may take long."""

    @functools.wraps(function)
    def run(**arguments: Any) -> Any:
        if not entry.fresh:
            raise _ClaimStale
        return function(**arguments)

    return run


def _reason(answer: Any) -> str:
    reason = getattr(answer, "reason", "")
    return recordable_text(reason) if isinstance(reason, str) else ""
