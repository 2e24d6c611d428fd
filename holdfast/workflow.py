"""Agents in a program's own Temporal workflows.

    from holdfast.workflow import run_agent

    @workflow.defn
    class ResearchWorkflow:
        @workflow.run
        async def run(self, topic: str) -> Report:
            plan = await run_agent("planner", f"Plan research on {topic}.", result=Plan)
            found = await asyncio.gather(*(run_agent("searcher", query) for query in plan.queries))
            return await run_agent("writer", "; ".join(found), result=Report)

Each run is a thread of its own, with its log, approvals and effects, started as a child workflow. It is recorded in the
workflow's history once, so it runs once, however often the workflow is replayed. The worker's client needs
`HoldfastPlugin`, and a fleet key.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import Any, Literal, TypedDict, TypeVar, overload
from weakref import WeakKeyDictionary

from pydantic import BaseModel, TypeAdapter, ValidationError
from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.workflow import ChildWorkflowCancellationType, ChildWorkflowHandle, ParentClosePolicy
from typing_extensions import Unpack

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.authority.summaries import memo, summary
from holdfast.core.base.text import code
from holdfast.core.base.trace_context import ambient_traceparent, traceparent_or_none
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.mac.seals import is_unsealed
from holdfast.core.mac.vouched import PersonInput
from holdfast.core.run.contracts.called import (
    RESULT,
    SAY,
    STATE,
    AgentRunFailed,
    AgentState,
    ReadRequest,
    Said,
    SayRequest,
    called_input,
    thread_of,
)
from holdfast.core.run.contracts.error_types import NOT_SEALED, THREAD_EXISTS, cause_of
from holdfast.core.run.contracts.runs import WORKFLOW, RunResult
from holdfast.core.temporal.composed import Own, can_encode
from holdfast.core.trust import Trust, least

__all__ = [
    "AgentHandle",
    "AgentRunFailed",
    "AgentState",
    "RunOptions",
    "agent_handle",
    "carried",
    "is_proven",
    "run_agent",
    "start_agent",
]

T = TypeVar("T")
AnswerT = TypeVar("AnswerT")
InputT = TypeVar("InputT", bound=PersonInput)

_POLLING = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=1.5, maximum_interval=timedelta(seconds=15)
)
"""Retries without end: a worker or the database may be away, and a thread may not have answered yet."""

_ATTEMPT = timedelta(seconds=60)


@dataclass
class _Calls:
    """What one Temporal run of a program's workflow has called so far."""

    count: int = 0
    trust: Trust = "person"
    """The lowest trust level of the results that it has received."""


_calls: WeakKeyDictionary[Any, _Calls] = WeakKeyDictionary()
_lock = Lock()


def _own_calls() -> _Calls:
    running = asyncio.get_running_loop()  # the SDK has one for each Temporal run
    with _lock:  # workflows run in threads
        if running not in _calls:
            _require_plugin()
            # What it knows from the Temporal run before it may stem from results, too.
            _calls[running] = _Calls(trust="web" if workflow.info().continued_run_id else "person")
        return _calls[running]


class RunOptions(TypedDict, total=False):
    """The options of `start_agent`, which explains them."""

    id: str | None
    by: str | PersonInput
    trust: Trust | None
    budget: Budget | None
    context: BaseModel | Mapping[str, object] | None
    unattended: bool
    when_blocked: WhenBlocked | None
    nodes: Sequence[str]
    workspace: str | None
    task_queue: str | None
    parent_close_policy: ParentClosePolicy
    traceparent: str | None


def _require_plugin() -> None:
    """Check that the worker's client can encode what goes to a run.

    Raises:
        ApplicationError: It has no `HoldfastPlugin`.
    """
    if not can_encode(workflow.payload_converter()):
        raise ApplicationError(
            "the client of this workflow's worker has no HoldfastPlugin, so the workflow cannot reach agents: pass one "
            "to Client.connect(…, plugins=[HoldfastPlugin()])",
            type="PluginMissing",
            non_retryable=True,
        )


@overload
async def run_agent(agent: str, task: Content, *, result: type[T], **options: Unpack[RunOptions]) -> T: ...
@overload
async def run_agent(agent: str, task: Content, *, result: None = None, **options: Unpack[RunOptions]) -> str: ...
@overload
async def run_agent(agent: str, task: Content, *, result: Any, **options: Unpack[RunOptions]) -> Any: ...
async def run_agent(agent: str, task: Content, *, result: Any = None, **options: Unpack[RunOptions]) -> Any:
    """Run an agent to its end, and return its result.

    Args:
        agent: The agent's name in the catalog of the workers that run it.
        task: The task: text, or content blocks.
        result: The agent's result type, as in `Agent(result=…)`; None for its last reply as text.
        options: The other options of `start_agent`. The run does not stay open for messages.

    Returns:
        A value of `result`; the text of the last reply without one.

    Raises:
        AgentRunFailed: The run failed or was cancelled, gave no such result, or its thread existed already.
    """
    handle = await start_agent(agent, task, idle_limit=0, **options)
    return await handle.result(result)


async def start_agent(
    agent: str,
    task: Content,
    *,
    id: str | None = None,
    by: str | PersonInput = "",
    trust: Trust | None = None,
    budget: Budget | None = None,
    context: BaseModel | Mapping[str, object] | None = None,
    unattended: bool = False,
    when_blocked: WhenBlocked | None = None,
    nodes: Sequence[str] = (),
    workspace: str | None = None,
    idle_limit: float | None = None,
    task_queue: str | None = None,
    parent_close_policy: ParentClosePolicy = ParentClosePolicy.ABANDON,
    traceparent: str | None = None,
) -> "AgentHandle":
    """Start an agent's run, and return a handle once Temporal has recorded the start.

    Args:
        agent: The agent's name in the catalog of the workers that run it.
        task: The task: text, or content blocks.
        id: The id of the thread, which must be new; None to derive one from the ids of the workflow and its Temporal
            run, and the number of the call.
        by: The person for whom the agent works: a name, which is a claim; or the workflow's `PersonInput`, which proves
            the person if the workflow's start did.
        trust: The trust level of the task; None for the lowest of the results that this Temporal run has received,
            and for `web` if it continues another one.
        budget: The run's budget, within the agent's own; None for the agent's.
        context: The run's typed context: an instance of the model in `Agent(context=…)`, or its fields as JSON. None
            for no context.
        unattended: Whether the run fails instead of waiting for a person: `when_blocked="fail"`.
        when_blocked: What the run does if it cannot continue without a person: `fail` with the cause, or `wait`. None
            for the agent's own.
        nodes: The nodes that may execute the run and its sub-agents, as in `Client.start`; empty for those of the
            agent.
        workspace: A folder on the agent's worker; None for one of the run's own.
        idle_limit: Seconds that the run stays open for messages after it has answered; None for the agent's own limit.
        task_queue: The task queue of the workers that run the agent; None for the workflow's own.
        parent_close_policy: What happens to the run if the workflow ends, or continues as new, without having waited
            for it. By default, it continues: stopping it could leave the outcome of an effect unknown.
        traceparent: The span to which the run's traces link, as a W3C `traceparent`. None for OpenTelemetry's current
            span, as Temporal's tracing interceptor sets it; empty for none.

    Raises:
        AgentRunFailed: There is or was a thread of that id, the context cannot be recorded, or `nodes` selects none.
    """
    info, calls = workflow.info(), _own_calls()
    calls.count += 1
    thread = id or thread_of(info.workflow_id, info.original_execution_run_id, calls.count, agent)
    given = called_input(
        task,
        caller=info.workflow_id,
        thread=thread,
        at=workflow.now(),
        agent=agent,
        by=by.by if isinstance(by, PersonInput) else by,
        by_proven=isinstance(by, PersonInput) and is_proven(by),
        trust=trust or calls.trust,
        workspace=workspace,
        idle_limit=idle_limit,
        budget=budget,
        context=context,
        unattended=unattended,
        when_blocked=when_blocked,
        nodes=nodes,
        traceparent=ambient_traceparent() if traceparent is None else traceparent_or_none(traceparent),
    )
    shown: Any = Own(f"Agent `{code(agent)}`, started by the workflow `{code(info.workflow_id)}`.")
    title: Any = Own(summary(task))
    try:
        run = await workflow.start_child_workflow(
            WORKFLOW,
            given,
            id=thread,
            task_queue=task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            result_type=RunResult,
            memo={name: Own(value) for name, value in memo(task).items()},
            static_summary=title,
            static_details=shown,
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=parent_close_policy,
        )
    except WorkflowAlreadyStartedError:
        message = f"there is or was a thread {thread} already; choose another id, or take its `agent_handle`"
        raise AgentRunFailed(message, thread=thread, cause=THREAD_EXISTS) from None
    return AgentHandle(thread, run)


def agent_handle(thread: str) -> "AgentHandle":
    """Return a handle of any thread: one that an earlier Temporal run of this workflow started, for example.

    Args:
        thread: The thread id.
    """
    return AgentHandle(thread)


def is_proven(given: PersonInput) -> bool:
    """Return whether the start of this workflow proves the person in its input."""
    info = workflow.info()
    return given.proven(
        first_run_id=info.first_execution_run_id,
        started_at=info.workflow_start_time,
        continued=info.continued_run_id is not None,
    )


def carried(given: InputT) -> InputT:
    """Return the workflow's input for its next Temporal run, to pass to `workflow.continue_as_new`: with its proof.

    Args:
        given: The workflow's input, with any changes.
    """
    return given.in_chain(first_run_id=workflow.info().first_execution_run_id, proven=is_proven(given))


class AgentHandle:
    """A run that a workflow has started, or a thread that it knows; `start_agent` and `agent_handle` make it."""

    def __init__(self, thread: str, run: ChildWorkflowHandle[Any, RunResult] | None = None) -> None:
        self.id = thread
        """The thread id, which is also the id of the run's workflow."""
        self._run = run

    @overload
    async def result(self, kind: type[T]) -> T: ...
    @overload
    async def result(self, kind: None = None) -> str: ...
    @overload
    async def result(self, kind: Any) -> Any: ...
    async def result(self, kind: Any = None) -> Any:
        """Wait until the run has ended, and return its result.

        If the workflow is cancelled meanwhile, so is a run that this Temporal run of the workflow has started.

        Args:
            kind: The agent's result type; None for its last reply as text.

        Raises:
            AgentRunFailed: The run failed or was cancelled, or gave no such result.
        """
        ended = await (self._ended() if self._run is not None else self._polled(RESULT, RunResult))
        _note_trust(ended.trust)
        return ended.result if kind is None else _parsed(ended.result, ended.structured, kind, self.id)

    async def say(
        self,
        message: Content,
        *,
        by: str | PersonInput = "",
        when_busy: Literal["queue", "interrupt", "reject"] = "queue",
        id: str | None = None,
    ) -> str:
        """Send the agent a message, wait for its answer, and return that. A closed thread continues with the message.

        Args:
            message: Text, or content blocks.
            by: The person who sends it; a claim.
            when_busy: While the agent works: `queue` the message until the step has ended, `interrupt` the LLM call, or
                `reject` the message.
            id: An id by which the message counts once; None for one of this call.

        Raises:
            AgentRunFailed: The agent will not read the message, or the run failed or was cancelled.
        """
        name = by.by if isinstance(by, PersonInput) else by
        request = SayRequest(
            thread=self.id, message=message, by=name, when_busy=when_busy, id=id or str(workflow.uuid4())
        )
        said = await self._polled(SAY, Said, request)
        _note_trust(said.trust)
        return said.text

    async def state(self) -> AgentState:
        """Return the current state of the thread."""
        return await self._polled(STATE, AgentState)

    async def cancel(self, reason: str = "") -> None:
        """Ask the run to end. It waits for effects under way, and `result` then raises `AgentRunFailed`.

        Args:
            reason: The reason; it is in the log.
        """
        await workflow.get_external_workflow_handle(self.id).cancel(reason=reason)

    async def _ended(self) -> RunResult:
        run = self._run
        assert run is not None
        try:
            ended: Any = await run
        except ChildWorkflowError as error:
            _note_trust(None)  # its message may quote anything
            if is_cancelled_exception(error):
                task = asyncio.current_task()
                if task and task.cancelling():  # the workflow is cancelled, or a time limit of its own is over
                    raise asyncio.CancelledError from error
                raise AgentRunFailed(
                    f"the run of thread {self.id} was cancelled", thread=self.id, cause="RunCancelled"
                ) from error
            cause, message = cause_of(error)
            message = f"the run of thread {self.id} failed: {message}"
            raise AgentRunFailed(message, thread=self.id, cause=cause) from error
        if is_unsealed(ended):
            raise AgentRunFailed(f"thread {self.id}: {ended}", thread=self.id, cause=NOT_SEALED)
        if ended.first_run_id and ended.first_run_id != run.first_execution_run_id:
            message = f"the result of thread {self.id} belongs to another run of that thread"
            raise AgentRunFailed(message, thread=self.id, cause=NOT_SEALED)
        if ended.moved:
            message = f"the run of thread {self.id} was moved to another place, where no workflow waits for it"
            raise AgentRunFailed(message, thread=self.id, cause="RunMoved")
        assert isinstance(ended, RunResult)
        return ended

    async def _polled(self, activity: str, answer: type[AnswerT], request: Any = None) -> AnswerT:
        try:
            found: Any = await workflow.execute_activity(
                activity,
                ReadRequest(thread=self.id) if request is None else request,
                result_type=answer,
                start_to_close_timeout=_ATTEMPT,
                retry_policy=_POLLING,
                summary=summary(self.id),
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            _note_trust(None)
            cause, message = cause_of(error)
            raise AgentRunFailed(message, thread=self.id, cause=cause) from error
        if is_unsealed(found):
            raise AgentRunFailed(f"thread {self.id}: {found}", thread=self.id, cause=NOT_SEALED)
        assert isinstance(found, answer)
        return found


def _note_trust(trust: Trust | None) -> None:
    """Lower the trust level of later tasks to that of a result; unknown is `web`."""
    calls = _own_calls()
    calls.trust = least(calls.trust, trust or "web")


def _parsed(text: str, structured: bool, kind: Any, thread: str) -> Any:
    why = "it is text: the agent has no result type, or its budget is used up"
    if structured:
        try:
            return TypeAdapter(kind).validate_json(text)
        except ValidationError as error:
            why = str(error)
    message = f"the result of thread {thread} is no {getattr(kind, '__name__', kind)}: {why}"
    raise AgentRunFailed(message, thread=thread, cause="ResultNotStructured")
