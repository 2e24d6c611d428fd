"""Middleware: code of yours around every LLM call and every tool call of a worker.

    class Timing(Middleware):
        async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
            started = time.monotonic()
            result = await proceed()
            metrics.record(call.tool, time.monotonic() - started)
            return result

1. It runs in the activity, around the call: it may do I/O, and runs again with each attempt.
2. It sees what runs and cannot change it: prompt and arguments are copies. What it returns is what is recorded.
3. `proceed` makes the call, through the middleware further inside, and can be called once.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import AnyMessage, AssistantMessage, Usage
from holdfast.core.tools.effects import Effect
from holdfast.errors import HoldfastError


class CallRefused(HoldfastError):
    """Raised by middleware that refuses a call: the LLM reads why; where it is the LLM's own, the run is blocked."""


class ProceedLLM(Protocol):
    """Makes the LLM call. It can be called once."""

    def __call__(self, *, headers: Mapping[str, str] | None = None) -> "Awaitable[LLMResult]":
        """Make the call, and return its result.

        Args:
            headers: HTTP headers to send besides; those of middleware further inside take precedence.
        """
        ...


class Reader(ABC):
    """Reads the calling run. Reading leaves no trace in its history."""

    @abstractmethod
    async def messages(self) -> list[AnyMessage]:
        """Return the messages that the LLM sees."""

    @abstractmethod
    async def step(self) -> int:
        """Return the number of the step that is under way."""


@dataclass(frozen=True)
class _Call:
    thread: str
    """The thread's id."""
    agent: str
    """The agent's name."""
    attempt: int
    """The attempt of the activity: 1 at first."""
    _reader: Reader = field(repr=False)

    async def messages(self) -> list[AnyMessage]:
        """Read the transcript, as the LLM sees it, without the system message. Costs some milliseconds."""
        return await self._reader.messages()

    async def step(self) -> int:
        """Read the number of the step that is under way, from 1."""
        return await self._reader.step()


@dataclass(frozen=True)
class LLMCall(_Call):
    """An LLM call that is about to be made."""

    compacting: bool
    """It asks for the summary that replaces the transcript (context compaction)."""
    body: bytes = field(repr=False)
    """What is sent, byte for byte."""

    @property
    def request(self) -> dict[str, Any]:
        """A copy of what is sent, decoded."""
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


@dataclass(frozen=True)
class LLMResult:
    """What an LLM call returns."""

    message: AssistantMessage | None
    """The reply; None where the provider's holds none."""
    usage: Usage = field(default_factory=Usage)
    """Tokens; counted by an estimate where the prompt's are 0."""
    llm: str = ""
    """The LLM that replied, as the provider names it."""


ToolWork = Literal["run", "undo", "settle"]
"""Run the tool · undo its effect · find out what became of the effect of a run that was closed."""


@dataclass(frozen=True)
class ToolCall(_Call):
    """A tool call that is about to be made."""

    tool: str
    """The tool's name."""
    effect: Effect
    key: str
    """The effect key, the same on every attempt."""
    number: int
    """The call's number in the thread; 0 for a call that no LLM asked for."""
    work: ToolWork
    _arguments: str = field(repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """A copy of the arguments that were judged and that the tool gets, as JSON."""
        decoded: dict[str, Any] = json.loads(self._arguments)
        return decoded


@dataclass(frozen=True)
class ToolResult:
    """What a tool call returns: all of it, before it is clipped for the log."""

    content: Content
    """Text, or content blocks."""
    status: str = "ok"
    """How the call ended: `ok`, `failed`, `unknown`, …. Middleware sets it for a read that it does not make, only."""


ProceedTool = Callable[[], Awaitable[ToolResult]]
"""Makes the tool call. It can be called once."""


class Middleware:
    """Base of your own middleware: override one of the methods, or both."""

    async def around_llm(self, call: LLMCall, proceed: ProceedLLM) -> LLMResult:
        """Surround an LLM call.

        Return the result of `proceed()`, or one of your own: it is recorded, and its tool calls are judged as any.

        Raises:
            CallRefused: The run is blocked, with the message, until a person retries it.
            Exception: Any other is retried with a growing delay, like an outage of the provider.
        """
        return await proceed()

    async def around_tool(self, call: ToolCall, proceed: ProceedTool) -> ToolResult:
        """Surround a tool call.

        Return the result of `proceed()`, or one with another content. Without `proceed()`, the tool does not run: a
        read has the result that is returned, for a call with an effect it is the reason of its failure.

        Raises:
            CallRefused: The call has failed, with the message.
            Exception: Any other does the same, with the error.

        Once the call was made, either withholds its result: the LLM and the log have how the call ended, and why its
        content is missing.
        """
        return await proceed()
