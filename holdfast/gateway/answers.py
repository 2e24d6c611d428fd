"""JSON bodies of responses."""

from typing import Any, Literal

from pydantic import Field

from holdfast.core.llm.messages import Usage
from holdfast.gateway.http.problems import ResponseBody


class Outcome(ResponseBody):
    """The outcome of a decision or a message."""

    outcome: str
    """`accepted`, `waiting_for_quorum`, `queued`, … `sent`: it is in Temporal until a worker judges it."""
    explanation: str = ""
    by: str
    """The owner of the token or key."""


class Unanswered(ResponseBody):
    """A thread with open requests whose worker did not answer."""

    thread: str
    why: str


class PendingOf(ResponseBody):
    """The open requests of a thread and of its sub-agents."""

    pending: list[dict[str, Any]]
    unanswered: list[Unanswered] = []
    """Sub-agents that could not be read."""


class PendingOfAll(ResponseBody):
    """The open requests of all threads."""

    pending: list[dict[str, Any]]
    unanswered: list[Unanswered]
    """Threads whose workers did not answer."""


class PublishedEvent(ResponseBody):
    """The outcome of a published event."""

    event: str
    id: str
    """The event's id: a run accepts an event with the same id only once."""
    sent: list[str]
    """The threads that waited for it: Temporal delivers it to them."""
    unreached: list[Unanswered]
    """Waiting threads that it could not be sent to. Repeat the request with the same `Idempotency-Key`."""
    by: str
    """The owner of the token or key."""


class Health(ResponseBody):
    """The gateway's health."""

    temporal: Literal["ok", "away"]
    record: Literal["ok", "away", "none"]
    """The permanent record, required only to read runs that Temporal has removed."""


class StartedThread(ResponseBody):
    """A thread that was started, now or by an earlier identical request."""

    thread: str = Field(examples=["refund-4711"])
    """Its id; `Location` has its address."""
    by: str
    """The owner of the token or key."""


class ScheduledRun(ResponseBody):
    """A run that a schedule has started, or failed to start."""

    thread: str
    due_at: str
    started_at: str
    status: str
    """The thread's status; or `starting`, `not_started`, `removed`."""
    why: str
    """Why it failed, or was not started; else empty."""


class Schedule(ResponseBody):
    """A schedule: its task, times and requester."""

    schedule: str
    """Its name, the prefix of the ids of its threads."""
    task: str
    by: str
    """Its author, the requester of each run."""
    agent: str | None
    reason: str
    budget: str = ""
    """The budget of each run; empty for the agent's own budget."""
    context: dict[str, Any] | None = None
    """The typed context of each run; null for no context."""
    unattended: bool = False
    """The runs fail instead of waiting for a person."""
    cron: str | None
    every: float | None
    tz: str
    until: str | None
    overlap: str
    catchup: float | None
    paused: bool
    note: str
    """Who paused or resumed it last, and why."""
    problem: str
    """Why it starts no run, although it is not paused; empty for no problem."""
    next: list[str]
    """The next five times; empty while it is paused, and after its end."""
    started: int
    skipped: int
    """The number of runs that it skipped because the last one was open."""
    missed: int
    """The number of runs that it missed because Temporal was down."""
    runs: list[ScheduledRun]
    """The last ten runs, newest first; empty in a list of schedules."""


class SchedulesList(ResponseBody):
    """The schedules that the caller may reach, by name."""

    schedules: list[Schedule]


class TriggeredRun(ResponseBody):
    """A run that a schedule started on request."""

    thread: str | None
    """Its thread id; null if Temporal has not started it yet."""


class ListedThread(ResponseBody):
    """A thread in a list."""

    thread: str
    agent: str | None
    status: str
    step: int
    """The number of LLM replies."""
    pending: int
    """The number of open requests."""
    started_at: str
    unanswered: bool = False
    """No worker answered for this open thread, so the values are those of Temporal's index, which lags."""


class ThreadsPage(ResponseBody):
    """A page of threads: open ones, newest first; then closed ones, last closed first."""

    threads: list[ListedThread]
    next: str | None
    """The `cursor` of the next page; null after the last one."""


class ThreadResult(ResponseBody):
    """The result of a run, or its status while there is none."""

    thread: str
    status: str
    """`completed`, `failed`, `cancelled`; for an open run, `running` or the reason why it waits."""
    text: str
    """The agent's last reply, or why the run failed; empty while the agent is working."""
    structured: bool = False
    """`text` is a value of the agent's result type, as canonical JSON."""
    cause: str = ""
    """The short name of the cause of a failure: `AgentNotFound`, …"""
    steps: int
    usage: Usage
    pending: list[dict[str, Any]] = []
    """The requests to decide, if the status is `waiting_approval`: those of the run and of its sub-agents. A `path`
    ends with the thread of the sub-agent that asks."""
    blocked: dict[str, Any] | None = None
    """The reason, if the status is `blocked`."""
    attention: list[dict[str, Any]] = []
    """The runs of the tree that need a person, from the top down, each with its `thread`, `status`, `cause`, `pending`,
    `blocked` and `paused`."""


class EventsPage(ResponseBody):
    """Events of a thread, oldest first."""

    events: list[dict[str, Any]]
    """Each has `position` and `type`."""
    next: int | None
    """The `after` of the next page; null if there are no more events now."""


class MessagesPage(ResponseBody):
    """Messages between people, agent and tools, oldest first, without the system message."""

    messages: list[dict[str, Any]]
    """Each has a `role` (`user`, `assistant` or `tool`), and the time `at` which it came."""
    next: int | None
    """The `after` of the next page; null if there are no more messages now."""


class ListedArtifact(ResponseBody):
    """An artifact that an event of the thread refers to."""

    address: str = Field(examples=["sha256:" + "0" * 64])
    position: int
    """The position of the event."""


class ArtifactsPage(ResponseBody):
    """Artifacts that a thread's events refer to, oldest first."""

    artifacts: list[ListedArtifact]
    next: int | None
    """The `after` of the next page; null if there are no more now."""
