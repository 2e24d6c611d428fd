"""Following a run without a server: a short outage ends no follower."""

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import follow as follow_module
from holdfast.client.follow import follow
from holdfast.client.interventions import intervene
from holdfast.client.reading import runs
from holdfast.client.reading.runs import QUERY_RETRIES, Runs
from holdfast.errors import EventsMissing, NoWorker, QueryRefused, Refused, ServerUnreachable, ThreadNotFound
from tests.support.rig import PATIENCE

Answers = Iterable[Any]

REFUSED = QueryRefused("the worker that has thread 't' cannot answer: a divergence")
SILENT = NoWorker("no worker answered")
BEGUN, FINISHED = {"position": 0, "type": "run_started"}, {"position": 1, "type": "run_finished"}


@dataclass
class FakeDescription:
    """Temporal's description of a run."""

    status: WorkflowExecutionStatus = WorkflowExecutionStatus.RUNNING


@dataclass
class FakeHandle:
    """Records signals."""

    signals: list[str]

    async def signal(self, name: str, payload: Any, **options: Any) -> None:
        """Record the signal."""
        self.signals.append(name)

    async def execute_update(self, name: str, payload: Any, **options: Any) -> Any:
        """Reject updates, as an old server does."""
        raise RPCError("no updates", RPCStatusCode.UNIMPLEMENTED, b"")


@dataclass
class FakeThreads:
    """One thread that answers by a script: for each query the events to yield, or the error to raise."""

    answers: Answers
    signals: list[str] = field(default_factory=list)
    asked: int = 0
    from_history: int = 0
    answer_within: float = 8.0
    ends_after: float = math.inf
    """How many answers there are before the run has ended."""
    reopened: bool = False
    """Whether a later run continues the thread."""
    yielded: int = 0

    def __post_init__(self) -> None:
        self._answers = iter(self.answers)

    @property
    def runs(self) -> "FakeThreads":
        """The thread's runs."""
        return self

    @property
    def client(self) -> "FakeThreads":
        """The server's client, and its handle."""
        return self

    @property
    def data_converter(self) -> DataConverter:
        """The client's converter, without a fleet key."""
        return DataConverter.default

    def get_workflow_handle(self, thread: str) -> FakeHandle:
        """Return the run."""
        return FakeHandle(self.signals)

    @property
    def reader(self) -> "FakeThreads":
        """The thread's reader."""
        return self

    async def find(self, thread: str, *, loops: bool = False) -> FakeDescription:
        """Return a running or closed description."""
        return await self.describe(thread)

    async def describe(self, thread: str, *, loops: bool = False) -> FakeDescription:
        """Return a running or closed description."""
        return FakeDescription(
            WorkflowExecutionStatus.COMPLETED if self.asked >= self.ends_after else FakeDescription.status
        )

    async def query(self, thread: str, name: str) -> dict[str, Any]:
        """Return the state: closed after the last event of the script, unless a later run has begun."""
        return {"status": "running" if self.reopened else "completed", "events": self.yielded}

    async def events(
        self, thread: str, *, after: int = -1, found: FakeDescription, loops: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the script's events that the caller does not have yet."""
        self.asked += 1
        self.from_history += found.status is WorkflowExecutionStatus.COMPLETED
        for each in next(self._answers):
            if isinstance(each, Exception):
                raise each
            self.yielded = max(self.yielded, each["position"] + 1)
            if each["position"] > after:
                yield each

    async def state(self, thread: str) -> dict[str, Any]:
        """Answer by the script."""
        self.asked += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return {"status": answer}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the delay between polls."""
    monkeypatch.setattr(follow_module, "POLL_SECONDS", 0)
    monkeypatch.setattr(runs, "RETRY_SECONDS", 0)


async def followed(threads: Any, **options: Any) -> tuple[list[int], list[str], int]:
    """Return the yielded positions, the notes, and the number of pulses."""
    notes: list[str] = []
    pulses: list[None] = []
    async with asyncio.timeout(120):
        events = follow(threads, "t", note=notes.append, pulse=lambda: pulses.append(None), **options)
        return [event["position"] async for event in events], notes, len(pulses)


@pytest.mark.parametrize("error", [REFUSED, SILENT, ServerUnreachable("Temporal does not answer")])
async def test_after_the_first_event_a_follower_keeps_polling(error: Exception) -> None:
    """A rejected query then counts as an unavailable server: it is noted once, and no event is lost."""
    threads = FakeThreads([[BEGUN], [error], [error], [error], [BEGUN, FINISHED]])
    positions, notes, pulses = await followed(threads)
    assert positions == [0, 1]
    assert [str(error) in note for note in notes] == [True]
    assert pulses == 1  # the reason is noted again only after a worker answers


async def test_a_rejection_in_the_middle_loses_no_event_and_repeats_none() -> None:
    """Events yielded before a worker rejected are not yielded again."""
    positions, notes, _ = await followed(FakeThreads([[BEGUN, REFUSED], [BEGUN, FINISHED]]))
    assert positions == [0, 1]
    assert notes == [f"{REFUSED}. Retrying."]


async def test_a_reason_is_noted_again_after_an_answer() -> None:
    """Each outage is noted, once for each reason."""
    _, notes, _ = await followed(
        FakeThreads([[BEGUN], [REFUSED], [SILENT], [SILENT], [BEGUN], [SILENT], [BEGUN, FINISHED]])
    )
    assert [str(SILENT) in note for note in notes] == [False, True, True]


async def test_before_the_first_event_errors_are_raised() -> None:
    """Before anything was read, the error is raised."""
    for error in (REFUSED, SILENT, ThreadNotFound("no thread 't'")):
        threads = FakeThreads([[error], [error]])
        with pytest.raises(type(error)):
            await followed(threads)
        assert threads.asked == 1


async def test_missing_earlier_events_are_noted_and_skipped() -> None:
    """Earlier events that can no longer be read do not prevent following the rest."""
    gone = EventsMissing("events 0 to 6 are gone", stop=7)
    later = [{"position": 7, "type": "run_continued"}, {"position": 8, "type": "run_finished"}]
    positions, notes, _ = await followed(FakeThreads([[gone], later]))
    assert (positions, notes) == ([7, 8], ["events 0 to 6 are gone"])
    with pytest.raises(EventsMissing):
        await followed(FakeThreads([[EventsMissing("nobody knows how many", stop=None)]]))


async def test_the_end_of_an_earlier_run_is_not_the_end() -> None:
    """A thread that was re-opened is followed to the end of its latest run."""
    answers = [[BEGUN, FINISHED], [], [{"position": 2, "type": "run_started"}], *[[]] * 20]
    threads = FakeThreads(answers, reopened=True)
    threads.ends_after = 3
    positions, _, _ = await followed(threads)
    assert positions == [0, 1, 2]


async def test_the_patient_wait_from_the_first_moment() -> None:
    """With `patient`, rejections are noted from the start, without a limit."""
    positions, notes, _ = await followed(FakeThreads([*[[REFUSED]] * 9, [BEGUN, FINISHED]]), patient=True)
    assert (positions, len(notes)) == ([0, 1], 1)


async def test_a_run_that_ends_while_its_worker_rejects_is_read_to_its_end() -> None:
    """If no worker can replay a run, its last events are read from the history once it has ended."""
    threads = FakeThreads([[BEGUN], [REFUSED], [REFUSED], [BEGUN, FINISHED]], ends_after=3)
    positions, _, _ = await followed(threads)
    assert (positions, threads.from_history) == ([0, 1], 1)
    cut_short = FakeThreads([[BEGUN], [], [BEGUN]], ends_after=2)  # terminated: there is no last event
    positions, _, _ = await followed(cut_short)
    assert (positions, cut_short.from_history) == ([0], 1)


async def test_a_closed_run_that_cannot_be_read_is_an_error() -> None:
    """Following ends if a run has ended and neither its history nor a worker can read it."""
    with pytest.raises(QueryRefused):
        await followed(FakeThreads([[BEGUN], *[[REFUSED]] * 100], ends_after=2))


class FakeRuns(Runs):
    """A run whose worker answers queries by a script."""

    def __init__(self, answers: Answers) -> None:
        self.answers = iter(answers)
        self.asked = 0
        self.answer_within = 1.0

    @property
    def client(self) -> Any:
        """Return the server's client, and its handle."""
        return self

    @client.setter
    def client(self, client: Any) -> None: ...

    def get_workflow_handle(self, thread: str, *, run_id: str | None = None) -> Any:
        """Return the run, and its description."""
        return Handle(self)

    async def describe(self, thread: str, *, loops: bool = False) -> Any:
        """Return a description whose last workflow task did not fail."""
        return None

    async def _check_stuck(self, found: Any) -> None: ...


@dataclass
class Handle:
    """A run to query."""

    runs: FakeRuns

    async def query(self, name: str, **options: Any) -> Any:
        """Answer by the script."""
        self.runs.asked += 1
        answer = next(self.runs.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_rejected_query_is_retried() -> None:
    """Refusals are retried for about a second and then raised; every other error is raised at once."""
    failing = WorkflowQueryFailedError("a divergence")
    passing = FakeRuns([*[failing] * QUERY_RETRIES, {"status": "running"}])
    assert await passing.query("t", "state") == {"status": "running"}
    lasting = FakeRuns([failing] * 100)
    with pytest.raises(QueryRefused, match="a divergence"):
        await lasting.query("t", "state")
    assert lasting.asked == QUERY_RETRIES + 1
    other = FakeRuns([ValueError("something else")])
    with pytest.raises(ValueError, match="something else"):
        await other.query("t", "state")


async def test_a_retry_is_sent_as_a_signal_if_the_worker_cannot_answer() -> None:
    """The person who fixed the cause need not return: the run itself decides whether there is something to retry."""
    failing: Any = FakeThreads([REFUSED])
    sent = await intervene(failing, "t", "retry", {"by": "ann"})
    assert (sent.outcome, sent.counts, failing.signals) == ("sent", True, ["retry"])
    blocked: Any = FakeThreads(["blocked"])
    assert (await intervene(blocked, "t", "retry", {"by": "ann"})).outcome == "sent"
    assert blocked.signals == ["retry"]
    running: Any = FakeThreads(["running"])
    with pytest.raises(Refused):
        await intervene(running, "t", "retry", {"by": "ann"})
    assert running.signals == []


@pytest.mark.parametrize("turns", range(5))
async def test_a_follower_that_is_cancelled_as_news_arrives_ends(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many turns of the loop lie between the news and the cancellation."""
    monkeypatch.setattr(follow_module, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(follow_module, "POLL_SECONDS", 60.0)
    ahead = asyncio.Event()

    async def go_on() -> None:
        while True:
            await follow_module._pause(ahead)

    following = asyncio.create_task(go_on())
    for _ in range(5):
        await asyncio.sleep(0)
    ahead.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    await asyncio.wait([following], timeout=PATIENCE)
    assert following.cancelled()
