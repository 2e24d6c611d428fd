"""Runs calls through the middleware of the catalog, which may raise anything, hang, or never make the call."""

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from holdfast.activities.calling_run import CallingRun
from holdfast.activities.llm_calls.transcript_cache import TranscriptCache
from holdfast.activities.safe_logs import SafeLogger
from holdfast.activities.tool_calls.tool_functions import in_own_task, raise_if_stopped
from holdfast.core.agents.middleware import (
    CallRefused,
    LLMCall,
    LLMResult,
    Middleware,
    ProceedLLM,
    ProceedTool,
    Reader,
    ToolCall,
    ToolResult,
)
from holdfast.core.llm.messages import AnyMessage, AssistantMessage
from holdfast.core.run.contracts.error_types import LLM_REJECTED, Waits
from holdfast.core.tools.results import StandIn, error_text, recordable_text, result_content

OWN_SECONDS = 10.0
"""How long all middleware of a call may take, before the call and again after it."""

NOT_LOCAL = "NotLocal"
"""The error of a local activity whose middleware reads the run: its query would wait for the activity itself. The run
repeats the call as an ordinary activity."""

T = TypeVar("T")

log = SafeLogger(__name__)


class RunReader(Reader):
    """Reads the run that called this activity.

    Args:
        transcripts: Reads its messages.
        length: The number of messages that the LLM sees; None for all.
        context: The typed context that came with the call; None to ask the run.
    """

    def __init__(
        self, transcripts: TranscriptCache, length: int | None = None, *, context: dict[str, Any] | None = None
    ) -> None:
        self._transcripts = transcripts
        self._length = length
        self._context = context
        self.refused = False
        """Whether a local activity has tried to read."""

    async def agent(self) -> str:
        """Return the agent's name, which this worker usually has cached."""
        if (name := self._transcripts.known_agent()) is not None:
            return name
        self._require_ordinary()
        return str((await CallingRun.of().query("session"))["spec"]["name"])

    async def messages(self) -> list[AnyMessage]:
        """Return the messages that the LLM sees."""
        self._require_ordinary()
        return await self._transcripts.messages(self._length)

    async def step(self) -> int:
        """Return the number of the step that is under way."""
        self._require_ordinary()
        replies = int((await CallingRun.of().query("state"))["step"])
        return replies if self._length is None else replies + 1

    async def context(self) -> dict[str, Any] | None:
        """Return the typed context of the run."""
        if self._context is None:
            self._require_ordinary()
            self._context = (await CallingRun.of().query("state")).get("context")
        return self._context

    def raise_if_refused(self) -> None:
        """Fail the local activity, even if middleware caught the error.

        Raises:
            ApplicationError: NOT_LOCAL.
        """
        if self.refused:
            reason = "its middleware reads the run, so the call is made again as an ordinary activity"
            raise Waits(reason, type=NOT_LOCAL)

    def _require_ordinary(self) -> None:
        if activity.info().is_local:
            self.refused = True
            self.raise_if_refused()


class TookTooLong(Exception):
    """Middleware has exceeded its own time limit."""


@dataclass
class InnermostCall(Generic[T]):
    """The call inside all middleware, made at most once."""

    make: Callable[[], Awaitable[T]]
    _limit: asyncio.Timeout | None = None
    called: bool = False
    result: T | None = None
    error: BaseException | None = None
    """The exception of the call, which no middleware may hide."""
    _closed: bool = False
    """All middleware has returned."""
    _task: asyncio.Task[object] | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> T:
        """Make the call."""
        if self.called:
            raise RuntimeError("middleware has called `proceed` twice; a call is made once")
        if self._closed:
            raise RuntimeError("middleware has called `proceed` after it had returned; await it")
        self.called = True
        self._task = asyncio.current_task()
        self._reschedule(None)
        try:
            self.result = await self.make()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._reschedule(OWN_SECONDS)
            self._ended.set()
        return self.result

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Limit the time of the block, not counting the call itself; then wait for a call that still runs.

        Raises:
            TookTooLong: The time is up.
        """
        try:
            async with asyncio.timeout(OWN_SECONDS) as self._limit:
                try:
                    yield
                finally:
                    self._closed = True
                    if self.called:
                        await self._wait_for_call()
        except TimeoutError:
            if self._limit and self._limit.expired():
                raise TookTooLong(f"middleware took longer than {OWN_SECONDS:g} s") from None
            raise

    async def _wait_for_call(self) -> None:
        """Wait for a call that middleware left running in a task; cancel it if the attempt is cancelled."""
        self._reschedule(None)
        try:
            await self._ended.wait()
        except asyncio.CancelledError:
            if self._task:
                self._task.cancel()
            raise

    @property
    def cancelled_by_middleware(self) -> bool:
        """Whether middleware cancelled the call, as opposed to Temporal cancelling the attempt."""
        task = asyncio.current_task()
        return isinstance(self.error, asyncio.CancelledError) and not (task and task.cancelling())

    def _reschedule(self, seconds: float | None) -> None:
        if self._limit and not self._limit.expired():
            self._limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)


@dataclass(frozen=True)
class MiddlewareStack:
    """The middleware of a worker, the outermost first."""

    layers: Sequence[Middleware]

    @property
    def streams(self) -> bool:
        """Whether replies may be shown while they arrive: no layer may replace or withhold them afterwards."""
        own = Middleware.around_llm
        return all(layer.streams or type(layer).around_llm is own for layer in self.layers)

    async def tool(self, call: ToolCall, make: Callable[[], Awaitable[ToolResult]]) -> tuple[ToolResult, bool]:
        """Make a tool call, and return its result and whether the call was made.

        If middleware fails or rejects the call after it was made, the result is withheld: the middleware may exist to
        remove it. The status of the call is kept.

        Raises:
            BaseException: The call itself failed.
        """
        innermost = InnermostCall(make)
        proceed: ProceedTool = innermost
        for layer in reversed(self.layers):
            proceed = partial(layer.around_tool, call, proceed)

        async def run_layers() -> ToolResult:
            async with innermost.limited():
                result = await proceed()
            if not isinstance(result, ToolResult):
                raise TypeError(f"it returned {type(result).__name__}, not ToolResult")
            return result if result is innermost.result else replace(result, content=result_content(result.content))

        try:
            result = await in_own_task(run_layers)
        except BaseException as error:
            if innermost.error is None:
                raise_if_stopped(error)
            if innermost.result is None:
                result = ToolResult(_failure_text(error), "failed")
            else:
                result = _withheld(innermost.result, error)
                log.warning("middleware_failed", tool=call.tool, key=call.key, reason=_error_name(error))
        if innermost.cancelled_by_middleware:
            return ToolResult("middleware has cancelled the call", "unknown"), True
        if innermost.error is not None:
            raise innermost.error
        return result, innermost.called

    async def llm(
        self, call: LLMCall, make: Callable[[Mapping[str, str]], Awaitable[LLMResult]]
    ) -> tuple[LLMResult, bool]:
        """Make an LLM call, and return its result and whether middleware left it unchanged.

        Raises:
            ApplicationError: The call's own error; an error of middleware, which is retryable; or LLM_REJECTED if
                middleware rejects the call.
        """
        headers: dict[str, str] = {}
        innermost = InnermostCall(lambda: make(headers))
        proceed: ProceedLLM = _WithHeaders(innermost, headers)
        for layer in reversed(self.layers):
            proceed = _WithHeaders(partial(layer.around_llm, call, proceed), headers)

        async def run_layers() -> LLMResult:
            async with innermost.limited():
                result = await proceed()
            if not isinstance(result, LLMResult) or not isinstance(result.message, AssistantMessage | None):
                raise TypeError(f"it returned {type(result).__name__}, not LLMResult with an AssistantMessage")
            return result

        try:
            result = await in_own_task(run_layers)
        except BaseException as error:
            if innermost.error is None:
                raise_if_stopped(error)
            if innermost.error is None or innermost.cancelled_by_middleware:
                refused = isinstance(error, CallRefused)
                kind = LLM_REJECTED if refused else type(error).__name__
                was_made = innermost.result is not None
                message = _failure_text(error, quotes=not was_made)
                # Temporal records the cause, and its message may quote the reply.
                raise ApplicationError(message, type=kind, non_retryable=refused) from None if was_made else error
            raise innermost.error from None
        if innermost.error is not None:
            raise innermost.error
        return result, result is innermost.result


@dataclass(frozen=True)
class _WithHeaders:
    """A `proceed` that collects the headers passed to it; the innermost value of a header wins."""

    proceed: Callable[[], Awaitable[LLMResult]]
    headers: dict[str, str] = field(default_factory=dict)

    async def __call__(self, *, headers: Mapping[str, str] | None = None) -> LLMResult:
        self.headers.update(headers or {})
        return await self.proceed()


def _failure_text(error: BaseException, *, quotes: bool = True) -> str:
    """Describe the error with which middleware rejected or failed a call.

    Args:
        error: The exception that middleware raised.
        quotes: Whether an error's own message may be shown: once the call was made, it may quote the result.
    """
    if isinstance(error, CallRefused | TookTooLong):
        return recordable_text(str(error))
    return f"middleware raised {error_text(error) if quotes else _error_name(error)}"


def _withheld(result: ToolResult, error: BaseException) -> ToolResult:
    """Return the result of a call that was made, without its content."""
    message = (
        f"the call was made and ended as {result.status}; its result is withheld: {_failure_text(error, quotes=False)}"
    )
    return ToolResult(message, result.status)


def _error_name(error: BaseException) -> str:
    """Return the type and the source location of an error, without its message."""
    error = error.__cause__ or error if isinstance(error, StandIn) else error
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"
