"""AgentRunWorkflow: one agent run, whose Temporal history is the event log.

The workflow decides nothing. It carries out what `holdfast.decide` says, records what comes back as events, and
folds them into state and transcript. Signals, updates and queries are its only doors.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from holdfast import contracts
from holdfast.contracts import AgentRequest, LLMRequest, RunInput, RunResult, ToolRequest, cause_of
from holdfast.decide import (
    CallLLM,
    Finish,
    LoadAgent,
    Park,
    StartCalls,
    Wait,
    next_action,
    on_cancel,
    on_lost_agent,
    on_lost_call,
    on_outcome,
    on_payload,
    on_reply,
    on_signal,
    on_task,
)
from holdfast.describe import current_details
from holdfast.effects import effect_key
from holdfast.events import (
    AgentEvent,
    AgentLoaded,
    DecisionReceived,
    EventLog,
    RunParked,
    RunStarted,
    SignalRejected,
    ToolCallStarted,
    UserMessageReceived,
)
from holdfast.model import canonical
from holdfast.state import CallState, RunState, evolve
from holdfast.transcript import Transcript
from workflows import calls

Answer = TypeVar("Answer")

_AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
_PENDING = SearchAttributeKey.for_int("HoldfastPending")
_STEP = SearchAttributeKey.for_int("HoldfastStep")


@workflow.defn(name=contracts.WORKFLOW)
class AgentRunWorkflow:
    """A durable agent run: task in, result out, and every step in history exactly once."""

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        """Record the task before any signal can arrive."""
        self._log = EventLog()
        self._state = RunState()
        self._transcript = Transcript()
        self._tools: dict[int, asyncio.Task[None]] = {}
        self._published: tuple[object, ...] = ()
        self._asking = False
        """Whether the loop waits for the agent or the LLM, and does not see what signals record."""
        self._activation: tuple[object, int] | None = None
        self._commanded: tuple[object, int] | None = None
        """The workflow task in which a command was last given."""
        self._settled: int | None = None
        info = workflow.info()
        self._record(RunStarted(thread=info.workflow_id, run_id=info.run_id, agent=run.agent))
        self._record(UserMessageReceived(content=run.task))

    @workflow.run
    async def run(self, run: RunInput) -> RunResult:
        """Run the agent to its end.

        Raises:
            ApplicationError: The run failed: no such agent, no such workspace, no task.
            CancelledError: It was cancelled; effects under way have been waited for.
        """
        try:
            await self._loop(run)
        except BaseException as error:
            if not is_cancelled_exception(error):
                raise
            await self._stop()
            raise
        if self._state.outcome == "failed":
            raise ApplicationError(self._state.result, type=self._state.failure, non_retryable=True)
        return RunResult(result=self._state.result, steps=self._state.step, usage=self._state.usage)

    async def _loop(self, run: RunInput) -> None:
        while True:
            seen = len(self._log.events)
            match next_action(self._state):
                case LoadAgent():
                    await self._load_agent(run)
                case CallLLM():
                    await self._call_llm()
                case StartCalls(numbers=numbers):
                    for number in numbers:
                        self._start_call(self._state.call(number))
                case Park(cause=cause, message=message):
                    self._record(RunParked(cause=cause, message=message))
                case Wait():
                    self._publish()
                    await self._news(seen)
                case Finish():
                    self._publish()
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    return

    async def _news(self, seen: int) -> None:
        """Wait until the log is longer than `seen` events."""
        await workflow.wait_condition(lambda: len(self._log.events) > seen)

    async def _load_agent(self, run: RunInput) -> None:
        if refused := on_task(run.task):
            return self._record(*refused)
        try:
            loaded = await self._ask(calls.load(AgentRequest(agent=run.agent, workspace=run.workspace)))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            return self._record(*on_lost_agent(*cause_of(error)))
        self._record(AgentLoaded(spec=loaded.spec, spec_hash=loaded.spec.hash, workspace=loaded.workspace))

    async def _call_llm(self) -> None:
        assert self._state.spec is not None
        shown = self._transcript.ref
        request = LLMRequest(transcript=shown, spec_hash=self._state.spec_hash)
        try:
            reply = await self._ask(calls.ask_llm(request, self._state.spec, step=self._state.step + 1))
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause, message = cause_of(error)
            self._record(RunParked(cause=cause, message=message))
        else:
            self._record(*on_reply(self._state, reply, shown=shown.length, at=workflow.now()))

    async def _ask(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for an activity, and for nothing else."""
        self._commanded = _task_now()
        self._publish()
        self._asking = True
        try:
            return await call
        finally:
            self._asking = False

    def _start_call(self, call: CallState) -> None:
        info = workflow.info()
        key = effect_key(
            thread=info.workflow_id,
            first_run_id=info.first_execution_run_id,
            number=call.number,
            call_digest=call.call.digest,
        )
        self._commanded = _task_now()
        self._record(ToolCallStarted(number=call.number, key=key))
        self._tools[call.number] = asyncio.create_task(self._run_call(call, key))

    async def _run_call(self, call: CallState, key: str) -> None:
        assert self._state.spec is not None
        tool = self._state.spec.tool(call.call.name)
        assert tool is not None, "a call of an unknown tool never gets a verdict"
        request = ToolRequest(
            call=call.call,
            key=key,
            epoch=call.epoch,
            workspace=self._state.workspace,
            clip=self._state.spec.limits.tool_result_chars,
        )
        try:
            outcome = await calls.run_tool(request, tool)
        except ActivityError as error:
            outcome = on_lost_call(tool.effect, *cause_of(error), cancelled=is_cancelled_exception(error))
        del self._tools[call.number]
        self._record(*on_outcome(self._state, call.number, outcome, at=workflow.now()))

    async def _stop(self) -> None:
        """After a cancellation: keep what has come, stop the tools, keep what they say, end the log."""
        await workflow.wait_condition(lambda: True)  # what ended in the same workflow task is recorded first
        for task in self._tools.values():
            task.cancel()
        await asyncio.gather(*self._tools.values(), return_exceptions=True)
        self._record(*on_cancel(self._state))
        self._publish()

    def _record(self, *events: AgentEvent) -> None:
        """Append events to the log and fold them. Nothing else changes what the run knows."""
        self._notice_foresight()
        for event in events:
            stamped = self._log.append(event, at=workflow.now())
            self._state = evolve(self._state, stamped)
            self._transcript.add(stamped)

    def _notice_foresight(self) -> None:
        """Tell events that are not settled yet.

        To answer a query after a crash, the SDK replays what lies in history beyond the last workflow task, in that
        task's time: the same time at a greater length of history. Time and order of such events are not final until
        their own task has run, so the query `log` does not show them.
        """
        activation = _task_now()
        if self._activation is None or activation[0] != self._activation[0]:
            self._settled = None
        elif activation != self._activation and self._settled is None:
            self._settled = len(self._log.events)
        self._activation = activation

    def _publish(self) -> None:
        """Show the Web UI where the run is. Search attributes cost an event in history: they are set when they change.

        And when the workflow task would give no command otherwise: one without is replayed together with the next, in
        the next one's time, and the log would not be the same on every replay.
        """
        state = self._state
        workflow.set_current_details(current_details(state))
        published = (state.spec_hash, state.status, len(state.requests))
        if published == self._published and self._commanded == _task_now():
            return
        self._published, self._commanded = published, _task_now()
        updates: list[SearchAttributeUpdate[Any]] = [
            _STATUS.value_set(state.status),
            _PENDING.value_set(len(state.requests)),
            _STEP.value_set(state.step),
        ]
        if state.spec:
            updates.append(_AGENT.value_set(state.spec.name))
        workflow.upsert_search_attributes(updates)

    # Signals. A payload of any shape is taken in and recorded: a typing error in the Web UI loses nothing.

    @workflow.signal
    def approve(self, payload: Any = None, *more: Any) -> None:
        """Let a pending call run: {"request": "1", "by": "alice", "reason": "ok"}."""
        self._take("approve", payload)

    @workflow.signal
    def deny(self, payload: Any = None, *more: Any) -> None:
        """Refuse a pending call: {"request": "1", "by": "alice", "reason": "not on a Friday"}."""
        self._take("deny", payload)

    @workflow.signal
    def reconcile(self, payload: Any = None, *more: Any) -> None:
        """Say whether an effect happened: {"request": "2", "decision": "happened" | "absent" | "abandon", …}."""
        self._take("reconcile", payload)

    @workflow.signal
    def retry(self, payload: Any = None, *more: Any) -> None:
        """Go on after the cause of a block is mended: {"by": "alice"}."""
        self._take("retry", payload)

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Any other signal: recorded, without effect."""
        self._take(name, None)

    def _take(self, signal: str, payload: Any) -> None:
        self._record(*on_signal(self._state, signal, payload))
        if self._asking:
            self._publish()

    @workflow.update
    def decide(self, payload: Any = None, *more: Any) -> dict[str, str]:
        """Decide a request and learn the outcome: {"decision": "approve", "request": "1", "by": "alice"}."""
        self._commanded = _task_now()  # the answer is one
        events = on_payload(self._state, "decide", payload)
        self._record(*events)
        received = events[0]
        if isinstance(received, DecisionReceived):
            return {"outcome": received.outcome, "explanation": received.explanation}
        assert isinstance(received, SignalRejected)
        return {"outcome": "malformed", "explanation": received.explanation}

    # Queries leave no trace in history.

    @workflow.query
    def state(self) -> dict[str, Any]:
        """The derived state, as `starter.py show` prints it."""
        return self._state.view()

    @workflow.query
    def pending_approvals(self) -> list[dict[str, Any]]:
        """The open requests."""
        return [request.view() for request in self._state.requests]

    @workflow.query
    def log(self, start: int = 0) -> bytes:
        """Events from position `start` on, one JSON text a line, a page of them; empty when there are none."""
        return self._log.page(start, self._settled)

    @workflow.query
    def transcript(self, start: int = 0) -> bytes:
        """Encoded messages from `start` on, one a line, a page of them; empty when there are none."""
        return self._transcript.page(start)

    @workflow.query
    def agent_spec(self) -> bytes:
        """The agent as recorded, as canonical JSON."""
        return canonical(self._state.spec.model_dump(mode="json")) if self._state.spec else b""


def _task_now() -> tuple[object, int]:
    """The workflow task that is being worked on: its time, and the length of history that it sees."""
    return workflow.now(), workflow.info().get_current_history_length()
