"""A thread without Temporal: `holdfast.core.run.machine.machine` over any number of Temporal runs, for the tests of the
pure core.

A run's inputs and outputs pass through JSON, as in Temporal; the permanent record is a list of lines. The invariants
of every thread are asserted here after each input.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from holdfast.activities.signed_results import statement_of
from holdfast.core.agents.agent import AgentSpec, Limits
from holdfast.core.authority.policy import Policy, allow, ask, deny
from holdfast.core.authority.previews import CallPreview
from holdfast.core.authority.signatures import SigningKey
from holdfast.core.authority.statements import DecisionKind
from holdfast.core.base.canonical import GENESIS, chain
from holdfast.core.base.models import Frozen
from holdfast.core.budget.account import TokenPrice
from holdfast.core.llm.blocks import ToolCall
from holdfast.core.llm.chat_completions import ChatCompletions
from holdfast.core.llm.messages import AssistantMessage, Usage, decode
from holdfast.core.llm.outages import Outage
from holdfast.core.log.event_log import EventLog, event_line, first_altered
from holdfast.core.log.events import AgentEvent, UserMessageReceived
from holdfast.core.log.fork_point import ForkPoint
from holdfast.core.log.import_point import ImportPoint
from holdfast.core.log.stored_lines import read_lines, run_events
from holdfast.core.memory.recalled import RecalledTier
from holdfast.core.run.contracts.commands import Call, Failure, Result, Sleep, Stop
from holdfast.core.run.contracts.error_types import LLM_LOST, NOT_SETTLED
from holdfast.core.run.contracts.llm_calls import LLMFailed, LLMReply, LLMRequest
from holdfast.core.run.contracts.loading import (
    AgentRequest,
    EffectsRequest,
    LoadedAgent,
    LoadedThread,
    PastEffects,
    ThreadRequest,
)
from holdfast.core.run.contracts.record import Archived, ArchiveRequest, Notice, Notified
from holdfast.core.run.contracts.runs import RunInput
from holdfast.core.run.contracts.signed_results import sign_result
from holdfast.core.run.contracts.snapshot import snapshot_of
from holdfast.core.run.contracts.tool_calls import PreviewedCall, PreviewRequest, ToolOutcome, ToolRequest
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.machine.rollover import HistorySize
from holdfast.core.run.rules.compaction import SUMMARY_REQUEST
from holdfast.core.run.state.features import FORKS, MOVES
from holdfast.core.run.state.state import RunState
from holdfast.core.tools.effects import Effect, PastEffect
from holdfast.core.tools.spec import ToolSpec
from holdfast.core.transcript.prompt import request_prefix
from holdfast.core.transcript.transcript import Transcript, TranscriptRef, ref_digest

ADAPTER = ChatCompletions()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

_Model = TypeVar("_Model", bound=Frozen)


UNGUARDED: dict[str, Any] = {"repeats_slowed": 0, "repeats_warned": 0, "repeats_asked": 0}
"""The limits of an agent that may repeat calls freely."""


WAITING = ("waiting_approval", "waiting_message", "paused", "dormant", "blocked")
"""Statuses of a run that may have nothing in progress: it waits for people, or for events."""


def tool_spec(name: str, effect: Effect = Effect.READ, **more: Any) -> ToolSpec:
    """Return a tool that takes any arguments."""
    fields: dict[str, Any] = {"parameters": {"type": "object"}, "timeout": 5, **more}
    return ToolSpec(name=name, description=name, effect=effect, **fields)


def agent_spec(**changes: Any) -> AgentSpec:
    """Return an agent with a tool for each verdict: `look` runs, `pay` asks, `wipe` is denied."""
    fields: dict[str, Any] = {
        "name": "agent",
        "instructions": "Work.",
        "tools": (tool_spec("look"), tool_spec("pay", Effect.UNSAFE), tool_spec("wipe", Effect.UNSAFE)),
        "policy": Policy(rules=(deny("wipe", reason="never"), allow("look"), ask("pay", reason="money"))),
        "llm": "scripted",
        "limits": Limits(max_steps=50, max_rejected_replies=3),
    }
    return AgentSpec(**(fields | changes))


def calls(*names: str, first: int = 0) -> LLMReply:
    """Return a reply that calls tools, each without arguments."""
    tool_calls = tuple(ToolCall(id=f"c{first + index}", name=name, arguments="{}") for index, name in enumerate(names))
    return LLMReply(message=AssistantMessage(content=tool_calls), usage=Usage(prompt_tokens=10, completion_tokens=1))


def says(text: str) -> LLMReply:
    """Return a reply without calls: the result."""
    return LLMReply(message=AssistantMessage(content=text), usage=Usage(prompt_tokens=10, completion_tokens=1))


def through_json(model: _Model) -> _Model:
    """Return the model after a round trip through JSON."""
    return type(model).model_validate_json(model.model_dump_json(exclude_defaults=True))


@dataclass(frozen=True)
class Sent:
    """A request as the LLM received it."""

    body: bytes
    live: bytes
    """The request without the instruction for a compaction."""
    compacting: bool
    position: int
    """The number of events before it."""
    mark: tuple[int, int]
    """Counts of agent loads and context compactions; only requests with equal marks must extend each other."""
    answered: bool = False


def loaded_thread(spec: AgentSpec | None = None, *, features: int = 0, **begin: Any) -> "Thread":
    """Return a thread of that feature level whose agent is loaded and whose LLM call is in progress."""
    thread = Thread(spec, **begin)
    thread.load(features)
    return thread


class Thread:
    """One thread over all its runs. `run` is the current Temporal run, or the last one."""

    def __init__(self, spec: AgentSpec | None = None, *, name: str = "t", **begin: Any) -> None:
        self.name = name
        """The thread id."""
        self.spec = spec or agent_spec()
        self.record: list[bytes] = []
        """The permanent record."""
        self.intact = True
        """Whether the record has accepted all events so far."""
        self.events: list[AgentEvent] = []
        """All events of the runs before the current one."""
        self.sent: list[Sent] = []
        self.attempts: Counter[tuple[str, int]] = Counter()
        """The number of starts of each effect, by key and epoch."""
        self.snapshots: list[int] = []
        """The size of each snapshot."""
        self.at = NOW
        self.continue_suggested = self.notify = False
        self.loads_effects = True
        """Whether a continued run gets the ledger's empty answer at once."""
        self.price: TokenPrice | None = None
        """The list price of the agent's LLM."""
        self.page = ""
        """The address of the gateway that the worker which loads the agent names."""
        self.recalled: tuple[RecalledTier, ...] = ()
        """The memories that are recalled when the agent is loaded."""
        self.node: SigningKey | None = None
        """Signs results; None to sign none."""
        self.notices: list[Notice] = []
        """The notifications that were delivered."""
        self._count = self._loads = self._first = 0
        self._batching = False
        self._reading: EventLog | None = None
        self._read: list[AgentEvent] = []
        """The events that the log being read keeps, decoded."""
        self.run = self._begin(RunInput(**({"task": "the task"} | begin)))

    @property
    def state(self) -> RunState:
        """Return the thread's state."""
        return self.run.state

    @property
    def log(self) -> list[AgentEvent]:
        """Return all events."""
        own = self.run.log
        if not own.length:  # while loading
            return self.events
        if self._reading is not own:
            self._reading, self._read = own, []
        self._read += own.since(own.first + len(self._read))  # each event is decoded once: tests ask for them often
        return self.events[: own.first] + self._read

    @property
    def closed(self) -> bool:
        """Return whether no run is open."""
        return self.run.end is not None

    # Calls in progress.

    def waiting(self, kind: Any = object) -> list[Call | Sleep]:
        """Return the calls in progress whose request is of that kind, oldest first; `Sleep` for sleeps."""
        open_call = self.in_progress.values()
        return [call for call in open_call if isinstance(call.request if isinstance(call, Call) else call, kind)]

    def calling_llm(self) -> bool:
        """Return whether an LLM call is in progress."""
        return bool(self.waiting(LLMRequest))

    def summarizing(self) -> bool:
        """Return whether an LLM call for a summary is in progress."""
        return self.calling_llm() and self.sent[-1].compacting

    @property
    def running_calls(self) -> list[int]:
        """Return the numbers of the tool calls in progress."""
        return [call.number for call in self.waiting(ToolRequest) if isinstance(call, Call) and call.number]

    # Inputs of the run.

    def end(self, call: Call | Sleep, result: Result | None = None) -> None:
        """Return the result of a call in progress to the run."""
        del self.in_progress[call.id]
        if isinstance(call, Call) and isinstance(call.request, LLMRequest):
            self.sent[-1] = Sent(**{**vars(self.sent[-1]), "answered": True})
        self._observe()
        answer = None
        if result:
            assert isinstance(call, Call)
            answer = result.model_copy(update={"answers": call.request.order})
            answer = self._signed(call, answer)
        self.run.ended(call.id, through_json(answer) if answer else None)
        self._carry_out()

    def _signed(self, call: Call, answer: Any) -> Any:
        """Return the result with the node's signature, as a worker that has a key returns it."""
        if self.node is None:
            return answer
        statement = statement_of(call.request, answer, thread=self.name, first_run_id=f"r{self._first}")
        return (
            answer.model_copy(update={"signed": sign_result(self.node, statement, attempt=1)}) if statement else answer
        )

    def fail(
        self,
        call: Call | Sleep,
        cause: str,
        message: str = "no",
        *details: Any,
        cancelled: bool = False,
        final: bool = True,
        proof: LLMFailed | None = None,
    ) -> None:
        """Fail a call in progress, finally unless `final` is false."""
        del self.in_progress[call.id]
        self._observe()
        self.run.ended(call.id, Failure(cause, message, cancelled, final, details, proof))
        self._carry_out()

    def load(self, features: int = 0) -> None:
        """Return the agent, loaded by a worker of that feature level, to the run."""
        self._loads += 1
        (call,) = self.waiting(AgentRequest)
        loaded = LoadedAgent(
            spec=self.spec,
            workspace="/w",
            notify=self.notify,
            recalled=self.recalled,
            features=features,
            price=self.price,
            page=self.page,
        )
        self.end(call, loaded)

    def load_thread(self) -> None:
        """Return the thread's earlier events, as a snapshot, to the run."""
        (call,) = self.waiting(ThreadRequest)
        self.end(call, LoadedThread(snapshot=snapshot_of(self.recorded())))

    def reset(self) -> None:
        """Reset the run to its current point, as Temporal does."""
        self._observe()
        self.run.was_reset()
        self._carry_out()

    def load_effects(self, *effects: PastEffect) -> None:
        """Return the effects before the reset, as the ledger reports them, to the run."""
        (call,) = self.waiting(EffectsRequest)
        self.end(call, PastEffects(effects=effects))

    def reply(self, reply: LLMReply) -> None:
        """Return a reply of the LLM to the run."""
        (call,) = self.waiting(LLMRequest)
        self.end(call, reply)

    def refuse(self, cause: str, *details: Any) -> None:
        """Fail the LLM call as the activity does when the provider rejects the request; with proof, if it needs one."""
        (call,) = self.waiting(LLMRequest)
        assert isinstance(call, Call)
        assert isinstance(call.request, LLMRequest)
        failure = None
        if call.request.budgeted:
            failure = LLMFailed(answers=call.request.order, cause=cause, outage=Outage.from_details(details))
        self.fail(call, cause, "no", *details, proof=failure)

    def lose(
        self, cause: str = LLM_LOST, *, attempts: int = 1, request_tokens: int = 100, usage: Usage | None = None
    ) -> None:
        """Fail the LLM call after attempts that may have cost something, as the activity does."""
        (call,) = self.waiting(LLMRequest)
        assert isinstance(call, Call)
        lost = {"lost": attempts, "request_tokens": request_tokens, "usage": usage}
        proof = LLMFailed.model_validate({"answers": call.request.order, "cause": cause} | lost)
        self.fail(call, cause, proof=proof)

    def finish(self, number: int, content: str = "done", status: str = "ok") -> None:
        """End a tool call."""
        call = next(call for call in self.waiting(ToolRequest) if isinstance(call, Call) and call.number == number)
        self.end(call, ToolOutcome.model_validate({"status": status, "content": content}))

    def preview(self, text: str = "+ paid", **more: Any) -> None:
        """Return the preview of the oldest call that waits for one to the run."""
        self.end(self.waiting(PreviewRequest)[0], PreviewedCall(preview=CallPreview(**{"text": text, **more})))

    def archive(self, *, features: int = 0) -> None:
        """Append the requested events to the permanent record, as a worker with that feature level."""
        (call,) = self.waiting(ArchiveRequest)
        assert isinstance(call, Call)
        assert isinstance(call.request, ArchiveRequest)
        self._write(call.request)
        self.end(call, Archived(length=call.request.stop, features=features))

    def archive_unsettled(self, pages: int) -> None:
        """Append some of the requested events, then fail because an event is not in history yet."""
        (call,) = self.waiting(ArchiveRequest)
        assert isinstance(call, Call)
        assert isinstance(call.request, ArchiveRequest)
        self._write(call.request, upto=call.request.start + pages)
        self.fail(call, NOT_SETTLED)

    def archive_refused(self, cause: str) -> None:
        """Fail the append permanently."""
        (call,) = self.waiting(ArchiveRequest)
        self.intact = False
        self.fail(call, cause)

    def deliver(self, call: Call | Sleep) -> None:
        """Deliver a notification to its receivers."""
        assert isinstance(call, Call)
        assert isinstance(call.request, Notice)
        self.notices.append(call.request)
        self.end(call, Notified(receivers=1))

    def finish_verification(self, *contents: str) -> None:
        """Return the results of the agent's `verify` tools."""
        verifying = [call for call in self.waiting(ToolRequest) if isinstance(call, Call) and not call.number]
        for call, content in zip(verifying, contents, strict=True):
            self.end(call, ToolOutcome(status="ok", content=content))

    def advance(self, **time: float) -> None:
        """Advance the time and fire the timers that become due."""
        until = self.at + timedelta(**time)
        while (sleeps := self.waiting(Sleep)) and isinstance(sleeps[0], Sleep) and sleeps[0].until <= until:
            self.wake()
        self.at = max(self.at, until)

    def wake(self) -> None:
        """Fire the timer."""
        (call,) = self.waiting(Sleep)
        assert isinstance(call, Sleep)
        self.at, before = max(self.at, call.until), (self.run, self.run.log.length)
        self.end(call)
        again = [sleep for sleep in self.waiting(Sleep) if isinstance(sleep, Sleep) and sleep.until <= self.at]
        assert not again or (self.run, self.run.log.length) != before, (
            "a timer that changes nothing fires at once again"
        )

    def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal."""
        self._observe()
        self.run.signal(name, payload)
        self._carry_out()

    def update(self, name: str, payload: Any = None) -> dict[str, str]:
        """Send an update; return the answer."""
        self._observe()
        answer = self.run.update(name, payload)
        self._carry_out()
        return answer

    def decide(self, request: str, decision: DecisionKind = "approve", **more: Any) -> str:
        """Send a decision; return the outcome."""
        return self.update("decide", {"request": request, "decision": decision, "by": "alice", **more})["outcome"]

    def say(self, message: Any, **more: Any) -> str:
        """Send a message; return the outcome."""
        return self.update("say", {"message": message, **more})["outcome"]

    def cancel(self, reason: str = "") -> None:
        """Cancel the run."""
        self._observe()
        self.run.cancel(reason)
        self._carry_out()

    def reopen(self, task: str = "and on", **begin: Any) -> None:
        """Complete the record, as `load_thread` does, and begin a new run of the closed thread."""
        self.events = self.log
        missing = self.events[len(self.record) :]
        self.record += [event_line(event) for event in missing]
        self._continue(RunInput(task=task, resume=True, **begin))

    def fork(self, at: int | None = None, **begin: Any) -> "Thread":
        """Return a fork of this thread, with the id `u`, whose events are in the record and whose agent is to load."""
        events = self.log if at is None else self.log[: at + 1]
        point = ForkPoint(thread=self.name, position=len(events) - 1, head=events[-1].digest)
        fields: dict[str, Any] = {"task": "", "fork": point, "features": FORKS}
        thread = Thread(self.spec, **({"name": "u"} | fields | begin))
        (call,) = thread.waiting(ThreadRequest)
        thread.events, thread.record = events, [event_line(event) for event in events]
        thread.end(call, LoadedThread(snapshot=snapshot_of(events)))
        if not thread.closed:
            thread.archive()
        return thread

    def moved(self, payload: dict[str, Any] | None = None, **more: Any) -> "Thread":
        """Migrate the thread away, to its end; tools in progress return."""
        assert self.update("move", {**(payload or {"by": "carol"}), **more})["outcome"] == "accepted"
        for number in self.running_calls:
            self.finish(number)
        while not self.closed:
            self.archive()
        return self

    def imported(self, spec: AgentSpec | None = None, *, signer: str = "k", **begin: Any) -> "Thread":
        """Return this thread in another cluster, whose agent is `spec`, after the import of its log."""
        events = self.log
        point = ImportPoint(position=len(events) - 1, head=events[-1].digest, manifest=64 * "0", signer=signer)
        fields: dict[str, Any] = {"task": "", "by": "carol", "resume": True, "imported": point, "features": MOVES}
        thread = Thread(spec or self.spec, **({"name": self.name} | fields | begin))
        thread.events, thread.record = events, [event_line(event) for event in events]
        (call,) = thread.waiting(ThreadRequest)
        thread.end(call, LoadedThread(snapshot=snapshot_of(events)))
        if not thread.closed and thread.waiting(AgentRequest):
            thread.load(MOVES)
            thread.load_effects()
        return thread

    @contextmanager
    def one_workflow_task(self) -> Iterator[None]:
        """Deliver all inputs of the block in one workflow task."""
        self._batching = True
        yield
        self._batching = False
        self._carry_out()

    # Views of the thread.

    def recorded(self, start: int = 0, stop: int | None = None) -> list[AgentEvent]:
        """Return the record's events, decoded."""
        head = self.log[start - 1].digest if start else None
        return run_events("t", read_lines("t", start, self.record[start:stop], head=head))

    def messages(self) -> list[dict[str, Any]]:
        """Return the active transcript, decoded."""
        return [json.loads(message) for message in self.transcript_lines()]

    def types(self) -> list[str]:
        """Return the types of all events."""
        return [event.type for event in self.log]

    def transcript_lines(self) -> list[bytes]:
        """Return the active transcript as a worker without a cache reads it: from record and workflow."""
        run = self.run
        if not run.transcript.first:
            return list(run.transcript.messages)
        older = Transcript()
        for position in run.transcript.base.pinned:
            (event,) = self.recorded(position, position + 1)
            assert isinstance(event, UserMessageReceived)
            older.keep_original(position, event.content)
        assert len(self.record) >= run.log.first, "the record lacks events that the workflow has dropped"
        for event in self.recorded(run.transcript.base.since, run.log.first):
            older.add(event)
        assert older.length >= run.transcript.first, "the record does not reach the workflow's messages"
        known = older.messages[: run.transcript.first]
        overlap = older.messages[run.transcript.first :]
        assert overlap == run.transcript.messages[: len(overlap)]
        return known + run.transcript.messages

    def check_consistent(self) -> None:
        """Check that the record is a prefix of the log, and that state and transcript follow from the log."""
        events = self.log
        assert [event.position for event in events] == list(range(len(events)))
        assert first_altered(events) is None
        if self.intact:
            assert self.record == [event_line(event) for event in events[: len(self.record)]]
        whole = snapshot_of(events)
        assert whole.state == self.state
        transcript = Transcript()
        for event in run_events("t", read_lines("t", 0, [event_line(event) for event in events])):
            transcript.add(event)
        assert transcript.messages == self.transcript_lines()
        assert transcript.base == self.run.transcript.base

    # Carrying out commands.

    def _begin(self, begin: RunInput) -> AgentRun:
        self.in_progress: dict[int, Call | Sleep] = {}
        self._count, self._arrived, self.history_bytes = self._count + 1, 0, 0
        self._first = self._first if begin.first_run_id else self._count
        sent = through_json(begin).model_copy(update={"sealed": True, "issued_at": begin.issued_at or self.at})
        run = AgentRun(
            sent,
            thread=self.name,
            run_id=f"r{self._count}",
            first_run_id=f"r{self._first}",
            at=self.at,
            started_at=self.at,
        )
        self.run = run
        self._carry_out()
        return self.run

    def _continue(self, begin: RunInput) -> None:
        events = self.log
        self._begin(begin)
        if begin.snapshot is not None:
            tail = [event.position for event in begin.snapshot.tail]
            assert self.log[: len(events)] == events, "the next run does not resume where this one stopped"
            assert tail == list(range(begin.snapshot.position, len(events)))
            if self.loads_effects:
                suggested, self.continue_suggested = self.continue_suggested, False  # its history is still short
                self.load_effects()
                self.continue_suggested = suggested

    def _observe(self) -> None:
        assert self.run.end is None or self._batching, "a closed run gets no input"
        self.at += timedelta(milliseconds=7)
        self._arrived += 1
        self.run.observe(
            at=self.at,
            history=HistorySize(events=self._arrived, bytes=self.history_bytes, suggested=self.continue_suggested),
        )

    def _carry_out(self) -> None:
        if self._batching:
            return
        self.run.conclude()
        for command in self.run.commands():
            if isinstance(command, Stop):
                call = self.in_progress.get(command.id)
                if call and not (isinstance(call, Call) and self._still_waited_for(call)):
                    del self.in_progress[command.id]
                continue
            self.in_progress[command.id] = command
            if isinstance(command, Call):
                assert through_json(command.request) == command.request
                if isinstance(command.request, LLMRequest):
                    self._send(command.request)
                elif (
                    isinstance(tool_calls := command.request, ToolRequest)
                    and command.number
                    and not (tool_calls.settle or tool_calls.poll)
                ):
                    self.attempts[tool_calls.key, tool_calls.epoch] += 1
        assert len(self.waiting(AgentRequest | LLMRequest | ThreadRequest)) <= 1, (
            "more than one of these calls is in progress"
        )
        end = self.run.end
        assert end or self.in_progress or self.state.status in WAITING, "the run waits for nothing"
        if end and end.next:
            assert not self.waiting(Call) or not self.waiting(LLMRequest | ToolRequest | AgentRequest)
            carried = end.next.model_dump_json(exclude_defaults=True)
            self.snapshots.append(len(carried))
            self.events = self.log
            self._continue(end.next)
        elif end:
            self.events = self.log

    def _still_waited_for(self, call: Call) -> bool:
        """Return whether the run waits for the end of a call that it has stopped."""
        if not isinstance(call.request, ToolRequest):
            return False
        return not call.request.poll or self.state.dormancy.is_asleep(call.number)

    def _send(self, request: LLMRequest) -> None:
        ref: TranscriptRef = request.transcript
        messages = self.transcript_lines()[: ref.length]
        head = GENESIS
        for message in messages:
            head = chain(head, message)
        assert (len(messages), ref_digest(head, self.state.spec_hash)) == (ref.length, ref.digest)
        assert self.state.spec is not None
        prefix = request_prefix(self.state.spec, ADAPTER)
        encoded = [ADAPTER.encode(decode(message)) for message in messages]
        live = body = ADAPTER.body(prefix, encoded)
        if request.compacting:
            body = ADAPTER.body(prefix, [*encoded, ADAPTER.encode(SUMMARY_REQUEST)], calls=False)
        mark = (self._loads, ref.compactions)
        self.sent.append(Sent(body, live, request.compacting, self.run.log.length, mark))

    def _write(self, request: ArchiveRequest, *, upto: int | None = None) -> None:
        """Append to the record as `archive` does, and check as the store does."""
        stop = request.stop if upto is None else min(upto, request.stop)
        lines: list[bytes] = []
        while page := self.run.log.page(request.start + len(lines), stop):
            lines += page.split(b"\n")
        assert len(lines) == stop - request.start
        assert request.start <= len(self.record), "a gap in the record"
        for position, line in enumerate(lines, request.start):
            if position < len(self.record):
                assert self.record[position] == line, "the record has another event here"
            else:
                self.record.append(line)
        if upto is None:
            assert json.loads(lines[-1])["digest"] == request.head
