"""One attempt at a tool call: it runs the tool's function, its check or its undo, which may raise anything."""

import inspect
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.activities.blocked_loop import loop_watch
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_functions import TimedOut, call_function, raise_if_stopped
from holdfast.activities.tool_outcomes import Ended, returned
from holdfast.activities.tool_threads import NoThread
from holdfast.tools.cannot import Cannot
from holdfast.tools.decorator import Absent, Found, Tool, ToolContext, Unknown, bind
from holdfast.tools.effects import Effect, second_attempt
from holdfast.tools.failures import kind_of
from holdfast.tools.results import error_text

log = SafeLogger(__name__)


@dataclass(frozen=True)
class Attempt:
    """One attempt at a tool call."""

    tool: Tool
    arguments: dict[str, Any]
    """By name, as the tool has read them."""
    context: ToolContext
    resources: Mapping[Any, Any]
    """By type."""

    @property
    def can_be_checked(self) -> bool:
        """Whether the tool's check can determine what a function that was stopped has done."""
        return self.tool.check is not None and inspect.iscoroutinefunction(self.tool.function)

    async def run(self) -> Ended:
        """Run the tool. What it raises becomes a result for the LLM."""
        tool, context = self.tool, self.context
        started = time.monotonic()

        def duration_ms() -> int:
            return round((time.monotonic() - started) * 1000)

        blocked = loop_watch().blocked if tool.spec.effect is Effect.READ else {}
        if context.key in blocked:  # an earlier attempt did
            return Ended("failed", blocked[context.key])
        try:
            value = await self._call(tool.function)
        except TimedOut:
            # A thread cannot be stopped, and an effect may be half done: then the outcome is unknown.
            still = "" if inspect.iscoroutinefunction(tool.function) else "; it may still be running"
            content = f"{tool.spec.name} took longer than {tool.spec.timeout:g} s and was abandoned{still}"
            status: Literal["failed", "unknown"] = "failed" if tool.spec.effect is Effect.READ else "unknown"
            return Ended(status, content, duration_ms=duration_ms(), cause="timeout")
        except NoThread as error:  # the function was not called
            return Ended("failed", str(error))
        except BaseException as error:  # also sys.exit: it would end the worker, and each one that retries the call
            raise_if_stopped(error)
            # Not exc_info: the log's own traceback asks the error for its message, which may raise anything.
            trace = "".join(traceback.format_exception(error))
            log.info("tool_failed", key=context.key, tool=tool.spec.name, exception=trace)
            return Ended("failed", error_text(error), duration_ms=duration_ms(), cause=kind_of(error))
        if context.key in blocked:
            # Its result would hide what stopped every run on this worker. An effect has happened: it has its result.
            return Ended("failed", blocked[context.key], duration_ms=duration_ms())
        if isinstance(value, Cannot):
            until = value.ends_at(datetime.now(UTC))
            ended = Ended("cannot", value.reason, scope=value.scope, until=until)
        else:
            ended = await returned(tool.spec, value)
        return replace(ended, duration_ms=duration_ms())

    async def undo(self) -> Ended:
        """Undo the effect. An earlier attempt may have done so already: an undo is safe to run again."""
        if self.tool.undo is None:
            return Ended("failed", f"this worker's {self.tool.spec.name} cannot undo its effect")
        return await replace(self, tool=replace(self.tool, function=self.tool.undo)).run()

    async def earlier(self) -> Ended | None:
        """Determine the outcome of an effect that was started and not finished; None if it is to run (again)."""
        match second_attempt(self.tool.spec.effect):
            case "run":
                return None
            case "ask":
                reason = f"an earlier attempt of {self.tool.spec.name} was interrupted, and the tool has no check"
                return Ended("unknown", reason, cause="no_response")
            case "check":
                return await self._checked()

    async def _checked(self) -> Ended | None:
        spec, answer = self.tool.spec, await self._check()
        log.info("effect_checked", key=self.context.key, tool=spec.name, answer=type(answer).__name__)
        match answer:
            case Found(result=result):
                return replace(await returned(spec, result), adopted=True)
            case Absent():
                return None
            case _:
                reason = getattr(answer, "reason", "") or f"check of {spec.name} could not determine the outcome"
                return Ended("unknown", reason)

    async def _check(self) -> Any:
        """Return the answer of the tool's check. What it raises is retried: the system that it asks may be down."""
        spec, check = self.tool.spec, self.tool.check
        assert check is not None
        try:
            return await self._call(check)
        except TimedOut:
            return Unknown(f"check of {spec.name} took longer than {spec.timeout:g} s")
        except Exception:
            raise
        except BaseException as error:  # such as sys.exit, which would end the worker, and again on each retry
            raise_if_stopped(error)
            return Unknown(f"check of {spec.name} raised {error_text(error)}")

    async def _call(self, function: Any) -> Any:
        given = bind(function, self.arguments, self.context, self.resources)
        spec = self.tool.spec
        return await call_function(function, given, spec.timeout, tool=spec.name, key=self.context.key)
