"""The run that called this activity: checks that the request is its own, finds its chain, and queries it.

1. Each result of an activity names the request that it answers.
2. Most activities run in the process that has the workflow. A query travels to the server and back into the same
   process, and costs both of them milliseconds of CPU. So a run passes the answers in process (`InProcessAnswers`).
3. Losing them is harmless: activities in another process, later attempts and takeovers query the run.
4. An activity receives the lines that its request names by digest, and verifies them like a query's answer.
5. Each answer is taken once. If nobody takes them, the oldest are dropped: their number and bytes are bounded.
"""

import asyncio
from collections import OrderedDict
from datetime import timedelta
from threading import Lock
from typing import Any, Protocol, Self

from temporalio import activity
from temporalio.client import WorkflowExecutionDescription, WorkflowHandle
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    WorkflowInterceptorClassInput,
)

from holdfast.activities.safe_logs import SafeLogger
from holdfast.client.reading.executions import describe, own_client
from holdfast.core.mac.seals import ActivityRequest, ActivityResult, belongs, is_unsealed
from holdfast.core.run.contracts.commands import GIVE_ANSWERS, Answers, Caller, Request
from holdfast.core.run.contracts.error_types import NOT_SEALED
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.contracts.runs import LOOP_WORKFLOW, QUERIES, WORKFLOW
from holdfast.core.run.contracts.tool_calls import ToolRequest
from holdfast.core.run.machine.machine import AgentRun
from holdfast.core.tools.effects import effect_key

NO_ANSWERS: Answers = {}

QUERY_TIMEOUT = timedelta(seconds=10)
"""An answer takes 5 ms. Without a limit, a worker that shuts down would wait for ever for its own answer."""

log = SafeLogger(__name__)

DESCRIBE_TIMEOUT = timedelta(seconds=10)
"""How long Temporal may take to describe a run; after that, Temporal retries the activity."""

KEPT_CALLS = 200
"""The most calls whose answers are kept: twice as many as the activities that a worker runs at the same time."""

KEPT_BYTES = 32_000_000
"""The most bytes of lines that are kept, which outlive their runs in the worker's cache."""

_WORKFLOW_TYPES = frozenset({WORKFLOW, LOOP_WORKFLOW})


class InProcessAnswers(Interceptor):
    """Keeps answers of the runs of one worker for its activities. As an interceptor, it offers `give` to workflows.

    Workflows and activities run in different threads. In Temporal's sandbox, a workflow's requests have their own
    classes: `give` keeps no reference to them.

    Args:
        limit: The most calls whose answers are kept.
        limit_bytes: The most bytes of lines that are kept.
    """

    def __init__(self, *, limit: int = KEPT_CALLS, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._lock = Lock()
        self._answers: OrderedDict[tuple[Caller, str], tuple[Answers, int]] = OrderedDict()
        """By call and digest of the request: the answers and the bytes of their lines."""
        self._bytes = 0

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        """Offer `give` to the worker's workflows: nothing else is intercepted."""
        input.unsafe_extern_functions[GIVE_ANSWERS] = self.give

    def give(self, run: AgentRun, request: Request, *, caller: Caller) -> None:
        """Keep the answers that the activity of a request will query the run for, in their present state.

        Args:
            run: The run that makes the request.
            request: A request that is about to be made.
            caller: Its Temporal run.
        """
        if not (digest := request_digest(request)):
            return
        answers, size = answers_for(run, request)
        with self._lock:
            self._drop((caller, digest))  # a repeated workflow task makes the same request
            self._answers[caller, digest] = answers, size
            self._bytes += size
            while len(self._answers) > self._limit or self._bytes > self._limit_bytes:
                self._drop(next(iter(self._answers)))

    def take(self, request: Request, *, caller: Caller) -> Answers:
        """Return the kept answers for a request, once; empty if the run executed in another process."""
        with self._lock:
            return self._drop((caller, request_digest(request)))

    def _drop(self, key: tuple[Caller, str]) -> Answers:
        answers, size = self._answers.pop(key, ({}, 0))
        self._bytes -= size
        return answers


def request_digest(request: Request) -> str:
    """Return the digest of the lines that a request names: a repeated workflow task may name others.

    Empty if the activity reads nothing from the run.
    """
    if isinstance(request, LLMRequest):
        return request.transcript.digest
    return request.head if isinstance(request, ArchiveRequest) else ""


def answers_for(run: AgentRun, request: Request) -> tuple[Answers, int]:
    """Return the answers to the activity's queries, and the size of their lines in bytes."""
    if isinstance(request, ArchiveRequest):
        log = run.log.pages()
        return {"log": log}, log.lines.size
    session, transcript = run.session, run.transcript.pages()
    return {"session": lambda: session, "transcript": transcript}, transcript.lines.size


class CallingRun:
    """The run that called this activity.

    Args:
        thread: The id of its thread, which is the workflow id.
        handle: A handle of this one Temporal run.
        passed: The answers that the run has passed in process, by query.
    """

    def __init__(self, thread: str, handle: WorkflowHandle[Any, Any], passed: Answers = NO_ANSWERS) -> None:
        self.thread = thread
        self.handle = handle
        self._passed = passed

    @classmethod
    def of(cls, request: Request | None = None, *, in_process: InProcessAnswers | None = None) -> Self:
        """Return the run that called the current activity.

        Args:
            request: The activity's request, which the run passed its answers with; None to query the run anyway.
            in_process: Holds the answers that runs pass in process; None to query the run anyway.
        """
        thread, info = calling_thread(), activity.info()
        run_id = info.workflow_run_id
        caller = Caller(info.workflow_namespace or "", thread, run_id or "")
        passed = in_process.take(request, caller=caller) if in_process and request else NO_ANSWERS
        return cls(thread, own_client().get_workflow_handle(thread, run_id=run_id), passed)

    async def query(self, query: str, *args: Any) -> Any:
        """Return the answer that the run has passed in process, or query it; queries leave no trace in history.

        Raises:
            RPCError: No worker answered in time. Retryable.
            ApplicationError: NOT_SEALED: the answer is not from a worker of this fleet. Retryable.
        """
        if passed := self._passed.get(query):
            await asyncio.sleep(0)  # let other activities run between two pages, as a query would
            return passed(*args)
        answer = await self.handle.query(query, args=args, result_type=QUERIES[query], rpc_timeout=QUERY_TIMEOUT)
        if is_unsealed(answer):
            raise ApplicationError(f"thread {self.thread}, query {query}: {answer}", type=NOT_SEALED)
        return answer


def converter_of(thread: str) -> DataConverter:
    """Return the converter for the histories of a thread; it accepts only seals of that thread."""
    client = own_client()
    return client.data_converter.with_context(
        WorkflowSerializationContext(namespace=client.namespace, workflow_id=thread)
    )


def calling_thread() -> str:
    """Return the thread of the run that called the current activity."""
    thread = activity.info().workflow_id
    assert thread is not None, "every activity is called by a workflow"
    return thread


class Chains:
    """Maps each Temporal run to its chain. The chain never changes, so Temporal is asked once per run.

    Args:
        limit: The most runs to cache.
    """

    def __init__(self, *, limit: int = 10_000) -> None:
        self._limit = limit
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def first_run_id(self, workflow_id: str, run_id: str) -> str:
        """Return the first run id of the chain that a run belongs to."""
        key = (workflow_id, run_id)
        if key not in self._known:
            self._known[key] = (await describe_run(workflow_id, run_id)).raw_info.first_run_id
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    async def current_run_id(self, workflow_id: str) -> str:
        """Return the id of the newest run under this workflow id."""
        return (await describe_run(workflow_id)).run_id


async def describe_run(workflow_id: str, run_id: str = "") -> WorkflowExecutionDescription:
    """Return Temporal's description of a run; of the newest one if `run_id` is empty."""
    return await describe(own_client(), workflow_id, run_id=run_id, within=DESCRIBE_TIMEOUT)


class SignsResults(Protocol):
    """Signs the results of activities (`holdfast.activities.signed_results`)."""

    async def sign(self, request: ActivityRequest, result: ActivityResult) -> str:
        """Return the signature of the current activity's result; empty for none."""


class RequestCheck(Interceptor):
    """A worker interceptor that rejects activity requests that are unsealed, or not from the calling run. Each result
    names its request and is signed, as the last thing that happens to it: no interceptor outside may change results.

    Args:
        chains: Maps a Temporal run to its chain.
        signer: Signs the results; None to sign none.
    """

    def __init__(self, chains: Chains, signer: SignsResults | None = None) -> None:
        self._chains = chains
        self._signer = signer

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Activity(next, self._chains, self._signer)


class _Activity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, chains: Chains, signer: SignsResults | None) -> None:
        super().__init__(next)
        self._chains = chains
        self._signer = signer

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        request = input.args[0] if len(input.args) == 1 else None
        if reason := await self._rejection(request):
            info = activity.info()
            log.warning(
                "request_rejected",
                activity=info.activity_type,
                workflow=info.workflow_id,
                run=info.workflow_run_id,
                reason=reason,
            )
            raise ApplicationError(f"{info.activity_type} refuses: {reason}", type=NOT_SEALED, non_retryable=True)
        assert isinstance(request, ActivityRequest)
        result = await super().execute_activity(input)
        if not isinstance(result, ActivityResult):
            return result
        added = {"answers": request.order}
        if self._signer and (signed := await self._signer.sign(request, result)):
            added["signed"] = signed
        return result.model_copy(update=added)

    async def _rejection(self, request: Any) -> str:
        """Return why the activity must not run; empty if it may."""
        if not isinstance(request, ActivityRequest):
            return str(request) if request is not None else "it takes one request of a run"
        info = activity.info()
        if info.is_local:
            return ""  # the request comes from this process's own workflow code, and never left it
        if info.workflow_type not in _WORKFLOW_TYPES or not info.workflow_id or not info.workflow_run_id:
            return f"a workflow of type {info.workflow_type!r} may not call it"
        chain = await self._chains.first_run_id(info.workflow_id, info.workflow_run_id)
        if not belongs(request, workflow_id=info.workflow_id, first_run_id=chain):
            return f"{info.workflow_id} ({chain}) has not made the call {request.order!r}"
        if isinstance(request, ToolRequest):
            call, thread = request.call, info.workflow_id
            first_run_id = request.first_run_id or chain
            key = effect_key(thread=thread, first_run_id=first_run_id, number=request.number, call_digest=call.digest)
            if key != request.key:
                return f"call {request.number} of {thread} has the effect key {key}, not {request.key}"
        return ""
