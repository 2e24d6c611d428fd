"""Pass a run's state in process to its activities, which would otherwise query the run.

1. Most activities run in the process that has the workflow. A query travels to the server and back into the same
   process, and costs both of them milliseconds of CPU.
2. Losing the state is harmless: activities in another process, later attempts and takeovers query the run.
3. An activity receives the lines that its request names by digest, and verifies them like a query's answer.

`holdfast.worker.handover` keeps the state until the activity takes it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.core.run.contracts.commands import Request
from holdfast.core.run.contracts.llm_calls import LLMRequest
from holdfast.core.run.contracts.record import ArchiveRequest
from holdfast.core.run.machine.machine import AgentRun

HAND_OVER = "holdfast_hand_over"
"""The name under which a worker offers its workflows the function that receives that state."""

Answers = Mapping[str, Callable[..., Any]]
"""Query → the function that answers it."""


class Caller(NamedTuple):
    """A Temporal run that calls activities. One process may serve several namespaces."""

    namespace: str
    thread: str
    run_id: str


def session_of(run: AgentRun) -> dict[str, Any]:
    """Return the agent and the position of the first message, which a worker needs before it reads the transcript."""
    base = run.transcript.base
    return {
        "spec": run.state.spec,
        "compactions": base.compactions,
        "first": run.transcript.first,
        "since": base.since,
        "pinned": list(base.pinned),
        "position": run.log.first,
    }


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
    session, transcript = session_of(run), run.transcript.pages()
    return {"session": lambda: session, "transcript": transcript}, transcript.lines.size
