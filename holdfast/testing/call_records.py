"""The tool calls of a log, each with its outcome."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.core.log.events import (
    AgentEvent,
    AgentLoaded,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    ToolStatus,
)
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect


@dataclass(frozen=True)
class CallRecord:
    """A tool call that the LLM made."""

    tool: str
    arguments: dict[str, Any] | str
    """The arguments by name, as they ran if a person edited them; the LLM's text if that is not a JSON object."""
    effect: Effect
    """The tool's declared class of effect."""
    key: str = ""
    """The effect key (`ToolContext.key`); empty for a call that has not run."""
    status: ToolStatus | Literal["open"] = "open"
    """The outcome of the call; `open` until it has ended."""
    text: str = ""
    """The result as the LLM reads it."""


def records_of(events: Iterable[AgentEvent]) -> list[CallRecord]:
    """Return the calls of a log, oldest first."""
    effects: dict[str, Effect] = {}
    calls: dict[int, CallRecord] = {}
    state = RunState()
    for event in events:
        state = evolve(state, event)
        match event:
            case AgentLoaded(spec=spec):
                effects |= {tool.name: tool.effect for tool in spec.tools}
            case ToolCallRequested(number=number, call=call):
                effect = effects.get(call.name, Effect.UNSAFE)
                calls[number] = CallRecord(call.name, _arguments(call.arguments), effect)
            case ToolCallStarted(number=number, key=key):
                arguments = state.calls.get(number).call.arguments  # a person may have edited them
                calls[number] = replace(calls[number], key=key, arguments=_arguments(arguments))
            case ToolCallFinished(number=number, status=status):
                calls[number] = replace(calls[number], status=status, text=event.text)
            case _:
                continue
    return list(calls.values())


def effects_among(calls: Iterable[CallRecord]) -> list[CallRecord]:
    """Return the calls that changed the world, or may have changed it."""
    return [call for call in calls if call.key and call.effect is not Effect.READ]


def _arguments(text: str) -> dict[str, Any] | str:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text
