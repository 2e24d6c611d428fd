"""A run without Temporal: `holdfast.decide` carried out in plain Python, for the tests of the pure core."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.agent import AgentSpec, Limits, ToolSpec
from holdfast.approval import Decision, DecisionKind
from holdfast.contracts import LLMReply, ToolOutcome
from holdfast.decide import next_action, on_decision, on_outcome, on_reply
from holdfast.effects import Effect, effect_key
from holdfast.events import AgentEvent, AgentLoaded, DecisionReceived, EventLog, RunStarted, ToolCallStarted
from holdfast.events import UserMessageReceived as UserMessage
from holdfast.messages import AssistantMessage, ToolCall, Usage
from holdfast.policy import Policy, allow, ask, deny
from holdfast.state import RunState, evolve
from holdfast.transcript import Transcript

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def tool_spec(name: str, effect: Effect = Effect.READ) -> ToolSpec:
    """A tool without parameters."""
    return ToolSpec(name=name, description=name, parameters={"type": "object"}, effect=effect, timeout=5)


def agent_spec(**changes: Any) -> AgentSpec:
    """An agent with a tool for each verdict: `look` runs, `pay` asks, `wipe` is denied."""
    values: dict[str, Any] = {
        "name": "agent",
        "instructions": "Work.",
        "tools": (tool_spec("look"), tool_spec("pay", Effect.UNSAFE), tool_spec("wipe", Effect.UNSAFE)),
        "policy": Policy(rules=(deny("wipe", reason="never"), allow("look"), ask("pay", reason="money"))),
        "llm": "scripted",
        "limits": Limits(max_steps=50, max_rejected_replies=3),
    }
    return AgentSpec(**(values | changes))


def calls(*names: str, first: int = 0) -> LLMReply:
    """A reply that calls tools, each without arguments."""
    made = tuple(ToolCall(id=f"c{first + index}", name=name, arguments="{}") for index, name in enumerate(names))
    return LLMReply(message=AssistantMessage(tool_calls=made), usage=Usage(prompt_tokens=10, completion_tokens=1))


def says(text: str) -> LLMReply:
    """A reply without calls: the result."""
    return LLMReply(message=AssistantMessage(content=text), usage=Usage(prompt_tokens=10, completion_tokens=1))


@dataclass
class Run:
    """Folds events as the workflow does."""

    spec: AgentSpec = field(default_factory=agent_spec)
    log: EventLog = field(default_factory=EventLog)
    state: RunState = field(default_factory=RunState)
    transcript: Transcript = field(default_factory=Transcript)

    def __post_init__(self) -> None:
        self.record(RunStarted(thread="t", run_id="r", agent=None), UserMessage(content="the task"))
        self.record(AgentLoaded(spec=self.spec, spec_hash=self.spec.hash, workspace="/w"))

    def record(self, *events: AgentEvent) -> None:
        """Append and fold."""
        for event in events:
            stamped = self.log.append(event, at=NOW)
            self.state = evolve(self.state, stamped)
            self.transcript.add(stamped)

    @property
    def next(self) -> Any:
        """What the run would do next."""
        return next_action(self.state)

    def reply(self, reply: LLMReply) -> None:
        """The LLM answers."""
        self.record(*on_reply(self.state, reply, shown=len(self.transcript.messages), at=NOW))

    def start(self) -> tuple[int, ...]:
        """Start what is cleared; returns the calls' numbers."""
        numbers = tuple(call.number for call in self.state.calls if call.phase == "cleared")
        for number in numbers:
            call_digest = self.state.call(number).call.digest
            key = effect_key(thread="t", first_run_id="r", number=number, call_digest=call_digest)
            self.record(ToolCallStarted(number=number, key=key))
        return numbers

    def finish(self, number: int, content: str = "done", status: str = "ok") -> None:
        """A tool call ends."""
        outcome = ToolOutcome.model_validate({"status": status, "content": content})
        self.record(*on_outcome(self.state, number, outcome, at=NOW))

    def decide(self, request: str, decision: DecisionKind = "approve", **more: Any) -> DecisionReceived:
        """A person decides."""
        received, consequences = on_decision(
            self.state, Decision(decision=decision, request=request, by="alice", **more)
        )
        self.record(received, *consequences)
        return received

    def messages(self) -> list[dict[str, Any]]:
        """The transcript, decoded."""
        return [json.loads(message) for message in self.transcript.messages]

    def types(self) -> list[str]:
        """The types of all events."""
        return [event.type for event in self.log.events]
