"""The next request to a thread's LLM: its exact bytes and its parts.

It is built from the recorded agent and events, by the functions that `call_llm` uses
(`holdfast.core.transcript.prompt`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import WorkflowExecutionDescription

from holdfast.client.reading.reader import Note
from holdfast.client.reading.states import decode_lines
from holdfast.client.threads import JSON, Threads
from holdfast.core.agents.agent import AgentSpec
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import Usage, decode, encode
from holdfast.core.log.events import ContextCompacted, LLMReplied, MemoryRecalled
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.run.decide.decide import next_action
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.rules.compaction import SUMMARY_REQUEST
from holdfast.core.run.state.next_actions import Compact
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import describe_call
from holdfast.core.transcript.prompt import Tier, request_prefix, tiers_of
from holdfast.core.transcript.transcript import Transcript
from holdfast.errors import Refused


@dataclass(frozen=True)
class Prompt:
    """The next request to a thread's LLM, as far as it is known."""

    state: RunState
    spec: AgentSpec
    messages: Sequence[bytes]
    """The transcript since the last context compaction, encoded."""
    recalled: tuple[RecalledTier, ...]
    """The memories in these messages."""
    compactions: int
    last: Usage | None
    """The provider's token counts for the last request; None before the first."""
    body: bytes
    """The request body."""
    compacting: bool
    """Whether the request asks for the summary of a context compaction."""

    @property
    def waits(self) -> list[JSON]:
        """The events that must precede the request, in order."""
        state = self.state
        found: list[JSON] = []
        if state.blocked:
            found.append({"kind": "retry", "text": f"{state.blocked.cause}: {state.blocked.message}"})
        if state.freshness.stale_seconds:
            found.append({"kind": "verification", "text": ", ".join(self.spec.verify)})
        for call in state.calls.current:
            if call.phase != "finished":
                found.append({"kind": "result", "call": call.number, "text": describe_call(call.call)})
        for message in state.inbox.waiting:
            found.append({"kind": "message", "message": message.message, "by": message.by, "text": message.text})
        if (state.outcome or state.idle.awaiting) and not state.inbox.waiting:
            found.append({"kind": "say", "text": "somebody says something: the LLM has answered, or the run is over"})
        return found

    @property
    def decoded(self) -> list[JSON]:
        """The messages."""
        return [json.loads(message) for message in self.messages]

    def view(self) -> JSON:
        """Return the prompt as `prompt --json` presents it."""
        tiers = tiers_of(self.spec, self.recalled, self.messages)
        return {
            "thread": self.state.thread,
            "agent": self.spec.name,
            "status": self.state.status,
            "llm": self.spec.llm,
            "spec_hash": self.spec.hash,
            "messages": len(self.messages),
            "compactions": self.compactions,
            "compacting": self.compacting,
            "bytes": len(self.body),
            **_sizes(Tier("request", self.body.decode(), self.spec.limits.compaction_tokens)),
            "provider": self.last.model_dump() if self.last else None,
            "tiers": [{"tier": tier.name, **_sizes(tier), "text": tier.text} for tier in tiers],
            "waits": self.waits,
        }


def _sizes(tier: Tier) -> JSON:
    share = round(tier.tokens / tier.budget, 3) if tier.budget else None
    return {"chars": tier.chars, "tokens": tier.tokens, "budget": tier.budget or None, "share": share}


async def prompt_of(
    threads: Threads, thread: str, *, found: WorkflowExecutionDescription | None = None, note: Note | None = None
) -> Prompt:
    """Return the next request to the thread's LLM.

    Args:
        threads: The namespace's threads.
        thread: The thread id.
        found: The latest run's description, if the caller already has it.
        note: Called with a message when no worker answers; None to raise instead.

    Raises:
        Refused: No worker has loaded the agent yet.
    """
    state, transcript = RunState(thread=thread), Transcript()
    recalled: tuple[RecalledTier, ...] = ()
    last: Usage | None = None
    async for event in decode_lines(threads.reader.lines(thread, 0, found=found, note=note)):
        state = evolve(state, event)
        transcript.add(event)
        match event:
            case MemoryRecalled():
                recalled += event.tiers
            case ContextCompacted():  # the summary message has the standing memories
                standing = state.context.standing_memory
                recalled = (RecalledTier(tier="standing", text=standing),) if standing else ()
            case LLMReplied():
                last = event.usage
    spec = state.spec
    if spec is None:
        raise Refused(f"thread {thread!r} has no prompt yet: no worker has loaded its agent")
    adapter = ChatCompletions()
    base, messages, sent = transcript.base, transcript.messages, transcript.messages
    if compacting := isinstance(action := next_action(state, at=state.updated_at), Compact) and action.asking:
        sent = [*(messages[: base.shown] if action.answered_only else messages), encode(SUMMARY_REQUEST)]
    encoded = [adapter.encode(decode(line)) for line in sent]
    return Prompt(
        state=state,
        spec=spec,
        messages=messages,
        recalled=recalled,
        compactions=base.compactions,
        last=last,
        body=adapter.body(request_prefix(spec, adapter), encoded, calls=not compacting),
        compacting=compacting,
    )
