"""What a run hands over to the activities of its own process, which would otherwise query it for the same.

1. Most activities run in the process that has the workflow. A query goes from there to the server and back into that
   process, and costs both of them milliseconds of CPU.
2. Losing it is harmless: an activity in another process, a later attempt, and one that is taken over query the run.
3. An activity is handed the lines that its request names by digest, and checks them as it checks a query's answer.
4. Each is taken once. Of those that nobody takes, the oldest are dropped: what is kept is bounded in number and bytes.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from holdfast.run.commands import Request
from holdfast.run.contracts import ArchiveRequest, LLMRequest
from holdfast.run.machine import AgentRun

Answers = Mapping[str, Callable[..., Any]]
"""Query → what answers it."""

LIMIT = 200
"""The most calls whose answers are kept: twice as many as the activities that a worker runs at the same time."""

LIMIT_BYTES = 32_000_000
"""The most bytes of lines that are kept, which outlive their runs in the worker's cache."""


class Caller(NamedTuple):
    """A Temporal run that calls activities. One process may serve several namespaces."""

    namespace: str
    thread: str
    run_id: str


class HandOver:
    """The answers that the runs of one process have for their activities.

    Workflows and activities run in different threads.

    Args:
        limit: The most calls whose answers are kept.
        limit_bytes: The most bytes of lines that are kept.
    """

    def __init__(self, *, limit: int = LIMIT, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._lock = Lock()
        self._answers: OrderedDict[tuple[Caller, str], tuple[Answers, int]] = OrderedDict()
        """Of each call, by the digest that it names: the answers and the bytes of their lines."""
        self._bytes = 0

    def give(self, run: AgentRun, request: Request, *, caller: Caller) -> None:
        """Keep what the activity of a request will ask the run for, as it stands now.

        Args:
            run: The run that makes the request.
            request: A request that is about to be made.
            caller: Its Temporal run.
        """
        if not (digest := _digest(request)):
            return
        answers, size = _answers(run, request)
        with self._lock:
            self._drop((caller, digest))  # a repeated workflow task makes the same request
            self._answers[caller, digest] = answers, size
            self._bytes += size
            while len(self._answers) > self._limit or self._bytes > self._limit_bytes:
                self._drop(next(iter(self._answers)))

    def take(self, request: Request, *, caller: Caller) -> Answers:
        """Return what the run has handed over for a request; nothing where it ran in another process, or once taken."""
        with self._lock:
            return self._drop((caller, _digest(request)))

    def _drop(self, key: tuple[Caller, str]) -> Answers:
        answers, size = self._answers.pop(key, ({}, 0))
        self._bytes -= size
        return answers


HAND_OVER = HandOver()
"""That of this process. Temporal's sandbox gives each workflow one of its own, which no activity takes from."""


def session_of(run: AgentRun) -> dict[str, Any]:
    """Return what a worker needs before it reads the transcript: the agent, and where the messages begin."""
    base = run.transcript.base
    return {
        "spec": run.state.spec,
        "compactions": base.compactions,
        "first": run.transcript.first,
        "since": base.since,
        "pinned": list(base.pinned),
        "position": run.log.first,
    }


def _digest(request: Request) -> str:
    """Return the digest of what a request refers to: a repeated workflow task may make the same request of other lines.

    Empty for a request whose activity asks the run for nothing.
    """
    if isinstance(request, LLMRequest):
        return request.transcript.digest
    return request.head if isinstance(request, ArchiveRequest) else ""


def _answers(run: AgentRun, request: Request) -> tuple[Answers, int]:
    """Return the answers, and the bytes of their lines."""
    if isinstance(request, ArchiveRequest):
        log = run.log.pages()
        return {"log": log}, log.lines.size
    session, transcript = session_of(run), run.transcript.pages()
    return {"session": lambda: session, "transcript": transcript}, transcript.lines.size
