"""AgentLoopWorkflow: fresh agent runs on one workspace, one task each, until everything is done.

Each iteration is a child workflow, an agent run with its own thread and log. `holdfast.core.loop.decide` has the rules.
Between iterations only the workspace's files and the `LoopState` remain, and the loop may continue as new
(continue-as-new).
"""

import asyncio
import contextlib
from typing import Any, NoReturn, assert_never

from temporalio import workflow
from temporalio.common import SearchAttributeUpdate
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    is_cancelled_exception,
)

from holdfast.core.base.models import replace
from holdfast.core.budget.tree import allowance_of
from holdfast.core.log.events import RunBlocked, RunFinished, RunOutcome
from holdfast.core.log.loop_events import IterationStarted
from holdfast.core.loop.activities import SETTLE, SURVEY
from holdfast.core.loop.briefs import initializer_brief, iteration_brief
from holdfast.core.loop.decide import Block, Finish, Initialize, Work, next_step, on_settled, on_survey, result_of
from holdfast.core.loop.details import loop_details
from holdfast.core.loop.recorder import LoopRecorder
from holdfast.core.loop.state import (
    LoopInput,
    LoopResult,
    Settled,
    SettleRequest,
    Survey,
    SurveyRequest,
)
from holdfast.core.loop.steering import on_pause_due
from holdfast.core.mac.seals import answers, call_name
from holdfast.core.mac.starts import NO_INPUT, only, refusal
from holdfast.core.run.contracts.error_types import NOT_SEALED, START_REFUSED, cause_of
from holdfast.core.run.contracts.record import Notice, Notified, Occasion
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW
from holdfast.core.run.contracts.snapshot import TAIL_BYTES
from holdfast.core.run.contracts.table import NOTIFY
from holdfast.core.run.machine.rollover import SIGNAL_LIMIT
from holdfast.core.run.state.features import require_features
from holdfast.core.run.views.notices import TEXT_CHARS
from holdfast.workflows.driver import AGENT, STATUS, STEP, accept_any_arguments, start_activity
from holdfast.workflows.iterations import run_agent
from holdfast.workflows.loop_interface import LoopInterface
from holdfast.workflows.loop_log_writer import LogWriter
from holdfast.workflows.replay_safe_inbox import activation

FORGED = "the activity's answer does not come from our own processes, or belongs to another call"

HISTORY_EVENTS = 4_000
"""Length of Temporal's history, in events, at which the loop continues as new."""

_NO_INPUT = LoopInput(malformed=NO_INPUT)


@workflow.defn(name=LOOP_WORKFLOW)
class AgentLoopWorkflow(LoopInterface):
    """A loop: a goal and a workspace in, a workspace with all tasks done out."""

    @workflow.init
    @accept_any_arguments
    def __init__(self, loop: LoopInput = _NO_INPUT, *more: Any) -> None:
        """Begin or continue the loop, before any signal can arrive."""
        info, loop = workflow.info(), only(loop, more, LoopInput)
        self._loop = loop
        self._refused = refusal(loop, first_run_id=info.first_execution_run_id, started_at=info.workflow_start_time)
        if not self._refused:
            require_features(loop.features)
        self._recorder = LoopRecorder(
            LoopInput() if self._refused else loop,
            thread=info.workflow_id,
            run_id=info.original_execution_run_id,
            first_run_id=info.first_execution_run_id,
            at=workflow.now(),
        )
        self._signals = 0
        self._log_writer = LogWriter(self._recorder, self._next_order)
        self._published: tuple[object, ...] = ()
        self._traced: tuple[object, ...] = ()
        """Time and length of history when a signal last left a trace in history."""
        self._open_notices: list[asyncio.Future[Notified]] = []
        """Notices that are being sent."""

    @workflow.run
    @accept_any_arguments
    async def run(self, loop: LoopInput = _NO_INPUT, *more: Any) -> LoopResult:
        """Work through the workspace's tasks.

        Raises:
            ApplicationError: The agent or the workspace does not exist, or the agent lacks the tools for a loop. After
                the first iteration, such an error blocks the loop instead. An unattended loop fails with the cause of
                its block.
            CancelledError: The loop was cancelled, and its iteration with it; the iteration's end is recorded.
        """
        if self._refused:
            raise ApplicationError(self._refused, type=START_REFUSED, non_retryable=True)
        try:
            return await self._work()
        except (asyncio.CancelledError, ActivityError):
            self._end("cancelled", "it was cancelled")
            await self._log_writer.write_all()
            raise
        except ApplicationError as error:
            if self._loop.when_blocked != "fail":
                self._end("failed", error.message)
                raise
            self._end("failed", error.message, cause=error.type or "")
            self._notify("run_finished", f"{error.type}: {error.message}")
            await self._log_writer.write_all()
            await self._wait_for_notices()
            raise

    async def _work(self) -> LoopResult:
        while True:
            self._publish()
            await self._wait_for_people()
            await self._continue_as_new_if_due()
            survey = await self._survey()
            self._record(on_survey(survey, level=self._loop.features))
            require_features(self._state.features)
            if self._state.paused:  # paused during the survey: the reply promised that no iteration begins
                continue
            step = next_step(self._loop, self._state, survey, at=workflow.now(), refused=self._recorder.refused)
            match step:
                case Finish():
                    result = result_of(self._state)
                    self._end("completed", f"{result.tasks} tasks are done, after {result.iterations} iterations")
                    self._notify("run_finished", self._state.result)
                    await self._log_writer.write_all()
                    await self._wait_for_notices()
                    return result
                case Block() as block if self._loop.when_blocked == "fail":
                    self._record(RunBlocked(cause=block.cause, message=block.message))
                    raise ApplicationError(block.message, type=block.cause, non_retryable=True)
                case Block() as block:
                    self._record(RunBlocked(cause=block.cause, message=block.message))
                    self._notify("run_blocked", f"{block.cause}: {block.message}")
                case Work(task=task):
                    await self._iterate(survey, task)
                case Initialize():
                    await self._iterate(survey, "")
                case _:
                    assert_never(step)

    def _end(self, outcome: RunOutcome, result: str, *, cause: str = "") -> None:
        self._recorder.record_refusals(at=workflow.now())
        self._record(RunFinished(outcome=outcome, result=result, cause=cause))
        self._publish()

    async def _wait_for_people(self) -> None:
        """Wait while the loop is paused or blocked."""
        while self._state.paused or self._state.blocked:
            if due := on_pause_due(self._state, at=workflow.now()):
                self._record(*due)
                self._publish()
                continue
            self._log_writer.write_once(self._wait_causes)
            if self._must_end_waiting():
                await self._continue_as_new()
            causes, until = self._wait_causes, self._state.paused and self._state.paused.until
            timeout = max(0.01, (until - workflow.now()).total_seconds()) if until else None
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._wait_causes != causes or self._must_end_waiting(),  # noqa: B023  # awaited in the loop's body
                    timeout=timeout,
                    timeout_summary="until the pause is over",
                )

    @property
    def _wait_causes(self) -> tuple[object, ...]:
        """The reasons why the loop waits: its pause and its block."""
        return self._state.paused, self._state.blocked

    def _must_end_waiting(self) -> bool:
        """Whether so many signals arrived during the wait that this Temporal run has to end."""
        log = self._recorder.log
        return self._state.logged and self._signals >= SIGNAL_LIMIT and log.size_since(log.first) <= TAIL_BYTES

    async def _survey(self) -> Survey:
        state, loop = self._state, self._loop
        request = SurveyRequest(
            order=self._next_order(),
            workspace=loop.workspace,
            agent=loop.agent,
            initializer=loop.initializer,
            key=str(workflow.uuid4()),
            priced=loop.limits.cost is not None,
            log=self._recorder.next_part(),
        )
        try:
            survey = await start_activity(SURVEY, request, state)
            if not answers(survey, request):
                return Survey(problem=FORGED, cause=NOT_SEALED)
            if request.log and survey.logged:
                self._recorder.on_written(request.log, survey.logged)
            return survey
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause, message = cause_of(error)
            if state.count:  # an iteration has run: failures now block the loop instead of ending it
                return Survey(problem=message, cause=cause)
            raise ApplicationError(message, type=cause, non_retryable=True) from error

    async def _iterate(self, survey: Survey, task: str) -> None:
        """Run one iteration in a fresh agent run, and record its end."""
        state, number = self._state, self._state.count
        brief = iteration_brief(state, task, number=number) if task else initializer_brief(state)
        self._record(IterationStarted(number=number, thread=f"{state.thread}-{number}", task=task))
        self._publish()
        iteration = self._state.recent[-1]
        budget = allowance_of(self._state.account, number)
        end, explanation, run_id = await run_agent(
            self._loop, iteration, brief, trust=survey.trust, deadline=self._state.deadline, budget=budget
        )
        request = SettleRequest(
            order=self._next_order(),
            workspace=self._loop.workspace,
            thread=iteration.thread,
            number=number,
            task=task,
            twins=survey.twins,
            finished=survey.finished,
            head=survey.head,
            llm=survey.llm if task else survey.initializer_llm,
            key=str(workflow.uuid4()),
            end=end,
            explanation=explanation,
            log_head=self._state.logged,
            budget=budget,
            run_id=run_id if budget else "",
        )
        settling = start_activity(SETTLE, request, self._state)
        try:
            settled = await asyncio.shield(settling)
        except asyncio.CancelledError:  # still record the iteration's end
            settled = await settling
        if not answers(settled, request):
            settled = Settled(outcome="failed", explanation=FORGED)
        self._record(on_settled(number, settled))
        # Checked, not caught: waiting for a cancelled child raises the same error as the loop's own cancellation.
        if workflow.cancellation_reason() is not None:
            raise asyncio.CancelledError

    def _next_order(self) -> str:
        """Return the name of the next activity request."""
        self._recorder.state = replace(self._state, orders=self._state.orders + 1)
        info = workflow.info()
        return call_name(
            workflow_id=info.workflow_id, first_run_id=info.first_execution_run_id, number=self._state.orders
        )

    def _notify(self, occasion: Occasion, text: str) -> None:
        """Start to send a notice, if the worker has receivers."""
        if not self._state.notify:
            return
        self._recorder.state = replace(self._state, notices=self._state.notices + 1)
        state = self._state
        notice = Notice(
            order=self._next_order(),
            occasion=occasion,
            position=state.notices,
            agent=state.agent,
            status=state.status,
            text=text[:TEXT_CHARS],
        )
        self._open_notices.append(start_activity(NOTIFY, notice, None))

    async def _wait_for_notices(self) -> None:
        """Wait until each notice is sent or has failed."""
        await asyncio.gather(*self._open_notices, return_exceptions=True)
        self._open_notices.clear()

    async def _continue_as_new_if_due(self) -> None:
        info = workflow.info()
        if info.is_continue_as_new_suggested() or info.get_current_history_length() >= HISTORY_EVENTS:
            await self._continue_as_new()

    async def _continue_as_new(self) -> NoReturn:
        """Continue as new. A write in progress is abandoned: the next Temporal run writes the same events again."""
        await self._wait_for_notices()
        first_run_id = workflow.info().first_execution_run_id
        workflow.continue_as_new(self._recorder.next_input(self._loop, first_run_id=first_run_id, at=workflow.now()))

    def _publish(self, *, trace: bool = False) -> None:
        """Publish the loop's state for the Web UI.

        Args:
            trace: Leave a trace in history. The SDK replays a workflow task without commands together with the next
                one, at the next one's time: an event caused only by a signal would get a different time.
        """
        state = self._state
        workflow.set_current_details(loop_details(state))
        published = (state.agent, state.status, state.count)
        now = activation()
        if published == self._published and not (trace and now != self._traced):
            return
        self._traced = now
        self._published = published
        updates: list[SearchAttributeUpdate[Any]] = [STATUS.value_set(state.status), STEP.value_set(state.count)]
        if state.agent:
            updates.append(AGENT.value_set(state.agent))
        workflow.upsert_search_attributes(updates)
