"""Compare two logs: two threads, or one thread at two events. A pure function of their events.

Two logs agree up to the last events with equal digests, because a digest covers all events before it. The comparison
lists each log's later messages, calls with their verdicts and results, and token usage.
"""

import json
from collections.abc import Sequence
from typing import Any

from holdfast.core.base.models import Frozen
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    ContextCompacted,
    LLMReplied,
    ToolCallFinished,
    ToolCallRequested,
    VerdictGiven,
)
from holdfast.core.transcript.transcript import Transcript


class ComparedCall(Frozen):
    """A call in one of the logs."""

    number: int
    tool: str
    arguments: str
    verdict: str = ""
    rule: str = ""
    """The rule that gave the verdict."""
    status: str = ""
    """The status of its result; empty if it has none."""


class ComparedCost(Frozen):
    """The token usage of one LLM."""

    llm: str
    usage: Usage


class DiffSide(Frozen):
    """The part of one log after the common events."""

    events: int
    """How many events the whole log has."""
    messages: tuple[dict[str, Any], ...] = ()
    """Messages between people, agent and tools, as `transcript` shows them."""
    calls: tuple[ComparedCall, ...] = ()
    steps: int = 0
    """Number of LLM replies."""
    costs: tuple[ComparedCost, ...] = ()
    """Token counts by LLM."""

    @property
    def usage(self) -> Usage:
        """The total of all token counts."""
        return sum((cost.usage for cost in self.costs), Usage())


class Comparison(Frozen):
    """The comparison of two logs."""

    common: int
    """How many events both logs begin with: the first difference is at this position."""
    first: DiffSide
    second: DiffSide

    @property
    def same(self) -> bool:
        """Whether the logs are equal."""
        return self.common == self.first.events == self.second.events


def compare(first: Sequence[AgentEvent], second: Sequence[AgentEvent]) -> Comparison:
    """Compare two logs.

    Args:
        first: The events of a thread from the first one on, up to any of them.
        second: The events of another thread, or of the same thread up to another event.
    """
    common = 0
    for one, other in zip(first, second, strict=False):
        if one.digest != other.digest:
            break
        common += 1
    return Comparison(common=common, first=_side(first, common), second=_side(second, common))


def _side(events: Sequence[AgentEvent], common: int) -> DiffSide:
    transcript = Transcript(keep_all=True)
    for event in events[:common]:
        transcript.add(event)
    shared = transcript.length
    for event in events[common:]:
        transcript.add(event)
    own, usage = events[common:], _usage(events, common)
    return DiffSide(
        events=len(events),
        messages=tuple(json.loads(line) for line in transcript.messages[shared:]),
        calls=_calls(own),
        steps=sum(isinstance(event, LLMReplied) for event in own),
        costs=tuple(ComparedCost(llm=llm, usage=each) for llm, each in usage.items()),
    )


def _calls(events: Sequence[AgentEvent]) -> tuple[ComparedCall, ...]:
    calls: dict[int, ComparedCall] = {}
    for event in events:
        match event:
            case ToolCallRequested(own=False):
                made = event.call
                calls[event.number] = ComparedCall(number=event.number, tool=made.name, arguments=made.arguments)
            case VerdictGiven() if call := calls.get(event.number):
                verdict = {"verdict": event.verdict, "rule": event.rule}
                calls[event.number] = call.model_copy(update=verdict)
            case ToolCallFinished() if call := calls.get(event.number):
                calls[event.number] = call.model_copy(update={"status": event.status})
            case _:
                pass
    return tuple(calls.values())


def _usage(events: Sequence[AgentEvent], common: int) -> dict[str, Usage]:
    """Return the token counts by LLM of the events from `common` on."""
    usage: dict[str, Usage] = {}
    llm = ""
    for position, event in enumerate(events):
        if isinstance(event, AgentLoaded):
            llm = event.spec.llm
        if position >= common and isinstance(event, LLMReplied | ContextCompacted):
            usage[llm] = usage.get(llm, Usage()) + event.usage
    return usage
