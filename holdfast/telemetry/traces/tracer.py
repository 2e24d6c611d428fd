"""Makes the spans of a thread from its events: a trace for each activation, and one span that sums up each run.

1. An activation ends where the run begins to wait, or after `MOST_STEPS` steps, so that a trace is exported soon after
   it happened. Its root has links to the activation before, to the run, and to its caller.
2. The tracer can stop after any activation: `Tracer.progress` is what it needs to continue with the next event.
3. Content (messages, arguments, results, reasons, people's names) is left out unless it is asked for.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from holdfast.core.base.canonical import exact_json
from holdfast.core.base.trace_context import SpanContext
from holdfast.core.llm.blocks import Content, text_of
from holdfast.core.llm.messages import AssistantMessage, Usage
from holdfast.core.log import events as ev
from holdfast.telemetry.traces import names
from holdfast.telemetry.traces.progress import WORK, OpenCall, Progress, Totals
from holdfast.telemetry.traces.spans import (
    Link,
    Span,
    SpanEvent,
    Trace,
    Value,
    activation_context,
    child_context,
    run_context,
)

MOST_STEPS = 200
"""Steps after which an activation ends even if the run does not wait."""

MOST_EVENTS = 128
"""The most events of a span, as in OpenTelemetry's own limits."""

CONTENT_CHARS = 16_000
"""The most characters of a text, if content is recorded."""

_WORD = re.compile(r"[A-Za-z_-]{1,40}")

_PROGRESS: TypeAdapter[Progress] = TypeAdapter(Progress)


def spans_of(events: Iterable[ev.AgentEvent], thread: str, *, content: bool = False) -> Iterator[Trace]:
    """Yield the traces of a whole log, in its order.

    Args:
        events: The thread's events, from the first one on.
        thread: The thread's id. Events of another thread, from which it was forked, yield nothing.
        content: Record what was said, too.
    """
    tracer = Tracer(thread, content=content)
    for event in events:
        yield from tracer.take(event)
    yield from tracer.finish(all_of_it=True)


@dataclass
class _Activation:
    """What an activation has shown so far."""

    start: datetime | None = None
    worked: bool = False
    spans: list[Span] = field(default_factory=list)
    events: list[SpanEvent] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    failed: str = ""


class Tracer:
    """Makes spans from the events of one thread, in their order.

    Args:
        thread: The thread's id.
        progress: From an earlier tracer, as JSON; None to begin with the first event.
        content: Record what was said, too.
    """

    def __init__(self, thread: str, progress: Any = None, *, content: bool = False) -> None:
        self._thread = thread
        self._content = content
        self._now = _Activation()
        self._state = Progress() if progress is None else _PROGRESS.validate_python(progress)
        self._after: Any = None
        self._waits = False
        self._last = -1
        self._next = 0

    @property
    def progress(self) -> Any:
        """What the next tracer needs, after the last activation that ended, as JSON; None if none did."""
        return self._after

    @property
    def position(self) -> int:
        """The position after the last activation that ended: the next tracer continues with the event there."""
        return self._next

    @property
    def ahead(self) -> bool:
        """Whether it has taken events from `position` on."""
        return self._last >= self._next

    def take(self, event: ev.AgentEvent) -> Iterator[Trace]:
        """Take the next event; yield the activation that ended before it, and the summary of a run that ended."""
        state, now = self._state, self._now
        if self._last < 0:
            self._next = event.position
        full = isinstance(event, ev.LLMReplied) and now.totals.steps >= MOST_STEPS
        # Events of one workflow task belong together: an unattended run that is blocked fails in the same one.
        if full or (self._waits and now.worked and event.at != state.last_at):
            yield from self._end(event.position)
            now = self._now
        if now.start is None or (self._waits and not now.worked):
            now.start = event.at  # whatever arrives during a wait, the work begins with the last of it
        self._observe(event)
        state.fold(event)
        now.worked = now.worked or event.type in WORK
        self._waits = bool(state.outcome or state.waits_for())

    def finish(self, *, all_of_it: bool = False) -> Iterator[Trace]:
        """Yield what has ended with the last event.

        Args:
            all_of_it: Also yield an activation that is in progress, for a log that is exported as it is.
        """
        if self._now.worked and (self._waits or all_of_it):
            yield from self._end(self._last + 1)

    # Observing events.

    def _observe(self, event: ev.AgentEvent) -> None:
        """Make spans and events of a trace from an event, given the state before it."""
        self._last = event.position
        match event:
            case ev.ToolCallRequested() | ev.VerdictGiven() | ev.ToolCallStarted():
                pass  # most events of a log, so they come first
            case ev.LLMReplied():
                self._chat(event)
            case ev.ContextCompacted():
                self._use(event.usage, event.cost)
                self._note("holdfast.context_compacted", event.at, {"holdfast.messages": event.messages})
            case ev.ToolCallFinished():
                self._tool(event)
            case ev.DecisionReceived():
                self._decision(event)
            case ev.ApprovalRequested() | ev.ReconcileRequested():
                request = event.request
                asked = {names.APPROVAL_REQUEST: request.id, names.APPROVAL_KIND: request.kind}
                self._note("holdfast.approval.requested", event.at, {**asked, names.APPROVAL_RULE: request.rule})
            case ev.RunBlocked():
                self._now.failed = event.cause
                self._note("holdfast.run.blocked", event.at, {names.CAUSE: event.cause})
            case ev.RunUnblocked():
                self._now.failed = ""
            case ev.UserMessageReceived():
                self._say("user", event.content)
            case ev.TaskRefined():
                self._say("user", event.text)
            case (
                ev.RunReset()
                | ev.EventsLost()
                | ev.RunContinued()
                | ev.RunPaused()
                | ev.RunResumed()
                | ev.BudgetSpent()
            ):
                self._note(f"holdfast.{event.type}", event.at, {})
            case ev.RunFinished():
                self._now.failed = (event.cause or "failed") if event.outcome == "failed" else ""
            case ev.RunForked():
                self._state, self._now = Progress(first=event.position), _Activation(start=event.at)
            case _:
                pass

    def _note(self, name: str, at: datetime, attributes: dict[str, Value]) -> None:
        if len(self._now.events) < MOST_EVENTS:
            self._now.events.append(SpanEvent(name, at, attributes))

    def _say(self, role: str, content: Content) -> None:
        if self._content:
            self._now.said.append({"role": role, "parts": [{"type": "text", "content": _clipped(text_of(content))}]})

    def _use(self, usage: Usage, cost: int | None) -> None:
        used = self._now.totals
        used.input_tokens += usage.prompt_tokens
        used.output_tokens += usage.completion_tokens
        used.cache_read += usage.cached_tokens
        used.cache_write += usage.cache_write_tokens
        used.nano_usd += cost or 0
        used.priced = used.priced or cost is not None

    def _child(self, event: ev.AgentEvent) -> tuple[SpanContext, SpanContext]:
        root = activation_context(self._state.run, self._state.first)
        return root, child_context(root, self._state.run, event.position)

    def _chat(self, event: ev.LLMReplied) -> None:
        """Add the span of an LLM call."""
        self._use(event.usage, event.cost)
        self._now.totals.steps += 1
        root, own = self._child(event)
        requested = self._state.llm or event.llm
        attributes: dict[str, Value] = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: event.endpoint or "openai",
            names.REQUEST_MODEL: requested,
            names.RESPONSE_MODEL: event.llm,
            names.FINISH_REASONS: (_word(event.finish_reason),),
            names.INPUT_TOKENS: event.usage.prompt_tokens,
            names.OUTPUT_TOKENS: event.usage.completion_tokens,
            names.CACHE_READ_TOKENS: event.usage.cached_tokens,
            names.CACHE_WRITE_TOKENS: event.usage.cache_write_tokens,
            names.POSITION: event.position,
            names.ATTEMPT: event.attempt,
        }
        if event.request_id:
            attributes[names.RESPONSE_ID] = event.request_id
        if event.outage:
            attributes[names.FAILED_ATTEMPTS] = event.outage.failed
        if event.endpoint:
            attributes[names.ENDPOINT] = event.endpoint
        if event.cost is not None:
            attributes[names.COST] = event.cost / 1e9
        if self._content and event.message:
            attributes[names.OUTPUT_MESSAGES] = exact_json([_message(event.message, event.finish_reason)])
        start = max(event.at - timedelta(milliseconds=event.duration_ms), self._now.start or event.at)
        span = Span(own, root.span, f"{names.CHAT} {requested}", "client", start, event.at, attributes)
        self._now.spans.append(span)

    def _tool(self, event: ev.ToolCallFinished) -> None:
        """Add the span of a tool call. Its waits are attributes: it begins in the activation in which it ends."""
        call = self._state.calls.pop(event.number, None) or OpenCall("", "", event.at)
        self._now.totals.tool_calls += 1
        root, own = self._child(event)
        attributes: dict[str, Value] = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL: call.tool or "unknown",
            names.TOOL_TYPE: "function",
            names.TOOL_CALL: call.id,
            names.CALL: event.number,
            names.STATUS: event.status,
            names.POSITION: event.position,
        }
        if call.verdict:
            attributes[names.VERDICT] = call.verdict
        if event.adopted:
            attributes[names.ADOPTED] = True
        if event.failures:
            attributes[names.FAILED_ATTEMPTS] = event.failures.count
        attributes |= _approval(call)
        if call.subagent:
            attributes[names.SUBAGENT] = call.subagent
        if self._content:
            attributes[names.TOOL_RESULT] = _clipped(event.text)
        error = (event.cause or event.status) if event.status in ("failed", "unknown", "invalid") else None
        start = max(call.started or event.at, self._now.start or event.at)
        links = () if not call.subagent_run else (_link(run_context(call.subagent_run), "subagent"),)
        span = Span(
            own,
            root.span,
            f"{names.EXECUTE_TOOL} {call.tool or 'unknown'}",
            "internal",
            min(start, event.at),
            event.at,
            attributes | ({names.ERROR: error} if error else {}),
            links,
            error=error,
        )
        self._now.spans.append(span)

    def _decision(self, event: ev.DecisionReceived) -> None:
        attributes: dict[str, Value] = {
            names.APPROVAL_DECISION: event.decision,
            names.APPROVAL_OUTCOME: event.outcome,
            names.APPROVAL_PROOF: event.proof,
        }
        if event.outcome != "unknown_request":  # then the id is whatever its sender wrote
            attributes[names.APPROVAL_REQUEST] = event.request
        if self._content:
            attributes |= {names.APPROVAL_BY: event.by, names.APPROVAL_REASON: _clipped(event.reason)}
        self._note("holdfast.approval.decided", event.at, attributes)

    # Ending an activation.

    def _end(self, position: int) -> Iterator[Trace]:
        """End the activation before `position`."""
        state, now = self._state, self._now
        assert now.start is not None
        waits_for = state.waits_for()
        own = state.thread == self._thread  # else it happened in the thread that this one was forked from
        root = activation_context(state.run, state.first)
        waited = 0.0
        if state.waited_for and state.waiting_since:
            waited = (now.start - state.waiting_since).total_seconds()
            state.waits += 1
            state.waited += waited
        state.activations += 1
        _add(state.totals, now.totals)
        traces = [Trace((self._root(root, waits_for, waited), *now.spans))]
        if state.outcome and state.outcome != "moved":  # then the run continues in another place
            traces.append(Trace((self._summary(root),)))
        state.previous, state.first = root, position
        state.waited_for, state.waiting_since = waits_for, state.last_at
        self._now = _Activation()
        self._next = position
        self._after = json.loads(_PROGRESS.dump_json(state))
        yield from traces if own else ()

    def _root(self, root: SpanContext, waits_for: str, waited: float) -> Span:
        """Return the root span of the activation."""
        state, now = self._state, self._now
        assert state.last_at is not None
        assert now.start is not None
        assert state.summary is not None
        attributes = self._about() | _used(now.totals)
        attributes |= {names.ACTIVATION: state.activations, names.FIRST: state.first, names.LAST: self._last}
        if state.waited_for:
            attributes |= {names.WAITED_FOR: state.waited_for, names.WAITED: waited}
        if waits_for:
            attributes[names.WAITS_FOR] = waits_for
        if state.outcome:
            attributes |= {names.OUTCOME: state.outcome}
        if now.failed:
            attributes |= {names.ERROR: now.failed, names.CAUSE: now.failed}
        if now.said:
            attributes[names.INPUT_MESSAGES] = exact_json(now.said)
        links = [_link(state.summary, "run")]
        if state.previous:
            links.append(_link(state.previous, "previous_activation"))
        if state.caller and state.activations == 1:
            links.append(self._caller(state.caller))
        name = f"{names.INVOKE_AGENT} {state.agent}".strip()
        error, events = now.failed or None, tuple(now.events)
        return Span(root, "", name, "internal", now.start, state.last_at, attributes, tuple(links), events, error=error)

    def _summary(self, last: SpanContext) -> Span:
        """Return the one span of the run's own trace."""
        state = self._state
        assert state.last_at is not None
        assert state.summary is not None
        attributes = self._about() | _used(state.totals)
        attributes |= {names.OUTCOME: state.outcome, names.ACTIVATIONS: state.activations}
        attributes |= {names.WAITS: state.waits, names.WAITED_IN_ALL: state.waited}
        if state.cause:
            attributes[names.CAUSE] = state.cause
        error = (state.cause or "failed") if state.outcome == "failed" else None
        return Span(
            state.summary,
            "",
            f"{names.INVOKE_AGENT} {state.agent}".strip(),
            "internal",
            state.began or state.last_at,
            state.last_at,
            attributes | ({names.ERROR: error} if error else {}),
            (_link(last, "activation"), *((self._caller(state.caller),) if state.caller else ())),
            error=error,
        )

    def _caller(self, span: SpanContext) -> Link:
        """Return the link to the span that caused the start."""
        if not self._state.parent:
            return _link(span, "caller")
        return Link(span, {names.LINK: "parent_run", names.PARENT_CALL: self._state.parent_call})

    def _about(self) -> dict[str, Value]:
        state = self._state
        about: dict[str, Value] = {
            names.OPERATION: names.INVOKE_AGENT,
            names.CONVERSATION: state.thread,
            names.RUN: state.run,
        }
        if state.agent:
            about[names.AGENT] = state.agent
        if state.depth:
            about[names.DEPTH] = state.depth
        if state.schedule:
            about[names.SCHEDULE] = state.schedule
        if state.parent:
            about |= {names.PARENT_THREAD: state.parent, names.PARENT_CALL: state.parent_call}
        return about


def _message(message: AssistantMessage, finish_reason: str) -> dict[str, Any]:
    """Return a reply in the form of the conventions: text, and tool calls with their arguments."""
    parts: list[dict[str, str]] = [{"type": "text", "content": _clipped(message.text)}] if message.text else []
    for call in message.tool_calls:
        own = {"id": call.id, "name": call.name, "arguments": _clipped(call.arguments)}
        parts.append({"type": "tool_call", **own})
    return {"role": "assistant", "parts": parts, "finish_reason": finish_reason}


def _approval(call: OpenCall) -> dict[str, Value]:
    """Return the attributes of the last request about a call."""
    if call.asked is None:
        return {}
    attributes: dict[str, Value] = {
        names.APPROVAL_REQUEST: call.request,
        names.APPROVAL_KIND: call.kind,
        names.APPROVAL_RULE: call.rule,
        names.APPROVAL_REMINDERS: call.reminders,
        names.APPROVAL_ESCALATIONS: call.escalations,
    }
    if call.decision and call.decided:
        attributes[names.APPROVAL_DECISION] = call.decision
        attributes[names.APPROVAL_SECONDS] = (call.decided - call.asked).total_seconds()
        attributes[names.APPROVAL_PROOF] = call.proof
        attributes[names.APPROVAL_EDITED] = call.edited
    return attributes


def _used(totals: Totals) -> dict[str, Value]:
    used: dict[str, Value] = {
        names.STEPS: totals.steps,
        names.TOOL_CALLS: totals.tool_calls,
        names.INPUT_TOKENS: totals.input_tokens,
        names.OUTPUT_TOKENS: totals.output_tokens,
        names.CACHE_READ_TOKENS: totals.cache_read,
        names.CACHE_WRITE_TOKENS: totals.cache_write,
    }
    return used | ({names.COST: totals.nano_usd / 1e9} if totals.priced else {})


def _add(totals: Totals, more: Totals) -> None:
    for name, value in vars(more).items():
        setattr(totals, name, getattr(totals, name) + value if name != "priced" else totals.priced or more.priced)


def _link(to: SpanContext, kind: str) -> Link:
    return Link(to, {names.LINK: kind})


def _word(text: str) -> str:
    """Return a text of a provider that is one word of a protocol; `other` for any other text, which may be content."""
    return text if _WORD.fullmatch(text) else "other"


def _clipped(text: str) -> str:
    return text if len(text) <= CONTENT_CHARS else f"{text[:CONTENT_CHARS]}…"
