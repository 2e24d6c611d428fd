"""Runs that a program's workflow starts, and the requests to activities by which it reads and steers threads.

The workflow's code is the program's own, on a worker with a fleet key. So its starts are sealed, and its requests are,
too. What it passes on from elsewhere is as trustworthy as it was: a person is proven only by a sealed input
(`holdfast.core.mac.vouched`), and text of another agent keeps its trust level.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from temporalio.exceptions import ApplicationError

from holdfast.core.agents.agent import WhenBlocked
from holdfast.core.base.canonical import digest
from holdfast.core.base.models import Sealed
from holdfast.core.budget.budget import Budget
from holdfast.core.llm.blocks import Content
from holdfast.core.llm.messages import Usage
from holdfast.core.nodes import selected_nodes
from holdfast.core.run.contracts.runs import RunInput, check_when_blocked
from holdfast.core.run.state.features import CALLED, level_of_start
from holdfast.core.tools.typed_context import context_values
from holdfast.core.trust import Trust
from holdfast.errors import HoldfastError

SAY, STATE, RESULT = "holdfast_say", "holdfast_state", "holdfast_result"
"""The activities of a program's workflow."""

STILL_RUNNING = "StillRunning"
"""A retryable error: the thread has no answer yet. Temporal's retries of the activity poll it, and cost no history."""

PREFIX_CHARS = 120
"""Maximum length of a workflow id in the thread ids that derive from it."""


class AgentRunFailed(ApplicationError):
    """An agent's run gave no result. It fails the workflow unless the workflow catches it.

    `type` is a short name of the cause, such as `AgentNotFound`, `RunCancelled`, `ThreadExists` or
    `ResultNotStructured`; `thread` is the id of the run's thread.
    """

    def __init__(self, message: str, *, thread: str, cause: str) -> None:
        super().__init__(message, type=cause, non_retryable=True)
        self.thread = thread


def thread_of(workflow_id: str, run_id: str, number: int, agent: str) -> str:
    """Return the id of the thread of a workflow's nth run: the same on every replay, and new in each Temporal run.

    Args:
        workflow_id: The program's workflow.
        run_id: Temporal's original id of its run: a reset keeps it.
        number: The number of the run, counted from 1.
        agent: The agent's name.
    """
    tag = digest(["called/1", workflow_id, run_id])[:6]
    name = f"{workflow_id[:PREFIX_CHARS].strip()}-{tag}-{number}-{agent[:40].strip()}"
    return "".join(each if each.isprintable() else "-" for each in name)


def called_input(
    task: Content,
    *,
    caller: str,
    thread: str,
    at: datetime,
    agent: str,
    by: str,
    by_proven: bool,
    trust: Trust,
    workspace: str | None,
    idle_limit: float | None,
    budget: Budget | None,
    context: object,
    unattended: bool,
    when_blocked: WhenBlocked | None,
    nodes: Sequence[str],
    traceparent: str = "",
) -> RunInput:
    """Return the input of a run that a program's workflow starts.

    Args:
        task: The task.
        caller: The workflow's id.
        thread: The id of the run's thread.
        at: The workflow's time.
        agent: The agent's name.
        by: The person for whom the workflow asks; empty for none.
        by_proven: The workflow's own input proves that person.
        trust: The trust level of the task.
        workspace: A folder on the worker; None for one of the run's own.
        idle_limit: Seconds that the run stays open for messages; None for the agent's own limit.
        budget: The run's budget, within the agent's own; None for the agent's.
        context: The run's typed context: an instance of its model, or its fields; None for no context.
        unattended: The short form of `when_blocked="fail"`.
        when_blocked: What the run does if it cannot continue without a person; None for the agent's own.
        nodes: The nodes that may execute the run; empty for those of the agent.
        traceparent: The span that caused the start; empty for none.

    Raises:
        AgentRunFailed: The context cannot be recorded, a selector selects no nodes, or `unattended` and `when_blocked`
            contradict each other.
    """
    try:
        blocked, values = check_when_blocked(when_blocked, unattended=unattended), context_values(context)
        selected = selected_nodes(nodes)
    except HoldfastError as error:
        raise AgentRunFailed(str(error), thread=thread, cause=type(error).__name__) from error
    scope = (selected,) if selected else ()
    return RunInput(
        start=thread,
        issued_at=at,
        task=task,
        agent=agent,
        by=by,
        by_proven=by_proven,
        trust=trust,
        workspace=workspace,
        idle_limit=idle_limit,
        budget=budget,
        caller=caller,
        context=values,
        when_blocked=blocked,
        scope=scope,
        traceparent=traceparent,
        features=level_of_start(others=CALLED, context=values, when_blocked=blocked, scope=scope),
    )


class SayRequest(Sealed):
    """The input of `holdfast_say`: a message to a thread; the activity ends with the agent's answer to it."""

    thread: str
    message: Content
    by: str
    when_busy: Literal["queue", "interrupt", "reject"]
    id: str
    """Makes the message count once, however often the activity is attempted."""


class Said(Sealed):
    """The agent's answer to a message."""

    text: str
    """The answer; empty if the run ended without one."""
    trust: Trust | None = None
    """The trust level of the answer; None if it is unknown."""


class ReadRequest(Sealed):
    """The input of `holdfast_state` and `holdfast_result`."""

    thread: str


class AgentState(Sealed):
    """The state of a thread, as a program's workflow reads it."""

    thread: str
    status: str
    """`running`, `waiting_approval`, `waiting_message`, `blocked`, `paused`, `dormant`, `completed`, …"""
    agent: str | None = None
    step: int = 0
    usage: Usage = Usage()
    pending: tuple[dict[str, Any], ...] = ()
    """The open requests, as JSON: `request`, `tool`, `arguments`, `digest`, …"""
    blocked: str = ""
    """The cause, if the run is blocked."""
    result: str | None = None
    """The LLM's last reply, or the reason why the run failed; None while the agent works."""
