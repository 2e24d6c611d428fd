"""Middleware: your own code around every LLM call and every tool call of a worker.

    class Timing(Middleware):
        async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
            started = time.monotonic()
            result = await proceed()
            metrics.record(call.tool, time.monotonic() - started)
            return result

1. It runs in the activity, around the call: it may do I/O, and runs again on each attempt.
2. It sees the call but cannot change it: prompt and arguments are copies. Its return value is recorded.
3. `proceed` makes the call, through the inner middleware, and can be called once.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel

from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, Usage
from holdfast.core.tools.effects import Effect
from holdfast.core.tools.typed_context import read_context
from holdfast.errors import HoldfastError

ModelT = TypeVar("ModelT", bound=BaseModel)


class CallRefused(HoldfastError):
    """Raised by middleware to reject a call. For a tool call, the LLM reads the message; for an LLM call, the run is
    blocked.
    """


class ProceedLLM(Protocol):
    """Makes the LLM call. It can be called once."""

    def __call__(self, *, headers: Mapping[str, str] | None = None) -> "Awaitable[LLMResult]":
        """Make the call, and return its result.

        Args:
            headers: Additional HTTP headers; those of inner middleware take precedence.
        """
        ...


class Reader(ABC):
    """Reads the calling run. Reading leaves no trace in its history."""

    @abstractmethod
    async def messages(self) -> list[AnyMessage]:
        """Return the messages that the LLM sees."""

    @abstractmethod
    async def step(self) -> int:
        """Return the number of the current step."""

    @abstractmethod
    async def context(self) -> dict[str, Any] | None:
        """Return the typed context of the run; None if it has none."""


@dataclass(frozen=True)
class _Call:
    thread: str
    """The thread's id."""
    agent: str
    """The agent's name."""
    attempt: int
    """The number of the activity's attempt, from 1."""
    _reader: Reader = field(repr=False)

    async def messages(self) -> list[AnyMessage]:
        """Read the transcript, as the LLM sees it, without the system message. Costs some milliseconds."""
        return await self._reader.messages()

    async def step(self) -> int:
        """Read the number of the current step, from 1."""
        return await self._reader.step()

    async def context(self, model: type[ModelT]) -> ModelT:
        """Read the typed context of the run, as this model. Costs some milliseconds unless the tool wants it, too.

        Raises:
            ContextInvalid: The run has no context that fits the model.
        """
        return read_context(model, await self._reader.context() or {}, more=True)


@dataclass(frozen=True)
class LLMCall(_Call):
    """An LLM call that is about to be made."""

    compacting: bool
    """Whether it requests the summary that replaces the transcript (context compaction)."""
    body: bytes = field(repr=False)
    """The request body, byte for byte."""

    @property
    def request(self) -> dict[str, Any]:
        """A copy of the request body, decoded."""
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


@dataclass(frozen=True)
class LLMResult:
    """The result of an LLM call."""

    message: AssistantMessage | None
    """The reply; None if the provider's response contains none."""
    usage: Usage = field(default_factory=Usage)
    """Tokens; estimated if the prompt's are 0."""
    llm: str = ""
    """The LLM that replied, as the provider names it."""


ToolWork = Literal["run", "undo", "settle"]
"""Run the tool · undo its effect · determine the outcome of an effect of a closed run."""


@dataclass(frozen=True)
class ToolCall(_Call):
    """A tool call that is about to be made."""

    tool: str
    """The tool's name."""
    effect: Effect
    key: str
    """The effect key, the same on every attempt."""
    number: int
    """The call's number in the thread; 0 for a call that no LLM requested."""
    work: ToolWork
    _arguments: str = field(repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """A copy of the arguments that were judged and that the tool receives, as JSON."""
        decoded: dict[str, Any] = json.loads(self._arguments)
        return decoded


@dataclass(frozen=True)
class ToolResult:
    """The complete result of a tool call, before it is clipped for the log."""

    content: Content
    """Text, or content blocks."""
    status: str = "ok"
    """How the call ended: `ok`, `failed`, `unknown`, …. Middleware may set it only for a read that it does not make."""
    missing: str = ""
    """The part that is missing from a partial result (`Partial`). If middleware returns a result without it, the LLM
    still reads that the result is partial."""


ProceedTool = Callable[[], Awaitable[ToolResult]]
"""Makes the tool call. It can be called once."""


class Middleware:
    """Base class of middleware: override one of the methods, or both."""

    streams: bool = False
    """Whether replies may be streamed to readers although the class overrides `around_llm`. Set it to True if it
    returns each reply as it is: what readers have seen cannot be replaced or withheld any more."""

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Wrap an LLM call.

        Return the result of `proceed()`, or your own: it is recorded, and its tool calls are judged like any others.

        Raises:
            CallRefused: The run is blocked with the message until a person retries it.
            Exception: Any other is retried with a growing delay, like an outage of the provider.
        """
        return await proceed()

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Wrap a tool call.

        Return the result of `proceed()`, or one with different content. Without `proceed()`, the tool does not run: the
        returned result becomes a read's result, or the reason why a call with an effect failed.

        Raises:
            CallRefused: The call fails with the message.
            Exception: The call fails with the error.

        Once the call was made, either exception withholds its result: the LLM and the log get how the call ended, and
        why its content is missing.
        """
        return await proceed()
