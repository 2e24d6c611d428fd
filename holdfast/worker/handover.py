"""Passes a run's state in process to its activities, which would otherwise query the run.

1. Most activities run in the process that has the workflow. A query travels to the server and back into the same
   process, and costs both of them milliseconds of CPU.
2. Losing the state is harmless: activities in another process, later attempts and takeovers query the run.
3. An activity receives the lines that its request names by digest, and verifies them like a query's answer.
4. Each answer is taken once. If nobody takes them, the oldest are dropped: their number and bytes are bounded.
"""

from collections import OrderedDict
from threading import Lock

from temporalio.worker import Interceptor, WorkflowInterceptorClassInput

from holdfast.core.run.contracts.commands import HAND_OVER, Answers, Caller, Request
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.machine.machine import AgentRun

LIMIT = 200
"""The most calls whose answers are kept: twice as many as the activities that a worker runs at the same time."""

LIMIT_BYTES = 32_000_000
"""The most bytes of lines that are kept, which outlive their runs in the worker's cache."""


class InProcessAnswers(Interceptor):
    """Keeps answers of the runs of one worker for its activities. As an interceptor, it offers `give` to workflows.

    Workflows and activities run in different threads. In Temporal's sandbox, a workflow's requests have their own
    classes: `give` keeps no reference to them.

    Args:
        limit: The most calls whose answers are kept.
        limit_bytes: The most bytes of lines that are kept.
    """

    def __init__(self, *, limit: int = LIMIT, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._lock = Lock()
        self._answers: OrderedDict[tuple[Caller, str], tuple[Answers, int]] = OrderedDict()
        """By call and digest of the request: the answers and the bytes of their lines."""
        self._bytes = 0

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> None:
        """Offer `give` to the worker's workflows: nothing else is intercepted."""
        input.unsafe_extern_functions[HAND_OVER] = self.give

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
