"""AgentRunWorkflow: one agent run, whose Temporal history is the event log.

This shell is thin: what reaches the workflow goes to `holdfast.run.machine`, and the commands that come out are
carried out.

1. Inputs are passed on in the order in which the SDK hands them over: signals and updates, then the ends of calls,
   then a request to cancel.
2. While local activities are under way, nothing is passed on. When all have ended, their ends are, in the order in
   which they were started, then what arrived meanwhile; all of it at the time at which they were started. For which of
   them ends first, and in which workflow task and at what time the SDK says so, is not the same on a replay.
3. Queries leave no trace in history, and answer from memory.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, assert_never

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError, FailureError

from holdfast.run import contracts
from holdfast.run.commands import Call, Failure, Sleep, Stop
from holdfast.run.contracts import Page, RunInput, RunResult, View, Views
from holdfast.run.details import current_details
from holdfast.run.inputs import raw_texts
from holdfast.run.machine import AgentRun
from holdfast.run.rollover import HistorySize
from holdfast.run.state import RunState
from workflows import calls

_AGENT = SearchAttributeKey.for_keyword("HoldfastAgent")
_STATUS = SearchAttributeKey.for_keyword("HoldfastStatus")
_PENDING = SearchAttributeKey.for_int("HoldfastPending")
_STEP = SearchAttributeKey.for_int("HoldfastStep")

_Input = Callable[[AgentRun], None]
"""Something that has arrived: passes itself on."""


@workflow.defn(name=contracts.WORKFLOW)
class AgentRunWorkflow:
    """A durable agent run: task in, result out, and every step in history exactly once."""

    @workflow.init
    def __init__(self, run: RunInput) -> None:
        """Record the task before any signal can arrive."""
        info = workflow.info()
        self._run = AgentRun(
            run,
            thread=info.workflow_id,
            run_id=info.original_execution_run_id,
            first_run_id=info.first_execution_run_id,
            at=workflow.now(),
            started_at=info.workflow_start_time,
        )
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._local: dict[int, _Input | None] = {}
        """Local activities under way, and how those ended that have: as long as one has not, nothing is passed on."""
        self._arrived: list[_Input] = []
        """What is to be passed on when none is under way any more."""
        self._overtaken: object = None
        """The activation in which that arrived last."""
        self._waiters: set[asyncio.Task[None]] = set()
        self._published: tuple[object, ...] = ()
        self._activation: tuple[object, int] | None = None
        """The time and the length of history when something arrived last."""
        self._moment: tuple[object, int] | None = None
        """The same of what the run was told last."""
        self._marked: tuple[object, int] | None = None
        """The same of when search attributes were set last."""
        self._settled: tuple[int, RunState] | None = None
        """How many events are settled, and the state after them, where there are some that are not."""
        self._outdated = False
        self._seed = workflow.random_seed()
        self._begun = (workflow.now(), info.get_current_history_length())
        loop = asyncio.get_running_loop()
        workflow.register_random_seed_callback(lambda _: self._soon(loop))
        self._showing = False
        """Whether the Web UI's details are written anew as soon as all that came together has been passed on."""

    @workflow.run
    async def run(self, run: RunInput) -> RunResult:
        """Run the agent to its end, or to where a new Temporal run goes on.

        Raises:
            ApplicationError: The run failed: no such agent, no such workspace, no task, no readable past.
            CancelledError: It was cancelled; effects under way have been waited for.
        """
        self._carry_out()
        cancelled: BaseException | None = None
        while True:
            try:
                await workflow.wait_condition(self._over)
                break
            except asyncio.CancelledError as error:
                cancelled = error
                await workflow.wait_condition(lambda: True)  # what ended in the same workflow task is recorded first
                self._pass_on(AgentRun.cancel)
        end = self._run.end
        assert end is not None
        if end.next:
            workflow.continue_as_new(end.next)
        if end.result:
            return end.result
        assert end.failure is not None
        if end.failure.cancelled:
            raise cancelled or asyncio.CancelledError
        raise ApplicationError(end.failure.message, type=end.failure.cause, non_retryable=True)

    def _over(self) -> bool:
        """Whether the run has ended.

        Raises:
            RuntimeError: What it knows is outdated: the workflow task fails, and the run is replayed.
        """
        if self._outdated:
            raise RuntimeError("a query overtook this workflow task; the run is replayed, and goes on")
        self._run.conclude()
        return self._run.end is not None

    def _at_work(self) -> AgentRun:
        """The run, told what time it is, and whether Temporal has taken it back to an earlier event."""
        self._notice_foresight()
        info = workflow.info()
        self._moment = self._activation
        self._run.observe(
            at=workflow.now(),
            history=HistorySize(
                events=info.get_current_history_length(),
                bytes=info.get_current_history_size(),
                suggested=info.is_continue_as_new_suggested(),
            ),
        )
        if self._reset():
            self._run.was_reset()
        return self._run

    def _soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go to work though nothing else arrives."""
        loop.call_soon(self._go_back)

    def _go_back(self) -> None:
        self._pass_on(lambda run: None)

    def _reset(self) -> bool:
        """Whether the run was reset to where it is now, once: a reset changes the seed there, also on every replay."""
        if (workflow.now(), workflow.info().get_current_history_length()) == self._begun:
            self._seed = workflow.random_seed()  # taken back to its very beginning, a run looks back anyway
        before, self._seed = self._seed, workflow.random_seed()
        return before != self._seed

    def _carry_out(self) -> None:
        """Carry out what the run wants done, in its order."""
        commands = self._run.commands()
        for command in commands:
            match command:
                case Stop(id=call_id):
                    if call := self._calls.get(call_id):  # it may have ended while its end could not be taken in
                        call.cancel()
                case Call() | Sleep():
                    # What a query has made the run see too early would start a local activity here and now.
                    if isinstance(command, Call) and command.local and not self._settled:
                        self._local[command.id] = None
                    elif isinstance(command, Call):
                        command = replace(command, seconds=0)
                    self._calls[command.id] = started = calls.start(command, self._run.state)
                    waiter = asyncio.create_task(self._wait_for(command.id, started))
                    self._waiters.add(waiter)
                    waiter.add_done_callback(self._waiters.discard)
                case _:
                    assert_never(command)
        self._publish(silent=not commands and not self._run.over)

    async def _wait_for(self, call_id: int, started: asyncio.Future[Any]) -> None:
        """Tell the run how a call ended."""
        result: Any = None
        failure: Failure | None = None
        try:
            result = await started
        except FailureError as error:
            failure = Failure.of(error)
        except asyncio.CancelledError:  # a sleep, or a call that was stopped before it was under way
            failure = Failure("CancelledError", "Cancelled", cancelled=True)
        del self._calls[call_id]

        def take(run: AgentRun) -> None:
            if failure:
                run.failed(call_id, failure)
            else:
                run.ended(call_id, result)

        if call_id in self._local:
            self._end_locally(call_id, take)
        else:
            self._pass_on(take)

    def _pass_on(self, take: _Input) -> None:
        """Pass on what has arrived, now or when no local activity is under way any more."""
        if self._local:
            self._notice_foresight()
            if self._reset():
                self._arrived.append(AgentRun.was_reset)
            self._arrived.append(take)
            self._overtaken = _activation_of()
            return
        take(self._at_work())
        self._carry_out()

    def _end_locally(self, call_id: int, take: _Input) -> None:
        """A local activity has ended. When all have, pass on their ends, and what has waited for them.

        To answer a query, the SDK may complete the workflow task with the marker of an activity whose end it passes
        on with the next task only. On a replay it does so before what that task brings, at another time. So where
        both come at once, that task fails, and the run is replayed.
        """
        self._notice_foresight()
        self._local[call_id] = take
        ends = [end for end in self._local.values() if end]
        if len(ends) < len(self._local):
            return
        if self._overtaken is _activation_of() and not workflow.unsafe.is_replaying():
            self._outdated = True
        self._overtaken = None
        self._local = {}
        self._arrived[:0] = ends
        self._marked = self._moment  # the markers are a trace in history
        while self._arrived and not self._local:
            self._arrived.pop(0)(self._run)
            self._carry_out()

    def _notice_foresight(self) -> None:
        """Tell events that are not settled yet.

        To answer a query after a crash, the SDK passes on what lies in history beyond the last workflow task, in that
        task's time: the same time at a greater length of history. When the real task comes, the SDK passes on only
        what is new since, so time and order of events would not be those of a replay, nor would the order of commands
        where an update is among them: that run could never be replayed. So the next workflow task that brings
        something fails once, and has the run replayed. Until then queries show nothing of such events: a request
        that somebody saw, and decided, might come after the decision in the replay.
        """
        activation = (workflow.now(), workflow.info().get_current_history_length())
        if self._activation and activation != self._activation:
            if self._settled:
                self._outdated = activation[0] != self._activation[0]
            elif activation[0] == self._activation[0]:
                self._settled = self._run.log.length, self._run.state
        self._activation = activation

    def _publish(self, *, silent: bool) -> None:
        """Show the Web UI where the run is. Search attributes cost an event in history: they are set when they change.

        And when all that a workflow task brought led to no command: a task without any is replayed together with the
        next, in the next one's time, and the log would not be the same on every replay.
        """
        state = self._run.state
        if not self._settled and not self._showing:
            self._showing = True
            # Once for all that comes together: for each of hundreds of signals it would take longer than a task may.
            asyncio.get_running_loop().call_soon(self._show)
        published = (state.spec_hash, state.status, len(state.authority.requests))
        if published == self._published and not (silent and self._marked != self._moment):
            return
        self._published, self._marked = published, self._moment
        updates: list[SearchAttributeUpdate[Any]] = [
            _STATUS.value_set(state.status),
            _PENDING.value_set(len(state.authority.requests)),
            _STEP.value_set(state.steps.count),
        ]
        if state.spec:
            updates.append(_AGENT.value_set(state.spec.name))
        workflow.upsert_search_attributes(updates)

    def _show(self) -> None:
        self._showing = False
        if not self._settled:
            workflow.set_current_details(current_details(self._run.state))

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
    def respond(self, payload: Any = None, *more: Any) -> None:
        """Answer in the tool's place: {"request": "1", "by": "alice", "result": "what the LLM is to read"}."""
        self._take("respond", payload)

    @workflow.signal
    def delegate_authority(self, payload: Any = None, *more: Any) -> None:
        """Lend a right to decide to another approver: {"by": "alice", "to": "bob", "seconds": 86400}."""
        self._take("delegate_authority", payload)

    @workflow.signal
    def revoke(self, payload: Any = None, *more: Any) -> None:
        """Take back what was remembered or lent: {"by": "alice", "remembered": "1"} or {…, "delegated_to": "bob"}."""
        self._take("revoke", payload)

    @workflow.signal
    def reconcile(self, payload: Any = None, *more: Any) -> None:
        """Say whether an effect happened: {"request": "2", "decision": "happened" | "absent" | "abandon", …}."""
        self._take("reconcile", payload)

    @workflow.signal
    def retry(self, payload: Any = None, *more: Any) -> None:
        """Go on after the cause of a block is mended: {"by": "alice"}."""
        self._take("retry", payload)

    @workflow.signal
    def say(self, payload: Any = None, *more: Any) -> None:
        """Say something to the agent: {"message": "…", "by": "alice", "when_busy": "queue"}."""
        self._take("say", payload)

    @workflow.signal(dynamic=True)
    def unknown(self, name: str, payloads: Sequence[RawValue]) -> None:
        """Any other signal: recorded, without effect."""
        self._take(name, raw_texts(value.payload for value in payloads))

    def _take(self, signal: str, payload: Any) -> None:
        self._pass_on(lambda run: run.signal(signal, payload))

    # Updates. What can be refused is refused by a validator: nothing of it is in history. The handler refuses, too, for
    # what came before it in the same workflow task may have changed the run.

    @workflow.update
    async def decide(self, payload: Any = None, *more: Any) -> View:
        """Decide a request and learn the outcome: {"decision": "approve", "request": "1", "by": "alice"}."""
        return await self._answer("decide", payload)

    @decide.validator
    def _may_decide(self, payload: Any = None, *more: Any) -> None:
        self._refuse("decide", payload)

    @workflow.update(name="say")
    async def hear(self, payload: Any = None, *more: Any) -> View:
        """Say something to the agent, as the signal `say` does, and learn the outcome."""
        return await self._answer("say", payload)

    @hear.validator
    def _may_hear(self, payload: Any = None, *more: Any) -> None:
        self._refuse("say", payload)

    def _refuse(self, update: str, payload: Any) -> None:
        """Refuse an update before it is in history. Runs when it arrives, never in a replay, and changes nothing.

        Raises:
            ApplicationError: Its type is the outcome, its message says why, and its details are both, sealed.
        """
        if answer := self._run.refused(update, payload, at=workflow.now()):
            raise ApplicationError(answer["explanation"], View(answer), type=answer["outcome"], non_retryable=True)

    async def _answer(self, update: str, payload: Any) -> View:
        answer: dict[str, str] = {}
        self._pass_on(lambda run: answer.update(run.update(update, payload)))
        if not answer:
            await workflow.wait_condition(lambda: bool(answer))
        return View(answer)

    @workflow.update(name="delegate_authority")
    async def lend(self, payload: Any = None, *more: Any) -> View:
        """Lend a right, as the signal `delegate_authority` does, and learn the outcome."""
        return await self._answer("delegate_authority", payload)

    @lend.validator
    def _may_lend(self, payload: Any = None, *more: Any) -> None:
        self._refuse("delegate_authority", payload)

    @workflow.update(name="revoke")
    async def take_back(self, payload: Any = None, *more: Any) -> View:
        """Take something back, as the signal `revoke` does, and learn the outcome."""
        return await self._answer("revoke", payload)

    @take_back.validator
    def _may_take_back(self, payload: Any = None, *more: Any) -> None:
        self._refuse("revoke", payload)

    # Queries leave no trace in history. Their answers are sealed: only our workers can answer for a run.

    @property
    def _shown(self) -> RunState:
        return self._settled[1] if self._settled else self._run.state

    @workflow.query
    def state(self) -> View:
        """The derived state, as `starter.py show` prints it."""
        return View(self._shown.view())

    @workflow.query
    def pending_approvals(self) -> Views:
        """The open requests."""
        return Views(request.view() for request in self._shown.authority.requests)

    @workflow.query
    def log(self, start: int = 0) -> Page:
        """Events from position `start` on, one JSON text a line, a page of them; empty when there are none.

        This Temporal run has those that the permanent record did not when it began; older ones are in the record.
        """
        return Page(self._run.log.page(start, self._settled[0] if self._settled else None))

    @workflow.query
    def session(self) -> View:
        """What a worker needs before it reads the transcript: the agent, and where the messages begin."""
        run = self._run
        told = {
            "spec": run.state.spec.model_dump(mode="json", exclude_defaults=True) if run.state.spec else None,
            "compactions": run.transcript.base.compactions,
            "first": run.transcript.first,
            "since": run.transcript.base.since,
            "pinned": list(run.transcript.base.pinned),
            "position": run.log.first,
        }
        return View(told)

    @workflow.query
    def transcript(self, start: int = 0) -> Page:
        """Encoded messages from `start` on, one a line, a page of them; empty when there are none."""
        return Page(self._run.transcript.page(start))


def _activation_of() -> object:
    """What stands for the SDK's activation under way: the same object within one, another one in the next.

    The SDK offers nothing else that tells two activations at the same time from each other: the loop is its instance
    of the workflow, which collects the commands of an activation in an object of its own.
    """
    return asyncio.get_running_loop().__dict__["_current_completion"]
