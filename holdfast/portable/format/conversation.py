"""A thread as OpenAI-style messages: the whole transcript, in the form of a Chat Completions request."""

import json
from collections.abc import Iterable
from typing import Any

from holdfast.core.agents.agent import AgentSpec
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import decode
from holdfast.core.log.events import AgentEvent, AgentLoaded
from holdfast.core.transcript.prompt import tools_of
from holdfast.core.transcript.transcript import Transcript


def conversation(events: Iterable[AgentEvent]) -> dict[str, Any]:
    """Return `messages`, with the agent's instructions first, and `tools`, in the format of OpenAI's API.

    Args:
        events: All events of the thread.
    """
    transcript, spec, adapter = Transcript(keep_all=True), None, ChatCompletions()
    for event in events:
        transcript.add(event)
        if isinstance(event, AgentLoaded):
            spec = event.spec
    messages = [json.loads(adapter.encode(decode(line))) for line in transcript.messages]
    system = [{"role": "system", "content": spec.instructions}] if spec else []
    return {"messages": system + messages, **_tools(spec)}


def _tools(spec: AgentSpec | None) -> dict[str, Any]:
    if spec is None or not spec.tools:
        return {}
    return {"tools": [{"type": "function", "function": vars(tool)} for tool in tools_of(spec)]}
