"""A run as a trajectory in ATIF, the Agent Trajectory Interchange Format (version 1.4), for tools that read it.

An LLM's reply with the results of its calls is one step. Verdicts, approvals and effects are left out, because the
format has no fields for them.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from holdfast.core.llm.blocks import ReasoningBlock, ToolCall, blocks_of, text_of
from holdfast.core.llm.conversation import conversation_text
from holdfast.core.llm.messages import Usage
from holdfast.core.log import events as ev

SCHEMA: Final = "ATIF-v1.4"
"""https://www.harborframework.com/docs/agents/trajectory-format

The fields follow public descriptions of the format; no validator of it has checked them.
"""

JSON = dict[str, Any]


def trajectory(events: Iterable[ev.AgentEvent], *, version: str) -> JSON:
    """Return the trajectory of a thread.

    Args:
        events: All events of the thread.
        version: The release that exports it.
    """
    built = _Trajectory()
    for event in events:
        built.take(event)
    total = built.usage
    agent: JSON = {"name": built.agent or "unknown", "version": version}
    if built.llm:
        agent["model_name"] = built.llm
    metrics = {
        "total_prompt_tokens": total.prompt_tokens,
        "total_completion_tokens": total.completion_tokens,
        "total_cached_tokens": total.cached_tokens,
        "total_steps": len(built.steps),
    }
    return {
        "schema_version": SCHEMA,
        "session_id": built.thread,
        "agent": agent,
        "steps": built.steps,
        "final_metrics": metrics,
    }


class _Trajectory:
    def __init__(self) -> None:
        self.thread = self.agent = self.llm = ""
        self.steps: list[JSON] = []
        self.usage = Usage()
        self._calls: dict[int, tuple[JSON, str]] = {}
        """Number of a call → its step, and the provider's id."""

    def take(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.RunStarted():
                self.thread = event.thread
                if event.conversation:
                    self._step(event, "user", conversation_text(event.conversation))
            case ev.AgentLoaded():
                self.agent, self.llm = event.spec.name, event.spec.llm
                self._step(event, "system", event.spec.instructions)
            case ev.UserMessageReceived():
                self._step(event, "user", text_of(event.content))
            case ev.TaskRefined():
                self._step(event, "user", event.text, extra={"refinement": event.kind, "by": event.by})
            case ev.ContextCompacted():
                self.usage += event.usage
                self._step(event, "system", event.summary_message)
            case ev.LLMReplied():
                self._reply(event)
            case ev.ToolCallRequested() if not event.own and self.steps:
                self._calls[event.number] = self.steps[-1], event.call.id
            case ev.ToolCallFinished() if event.number in self._calls:
                step, call = self._calls.pop(event.number)
                result = {"source_call_id": call, "content": event.text}
                step.setdefault("observation", {"results": []})["results"].append(result)
            case _:
                pass

    def _reply(self, event: ev.LLMReplied) -> None:
        self.usage += event.usage
        message, usage = event.message, event.usage
        blocks = blocks_of(message.content) if message else ()
        step = self._step(event, "agent", message.text if message else "", model_name=event.llm or self.llm)
        if thought := "".join(block.text for block in blocks if isinstance(block, ReasoningBlock)):
            step["reasoning_content"] = thought
        if calls := [_call(block) for block in blocks if isinstance(block, ToolCall)]:
            step["tool_calls"] = calls
        step["metrics"] = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
        }

    def _step(self, event: ev.AgentEvent, source: str, message: str, **more: Any) -> JSON:
        fields = {name: value for name, value in more.items() if value}
        step = {
            "step_id": len(self.steps) + 1,
            "timestamp": event.at.isoformat(),
            "source": source,
            "message": message,
            **fields,
        }
        self.steps.append(step)
        return step


def _call(call: ToolCall) -> JSON:
    """Return a call as the LLM wrote it; arguments that are not a JSON object are kept as text."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    arguments = arguments if isinstance(arguments, dict) else {"text": call.arguments}
    return {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}
