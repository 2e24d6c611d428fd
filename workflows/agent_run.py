"""AgentRunWorkflow: one agent run, whose Temporal history is the event log.

This shell is thin. Inputs arrive from the SDK: signals and updates, then the ends of calls, then a request to cancel
(`run_interface` has the signals, updates and queries). `replay_safe_inbox` decides when each is delivered;
`holdfast.core.run.machine.machine` processes it and returns commands; `driver` starts the calls and timers of these
commands. At the machine's command, the run continues as new (continue-as-new, `holdfast.core.run.machine.rollover`).
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from holdfast.core.mac.seals import SealKeyUnknown
from holdfast.core.mac.starts import NO_INPUT, only
from holdfast.core.run.contracts.commands import Call, Stop
from holdfast.core.run.contracts.runs import WORKFLOW, RunInput, RunResult
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.run.state.state import RunState
from holdfast.workflows.driver import Attributes, accept_any_arguments, keep_trace, pass_in_process, start, wait_for_end
from holdfast.workflows.replay_safe_inbox import Input, ReplaySafeInbox
from holdfast.workflows.run_interface import RunInterface

_NO_INPUT = RunInput(malformed=NO_INPUT)


@workflow.defn(name=WORKFLOW)
class AgentRunWorkflow(RunInterface):
    """A durable agent run: a task in, a result out, and every step in history exactly once."""

    @workflow.init
    @accept_any_arguments
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
        self._inbox = ReplaySafeInbox(self._run)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._waiters: set[asyncio.Task[None]] = set()
        self._attributes = Attributes()
        self._key_unknown: SealKeyUnknown | None = None
        """An error is sealed with a key that this worker does not have."""
        self._answer_web_ui()
        workflow.register_random_seed_callback(partial(self._on_new_seed, asyncio.get_running_loop()))

    @workflow.run
    @accept_any_arguments
    async def run(self, run: RunInput = _NO_INPUT, *more: Any) -> RunResult:
        """Run the agent to its end, or until the run continues as new.

        Raises:
            ApplicationError: The run failed, for example because there is no such agent or no readable past.
            CancelledError: The run was cancelled, and has waited for the effects in progress.
        """
        self._carry_out()
        cancelled: BaseException | None = None
        while True:
            try:
                await workflow.wait_condition(self._over)
                break
            except asyncio.CancelledError as error:
                cancelled = error
                await workflow.wait_condition(lambda: True)  # calls that ended in the same workflow task come first
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
        """Whether the run has ended. An error fails the workflow task, not the run.

        Raises:
            RuntimeError: A query exposed events early: the run is replayed.
            FeaturesUnknown: The run needs a newer release: a newer worker takes it.
            SealKeyUnknown: An error is sealed with a key that this worker lacks: another worker takes the run.
        """
        if self._key_unknown:
            raise self._key_unknown
        if self._inbox.outdated:
            raise RuntimeError("a query exposed events early; this workflow task fails once, and the run is replayed")
        self._run.conclude()
        return self._run.end is not None

    def _on_new_seed(self, loop: asyncio.AbstractEventLoop, _: int) -> None:
        """Pass on an empty input, which detects a reset: perhaps no other input arrives."""
        loop.call_soon(self._pass_on, lambda run: None)

    def _pass_on(self, arrived: Input) -> None:
        self._apply(self._inbox.deliver(arrived))

    def _apply(self, inputs: Iterator[Input]) -> None:
        for arrived in inputs:
            arrived(self._run)
            self._carry_out()

    def _carry_out(self) -> None:
        """Carry out the run's commands, in order."""
        keep_trace(self._run.state)
        commands = self._run.commands()
        for command in commands:
            if isinstance(command, Stop):
                if call := self._calls.get(command.id):  # not there if it has ended, and its end awaits delivery
                    call.cancel()
                continue
            if isinstance(command, Call):
                # To answer a query, the SDK would run a local activity at once: an ordinary one waits.
                if command.seconds and not self._settled:
                    self._inbox.expect(command.id)
                else:
                    command = replace(command, seconds=0)
                    if not self._settled and not workflow.unsafe.is_replaying():
                        pass_in_process(self._run, command.request)
            self._calls[command.id] = started = start(command, self._run.state)
            waiter = asyncio.create_task(self._wait_for(command.id, started))
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
        self._publish(silent=not commands and not self._run.over)

    async def _wait_for(self, call_id: int, started: asyncio.Future[Any]) -> None:
        """Wait for the end of a call, and pass it on."""
        try:
            end = await wait_for_end(started)
        except SealKeyUnknown as unknown:
            self._key_unknown = unknown  # an exception raised in this task would go unnoticed
            return
        del self._calls[call_id]
        self._apply(self._inbox.deliver_end(call_id, lambda run: run.ended(call_id, end)))

    # Queries and search attributes.

    @property
    def _settled(self) -> tuple[int, RunState] | None:
        return self._inbox.settled

    def _publish(self, *, silent: bool) -> None:
        """Publish the run's search attributes. They cost an event in history: they are set when they change.

        They are also set, to leave a trace, when no input of a workflow task led to a command (`silent`).
        """
        state = self._run.state
        if self._attributes.due(state) or (silent and self._inbox.untraced):
            self._inbox.leave_trace()
            workflow.upsert_search_attributes(self._attributes.updates(state))
