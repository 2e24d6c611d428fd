"""Reads the log of a thread as a recording."""

from collections.abc import Sequence
from operator import attrgetter

from holdfast.core.budget.budget import Amounts
from holdfast.core.log import events as ev
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.run.fold.evolve import evolve
from holdfast.core.run.state.state import RunState
from holdfast.errors import NotPlayable
from holdfast.evaluation.compare.recording import (
    RecordedDecision,
    RecordedInput,
    RecordedReply,
    RecordedResult,
    Recording,
    without_addresses,
)
from holdfast.evaluation.compare.trajectory import trajectory_of


def read_recording(events: Sequence[ev.AgentEvent]) -> Recording:
    """Extract from the log of a thread the recording that feeds its rerun.

    Args:
        events: All events, verified.

    Raises:
        NotPlayable: The log is that of a fork or of a sub-agent, or has no task.
    """
    recorder = _Recorder()
    for event in events:
        recorder.take(event)
    if recorder.started is None or recorder.task is None:
        raise NotPlayable("its log has no task")
    loaded = recorder.loaded
    return Recording(
        thread=recorder.started.thread,
        task=recorder.task.content,
        by=recorder.task.by,
        agent=loaded.spec.name if loaded else recorder.started.agent or "",
        idle_limit=recorder.started.idle_limit,
        when_blocked=recorder.started.when_blocked,
        trust=recorder.started.trust,
        budget=loaded.budget if loaded else None,
        context=recorder.started.context,
        conversation=recorder.started.conversation,
        workspace=loaded.workspace if loaded else "",
        recalled=recorder.recalled,
        spec=loaded.spec if loaded else None,
        inputs=tuple(recorder.inputs.values()),
        replies=tuple(recorder.replies),
        summaries=tuple(recorder.summaries),
        # Sorted by call, because calls of one reply end in any order.
        results={digest: tuple(sorted(each, key=attrgetter("call"))) for digest, each in recorder.results.items()},
        decisions={digest: tuple(decisions) for digest, decisions in recorder.decisions.items()},
        unblocked=tuple(recorder.unblocked),
        extensions=tuple(recorder.extensions),
        trajectory=trajectory_of(events),
    )


class _Recorder:
    """Collects the recording from the events of a log, in their order."""

    def __init__(self) -> None:
        self.started: ev.RunStarted | None = None
        self.task: RecordedInput | None = None
        self.loaded: ev.AgentLoaded | None = None
        self.recalled: tuple[RecalledTier, ...] = ()
        self.inputs: dict[int, RecordedInput] = {}
        self.replies: list[RecordedReply] = []
        self.summaries: list[str] = []
        self.results: dict[str, list[RecordedResult]] = {}
        self.decisions: dict[str, list[RecordedDecision]] = {}
        self.unblocked: list[str] = []
        self.extensions: list[Amounts] = []
        self._state = RunState()
        self._asked: dict[str, str] = {}
        """Request id → digest of the LLM's call."""
        self._requested: dict[int, str] = {}
        """Call number → the same digest."""
        self._calls: dict[int, int] = {}
        """Call number → the index of the LLM's call, from 1."""
        self._blocked = ""

    def take(self, event: ev.AgentEvent) -> None:
        """Take the next event."""
        before, self._state = self._state, evolve(self._state, event)
        match event:
            case ev.RunForked():
                raise NotPlayable(f"it is a fork; rerun the thread that it was forked from, {event.point.thread}")
            case ev.RunStarted() if event.lineage:
                raise NotPlayable(f"it is a sub-agent's; rerun the thread that started it, {event.lineage.parent}")
            case ev.RunStarted():
                self.started = self.started or event
            case ev.AgentLoaded():
                self.loaded = self.loaded or event
            case ev.MemoryRecalled():
                self.recalled = self.recalled or event.tiers
            case ev.UserMessageReceived() | ev.TaskRefined():
                self._sent(event, busy=not before.awaits_message)
            case ev.MessageTaken() if event.message in self.inputs and self.inputs[event.message].during:
                during = max(1, len(self.replies))
                self.inputs[event.message] = self.inputs[event.message].model_copy(update={"during": during})
            case ev.LLMReplied():
                reply = {name: getattr(event, name) for name in RecordedReply.model_fields}
                self.replies.append(RecordedReply(**reply))
            case ev.ContextCompacted():
                self.summaries.append(event.summary)
            case ev.RunBlocked():
                self._blocked = event.cause
            case ev.RunUnblocked():
                self.unblocked.append(self._blocked)
            case ev.BudgetExtended():
                self.extensions.append(event.more)
            case _:
                self._take_call(event)

    def _sent(self, event: ev.UserMessageReceived | ev.TaskRefined, *, busy: bool) -> None:
        refinement = event.kind if isinstance(event, ev.TaskRefined) else None
        content = event.text if isinstance(event, ev.TaskRefined) else without_addresses(event.content)
        sent = RecordedInput(content=content, by=event.by, refinement=refinement)
        if isinstance(event, ev.UserMessageReceived) and event.task:
            if self.task is None:
                self.task = sent
                return
            busy = False  # it continues a closed thread
        if isinstance(event, ev.UserMessageReceived) or event.call is None:
            self.inputs[event.position] = sent.model_copy(update={"during": max(1, len(self.replies)) if busy else 0})

    def _take_call(self, event: ev.AgentEvent) -> None:
        match event:
            case ev.ToolCallRequested(number=number):
                self._requested[number] = event.call.digest
                if not event.own:
                    self._calls[number] = len(self._calls) + 1
            case ev.ApprovalRequested(request=request):
                self._asked[request.id] = self._requested.get(request.number, "")
            case ev.DecisionReceived(outcome="accepted" | "judged_anew") if event.request in self._asked:
                decision = {name: getattr(event, name) for name in RecordedDecision.model_fields}
                self._decided(event.request, RecordedDecision(**decision))
            case ev.ApprovalExpired():
                reason = "the request expired"
                self._decided(event.request, RecordedDecision(decision=event.decision, by="", reason=reason))
            case ev.ToolCallFinished(number=number) if number in self._calls:
                self._finished(event, self._requested[number])
            case _:
                pass

    def _decided(self, request: str, decision: RecordedDecision) -> None:
        self.decisions.setdefault(self._asked.get(request, ""), []).append(decision)

    def _finished(self, event: ev.ToolCallFinished, requested: str) -> None:
        if event.status == "denied" or (event.status == "cannot" and event.scope is None):
            return  # rejected before a tool ran
        call = self._state.calls.find(event.number)
        digest = call.call.digest if call else requested
        self.results.setdefault(digest, []).append(_result(event, call=self._calls[event.number]))


_AS: dict[ev.ToolStatus, ev.ToolStatus] = {
    "answered": "ok",
    "unknown": "failed",
    "undone": "failed",
    "cancelled": "failed",
}
"""The status with which a rerun repeats results whose own status only people or the end of a run can cause."""


def _result(event: ev.ToolCallFinished, *, call: int) -> RecordedResult:
    return RecordedResult(
        call=call,
        status=_AS.get(event.status, event.status),
        content=without_addresses(event.content),
        trust=event.trust,
        scope=event.scope,
        seconds=None if event.until is None else (event.until - event.at).total_seconds(),
        missing=event.missing,
    )
