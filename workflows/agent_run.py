"""AgentRunWorkflow: one agent run, whose Temporal history is the event log.

This shell is thin: it passes what reaches the workflow to `holdfast.run.machine`, and carries out the commands that
come out. When the machine says so, it continues as new (continue-as-new, `holdfast.run.rollover`).

1. Inputs are passed on in the order in which the SDK delivers them: signals and updates, then the ends of calls, then a
   request to cancel.
2. While local activities are under way, nothing is passed on. When all have ended, their ends are passed on, in the
   order in which they were started, then what arrived meanwhile; all of it at the time at which they were started. For
   on a replay, the SDK may report their ends in another order, in another workflow task and at another time.

The signals, updates and queries are in `run_interface`.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from holdfast.run import contracts
from holdfast.run.commands import Call, Failure, Request, Sleep, Stop
from holdfast.run.contracts import RunInput, RunResult
from holdfast.run.details import current_details
from holdfast.run.handover import HAND_OVER, Caller
from holdfast.run.machine import AgentRun
from holdfast.run.rollover import HistorySize
from holdfast.seals.seals import SealKeyUnknown
from holdfast.seals.starts import NO_INPUT, only
from holdfast.temporal.sealed_details import failure_of
from holdfast.workflows import calls
from holdfast.workflows.arguments import any_number
from holdfast.workflows.attributes import Attributes, dormancy_of
from holdfast.workflows.run_interface import Input, RunInterface

_NO_INPUT = RunInput(malformed=NO_INPUT)


@workflow.defn(name=contracts.WORKFLOW)
class AgentRunWorkflow(RunInterface):
    """A durable agent run: a task in, a result out, and every step in history exactly once."""

    @workflow.init
    @any_number
    def __init__(self, run: RunInput = _NO_INPUT, *more: Any) -> None:
        """Record the task before any signal can arrive."""
        info = workflow.info()
        self._run = AgentRun(
            only(run, more, RunInput),
            thread=info.workflow_id,
            run_id=info.original_execution_run_id,
            first_run_id=info.first_execution_run_id,
            at=workflow.now(),
            started_at=info.workflow_start_time,
        )
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._local: dict[int, Input | None] = {}
        """Local activities under way, and the ends of those that have ended. Nothing is passed on until all have."""
        self._arrived: list[Input] = []
        """Inputs to pass on when no local activity is under way any more."""
        self._arrived_in: object = None
        """The activation in which the last of them arrived."""
        self._waiters: set[asyncio.Task[None]] = set()
        self._attributes = Attributes()
        self._published: tuple[object, ...] = ()
        self._activation: tuple[object, int] | None = None
        """The time and the length of history at the last input."""
        self._passed_on: tuple[object, int] | None = None
        """The same for the last input that was passed on."""
        self._published_at: tuple[object, int] | None = None
        """The same for the last search attributes or marker, which leave a trace in history without a call."""
        self._settled = None
        self._key_unknown: SealKeyUnknown | None = None
        """An error is sealed with a key that this worker does not have."""
        self._outdated = False
        """Whether the run has to be replayed, because a query exposed events early."""
        self._seed = workflow.random_seed()
        self._begun = (workflow.now(), info.get_current_history_length())
        workflow.register_random_seed_callback(partial(self._on_new_seed, asyncio.get_running_loop()))
        self._showing = False
        """Whether the Web UI's details will be rewritten when all inputs of this activation have been passed on."""

    @workflow.run
    @any_number
    async def run(self, run: RunInput = _NO_INPUT, *more: Any) -> RunResult:
        """Run the agent to its end, or until the run continues as new.

        Raises:
            ApplicationError: The run failed, for example because there is no such agent or no readable past.
            CancelledError: The run was cancelled, and has waited for the effects under way.
        """
        self._carry_out()
        cancelled: BaseException | None = None
        while True:
            try:
                await workflow.wait_condition(self._over)
                break
            except asyncio.CancelledError as error:
                cancelled = error
                await workflow.wait_condition(lambda: True)  # what ended in the same workflow task comes first
                self._pass_on(partial(AgentRun.cancel, reason=workflow.cancellation_reason() or ""))
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
            RuntimeError: A query exposed events early: the workflow task fails, and the run is replayed.
            FeaturesUnknown: The run needs a newer release: the workflow task fails, and a newer worker takes it.
            SealKeyUnknown: The same, for a worker that has the key.
        """
        if self._key_unknown:
            raise self._key_unknown
        if self._outdated:
            raise RuntimeError("a query exposed events early; this workflow task fails once, and the run is replayed")
        self._run.conclude()
        return self._run.end is not None

    # Passing inputs on, and carrying commands out.

    def _observed(self) -> AgentRun:
        """Return the run, after it has noted the time, the size of history and whether Temporal has reset it."""
        self._detect_lookahead()
        info = workflow.info()
        self._passed_on = self._activation
        self._run.observe(
            at=workflow.now(),
            history=HistorySize(
                events=info.get_current_history_length(),
                bytes=info.get_current_history_size(),
                suggested=info.is_continue_as_new_suggested(),
            ),
        )
        if self._was_reset():
            self._run.was_reset()
        return self._run

    def _carry_out(self) -> None:
        """Carry out the run's commands, in its order."""
        commands = self._run.commands()
        for command in commands:
            match command:
                case Stop(id=call_id):
                    if call := self._calls.get(call_id):  # it may have ended, and its end wait to be passed on
                        call.cancel()
                case Call() | Sleep():
                    # To answer a query, the SDK would run a local activity at once: an ordinary one waits.
                    if isinstance(command, Call) and command.local and not self._settled:
                        self._local[command.id] = None
                    elif isinstance(command, Call):
                        command = replace(command, seconds=0)
                        if not self._settled and not workflow.unsafe.is_replaying():
                            self._hand_over(command.request)
                    self._calls[command.id] = started = calls.start(command, self._run.state)
                    waiter = asyncio.create_task(self._wait_for(command.id, started))
                    self._waiters.add(waiter)
                    waiter.add_done_callback(self._waiters.discard)
                case _:
                    assert_never(command)
        self._publish(silent=not commands and not self._run.over)

    def _hand_over(self, request: Request) -> None:
        """Hand over what the activity would query, if the worker offers that."""
        if give := workflow.extern_functions().get(HAND_OVER):
            info = workflow.info()
            give(self._run, request, caller=Caller(info.namespace, info.workflow_id, info.run_id))

    async def _wait_for(self, call_id: int, started: asyncio.Future[Any]) -> None:
        """Wait for the end of a call, and pass it on."""
        result: Any = None
        failure: Failure | None = None
        try:
            result = await started
        except FailureError as error:
            try:
                failure = failure_of(error, workflow.payload_converter())
            except SealKeyUnknown as unknown:
                self._key_unknown = unknown  # an exception of this task would fail nothing
                return
        except asyncio.CancelledError:  # a sleep, or a call that was stopped before it reached the server
            failure = Failure("CancelledError", "Cancelled", cancelled=True)
        del self._calls[call_id]

        def end(run: AgentRun) -> None:
            run.ended(call_id, failure or result)

        if call_id in self._local:
            self._end_locally(call_id, end)
        else:
            self._pass_on(end)

    def _pass_on(self, arrived: Input) -> None:
        if self._local:
            self._detect_lookahead()
            if self._was_reset():
                self._arrived.append(AgentRun.was_reset)
            self._arrived.append(arrived)
            self._arrived_in = _current_activation()
            return
        arrived(self._observed())
        self._carry_out()

    def _end_locally(self, call_id: int, end: Input) -> None:
        """Take in that a local activity ended. When all have, pass on their ends, then what has waited for them.

        To answer a query, the SDK may complete the workflow task with the marker of an activity whose end it delivers
        with the next task only. On a replay it delivers that end before the inputs of that task, at another time. So
        where an end and other inputs come together, the task fails, and the run is replayed.
        """
        self._detect_lookahead()
        self._local[call_id] = end
        ends = [ended for ended in self._local.values() if ended]
        if len(ends) < len(self._local):
            return
        if self._arrived_in is _current_activation() and not workflow.unsafe.is_replaying():
            self._outdated = True
        self._arrived_in = None
        self._local = {}
        self._arrived[:0] = ends
        self._published_at = self._passed_on  # the markers are a trace in history
        while self._arrived and not self._local:
            self._arrived.pop(0)(self._run)
            self._carry_out()

    # Resets, and events that a query exposes early.

    def _on_new_seed(self, loop: asyncio.AbstractEventLoop, _: int) -> None:
        """Pass on an empty input: after a reset, no other input may arrive."""
        loop.call_soon(self._pass_on, lambda run: None)

    def _was_reset(self) -> bool:
        """Return, once, whether Temporal reset the run to this point: the random seed changes here, replay or not."""
        if (workflow.now(), workflow.info().get_current_history_length()) == self._begun:
            self._seed = workflow.random_seed()  # a run that was reset to its very beginning looks back anyway
        before, self._seed = self._seed, workflow.random_seed()
        return before != self._seed

    def _detect_lookahead(self) -> None:
        """Detect events exposed early by a query replay.

        To answer a query after a crash, the SDK delivers what lies in history beyond the last workflow task, at that
        task's time: the same time with a longer history. When the real task comes, the SDK delivers only what is new
        since. So time and order of the events would differ from a replay, and with an update among them the order of
        commands would, too: such a run could never be replayed. Therefore the next workflow task that brings an input
        fails once, and the run is replayed. Until then queries show none of these events: in the replay, a request
        might come after the decision of somebody who had seen it early. A task that brings no input would not fail:
        our workers drop the run after the query (`holdfast.runtime.worker.early_events`).
        """
        activation = (workflow.now(), workflow.info().get_current_history_length())
        if self._activation and activation != self._activation:
            if self._settled:
                self._outdated = activation[0] != self._activation[0]
            elif activation[0] == self._activation[0]:
                self._settled = self._run.log.length, self._run.state
        self._activation = activation

    # What the Web UI shows.

    def _publish(self, *, silent: bool) -> None:
        """Publish the run's state. Search attributes cost an event in history: they are set when they change.

        They are also set when all that a workflow task brought led to no command (`silent`). The SDK replays a task
        without commands together with the next one, at the next one's time: the log would differ between replays.
        """
        state = self._run.state
        if not self._settled and not self._showing:
            self._showing = True
            # Once for all inputs of this activation: for each of hundreds of signals, it would exceed the task timeout.
            asyncio.get_running_loop().call_soon(self._show)
        published = (state.spec_hash, state.status, len(state.authority.requests), dormancy_of(state))
        if published == self._published and not (silent and self._published_at != self._passed_on):
            return
        self._published, self._published_at = published, self._passed_on
        workflow.upsert_search_attributes(self._attributes.updates(state))

    def _show(self) -> None:
        self._showing = False
        if not self._settled and not self._local:  # what is read locally has ended in a moment
            workflow.set_current_details(current_details(self._run.state, self._run.last_refusals))


def _current_activation() -> object:
    """Return an object that identifies the SDK's current activation: the same object within it, another in the next.

    The SDK offers no other way to distinguish two activations at the same time. The event loop is its instance of the
    workflow, which collects the commands of each activation in a separate object.
    """
    return asyncio.get_running_loop().__dict__["_current_completion"]
