"""Bodies of responses, as JSON."""

from typing import Any, Literal

from pydantic import Field

from holdfast.core.llm.messages import Usage
from holdfast.gateway.http.problems import ResponseBody


class Outcome(ResponseBody):
    """The outcome of a decision or a message."""

    outcome: str
    """`accepted`, `waiting_for_quorum`, `queued`, … `sent`: Temporal holds it until a worker judges it."""
    explanation: str = ""
    by: str
    """The owner of the token or key."""


class Unanswered(ResponseBody):
    """A thread that has open requests, and whose worker did not answer."""

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
    """What became of an event that was published."""

    event: str
    id: str
    """The event's id: a run takes an event of one id once."""
    sent: list[str]
    """The threads that waited for it: Temporal delivers it to them."""
    unreached: list[Unanswered]
    """Threads that wait for it and could not be sent it. Repeat the request with the same `Idempotency-Key`."""
    by: str
    """The owner of the token or key."""


class Health(ResponseBody):
    """Whether the gateway can work."""

    temporal: Literal["ok", "away"]
    record: Literal["ok", "away", "none"]
    """The permanent record; only what Temporal has removed needs it."""


class StartedThread(ResponseBody):
    """A thread that was started, now or by the same request before."""

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
    """That of the thread; or `starting`, `not_started`, `removed`."""
    why: str
    """Why it failed, or was not started; else empty."""


class Schedule(ResponseBody):
    """What a schedule runs, when and for whom."""

    schedule: str
    """Its name, with which the ids of its threads begin."""
    task: str
    by: str
    """Who made it: who gives the task of each run."""
    agent: str | None
    reason: str
    budget: str = ""
    """What each run may use; empty for what its agent says."""
    cron: str | None
    every: float | None
    tz: str
    until: str | None
    overlap: str
    catchup: float | None
    paused: bool
    note: str
    """By whom and why it was paused or resumed last."""
    problem: str
    """Why it starts no run, though it is not paused; empty for no problem."""
    next: list[str]
    """The next five times; empty while it is paused, and after its end."""
    started: int
    skipped: int
    """How many runs it has left out, because the last one was open."""
    missed: int
    """How many it has left out, because Temporal was down."""
    runs: list[ScheduledRun]
    """The last ten runs, the newest first; of a list, none."""


class SchedulesList(ResponseBody):
    """The schedules that the caller may reach, by name."""

    schedules: list[Schedule]


class TriggeredRun(ResponseBody):
    """A run that a schedule has started on request."""

    thread: str | None
    """Its thread id; null where Temporal has not started it yet."""


class ListedThread(ResponseBody):
    """A thread in a list."""

    thread: str
    agent: str | None
    status: str
    step: int
    """How many times the LLM has replied."""
    pending: int
    """How many requests are open."""
    started_at: str


class ThreadsPage(ResponseBody):
    """A page of threads: open ones first, the newest first; then closed ones, the last closed first."""

    threads: list[ListedThread]
    next: str | None
    """The `cursor` of the next page; null after the last one."""


class ThreadResult(ResponseBody):
    """What a run has come to, or its status while it has come to nothing."""

    thread: str
    status: str
    """`completed`, `failed`, `cancelled`; of an open run what it waits for, or `running`."""
    text: str
    """The agent's last reply, or why the run failed; empty while the agent is at work."""
    structured: bool = False
    """`text` is a value of the agent's result type, as canonical JSON."""
    cause: str = ""
    """A short name of why the run failed: `AgentNotFound`, …"""
    steps: int
    usage: Usage
    pending: list[dict[str, Any]] = []
    """The requests to decide, where the status is `waiting_approval`."""
    blocked: dict[str, Any] | None = None
    """Why, where the status is `blocked`."""


class EventsPage(ResponseBody):
    """Events of a thread, oldest first."""

    events: list[dict[str, Any]]
    """Each has `position` and `type`."""
    next: int | None
    """The `after` of the next page; null where there are no more events now."""


class MessagesPage(ResponseBody):
    """Messages between people, agent and tools, oldest first, without the system message."""

    messages: list[dict[str, Any]]
    """Each has a `role`: `user`, `assistant` or `tool`."""
    next: int | None
    """The `after` of the next page; null where there are no more messages now."""


class ListedArtifact(ResponseBody):
    """An artifact that an event of the thread refers to."""

    address: str = Field(examples=["sha256:" + "0" * 64])
    position: int
    """The position of the event."""


class ArtifactsPage(ResponseBody):
    """Artifacts that a thread's events refer to, oldest first."""

    artifacts: list[ListedArtifact]
    next: int | None
    """The `after` of the next page; null where there are no more now."""
