"""Verify the signatures of results in a log: which node made each LLM and tool call.

A signature by a known node has to fit the result that carries it. The id of an unknown node is only a claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.audit.judge.consequences import RETURNING
from holdfast.audit.judge.events import IllegalEvent, as_outcome
from holdfast.core.llm.blocks import ToolCall, strip_heading
from holdfast.core.llm.messages import AssistantMessage
from holdfast.core.log import events as ev
from holdfast.core.run.contracts import signed_results as sr
from holdfast.core.run.contracts.llm_calls import LLMReply
from holdfast.core.run.decide.reactions import UNDONE
from holdfast.core.run.state.features import SIGNED_RESULTS
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.triggers import PollTrigger
from holdfast.core.transcript.transcript import Transcript

NodeKeys = Mapping[str, datetime | None]
"""Public keys of nodes, each with the time from which its signatures do not count, or None."""

Result = (
    ev.LLMReplied
    | ev.ContextCompacted
    | ev.ToolCallFinished
    | ev.ReconcileRequested
    | ev.AnswerRequested
    | ev.WaitPolled
)


@dataclass(frozen=True)
class MadeCall:
    """An LLM or tool call, and the node that made it."""

    position: int
    """The position of the event with its result."""
    call: int | None
    """The number of the tool call; None for an LLM call."""
    node: str
    """The id of the node that the result names; empty if it has no signature."""
    key: str
    """The public key of the node, whose signature was verified; empty if the key is not known."""
    attempt: int
    """The number of the attempt that returned the result; 0 without a signature."""


@dataclass
class SignedResults:
    """The signed results of a log, in order.

    Args:
        keys: The keys of known nodes.
        transcript: The transcript before the first event; None if it is not known. Then signatures of LLM calls are not
            verified.
    """

    keys: NodeKeys = field(default_factory=dict)
    transcript: Transcript | None = field(default_factory=Transcript)
    calls: list[MadeCall] = field(default_factory=list)
    """The calls that nodes made, so far."""
    _changes: dict[int, ev.ContextUpdated] = field(default_factory=dict)
    """The change of the typed context that the call with this number has just made."""

    def take(self, state: RunState, event: ev.AgentEvent) -> None:
        """Verify the signature of the next event.

        Args:
            state: The state before the event.
            event: The event.

        Raises:
            IllegalEvent: A known node did not sign this result, or the run's feature level has no signatures.
        """
        if isinstance(event, ev.ContextUpdated):
            self._changes[event.number] = event
        elif isinstance(event, Result) and (event.signed or _is_made(state, event)):
            if event.signed and state.features < SIGNED_RESULTS:
                raise IllegalEvent("results of this run's feature level have no signature")
            self.calls.append(self._verified(state, event))
        if self.transcript is not None:
            self.transcript.add(event)

    def _verified(self, state: RunState, event: Result) -> MadeCall:
        number = None if isinstance(event, ev.LLMReplied | ev.ContextCompacted) else _number(event)
        if not event.signed:
            return MadeCall(event.position, number, "", "", 0)
        signed = sr.read_signature(event.signed)
        if signed is None:
            raise IllegalEvent("its signature has no valid form")
        known = {key: until for key, until in self.keys.items() if sr.node_id(key) == signed.node}
        statements = self._statements(state, event) if known else ()
        by = next((key for key in known for each in statements if sr.is_signed_by(key, signed, each)), "")
        if statements and not by:
            raise IllegalEvent(f"node {signed.node} did not sign this result of this call")
        until = known.get(by)
        key = "" if until is not None and event.at >= until else by
        return MadeCall(event.position, number, signed.node, key, signed.attempt)

    def _statements(self, state: RunState, event: Result) -> tuple[sr.Statement, ...]:
        """Return what the signature may cover; nothing if the log does not show it."""
        match event:
            case ev.LLMReplied() | ev.ContextCompacted():
                return self._replies(state, event)
            case ev.WaitPolled():
                wait = state.dormancy.find(event.number)
                assert wait is not None
                polled = state.calls.get(event.number).call
                if isinstance(wait.trigger, PollTrigger):
                    polled = ToolCall(id="", name=wait.trigger.tool, arguments=wait.trigger.arguments)
                poll = sr.poll_statement(
                    thread=state.thread,
                    key=state.effect_key(event.number, polled),
                    poll=event.poll,
                    status=event.status,
                    seen=event.seen,
                    duration_ms=event.duration_ms,
                )
                return (poll,)
            case _:
                return (self._outcome(state, event),)

    def _replies(self, state: RunState, event: ev.LLMReplied | ev.ContextCompacted) -> tuple[sr.Statement, ...]:
        if self.transcript is None:
            return ()
        place = {"thread": state.thread, "first_run_id": state.origin.first_run_id}
        if isinstance(event, ev.LLMReplied):
            fields = {name: getattr(event, name) for name in LLMReply.model_fields if name in type(event).model_fields}
            prompt = self.transcript.ref(state.spec_hash).digest
            return (sr.reply_statement(LLMReply(**fields), **place, prompt=prompt),)
        message = AssistantMessage(content=event.summary)
        summary = LLMReply(message=message, usage=event.usage, outage=event.outage, cost=event.cost)
        refs = (self.transcript.ref(state.spec_hash, shown=shown) for shown in (False, True))
        return tuple(sr.summary_statement(summary, **place, prompt=ref.digest) for ref in refs)

    def _outcome(
        self, state: RunState, event: ev.ToolCallFinished | ev.ReconcileRequested | ev.AnswerRequested
    ) -> sr.Statement:
        number = _number(event)
        call, changes = state.calls.get(number), self._changes.pop(number, None)
        outcome = as_outcome(event)
        heading = UNDONE if call.undo else call.people_note
        if isinstance(event, ev.ToolCallFinished) and heading:
            outcome = outcome.model_copy(update={"content": strip_heading(heading, outcome.content)})
        return sr.outcome_statement(
            outcome.model_copy(update={"changes": changes.changes if changes else None}),
            thread=state.thread,
            key=state.effect_key(number, call.call),
            epoch=call.epoch,
            undo=call.undo,
        )


def _number(event: ev.ToolCallFinished | ev.ReconcileRequested | ev.AnswerRequested | ev.WaitPolled) -> int:
    return event.request.number if isinstance(event, ev.ReconcileRequested | ev.AnswerRequested) else event.number


def _is_made(state: RunState, event: Result) -> bool:
    """Whether a node made the call that the event ends, and so may have signed its result."""
    if isinstance(event, ev.ContextCompacted):
        return False  # the run may have taken an earlier summary again
    if isinstance(event, ev.LLMReplied | ev.WaitPolled):
        return True
    number = _number(event)
    returned = any(call.number == number and call.phase in RETURNING for call in state.calls.current)
    by_run = state.carries_out(number) or state.dormancy.is_asleep(number)
    return returned and not by_run and getattr(event, "status", "") != "cancelled"
