"""The events of a loop that agent runs do not have, and the union of all events in a loop's log.

A loop has its own log, with the same lines, chain and store as a run's. It begins with `loop_started`, and each of its
iterations is another thread. When a loop does the same as a run (it is paused or blocked, rejects a signal, ends), it
records the same event (`holdfast.core.log.events`), which then describes the loop.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from holdfast.core.base.canonical import GENESIS
from holdfast.core.base.models import Frozen
from holdfast.core.budget.tree import TreeCost
from holdfast.core.llm.messages import Usage
from holdfast.core.log.events import (
    AgentEvent,
    Event,
    RefusalsCounted,
    RunBlocked,
    RunContinued,
    RunFinished,
    RunPaused,
    RunResumed,
    RunUnblocked,
    SignalRejected,
)

IterationOutcome = Literal["completed", "blocked", "failed", "changed"]
"""The task was completed · reported as impossible, with a reason · neither · changed or removed by others."""


class LoopLimits(Frozen):
    """Limits of a loop. A loop that reaches one is blocked; `retry` grants the same amount again."""

    iterations: int = Field(default=100, ge=1)
    cost: float | None = Field(default=None, gt=0)
    """US dollars, by the list prices of the LLM. The remainder is the budget of the next iteration."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of requests and replies; the remainder is likewise the next iteration's budget."""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds since its start, pauses included; the current iteration is stopped."""
    attempts: int = Field(default=3, ge=1)
    """Number of consecutive iterations that may fail at the same task."""


class LoopStarted(Event):
    """The loop began. Recorded from feature level 1 on, as are all events of loops.

    Followed by: `workspace_surveyed`.
    Correlate: `run_id` is Temporal's; the iterations are the threads in `iteration_started`.
    """

    type: Literal["loop_started"] = "loop_started"
    thread: str
    """The loop's id."""
    run_id: str
    """Temporal's run id; a reset loop keeps the id that it began with."""
    first_run_id: str
    """The first run id of the chain of Temporal runs."""
    workspace: str
    task: str = ""
    """The goal; empty if the workspace already has the tasks."""
    agent: str | None = None
    """The requested agent for the tasks; None for the catalog's first."""
    initializer: str | None = None
    """The requested agent for the plan; None for the same one."""
    by: str = ""
    """The person who started it."""
    user_proven: bool = True
    """Whether it is proven that this person started the loop."""
    start: str = ""
    """The id of the sealed start."""
    unattended: bool = False
    """Whether the loop and its iterations fail instead of waiting for a person. Recorded from feature level 2 on."""
    limits: LoopLimits = LoopLimits()
    before: dict[str, Any] | None = None
    """The loop's state as JSON, if workers of 0.1.0 ran the loop before its log began."""


class WorkspaceSurveyed(Event):
    """A worker read the files of the workspace.

    Followed by: `iteration_started`, `run_blocked` or `run_finished`; `run_paused` may come before.
    """

    type: Literal["workspace_surveyed"] = "workspace_surveyed"
    agent: str = ""
    """The agent for the tasks."""
    open: int = 0
    """Number of open tasks."""
    done: int = 0
    """Number of completed tasks."""
    notify: bool = False
    """Whether the worker sends notifications of blocks and of the end."""
    features: int = 0
    """The feature level (`holdfast.core.run.state.features`) from here on, if the loop has no higher one."""


class IterationStarted(Event):
    """An iteration began: an agent run in its own thread.

    Followed by: `iteration_ended`.
    Correlate: `number` is that of the `iteration_ended`; `thread` is the thread of the agent run.
    """

    type: Literal["iteration_started"] = "iteration_started"
    number: int
    """From 0; the initializer's run counts as well."""
    thread: str
    task: str = ""
    """The title of the task; empty for the initializer."""


class IterationEnded(Event):
    """An iteration ended, and its outcome was read from the files.

    Followed by: `workspace_surveyed`; `run_paused` and `run_resumed` may come before.
    Correlate: `number` is that of the `iteration_started`. `log_head` is the digest of event `log_events - 1` in the
    log of its thread.
    """

    type: Literal["iteration_ended"] = "iteration_ended"
    number: int
    outcome: IterationOutcome
    explanation: str = ""
    commits: tuple[str, ...] = ()
    """The commits, oldest first: `abc1234 subject`."""
    usage: Usage = Usage()
    cost: float | None = None
    """US dollars; None if the price of the LLM is unknown."""
    spent: TreeCost | None = None
    """The amount that it and all runs below it have spent of the loop's account; None if the loop limits neither tokens
    nor cost, or if the amount is unknown, in which case the iteration's whole budget counts."""
    log_events: int = 0
    """Number of events in its thread's log; 0 if the log could not be read."""
    log_head: str = ""
    """The digest of the last of them."""


LoopEvent = Annotated[
    LoopStarted
    | WorkspaceSurveyed
    | IterationStarted
    | IterationEnded
    | RunContinued
    | RunBlocked
    | RunUnblocked
    | RunPaused
    | RunResumed
    | SignalRejected
    | RefusalsCounted
    | RunFinished,
    Field(discriminator="type"),
]
"""An event of a loop's log."""

LOOP_EVENTS: TypeAdapter[list[LoopEvent]] = TypeAdapter(list[LoopEvent])
"""Decodes the events of loops, each by its type."""

StoredEvent = Annotated[
    AgentEvent | LoopStarted | WorkspaceSurveyed | IterationStarted | IterationEnded, Field(discriminator="type")
]
"""An event of any log."""

STORED_EVENTS: TypeAdapter[list[StoredEvent]] = TypeAdapter(list[StoredEvent])
"""Decodes events of any log, each by its type."""


class LogPart(Frozen):
    """Consecutive events of a loop, to be written to the permanent record."""

    start: int = 0
    """The position of the first."""
    base: str = GENESIS
    """The digest of the event before it."""
    events: tuple[dict[str, Any], ...] = ()
    """The events as JSON, each with its digest (`event_json`)."""


class Logged(Frozen):
    """The result of writing a `LogPart`."""

    length: int = 0
    """Number of events in the record."""
    head: str = GENESIS
    """The digest of the last of them."""
    refused: str = ""
    """Why the record permanently rejects these events; empty if it has them."""
